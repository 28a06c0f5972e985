// expect-error: zero_is_no_size<.*at_layer<1>.*layer_type<.*linear<0>.*gets<.*of_shape<64>
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
using net_type = pg::network<pg::shape{1, 8, 8}, pg::flatten, pg::linear<10>>;
#else
using net_type = pg::network<pg::shape{1, 8, 8}, pg::flatten, pg::linear<0>>;
#endif

#include "whole_program.inc"
