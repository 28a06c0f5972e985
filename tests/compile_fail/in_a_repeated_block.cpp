// expect-error: needs_features<.*at_layer<2>.*layer_type<.*linear<10>.*gets<.*of_shape<4, 8, 8>
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
using net_type = pg::network<pg::shape{1, 8, 8}, pg::relu, pg::conv2d<4, 1>, pg::flatten,
                             pg::repeat<2, pg::sequential<pg::tanh, pg::linear<10>>>>;
#else
using net_type = pg::network<pg::shape{1, 8, 8}, pg::relu, pg::conv2d<4, 1>,
                             pg::repeat<2, pg::sequential<pg::tanh, pg::linear<10>>>>;
#endif

#include "whole_program.inc"
