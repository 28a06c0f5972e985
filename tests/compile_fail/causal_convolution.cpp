// expect-error: option_not_offered<.*at_layer<0>.*conv2d<4, .*causal
// slip: C++, an option of another layer
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
using net_type = pg::network<pg::shape{1, 8, 8}, pg::conv2d<4, 3, pg::no_bias>, pg::flatten, pg::linear<10>>;
#else
using net_type = pg::network<pg::shape{1, 8, 8}, pg::conv2d<4, 3, pg::causal>, pg::flatten, pg::linear<10>>;
#endif

#include "whole_program.inc"
