// expect-error: padding_larger_than_half_the_window<.*at_layer<0>.*layer_type<.*max_pool2d<.*gets<.*of_shape<1, 8, 8>
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
using net_type = pg::network<pg::shape{1, 8, 8}, pg::max_pool2d<3, pg::padding<1>>, pg::flatten, pg::linear<10>>;
#else
using net_type = pg::network<pg::shape{1, 8, 8}, pg::max_pool2d<3, pg::padding<2>>, pg::flatten, pg::linear<10>>;
#endif

#include "whole_program.inc"
