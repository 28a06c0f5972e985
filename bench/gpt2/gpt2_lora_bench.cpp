// SPDX-License-Identifier: Apache-2.0
// bench/gpt2/gpt2_lora_bench.cpp - gpt2_small_lora/<dp|non_private>/8/<threads>: a step of GPT-2 small with adapters of
// rank 8 on the projections of queries, keys and values, as peft has them by default; nothing else is trained
//
// Records are those of gpt2_small_full.
#include <pergrad/models.hpp>

#include "support/step_benchmark.hpp"

namespace {

namespace pg = pergrad;

using net = pg::models::gpt2<128, 12, 768, 12, 50'257, pg::models::lora_on<8, "attn.c_attn">>;
static_assert(net::parameter_count == 12 * 8 * (768 + 3 * 768));
// The first block's frozen projection of queries, keys and values has no input gradient, nor has its adapter; frozen
// weights have no gradient.
static_assert(bench::flops_per_sample<net>() ==
              2.0 * 128 * (2 * (12 * 12 * 768 * 768 + 768 * 50'257) - 3 * 768 * 768 + 3 * 12 * 8 * 4 * 768 - 8 * 768));

const bool registered = bench::register_steps<bench::training>(
    "gpt2_small_lora", bench::kept_records<net, pg::token_cross_entropy<>, 8>, {8}, {1, 2});

}  // namespace
