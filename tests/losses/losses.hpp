// SPDX-License-Identifier: Apache-2.0
// tests/losses/losses.hpp - what the tests of all losses share
#pragma once

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace loss_tests {

template <class Scalar>
struct evaluation {
  double loss = 0;
  std::vector<Scalar> gradient;
};
template <class Loss, class Scalar, class Target>
[[nodiscard]] evaluation<Scalar> evaluate(const std::vector<Scalar>& y, const std::vector<Target>& targets) {
  evaluation<Scalar> result;
  result.gradient.assign(y.size(), Scalar{77});
  result.loss = Loss::template evaluate<Scalar>(std::span<const Scalar>{y}, std::span<const Target>{targets},
                                                std::span<Scalar>{result.gradient});
  return result;
}

/// |computed - expected| <= tolerance max(1, |expected|)
inline void close(double computed, long double expected, long double tolerance) {
  const long double error = std::fabs(static_cast<long double>(computed) - expected);
  BOOST_TEST(error <= tolerance * std::max(1.0L, std::fabs(expected)),
             computed << " is not " << static_cast<double>(expected) << ", error " << static_cast<double>(error));
}

/// Central differences of the loss itself.
template <class Loss, class Target>
void gradient_is_the_derivative(const std::vector<double>& y, const std::vector<Target>& targets) {
  const auto at = evaluate<Loss>(y, targets);
  constexpr double step = 1e-5;
  for (std::size_t i = 0; i < y.size(); ++i) {
    auto high = y;
    auto low = y;
    high[i] += step;
    low[i] -= step;
    const double slope = (evaluate<Loss>(high, targets).loss - evaluate<Loss>(low, targets).loss) / (high[i] - low[i]);
    close(at.gradient[i], static_cast<long double>(slope), 1e-9L);
  }
}

/// A network that passes its input on: weight 1, bias 0.
template <class Scalar, std::size_t Size>
using output_of = pergrad::basic_network<Scalar, pergrad::shape{Size}, pergrad::linear<Size>>;

/// The message with which a batch refuses these targets; fails the test if it does not.
template <class Loss, std::size_t Size, class Target>
[[nodiscard]] std::string refusal(const std::vector<Target>& targets, std::size_t samples) {
  const std::vector<double> inputs(samples * Size);
  try {
    const pergrad::batch<output_of<double, Size>, Loss> batch{std::span<const double>{inputs},
                                                              std::span<const Target>{targets}};
    BOOST_ERROR("a batch of " << batch.size() << " was not refused");
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return {};
}

/// losses(g) is one number a sample, the one that the loss gives for the network's output.
template <class Loss, std::size_t Size, class Target>
void one_number_a_sample(const std::vector<double>& inputs, const std::vector<Target>& targets) {
  using network = output_of<double, Size>;
  const std::size_t samples = inputs.size() / Size;
  const pergrad::host exec{pergrad::threads{2}};
  network net{exec, pergrad::zeros{}};
  for (std::size_t i = 0; i < Size; ++i) net.parameters()[i * Size + i] = 1;
  typename network::tape tape{exec, pergrad::max_batch{samples}};
  const pergrad::batch<network, Loss> batch{std::span<const double>{inputs}, std::span<const Target>{targets}};
  const auto losses =
      pergrad::unprotected::evaluate(exec, pergrad::losses(pergrad::per_sample_gradients(net, Loss{}, batch, tape)));
  BOOST_REQUIRE(losses.size() == samples);
  const std::size_t each = targets.size() / samples;
  for (std::size_t b = 0; b < samples; ++b) {
    const auto first = static_cast<std::ptrdiff_t>(b);
    const auto size = static_cast<std::ptrdiff_t>(Size);
    const auto count = static_cast<std::ptrdiff_t>(each);
    const std::vector<double> y(inputs.begin() + first * size, inputs.begin() + (first + 1) * size);
    const std::vector<Target> t(targets.begin() + first * count, targets.begin() + (first + 1) * count);
    BOOST_TEST(losses[b] == evaluate<Loss>(y, t).loss);
  }
}

}  // namespace loss_tests
