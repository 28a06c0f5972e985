// expect-error: option_not_offered<.*at_layer<1>.*layer_type<.*dropout.*gets<.*of_shape<4, 6, 6>
// slip: PyTorch, an option of another layer in dropout
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
using net_type = pg::network<pg::shape{1, 8, 8}, pg::conv2d<4, 3>, pg::dropout<0.5>, pg::flatten, pg::linear<10>>;
#else
using net_type =
    pg::network<pg::shape{1, 8, 8}, pg::conv2d<4, 3>, pg::dropout<0.5, pg::bidirectional>, pg::flatten, pg::linear<10>>;
#endif

#include "whole_program.inc"
