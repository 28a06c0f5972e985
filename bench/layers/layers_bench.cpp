// SPDX-License-Identifier: Apache-2.0
// bench/layers/layers_bench.cpp - layer_<name>/<dp|non_private>/<batch>/<threads>: forward and backward of one layer
//
// The layers of Opacus' microbenchmarks (Yousefpour et al. 2021, arXiv:2109.12298) with the mean squared error to
// random targets: the mean of the gradients and, in `dp`, the norm of each sample's. bench/peers/README.md says what
// differs from the source. Counters: support/step_benchmark.hpp.
#include <cstddef>
#include <string>

#include <pergrad/pergrad.hpp>

#include "support/step_benchmark.hpp"

namespace {

namespace pg = pergrad;

template <pg::shape Input, class Layer>
bool add(const std::string& name) {
  using network = pg::network<Input, Layer>;
  return bench::register_steps<bench::differentiation>(name, bench::kept_records<network, pg::mean_squared_error, 512>,
                                                       {16, 64, 256, 512}, {1, 2});
}

/// A batch of 512 would hold 1.2 GB.
bool add_convolution(const std::string& name) {
  using network = pg::network<pg::shape{64, 50, 100}, pg::conv2d<64, 8>>;
  return bench::register_steps<bench::differentiation>(name, bench::kept_records<network, pg::mean_squared_error, 64>,
                                                       {16, 64}, {1, 2});
}

/// 64 positions ask 128 others.
using attention =
    pg::cross_attention<4, pg::queries<pg::take_positions<0, 64>>, pg::memory<pg::take_positions<64, 128>>>;

const bool registered = add<pg::shape{512}, pg::linear<512>>("layer_linear") &&                  //
                        add_convolution("layer_conv") &&                                         //
                        add<pg::shape{64}, pg::layer_norm<>>("layer_layernorm") &&               //
                        add<pg::shape{256, 64}, pg::instance_norm1d<>>("layer_instancenorm") &&  //
                        add<pg::shape{256}, pg::group_norm<16>>("layer_groupnorm") &&            //
                        add<pg::token_ids(1, 20'000), pg::embedding<100>>("layer_embedding") &&  //
                        add<pg::shape{192, 100}, attention>("layer_mha") &&                      //
                        add<pg::shape{128, 100}, pg::rnn<100, pg::no_bias>>("layer_rnn") &&      //
                        add<pg::shape{128, 100}, pg::gru<100, pg::no_bias>>("layer_gru") &&      //
                        add<pg::shape{128, 100}, pg::lstm<100, pg::no_bias>>("layer_lstm");

}  // namespace
