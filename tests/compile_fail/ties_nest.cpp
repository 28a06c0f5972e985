// expect-error: ties_nest<.*at_layer<0>
// expect-error: a pergrad::tied stands inside another one
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
using net_type = pg::network<pg::shape{4}, pg::tied<1, pg::linear<4>>, pg::tied<1, pg::linear<4>>, pg::linear<10>>;
#else
using net_type =
    pg::network<pg::shape{4}, pg::tied<0, pg::tied<1, pg::linear<4>>, pg::tied<1, pg::linear<4>>>, pg::linear<10>>;
#endif

#include "whole_program.inc"
