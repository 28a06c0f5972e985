// expect-error: option_not_offered<.*at_layer<0>.*low_rank_adapter<2.*conv2d<3
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
using net_type =
    pg::network<pg::shape{1, 8, 8}, pg::frozen<pg::conv2d<3, 3>>, pg::flatten, pg::lora<2, pg::linear<10>>>;
#else
using net_type = pg::network<pg::shape{1, 8, 8}, pg::lora<2, pg::conv2d<3, 3>>, pg::flatten, pg::linear<10>>;
#endif

#include "whole_program.inc"
