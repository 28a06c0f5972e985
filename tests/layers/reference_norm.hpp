// SPDX-License-Identifier: Apache-2.0
// tests/layers/reference_norm.hpp - normalising layers as their formulas stand, in long double and in PyTorch's order
#pragma once

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <pergrad/pergrad.hpp>

#include "laws.hpp"

namespace layer_tests {

using precise = std::vector<long double>;

/// Which values are normalised together (`set_of`) and which parameter scales each (`parameter_of`), for every element.
struct norm_structure {
  std::vector<std::size_t> set_of;
  std::vector<std::size_t> parameter_of;
  bool centred = true;
  bool normalised = true;  ///< else only the gain and the shift
  long double epsilon = 1e-5L;
};

/// The last `axes` axes of `extents`.
[[nodiscard]] inline norm_structure rows_of(std::size_t size, std::size_t row) {
  norm_structure result;
  for (std::size_t i = 0; i < size; ++i) {
    result.set_of.push_back(i / row);
    result.parameter_of.push_back(i % row);
  }
  return result;
}
/// `groups` groups of the first axis.
[[nodiscard]] inline norm_structure groups_of(std::size_t channels, std::size_t pixels, std::size_t groups) {
  norm_structure result;
  for (std::size_t i = 0; i < channels * pixels; ++i) {
    result.set_of.push_back(i / pixels / (channels / groups));
    result.parameter_of.push_back(i / pixels);
  }
  return result;
}

struct norm_result {
  precise y;
  precise dx;
  precise gain;
  precise shift;
};

/// By the formulas at the head of layers/shared/normalisation.hpp.
[[nodiscard]] inline norm_result reference(const norm_structure& structure, const precise& x, const precise& gain,
                                           const precise& shift, const precise& dy) {
  const std::size_t size = x.size();
  const std::size_t sets = 1 + *std::max_element(structure.set_of.begin(), structure.set_of.end());
  const std::size_t parameters = 1 + *std::max_element(structure.parameter_of.begin(), structure.parameter_of.end());
  norm_result result{x, x, precise(parameters), precise(parameters)};
  for (std::size_t set = 0; set < sets; ++set) {
    std::vector<std::size_t> members;
    for (std::size_t i = 0; i < size; ++i) {
      if (structure.set_of[i] == set) members.push_back(i);
    }
    const auto count = static_cast<long double>(members.size());
    long double mean = 0;
    long double variance = 0;
    for (const std::size_t i : members) mean += structure.centred ? x[i] / count : 0;
    for (const std::size_t i : members) variance += (x[i] - mean) * (x[i] - mean) / count;
    const long double rate = structure.normalised ? 1 / std::sqrt(variance + structure.epsilon) : 1;
    if (!structure.normalised) mean = 0;
    long double slope = 0;
    long double projection = 0;
    for (const std::size_t i : members) {
      const long double weighted = dy[i] * gain[structure.parameter_of[i]];
      slope += structure.centred ? weighted / count : 0;
      projection += weighted * (x[i] - mean) * rate / count;
    }
    for (const std::size_t i : members) {
      const std::size_t k = structure.parameter_of[i];
      const long double xhat = (x[i] - mean) * rate;
      result.y[i] = xhat * gain[k] + shift[k];
      result.dx[i] = structure.normalised ? rate * (dy[i] * gain[k] - slope - xhat * projection) : dy[i] * gain[k];
      result.gain[k] += dy[i] * xhat;
      result.shift[k] += dy[i];
    }
  }
  return result;
}

template <class Scalar>
void expect_close(const std::string& what, std::span<const Scalar> actual, const precise& expected,
                  long double tolerance) {
  BOOST_REQUIRE_EQUAL(actual.size(), expected.size());
  long double largest = 0;
  for (const long double value : expected) largest = std::max(largest, std::fabs(value));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const long double error = std::fabs(static_cast<long double>(actual[i]) - expected[i]);
    BOOST_TEST_INFO(what << ", element " << i << ": " << actual[i] << ", expected " << expected[i]);
    BOOST_CHECK(error <= tolerance * largest);
  }
}

/// Compares output, input gradient and parameter gradients of several samples with the formulas. The inputs have a mean
/// of `offset` and deviate by about `deviation`.
template <class Scalar, class Layer, pergrad::shape Input>
void agrees_with_the_formulas(const norm_structure& structure, std::size_t parameter_blocks, long double tolerance,
                              double offset = 0.3, double deviation = 1) {
  using network = pergrad::basic_network<Scalar, Input, element_bias, Layer>;
  constexpr std::size_t size = Input.size();
  constexpr std::size_t samples = 19;
  const std::size_t block = 1 + *std::max_element(structure.parameter_of.begin(), structure.parameter_of.end());
  BOOST_REQUIRE_EQUAL(network::parameter_count, size + parameter_blocks * block);

  const pergrad::host exec{pergrad::threads{1}};
  network net{exec, pergrad::uniform{5, -2, 2}};
  const std::span<Scalar> parameters = net.parameters();
  std::fill_n(parameters.begin(), size, Scalar{0});
  std::vector<Scalar> x(samples * size);
  std::vector<Scalar> dy(samples * size);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<Scalar>(offset + deviation * (2 * pergrad::detail::public_uniform(11, i) - 1));
    dy[i] = static_cast<Scalar>(2 * pergrad::detail::public_uniform(12, i) - 1);
  }
  typename network::tape tape{exec, pergrad::max_batch{samples}};
  const pergrad::batch<network, given_backprop> batch{std::span<const Scalar>{x}, std::span<const Scalar>{dy}};
  const auto gradients = pergrad::per_sample_gradients(net, given_backprop{}, batch, tape);
  const auto outputs = pergrad::unprotected::evaluate(exec, pergrad::outputs(gradients));
  const auto rows = pergrad::unprotected::evaluate(exec, pergrad::materialise(gradients));

  precise gain(block, 1);
  precise shift(block, 0);
  for (std::size_t k = 0; k < block; ++k) {
    if (parameter_blocks > 0) gain[k] = static_cast<long double>(parameters[size + k]);
    if (parameter_blocks > 1) shift[k] = static_cast<long double>(parameters[size + block + k]);
  }
  for (std::size_t b = 0; b < samples; ++b) {
    const auto part = [&](const auto& all, std::size_t width, std::size_t first, std::size_t count) {
      return std::span<const Scalar>{all}.subspan(b * width + first, count);
    };
    const auto of = [&](const std::vector<Scalar>& all) {
      const auto here = part(all, size, 0, size);
      precise values;
      for (const Scalar value : here) values.push_back(static_cast<long double>(value));
      return values;
    };
    const norm_result expected = reference(structure, of(x), gain, shift, of(dy));
    const std::size_t width = network::parameter_count;
    const std::string sample = "sample " + std::to_string(b);
    expect_close(sample + ", y", part(outputs, size, 0, size), expected.y, tolerance);
    expect_close(sample + ", dx", part(rows, width, 0, size), expected.dx, tolerance);
    if (parameter_blocks > 0) expect_close(sample + ", gain", part(rows, width, size, block), expected.gain, tolerance);
    if (parameter_blocks > 1) {
      expect_close(sample + ", shift", part(rows, width, size + block, block), expected.shift, tolerance);
    }
  }
}

}  // namespace layer_tests
