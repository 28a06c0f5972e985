// expect-error: option_not_offered<.*at_layer<1>.*layer_type<.*adaptive_avg_pool2d.*gets<.*of_shape<4, 6, 6>
// slip: PyTorch, an option of a pool in adaptive_avg_pool2d
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
using net_type =
    pg::network<pg::shape{1, 8, 8}, pg::conv2d<4, 3>, pg::adaptive_avg_pool2d<2, 2>, pg::flatten, pg::linear<10>>;
#else
using net_type = pg::network<pg::shape{1, 8, 8}, pg::conv2d<4, 3>, pg::adaptive_avg_pool2d<2, 2, pg::stride<2>>,
                             pg::flatten, pg::linear<10>>;
#endif

#include "whole_program.inc"
