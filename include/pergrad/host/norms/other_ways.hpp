// SPDX-License-Identifier: Apache-2.0
// pergrad/host/norms/other_ways.hpp - ways to gradients, norms and sums: those that a network's plan takes are compiled
// with it, others only in programs that ask for them
#pragma once

#include <cstddef>

#include <pergrad/gradients/plan.hpp>
#include <pergrad/graph/layout.hpp>
#include <pergrad/host/norms/leaves.hpp>
#include <pergrad/host/norms/request.hpp>
#include <pergrad/host/plan/program.hpp>
#include <pergrad/host/plan/tables.hpp>
#include <pergrad/privacy/clip.hpp>
#include <pergrad/simd/elements.hpp>

namespace pergrad::inline v0_1::on_host {

template <class Network>
class passes;
template <class Network>
struct worker;

/// What other methods and strategies than those by default need. An expression that sets them brings it along
/// (every_way.hpp).
template <class Network>
struct other_ways {
  using scalar = typename Network::scalar;
  norm_bound (*gram)(const leaf_kernel<scalar>&, index sample);
  norm_bound (*direct)(const leaf_kernel<scalar>&, index sample);
  void (*one_by_one)(worker<Network>&, passes<Network>&, std::size_t first, index samples);
  void (*second_pass)(worker<Network>&, passes<Network>&, const sum_request<scalar>&, std::size_t first, index begin,
                      index end, scalar* sum);
};

/// Has the network such a block?
template <class Network, class Predicate>
[[nodiscard]] constexpr bool any_outer(Predicate wanted) {
  constexpr const auto& table = program<Network>::table;
  for (std::size_t k = 0; k != table.outer_count; ++k) {
    if (wanted(table.outer[k])) return true;
  }
  return false;
}

template <class Network, class Scalar>
[[nodiscard]] norm_bound norm_by_gram(const leaf_kernel<Scalar>& kernel, index sample,
                                      [[maybe_unused]] const other_ways<Network>* others) {
  if constexpr (any_outer<Network>([](const outer_leaf& leaf) { return leaf.method == norm_method::gram; })) {
    return kernel.gram(sample);
  } else {
    return others->gram(kernel, sample);
  }
}
template <class Network, class Scalar>
[[nodiscard]] norm_bound norm_by_sum(const leaf_kernel<Scalar>& kernel, index sample,
                                     [[maybe_unused]] const other_ways<Network>* others) {
  if constexpr (any_outer<Network>([](const outer_leaf& leaf) { return leaf.method == norm_method::direct; })) {
    return kernel.direct(sample);
  } else {
    return others->direct(kernel, sample);
  }
}
/// Forms a block's gradient; that of shared parameters is added to that of later uses. Returns its squared norm. `room`
/// holds a gradient.
template <class Network, class Scalar>
[[nodiscard]] double form_gradient(const leaf_kernel<Scalar>& kernel, index sample, Scalar* gradient,
                                   [[maybe_unused]] Scalar* room) {
  if constexpr (any_outer<Network>([](const outer_leaf& leaf) { return leaf.use.shared(); })) {
    if (!kernel.leaf.use.last) return kernel.instantiate_onto(sample, gradient, room);
  }
  return kernel.instantiate(sample, gradient);
}

}  // namespace pergrad::inline v0_1::on_host
