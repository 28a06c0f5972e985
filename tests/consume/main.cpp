// SPDX-License-Identifier: Apache-2.0
// tests/consume/main.cpp - the program that is built against the library in each of the ways a user can get it.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <pergrad.hpp>

namespace pg = pergrad;

using net_type = pg::network<pg::shape{1, 6, 6}, pg::conv2d<4, 3>, pg::tanh, pg::flatten, pg::linear<3>>;
static_assert(net_type::parameter_count == 4 * 10 + 3 * 65);

int main() {
  const pg::host exec{pg::threads{2}};
  net_type net{exec, pg::layer_default{1}};
  net_type::tape tape{exec, pg::max_batch{4}};
  const std::vector<float> inputs(4 * 36, 0.5F);
  const std::vector<std::int32_t> targets{0, 1, 2, 0};
  const pg::batch<net_type, pg::cross_entropy> batch{inputs, targets};

  const auto gradients = pg::per_sample_gradients(net, pg::cross_entropy{}, batch, tape);
  pg::os_keyed_generator generator;
  pg::private_gradient<net_type> update{exec};
  pg::evaluate_into(exec, update,
                    pg::sum(pg::clip(gradients, pg::l2_clip_norm{1.0})) +
                        pg::unaccounted::gaussian_noise(pg::noise_multiplier{1.0}, generator));
  pg::sgd<net_type> optimizer{pg::learning_rate{0.1}};
  optimizer.step(exec, net, update, pg::expected_batch_size{4});

  const std::string numbers = std::to_string(PERGRAD_VERSION_MAJOR) + "." + std::to_string(PERGRAD_VERSION_MINOR) +
                              "." + std::to_string(PERGRAD_VERSION_PATCH);
  std::printf("pergrad %s\n", numbers.c_str());
  return numbers == pg::version && std::isfinite(net.parameters()[0]) ? 0 : 1;
}
