// expect-error: factor_reads_outside_the_tape<.*at_layer<2>.*layer_type<scale>.*gets<.*of_shape<64>
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "scale_layer.inc"

struct scale : scale_shape, scale_parameters {  // y = x + w
  template <class Scalar>
  static void forward(pg::shape, std::span<const Scalar> w, std::span<const Scalar> x, std::span<Scalar> y) {
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = w[i] + x[i];
  }
  template <class Scalar>
  static void backward(pg::shape, std::span<const Scalar>, std::span<const Scalar>, std::span<const Scalar> backprop,
                       std::span<Scalar> dx) {
    std::copy(backprop.begin(), backprop.end(), dx.begin());
  }
  static constexpr auto factors(pg::shape in) {
#ifdef COMPILE_FAIL_FIXED
    return pg::list_factors(pg::elementwise_sum(1, in.size(), {pg::source::backprop}));
#else
    return pg::list_factors(pg::outer_sum(1, in.size(), {pg::source::backprop}, 1, {pg::source::ones}));
#endif
  }
};

#include "scale_program.inc"
