// SPDX-License-Identifier: Apache-2.0
// tests/layers/embedding_test.cpp - embedding: the laws, alone and in networks, tied, padded, with varying lengths
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

#include <pergrad/pergrad.hpp>

#include "laws.hpp"

BOOST_AUTO_TEST_SUITE(embedding_layer)

namespace {

namespace pg = pergrad;
using layer_tests::expect_no_violation;
using pg::embedding;
using pg::padding_idx;
using pg::token_ids;
using pg::variable;

template <class Network>
void network_keeps_the_laws() {
  expect_no_violation(pg::testing::check_network<Network>());
}

/// Two uses of one table, the second behind a function that is not linear.
template <class Layer>
using used_twice = pg::merge<pg::detail::branch_sum, pg::tied<1, Layer>, pg::sequential<pg::tied<1, Layer>, pg::tanh>>;

/// Ids 3, 0, 3 of a table whose rows are 0 1, 2 3, 4 5 and 6 7, with output gradients 1 2, 4 8 and 16 32.
template <class Embedding>
void looks_up(const std::vector<double>& gradient) {
  using network = pg::basic_network<double, token_ids(3, 4), Embedding, pg::flatten>;
  static_assert(network::parameter_count == 8);
  const pg::host exec{pg::threads{1}};
  network net{exec, pg::zeros{}};
  for (std::size_t i = 0; i < 8; ++i) net.parameters()[i] = static_cast<double>(i);
  typename network::tape tape{exec, pg::max_batch{1}};
  const std::vector<std::int32_t> ids{3, 0, 3};
  const std::vector<double> backprop{1, 2, 4, 8, 16, 32};
  const pg::batch<network, layer_tests::given_backprop> batch{ids, backprop};
  const auto g = pg::per_sample_gradients(net, layer_tests::given_backprop{}, batch, tape);
  const std::vector<double> output{6, 7, 0, 1, 6, 7};
  double squared = 0;
  for (const double value : gradient) squared += value * value;
  BOOST_TEST(pg::unprotected::evaluate(exec, pg::outputs(g)) == output, boost::test_tools::per_element());
  BOOST_TEST(pg::unprotected::evaluate(exec, pg::materialise(g)) == gradient, boost::test_tools::per_element());
  BOOST_TEST(pg::unprotected::evaluate(exec, pg::squared_l2_norms(g))[0] == squared);
}

}  // namespace

// 400 ids for 37 samples of 5: every sample has rows of its own, which the law of non-finite samples breaks.
BOOST_AUTO_TEST_CASE(laws) { layer_tests::keeps_the_laws<embedding<3>, token_ids(5, 400)>(); }
#ifdef PERGRAD_LONG_TESTS
BOOST_AUTO_TEST_CASE(repeated_ids_laws) { layer_tests::keeps_the_laws_in_double<embedding<2>, token_ids(6, 3)>(); }
BOOST_AUTO_TEST_CASE(padding_laws) {
  layer_tests::keeps_the_laws_in_double<embedding<2, padding_idx<1>>, token_ids(6, 3)>();
}
#endif
BOOST_AUTO_TEST_CASE(varying_lengths_laws) {
  network_keeps_the_laws<pg::basic_network<double, variable(token_ids(7, 90)), embedding<4>, pg::tanh, pg::linear<3>,
                                           pg::mean_over_positions, pg::linear<2>>>();
}
BOOST_AUTO_TEST_CASE(varying_lengths_and_padding_in_float_laws) {
  network_keeps_the_laws<
      pg::network<variable(token_ids(6, 200)), embedding<5, padding_idx<0>>, pg::mean_over_positions, pg::linear<2>>>();
}
BOOST_AUTO_TEST_CASE(tied_laws) {
  network_keeps_the_laws<
      pg::basic_network<double, token_ids(4, 30), used_twice<embedding<3>>, pg::flatten, pg::linear<3>>>();
}
BOOST_AUTO_TEST_CASE(frozen) {
  using network = pg::basic_network<double, token_ids(4, 9), pg::frozen<embedding<3>>, pg::flatten, pg::linear<2>>;
  static_assert(network::parameter_count == 26);
  static_assert(network::frozen_parameter_count == 27);
  network_keeps_the_laws<network>();
}

BOOST_AUTO_TEST_CASE(looks_rows_up) { looks_up<embedding<2>>({4, 8, 0, 0, 0, 0, 17, 34}); }
BOOST_AUTO_TEST_CASE(padding_is_read_but_has_no_gradient) {
  looks_up<embedding<2, padding_idx<3>>>({4, 8, 0, 0, 0, 0, 0, 0});
}

