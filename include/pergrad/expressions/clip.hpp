// SPDX-License-Identifier: Apache-2.0
// pergrad/expressions/clip.hpp - per-sample gradients of bounded norm: clip, clip_per_layer, normalise and their kin
//
// A clipped expression knows the most that one sample can add to its sum. That number is its sensitivity; noise is
// scaled by it and by nothing else.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <pergrad/detail/error_text.hpp>
#include <pergrad/detail/float_environment.hpp>
#include <pergrad/expressions/leaf.hpp>
#include <pergrad/privacy/clip.hpp>
#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1 {

namespace detail {

// Read from the network's structure and not from an executor's tables: a program for a device makes none of the host's.

template <class Structure>
[[nodiscard]] constexpr std::size_t count_layer_groups() {
  std::size_t count = 0;
  for (std::size_t i = 0; i < Structure::size; ++i) {
    if (Structure::trained_counts[i] > 0 && Structure::owners[i] == i) ++count;
  }
  return count;
}
/// Layers with parameters of their own; tied ones count once.
template <class Network>
inline constexpr std::size_t layer_groups = count_layer_groups<typename Network::structure>();

template <class Structure>
[[nodiscard]] constexpr auto list_layer_groups() {
  std::array<std::size_t, count_layer_groups<Structure>()> groups{};
  std::size_t layer = 0;
  for (std::size_t i = 0; i < Structure::size; ++i) {
    if (Structure::trained_counts[i] > 0 && Structure::owners[i] == i) groups[layer++] = Structure::groups[i];
  }
  return groups;
}
/// The clipping group of each of them.
template <class Network>
inline constexpr std::array<std::size_t, layer_groups<Network>> group_of_layer =
    list_layer_groups<typename Network::structure>();

template <std::size_t Layers>
[[nodiscard]] constexpr std::size_t count_clipping_groups(const std::array<std::size_t, Layers>& group_of) {
  std::size_t most = 0;
  for (const std::size_t group : group_of) most = std::max(most, group);
  return most + 1;
}
template <class Network>
inline constexpr std::size_t clipping_groups = count_clipping_groups(group_of_layer<Network>);

// Each rule bounds what one record adds; `weigh` gives its weights in units of 2^unit.

/// Who may let samples through or not, by an upper bound of the norm of what each would add: of that sample alone, and
/// on any thread.
struct sample_gate {
  void* context;
  bool (*passes)(void* context, std::size_t sample, double most);
};

/// Of the bits of some parameters (FNV-1a, four at a time, with upper bits brought down: a sign is the uppermost one,
/// and a product would leave it there, where another sign takes it back).
template <class Scalar>
[[nodiscard]] inline std::uint64_t fingerprint_of(std::span<const Scalar> parameters) noexcept {
  using word = std::conditional_t<sizeof(Scalar) == 4, std::uint32_t, std::uint64_t>;
  constexpr std::uint64_t prime = 0x100000001b3U;
  std::uint64_t lanes[4] = {0xcbf29ce484222325U, 1, 2, 3};
  const auto mix = [&](std::size_t lane, std::size_t i) {
    lanes[lane] = (lanes[lane] ^ std::bit_cast<word>(parameters[i])) * prime;
    lanes[lane] ^= lanes[lane] >> 32U;
  };
  const std::size_t whole = parameters.size() / 4 * 4;
  for (std::size_t i = 0; i < whole; i += 4) {  // written out, so that lanes stay in registers
    mix(0, i);
    mix(1, i + 1);
    mix(2, i + 2);
    mix(3, i + 3);
  }
  for (std::size_t i = whole; i < parameters.size(); ++i) mix(i % 4, i);
  std::uint64_t all = parameters.size();
  for (const std::uint64_t lane : lanes) all = (all ^ lane ^ lane >> 32U) * prime;
  return all;
}
/// Throws std::logic_error unless a network's weights have this fingerprint.
template <class Network>
void require_weights(const Network& network, std::uint64_t fingerprint) {
  if (fingerprint_of(network.all_parameters()) == fingerprint) return;
  throw_logic_error({"pergrad: unclipped: weights have changed since the bound was proven: prove it anew"});
}

/// w = min(1, C / ‖g‖), and 0 of samples that a gate does not let through; of gradients that are proven to be no longer
/// than C, 1 and no norms: one type, so that a trainer compiles one sum for both
struct flat_clip {
  static constexpr bool per_layer = false;
  double bound = 0;
  const sample_gate* gate = nullptr;
  bool is_proven = false;
  std::uint64_t weights_of_proof = 0;  ///< their fingerprint; 0: whoever proves it sees to that
  [[nodiscard]] bool needs_norms() const noexcept { return !is_proven; }
  [[nodiscard]] double sensitivity() const noexcept { return bound; }
  template <class Network, class Scalar>
  void weigh(const detail::sample_facts<Scalar>& facts, int unit, Scalar* weights) const noexcept {
    constexpr std::size_t count = Network::parameter_count;
    if (is_proven) {
      weights[0] = static_cast<Scalar>(std::ldexp(1.0, -unit));
      return;
    }
    weights[0] = clip_factor<Scalar>(facts.norm, count, bound, unit);
    if (gate != nullptr &&
        !gate->passes(gate->context, facts.sample, clipped_norm_bound<Scalar>(facts.norm, count, bound, unit))) {
      weights[0] = 0;
    }
  }
};

/// w = C / (‖g‖ + stability), or per-sample adaptive w = C / (‖g‖ + stability / (‖g‖ + stability)): one type, so that a
/// trainer compiles one sum for both
struct flat_normalise {
  static constexpr bool per_layer = false;
  double bound = 0;
  double stability = 0;
  bool adaptive = false;
  [[nodiscard]] double sensitivity() const noexcept { return bound; }
  template <class Network, class Scalar>
  void weigh(const detail::sample_facts<Scalar>& facts, int unit, Scalar* weights) const noexcept {
    constexpr std::size_t count = Network::parameter_count;
    weights[0] = adaptive ? per_sample_adaptive_factor<Scalar>(facts.norm, count, bound, stability, unit)
                          : normalise_factor<Scalar>(facts.norm, count, bound, stability, unit);
  }
};

/// w_l = min(1, C_l / ‖g_l‖) for every layer with parameters; the whole sample is left out if any layer is not finite.
template <std::size_t Layers>
struct layer_clip {
  static constexpr bool per_layer = true;
  std::array<double, Layers> bounds;
  double whole = 0;  ///< above 0: what the bounds were made of, and do not exceed together
  /// `whole`, or sqrt(sum C_l²), rounded up.
  [[nodiscard]] double sensitivity() const noexcept {
    if (whole > 0) return whole;
    const float_environment proven;
    double sum = 0;
    for (const double bound : bounds) sum += bound * bound;
    return std::sqrt(sum) * (1 + static_cast<double>(Layers + 4) * std::numeric_limits<double>::epsilon());
  }
  template <class Network, class Scalar>
  void weigh(const detail::sample_facts<Scalar>& facts, int unit, Scalar* weights) const noexcept {
    const bool finite = is_finite_norm<Scalar>(norm_upper_bound(facts.norm, Network::parameter_count));
    for (std::size_t layer = 0; layer < Layers; ++layer) {
      weights[layer] =
          finite ? clip_factor<Scalar>(facts.layers[layer], Network::parameter_count, bounds[layer], unit) : Scalar{0};
    }
  }
};

/// w_k = min(1, C_k / ‖g_k‖) for every clipping group k of layers; the whole sample is left out if it is not finite.
template <std::size_t Groups>
struct group_clip {
  static constexpr bool per_layer = true;
  std::array<double, Groups> bounds;
  /// sqrt(sum C_k²), rounded up.
  [[nodiscard]] double sensitivity() const noexcept { return layer_clip<Groups>{bounds}.sensitivity(); }
  template <class Network, class Scalar>
  void weigh(const detail::sample_facts<Scalar>& facts, int unit, Scalar* weights) const noexcept {
    constexpr const auto& groups = group_of_layer<Network>;
    std::array<norm_bound, Groups> norms{};
    for (std::size_t layer = 0; layer != groups.size(); ++layer) norms[groups[layer]] += facts.layers[layer];
    const bool finite = is_finite_norm<Scalar>(norm_upper_bound(facts.norm, Network::parameter_count));
    for (std::size_t layer = 0; layer != groups.size(); ++layer) {
      const std::size_t group = groups[layer];
      weights[layer] =
          finite ? clip_factor<Scalar>(norms[group], Network::parameter_count, bounds[group], unit) : Scalar{0};
    }
  }
};

}  // namespace detail

