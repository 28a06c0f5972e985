// SPDX-License-Identifier: Apache-2.0
// tests/cuda/nvcc/host_layers_gate.cu - layers that no device runs, evaluated by the host in a unit that nvcc compiles
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace {

namespace pg = pergrad;

using sequences = pg::network<pg::token_ids(16, 100), pg::embedding<8>, pg::lstm<8>, pg::gru<8>,
                              pg::transformer_encoder_layer<2, 16>, pg::mean_over_positions, pg::linear<2>>;
// One large block, whose sum is formed a chunk at a time, and no leaf of the elementwise kind.
using large = pg::network<pg::shape{784}, pg::linear<1024, pg::no_bias>, pg::relu, pg::linear<10, pg::no_bias>>;

template <class Network>
float step() {
  const pg::host exec;
  Network net{exec, pg::kaiming_uniform{1}};
  const std::vector<typename Network::input_value> inputs(4 * Network::input_shape.size());
  const std::vector<std::int32_t> targets(4);
  const pg::batch<Network, pg::cross_entropy> samples{inputs, targets};
  pg::tape<Network> tape{exec, pg::max_batch{4}};
  const auto gradients = pg::per_sample_gradients(net, pg::cross_entropy{}, samples, tape);
  pg::seeded_generator generator{1};
  const auto noise = pg::unaccounted::gaussian_noise(pg::noise_multiplier{1}, generator);
  pg::unprotected::rehearsed_gradient<Network> update{exec};
  pg::adam<Network> optimizer{pg::learning_rate{0.1}};
  optimizer.step(exec, net, update, sum(clip(gradients, pg::l2_clip_norm{1})) + noise, pg::expected_batch_size{4});
  return update.values()[0];
}

}  // namespace

int main() { return step<sequences>() + step<large>() < 1e9F ? 0 : 1; }
