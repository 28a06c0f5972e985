// SPDX-License-Identifier: Apache-2.0
// examples/02_private_training.cpp - DP-SGD by hand, then by the trainer, with the mistakes that are refused on the way
//
// By hand, the loop is yours: how gradients are clipped, what else is looked at, what becomes of what was released.
// Sampling, noise and accounting cannot come apart in a `private_loop`, no more than in a trainer, which is the same
// with nothing left to write. The data is synthetic: 2000 records of 8 numbers, two classes. The file of a run in
// several parts lies in a temporary folder.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <pergrad.hpp>

#include "common/bounds.hpp"
#include "common/own_folder.hpp"

namespace pg = pergrad;

using model = pg::network<pg::shape{8}, pg::linear<16>, pg::tanh, pg::linear<2>>;

struct table {
  std::vector<float> inputs;
  std::vector<std::int32_t> classes;
  [[nodiscard]] pg::dataset<float, std::int32_t> records() const { return {inputs, classes, pg::shape{8}}; }
};

table draw(std::size_t count, unsigned seed) {
  std::mt19937 bits{seed};
  std::normal_distribution<float> gaussian;
  table drawn;
  for (std::size_t i = 0; i < count; ++i) {
    float score = 0;
    for (int k = 0; k < 8; ++k) {
      drawn.inputs.push_back(gaussian(bits));
      score += (k % 2 == 0 ? 1.0F : -1.0F) * std::tanh(2 * drawn.inputs.back());
    }
    drawn.classes.push_back(score > 0 ? 1 : 0);
  }
  return drawn;
}

double by_hand(const pg::host& exec, const table& data) {
  const auto records = data.records();
  const table test = draw(1000, 2);
  // [snippet: by_hand]
  pg::private_options options;
  options.clip = pg::l2_clip_norm{1.0};
  options.noise = pg::noise_multiplier{1.0};
  options.sampling = pg::poisson_sampling{pg::sampling_probability{0.05}};
  options.divisor = pg::expected_batch_size{100};  // 0.05 * 2000, not what is drawn

  model net{exec, pg::xavier_uniform{1}};
  pg::sgd<model> optimizer{pg::learning_rate{0.5}, 0.9};
  pg::private_loop loop{exec, net, pg::cross_entropy{}, options};
  while (loop.steps() < 100) {
    auto step = loop.begin(records);  // into the ledger, then the draw
    while (step.next()) {             // physical batches, each into the step's sum once
      const auto g = step.gradients();
      pg::evaluate_into(exec, accumulate(step, pg::sum(pg::clip(g, pg::l2_clip_norm{1.0}))));
    }
    optimizer.step(exec, net, std::move(step));  // noise, once; the step is used up
  }
  // [snippet end]
  std::printf("by hand:  accuracy %.3f, epsilon %s\n",
              pg::evaluate_classifier(exec, net, pg::public_records{test.records()}).accuracy,
              example::rounded_up(loop.epsilon(pg::delta{1e-5}), 3).c_str());
  return loop.epsilon(pg::delta{1e-5});
}