namespace detail {
struct gated_clip;
}

/// Per-sample gradients, each scaled to a norm of at most its rule's bound. A sample whose gradient is not finite
/// counts as 0. Made by `clip` and its kin only: a rule of somebody else's could claim any bound.
template <class Leaf, class Rule>
class clipped_gradients final : public detail::expression_tag {
 public:
  using scalar = typename Leaf::scalar;

  [[nodiscard]] const Leaf& leaf() const noexcept { return leaf_; }
  [[nodiscard]] const Rule& rule() const noexcept { return rule_; }
  [[nodiscard]] std::size_t size() const noexcept { return leaf_.size(); }
  /// The most that adding or removing one sample can move the sum, in L2.
  [[nodiscard]] double sensitivity() const noexcept { return rule_.sensitivity(); }

  /// Does a weight depend on norms?
  [[nodiscard]] bool needs_norms() const noexcept {
    if constexpr (requires { rule_.needs_norms(); }) {
      return rule_.needs_norms();
    } else {
      return true;
    }
  }

  /// Throws std::logic_error for a proof of other weights than the network has.
  void require_proof() const {
    if constexpr (requires { rule_.weights_of_proof; }) {
      if (rule_.weights_of_proof != 0) detail::require_weights(leaf_.network(), rule_.weights_of_proof);
    }
  }

