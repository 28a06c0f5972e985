// SPDX-License-Identifier: Apache-2.0
// pergrad/certify/training.hpp - proofs that sums and trainers take in the place of clipping, and weights that keep
// them small
//
// A projection knows nothing but weights: each trained layer whose norm is above its limit is multiplied by what brings
// it there, norms being bounds from above. Limits are in one proportion to each other, as large as K at the limits
// allows (bisection, once); K grows with each of them, so no weights within them have a larger one.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>

#include <pergrad/certify/certificate.hpp>
#include <pergrad/certify/certify.hpp>
#include <pergrad/certify/rules.hpp>
#include <pergrad/certify/sequence_rules.hpp>
#include <pergrad/detail/error_text.hpp>
#include <pergrad/detail/float_environment.hpp>
#include <pergrad/expressions/unclipped.hpp>
#include <pergrad/graph/graph.hpp>
#include <pergrad/privacy/types.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

namespace certified {

/// K for sums, which are formed in units of a power of two at K (expressions/unclipped.hpp); infinite: none. Inputs may
/// be anything.
[[nodiscard]] inline double bound_for_sums(const certificate& proven) noexcept {
  for (const certified_layer& each : proven.layers) {
    // Of ids the input is nothing that is multiplied.
    const bool is_number = each.input < intervals::inside::unbounded;
    if (each.bound > 0 && is_number && each.input > 0x1p60) return intervals::inside::unbounded;
  }
  return (upper{proven.bound} * (1 + 0x1p-40)).value();
}

/// How many of a layer's parameters its norm is about; the rest is its bias.
template <class Layer>
[[nodiscard]] std::size_t weights_before_bias(shape in, std::size_t parameters) {
  if constexpr (detail::has_affine<Layer>) {
    return Layer::affine(in).weight_count();
  } else if constexpr (requires(std::type_identity<Layer> layer) { norm_rule_of(layer); }) {
    return decltype(norm_rule_of(std::type_identity<Layer>{}))::gains(in);
  } else if constexpr (std::is_same_v<Layer, channel_affine>) {
    return in.e0;
  } else if constexpr (std::is_same_v<Layer, learned_positions> || std::is_same_v<Layer, added_bias> ||
                       std::is_same_v<Layer, sequence_bias>) {
    return 0;
  } else if constexpr (requires(std::type_identity<Layer> layer) { weight_count_of(layer, in, parameters); }) {
    return weight_count_of(std::type_identity<Layer>{}, in, parameters);
  } else {
    return parameters;
  }
}

/// Multiplies by a number below 1.
template <class Scalar>
void shrink(std::span<Scalar> values, double by) noexcept {
  for (Scalar& each : values) each = static_cast<Scalar>(static_cast<double>(each) * by);
}

/// Brings the trained weights of a network, of which this was found, within limits; returns their bounds. A block of
/// several uses is brought within those of each, and keeps them when it shrinks again. Throws std::invalid_argument for
/// weights that are not finite.
template <class Network>
weights_of<Network> project(Network& network, weights_of<Network> found, const weights_of<Network>& limits) {
  using structure = typename Network::structure;
  detail::for_each_layer<structure>([&]<class Layer>(std::type_identity<Layer> layer, std::size_t i) {
    if constexpr (requires(shape in, std::span<const typename Network::scalar> w) { measure_of(layer, in, w); }) {
      if (structure::trained_counts[i] == 0) return;
      const shape in = structure::shapes[structure::inputs[i]];
      const std::span<typename Network::scalar> all = network.layer_parameters(i);
      const std::size_t weights = weights_before_bias<Layer>(in, all.size());
      for (int attempt = 0; !(found[i] <= limits[i]); ++attempt) {
        // What is not limited may be without bound: nobody measures it.
        const auto is_number = [](upper is, upper may_be) { return is.is_finite() || !may_be.is_finite(); };
        if (attempt == 12 ||
            !(is_number(found[i].norm, limits[i].norm) && is_number(found[i].frobenius, limits[i].frobenius) &&
              is_number(found[i].bias, limits[i].bias))) {
          detail::throw_invalid_argument({"pergrad: certified training: the weights of node ", i, " are not finite"});
        }
        // A little below the limit, as what is multiplied rounds; more so if that was not enough.
        const double slack = 1 - std::ldexp(1.0, attempt - 18);
        const auto share = [&](upper is, upper may_be) {
          return may_be < is ? may_be.value() / is.value() * slack : 1.0;
        };
        const double of_weights =
            std::min(share(found[i].norm, limits[i].norm), share(found[i].frobenius, limits[i].frobenius));
        const double of_bias = share(found[i].bias, limits[i].bias);
        if (of_weights < 1) shrink(all.first(weights), of_weights);
        if (of_bias < 1) shrink(weights == all.size() ? all : all.subspan(weights), of_bias);
        found[i] = measure_of(layer, in, std::span<const typename Network::scalar>{all});
      }
    }
  });
  return found;
}

}  // namespace certified

