// SPDX-License-Identifier: Apache-2.0
// bench/gpt2/gpt2_bench.cpp - gpt2_small_full/<dp|non_private>/8/<threads>: a step of GPT-2 small in which every
// parameter is trained
//
// 12 blocks of 768 features, 50,257 words, records of 128 ids (Radford et al. 2019), uniform over the vocabulary, as
// are the next ones. Counters: support/step_benchmark.hpp.
#include <pergrad/models.hpp>

#include "support/step_benchmark.hpp"

namespace {

namespace pg = pergrad;

using net = pg::models::gpt2<128>;
static_assert(net::parameter_count == 124'439'808 - (1024 - 128) * 768);
// Of 12 blocks four projections, and the unembedding; the embedding is none.
static_assert(bench::flops_per_sample<net>() == 6.0 * 128 * (12 * 12 * 768 * 768 + 768 * 50'257));

const bool registered = bench::register_steps<bench::training>(
    "gpt2_small_full", bench::kept_records<net, pg::token_cross_entropy<>, 8>, {8}, {1, 2});

}  // namespace
