// expect-error: needs_an_image<.*at_layer<0>.*gets<.*of_shape<32, 1, 8, 8>
// slip: PyTorch, shapes begin with the batch
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
using net_type = pg::network<pg::shape{1, 8, 8}, pg::conv2d<2, 3>, pg::flatten, pg::linear<10>>;
#else
using net_type = pg::network<pg::shape{32, 1, 8, 8}, pg::conv2d<2, 3>, pg::flatten, pg::linear<10>>;
#endif

#include "whole_program.inc"
