// SPDX-License-Identifier: Apache-2.0
// examples/05_strategies.cpp - one clipped sum, formed in every way the papers know: same numbers, different work
//
// Two choices are independent of each other. The norm method says how |G_b| of one layer is found; the strategy says
// how the passes over the batch are arranged. Both may be forced, so that they can be compared; by default a cost model
// picks the method layer by layer, and the strategy is book-keeping.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <vector>

#include <pergrad.hpp>

namespace pg = pergrad;

using cnn = pg::network<pg::shape{1, 28, 28},                                        //
                        pg::conv2d<16, 8, pg::stride<2>, pg::padding<3>>, pg::tanh,  //
                        pg::max_pool2d<2, pg::stride<1>>,                            //
                        pg::conv2d<32, 4, pg::stride<2>>, pg::tanh,                  //
                        pg::max_pool2d<2, pg::stride<1>>,                            //
                        pg::flatten, pg::linear<32>, pg::tanh, pg::linear<10>>;
constexpr std::size_t batch_size = 128;

// The clipped sum of some per-sample gradients; prints the time of the fastest of three evaluations, and how far the
// sum is from what is expected.
template <class Scalar, class Gradients>
bool compare(const char* name, const pg::host& exec, const Gradients& gradients, std::vector<Scalar>& expected,
             double tolerance) {
  std::vector<Scalar> sum(cnn::parameter_count);
  double seconds = 1e9;
  for (int repeat = 0; repeat < 3; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    pg::unprotected::evaluate_into(exec, sum, pg::sum(pg::clip(gradients, pg::l2_clip_norm{0.1})));
    seconds = std::min(seconds, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  if (expected.empty()) expected = sum;
  double error = 0;
  double size = 0;
  for (std::size_t i = 0; i < sum.size(); ++i) {
    error += std::pow(static_cast<double>(sum[i]) - static_cast<double>(expected[i]), 2);
    size += std::pow(static_cast<double>(expected[i]), 2);
  }
  const double relative = std::sqrt(error / size);
  std::printf("%-26s %8.1f us a sample   relative difference %.1e\n", name,
              1e6 * seconds / static_cast<double>(batch_size), relative);
  return relative <= tolerance;
}

template <class Scalar>
bool compare_all(double tolerance) {
  using network = cnn::rebind<Scalar>;
  std::vector<Scalar> images(batch_size * cnn::input_shape.size());
  for (std::size_t i = 0; i < images.size(); ++i)
    images[i] = static_cast<Scalar>(std::sin(0.013 * static_cast<double>(i)));
  std::vector<std::int32_t> classes(batch_size);
  for (std::size_t b = 0; b < batch_size; ++b) classes[b] = static_cast<std::int32_t>(b % 10);

  const pg::host exec{pg::threads{1}};
  const network net{exec, pg::layer_default{1}};
  typename network::tape tape{exec, pg::max_batch{batch_size}};
  const pg::batch<network, pg::cross_entropy> batch{images, classes};
  const auto g = pg::per_sample_gradients(net, pg::cross_entropy{}, batch, tape);

  // [snippet: methods]
  const auto by_gram = pg::with_method<pg::norm_method::gram>(g);  // everywhere
  const auto kept = pg::with_method<pg::norm_method::instantiate>(g);
  const auto in_registers = pg::with_method<pg::norm_method::direct>(g);
  const auto by_product =
      pg::with_method<pg::norm_method::product, 7, 9>(g);  // only entries 7 and 9 of describe's table
  // [snippet end]
  // [snippet: strategies]
  const auto naive = pg::with_strategy<pg::strategy::naive>(g);
  const auto multi = pg::with_strategy<pg::strategy::multi>(g);
  const auto crb = pg::with_strategy<pg::strategy::crb>(g);
  const auto ghost = pg::with_strategy<pg::strategy::ghost>(g);
  const auto book_keeping = pg::with_strategy<pg::strategy::book_keeping>(g);  // the default
  // [snippet end]
  std::vector<Scalar> expected;
  std::printf("\n%zu-bit numbers\n", 8 * sizeof(Scalar));
  bool right = compare("method: plan's choice", exec, g, expected, tolerance);
  right &= compare("method: instantiate", exec, kept, expected, tolerance);
  right &= compare("method: direct", exec, in_registers, expected, tolerance);
  right &= compare("method: gram", exec, by_gram, expected, tolerance);
  right &= compare("method: product, 7 and 9", exec, by_product, expected, tolerance);
  right &= compare("strategy: book_keeping", exec, book_keeping, expected, tolerance);
  right &= compare("strategy: naive", exec, naive, expected, tolerance);
  right &= compare("strategy: multi", exec, multi, expected, tolerance);
  right &= compare("strategy: crb", exec, crb, expected, tolerance);
  right &= compare("strategy: ghost", exec, ghost, expected, tolerance);
  return right;
}

int main() {
  std::printf("%s", pg::describe<cnn>().c_str());
  // Gram, direct and ghost sum over positions once more after the norm is known, so their clip factors make room for
  // that sum's rounding: (T + 2) times the rounding unit, with T = 196 here. That is the difference one sees.
  const bool in_float = compare_all<float>(2e-4);
  const bool in_double = compare_all<double>(1e-12);
  return in_float && in_double ? 0 : 1;
}
