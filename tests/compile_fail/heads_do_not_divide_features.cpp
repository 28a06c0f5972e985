// expect-error: heads_do_not_divide_features<.*at_layer<0>.*multihead_attention
// expect-error: the number of attention heads must divide the number of features
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
using net_type = pg::network<pg::shape{4, 6}, pg::multihead_attention<3>, pg::mean_over_positions, pg::linear<10>>;
#else
using net_type = pg::network<pg::shape{4, 6}, pg::multihead_attention<4>, pg::mean_over_positions, pg::linear<10>>;
#endif

#include "whole_program.inc"
