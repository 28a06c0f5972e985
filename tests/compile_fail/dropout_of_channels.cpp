// expect-error: layer_of_pytorch_not_offered<.*at_layer<1>.*dropout2d
// slip: PyTorch, nn.Dropout2d
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
using net_type = pg::network<pg::shape{1, 8, 8}, pg::conv2d<2, 3>, pg::dropout<0.5>, pg::flatten, pg::linear<10>>;
#else
using net_type = pg::network<pg::shape{1, 8, 8}, pg::conv2d<2, 3>, pg::dropout2d, pg::flatten, pg::linear<10>>;
#endif

#include "whole_program.inc"
