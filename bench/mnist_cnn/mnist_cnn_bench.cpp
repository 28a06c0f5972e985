// SPDX-License-Identifier: Apache-2.0
// bench/mnist_cnn/mnist_cnn_bench.cpp - mnist_cnn/<dp|non_private>/<batch>/<threads>: a training step of the MNIST CNN
//
// Counters: support/step_benchmark.hpp.
#include "mnist_cnn/images.hpp"
#include "support/step_benchmark.hpp"

namespace {

using mnist_cnn::data;
using mnist_cnn::net;

static_assert(net::parameter_count == 26'010);
static_assert(bench::flops_per_sample<net>() == 2'131'840);  // 2.13 MFLOP, as published for this task

/// 51 MB: more than caches hold, so that a step reads its batch from memory as it would in training.
const data& images() {
  static const data made = mnist_cnn::make_images(16'384);
  return made;
}

const bool registered = bench::register_steps<bench::training>("mnist_cnn", images, {16, 256, 2048}, {1, 2}) &&
                        bench::register_integers<bench::training>("mnist_cnn", images, 256, 2);

}  // namespace
