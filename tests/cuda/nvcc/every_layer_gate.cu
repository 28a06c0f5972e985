// SPDX-License-Identifier: Apache-2.0
// tests/cuda/nvcc/every_layer_gate.cu - private steps of networks with every layer and loss, for nvcc to judge
//
// Compiled only: gates.py says with which flags.
#include <pergrad.hpp>

#include "every_layer.hpp"

int main() {
  using namespace every_layer;
  const pg::cuda exec;
#define TRAIN(network, ...) (void)train<network, __VA_ARGS__>(exec, 5)
  EVERY_NETWORK(TRAIN);
}
