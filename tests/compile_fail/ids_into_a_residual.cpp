// expect-error: ids_into_a_float_layer<.*at_layer<0>.*gets<.*of_ids<50, 9>
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
using net_type = pg::network<pg::token_ids(9, 50), pg::embedding_bag<4>, pg::residual<>, pg::linear<2>>;
#else
using net_type = pg::network<pg::token_ids(9, 50), pg::residual<>, pg::embedding_bag<4>, pg::linear<2>>;
#endif

#include "program_with_ids.inc"
