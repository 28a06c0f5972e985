// SPDX-License-Identifier: Apache-2.0
// tests/layers/tied_table_test.cpp - a table that ids look up and that positions are multiplied with: both uses'
// gradients meet before anything is squared
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <pergrad/pergrad.hpp>

#include "laws.hpp"

BOOST_AUTO_TEST_SUITE(tied_table)

namespace {

namespace pg = pergrad;
using layer_tests::network_keeps_the_laws;
using pg::embedding;
using pg::linear;
using pg::no_bias;
using pg::tied;
using pg::token_ids;
using pg::variable;

template <class Scalar, class Embedding, class Unembedding>
using language_model = pg::basic_network<Scalar, token_ids(5, 7), Embedding, pg::residual<linear<4>, pg::tanh>,
                                         linear<4>, pg::sigmoid, Unembedding>;
template <class Scalar>
using shared = language_model<Scalar, tied<1, embedding<4>>, tied<1, linear<7, no_bias>>>;
template <class Scalar>
using apart = language_model<Scalar, embedding<4>, linear<7, no_bias>>;
using loss = pg::token_cross_entropy<>;
/// So wide that the plan leaves the table's gradient unformed.
template <class Scalar>
using wide = pg::basic_network<Scalar, token_ids(3, 64), tied<1, embedding<32>>, linear<32>, pg::tanh,
                               tied<1, linear<64, no_bias>>>;

/// The same parameters in two networks, of which one has the table twice.
struct twins {
  static constexpr std::size_t samples = 6;
  static constexpr std::size_t table = 7 * 4;
  static constexpr std::size_t width = shared<double>::parameter_count;
  static constexpr std::size_t width_apart = apart<double>::parameter_count;
  pg::host exec{pg::threads{2}};
  shared<double> one{exec, pg::uniform{3, -0.8, 0.8}};
  apart<double> two{exec, pg::zeros{}};
  pg::tape<shared<double>> tape_of_one{exec, pg::max_batch{samples}, pg::max_sums{2}};
  pg::tape<apart<double>> tape_of_two{exec, pg::max_batch{samples}};
  pg::testing::sample_set<shared<double>, loss> data = pg::testing::draw_samples<shared<double>, loss>(5, samples);
  pg::batch<shared<double>, loss> batch_of_one = data.view();
  pg::batch<apart<double>, loss> batch_of_two{data.inputs, data.targets};
  std::vector<double> rows;  ///< what the gradients of `one` must be, made of those of `two`

  [[nodiscard]] auto of_one() { return pg::per_sample_gradients(one, loss{}, batch_of_one, tape_of_one); }
  [[nodiscard]] auto of_two() { return pg::per_sample_gradients(two, loss{}, batch_of_two, tape_of_two); }
  [[nodiscard]] auto evaluate(const auto& expression) { return pg::unprotected::evaluate(exec, expression); }
  twins() {
    const auto from = one.parameters();
    std::ranges::copy(from, two.parameters().begin());
    std::copy(from.begin(), from.begin() + table, two.parameters().end() - table);
    const auto separate = pg::unprotected::evaluate(exec, pg::materialise(of_two()));
    for (std::size_t b = 0; b < samples; ++b) {
      const auto row = std::span{separate}.subspan(b * width_apart, width_apart);
      rows.insert(rows.end(), row.begin(), row.begin() + width);
      for (std::size_t i = 0; i < table; ++i) rows[b * width + i] += row[width + i];
    }
  }
  [[nodiscard]] double squared(std::size_t b) const {
    double sum = 0;
    for (const double value : std::span{rows}.subspan(b * width, width)) sum += value * value;
    return sum;
  }
};
static_assert(twins::width_apart == twins::width + twins::table);

void close(std::span<const double> found, std::span<const double> wanted, const char* what, double tolerance = 1e-13) {
  BOOST_TEST_REQUIRE(found.size() == wanted.size());
  double largest = 0;
  double worst = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    largest = std::max(largest, std::fabs(wanted[i]));
    worst = std::max(worst, std::fabs(found[i] - wanted[i]));
  }
  BOOST_TEST(largest > 0);
  BOOST_TEST(worst <= tolerance * largest, what << ": " << worst << " of " << largest);
}

