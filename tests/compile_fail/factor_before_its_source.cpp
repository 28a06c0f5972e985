// expect-error: factor_reads_outside_the_tape<.*at_layer<2>.*layer_type<scale>.*gets<.*of_shape<64>
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <span>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "scale_layer.inc"

struct scale : scale_passes, scale_shape, scale_parameters {
#ifdef COMPILE_FAIL_FIXED
  static constexpr std::size_t first = 0;
#else
  static constexpr std::size_t first = std::size_t{0} - 1;  // the end wraps around to 62
#endif
  static constexpr auto factors(pg::shape in) {
    return pg::list_factors(pg::elementwise_sum(1, in.size(), {.from = pg::source::backprop},
                                                {.from = pg::source::activation, .offset = first}));
  }
};

#include "scale_program.inc"
