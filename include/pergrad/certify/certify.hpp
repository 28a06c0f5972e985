// SPDX-License-Identifier: Apache-2.0
// pergrad/certify/certify.hpp - K >= ‖dL/dw‖₂ of every record that can occur, for the weights that a network has, or
// for all weights within limits
//
// Bounds go through the network's nodes as values do: forward those of values, back from the loss those of gradients
// (rules.hpp). Where several nodes read a value, their gradients add up. A block's bound is its factor times ‖dL/dy‖;
// blocks are orthogonal, so K² is the sum of their squares; of a tied one the uses are added up first.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

#include <pergrad/certify/boxes.hpp>
#include <pergrad/certify/certificate.hpp>
#include <pergrad/certify/domain.hpp>
#include <pergrad/certify/losses.hpp>
#include <pergrad/certify/rules.hpp>
#include <pergrad/certify/sequence_rules.hpp>
#include <pergrad/concepts.hpp>
#include <pergrad/detail/float_environment.hpp>
#include <pergrad/errors.hpp>
#include <pergrad/graph/graph.hpp>
#include <pergrad/graph/stand_ins.hpp>
#include <pergrad/network.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

/// Of every trained layer: ‖W‖₂, gains and rows of tables at most `norm`, what is added ‖b‖₂ at most `bias`; of a layer
/// of one's own that measures ‖W‖_F, that too at most `norm`. A tied block is within the limits of each of its uses.
struct weight_limits {
  double norm = 1;
  double bias = 1;
};

namespace certified {

/// Bounds of one network's weights, node by node.
template <class Network>
using weights_of = std::array<weight_bound, Network::structure::size>;

/// Does anybody say what a layer's weights are? Not with the rules: what says it of recurrent layers comes behind them.
template <class Layer, class Scalar>
inline constexpr bool is_measured = requires(shape in, std::span<const Scalar> weights) {
  measure_of(std::type_identity<Layer>{}, in, weights);
};

/// A network's nodes and the rules of their layers.
template <class Network>
struct network_rules {
  using structure = typename Network::structure;
  using scalar = typename Network::scalar;
  static constexpr std::size_t size = structure::size;
  static constexpr roundoff rounds{static_cast<double>(std::numeric_limits<scalar>::epsilon()) / 2};
  /// Beyond it, intermediate sums might overflow (minimal filtering adds up sixteen values).
  static constexpr double largest = std::is_same_v<scalar, float> ? 0x1p120 : 0x1p1000;

  [[nodiscard]] static weights_of<Network> measure(const Network& network) {
    weights_of<Network> found;
    found.fill(weight_bound::of_none());
    detail::for_each_layer<structure>([&]<class Layer>(std::type_identity<Layer> layer, std::size_t i) {
      if constexpr (detail::may_have_parameters<Layer>) {
        const shape in = structure::shapes[structure::inputs[i]];
        if (structure::parameter_counts[i] == 0) return;
        if constexpr (is_measured<Layer, scalar>) {
          found[i] = measure_of(layer, in, network.layer_parameters(i));
        } else {
          found[i] = {};  // nothing is known: a rule that reads it has no bound
        }
      }
    });
    return found;
  }
  /// What layers of one's own measure of weights that are zeros: which bounds they say. Once, as steps of certified
  /// training ask for it.
  [[nodiscard]] static const weights_of<Network>& said_of_zeros() {
    static const weights_of<Network> said = [] {
      weights_of<Network> found;
      detail::for_each_layer<structure>([&]<class Layer>(std::type_identity<Layer> layer, std::size_t i) {
        if constexpr (says_measure<Layer, scalar>) {
          const std::vector<scalar> zeros(structure::parameter_counts[i]);
          found[i] = measure_of(layer, structure::shapes[structure::inputs[i]], std::span<const scalar>{zeros});
        }
      });
      return found;
    }();
    return said;
  }
  /// What weights within the limits can be, of nodes that are trained; `others` says it of the rest.
  [[nodiscard]] static weights_of<Network> within(const weight_limits& limits, const weights_of<Network>& others) {
    weights_of<Network> found = others;
    detail::for_each_layer<structure>([&]<class Layer>(std::type_identity<Layer> /*layer*/, std::size_t i) {
      if (structure::trained_counts[i] == 0) return;
      found[i] = {};  // what nobody measures nobody brings within limits
      if constexpr (says_measure<Layer, scalar>) {
        const weight_bound& said = said_of_zeros()[i];  // what is said of them is said of all weights
        if (said.norm.is_finite()) found[i].norm = limits.norm;
        if (said.frobenius.is_finite()) found[i].frobenius = limits.norm;
        if (said.bias.is_finite()) found[i].bias = limits.bias;
      } else if constexpr (is_measured<Layer, scalar>) {
        found[i] = {limits.norm, upper{}, limits.bias};
      }
      if constexpr (detail::has_affine<Layer>) {
        const affine_map map = Layer::affine(structure::shapes[structure::inputs[i]]);
        found[i].frobenius = upper{limits.norm} * root_of(std::min(map.out_channels, map.groups * map.view_width()));
      }
    });
    return found;
  }

