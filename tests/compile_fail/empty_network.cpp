// expect-error: empty_network<.*gets<.*of_shape<1, 8, 8>
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
using net_type = pg::network<pg::shape{1, 8, 8}, pg::flatten, pg::linear<10>>;
#else
using net_type = pg::network<pg::shape{1, 8, 8}>;
#endif

#include "whole_program.inc"
