// SPDX-License-Identifier: Apache-2.0
// examples/coming_from_opacus.cpp [FILE] - the program of docs/coming_from_opacus.md, beside the same one for Opacus
// [snippet: program]
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <random>
#include <vector>

#include <pergrad.hpp>
namespace pg = pergrad;

using model = pg::network<pg::shape{8}, pg::linear<32>, pg::tanh, pg::linear<2>>;

struct table {
  std::vector<float> x;
  std::vector<std::int32_t> y;
  [[nodiscard]] pg::dataset<float, std::int32_t> records() const { return {x, y, model::input_shape}; }
};
table draw(std::size_t count, unsigned seed) {
  std::mt19937 bits{seed};
  std::normal_distribution<float> gaussian;
  table made{std::vector<float>(8 * count), std::vector<std::int32_t>(count)};
  std::vector<float> score(count);
  for (std::size_t i = 0; i < made.x.size(); ++i) {
    made.x[i] = gaussian(bits);
    score[i / 8] += (i % 2 == 0 ? 1.0F : -1.0F) * std::tanh(2 * made.x[i]);
  }
  for (std::size_t i = 0; i < count; ++i) made.y[i] = score[i] > 0 ? 1 : 0;
  return made;
}

int main(int count, char** arguments) try {
  const table train = draw(4096, 1), test = draw(1024, 2);
  const pg::host exec;
  model net{exec, pg::layer_default{1}};
  const pg::delta delta{1e-5};
  const std::size_t epochs = 10, steps_per_epoch = 4096 / 256;
  pg::dp_sgd_options options;
  options.sampling = pg::poisson_sampling{pg::sampling_probability{256.0 / 4096}};
  options.noise =
      pg::calibrate_noise(pg::epsilon{3.0}, delta, options.sampling->probability(), epochs * steps_per_epoch);
  options.clip = pg::l2_clip_norm{1.0};
  options.divisor = pg::expected_batch_size{256};
  options.learning_rate = pg::learning_rate{1.0};
  options.momentum = 0.9;
  options.max_batch = pg::max_batch{64};
  options.budget = pg::privacy_budget{pg::epsilon{3.0}, delta};
  pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options};
  const auto records = train.records();
  double accuracy = 0;
  for (std::size_t epoch = 1; epoch <= epochs; ++epoch) {
    while (trainer.steps() < epoch * steps_per_epoch) trainer.step(records);
    accuracy = pg::evaluate_classifier(exec, net, pg::public_records{test.records()}).accuracy;
    std::printf("epoch %zu: accuracy %.3f, epsilon %.3f\n", epoch, accuracy,
                std::ceil(1e3 * trainer.epsilon(delta)) / 1e3);
  }
  if (count > 1) pg::save_checkpoint(trainer, arguments[1]);  // parameters, optimizer and ledger
  return accuracy > 0.8 ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
// [snippet end]
