// expect-error: tied_blocks_differ<.*at_layer<3>
// expect-error: an embedding<width> without padding_idx and a linear<vocabulary, no_bias>
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
using unembedding = pg::linear<50, pg::no_bias>;
#else
using unembedding = pg::linear<50>;
#endif
using net_type = pg::network<pg::token_ids(9, 50), pg::tied<1, pg::embedding<4>>, pg::linear<4>, pg::tanh,
                             pg::tied<1, unembedding>, pg::mean_over_positions>;

#include "program_with_ids.inc"
