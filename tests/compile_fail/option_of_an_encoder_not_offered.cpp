// expect-error: option_not_offered<.*at_layer<0>.*layer_type<.*no_such_option<.*relu_cell>.*gets<.*of_shape<5, 4>
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
using net_type =
    pg::network<pg::shape{5, 4}, pg::transformer_encoder_layer<2, 8, pg::pre_norm>, pg::flatten, pg::linear<10>>;
#else
using net_type =
    pg::network<pg::shape{5, 4}, pg::transformer_encoder_layer<2, 8, pg::relu_cell>, pg::flatten, pg::linear<10>>;
#endif

#include "whole_program.inc"
