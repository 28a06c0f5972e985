// SPDX-License-Identifier: Apache-2.0
// bench/compile_time/training_step.hpp - the private step that every program of the ledger contains
//
// Forward, backward, clip, sum, noise, update on a batch of zeros. The programs are compiled only, never run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <pergrad.hpp>

namespace compile_time {

/// One whole private step of a network.
template <class Network, class Loss = pergrad::cross_entropy>
int take_a_step() {
  namespace pg = pergrad;
  constexpr std::size_t batch_size = 16;
  const std::vector<typename Network::input_value> inputs(batch_size * Network::input_shape.size());
  const std::vector<std::int32_t> targets(batch_size * Loss::target_count(Network::output_shape));

  pg::host exec;
  Network net{exec, pg::kaiming_uniform{1}};
  typename Network::tape tape{exec, pg::max_batch{batch_size}};
  pg::os_keyed_generator noise_source;
  pg::private_gradient<Network> update{exec};
  pg::sgd<Network> optimizer{pg::learning_rate{0.15}};

  const pg::batch<Network, Loss> samples{inputs, targets};
  const auto gradients = pg::per_sample_gradients(net, Loss{}, samples, tape);
  const auto clipped = pg::sum(pg::clip(gradients, pg::l2_clip_norm{1.0}));
  pg::evaluate_into(exec, update, clipped + pg::unaccounted::gaussian_noise(pg::noise_multiplier{1.1}, noise_source));
  optimizer.step(exec, net, update, pg::expected_batch_size{static_cast<double>(batch_size)});
  return net.parameters()[0] > 0 ? 1 : 0;
}

}  // namespace compile_time
