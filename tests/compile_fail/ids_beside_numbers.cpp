// expect-error: branches_do_not_fit<.*at_layer<0>.*gets<.*of_shape<4>.*gets<.*of_ids<50, 9>
// expect-error: the two inputs of this layer do not fit each other
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
using net_type =
    pg::network<pg::token_ids(9, 50), pg::parallel<pg::embedding_bag<4>, pg::embedding_bag<9>>, pg::linear<2>>;
#else
using net_type = pg::network<pg::token_ids(9, 50), pg::parallel<pg::embedding_bag<4>, pg::sequential<>>, pg::linear<2>>;
#endif

#include "program_with_ids.inc"
