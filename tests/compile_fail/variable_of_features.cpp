// expect-error: variable_needs_positions<.*gets<.*of_varying_length<.*of_shape<8>, 1>
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
using net_type = pg::network<pg::variable(pg::shape{8, 1}), pg::lstm<3, pg::last_output>, pg::linear<2>>;
#else
using net_type =
    pg::network<pg::variable(pg::shape{8}), pg::reshape<pg::shape{8, 1}>, pg::lstm<3, pg::last_output>, pg::linear<2>>;
#endif

#include "program_with_lengths.inc"
