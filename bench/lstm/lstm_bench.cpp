// SPDX-License-Identifier: Apache-2.0
// bench/lstm/lstm_bench.cpp - lstm/<dp|non_private>/<batch>/<threads>: a training step of the IMDb LSTM
//
// Of fast-dpsgd and Opacus, 1,081,002 parameters: a table of 10,004 rows of 100, an LSTM of 100 with one bias over 256
// positions, the mean of its outputs, linear 2 (Subramani, Vadivelu, Kamath 2021, arXiv:2010.09063; Yousefpour et al.
// 2021, arXiv:2109.12298). Ids are uniform over the vocabulary. Counters: support/step_benchmark.hpp.
#include <pergrad/models.hpp>

#include "support/step_benchmark.hpp"

namespace {

namespace pg = pergrad;

using net = pg::models::imdb_lstm<pg::one_bias>;
static_assert(net::parameter_count == 1'081'002);
// Three products, forward, of the weights and of the inputs, with both matrices at 256 positions; and the last layer's.
static_assert(bench::flops_per_sample<net>() == 6.0 * (256 * 400 * 200 + 200));

const bool registered =
    bench::register_steps<bench::training>("lstm", bench::kept_records<net, pg::cross_entropy, 256>, {16, 256}, {1, 2});

}  // namespace
