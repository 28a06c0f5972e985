// expect-error: kernel_larger_than_padded_input<.*at_layer<2>.*layer_type<.*conv2d<2.*gets<.*of_shape<2, 4, 4>
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
using net_type = pg::network<pg::shape{1, 8, 8}, pg::conv2d<2, 3>, pg::avg_pool2d<3, pg::stride<1>>,
                             pg::conv2d<2, 7, pg::padding<2>>, pg::flatten, pg::linear<10>>;
#else
using net_type = pg::network<pg::shape{1, 8, 8}, pg::conv2d<2, 3>, pg::avg_pool2d<3, pg::stride<1>>,
                             pg::conv2d<2, 7, pg::padding<1>>, pg::flatten, pg::linear<10>>;
#endif

#include "whole_program.inc"