/// A proof of K for the weights that a network has, for any record: what `sum(unclipped(g, K))` takes. It ends with the
/// weights: a change of one is noticed. Throws std::invalid_argument where there is none, as of a network that does not
/// begin with `into_ball`.
template <class Network, class Loss>
class certified_bound : public proof_of_gradients<Network, Loss> {
 public:
  certified_bound(const Network& network, Loss loss)
      : proof_of_gradients<Network, Loss>{proven(network, loss), network} {}

 private:
  [[nodiscard]] static l2_clip_norm proven(const Network& network, Loss loss) {
    const double bound = certified::bound_for_sums(certify(network, loss));
    if (!(bound <= detail::largest_double)) {
      detail::throw_invalid_argument(
          {"pergrad: certified_bound: nothing is proven of this network's gradients for any input: begin it with "
           "into_ball<R>, and see describe(certify(net, loss))"});
    }
    return l2_clip_norm{bound};
  }
};

/// The option `certified` of a trainer of this network and this loss, with clipping_kind::certified: before each step
/// the weights are brought within limits at which K is at most `most`, in the proportion of `limits`, and the step's
/// noise is that of its own K. The layer's weights and biases, not the records, decide. Throws std::invalid_argument
/// where no limits give so small a K.
template <class Network, class Loss>
[[nodiscard]] certified_training certified_training_of(Loss /*loss*/, l2_clip_norm most,
                                                       const weight_limits& limits = {}) {
  using rules = certified::network_rules<Network>;
  using missing = certified::missing_bound<Network, Loss>;
  if constexpr (!std::is_same_v<missing, char>) {
    static_cast<void>(missing{});
  } else {
    const detail::float_environment proven;
    const certified::upper loss = certified::loss_bound_of<Network, Loss>();
    const auto bound_at = [loss](double share, const weight_limits& of, const certified::weights_of<Network>& frozen) {
      return certified::bound_for_sums(
          rules::bound(rules::within({of.norm * share, of.bias * share}, frozen), loss, any_input));
    };
    const auto largest_share = [=](const certified::weights_of<Network>& frozen) {
      double low = 0;
      double high = 0x1p-20;
      while (high < 0x1p20 && bound_at(high, limits, frozen) <= most.value()) low = std::exchange(high, 2 * high);
      for (int i = 0; i < 40 && low > 0; ++i) {
        const double middle = std::sqrt(low * high);
        (bound_at(middle, limits, frozen) <= most.value() ? low : high) = middle;
      }
      return low;
    };
    // The frozen weights are known when there is a network.
    return detail::proof_maker::training<Network, Loss>(most.value(), [=, share = -1.0](void* of) mutable {
      Network& network = *static_cast<Network*>(of);
      const detail::float_environment as_proven;
      const certified::weights_of<Network> now = rules::measure(network);
      if (share < 0 || Network::frozen_parameter_count > 0) share = largest_share(now);
      if (!(share > 0)) {
        detail::throw_invalid_argument({"pergrad: certified training: no weights have so small a bound as ",
                                        most.value(), ": see describe(describe_sensitivity<net>(loss))"});
      }
      const auto within = rules::within({limits.norm * share, limits.bias * share}, now);
      return certified::bound_for_sums(rules::bound(certified::project(network, now, within), loss, any_input));
    });
  }
}

/// The option `certified` of a trainer with flat clipping: a step clips to min(C, K), with that much less noise. The
/// weights are only looked at.
template <class Network, class Loss>
[[nodiscard]] certified_training certified_clip_of(Loss /*loss*/) {
  using missing = certified::missing_bound<Network, Loss>;
  if constexpr (!std::is_same_v<missing, char>) {
    static_cast<void>(missing{});
  } else {
    return detail::proof_maker::training<Network, Loss>(intervals::inside::unbounded, [](void* of) {
      return certified::bound_for_sums(certify(*static_cast<const Network*>(of), Loss{}));
    });
  }
}

}  // namespace pergrad::inline v0_1
