// SPDX-License-Identifier: Apache-2.0
// pergrad/host/norms/request.hpp - what the host makes of a request: where samples come from, and how norms are found
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include <pergrad/gradients/plan.hpp>
#include <pergrad/gradients/request.hpp>
#include <pergrad/graph/layout.hpp>
#include <pergrad/host/norms/leaves.hpp>
#include <pergrad/host/plan/tables.hpp>
#include <pergrad/privacy/clip.hpp>

namespace pergrad::inline v0_1::on_host {

using detail::run_request;
using detail::sample_facts;
using detail::strategy_kind;
using detail::sum_request;

/// Norms that a network's plan does not choose: an expression that asks for them brings them along (outer_way.hpp), a
/// program without one does not compile them.
template <class Scalar>
struct other_norms {
  norm_bound (*gram)(const leaf_kernel<Scalar>&, index sample);
  norm_bound (*direct)(const leaf_kernel<Scalar>&, index sample);
};
template <class Scalar>
inline constexpr other_norms<Scalar> every_norm{
    [](const leaf_kernel<Scalar>& kernel, index sample) { return kernel.gram(sample); },
    [](const leaf_kernel<Scalar>& kernel, index sample) { return kernel.direct(sample); }};

/// What is known of a position whose logits y come a stretch of classes at a time (host/run/streamed_logits.hpp).
template <class Scalar>
struct streamed_position {
  double sum = 0;  ///< of e^{y_j - largest}, of the classes that were seen
  Scalar largest = -std::numeric_limits<Scalar>::infinity();
  Scalar target = 0;    ///< the target's y
  Scalar weight = 0;    ///< what the position's loss is multiplied by
  Scalar share = 0;     ///< weight / sum
  bool counts = false;  ///< else its gradient is 0
};
/// A loss that takes logits so; `y` of a sample is [position][class of the stretch].
template <class Scalar>
struct streamed_loss {
  void (*see)(const void* context, std::size_t sample, std::span<streamed_position<Scalar>> positions, const Scalar* y,
              index first, index count, index length);
  double (*finish)(const void* context, std::size_t sample, std::span<streamed_position<Scalar>> positions,
                   index length);
  void (*differentiate)(const void* context, std::size_t sample, std::span<const streamed_position<Scalar>> positions,
                        Scalar* y, index first, index count);
};

/// Where samples come from and what their loss is.
template <class Scalar>
struct sample_source {
  const void* context = nullptr;
  const void* (*input)(const void*, std::size_t sample) = nullptr;     ///< Scalar, or std::int32_t of ids
  std::uint32_t (*record)(const void*, std::size_t sample) = nullptr;  ///< number of the sample in its data set
  std::uint32_t (*length)(const void*, std::size_t sample) = nullptr;
  /// `length`: positions of the output that are there, if it has positions.
  double (*loss)(const void*, std::size_t sample, std::span<const Scalar> y, std::span<Scalar> dy,
                 index length) = nullptr;
  const streamed_loss<Scalar>* streamed = nullptr;  ///< null: it wants all logits together
  /// Writes the rows of some samples of a worker's tile: only programs that want rows compile it.
  void (*write_rows)(void* worker, index begin, index end) = nullptr;
};

/// The most samples whose rounded shares an integer of an accumulator can add up.
template <class Scalar>
[[nodiscard]] index most_samples_of_integers(const run_request<Scalar>& request) {
  index most = index{1} << 20;
  for (std::size_t k = 0; k < request.sum_count; ++k) {
    if (request.sums[k].integers != nullptr && sizeof(Scalar) == sizeof(std::int32_t)) {
      most = std::min(most, static_cast<index>(detail::most_rounded_shares(request.sums[k].grid_steps)));
    }
  }
  return most;
}

/// How the norm of a block is found.
template <class Scalar>
[[nodiscard, gnu::noinline]] norm_method method_of(const run_request<Scalar>& request, const outer_leaf& leaf,
                                                   bool every_gradient) {
  const bool formed = leaf.deferred ? request.keeps_gradients() : every_gradient;
  if (formed || leaf.delta_stride != 1 || leaf.at_once) return norm_method::instantiate;
  const norm_method asked = request.method;
  const std::size_t node = leaf.of_uses ? leaf.first_node : leaf.node;
  const bool chosen = asked != norm_method::automatic && node < 64 && (request.method_layers >> node & 1U) != 0;
  const bool all = asked != norm_method::automatic && request.method_layers == ~std::uint64_t{0};
  const norm_method wanted = chosen || all ? asked : leaf.method;
  if (leaf.of_uses) {
    if (wanted == norm_method::instantiate && request.strategy == strategy_kind::ghost) return norm_method::gram;
    return wanted == norm_method::instantiate || wanted == norm_method::gram ? wanted : leaf.method;
  }
  if (wanted == norm_method::product && leaf.positions() != 1) return leaf.method;
  if (wanted == norm_method::instantiate && request.strategy == strategy_kind::ghost) return norm_method::direct;
  return wanted;
}

}  // namespace pergrad::inline v0_1::on_host
