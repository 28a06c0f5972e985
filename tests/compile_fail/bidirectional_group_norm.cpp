// expect-error: option_not_offered<.*at_layer<1>.*group_norm<2, .*bidirectional
// slip: C++, an option of another layer
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
using net_type = pg::network<pg::shape{1, 8, 8}, pg::conv2d<4, 3>, pg::group_norm<2>, pg::flatten, pg::linear<10>>;
#else
using net_type = pg::network<pg::shape{1, 8, 8}, pg::conv2d<4, 3>, pg::group_norm<2, pg::bidirectional>, pg::flatten,
                             pg::linear<10>>;
#endif

#include "whole_program.inc"
