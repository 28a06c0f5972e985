// expect-error: activation_not_offered<.*at_layer<1>.*mish
// slip: PyTorch, nn.Mish
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
using net_type = pg::network<pg::shape{1, 8, 8}, pg::flatten, pg::gelu, pg::linear<10>>;
#else
using net_type = pg::network<pg::shape{1, 8, 8}, pg::flatten, pg::mish, pg::linear<10>>;
#endif

#include "whole_program.inc"