/// A whole network under the loss of language models.
template <class Network>
void model_keeps_the_laws() {
  layer_tests::expect_no_violation(pg::testing::check_network<Network, loss>());
}

}  // namespace

BOOST_AUTO_TEST_CASE(laws) { model_keeps_the_laws<shared<double>>(); }
BOOST_AUTO_TEST_CASE(laws_of_a_wide_table) { model_keeps_the_laws<wide<double>>(); }
#ifdef PERGRAD_LONG_TESTS
BOOST_AUTO_TEST_CASE(laws_in_float) { model_keeps_the_laws<shared<float>>(); }
BOOST_AUTO_TEST_CASE(laws_of_a_wide_table_in_float) { model_keeps_the_laws<wide<float>>(); }
#endif
// The matrix is used before the table is looked up, and the table twice: whichever use comes first or last.
BOOST_AUTO_TEST_CASE(any_order_and_number_of_uses) {
  using matrix_first = pg::basic_network<
      double, variable(token_ids(5, 9)),
      pg::merge<pg::detail::branch_sum, pg::sequential<embedding<4>, pg::tanh, tied<1, linear<9, no_bias>>>,
                pg::sequential<tied<1, embedding<4>>, tied<2, linear<9>>, pg::tanh>>,
      linear<4>, tied<1, linear<9, no_bias>>, pg::mean_over_positions, linear<3>>;
  static_assert(matrix_first::parameter_count == 36 + 36 + 45 + 40 + 30);
  network_keeps_the_laws<matrix_first>();
  using table_twice = pg::basic_network<double, variable(token_ids(5, 9)),
                                        pg::merge<pg::detail::branch_sum, tied<1, embedding<4>>,
                                                  pg::sequential<tied<1, embedding<4>>, pg::tanh, linear<4>>>,
                                        pg::sigmoid, tied<1, linear<9, no_bias>>, pg::mean_over_positions, linear<3>>;
  network_keeps_the_laws<table_twice>();
  layer_tests::keeps_the_law_of_lengths<table_twice>();
}

