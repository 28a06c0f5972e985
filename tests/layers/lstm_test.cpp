// SPDX-License-Identifier: Apache-2.0
// tests/layers/lstm_test.cpp - lstm with all its options keeps every law, and agrees with its formula in long double
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <pergrad/pergrad.hpp>

#include "laws.hpp"

BOOST_AUTO_TEST_SUITE(lstm_layer)

namespace {

using layer_tests::expect_no_violation;
using layer_tests::keeps_the_laws;
using layer_tests::keeps_the_laws_in_double;
using pergrad::basic_network;
using pergrad::bidirectional;
using pergrad::last_output;
using pergrad::layers;
using pergrad::linear;
using pergrad::lstm;
using pergrad::mean_output;
using pergrad::no_bias;
using pergrad::one_bias;
using pergrad::sequential;
using pergrad::shape;
using pergrad::variable;

constexpr long double wide(double value) { return static_cast<long double>(value); }

/// Gradients of one sample by the formulas as they are written in textbooks: one number at a time, forward and then
/// backward. Parameters and gradients: weight_ih, weight_hh, bias_ih, bias_hh.
class textbook {
 public:
  textbook(std::size_t positions, std::size_t features, std::size_t hidden)
      : positions_{positions}, features_{features}, hidden_{hidden} {}

  /// y, and the gradient of sum(dy y).
  struct result {
    std::vector<long double> y;
    std::vector<long double> gradient;
  };
  [[nodiscard]] result compute(std::span<const double> parameters, std::span<const double> x,
                               std::span<const double> dy) const {
    const std::size_t rows = 4 * hidden_;
    const auto weight_ih = [&](std::size_t r, std::size_t k) { return r * features_ + k; };
    const auto weight_hh = [&](std::size_t r, std::size_t k) { return rows * features_ + r * hidden_ + k; };
    const std::size_t biases = rows * (features_ + hidden_);
    std::vector<long double> h((positions_ + 1) * hidden_);
    std::vector<long double> c((positions_ + 1) * hidden_);
    std::vector<long double> gates(positions_ * rows);
    for (std::size_t t = 0; t < positions_; ++t) {
      for (std::size_t r = 0; r < rows; ++r) {
        long double sum = wide(parameters[biases + r]) + wide(parameters[biases + rows + r]);
        for (std::size_t k = 0; k < features_; ++k) {
          sum += wide(parameters[weight_ih(r, k)]) * wide(x[t * features_ + k]);
        }
        for (std::size_t k = 0; k < hidden_; ++k) sum += wide(parameters[weight_hh(r, k)]) * h[t * hidden_ + k];
        gates[t * rows + r] = r / hidden_ == 2 ? std::tanh(sum) : 1 / (1 + std::exp(-sum));
      }
      for (std::size_t j = 0; j < hidden_; ++j) {
        const auto gate = [&](std::size_t which) { return gates[t * rows + which * hidden_ + j]; };
        c[(t + 1) * hidden_ + j] = gate(1) * c[t * hidden_ + j] + gate(0) * gate(2);
        h[(t + 1) * hidden_ + j] = gate(3) * std::tanh(c[(t + 1) * hidden_ + j]);
      }
    }
    result found;
    found.y.assign(h.begin() + static_cast<std::ptrdiff_t>(hidden_), h.end());
    found.gradient.resize(biases + 2 * rows);
    std::vector<long double> dh(hidden_);
    std::vector<long double> dc(hidden_);
    for (std::size_t t = positions_; t-- > 0;) {
      std::vector<long double> delta(rows);
      for (std::size_t j = 0; j < hidden_; ++j) {
        const auto gate = [&](std::size_t which) { return gates[t * rows + which * hidden_ + j]; };
        const long double squashed = std::tanh(c[(t + 1) * hidden_ + j]);
        const long double all = dh[j] + wide(dy[t * hidden_ + j]);
        dc[j] += all * gate(3) * (1 - squashed * squashed);
        delta[j] = dc[j] * gate(2) * gate(0) * (1 - gate(0));
        delta[hidden_ + j] = dc[j] * c[t * hidden_ + j] * gate(1) * (1 - gate(1));
        delta[2 * hidden_ + j] = dc[j] * gate(0) * (1 - gate(2) * gate(2));
        delta[3 * hidden_ + j] = all * squashed * gate(3) * (1 - gate(3));
        dc[j] *= gate(1);
      }
      for (long double& value : dh) value = 0;
      for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t k = 0; k < features_; ++k) {
          found.gradient[weight_ih(r, k)] += delta[r] * wide(x[t * features_ + k]);
        }
        for (std::size_t k = 0; k < hidden_; ++k) {
          found.gradient[weight_hh(r, k)] += delta[r] * h[t * hidden_ + k];
          dh[k] += delta[r] * wide(parameters[weight_hh(r, k)]);
        }
        found.gradient[biases + r] += delta[r];
        found.gradient[biases + rows + r] += delta[r];
      }
    }
    return found;
  }

 private:
  std::size_t positions_;
  std::size_t features_;
  std::size_t hidden_;
};

