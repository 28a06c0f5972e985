// expect-error: groups_do_not_divide_channels<.*at_layer<1>.*layer_type<.*conv2d<6.*groups<4.*gets<.*of_shape<4, 6, 6>
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
using net_type =
    pg::network<pg::shape{1, 8, 8}, pg::conv2d<4, 3>, pg::conv2d<8, 3, pg::groups<4>>, pg::flatten, pg::linear<10>>;
#else
using net_type =
    pg::network<pg::shape{1, 8, 8}, pg::conv2d<4, 3>, pg::conv2d<6, 3, pg::groups<4>>, pg::flatten, pg::linear<10>>;
#endif

#include "whole_program.inc"
