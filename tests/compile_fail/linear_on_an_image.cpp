// expect-error: needs_features<.*at_layer<1>.*layer_type<.*linear<10>.*gets<.*of_shape<2, 6, 6>
// expect-error: put pergrad::flatten before it; see docs/layers.md
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
using net_type = pg::network<pg::shape{1, 8, 8}, pg::conv2d<2, 3>, pg::flatten, pg::linear<10>>;
#else
using net_type = pg::network<pg::shape{1, 8, 8}, pg::conv2d<2, 3>, pg::linear<10>>;
#endif

#include "whole_program.inc"
