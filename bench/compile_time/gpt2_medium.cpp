// SPDX-License-Identifier: Apache-2.0
// bench/compile_time/gpt2_medium.cpp - what GPT-2 medium costs to compile: 24 blocks, 354,823,168 parameters.
#include <ratio>

#include "training_step.hpp"

namespace pg = pergrad;

using block = pg::sequential<pg::residual<pg::layer_norm<>, pg::multihead_attention<16, pg::causal>>,
                             pg::residual<pg::layer_norm<>, pg::linear<4096>, pg::gelu_tanh, pg::linear<1024>>>;
using net = pg::network<pg::token_ids(1024, 50'257), pg::tied<0, pg::embedding<1024>>, pg::learned_positions,
                        pg::repeat<24, block>, pg::layer_norm<>, pg::tied<0, pg::linear<50'257, pg::no_bias>>>;
static_assert(net::parameter_count == 354'823'168);

int main() { return compile_time::take_a_step<net, pg::token_cross_entropy<>>(); }
