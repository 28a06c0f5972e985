// SPDX-License-Identifier: Apache-2.0
// bench/lee_kifer/lee_kifer_bench.cpp - lk_<network>/<dp|non_private>/32/<threads>: training steps of Lee & Kifer's
// nets
//
// Lee & Kifer 2021 (PoPETs 2021(1), arXiv:2009.03106): their five networks at their batch size. The transformer's
// records are embedded words, since its embedding is frozen, and it has no dropout. Counters:
// support/step_benchmark.hpp.
#include <cstddef>
#include <string>

#include <pergrad/models.hpp>

#include "support/step_benchmark.hpp"

namespace {

namespace pg = pergrad;

constexpr std::size_t batch_size = 32;

using transformer = pg::network<pg::shape{512, 200}, pg::sinusoidal_positions, pg::transformer_encoder_layer<8, 800>,
                                pg::mean_over_positions, pg::linear<2>>;
static_assert(transformer::parameter_count == 483'002);

template <class Network>
bool add(const std::string& task) {
  return bench::register_steps<bench::training>(task, bench::kept_records<Network, pg::cross_entropy, batch_size>,
                                                {batch_size}, {1, 2});
}

const bool registered = add<pg::models::lee_kifer_mlp>("lk_mlp") && add<pg::models::lee_kifer_cnn<>>("lk_cnn") &&
                        add<pg::models::lee_kifer_rnn>("lk_rnn") && add<pg::models::lee_kifer_lstm>("lk_lstm") &&
                        add<transformer>("lk_transformer");

}  // namespace
