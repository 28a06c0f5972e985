// SPDX-License-Identifier: Apache-2.0
// bench/compile_time/gpt2_medium.cpp - what GPT-2 medium costs to compile: 24 blocks, 354,823,168 parameters
#include "gpt2.hpp"

using net = compile_time::gpt2<1024, 50'257>;
static_assert(net::parameter_count == 354'823'168);

int main() { return compile_time::take_a_step<net, pergrad::token_cross_entropy<>>(); }
