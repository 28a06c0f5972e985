// expect-error: affine_map_does_not_fit<.*at_layer<1>.*layer_type<frames>.*gets<.*of_shape<64>
// expect-error: a vector is one pixel
// SPDX-License-Identifier: Apache-2.0
// Windows over a vector: its values are channels of one pixel, so the second window would begin behind them.
#include <cstddef>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

struct frames {
  static constexpr pg::shape output_shape(pg::shape) { return {1, 10}; }
  static constexpr bool channels_first = true;
  static constexpr pg::affine_map affine(pg::shape) {
    return {.in_channels = 1,
            .in_size = {64, 1},
            .out_channels = 1,
            .out_size = {10, 1},
            .kernel = {10, 1},
            .stride = {6, 1}};
  }
};

#ifdef COMPILE_FAIL_FIXED
using net_type = pg::network<pg::shape{1, 8, 8}, pg::reshape<pg::shape{1, 64}>, frames, pg::flatten>;
#else
using net_type = pg::network<pg::shape{1, 8, 8}, pg::flatten, frames, pg::flatten>;
#endif

#include "whole_program.inc"
