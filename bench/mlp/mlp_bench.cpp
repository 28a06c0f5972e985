// SPDX-License-Identifier: Apache-2.0
// bench/mlp/mlp_bench.cpp - mlp/<dp|non_private>/<batch>/<threads>: a training step of 784-128-256-10 with sigmoids
//
// Lee & Kifer's perceptron (PoPETs 2021(1), arXiv:2009.03106) at other batch sizes than theirs. Counters:
// support/step_benchmark.hpp.
#include <pergrad/models.hpp>

#include "support/step_benchmark.hpp"

namespace {

namespace pg = pergrad;
using net = pg::models::lee_kifer_mlp;

const bool registered = bench::register_steps<bench::training>("mlp", bench::kept_records<net, pg::cross_entropy, 2048>,
                                                               {16, 256, 2048}, {1, 2});

}  // namespace
