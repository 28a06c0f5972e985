// expect-error: option_not_offered<.*at_layer<1>.*layer_type<.*layer_norm<.*stride<2.*gets<.*of_shape<64>
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
using net_type = pg::network<pg::shape{1, 8, 8}, pg::flatten, pg::layer_norm<pg::no_affine>, pg::linear<10>>;
#else
using net_type = pg::network<pg::shape{1, 8, 8}, pg::flatten, pg::layer_norm<pg::stride<2>>, pg::linear<10>>;
#endif

#include "whole_program.inc"
