// expect-error: probability_out_of_range<.*at_layer<1>.*layer_type<.*dropout<.*\{1, 1\}
// slip: torch.nn.Dropout, p=1, which drops everything
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
using net_type = pg::network<pg::shape{1, 8, 8}, pg::flatten, pg::dropout<0.5>, pg::linear<10>>;
#else
using net_type = pg::network<pg::shape{1, 8, 8}, pg::flatten, pg::dropout<1>, pg::linear<10>>;
#endif

#include "whole_program.inc"