BOOST_AUTO_TEST_CASE(starts_as_in_pytorch) {
  using network = pg::basic_network<double, token_ids(3, 2000), embedding<8, padding_idx<5>>, pg::flatten>;
  const pg::host exec{pg::threads{1}};
  const network net{exec, pg::layer_default{7}};
  double sum = 0;
  double squares = 0;
  for (const double w : net.parameters()) {
    sum += w;
    squares += w * w;
  }
  const double count = 2000 * 8;
  BOOST_TEST(std::fabs(sum / count) < 4 / std::sqrt(count));
  BOOST_TEST(std::fabs(squares / count - 1) < 4 * std::sqrt(2 / count));
  for (std::size_t i = 0; i < 8; ++i) {
    BOOST_TEST(net.parameters()[5 * 8 + i] == 0);
    BOOST_TEST(net.parameters()[6 * 8 + i] != 0);
  }
}

BOOST_AUTO_TEST_CASE(ids_out_of_range_are_refused_before_anything_is_computed) {
  using network = pg::network<token_ids(3, 4), embedding<2>, pg::flatten, pg::linear<2>>;
  using batch = pg::batch<network, pg::cross_entropy>;
  const std::vector<std::int32_t> target{1};
  for (const std::int32_t wrong : {4, -1, std::numeric_limits<std::int32_t>::max()}) {
    const std::vector<std::int32_t> ids{0, wrong, 3};
    BOOST_CHECK_EXCEPTION((batch{ids, target}), std::out_of_range, [&](const std::out_of_range& error) {
      const std::string text = error.what();
      return text.find("id " + std::to_string(wrong)) != std::string::npos &&
             text.find("vocabulary of 4") != std::string::npos;
    });
  }
}

// A batch is a view of memory that may be filled anew between two evaluations.
BOOST_AUTO_TEST_CASE(what_a_batch_sees_is_looked_at_again_when_it_is_evaluated) {
  using network = pg::network<variable(token_ids(3, 4)), embedding<2>, pg::mean_over_positions, pg::linear<2>>;
  const pg::host exec{pg::threads{1}};
  const network net{exec, pg::layer_default{1}};
  network::tape tape{exec, pg::max_batch{2}};
  std::vector<std::int32_t> ids{0, 1, 3, 2, 2, 0};
  std::vector<std::int32_t> targets{1, 0};
  std::vector<std::uint32_t> lengths{3, 2};
  std::vector<std::uint32_t> drawn{0, 1};
  const pg::dataset<std::int32_t, std::int32_t> records{ids, targets, network::input_shape, 1, lengths};
  const pg::batch<network, pg::cross_entropy> listed{records, drawn};
  const pg::batch<network, pg::cross_entropy> whole{ids, targets, lengths};
  const auto evaluate = [&](const pg::batch<network, pg::cross_entropy>& batch) {
    std::vector<double> losses(2, -1.0);
    const auto g = pg::per_sample_gradients(net, pg::cross_entropy{}, batch, tape);
    try {
      pg::unprotected::evaluate_into(exec, pg::assign(losses, pg::losses(g)));
    } catch (...) {
      BOOST_TEST(losses == std::vector<double>(2, -1.0), boost::test_tools::per_element());
      throw;
    }
  };
  const auto refused = [&]<class Error, class Value>(Value& value, Value wrong, const Error*, bool by_both) {
    const Value before = std::exchange(value, wrong);
    BOOST_CHECK_THROW(evaluate(listed), Error);
    if (by_both) {
      BOOST_CHECK_THROW(evaluate(whole), Error);
    } else {
      BOOST_CHECK_NO_THROW(evaluate(whole));
    }
    value = before;
    BOOST_CHECK_NO_THROW(evaluate(listed));
  };
  refused(ids[5], 4, static_cast<const std::out_of_range*>(nullptr), true);
  refused(ids[3], -1, static_cast<const std::out_of_range*>(nullptr), true);
  refused(lengths[1], 4U, static_cast<const std::invalid_argument*>(nullptr), true);
  refused(lengths[0], 0U, static_cast<const std::invalid_argument*>(nullptr), true);
  refused(targets[1], 2, static_cast<const std::invalid_argument*>(nullptr), true);
  refused(drawn[1], 2U, static_cast<const std::out_of_range*>(nullptr), false);
}

BOOST_AUTO_TEST_CASE(nothing_behind_a_length_exists) {
  layer_tests::keeps_the_law_of_lengths<
      pg::basic_network<double, variable(token_ids(6, 9)), embedding<3>, pg::mean_over_positions>>();
}

BOOST_AUTO_TEST_SUITE_END()