  /// One clipped gradient, lazily. Throws std::out_of_range.
  [[nodiscard]] gradient_row<clipped_gradients, true> operator[](std::size_t sample) const;

  /// Fills in the weights part of a request; the rule must live until the evaluation is over.
  void weigh_into(detail::sum_request<scalar>& request) const noexcept {
    request.is_plain = false;
    request.is_proven = !needs_norms();
    request.per_layer = Rule::per_layer;
    request.weigher = &rule_;
    request.weigh = [](const void* rule, const detail::sample_facts<scalar>& facts, int unit, scalar* weights) {
      static_cast<const Rule*>(rule)->template weigh<typename Leaf::network_type>(facts, unit, weights);
    };
  }

 private:
  // The only ways to clipped gradients.
  friend struct detail::gated_clip;
  template <class Network, class Loss, detail::algorithms Which>
  friend auto clip(const per_sample_gradient_leaf<Network, Loss, Which>& gradients, l2_clip_norm bound);
  template <class Network, class Loss, detail::algorithms Which>
  friend auto clip_per_layer(const per_sample_gradient_leaf<Network, Loss, Which>& gradients,
                             std::span<const l2_clip_norm> bounds);
  template <class Network, class Loss, detail::algorithms Which>
  friend auto clip_per_layer(const per_sample_gradient_leaf<Network, Loss, Which>& gradients, l2_clip_norm bound);
  template <class Network, class Loss, detail::algorithms Which>
  friend auto clip_per_group(const per_sample_gradient_leaf<Network, Loss, Which>& gradients,
                             std::span<const l2_clip_norm> bounds);
  template <class Network, class Loss, detail::algorithms Which>
  friend auto normalise(const per_sample_gradient_leaf<Network, Loss, Which>& gradients, l2_clip_norm bound,
                        double stability);
  template <class Network, class Loss, detail::algorithms Which>
  friend auto normalise_adaptively(const per_sample_gradient_leaf<Network, Loss, Which>& gradients, l2_clip_norm bound,
                                   double r);

  clipped_gradients(Leaf leaf, Rule rule) : leaf_{leaf}, rule_{rule} {}

  Leaf leaf_;
  Rule rule_;
};

/// g_b min(1, C / ‖g_b‖): the norm of what is added is at most C exactly, in the numbers that are added.
template <class Network, class Loss, detail::algorithms Which>
[[nodiscard]] auto clip(const per_sample_gradient_leaf<Network, Loss, Which>& gradients, l2_clip_norm bound) {
  return clipped_gradients{gradients, detail::flat_clip{bound.value()}};
}

namespace detail {
/// `clip` of the samples that a gate lets through; of all without one. The gate must live until the evaluation is over.
struct gated_clip {
  template <class Network, class Loss, algorithms Which>
  [[nodiscard]] static auto of(const per_sample_gradient_leaf<Network, Loss, Which>& gradients, l2_clip_norm bound,
                               const sample_gate* gate) {
    return clipped_gradients{gradients, flat_clip{bound.value(), gate}};
  }
  /// Of gradients that are proven to be no longer than the bound.
  template <class Network, class Loss, algorithms Which>
  [[nodiscard]] static auto proven(const per_sample_gradient_leaf<Network, Loss, Which>& gradients, l2_clip_norm bound,
                                   std::uint64_t weights = 0) {
    return clipped_gradients{gradients, flat_clip{bound.value(), nullptr, true, weights}};
  }
};
}  // namespace detail

