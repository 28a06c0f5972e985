// expect-error: needs_ids<.*at_layer<0>.*layer_type<.*embedding<4.*gets<.*of_shape<9>
// expect-error: begin the network with pergrad::token_ids\(positions, vocabulary\); see docs/layers.md
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
using net_type = pg::network<pg::token_ids(9, 50), pg::embedding<4>, pg::flatten, pg::linear<2>>;
#else
using net_type = pg::network<pg::shape{9}, pg::embedding<4>, pg::flatten, pg::linear<2>>;
#endif

#include "program_with_ids.inc"
