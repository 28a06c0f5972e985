// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/plan/plan.hpp - how a network is cut into launches, and how each block's norm is found: constants of the
// type
#pragma once

#include <cstddef>

#include <pergrad/cuda/kernels/tables.hpp>
#include <pergrad/cuda/plan/gemm_door.hpp>
#include <pergrad/gradients/plan.hpp>
#include <pergrad/graph/plan.hpp>

namespace pergrad::inline v0_1::on_device {

/// `fused`: one block takes a sample through everything, one launch. `layered`: products of affine layers run over the
/// whole physical batch, each in a launch of its own; what lies between them goes sample by sample.
enum class plan_kind { fused, layered };

/// Multiply-adds of one sample's forward pass.
template <class Network>
inline constexpr std::size_t forward_work = [] {
  std::size_t work = 0;
  for (const pergrad::detail::plan_node& node : pergrad::detail::network_plan<typename Network::structure>::nodes) {
    if (node.kind == node_kind::affine) work += node.map.weight_count() * node.map.positions();
  }
  return work;
}();
/// A block reads all weights for its sample; where they are many, samples must share them. The bounds are estimates
/// (weights of 1 MiB, 4 million multiply-adds a sample), not measured.
template <class Network>
inline constexpr plan_kind plan_of = Network::parameter_count <= (std::size_t{1} << 18U) && forward_work<Network> <=
                                                                                                (std::size_t{1} << 22U)
                                         ? plan_kind::fused
                                         : plan_kind::layered;

/// Tiles of the product that squares a view's gradient.
[[nodiscard]] constexpr int square_tiles_of(const affine_view& view) noexcept {
  return with_tiles(choose_gemm(gemm_product::squares, view, false), [&]<class Tiles>(Tiles) {
    return blocks_for(view.outputs, Tiles::rows) * blocks_for(view.view_width(), Tiles::columns);
  });
}

/// Elements of a sample's gradient that may be kept from its norm to the sums: those of a batch should stay in the
/// device's cache.
inline constexpr int most_kept = 1 << 15;
/// Positions from which on forming a gradient twice costs more than writing and reading it: 8 bytes of traffic against
/// 2 T operations an element. An estimate from data sheets, not measured.
inline constexpr int positions_worth_keeping = 16;

/// How a device finds the norm of a block: exact ways only, the cheapest in multiply-adds, as on the host
/// (gradients/plan.hpp) with a device's prices. Dots are in double, which most devices are slow at.
[[nodiscard]] constexpr norm_method cheapest_on_device(const affine_view& view) noexcept {
  const double positions = view.positions();
  const double width = view.view_width();
  const double outputs = view.outputs;
  if (view.positions() == 1) return norm_method::product;
  constexpr double dot_element = 4;
  const double gram = dot_element * positions * (positions + 1) / 2 * (width + outputs) + positions * width * outputs;
  const double direct = 2 * positions * width * outputs;
  if (gram < direct) return norm_method::gram;
  return view.positions() >= positions_worth_keeping ? norm_method::instantiate : norm_method::direct;
}

}  // namespace pergrad::inline v0_1::on_device
