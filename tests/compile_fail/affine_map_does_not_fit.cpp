// expect-error: affine_map_does_not_fit<.*at_layer<1>.*layer_type<all_to_ten>.*gets<.*of_shape<64>
// expect-error: in_channels and in_size must be those of the input, out_channels and out_size those of the output
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

struct all_to_ten {
  static constexpr pg::shape output_shape(pg::shape) { return {10}; }
  static constexpr pg::affine_map affine(pg::shape in) {
#ifdef COMPILE_FAIL_FIXED
    const std::size_t channels = in.e0;
#else
    const std::size_t channels = in.e0 + 1;
#endif
    return {.in_channels = channels, .in_size = {1}, .out_channels = 10, .out_size = {1}};
  }
};

using net_type = pg::network<pg::shape{1, 8, 8}, pg::flatten, all_to_ten>;

#include "whole_program.inc"
