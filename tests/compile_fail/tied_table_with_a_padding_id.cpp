// expect-error: tied_blocks_differ<.*at_layer<2>
// expect-error: an embedding<width> without padding_idx and a linear<vocabulary, no_bias>
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

// No step would move the row of the padding id, to which the other use has a gradient.
#ifdef COMPILE_FAIL_FIXED
using table = pg::embedding<4>;
#else
using table = pg::embedding<4, pg::padding_idx<0>>;
#endif
using net_type = pg::network<pg::token_ids(9, 50), pg::tied<1, table>, pg::tanh,
                             pg::tied<1, pg::linear<50, pg::no_bias>>, pg::mean_over_positions>;

#include "program_with_ids.inc"
