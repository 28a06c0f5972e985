// expect-error: tied_blocks_differ<.*at_layer<1>
// expect-error: all uses of one pergrad::tied key
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
using net_type = pg::network<pg::shape{4}, pg::tied<1, pg::linear<4>, pg::linear<4>>,
                             pg::tied<1, pg::linear<4>, pg::linear<4>>, pg::linear<10>>;
#else
using net_type =
    pg::network<pg::shape{4}, pg::tied<1, pg::linear<4>, pg::linear<4>>, pg::tied<1, pg::linear<4>>, pg::linear<10>>;
#endif

#include "whole_program.inc"
