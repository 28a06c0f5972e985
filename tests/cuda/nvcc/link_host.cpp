// SPDX-License-Identifier: Apache-2.0
// tests/cuda/nvcc/link_host.cpp - the half of a program of both kinds of translation units that the host compiles
#include <cstddef>

#include <pergrad.hpp>

#include "link.hpp"

#ifdef CUDART_VERSION
#error "the library brought CUDA into a translation unit of the host"
#endif

std::size_t host_tape_bytes() { return sizeof(linked_net::tape); }
std::size_t host_network_bytes() { return sizeof(linked_net); }

double host_norm(linked_net& net) {
  const float inputs[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  const std::int32_t targets[2] = {0, 1};
  const pergrad::host executor;
  linked_net::tape tape{executor, pergrad::max_batch{2}};
  const pergrad::batch<linked_net, pergrad::cross_entropy> samples{inputs, targets};
  return pergrad::unprotected::evaluate(
      executor, pergrad::l2_norms(pergrad::per_sample_gradients(net, pergrad::cross_entropy{}, samples, tape)))[0];
}
