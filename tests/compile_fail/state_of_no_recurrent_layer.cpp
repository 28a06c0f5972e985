// expect-error: option_not_offered<.*at_layer<0>.*with_state<.*linear<3>
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
using net_type = pg::network<pg::shape{8, 3}, pg::with_state<pg::gru<3>, pg::sequence<>, pg::state<pg::select_last>>,
                             pg::flatten, pg::linear<10>>;
#else
using net_type = pg::network<pg::shape{8, 3}, pg::with_state<pg::linear<3>, pg::sequence<>, pg::state<pg::select_last>>,
                             pg::flatten, pg::linear<10>>;
#endif

#include "whole_program.inc"
