// SPDX-License-Identifier: Apache-2.0
// examples/04_expressions.cpp - everything that can be asked of per-sample gradients, each answer checked against
// another
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <span>
#include <vector>

#include <pergrad.hpp>

namespace pg = pergrad;

using model = pg::basic_network<double, pg::shape{1, 8, 8}, pg::conv2d<4, 3>, pg::tanh, pg::max_pool2d<2>,  //
                                pg::flatten, pg::linear<3>>;
constexpr std::size_t sample_count = 12;
constexpr std::size_t width = model::parameter_count;

bool all_right = true;
void check(const char* what, double difference) {
  const bool right = difference <= 1e-12;
  all_right = all_right && right;
  std::printf("%-62s %.1e%s\n", what, difference, right ? "" : "  WRONG");
}
double largest_difference(std::span<const double> left, std::span<const double> right) {
  double largest = 0;
  for (std::size_t i = 0; i < left.size(); ++i) largest = std::max(largest, std::fabs(left[i] - right[i]));
  return largest;
}

int main() {
  std::vector<double> inputs(sample_count * model::input_shape.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i] = std::sin(0.7 * static_cast<double>(i));
  std::vector<std::int32_t> targets(sample_count);
  for (std::size_t b = 0; b < sample_count; ++b) targets[b] = static_cast<std::int32_t>(b % 3);

  // [snippet: leaf]
  const pg::host exec;
  model net{exec, pg::layer_default{1}};
  model::tape tape{exec, pg::max_batch{12}, pg::max_sums{3}};  // all memory is reserved here
  const pg::batch<model, pg::cross_entropy> batch{inputs, targets};
  const auto g = pg::per_sample_gradients(net, pg::cross_entropy{}, batch, tape);  // nothing is computed
  // [snippet end]

  // [snippet: private_values]
  using pg::unprotected::evaluate;
  const std::vector<double> norms = evaluate(exec, pg::l2_norms(g));    // one a sample
  const std::vector<double> rows = evaluate(exec, pg::materialise(g));  // [samples, parameters]
  const std::vector<double> fourth = evaluate(exec, g[3]);              // one row, for the cost of one
  const std::vector<double> total = evaluate(exec, pg::sum(g));         // the ordinary gradient
  // [snippet end]
  std::vector<double> added(width), squares(sample_count);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    added[i % width] += rows[i];
    squares[i / width] += rows[i] * rows[i];
  }
  check("sum(g) is the sum of the rows", largest_difference(total, added));
  check("squared_l2_norms(g) are those of the rows",
        largest_difference(evaluate(exec, pg::squared_l2_norms(g)), squares));
  check("g[3] is row 3", largest_difference(fourth, std::span{rows}.subspan(3 * width, width)));

  // [snippet: together]
  // One forward and one backward pass for all of them.
  std::vector<double> clipped(width), halves(width), average(width), losses(sample_count);
  pg::unprotected::evaluate_into(exec, pg::assign(clipped, pg::sum(pg::clip(g, pg::l2_clip_norm{0.5}))),
                                 pg::assign(halves, pg::weighted_sum(g, pg::min(1.0, 0.5 / pg::l2_norms(g)))),
                                 pg::assign(average, pg::mean(g)), pg::assign(losses, pg::losses(g)));
  // [snippet end]
  check("clip is the weight min(1, C / norm), rounded down", largest_difference(clipped, halves));

  // [snippet: geometry]
  const std::vector<double> along = evaluate(exec, pg::dot(g, average));    // <g_b, mean>
  const std::vector<double> products = evaluate(exec, pg::gram(g));         // <g_a, g_b>, [samples, samples]
  const std::vector<double> spread = evaluate(exec, pg::variance(g));       // of every parameter's gradient
  const std::vector<double> moment = evaluate(exec, pg::second_moment(g));  // mean of g_b²
  const std::vector<double> cosines = evaluate(exec, pg::dot(g, average) / pg::l2_norms(g));
  // [snippet end]
  double row_sum = 0;
  for (std::size_t b = 0; b < sample_count; ++b) row_sum += products[b] / static_cast<double>(sample_count);
  check("dot(g, mean) is a row of the Gram matrix, averaged", std::fabs(along[0] - row_sum));
  check("variance is second moment minus squared mean", std::fabs(spread[7] - moment[7] + average[7] * average[7]));
  check("cosine = dot / norm", std::fabs(cosines[5] - along[5] / norms[5]));

  // [snippet: chunks]
  // A logical batch in chunks that fit the tape; the total remembers the sensitivity of what was added.
  pg::bounded_total<model> sum_of_chunks{exec};
  const pg::dataset<double, std::int32_t> records{inputs, targets, model::input_shape};
  std::vector<std::uint32_t> drawn(sample_count);
  std::iota(drawn.begin(), drawn.end(), 0U);  // every record once, in order
  for (std::size_t first = 0; first < drawn.size(); first += 4) {
    const pg::batch<model, pg::cross_entropy> chunk{records, std::span{drawn}.subspan(first, 4)};
    const auto g_of_chunk = pg::per_sample_gradients(net, pg::cross_entropy{}, chunk, tape);
    pg::evaluate_into(exec, pg::accumulate(sum_of_chunks, pg::sum(pg::clip(g_of_chunk, pg::l2_clip_norm{0.5}))));
  }
  // [snippet end]

  // [snippet: release]
  pg::seeded_generator key{1};  // pg::os_keyed_generator where the result is released
  pg::unprotected::rehearsed_gradient<model> released{exec};
  pg::evaluate_into(exec, released, sum_of_chunks + pg::unaccounted::gaussian_noise(pg::noise_multiplier{1.1}, key));
  // [snippet end]

  pg::seeded_generator same_key{1};
  pg::bounded_total<model> in_one{exec};
  pg::unprotected::rehearsed_gradient<model> same{exec};
  pg::evaluate_into(exec, pg::accumulate(in_one, pg::sum(pg::clip(g, pg::l2_clip_norm{0.5}))));
  pg::evaluate_into(exec, same, in_one + pg::unaccounted::gaussian_noise(pg::noise_multiplier{1.1}, same_key));
  check("chunks and one batch release the same", largest_difference(released.values(), same.values()));
  // [snippet: kinds_of_clip]
  const auto per_layer = pg::sum(pg::clip_per_layer(g, pg::l2_clip_norm{0.5}));  // C / sqrt(2) for each of two layers
  const auto automatic = pg::sum(pg::normalise(g, pg::l2_clip_norm{0.5}));       // C g / (norm + 0.01)
  const auto replaced = pg::sum<pg::neighbouring::replace_one>(pg::clip(g, pg::l2_clip_norm{0.5}));
  // [snippet end]
  std::printf("sensitivities %.4f %.4f %.4f\n", per_layer.sensitivity(), automatic.sensitivity(),
              replaced.sensitivity());
  return all_right ? 0 : 1;
}
