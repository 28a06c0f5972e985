// expect-error: branches_do_not_fit<.*at_layer<0>
// expect-error: the two inputs of this layer do not fit each other
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
using net_type =
    pg::network<pg::shape{4, 3}, pg::parallel<pg::linear<2>, pg::sequential<>>, pg::flatten, pg::linear<10>>;
#else
using net_type =
    pg::network<pg::shape{4, 3}, pg::parallel<pg::mean_over_positions, pg::sequential<>>, pg::flatten, pg::linear<10>>;
#endif

#include "whole_program.inc"
