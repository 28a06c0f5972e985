// expect-error: option_not_offered<.*at_layer<1>.*layer_type<.*dropout<int>
// SPDX-License-Identifier: Apache-2.0
#include <ratio>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
using net_type = pg::network<pg::shape{1, 8, 8}, pg::flatten, pg::dropout<std::ratio<1, 10>>, pg::linear<10>>;
#else
using net_type = pg::network<pg::shape{1, 8, 8}, pg::flatten, pg::dropout<int>, pg::linear<10>>;
#endif

#include "whole_program.inc"