BOOST_AUTO_TEST_CASE(a_gradient_is_the_sum_of_both_uses) {
  twins it;
  close(it.evaluate(pg::materialise(it.of_one())), it.rows, "rows");
  std::vector<double> squared;
  double separate = 0;
  for (std::size_t b = 0; b < twins::samples; ++b) squared.push_back(it.squared(b));
  close(it.evaluate(pg::squared_l2_norms(it.of_one())), squared, "norms");
  close(it.evaluate(pg::squared_l2_norms(pg::with_method<pg::norm_method::gram>(it.of_one()))), squared, "by gram");
  // And not the sum of both uses' squares: the cross terms count.
  const auto without = it.evaluate(pg::squared_l2_norms(it.of_two()));
  for (std::size_t b = 0; b < twins::samples; ++b) separate += std::fabs(without[b] - squared[b]) / squared[b];
  BOOST_TEST(separate > 1e-3);
}
BOOST_AUTO_TEST_CASE(sums_are_those_of_the_rows) {
  twins it;
  constexpr double bound = 0.3;
  std::vector<double> plain(twins::width), clipped(twins::width), moment(twins::width);
  for (std::size_t b = 0; b < twins::samples; ++b) {
    const double factor = std::min(1.0, bound / std::sqrt(it.squared(b)));
    for (std::size_t i = 0; i < twins::width; ++i) {
      const double value = it.rows[b * twins::width + i];
      plain[i] += value;
      clipped[i] += factor * value;
      moment[i] += value * value / twins::samples;
    }
  }
  close(it.evaluate(pg::sum(it.of_one())), plain, "plain sum");
  close(it.evaluate(pg::sum(pg::clip(it.of_one(), pg::l2_clip_norm{bound}))), clipped, "clipped sum");
  close(it.evaluate(pg::sum(pg::clip(pg::with_method<pg::norm_method::gram>(it.of_one()), pg::l2_clip_norm{bound}))),
        clipped, "clipped sum by gram", 1e-12);  // which makes room for its own rounding
  close(it.evaluate(pg::second_moment(it.of_one())), moment, "second moment");
  std::vector<double> direction(twins::width);
  for (std::size_t i = 0; i < direction.size(); ++i) direction[i] = static_cast<double>(i % 7) - 3;
  std::vector<double> projections(twins::samples);
  for (std::size_t i = 0; i < it.rows.size(); ++i) {
    projections[i / twins::width] += it.rows[i] * direction[i % twins::width];
  }
  close(it.evaluate(pg::dot(it.of_one(), std::span<const double>{direction})), projections, "projections");
}
BOOST_AUTO_TEST_CASE(the_plan_forms_small_gradients_only) {
  const auto small = pg::describe_rows<shared<float>>();
  const auto large = pg::describe_rows<wide<float>>();
  BOOST_TEST(small[0].norm == "instantiate");
  BOOST_TEST(small.back().norm == "tied");
  BOOST_TEST(large[0].norm == "gram");
}
// Records beyond the capacity are rounded one by one and added up as integers: without noise the same but for the grid.
BOOST_AUTO_TEST_CASE(integers_are_the_same_sum) {
  const auto check = [](auto network, const char* what) {
    using net_type = typename decltype(network)::type;
    const auto data = pg::testing::draw_samples<net_type, loss>(7, 12);
    const pg::dataset<std::int32_t, std::int32_t> records{data.inputs, data.targets, net_type::input_shape,
                                                          net_type::input_shape.e0};
    const pg::host exec{pg::threads{2}};
    pg::dp_sgd_options options;
    options.clip = pg::l2_clip_norm{0.5};
    options.noise = pg::noise_multiplier{0};
    options.sampling = pg::poisson_sampling{pg::sampling_probability{1}};
    options.divisor = pg::expected_batch_size{1};
    options.learning_rate = pg::learning_rate{1};
    options.max_batch = pg::max_batch{4};
    const auto after_a_step = [&](std::size_t capacity) {
      options.capacity = pg::record_capacity{capacity};
      net_type net{exec, pg::uniform{3, -0.5, 0.5}};
      pg::dp_sgd trainer{exec, net, loss{}, options, pg::seeded_generator{9}};
      trainer.step(records);
      return std::vector<double>(net.parameters().begin(), net.parameters().end());
    };
    const auto floating = after_a_step(64);
    const auto integers = after_a_step(0);
    // 12 roundings to a grid of at most 2^-11 C / sqrt(d), and one.
    const double allowed = 13 * 0x1p-11 * 0.5 / std::sqrt(static_cast<double>(floating.size()));
    double worst = 0;
    double moved = 0;
    const net_type before{exec, pg::uniform{3, -0.5, 0.5}};
    for (std::size_t i = 0; i < floating.size(); ++i) {
      worst = std::max(worst, std::fabs(floating[i] - integers[i]));
      moved = std::max(moved, std::fabs(floating[i] - static_cast<double>(before.parameters()[i])));
    }
    BOOST_TEST(worst <= allowed, what << ": " << worst);
    BOOST_TEST(moved > 20 * allowed, what << ": " << moved);
  };
  check(std::type_identity<shared<double>>{}, "formed");
  check(std::type_identity<wide<double>>{}, "from factors");
}
BOOST_AUTO_TEST_CASE(one_tensor_in_files) {
  const auto tensors = pg::detail::parameter_tensors<shared<double>>();
  BOOST_TEST_REQUIRE(!tensors.empty());
  BOOST_TEST(tensors[0].name == "0.weight");
  BOOST_TEST(tensors[0].shape == (std::vector<std::size_t>{7, 4}), boost::test_tools::per_element());
  for (const auto& each : tensors) BOOST_TEST(each.name.substr(0, 2) != "4.");
}
BOOST_AUTO_TEST_CASE(a_frozen_table_is_shared_as_well) {
  using frozen = pg::basic_network<double, token_ids(5, 7), pg::frozen<tied<1, embedding<4>>>, linear<4>, pg::tanh,
                                   pg::frozen<tied<1, linear<7, no_bias>>>, pg::mean_over_positions>;
  static_assert(frozen::parameter_count == 20 && frozen::frozen_parameter_count == 28);
  network_keeps_the_laws<frozen>();
}

BOOST_AUTO_TEST_SUITE_END()
