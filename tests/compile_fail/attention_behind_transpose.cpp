// expect-error: needs_a_sequence<.*at_layer<1>.*multihead_attention<2.*gets<.*of_varying_length<.*of_shape<4, 6>, 2>
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
using net_type =
    pg::network<pg::variable(pg::shape{6, 4}), pg::multihead_attention<2>, pg::mean_over_positions, pg::linear<2>>;
#else
using net_type = pg::network<pg::variable(pg::shape{6, 4}), pg::transpose, pg::multihead_attention<2>, pg::transpose,
                             pg::mean_over_positions, pg::linear<2>>;
#endif

#include "program_with_lengths.inc"
