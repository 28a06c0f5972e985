// SPDX-License-Identifier: Apache-2.0
// pergrad/expressions/unclipped.hpp - per-sample gradients whose norms are proven to be bounded, as they are
//
//   const pg::certified_bound K{net, pg::cross_entropy{}};                                  // certify/training.hpp
//   evaluate_into(exec, update, sum(unclipped(g, K)) + gaussian_noise(sigma, rng));         // noise sigma K
//
// No norms, no weights: one ordinary backward pass. What is added for a record is its gradient in units of a power of
// two at K. A product by it is exact but where it is subnormal: less than 2^-60 K, as K is at least 1e-30 and no value
// of a proven network is above 2^60; `proof_of_gradients` has room for that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <type_traits>
#include <utility>

#include <pergrad/detail/error_text.hpp>
#include <pergrad/detail/executors.hpp>
#include <pergrad/errors.hpp>
#include <pergrad/expressions/clip.hpp>
#include <pergrad/expressions/leaf.hpp>
#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1 {

namespace detail {

struct proof_maker;

}  // namespace detail

template <class Network, class Loss>
class certified_bound;

/// K, and for which weights of which network it holds: made by `certified_bound` only (certify/training.hpp), for all
/// records.
template <class Network, class Loss>
class proof_of_gradients {
 public:
  using network_type = Network;
  using loss_type = Loss;
  /// The norm of every record's gradient, at most.
  [[nodiscard]] l2_clip_norm bound() const noexcept { return bound_; }
  /// The fingerprint of the weights that it holds for.
  [[nodiscard]] std::uint64_t weights() const noexcept { return fingerprint_; }
  /// Throws std::logic_error unless it holds for these weights.
  void require(const Network& network) const {
    if (&network != network_) {
      detail::throw_logic_error({"pergrad: unclipped: the bound was proven for another network"});
    }
    detail::require_weights(network, fingerprint_);
  }

 private:
  friend class certified_bound<Network, Loss>;
  proof_of_gradients(l2_clip_norm bound, const Network& network)
      : bound_{bound}, network_{&network}, fingerprint_{detail::fingerprint_of(network.all_parameters())} {}

  l2_clip_norm bound_;
  const Network* network_;
  std::uint64_t fingerprint_;
};

namespace detail {
template <class Given, class... Proof>
inline constexpr bool takes_proof = false;
template <class Given, class Proof, class... AtMost>
requires is_leaf<Given>::value inline constexpr bool takes_proof<Given, Proof, AtMost...> =
    std::is_base_of_v<proof_of_gradients<typename Given::network_type, typename Given::loss_type>, Proof> &&
    (std::is_convertible_v<AtMost, l2_clip_norm> && ...) && sizeof...(AtMost) <= 1;
}  // namespace detail

/// The gradients as they are, for sums whose sensitivity is the proven bound. Throws std::logic_error for weights that
/// have changed since the proof, and so does an evaluation.
template <class Network, class Loss, detail::algorithms Which>
[[nodiscard]] auto unclipped(const per_sample_gradient_leaf<Network, Loss, Which>& gradients,
                             const proof_of_gradients<Network, Loss>& proven) {
  proven.require(gradients.network());
  return detail::gated_clip::proven(gradients, proven.bound(), proven.weights());
}
/// The same for sums of sensitivity `at_most`, that of a `private_loop`, say. Throws std::invalid_argument where what
/// is proven is more.
template <class Network, class Loss, detail::algorithms Which>
[[nodiscard]] auto unclipped(const per_sample_gradient_leaf<Network, Loss, Which>& gradients,
                             const proof_of_gradients<Network, Loss>& proven, l2_clip_norm at_most) {
  proven.require(gradients.network());
  if (!(proven.bound().value() <= at_most.value())) {
    detail::throw_invalid_argument({"pergrad: unclipped: gradients are proven to be at most ", proven.bound().value(),
                                    " long, not ", at_most.value()});
  }
  return detail::gated_clip::proven(gradients, at_most, proven.weights());
}
template <detail::expression Given, class... Proof>
requires(!detail::takes_proof<Given, Proof...>) [[nodiscard]] error::explained
    unclipped(const Given& /*gradients*/, const Proof&... /*proof*/) {
  if constexpr (!detail::is_explained<Given>) static_cast<void>(error::unclipped_without_a_proof<Given, Proof...>{});
  return {};
}

/// Of a trainer: proves K before each step, and keeps it below a limit by what it does to the weights. Made by
/// `certified_training_of` (certify/training.hpp) only.
class certified_training {
 public:
  /// The largest K of a step; infinite where weights are only looked at.
  [[nodiscard]] double most() const noexcept { return most_; }

 private:
  friend struct detail::proof_maker;
  certified_training(const void* kind, double most, std::function<double(void*)> prove)
      : kind_{kind}, most_{most}, prove_{std::move(prove)} {}

  const void* kind_;  ///< of network and loss
  double most_;
  std::function<double(void*)> prove_;  ///< projects a network's weights, returns K
};

namespace detail {

/// The library's own way to proofs.
struct proof_maker {
  template <class Network, class Loss>
  struct pair_of {};
  template <class Network, class Loss, class Prove>
  [[nodiscard]] static certified_training training(double most, Prove&& prove) {
    return {&kind_mark<pair_of<Network, Loss>>, most, std::forward<Prove>(prove)};
  }
  template <class Network, class Loss>
  [[nodiscard]] static bool is_for(const certified_training& training) noexcept {
    return training.kind_ == &kind_mark<pair_of<Network, Loss>>;
  }
  /// Precondition: it is for this network.
  template <class Network>
  [[nodiscard]] static double prove(const certified_training& training, Network& network) {
    return training.prove_(&network);
  }
};

}  // namespace detail
}  // namespace pergrad::inline v0_1
