// expect-error: branches_do_not_fit<.*at_layer<0>.*layer_type<.*concatenate_channels>.*gets<.*of_shape<2, 4>.*gets<.*of_shape<3, 5>
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
using net_type = pg::network<pg::shape{3, 5}, pg::parallel_channels<pg::conv1d<2, 1>, pg::sequential<>>, pg::flatten,
                             pg::linear<10>>;
#else
using net_type = pg::network<pg::shape{3, 5}, pg::parallel_channels<pg::conv1d<2, 2>, pg::sequential<>>, pg::flatten,
                             pg::linear<10>>;
#endif

#include "whole_program.inc"
