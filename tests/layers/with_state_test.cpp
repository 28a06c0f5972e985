// SPDX-License-Identifier: Apache-2.0
// tests/layers/with_state_test.cpp - recurrent layers from a given state keep every law; halves of a sequence add up
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include <pergrad/pergrad.hpp>

#include "laws.hpp"

BOOST_AUTO_TEST_SUITE(with_state_layer)

namespace {

using layer_tests::expect_no_violation;
using pergrad::basic_network;
using pergrad::bidirectional;
using pergrad::gru;
using pergrad::last_output;
using pergrad::layers;
using pergrad::linear;
using pergrad::lstm;
using pergrad::mean_output;
using pergrad::rnn;
using pergrad::select_last;
using pergrad::sequence;
using pergrad::shape;
using pergrad::state;
using pergrad::take_positions;
using pergrad::variable;
using pergrad::with_state;

template <class... Layers>
void keeps_the_laws_behind(Layers...) {
  expect_no_violation(
      pergrad::testing::check_network<basic_network<double, shape{4, 3}, Layers..., pergrad::flatten, linear<2>>>());
}

template <class Network>
std::vector<double> outputs_of(const Network& net, const std::vector<double>& x) {
  const pergrad::host exec{pergrad::threads{1}};
  typename Network::tape tape{exec, pergrad::max_batch{1}};
  const std::vector<double> dy(Network::output_shape.size());
  const pergrad::batch<Network, layer_tests::given_backprop> batch{std::span<const double>{x},
                                                                   std::span<const double>{dy}};
  return pergrad::unprotected::evaluate(
      exec, pergrad::outputs(pergrad::per_sample_gradients(net, layer_tests::given_backprop{}, batch, tape)));
}

}  // namespace

BOOST_AUTO_TEST_CASE(rnn_from_a_computed_state) {
  keeps_the_laws_behind(linear<3>{}, with_state<rnn<2>, sequence<>, state<select_last, linear<2>>>{});
}
BOOST_AUTO_TEST_CASE(gru_from_the_first_position) {
  keeps_the_laws_behind(
      linear<3>{},
      with_state<gru<3, mean_output>, sequence<take_positions<1, 3>>, state<take_positions<0, 1>, pergrad::flatten>>{});
}
BOOST_AUTO_TEST_CASE(lstm_from_the_last_position) {
  keeps_the_laws_behind(
      with_state<lstm<2, last_output>, sequence<linear<2>>, state<select_last, linear<4>, pergrad::tanh>>{});
}
BOOST_AUTO_TEST_CASE(lstm_on_lengths_backwards) {
  expect_no_violation(
      pergrad::testing::check_network<basic_network<
          double, variable(shape{5, 2}), linear<2>,
          with_state<lstm<2, bidirectional, last_output>, sequence<>, state<select_last, linear<8>>>, linear<2>>>());
}
BOOST_AUTO_TEST_CASE(two_layers_both_ways) {
  keeps_the_laws_behind(with_state<lstm<2, layers<2>, bidirectional>, sequence<>, state<select_last, linear<16>>>{});
}
BOOST_AUTO_TEST_CASE(two_layers_mean) {
  keeps_the_laws_behind(
      with_state<gru<2, layers<2>, mean_output>, sequence<linear<2>>, state<select_last, linear<4>>>{});
}

BOOST_AUTO_TEST_CASE(starts_from_h_and_then_c) {
  using network = basic_network<double, shape{3, 2},
                                with_state<lstm<1, pergrad::no_bias>, sequence<take_positions<0, 2>>,
                                           state<take_positions<2, 1>, pergrad::flatten>>>;
  const network net{pergrad::host{pergrad::threads{1}}, pergrad::uniform{3, -2, 2}};
  const std::vector<double> x{0.5, -0.25, 1.5, 0.75, 0.875, -1.25};  // two positions, h, c
  const auto y = outputs_of(net, x);
  BOOST_REQUIRE(y.size() == 2U);
  const auto p = net.parameters();
  double h = x[4];
  double c = x[5];
  for (std::size_t t = 0; t < 2; ++t) {
    const auto gate = [&](std::size_t r) { return p[2 * r] * x[2 * t] + p[2 * r + 1] * x[2 * t + 1] + p[8 + r] * h; };
    const auto logistic = [](double value) { return 1 / (1 + std::exp(-value)); };
    const double out = logistic(gate(3));
    c = logistic(gate(1)) * c + logistic(gate(0)) * std::tanh(gate(2));
    h = out * std::tanh(c);
    BOOST_TEST(std::fabs(y[t] - h) < 1e-15);
  }
}

BOOST_AUTO_TEST_CASE(states_of_layers_and_directions_are_ordered_as_in_pytorch) {
  // Without weights, c halves at every step (sigmoid(0) = 1/2): the last h tells which c a layer started from.
  using network = basic_network<double, shape{1, 16},
                                with_state<lstm<2, layers<2>, bidirectional>, sequence<>, state<pergrad::flatten>>>;
  const network net{pergrad::host{pergrad::threads{1}}, pergrad::zeros{}};
  std::vector<double> x(16);
  for (std::size_t i = 0; i < 16; ++i) x[i] = 0.1 * static_cast<double>(i);
  const auto y = outputs_of(net, x);
  BOOST_REQUIRE(y.size() == 4U);
  for (std::size_t k = 0; k < 4; ++k) BOOST_TEST(std::fabs(y[k] - 0.5 * std::tanh(0.5 * x[12 + k])) < 1e-15);
}

BOOST_AUTO_TEST_SUITE_END()
