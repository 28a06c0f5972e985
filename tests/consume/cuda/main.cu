// SPDX-License-Identifier: Apache-2.0
// tests/consume/cuda/main.cu - a user's program for a GPU, built against the installed library
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>

#include <pergrad.hpp>

namespace pg = pergrad;

using net_type = pg::network<pg::shape{4}, pg::linear<3>, pg::tanh, pg::linear<2>>;

template <class Executor>
double first_norm(const Executor& exec) {
  const net_type net{exec, pg::kaiming_uniform{1}};
  net_type::tape tape{exec, pg::max_batch{2}};
  const float inputs[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  const std::int32_t targets[2] = {0, 1};
  const pg::batch<net_type, pg::cross_entropy> samples{inputs, targets};
  return pg::unprotected::evaluate(exec,
                                   pg::l2_norms(pg::per_sample_gradients(net, pg::cross_entropy{}, samples, tape)))[0];
}

int main() {
  const double expected = first_norm(pg::host{});
  if (!(expected > 0)) return 1;
  const std::string missing = pg::cuda::missing();
  if (!missing.empty()) {
    std::printf("%s\n", missing.c_str());
    return missing.find('\n') == std::string::npos ? 0 : 1;
  }
  return std::abs(first_norm(pg::cuda{}) - expected) <= 1e-5 * expected ? 0 : 1;
}
