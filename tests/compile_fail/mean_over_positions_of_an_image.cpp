// expect-error: needs_a_sequence<.*at_layer<0>.*mean_over_positions
// expect-error: needs an input of shape \{positions, features\}
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
using net_type = pg::network<pg::shape{5, 3}, pg::mean_over_positions, pg::linear<10>>;
#else
using net_type = pg::network<pg::shape{5, 3, 2}, pg::mean_over_positions, pg::linear<10>>;
#endif

#include "whole_program.inc"