  template <class Boxes = no_boxes>
  [[nodiscard]] static certificate bound(const weights_of<Network>& weights, upper loss, const input_bound& inputs,
                                         Boxes boxes = {}) {
    std::array<value_bound, size + 1> values{};
    std::array<effect, size> effects{};
    certificate result;
    result.layers.resize(size);
    bool overflows = false;
    values[0] = value_bound::of(Network::input_shape.size(), inputs.l2, inputs.largest);
    if constexpr (Network::input_shape.ids != 0) values[0] = {};
    detail::for_each_layer<structure>([&]<class Layer>(std::type_identity<Layer> layer, std::size_t i) {
      result.layers[i].name = detail::name_of_layer<Layer>();
      if constexpr (has_rule<Layer>) {
        const node_bounds at{structure::shapes[structure::inputs[i]],
                             structure::shapes[structure::inputs2[i]],
                             structure::shapes[i + 1],
                             values[structure::inputs[i]],
                             values[structure::inputs2[i]],
                             weights[i],  // of a tied block too: each use has a norm of its own
                             rounds};
        effects[i] = rule_of(layer, at);
        effects[i].dx += nothing_lost;
        effects[i].dx2 += nothing_lost;
        values[i + 1] = {effects[i].y.l2 + 0x1p-60, effects[i].y.largest + 0x1p-60};
        // Before boxes see it: sums whose terms cancel may overflow on the way, and only norms tell.
        if (largest < std::max(values[i + 1].l2, effects[i].formed).value()) values[i + 1] = {};
        // What lies behind may be finite again, as into_ball makes it: this layer's own derivatives may be NaN.
        overflows = overflows || (trained[i + 1] && !values[i + 1].l2.is_finite());
        boxes.forward(layer, i, at, values[i + 1]);
      }
    });

    std::array<upper, size + 1> gradients{};
    std::array<upper, size> blocks{};
    gradients[size] = std::max(boxes.loss(loss), upper{0x1p-30});
    const upper grows = rounds.growth(1);
    for (std::size_t i = size; i-- > 0;) {
      overflows = overflows || largest < gradients[i + 1].value();
      gradients[i + 1] = boxes.gradient(i + 1, gradients[i + 1]);
      const upper gradient = std::max(gradients[i + 1], upper{0x1p-30});
      const std::size_t owner = structure::owners[i];
      overflows = overflows || largest < (gradient * effects[i].inside).value();
      certified_layer& layer = result.layers[i];
      if (structure::trained_counts[i] > 0) {
        const upper by_norms = values[structure::inputs[i]].l2.is_finite() || Network::input_shape.ids != 0
                                   ? (effects[i].block + nothing_lost) * gradient
                                   : upper{intervals::inside::unbounded};
        overflows = overflows || largest < by_norms.value();
        const upper own = boxes.block(i, gradient, by_norms);
        layer.bound = own.value();
        blocks[owner] = (blocks[owner] + own) * grows;
      }
      const auto add = [&](std::size_t slot, upper by) {
        gradients[slot] = (gradients[slot] + gradient * by) * grows;
        if (largest < gradients[slot].value()) gradients[slot] = intervals::inside::unbounded;
      };
      if (is_trained_before(structure::inputs[i])) add(structure::inputs[i], effects[i].dx);
      if (two_inputs[i] && is_trained_before(structure::inputs2[i])) add(structure::inputs2[i], effects[i].dx2);
      if (is_trained_before(structure::inputs[i]) || (two_inputs[i] && is_trained_before(structure::inputs2[i]))) {
        boxes.backward(i, gradient, effects[i]);
      }
      layer.node = i;
      layer.input = values[structure::inputs[i]].l2.value();
      layer.weights = structure::parameter_counts[i] == 0 ? 0 : weights[i].norm.value();
      layer.backprop = gradients[i + 1].value();
      layer.growth_forward = layer.input > 0 ? values[i + 1].l2.value() / layer.input : 1;
      layer.growth_backward = effects[i].dx.value();
    }
    upper squares;
    for (const upper& each : blocks) squares += each * each;
    // Where a value overflows, everything behind it may be NaN, and gradients as well; these may overflow themselves.
    const double bound = sqrt(squares).value();
    result.bound = values[size].l2.is_finite() && !overflows && bound < largest ? bound : intervals::inside::unbounded;
    return result;
  }

