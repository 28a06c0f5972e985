// expect-error: softmax_is_in_the_loss<.*at_layer<2>.*layer_type<.*softmax>.*gets<.*of_shape<10>
// slip: PyTorch, nn.Softmax at the end of a Sequential
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
using net_type = pg::network<pg::shape{1, 8, 8}, pg::flatten, pg::linear<10>>;
#else
using net_type = pg::network<pg::shape{1, 8, 8}, pg::flatten, pg::linear<10>, pg::softmax>;
#endif

#include "whole_program.inc"
