// expect-error: no_forward<.*at_layer<2>.*layer_type<scale>.*gets<.*\{0, 64, 0, 0, 0, 0\}
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <span>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

// y = w x, element by element, with a parameter for every element
struct scale {
  static constexpr pg::shape output_shape(pg::shape in) { return in; }
  static constexpr std::size_t parameter_count(pg::shape in) { return in.size(); }
#ifdef COMPILE_FAIL_FIXED
  template <class Scalar>
  static void forward(pg::shape, std::span<const Scalar> w, std::span<const Scalar> x, std::span<Scalar> y) {
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = w[i] * x[i];
  }
#endif
  template <class Scalar>
  static void backward(pg::shape, std::span<const Scalar> w, std::span<const Scalar>, std::span<const Scalar> backprop,
                       std::span<Scalar> dx) {
    for (std::size_t i = 0; i < dx.size(); ++i) dx[i] = w[i] * backprop[i];
  }
  static constexpr auto factors(pg::shape in) {
    return pg::list_factors(
        pg::elementwise_sum(1, in.size(), {.from = pg::source::backprop}, {.from = pg::source::activation}));
  }
};
using net_type = pg::network<pg::shape{1, 8, 8}, pg::relu, pg::flatten, scale, pg::linear<10>>;

#include "whole_program.inc"
