// expect-error: option_not_offered<.*at_layer<0>
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
using net_type = pg::network<pg::shape{8, 3}, pg::gru<3, pg::one_bias, pg::last_output>, pg::linear<10>>;
#else
using net_type = pg::network<pg::shape{8, 3}, pg::gru<3, pg::one_bias, pg::no_bias, pg::last_output>, pg::linear<10>>;
#endif

#include "whole_program.inc"
