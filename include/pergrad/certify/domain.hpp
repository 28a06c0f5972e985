// SPDX-License-Identifier: Apache-2.0
// pergrad/certify/domain.hpp - what is known of a layer's values and gradients, and what a rule says of a layer
//
// Forward, of each value: ‖x‖₂ over all positions, and max |x_i|. Backward: ‖dL/dy‖₂. A rule says what the *computed*
// numbers of a layer can be, given what its computed inputs can be; so rounding is counted where it happens, once, and
// nothing is carried along. Backward passes are linear in dL/dy: a rule names factors, by which its norm grows.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <type_traits>

#include <pergrad/certify/spectral.hpp>
#include <pergrad/certify/upper.hpp>
#include <pergrad/concepts.hpp>
#include <pergrad/graph/graph.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1::certified {

/// Of the values that a node writes. Infinite: they may be anything, NaN as well.
struct value_bound {
  upper l2 = intervals::inside::unbounded;
  upper largest = intervals::inside::unbounded;

  /// Each bounds the other.
  [[nodiscard]] static value_bound of(std::size_t count, upper l2, upper largest) noexcept {
    return {std::min(l2, root_of(count) * largest), std::min(largest, l2)};
  }
};

/// A node for its rule.
struct node_bounds {
  shape in;
  shape in2;
  shape out;
  value_bound x{};
  value_bound x2{};                                ///< of a layer with two inputs
  weight_bound weights = weight_bound::of_none();  ///< as the rule's `measure` says
  roundoff rounds{};                               ///< of the network's scalar

  [[nodiscard]] value_bound y(upper l2, upper largest) const noexcept {
    return value_bound::of(out.size(), l2, largest);
  }
};

/// What a rule says: bounds of the output, and by what factor ‖dL/dy‖₂ bounds ‖dL/dx‖₂ and the norm of the gradient of
/// the layer's own parameters, without bound unless it says so. `inside`: of any other gradient that is formed on the
/// way, and `formed` bounds any other value, for the question whether it might overflow.
struct effect {
  value_bound y{};
  upper dx = 1;
  upper dx2 = 1;
  upper block = intervals::inside::unbounded;
  upper inside = 1;
  upper formed = 0;
};

/// Where |f'| is the largest: at the upper end, as f' does not fall, or at 0, from which it falls to both sides.
enum class steepest_at : unsigned char { unknown, upper_end, zero };

/// What is known of a function of one number: |f(x)| <= min(slope |x| + at_zero, largest), |f'| <= slope. For boxes
/// (boxes.hpp) also whether it is monotone, and where it is steepest.
struct element_bounds {
  double slope = 1;
  double at_zero = 0;
  double largest = intervals::inside::unbounded;
  bool is_monotone = false;
  steepest_at steepest = steepest_at::unknown;
};

/// Which nodes of a network read two values.
template <class Structure>
inline constexpr std::array<bool, Structure::size> has_two_inputs = [] {
  std::array<bool, Structure::size> found{};
  detail::for_each_layer<Structure>([&]<class Layer>(std::type_identity<Layer> /*layer*/, std::size_t i) {
    found[i] = detail::has_two_inputs<Layer>;
  });
  return found;
}();

}  // namespace pergrad::inline v0_1::certified
