// SPDX-License-Identifier: Apache-2.0
// tests/layers/scaled_dot_product_attention_test.cpp - the laws; between two linear layers it is multi-head attention,
// also in its gradients; with adapters it starts as what it adapts
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <ratio>
#include <span>
#include <vector>

#include <pergrad/layers/scaled_dot_product_attention.hpp>
#include <pergrad/pergrad.hpp>

#include "laws.hpp"

BOOST_AUTO_TEST_SUITE(scaled_dot_product_attention_layer)

namespace {

namespace pg = pergrad;
using layer_tests::keeps_the_laws_in_double;
using pg::causal;
using pg::linear;
using pg::multihead_attention;
using pg::scaled_dot_product_attention;
using pg::sequential;
using pg::shape;
using pg::variable;

struct results {
  std::vector<double> outputs, rows;
};
/// Of three samples of 1, 5 and 3 positions.
template <class Network>
results results_of(std::span<const double> values) {
  const pg::host exec{pg::threads{1}};
  Network net{exec, pg::layer_default{2}};
  BOOST_TEST_REQUIRE(net.parameters().size() == values.size());
  std::ranges::copy(values, net.parameters().begin());
  std::vector<double> inputs(3 * Network::input_shape.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i] = std::sin(static_cast<double>(i * i));
  const std::vector<std::int32_t> classes{0, 1, 1};
  const std::vector<std::uint32_t> lengths{1, 5, 3};
  const pg::batch<Network, pg::cross_entropy> batch{inputs, classes, lengths};
  typename Network::tape tape{exec, pg::max_batch{3}};
  const auto g = pg::per_sample_gradients(net, pg::cross_entropy{}, batch, tape);
  return {pg::unprotected::evaluate(exec, pg::outputs(g)), pg::unprotected::evaluate(exec, pg::materialise(g))};
}
double difference(const std::vector<double>& a, const std::vector<double>& b) {
  BOOST_TEST_REQUIRE(a.size() == b.size());
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::fabs(a[i] - b[i]));
  return worst;
}

/// A trained layer in front, so that the gradient passes through.
template <class... Attention>
using classifier =
    pg::basic_network<double, variable(shape{5, 6}), linear<6>, Attention..., pg::mean_over_positions, linear<2>>;

template <class... Options>
void is_multihead_attention() {
  using whole = classifier<multihead_attention<3, Options...>>;
  using parts = classifier<linear<18>, scaled_dot_product_attention<3, Options...>, linear<6>>;
  static_assert(whole::parameter_count == parts::parameter_count);
  std::vector<double> values(whole::parameter_count);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.7 * std::cos(static_cast<double>(i * i));
  const results wanted = results_of<whole>(values), found = results_of<parts>(values);
  BOOST_TEST(difference(wanted.outputs, found.outputs) < 1e-14);
  BOOST_TEST(difference(wanted.rows, found.rows) < 1e-14);
}

}  // namespace

BOOST_AUTO_TEST_CASE(laws) {
  keeps_the_laws_in_double<sequential<scaled_dot_product_attention<2, causal>, pg::mean_over_positions>,
                           variable(shape{4, 12})>();
}

BOOST_AUTO_TEST_CASE(laws_of_shared_heads_and_rotary_positions) {
  keeps_the_laws_in_double<
      sequential<scaled_dot_product_attention<4, causal, pg::key_value_heads<2>, pg::rotary<500'000>>,
                 pg::mean_over_positions>,
      variable(shape{4, 16})>();
}

/// A group of heads on one head of keys and values is as many heads on copies of it.
BOOST_AUTO_TEST_CASE(shared_heads_are_copies_of_them) {
  using shared = pg::basic_network<double, variable(shape{5, 6}), linear<12>,
                                   scaled_dot_product_attention<4, pg::key_value_heads<1>>, pg::mean_over_positions>;
  using copied = pg::basic_network<double, variable(shape{5, 6}), linear<24>, scaled_dot_product_attention<4>,
                                   pg::mean_over_positions>;
  constexpr std::size_t query = 8, width = 2, heads = 4;
  // Row of the copies' projection -> row of the shared one.
  const auto row_of = [](std::size_t row) {
    return row < query ? row : query + row / query * width - width + row % width;
  };
  std::vector<double> few(shared::parameter_count), many(copied::parameter_count);
  for (std::size_t i = 0; i < few.size(); ++i) few[i] = 0.7 * std::cos(static_cast<double>(i * i));
  for (std::size_t row = 0; row < 3 * query; ++row) {
    for (std::size_t c = 0; c < 6; ++c) many[row * 6 + c] = few[row_of(row) * 6 + c];
    many[3 * query * 6 + row] = few[(query + 2 * width) * 6 + row_of(row)];
  }
  const results wanted = results_of<copied>(many), found = results_of<shared>(few);
  BOOST_TEST(difference(wanted.outputs, found.outputs) < 1e-14);
  std::vector<double> summed(found.rows.size());  // the copies' gradients meet
  for (std::size_t b = 0; b < 3; ++b) {
    for (std::size_t row = 0; row < 3 * query; ++row) {
      for (std::size_t c = 0; c < 6; ++c) {
        summed[b * few.size() + row_of(row) * 6 + c] += wanted.rows[b * many.size() + row * 6 + c];
      }
      summed[b * few.size() + (query + 2 * width) * 6 + row_of(row)] +=
          wanted.rows[b * many.size() + 3 * query * 6 + row];
    }
  }
  static_assert(query == heads * width);
  BOOST_TEST(difference(summed, found.rows) < 1e-13);
}

