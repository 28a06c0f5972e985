// SPDX-License-Identifier: Apache-2.0
// tests/layers/rnn_test.cpp - rnn with tanh and relu, with all its options, keeps every law
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <span>
#include <vector>

#include <pergrad/pergrad.hpp>

#include "laws.hpp"

BOOST_AUTO_TEST_SUITE(rnn_layer)

namespace {

using layer_tests::expect_no_violation;
using layer_tests::keeps_the_laws;
using layer_tests::keeps_the_laws_in_double;
using pergrad::basic_network;
using pergrad::bidirectional;
using pergrad::last_output;
using pergrad::layers;
using pergrad::linear;
using pergrad::mean_output;
using pergrad::no_bias;
using pergrad::one_bias;
using pergrad::relu_cell;
using pergrad::rnn;
using pergrad::shape;
using pergrad::variable;

/// What a network makes of records (and of their lengths), one output after the other.
template <class Network>
std::vector<double> outputs_of(const Network& net, const std::vector<double>& x,
                               const std::vector<std::uint32_t>& lengths) {
  const pergrad::host exec{pergrad::threads{1}};
  const std::size_t count = x.size() / Network::input_shape.size();
  typename Network::tape tape{exec, pergrad::max_batch{count}};
  const std::vector<double> dy(count * Network::output_shape.size());
  const pergrad::batch<Network, layer_tests::given_backprop> batch{
      std::span<const double>{x}, std::span<const double>{dy}, std::span<const std::uint32_t>{lengths}};
  return pergrad::unprotected::evaluate(
      exec, pergrad::outputs(pergrad::per_sample_gradients(net, layer_tests::given_backprop{}, batch, tape)));
}

}  // namespace

BOOST_AUTO_TEST_CASE(full_sequence) { keeps_the_laws<rnn<3>, shape{5, 2}>(); }
BOOST_AUTO_TEST_CASE(relu_last) { keeps_the_laws<rnn<4, relu_cell, last_output>, shape{6, 3}>(); }
#ifdef PERGRAD_LONG_TESTS
BOOST_AUTO_TEST_CASE(relu_full) { keeps_the_laws_in_double<rnn<3, relu_cell, one_bias>, shape{3, 2}>(); }
BOOST_AUTO_TEST_CASE(without_bias_mean) { keeps_the_laws_in_double<rnn<3, no_bias, mean_output>, shape{7, 2}>(); }
BOOST_AUTO_TEST_CASE(one_position) { keeps_the_laws_in_double<rnn<2>, shape{1, 3}>(); }
BOOST_AUTO_TEST_CASE(wider_than_a_vector) { keeps_the_laws_in_double<rnn<19, last_output>, shape{2, 3}>(); }
BOOST_AUTO_TEST_CASE(three_layers_both_ways_last) {
  keeps_the_laws_in_double<rnn<2, layers<3>, bidirectional, last_output>, shape{3, 2}>();
}
BOOST_AUTO_TEST_CASE(two_layers_relu_both_ways_mean) {
  keeps_the_laws_in_double<rnn<2, relu_cell, layers<2>, bidirectional, mean_output>, shape{3, 2}>();
}
#endif
BOOST_AUTO_TEST_CASE(lengths_of_their_own) {
  expect_no_violation(pergrad::testing::check_network<
                      basic_network<double, variable(shape{7, 2}), linear<2>, rnn<3, bidirectional, layers<2>>,
                                    pergrad::mean_over_positions, linear<2>>>());
  expect_no_violation(pergrad::testing::check_network<
                      basic_network<float, variable(shape{4, 2}), rnn<3, bidirectional, last_output>>>());
}

BOOST_AUTO_TEST_CASE(a_shorter_sample_is_a_shorter_sequence) {
  using longer = basic_network<double, variable(shape{6, 2}), rnn<3, layers<2>, bidirectional, last_output>>;
  using shorter = basic_network<double, shape{4, 2}, rnn<3, layers<2>, bidirectional, last_output>>;
  const pergrad::host exec{pergrad::threads{1}};
  const longer of_longer{exec, pergrad::uniform{5, -1, 1}};
  const shorter of_shorter{exec, pergrad::uniform{5, -1, 1}};
  std::vector<double> x(8);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::cos(static_cast<double>(3 * i));
  std::vector<double> padded(24, 1e300);  // a long neighbour, and numbers that nobody may see
  std::copy(x.begin(), x.end(), padded.begin());
  for (std::size_t i = 12; i < 24; ++i) padded[i] = std::sin(static_cast<double>(i));
  auto seen = outputs_of(of_longer, padded, {4, 6});
  seen.resize(6);
  BOOST_TEST(seen == outputs_of(of_shorter, x, {}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(by_hand) {
  using network = basic_network<double, shape{3, 1}, rnn<1, relu_cell, one_bias>>;
  network net{pergrad::host{pergrad::threads{1}}, pergrad::zeros{}};
  const std::vector<double> parameters{2, -3, 0.5};  // weight_ih, weight_hh, bias_ih
  std::copy(parameters.begin(), parameters.end(), net.parameters().begin());
  BOOST_TEST(outputs_of(net, {1, 4, 3}, {}) == (std::vector<double>{2.5, 1, 3.5}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(nothing_behind_a_length_exists) {
  layer_tests::keeps_the_law_of_lengths<basic_network<double, variable(shape{5, 2}), rnn<3>, rnn<2, last_output>>>();
}

BOOST_AUTO_TEST_SUITE_END()
