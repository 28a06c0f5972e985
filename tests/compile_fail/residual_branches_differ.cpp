// expect-error: residual_branches_differ<.*at_layer<1>.*gets<.*of_shape<8, 8, 8>.*gets<.*of_shape<4, 8, 8>
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
using net_type = pg::network<pg::shape{1, 8, 8}, pg::conv2d<4, 3, pg::padding<1>>,
                             pg::residual<pg::conv2d<8, 3, pg::padding<1>>, pg::relu, pg::projection<pg::conv2d<8, 1>>>,
                             pg::flatten, pg::linear<10>>;
#else
using net_type = pg::network<pg::shape{1, 8, 8}, pg::conv2d<4, 3, pg::padding<1>>,
                             pg::residual<pg::conv2d<8, 3, pg::padding<1>>, pg::relu>, pg::flatten, pg::linear<10>>;
#endif

#include "whole_program.inc"
