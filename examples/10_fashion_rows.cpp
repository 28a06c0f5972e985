// SPDX-License-Identifier: Apache-2.0
// examples/10_fashion_rows.cpp - trains an LSTM that reads Fashion-MNIST row by row, with differential privacy
//
// An image is a sequence here: 28 steps of 28 pixels. The LSTM's output after the last row goes through one linear
// layer; this is the recurrent task of Lee & Kifer 2021. Its weights are used 28 times a sample, and the gradient that
// is clipped is their sum over all 28 uses: its norm follows from the activations and the gradients of the steps (the
// Gram matrices), so that no sample's 82,186 numbers are ever written down.
#include <pergrad.hpp>
#include <pergrad/models.hpp>

#include "common/cli.hpp"
#include "common/fashion_mnist.hpp"
#include "common/report.hpp"
#include "common/training.hpp"

namespace pg = pergrad;

// pg::network<pg::shape{28, 28}, pg::lstm<128, pg::last_output>, pg::linear<10>>
using row_reader = pg::models::lee_kifer_lstm;
static_assert(row_reader::parameter_count == 82'186);

int main(int argc, char** argv) {
  auto what = example::fashion_mnist_program(
      "fashion_rows", "Fashion-MNIST row by row, an LSTM with DP-SGD",
      "Trains an LSTM of 82,186 parameters on the rows of Fashion-MNIST with differentially private SGD.");
  what.adam_rate = 0.01;
  what.defaults.optimizer = "adam";
  what.defaults.clip = 1.0;
  what.defaults.epochs = 15;
  const auto run = [](example::run_report& report) {
    report.network = "LSTM 128";
    example::train_on_fashion_mnist<row_reader>(report);
  };
  return example::run_program(argc, argv, what, {}, run);
}
