// SPDX-License-Identifier: Apache-2.0
// examples/09_fashion_mnist.cu - trains a CNN of 20,330 parameters on Fashion-MNIST with differential privacy
//
// Whoever sees the trained weights should learn almost nothing about any one training image. DP-SGD (Abadi et al. 2016)
// reaches that in each step: draw every record with the same small probability q, clip each record's gradient to l2
// norm C, add up, add Gaussian noise of deviation sigma C, divide by a public constant. An accountant turns (sigma, q,
// steps) into the (epsilon, delta) that has been spent. The network sees edges, not pixels (common/edges.hpp), after
// Tramer & Boneh 2021; that tanh is better than ReLU under clipping is from Papernot et al. 2021. The training loop is
// common/training.cpp.
#include <pergrad.hpp>

#include "common/cli.hpp"
#include "common/edges.hpp"
#include "common/fashion_mnist.hpp"
#include "common/report.hpp"
#include "common/training.hpp"

namespace pg = pergrad;

using runs_on = pg::cuda;  // 09_fashion_mnist.cpp is this program on the CPU: there it is pg::host

// The network is a type. All shapes follow from the first one, and a layer that does not fit is a compile error.
using cnn = pg::network<pg::shape{16, 7, 7}, pg::conv2d<32, 3, pg::padding<1>>, pg::tanh, pg::flatten, pg::linear<10>>;
static_assert(cnn::parameter_count == 20'330);

int main(int argc, char** argv) {
  const auto run = [](example::run_report& report) {
    report.network = "CNN on edges, tanh";
    example::train_on_fashion_mnist<cnn, runs_on>(report, example::edges_of);
  };
  const auto what = example::fashion_mnist_program(
      "fashion_mnist", "Fashion-MNIST with DP-SGD",
      "Trains a CNN of 20,330 parameters on edges in Fashion-MNIST with differentially private SGD.");
  return example::run_program(argc, argv, what, {}, run);
}