/// Every layer with parameters clipped on its own: `bounds` has one C_l a layer, in order. Sensitivity sqrt(sum C_l²).
/// Throws std::invalid_argument for another number of bounds.
template <class Network, class Loss, detail::algorithms Which>
[[nodiscard]] auto clip_per_layer(const per_sample_gradient_leaf<Network, Loss, Which>& gradients,
                                  std::span<const l2_clip_norm> bounds) {
  constexpr std::size_t layers = detail::layer_groups<Network>;
  if (bounds.size() != layers) {
    detail::throw_invalid_argument(
        {"pergrad: clip_per_layer: ", bounds.size(), " bounds for ", layers, " layers with parameters"});
  }
  detail::layer_clip<layers> rule{};
  for (std::size_t layer = 0; layer < layers; ++layer) rule.bounds[layer] = bounds[layer].value();
  return clipped_gradients{gradients, rule};
}
/// Every layer with parameters clipped to C / sqrt(layers), so that the whole has sensitivity C.
template <class Network, class Loss, detail::algorithms Which>
[[nodiscard]] auto clip_per_layer(const per_sample_gradient_leaf<Network, Loss, Which>& gradients, l2_clip_norm bound) {
  constexpr std::size_t layers = detail::layer_groups<Network>;
  const detail::float_environment proven;
  detail::layer_clip<layers> rule{};
  // As much less as all roundings may be, so that the bound of the whole is C, to the last bit.
  constexpr double less = 1 - static_cast<double>(2 * layers + 12) * std::numeric_limits<double>::epsilon();
  rule.bounds.fill(bound.value() / std::sqrt(static_cast<double>(layers == 0 ? 1 : layers)) * less);
  if (rule.sensitivity() <= bound.value()) rule.whole = bound.value();  // a bound near 0 may round otherwise
  return clipped_gradients{gradients, rule};
}

/// Every clipping group clipped on its own: group k is what `parameter_group<k, ...>` holds, group 0 all the rest;
/// `bounds` has one C_k a group. Sensitivity sqrt(sum C_k²). Throws std::invalid_argument for another number of bounds.
template <class Network, class Loss, detail::algorithms Which>
[[nodiscard]] auto clip_per_group(const per_sample_gradient_leaf<Network, Loss, Which>& gradients,
                                  std::span<const l2_clip_norm> bounds) {
  constexpr std::size_t groups = detail::clipping_groups<Network>;
  if (bounds.size() != groups) {
    detail::throw_invalid_argument(
        {"pergrad: clip_per_group: ", bounds.size(), " bounds for ", groups, " clipping groups"});
  }
  detail::group_clip<groups> rule{};
  for (std::size_t group = 0; group < groups; ++group) rule.bounds[group] = bounds[group].value();
  return clipped_gradients{gradients, rule};
}

/// g_b C / (‖g_b‖ + stability): automatic clipping (Bu et al. 2022, arXiv:2206.07136). Sensitivity C.
/// Throws std::invalid_argument unless stability is finite and at least 1e-100: below, squares that vanish would count.
template <class Network, class Loss, detail::algorithms Which>
[[nodiscard]] auto normalise(const per_sample_gradient_leaf<Network, Loss, Which>& gradients,
                             l2_clip_norm bound = l2_clip_norm{1.0}, double stability = 0.01) {
  if (!(stability >= 1e-100) || !std::isfinite(stability)) {
    detail::throw_invalid_argument(
        {"pergrad: normalise: stability must be finite and at least 1e-100, got ", stability});
  }
  return clipped_gradients{gradients, detail::flat_normalise{bound.value(), stability}};
}

/// g_b C / (‖g_b‖ + r / (‖g_b‖ + r)): per-sample adaptive clipping, DP-PSAC (Xia et al. 2023, arXiv:2212.00328).
/// Sensitivity C. Throws std::invalid_argument unless r is finite and at least 1e-100, as for `normalise`.
template <class Network, class Loss, detail::algorithms Which>
[[nodiscard]] auto normalise_adaptively(const per_sample_gradient_leaf<Network, Loss, Which>& gradients,
                                        l2_clip_norm bound = l2_clip_norm{1.0}, double r = 0.1) {
  if (!(r >= 1e-100) || !std::isfinite(r)) {
    detail::throw_invalid_argument({"pergrad: normalise_adaptively: r must be finite and at least 1e-100, got ", r});
  }
  return clipped_gradients{gradients, detail::flat_normalise{bound.value(), r, true}};
}

}  // namespace pergrad::inline v0_1
