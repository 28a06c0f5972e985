// expect-error: no_factors<.*at_layer<2>.*layer_type<scale>.*gets<.*of_shape<64>
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <span>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "scale_layer.inc"

#ifdef COMPILE_FAIL_FIXED
struct scale : scale_passes, scale_shape, scale_parameters, scale_factors {};
#else
struct scale : scale_passes, scale_shape, scale_parameters {
  static constexpr auto factors(pg::shape in) {
    return pg::elementwise_sum(1, in.size(), {.from = pg::source::backprop}, {.from = pg::source::activation});
  }
};
#endif

#include "scale_program.inc"
