// expect-error: option_not_offered<.*at_layer<0>.*layer_type<.*reshape<.*of_ids<50, 64>
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
using net_type = pg::network<pg::shape{1, 8, 8}, pg::reshape<pg::shape{64}>, pg::linear<10>>;
#else
using net_type = pg::network<pg::shape{1, 8, 8}, pg::reshape<pg::token_ids(64, 50)>, pg::embedding_bag<10>>;
#endif

#include "whole_program.inc"
