// expect-error: mixes_samples<.*at_layer<1>.*layer_type<.*batch_norm2d.*gets<.*of_shape<2, 6, 6>
// expect-error: see docs/privacy.md
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
using net_type = pg::network<pg::shape{1, 8, 8}, pg::conv2d<2, 3>, pg::flatten, pg::linear<10>>;
#else
using net_type = pg::network<pg::shape{1, 8, 8}, pg::conv2d<2, 3>, pg::batch_norm2d, pg::flatten, pg::linear<10>>;
#endif

#include "whole_program.inc"
