// SPDX-License-Identifier: Apache-2.0
// pergrad/testing/network_around.hpp - the network in which a single layer is examined
//
// In front of the layer stands one with parameters, whose gradient shows the layer's input gradient; behind it flatten
// and a linear layer with three outputs, so that the layer's output gradient differs from element to element. Nothing
// can stand in front of a layer that takes ids; where samples keep their lengths, a mean over positions takes the place
// of flatten.
#pragma once

#include <cstddef>
#include <type_traits>

#include <pergrad/graph/gate.hpp>
#include <pergrad/layers/conv.hpp>
#include <pergrad/layers/linear.hpp>
#include <pergrad/layers/mean_over_positions.hpp>
#include <pergrad/layers/reshape.hpp>
#include <pergrad/network.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1::testing {

namespace testing_detail {

/// The values of a flat input as one of rank 4, which no layer in front could give.
template <shape Output>
struct as_shape {
  static constexpr const char* name = "reshape";
  static constexpr bool is_reshape = true;
  [[nodiscard]] static constexpr shape output_shape(shape /*in*/) noexcept { return Output; }
};

/// A network with `Layer` in the middle.
template <class Scalar, class Layer, shape Input>
[[nodiscard]] constexpr auto surround() {
  if constexpr (Input.ids != 0) {
    using alone = pergrad::detail::structure<pergrad::detail::shape_name<Input>, Layer>;
    constexpr bool keeps_length = alone::shapes[alone::size].varying_axis() != 0;
    using behind = std::conditional_t<keeps_length, mean_over_positions, flatten>;
    return std::type_identity<basic_network<Scalar, Input, Layer, behind, linear<3>>>{};
  } else if constexpr (Input.rank() == 3) {
    return std::type_identity<basic_network<Scalar, Input, conv2d<Input.e0, 1>, Layer, flatten, linear<3>>>{};
  } else if constexpr (Input.rank() == 4) {
    return std::type_identity<
        basic_network<Scalar, shape{Input.size()}, linear<Input.size()>, as_shape<Input>, Layer, flatten, linear<3>>>{};
  } else {
    constexpr std::size_t features = Input.rank() == 2 ? Input.e1 : Input.e0;
    return std::type_identity<basic_network<Scalar, Input, linear<features>, Layer, flatten, linear<3>>>{};
  }
}

}  // namespace testing_detail

/// The network that `check_layer` puts around a layer.
template <class Scalar, class Layer, shape Input>
using network_around = typename decltype(testing_detail::surround<Scalar, Layer, Input>())::type;

}  // namespace pergrad::inline v0_1::testing