 private:
  static constexpr const auto& two_inputs = has_two_inputs<structure>;
  static constexpr std::array<bool, size + 1> trained = [] {
    std::array<bool, size + 1> found{};
    for (std::size_t i = 0; i < size; ++i) {
      found[i + 1] = structure::trained_counts[i] > 0 || found[structure::inputs[i]] ||
                     (two_inputs[i] && found[structure::inputs2[i]]);
    }
    return found;
  }();
  /// Is a gradient with respect to the value in this slot computed?
  [[nodiscard]] static constexpr bool is_trained_before(std::size_t slot) { return trained[slot]; }
};

template <class Network, class Loss>
[[nodiscard]] upper loss_bound_of() {
  return loss_bound_of_any_length<Loss>(Network::output_shape, network_rules<Network>::rounds);
}

/// A class that says what of this network or this loss has no bound; `char` if all has. Asked at the door, so that the
/// compiler prints little.
template <class Network, class Loss>
[[nodiscard]] constexpr auto explain_missing_bound() {
  if constexpr (detail::is_explained<Network>) {
    return std::type_identity<error::explained>{};
  } else if constexpr (!has_loss_bound<Loss>) {
    return std::type_identity<error::loss_without_a_bound<Loss>>{};
  } else {
    using structure = typename Network::structure;
    constexpr std::size_t first = [] {
      std::size_t found = structure::size;
      detail::for_each_layer<structure>([&]<class Layer>(std::type_identity<Layer> /*layer*/, std::size_t i) {
        if (!has_rule<Layer>) found = std::min(found, i);
      });
      return found;
    }();
    if constexpr (first == structure::size) {
      return std::type_identity<char>{};
    } else {
      return std::type_identity<error::layer_without_a_bound<typename structure::template layer_at<first>>>{};
    }
  }
}
template <class Network, class Loss>
using missing_bound = typename decltype(explain_missing_bound<Network, Loss>())::type;

}  // namespace certified

/// A bound of the norm of every record's gradient with the weights that the network has, for all records that `inputs`
/// allows and all targets: in the numbers that an executor on the host computes, rounding included. Public, as weights
/// are. Compile-time errors name a layer or a loss that has no bound.
template <class Network, class Loss>
[[nodiscard]] certificate certify([[maybe_unused]] const Network& network, Loss /*loss*/,
                                  [[maybe_unused]] const input_bound& inputs = any_input) {
  using missing = certified::missing_bound<Network, Loss>;
  if constexpr (!std::is_same_v<missing, char>) {
    static_cast<void>(missing{});
    return {};
  } else {
    using rules = certified::network_rules<Network>;
    const detail::float_environment proven;
    return rules::bound(rules::measure(network), certified::loss_bound_of<Network, Loss>(), inputs);
  }
}

/// The same where it is known of each element between which numbers it lies: intervals go through the network beside
/// norms (boxes.hpp), and K is at most what norms alone say of the smallest ball and cube around the box. Takes a few
/// seconds for a hundred million multiply-adds. Throws std::invalid_argument for a box of another number of elements.
template <class Network, class Loss>
[[nodiscard]] certificate certify([[maybe_unused]] const Network& network, Loss /*loss*/,
                                  [[maybe_unused]] const element_box& inputs) {
  using missing = certified::missing_bound<Network, Loss>;
  if constexpr (!std::is_same_v<missing, char>) {
    static_cast<void>(missing{});
    return {};
  } else {
    if (inputs.elements().size() != Network::input_shape.size()) {
      detail::throw_invalid_argument({"pergrad: certify: the box has ", inputs.elements().size(),
                                      " elements, a record has ", Network::input_shape.size()});
    }
    using rules = certified::network_rules<Network>;
    const detail::float_environment proven;
    double largest = 0;
    for (const interval& each : inputs.elements()) largest = std::max(largest, each.magnitude());
    const input_bound ball{.l2 = certified::length_of(inputs.elements()).value(), .largest = largest};
    return rules::bound(rules::measure(network), certified::loss_bound_of<Network, Loss>(), ball,
                        certified::network_boxes<Network, Loss>{network, inputs});
  }
}

/// The same of all networks of this type whose weights are within the limits: before there are any.
template <class Network, class Loss>
[[nodiscard]] certificate describe_sensitivity(Loss /*loss*/, [[maybe_unused]] const input_bound& inputs = any_input,
                                               [[maybe_unused]] const weight_limits& limits = {}) {
  using missing = certified::missing_bound<Network, Loss>;
  if constexpr (!std::is_same_v<missing, char>) {
    static_cast<void>(missing{});
    return {};
  } else {
    using rules = certified::network_rules<Network>;
    const detail::float_environment proven;
    const certified::weights_of<Network> frozen{};  // of which nothing is known
    return rules::bound(rules::within(limits, frozen), certified::loss_bound_of<Network, Loss>(), inputs);
  }
}

}  // namespace pergrad::inline v0_1