/// Queries and keys that were turned by hand go through attention without rotary positions.
BOOST_AUTO_TEST_CASE(rotary_positions_turn_by_their_formula) {
  constexpr std::size_t positions = 40, width = 6;
  using turned =
      pg::basic_network<double, shape{positions, 3 * width}, scaled_dot_product_attention<1, causal, pg::rotary<1000>>>;
  using plain = pg::basic_network<double, shape{positions, 3 * width}, scaled_dot_product_attention<1, causal>>;
  std::vector<double> given(positions * 3 * width), by_hand;
  for (std::size_t i = 0; i < given.size(); ++i) given[i] = std::sin(static_cast<double>(i * i));
  by_hand = given;
  for (std::size_t t = 0; t < positions; ++t) {
    for (std::size_t part = 0; part < 2; ++part) {
      double* row = by_hand.data() + t * 3 * width + part * width;
      for (std::size_t j = 0; j < width / 2; ++j) {
        const double angle = static_cast<double>(t) * std::pow(1000.0, -2 * static_cast<double>(j) / width);
        const double x = row[j], y = row[j + width / 2];
        row[j] = x * std::cos(angle) - y * std::sin(angle);
        row[j + width / 2] = y * std::cos(angle) + x * std::sin(angle);
      }
    }
  }
  const pg::host exec{pg::threads{1}};
  const turned with{exec, pg::zeros{}};
  const plain without{exec, pg::zeros{}};
  BOOST_TEST(difference(pg::predict(exec, with, pg::public_records{given}),
                        pg::predict(exec, without, pg::public_records{by_hand})) < 1e-13);
}

BOOST_AUTO_TEST_CASE(between_two_linear_layers_it_is_multihead_attention) {
  is_multihead_attention<>();
  is_multihead_attention<causal>();
}

BOOST_AUTO_TEST_CASE(adapters_of_attention_start_where_it_was) {
  using frozen = classifier<multihead_attention<3>>;
  using adapted = pg::basic_network<double, variable(shape{5, 6}), pg::frozen<linear<6>>, pg::lora<2, linear<18>>,
                                    scaled_dot_product_attention<3>, pg::lora<2, linear<6>>, pg::mean_over_positions,
                                    pg::frozen<linear<2>>>;
  static_assert(adapted::parameter_count == 2 * (6 + 18) + 2 * (6 + 6));
  static_assert(adapted::frozen_parameter_count == frozen::parameter_count);
  std::vector<double> values(frozen::parameter_count);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.7 * std::cos(static_cast<double>(i * i));
  const pg::host exec{pg::threads{1}};
  adapted net{exec, pg::layer_default{1}};  // B = 0
  std::ranges::copy(values, net.frozen_parameters().begin());
  frozen before{exec, pg::zeros{}};
  std::ranges::copy(values, before.parameters().begin());
  std::vector<double> inputs(2 * adapted::input_shape.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i] = std::sin(static_cast<double>(i * i));
  const std::vector<std::uint32_t> lengths{4, 5};
  BOOST_TEST(difference(pg::predict(exec, net, pg::public_records{inputs}, lengths),
                        pg::predict(exec, before, pg::public_records{inputs}, lengths)) < 1e-14);
  const adapted drawn{exec, pg::xavier_normal{1}}, everywhere{exec, pg::constant{0.5}};
  const std::span<const double> first_b = drawn.parameters().subspan(2 * 6, 18 * 2);
  BOOST_TEST(std::ranges::count(first_b, 0.0) == 36);
  BOOST_TEST(std::ranges::count(drawn.parameters(), 0.0) == 36 + 12);
  BOOST_TEST(std::ranges::count(everywhere.parameters(), 0.5) == 72);
}

BOOST_AUTO_TEST_SUITE_END()
