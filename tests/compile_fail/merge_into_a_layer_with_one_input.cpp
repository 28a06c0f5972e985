// expect-error: branches_do_not_fit<.*at_layer<0>.*layer_type<.*linear<3>
// expect-error: the two inputs of this layer do not fit each other
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
using net_type = pg::network<pg::shape{64}, pg::parallel<pg::linear<3>, pg::linear<3>>, pg::linear<10>>;
#else
using net_type = pg::network<pg::shape{64}, pg::merge<pg::linear<3>, pg::linear<3>, pg::linear<3>>, pg::linear<10>>;
#endif

#include "whole_program.inc"
