// SPDX-License-Identifier: Apache-2.0
// tests/cuda/nvcc/link_device.cu - a program of .cu and .cpp, linked with the real CUDA runtime
//
// A network made here is read by the other half. Without a GPU the program says in one line what is missing and ends
// with exit code 3.
#include <cmath>
#include <cstdio>
#include <string>

#include <pergrad.hpp>

#include "link.hpp"

// Asked for outside of any template, as users do.
static_assert(linked_net::device_bytes<2> > 0);

int main() {
  if (sizeof(linked_net::tape) != host_tape_bytes() || sizeof(linked_net) != host_network_bytes()) {
    std::printf("the two compilers disagree about the size of a tape or a network\n");
    return 1;
  }
  const pergrad::host host;
  linked_net net{host, pergrad::kaiming_uniform{1}};
  const double there = host_norm(net);
  const float inputs[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  const std::int32_t targets[2] = {0, 1};
  const pergrad::batch<linked_net, pergrad::cross_entropy> samples{inputs, targets};
  linked_net::tape host_tape{host, pergrad::max_batch{2}};
  const double here = pergrad::unprotected::evaluate(
      host, pergrad::l2_norms(pergrad::per_sample_gradients(net, pergrad::cross_entropy{}, samples, host_tape)))[0];
  if (!(there > 0) || std::abs(here - there) > 1e-6 * there) {
    std::printf("the host executor gives %g in one half and %g in the other\n", here, there);
    return 1;
  }
  try {
    const pergrad::cuda exec;
    linked_net::tape tape{exec, pergrad::max_batch{2}};
    const double on_device = pergrad::unprotected::evaluate(
        exec, pergrad::l2_norms(pergrad::per_sample_gradients(net, pergrad::cross_entropy{}, samples, tape)))[0];
    if (std::abs(on_device - there) > 1e-5 * there) {
      std::printf("the GPU gives %g, the host %g\n", on_device, there);
      return 1;
    }
  } catch (const pergrad::cuda_unavailable& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return pergrad::cuda::missing().empty() ? 1 : 3;
  }
  return 0;
}
