// SPDX-License-Identifier: Apache-2.0
// examples/01_quickstart.cpp - trains a small classifier with differential privacy and says what it cost
//
// The data is synthetic: points of the plane in three rings around the origin, 4096 to train on and 4096 to test with.
// The training points play the part of private records; everything else in this program is public.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <numbers>
#include <random>
#include <vector>

// [snippet: lines]
#include <pergrad.hpp>

namespace pg = pergrad;
// [snippet end]

// [snippet: data]
struct points {
  std::vector<float> inputs;          // x, y of one point after the other
  std::vector<std::int32_t> classes;  // 0, 1 or 2, one a point

  [[nodiscard]] pg::dataset<float, std::int32_t> records() const { return {inputs, classes, pg::shape{2}}; }
};
// [snippet end]

points draw_points(std::size_t count, unsigned seed) {
  std::mt19937 bits{seed};
  std::uniform_real_distribution<double> angle{0, 2 * std::numbers::pi};
  std::normal_distribution<double> noise{0, 0.15};
  points drawn;
  for (std::size_t i = 0; i < count; ++i) {
    const auto ring = static_cast<std::int32_t>(bits() % 3);
    const double radius = 0.5 + 0.75 * ring + noise(bits);
    const double around = angle(bits);
    drawn.inputs.push_back(static_cast<float>(radius * std::cos(around)));
    drawn.inputs.push_back(static_cast<float>(radius * std::sin(around)));
    drawn.classes.push_back(ring);
  }
  return drawn;
}

// [snippet: lines]
using classifier = pg::network<pg::shape{2}, pg::linear<64>, pg::tanh, pg::linear<3>>;
// [snippet end]

int main() {
  const points train = draw_points(4096, 1), test = draw_points(4096, 2);
  // [snippet: lines]
  // [snippet: network]
  const pg::host exec;
  classifier net{exec, pg::kaiming_uniform{1}};
  // [snippet end]
  // [snippet: options]
  const pg::privacy_budget budget{pg::epsilon{2.0}, pg::delta{1e-5}};
  const pg::sampling_probability q{256.0 / 4096};  // both numbers are public
  pg::dp_sgd_options options;
  options.clip = pg::l2_clip_norm{1.0};
  options.noise = pg::calibrate_noise(budget.max_epsilon, budget.delta, q, 300);
  options.sampling = pg::poisson_sampling{q};
  options.divisor = pg::expected_batch_size{256};
  options.learning_rate = pg::learning_rate{2.0};
  options.budget = budget;
  // [snippet end]
  // [snippet: training]
  pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options};
  const auto records = train.records();  // one data set, for all steps
  while (trainer.within_budget()) trainer.step(records);
  // [snippet end]
  // [snippet: result]
  const double accuracy = pg::evaluate_classifier(exec, net, pg::public_records{test.records()}).accuracy;
  const double spent = trainer.epsilon(budget.delta);
  std::printf("test accuracy %.4f, epsilon %.4f, delta %g\n", accuracy, std::ceil(1e4 * spent) / 1e4,
              budget.delta.value());
  // [snippet end]
  // [snippet end]
  return accuracy > 0.8 && spent <= 2.0 ? 0 : 1;
}
