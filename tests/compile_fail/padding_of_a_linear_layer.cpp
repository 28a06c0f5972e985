// expect-error: option_not_offered<.*at_layer<1>.*linear<10, .*padding<1
// slip: C++, an option of another layer
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
using net_type = pg::network<pg::shape{1, 8, 8}, pg::flatten, pg::linear<10, pg::no_bias>>;
#else
using net_type = pg::network<pg::shape{1, 8, 8}, pg::flatten, pg::linear<10, pg::padding<1>>>;
#endif

#include "whole_program.inc"
