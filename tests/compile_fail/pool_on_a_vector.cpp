// expect-error: needs_an_image<.*at_layer<2>.*layer_type<.*max_pool2d<.*gets<.*of_shape<64>
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
using net_type = pg::network<pg::shape{1, 8, 8}, pg::relu, pg::max_pool2d<2>, pg::flatten, pg::linear<10>>;
#else
using net_type = pg::network<pg::shape{1, 8, 8}, pg::relu, pg::flatten, pg::max_pool2d<2>, pg::linear<10>>;
#endif

#include "whole_program.inc"
