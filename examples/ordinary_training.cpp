// SPDX-License-Identifier: Apache-2.0
// examples/ordinary_training.cpp - training without privacy, on public data: pre-training, evaluation, widths that are
// chosen at run time, ensembles; then a private run that begins where it ended
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <numeric>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <pergrad.hpp>

#include "common/bounds.hpp"

namespace pg = pergrad;

struct table {
  std::vector<float> inputs;          // two coordinates of a point
  std::vector<std::int32_t> classes;  // 1 inside of a ring
  [[nodiscard]] pg::dataset<float, std::int32_t> records() const { return {inputs, classes, pg::shape{2}}; }
};
table draw(std::size_t count, unsigned seed, float radius) {
  std::mt19937 bits{seed};
  std::normal_distribution<float> gaussian;
  table made;
  for (std::size_t i = 0; i < count; ++i) {
    const float x = gaussian(bits);
    const float y = gaussian(bits);
    made.inputs.insert(made.inputs.end(), {x, y});
    made.classes.push_back(x * x + y * y < radius * radius ? 1 : 0);
  }
  return made;
}

// [snippet: epochs]
/// So many passes over public records in shuffled batches of 64, with Adam.
template <class Network>
void train(const pg::host& exec, Network& net, const pg::dataset<float, std::int32_t>& records, std::size_t epochs) {
  pg::adam<Network> optimizer{pg::learning_rate{0.01}, {.weight_decay = 0.01}};  // AdamW
  pg::unprotected::gradient<Network> gradient{exec};
  pg::tape<Network> tape{exec, pg::max_batch{64}};
  std::vector<std::uint32_t> order(records.size());
  std::iota(order.begin(), order.end(), 0U);
  std::mt19937 bits{1};
  for (std::size_t epoch = 0; epoch < epochs; ++epoch) {
    std::shuffle(order.begin(), order.end(), bits);
    for (std::size_t first = 0; first < order.size(); first += 64) {
      const auto ids =
          std::span<const std::uint32_t>{order}.subspan(first, std::min<std::size_t>(64, order.size() - first));
      const pg::batch<Network, pg::cross_entropy> batch{records, ids};
      const auto g = pg::per_sample_gradients(net, pg::cross_entropy{}, batch, tape);
      pg::unprotected::evaluate_into(exec, gradient, pg::mean(g));
      pg::unprotected::step(optimizer, exec, net, gradient);
    }
  }
}
// [snippet end]

// [snippet: widths]
template <std::size_t Width>
using of_width = pg::network<pg::shape{2}, pg::linear<Width>, pg::silu, pg::linear<2>>;

/// Trains a network of this width and tells its accuracy.
template <std::size_t Width>
double accuracy_of(const pg::host& exec, const table& data, const table& test) {
  of_width<Width> net{exec, pg::layer_default{1}};
  train(exec, net, data.records(), 5);
  return pg::evaluate_classifier(exec, net, pg::public_records{test.records()}).accuracy;
}
/// The width comes from a command line or a search; the types that it may mean are listed.
double accuracy_of(std::size_t width, const pg::host& exec, const table& data, const table& test) {
  using run = double (*)(const pg::host&, const table&, const table&);
  static constexpr std::pair<std::size_t, run> offered[]{
      {4, accuracy_of<4>}, {8, accuracy_of<8>}, {16, accuracy_of<16>}, {32, accuracy_of<32>}};
  const auto found = std::ranges::find(offered, width, &std::pair<std::size_t, run>::first);
  if (found == std::end(offered)) throw std::invalid_argument("no network of width " + std::to_string(width));
  return found->second(exec, data, test);
}
// [snippet end]

int main() {
  const pg::host exec;
  const table open = draw(4000, 1, 1.2F), test = draw(2000, 2, 1.2F);

  // [snippet: evaluation]
  using classifier = pg::network<pg::shape{2}, pg::linear<16>, pg::tanh, pg::linear<16>, pg::tanh, pg::linear<2>>;
  classifier net{exec, pg::xavier_uniform{1}};
  train(exec, net, open.records(), 10);
  const pg::public_records held_out{test.records()};
  const auto [accuracy, loss] = pg::evaluate_classifier(exec, net, held_out);
  const pg::confusion_matrix confusion = pg::confuse(exec, net, held_out);
  const std::vector<float> logits = pg::predict(exec, net, pg::public_records{test.inputs});  // [2000, 2]
  std::vector<float> scores;
  for (std::size_t i = 0; i < logits.size(); i += 2) scores.push_back(logits[i + 1] - logits[i]);
  std::printf("accuracy %.3f, loss %.3f, recall of ones %.3f, AUC %.4f\n", accuracy, loss, confusion.recall(1),
              pg::area_under_roc(scores, test.classes));
  // [snippet end]

  double best = 0;
  for (const std::size_t width : {4U, 8U, 16U, 32U}) {
    const double found = accuracy_of(width, exec, open, test);
    std::printf("width %zu: accuracy %.3f\n", width, found);
    best = std::max(best, found);
  }

  // [snippet: ensemble]
  std::vector<classifier> members;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    members.emplace_back(exec, pg::xavier_uniform{seed});
    train(exec, members.back(), open.records(), 5);
  }
  std::vector<float> together(logits.size());
  for (const classifier& member : members) {
    const std::vector<float> one = pg::predict(exec, member, pg::public_records{test.inputs});
    std::ranges::transform(together, one, together.begin(), std::plus{});
  }
  // [snippet end]
  std::size_t right = 0;
  for (std::size_t i = 0; i < test.classes.size(); ++i) {
    right += (together[2 * i + 1] > together[2 * i]) == (test.classes[i] == 1) ? 1U : 0U;
  }
  std::printf("five together: accuracy %.3f\n", static_cast<double>(right) / static_cast<double>(test.classes.size()));

  // [snippet: fine_tuning]
  // The same layers, all but the last one frozen; what was learned from public data comes with them for nothing.
  using tuned_type =
      pg::network<pg::shape{2}, pg::frozen<pg::linear<16>, pg::tanh, pg::linear<16>, pg::tanh>, pg::linear<2>>;
  tuned_type tuned{exec, pg::zeros{}};
  pg::copy_parameters(net, tuned);
  const table secret = draw(4000, 3, 1.0F), secret_test = draw(2000, 4, 1.0F);  // another ring, and private
  pg::dp_sgd_options options;
  options.clip = pg::l2_clip_norm{1.0};
  options.noise = pg::noise_multiplier{2.0};
  options.sampling = pg::poisson_sampling{pg::sampling_probability{0.05}};
  options.divisor = pg::expected_batch_size{200};
  options.learning_rate = pg::learning_rate{0.5};
  pg::dp_sgd trainer{exec, tuned, pg::cross_entropy{}, options};
  const auto records = secret.records();
  while (trainer.steps() < 60) trainer.step(records);
  // [snippet end]
  const pg::public_records secret_held_out{secret_test.records()};
  const double before = pg::evaluate_classifier(exec, net, secret_held_out).accuracy;
  const double after = pg::evaluate_classifier(exec, tuned, secret_held_out).accuracy;
  std::printf("another ring: accuracy %.3f, after 60 private steps %.3f, epsilon %s\n", before, after,
              example::rounded_up(trainer.epsilon(pg::delta{1e-5}), 2).c_str());
  return accuracy > 0.95 && best > 0.95 && after > before && right > 1900 ? 0 : 1;
}