int main() try {
  const pg::host exec;
  const table data = draw(2000, 1);
  const double by_hand_epsilon = by_hand(exec, data);

  // [snippet: trainer]
  pg::dp_sgd_options options;
  options.clip = pg::l2_clip_norm{1.0};
  options.clipping = pg::clipping_kind::automatic;  // C g / (norm + 0.01)
  options.noise = pg::noise_multiplier{1.0};
  options.sampling = pg::poisson_sampling{pg::sampling_probability{0.05}};
  options.divisor = pg::expected_batch_size{100};
  options.learning_rate = pg::learning_rate{0.02};
  options.optimizer = pg::optimizer_kind::adam;
  options.max_batch = pg::max_batch{64};  // larger batches come in chunks
  options.budget = pg::privacy_budget{pg::epsilon{by_hand_epsilon}, pg::delta{1e-5}};

  model net{exec, pg::xavier_uniform{1}};
  pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options};
  const auto records = data.records();  // one data set, for all steps
  while (trainer.within_budget()) trainer.step(records);
  // [snippet end]
  const table test = draw(1000, 2);
  const double accuracy = pg::evaluate_classifier(exec, net, pg::public_records{test.records()}).accuracy;
  std::printf("trainer:  accuracy %.3f, epsilon %s after %d steps\n", accuracy,
              example::rounded_up(trainer.epsilon(pg::delta{1e-5}), 3).c_str(), static_cast<int>(trainer.steps()));
  bool refused = false;
  // [snippet: refusal]
  try {
    trainer.step(records);
  } catch (const pg::budget_exhausted& refusal) {
    std::printf("refused:  %s\n", refusal.what());
    refused = true;
  }
  // [snippet end]

  const example::own_folder folder;
  const std::string file = folder.file("private_training.run");
  // [snippet: resume]
  pg::save_checkpoint(trainer, file);  // parameters, optimizer's state and ledger; no key
  model continued{exec, pg::zeros{}};
  options.budget->max_epsilon = pg::epsilon{1.25 * by_hand_epsilon};
  pg::dp_sgd second_part{exec, continued, pg::cross_entropy{}, options};
  pg::load_checkpoint(second_part, file);  // 100 steps are in the ledger
  while (second_part.within_budget()) second_part.step(records);
  // [snippet end]
  std::printf("resumed:  epsilon %s after %d steps, from %s\n",
              example::rounded_up(second_part.epsilon(pg::delta{1e-5}), 3).c_str(),
              static_cast<int>(second_part.steps()), file.c_str());

  // [snippet: statistics]
  options.budget.reset();
  options.statistic =
      pg::step_statistic{pg::noise_multiplier{5}, pg::bin_edges::evenly(0, 3, 30), pg::step_value::loss};
  model logged{exec, pg::xavier_uniform{1}};
  pg::dp_sgd with_log{exec, logged, pg::cross_entropy{}, options};
  with_log.step(records);
  const pg::released_histogram& losses = with_log.last_statistic();  // of the step's records
  std::printf("log:      %.0f records, median loss %.2f (each count is off by %.1f)\n", losses.total(),
              losses.quantile(0.5), losses.deviation());

  std::vector<double> first_numbers;  // of all records: one value of each
  for (std::size_t i = 0; i < data.inputs.size(); i += 8) first_numbers.push_back(static_cast<double>(data.inputs[i]));
  const pg::noise_multiplier sigma{20};
  const double positive = pg::release_count(with_log, sigma, first_numbers, 0, 100);
  const double upper = pg::release_quantile(with_log, sigma, first_numbers, 0.9, pg::bin_edges::evenly(-4, 4, 40));
  std::printf("released: %.0f positive, nine of ten below %.2f\n", positive, upper);
  // [snippet end]
  std::printf("in all:   epsilon %s\n", example::rounded_up(with_log.epsilon(pg::delta{1e-5}), 3).c_str());
  const bool logged_well = std::fabs(losses.total() - 100) < 250 && std::fabs(positive - 1000) < 250 && upper > 0.5;

  // [snippet: not_private]
  options.private_metrics = true;
  options.budget.reset();
  model repeatable{exec, pg::xavier_uniform{1}};
  pg::dp_sgd experiment{exec, repeatable, pg::cross_entropy{}, options, pg::seeded_generator{7}};
  static_assert(!decltype(experiment)::is_private);
  experiment.step(records);
  const pg::step_metrics& seen = pg::unprotected::metrics(experiment);
  std::printf("private:  %zu records, mean loss %.3f, mean norm %.3f\n", seen.batch_size, seen.mean_loss,
              seen.mean_norm);
  // [snippet end]
  return logged_well && refused && trainer.steps() == 100 && second_part.steps() > 100 && accuracy > 0.75 &&
                 seen.batch_size > 0
             ? 0
             : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "private_training: %s\n", error.what());
  return 1;
}
