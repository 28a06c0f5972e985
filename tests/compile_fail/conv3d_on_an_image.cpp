// expect-error: needs_a_volume<.*at_layer<0>.*layer_type<.*conv3d<2.*gets<.*of_shape<1, 8, 8>
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
using net_type =
    pg::network<pg::shape{1, 8, 8}, pg::reshape<pg::shape{1, 4, 4, 4}>, pg::conv3d<2, 3>, pg::flatten, pg::linear<10>>;
#else
using net_type = pg::network<pg::shape{1, 8, 8}, pg::conv3d<2, 3>, pg::flatten, pg::linear<10>>;
#endif

#include "whole_program.inc"
