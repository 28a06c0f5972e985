// expect-error: option_not_offered<.*at_layer<0>.*layer_type<.*conv2d<4, .*stride<1>, .*stride<2>
// expect-error: this layer does not take one of the options given to it; see its header and docs/layers.md
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
using net_type = pg::network<pg::shape{1, 8, 8}, pg::conv2d<4, 2, pg::stride<2>, pg::no_bias, pg::no_bias>, pg::flatten,
                             pg::linear<10>>;
#else
using net_type =
    pg::network<pg::shape{1, 8, 8}, pg::conv2d<4, 2, pg::stride<1>, pg::stride<2>>, pg::flatten, pg::linear<10>>;
#endif

#include "whole_program.inc"
