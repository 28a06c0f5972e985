// SPDX-License-Identifier: Apache-2.0
// bench/compile_time/transformer12.cpp - what a text classifier with twelve encoder layers costs to compile.
#include <ratio>

#include "training_step.hpp"

namespace pg = pergrad;

using net = pg::network<pg::shape{32, 64}, pg::sinusoidal_positions,
                        pg::repeat<12, pg::transformer_encoder_layer<4, 128, pg::dropout_rate<0.1>>>,
                        pg::mean_over_positions, pg::linear<2>>;
static_assert(net::parameter_count == 12 * 33'472 + 130);

int main() { return compile_time::take_a_step<net>(); }
