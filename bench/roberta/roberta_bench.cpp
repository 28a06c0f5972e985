// SPDX-License-Identifier: Apache-2.0
// bench/roberta/roberta_bench.cpp - roberta_cls/<dp|non_private>/8/<threads>: a step of RoBERTa's base model as a
// classifier of two classes, every parameter trained
//
// 12 blocks of 768 features, 50,265 words, records of 128 ids (Liu et al. 2019, arXiv:1907.11692), uniform over the
// vocabulary. Counters: support/step_benchmark.hpp.
#include <pergrad/models.hpp>

#include "support/step_benchmark.hpp"

namespace {

namespace pg = pergrad;

constexpr pg::models::bert_size size = [] {
  pg::models::bert_size base = pg::models::roberta_base;
  base.positions = 128;
  return base;
}();
using net = pg::models::bert_classifier<size>;
static_assert(net::parameter_count == (50'265 + 128 + 3) * 768 + 12 * (12 * 768 * 768 + 13 * 768) + 769 * 770);
// Of 12 blocks all projections at 128 positions, and the head at one.
static_assert(bench::flops_per_sample<net>() == 6.0 * (128.0 * 12 * 12 * 768 * 768 + 768 * 768 + 768 * 2));

const bool registered =
    bench::register_steps<bench::training>("roberta_cls", bench::kept_records<net, pg::cross_entropy, 8>, {8}, {1, 2});

}  // namespace
