// SPDX-License-Identifier: Apache-2.0
// tests/testing/layer_laws_test.cpp - right custom layers keep the laws, and every wrong one is caught by the law it
// breaks
#include <boost/test/unit_test.hpp>

#include <string>

#include <pergrad/pergrad.hpp>
#include <pergrad/testing/layer_laws.hpp>

#include "custom_layers.hpp"

BOOST_AUTO_TEST_SUITE(layer_laws)

namespace {

using pergrad::shape;
using pergrad::testing::law;
using pergrad::testing::laws_report;

void expect_no_violation(const laws_report& report) {
  BOOST_TEST_MESSAGE(report.text());
  BOOST_TEST(report.comparisons() > 10'000U);
  for (const auto& broken : report) BOOST_ERROR(broken.text());
}
template <class Layer, shape Input = shape{3, 4}>
laws_report examine_wrong_layer() {
  const laws_report report = pergrad::testing::check_network<pergrad::testing::network_around<double, Layer, Input>>();
  BOOST_TEST_MESSAGE(report.text());
  BOOST_TEST(!report.empty());
  return report;
}

}  // namespace

BOOST_AUTO_TEST_CASE(outer_sum_of_saved_strided_values) {
  expect_no_violation(pergrad::testing::check_layer<custom::squared_channels<3>, shape{2, 3, 4}>());
}
BOOST_AUTO_TEST_CASE(elementwise_sums_over_positions) {
  expect_no_violation(pergrad::testing::check_layer<custom::gain_and_shift, shape{3, 4}>());
}
BOOST_AUTO_TEST_CASE(both_kinds_of_factor) {
  expect_no_violation(pergrad::testing::check_layer<custom::gain_and_neuron, shape{6}>());
}
BOOST_AUTO_TEST_CASE(small_gradients_beside_large_ones) {
  expect_no_violation(pergrad::testing::check_layer<custom::gain_and_small_shift, shape{4}>());
  expect_no_violation(pergrad::testing::check_layer<custom::small_first_element, shape{4}>());
}
// Clip factors round down by as much as the norm of so many parameters may err, and two samples hide none of that.
BOOST_AUTO_TEST_CASE(many_parameters) {
  expect_no_violation(
      pergrad::testing::check_layer<pergrad::linear<100>, shape{100}>({.samples = 2, .differences = 10}));
}
BOOST_AUTO_TEST_CASE(another_seed_and_another_loss) {
  using network = pergrad::network<shape{6}, custom::gain_and_neuron, pergrad::tanh, pergrad::linear<2>>;
  const pergrad::testing::law_options options{.seed = 77, .samples = 18, .differences = 10};
  expect_no_violation(pergrad::testing::check_network<network::rebind<double>, pergrad::mean_squared_error>(options));
}

BOOST_AUTO_TEST_CASE(a_wrong_input_gradient_is_found) {
  const laws_report report = examine_wrong_layer<custom::backward_too_large>();
  BOOST_TEST(report.broke(law::finite_differences));
  BOOST_TEST(report.size() == 1U);
}
// In the middle of a deep network, too: a wrong backward pass shows in the layers in front of it, wrong factors in the
// layer itself, and neither in those behind.
struct wrong_factors : custom::factor_reads_the_output {
  static constexpr const char* name = "wrong_factors";
};
BOOST_AUTO_TEST_CASE(the_layer_is_named) {
  using pergrad::linear;
  using wrong_backward =
      pergrad::basic_network<double, shape{3, 4}, linear<4>, pergrad::tanh, linear<4>, custom::backward_too_large,
                             linear<3>, pergrad::tanh, pergrad::flatten, linear<2>>;
  using wrong_factor = pergrad::basic_network<double, shape{3, 4}, linear<4>, pergrad::tanh, wrong_factors, linear<3>,
                                              pergrad::flatten, linear<2>>;
  const laws_report backward = pergrad::testing::check_network<wrong_backward>();
  const laws_report factor = pergrad::testing::check_network<wrong_factor>();
  BOOST_TEST_MESSAGE(backward.text() + factor.text());
  BOOST_REQUIRE(backward.broke(law::finite_differences));
  BOOST_REQUIRE(factor.broke(law::finite_differences));
  BOOST_TEST(backward.begin()->layer == "layer 2 (linear)");
  BOOST_TEST(factor.begin()->layer == "layer 2 (wrong_factors)");
}
BOOST_AUTO_TEST_CASE(a_factor_of_the_wrong_values_is_found) {
  const laws_report report = examine_wrong_layer<custom::factor_reads_the_output>();
  BOOST_TEST(report.broke(law::finite_differences));
  BOOST_TEST(report.size() == 1U);
}
BOOST_AUTO_TEST_CASE(a_factor_with_too_few_positions_is_found) {
  BOOST_TEST(examine_wrong_layer<custom::factor_forgets_a_position>().broke(law::finite_differences));
}
// Errors that vanish beside the largest element of the whole gradient: bounds are relative to the block.
BOOST_AUTO_TEST_CASE(a_wrong_gradient_of_a_small_block_is_found) {
  const laws_report report = examine_wrong_layer<custom::small_shift_too_large, shape{4}>();
  BOOST_TEST(report.broke(law::finite_differences));
  BOOST_TEST(report.size() == 1U);
}
BOOST_AUTO_TEST_CASE(a_block_of_one_parameter_among_many_is_found) {
  constexpr std::size_t features = 31;  // more parameters than are examined
  const laws_report report = examine_wrong_layer<custom::small_shift_too_large, shape{features}>();
  BOOST_TEST(report.broke(law::finite_differences));
  BOOST_TEST(report.size() == 1U);
}
BOOST_AUTO_TEST_CASE(a_wrong_gradient_of_a_small_input_is_found) {
  const laws_report report = examine_wrong_layer<custom::small_input_gradient_too_large, shape{4}>();
  BOOST_TEST(report.broke(law::finite_differences));
  BOOST_TEST(report.size() == 1U);
}
BOOST_AUTO_TEST_CASE(mixing_samples_is_found) {
  const laws_report report = examine_wrong_layer<custom::mixes_neighbours>();
  BOOST_TEST(report.broke(law::isolation));
  BOOST_TEST(report.broke(law::permutation));
  BOOST_TEST(report.broke(law::thread_count));
}
BOOST_AUTO_TEST_CASE(state_between_evaluations_is_found) {
  const laws_report report = examine_wrong_layer<custom::counts_its_calls>();
  BOOST_TEST(report.broke(law::repetition));
  BOOST_TEST(report.broke(law::isolation));
}
// What a layer does in training only is examined as well.
BOOST_AUTO_TEST_CASE(random_bits_keep_the_laws) {
  expect_no_violation(pergrad::testing::check_layer<custom::halves, shape{3, 4}>());
}
BOOST_AUTO_TEST_CASE(bits_that_are_drawn_again_are_found) {
  const laws_report report = examine_wrong_layer<custom::draws_again>();
  BOOST_TEST(report.broke(law::finite_differences));
  BOOST_TEST(report.text().find("in training") != std::string::npos);
}
BOOST_AUTO_TEST_CASE(mixing_samples_in_training_is_found) {
  const laws_report report = examine_wrong_layer<custom::mixes_in_training>();
  BOOST_TEST(report.broke(law::isolation));
  BOOST_TEST(report.text().find("in training") != std::string::npos);
}
// What is wrong in float alone, or far out alone.
BOOST_AUTO_TEST_CASE(a_wrong_gradient_in_float_is_found) {
  expect_no_violation(pergrad::testing::check_layer<custom::square, shape{6}>());
  const laws_report report = pergrad::testing::check_layer<custom::wrong_in_float, shape{6}>();
  BOOST_TEST(report.broke(law::precision));
  BOOST_TEST(report.size() == 1U);
}
BOOST_AUTO_TEST_CASE(a_wrong_gradient_far_out_is_found) {
  using far_out = pergrad::testing::network_around<double, custom::wrong_far_out, shape{6}>;
  BOOST_TEST(pergrad::testing::check_network<far_out>({.largest_input = 20}).broke(law::finite_differences));
}
BOOST_AUTO_TEST_CASE(an_unwritten_element_is_found) {
  BOOST_TEST(examine_wrong_layer<custom::forgets_an_element>().broke(law::finite_differences));
}

BOOST_AUTO_TEST_SUITE_END()
