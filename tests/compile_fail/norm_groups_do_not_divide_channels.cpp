// expect-error: groups_do_not_divide_channels<.*at_layer<1>.*layer_type<.*group_norm<4.*gets<.*of_shape<6, 6, 6>
// expect-error: see docs/layers.md
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
using net_type = pg::network<pg::shape{1, 8, 8}, pg::conv2d<6, 3>, pg::group_norm<3>, pg::flatten, pg::linear<10>>;
#else
using net_type = pg::network<pg::shape{1, 8, 8}, pg::conv2d<6, 3>, pg::group_norm<4>, pg::flatten, pg::linear<10>>;
#endif

#include "whole_program.inc"
