// SPDX-License-Identifier: Apache-2.0
// tests/layers/gru_test.cpp - gru with all its options keeps every law, and gives PyTorch's form of it
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <span>
#include <vector>

#include <pergrad/pergrad.hpp>

#include "laws.hpp"

BOOST_AUTO_TEST_SUITE(gru_layer)

namespace {

using layer_tests::expect_no_violation;
using layer_tests::keeps_the_laws;
using layer_tests::keeps_the_laws_in_double;
using pergrad::basic_network;
using pergrad::bidirectional;
using pergrad::gru;
using pergrad::last_output;
using pergrad::layers;
using pergrad::linear;
using pergrad::mean_output;
using pergrad::no_bias;
using pergrad::one_bias;
using pergrad::shape;
using pergrad::variable;

}  // namespace

BOOST_AUTO_TEST_CASE(full_sequence) { keeps_the_laws<gru<3>, shape{5, 2}>(); }
#ifdef PERGRAD_LONG_TESTS
BOOST_AUTO_TEST_CASE(keras) { keeps_the_laws_in_double<gru<3, one_bias, mean_output>, shape{4, 2}>(); }
BOOST_AUTO_TEST_CASE(without_bias_last) { keeps_the_laws_in_double<gru<2, no_bias, last_output>, shape{7, 3}>(); }
BOOST_AUTO_TEST_CASE(one_position) { keeps_the_laws_in_double<gru<2>, shape{1, 3}>(); }
BOOST_AUTO_TEST_CASE(wider_than_a_vector) { keeps_the_laws_in_double<gru<11, last_output>, shape{2, 3}>(); }
BOOST_AUTO_TEST_CASE(two_layers_both_ways) {
  keeps_the_laws_in_double<gru<2, layers<2>, bidirectional, one_bias>, shape{3, 2}>();
}
BOOST_AUTO_TEST_CASE(both_ways_last) { keeps_the_laws_in_double<gru<2, bidirectional, last_output>, shape{4, 2}>(); }
#endif
BOOST_AUTO_TEST_CASE(lengths_of_their_own) {
  expect_no_violation(
      pergrad::testing::check_network<
          basic_network<double, variable(shape{5, 2}), linear<3>, gru<2, bidirectional, last_output>, linear<2>>>());
  expect_no_violation(pergrad::testing::check_network<
                      basic_network<float, variable(shape{5, 2}), linear<3>, gru<3>, gru<2, mean_output>>>());
}

BOOST_AUTO_TEST_CASE(by_hand) {
  using network = basic_network<double, shape{2, 1}, gru<1>>;
  const pergrad::host exec{pergrad::threads{1}};
  network net{exec, pergrad::zeros{}};
  const std::vector<double> p{0.3, -0.4, 0.7, 1.1, -0.2, 0.9, 0.05, 0.15, -0.25, 0.35, -0.45, 0.55};
  std::copy(p.begin(), p.end(), net.parameters().begin());
  network::tape tape{exec, pergrad::max_batch{1}};
  const std::vector<double> x{0.8, -1.3};
  const std::vector<double> dy{0, 0};
  const pergrad::batch<network, layer_tests::given_backprop> batch{std::span<const double>{x},
                                                                   std::span<const double>{dy}};
  const auto y = pergrad::unprotected::evaluate(
      exec, pergrad::outputs(pergrad::per_sample_gradients(net, layer_tests::given_backprop{}, batch, tape)));
  double h = 0;
  for (std::size_t t = 0; t < 2; ++t) {
    const auto from_x = [&](std::size_t gate) { return p[gate] * x[t] + p[6 + gate]; };
    const auto from_h = [&](std::size_t gate) { return p[3 + gate] * h + p[9 + gate]; };
    const double reset = 1 / (1 + std::exp(-from_x(0) - from_h(0)));
    const double update = 1 / (1 + std::exp(-from_x(1) - from_h(1)));
    h = (1 - update) * std::tanh(from_x(2) + reset * from_h(2)) + update * h;
    BOOST_TEST(std::fabs(y[t] - h) < 1e-15);
  }
}

BOOST_AUTO_TEST_CASE(nothing_behind_a_length_exists) {
  layer_tests::keeps_the_law_of_lengths<basic_network<double, variable(shape{5, 2}), gru<3>, gru<2, last_output>>>();
}

BOOST_AUTO_TEST_SUITE_END()
