// SPDX-License-Identifier: Apache-2.0
// tests/layers/embedding_bag_test.cpp - embedding_bag: the laws, its divisor, bags of nothing but padding
#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

#include "laws.hpp"

BOOST_AUTO_TEST_SUITE(embedding_bag_layer)

namespace {

namespace pg = pergrad;
using pg::bag_sum;
using pg::embedding_bag;
using pg::padding_idx;
using pg::token_ids;
using pg::variable;

template <class Network>
void network_keeps_the_laws() {
  layer_tests::expect_no_violation(pg::testing::check_network<Network>());
}

/// Gradient and output of one bag with the table 0, 1, 2, ... and dy = 12, 24.
template <class Bag, pg::shape Input>
layer_tests::response respond(const std::vector<std::int32_t>& ids, std::uint32_t length = 0) {
  using network = pg::basic_network<double, Input, Bag>;
  const pg::host exec{pg::threads{1}};
  network net{exec, pg::zeros{}};
  for (std::size_t i = 0; i < network::parameter_count; ++i) net.parameters()[i] = static_cast<double>(i);
  typename network::tape tape{exec, pg::max_batch{1}};
  const std::vector<double> dy{12, 24};
  const std::vector<std::uint32_t> lengths(Input.varying_axis() != 0 ? 1 : 0, length);
  const pg::batch<network, layer_tests::given_backprop> batch{ids, dy, lengths};
  const auto g = pg::per_sample_gradients(net, layer_tests::given_backprop{}, batch, tape);
  return {pg::unprotected::evaluate(exec, pg::outputs(g)), pg::unprotected::evaluate(exec, pg::materialise(g))};
}

void equal(const std::vector<double>& computed, const std::vector<double>& expected) {
  BOOST_TEST(computed == expected, boost::test_tools::per_element());
}

}  // namespace

BOOST_AUTO_TEST_CASE(mean_laws) { layer_tests::keeps_the_laws<embedding_bag<3>, token_ids(5, 400)>(); }
#ifdef PERGRAD_LONG_TESTS
BOOST_AUTO_TEST_CASE(sum_with_repeated_ids_and_padding_laws) {
  layer_tests::keeps_the_laws_in_double<embedding_bag<37, bag_sum, padding_idx<1>>, token_ids(6, 3)>();
}
#endif
BOOST_AUTO_TEST_CASE(varying_lengths_and_padding_laws) {
  network_keeps_the_laws<pg::basic_network<double, variable(token_ids(7, 90)), embedding_bag<4, padding_idx<0>>,
                                           pg::tanh, pg::linear<2>>>();
}
BOOST_AUTO_TEST_CASE(tied_laws) {
  using twice = pg::merge<pg::detail::branch_sum, pg::tied<1, embedding_bag<3>>,
                          pg::sequential<pg::tied<1, embedding_bag<3>>, pg::tanh>>;
  network_keeps_the_laws<pg::basic_network<double, token_ids(4, 30), twice, pg::linear<3>>>();
}

BOOST_AUTO_TEST_CASE(mean) {
  const auto seen = respond<embedding_bag<2>, token_ids(4, 3)>({2, 0, 2, 2});
  equal(seen.output, {3, 4});
  equal(seen.input_gradient, {3, 6, 0, 0, 9, 18});
}
BOOST_AUTO_TEST_CASE(sum) {
  const auto seen = respond<embedding_bag<2, bag_sum>, token_ids(4, 3)>({2, 0, 2, 2});
  equal(seen.output, {12, 16});
  equal(seen.input_gradient, {12, 24, 0, 0, 36, 72});
}
BOOST_AUTO_TEST_CASE(padding_counts_for_nothing) {
  const auto seen = respond<embedding_bag<2, padding_idx<2>>, token_ids(4, 3)>({2, 0, 1, 2});
  equal(seen.output, {1, 2});
  equal(seen.input_gradient, {6, 12, 6, 12, 0, 0});
}
BOOST_AUTO_TEST_CASE(a_bag_of_padding_is_zero) {
  const auto seen = respond<embedding_bag<2, padding_idx<2>>, token_ids(4, 3)>({2, 2, 2, 2});
  equal(seen.output, {0, 0});
  equal(seen.input_gradient, {0, 0, 0, 0, 0, 0});
}
BOOST_AUTO_TEST_CASE(a_length_ends_the_bag) {
  const auto seen = respond<embedding_bag<2>, variable(token_ids(4, 3))>({2, 0, 1, 1}, 2);
  equal(seen.output, {2, 3});
  equal(seen.input_gradient, {6, 12, 0, 0, 6, 12});
}

BOOST_AUTO_TEST_CASE(nothing_behind_a_length_exists) {
  layer_tests::keeps_the_law_of_lengths<pg::basic_network<double, variable(token_ids(6, 9)), embedding_bag<3>>>();
  layer_tests::keeps_the_law_of_lengths<
      pg::network<variable(token_ids(6, 9)), embedding_bag<3, bag_sum, padding_idx<0>>>>();
}

BOOST_AUTO_TEST_SUITE_END()