/// Numbers in [-1, 1) from a seed.
std::vector<double> numbers(std::uint64_t seed, std::size_t count) {
  std::vector<double> result(count);
  for (std::size_t i = 0; i < count; ++i) result[i] = 2 * pergrad::detail::public_uniform(seed, i) - 1;
  return result;
}
void expect_close(std::span<const double> computed, std::span<const long double> expected) {
  BOOST_REQUIRE(computed.size() == expected.size());
  for (std::size_t i = 0; i < computed.size(); ++i) {
    BOOST_TEST_CONTEXT("number " << i) { BOOST_TEST(std::fabs(wide(computed[i]) - expected[i]) <= 1e-13L); }
  }
}

template <std::size_t Positions, std::size_t Features, std::size_t Hidden, std::size_t Samples>
void agrees_with_the_textbook() {
  using network = basic_network<double, shape{Positions, Features}, lstm<Hidden>>;
  const pergrad::host exec{pergrad::threads{2}};
  const network net{exec, pergrad::uniform{7, -1, 1}};
  typename network::tape tape{exec, pergrad::max_batch{Samples}};
  const std::vector<double> x = numbers(8, Samples * Positions * Features);
  const std::vector<double> dy = numbers(9, Samples * Positions * Hidden);
  const pergrad::batch<network, layer_tests::given_backprop> batch{std::span<const double>{x},
                                                                   std::span<const double>{dy}};
  const auto gradients = pergrad::per_sample_gradients(net, layer_tests::given_backprop{}, batch, tape);
  const std::vector<double> outputs = pergrad::unprotected::evaluate(exec, pergrad::outputs(gradients));
  const std::vector<double> rows = pergrad::unprotected::evaluate(exec, pergrad::materialise(gradients));
  const textbook book{Positions, Features, Hidden};
  for (std::size_t b = 0; b < Samples; ++b) {
    const auto part = [b](const std::vector<double>& values) {
      return std::span{values}.subspan(b * values.size() / Samples, values.size() / Samples);
    };
    const textbook::result expected = book.compute(net.parameters(), part(x), part(dy));
    expect_close(part(outputs), expected.y);
    expect_close(part(rows), expected.gradient);
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(agrees_with_its_formula) { agrees_with_the_textbook<5, 3, 4, 21>(); }
BOOST_AUTO_TEST_CASE(agrees_with_its_formula_over_many_stretches) { agrees_with_the_textbook<37, 2, 19, 3>(); }

BOOST_AUTO_TEST_CASE(full_sequence) { keeps_the_laws<lstm<3>, shape{5, 2}>(); }
#ifdef PERGRAD_LONG_TESTS
BOOST_AUTO_TEST_CASE(keras) { keeps_the_laws_in_double<lstm<3, one_bias, mean_output>, shape{4, 2}>(); }
BOOST_AUTO_TEST_CASE(without_bias) { keeps_the_laws_in_double<lstm<2, no_bias, last_output>, shape{7, 3}>(); }
BOOST_AUTO_TEST_CASE(one_position) { keeps_the_laws_in_double<lstm<2>, shape{1, 3}>(); }
BOOST_AUTO_TEST_CASE(two_layers_both_ways) {
  keeps_the_laws_in_double<lstm<2, layers<2>, bidirectional>, shape{3, 2}>();
}
BOOST_AUTO_TEST_CASE(both_ways_last) { keeps_the_laws_in_double<lstm<2, bidirectional, last_output>, shape{4, 2}>(); }
#endif
BOOST_AUTO_TEST_CASE(lengths_of_their_own) {
  expect_no_violation(
      pergrad::testing::check_network<
          basic_network<double, variable(shape{5, 2}), linear<3>, lstm<2, bidirectional, last_output>, linear<2>>>());
  expect_no_violation(pergrad::testing::check_network<
                      basic_network<float, variable(shape{5, 2}), linear<3>, lstm<3>, lstm<2, mean_output>>>());
}

BOOST_AUTO_TEST_CASE(parameters_start_as_in_pytorch) {
  using network = pergrad::network<shape{3, 7}, lstm<4, layers<2>>>;
  static_assert(network::parameter_count == 16 * (7 + 4 + 2) + 16 * (4 + 4 + 2));
  const network net{pergrad::host{pergrad::threads{1}}, pergrad::layer_default{3}};
  float most = 0;
  for (const float value : net.parameters()) most = std::max(most, std::fabs(value));
  BOOST_TEST(most <= 0.5F);
  BOOST_TEST(most > 0.49F);
}

BOOST_AUTO_TEST_CASE(nothing_behind_a_length_exists) {
  layer_tests::keeps_the_law_of_lengths<basic_network<double, variable(shape{5, 2}), lstm<3>, lstm<2, last_output>>>();
}
BOOST_AUTO_TEST_CASE(nothing_behind_a_length_exists_both_ways) {
  layer_tests::keeps_the_law_of_lengths<
      basic_network<double, variable(shape{5, 2}), lstm<2, bidirectional>, lstm<2, bidirectional, last_output>>>();
  layer_tests::keeps_the_law_of_lengths<
      basic_network<float, variable(shape{5, 2}), lstm<2, layers<2>, bidirectional, mean_output>>>();
}

BOOST_AUTO_TEST_SUITE_END()
