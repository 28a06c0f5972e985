// SPDX-License-Identifier: Apache-2.0
// tests/layers/layer_norm_test.cpp - layer_norm and rms_norm: the laws, the formulas in long double, extreme inputs
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include <pergrad/pergrad.hpp>

#include "laws.hpp"
#include "reference_norm.hpp"

BOOST_AUTO_TEST_SUITE(row_norms)

namespace {

using layer_tests::agrees_with_the_formulas;
using layer_tests::expect_no_violation;
using layer_tests::keeps_the_laws;
using layer_tests::keeps_the_laws_in_double;
using layer_tests::norm_structure;
using layer_tests::respond;
using layer_tests::rows_of;
using pergrad::axes;
using pergrad::basic_network;
using pergrad::eps;
using pergrad::layer_norm;
using pergrad::linear;
using pergrad::no_affine;
using pergrad::no_bias;
using pergrad::rms_norm;
using pergrad::shape;

template <class Layer>
using varying =
    basic_network<double, pergrad::variable(shape{5, 4}), linear<6>, Layer, pergrad::mean_over_positions, linear<3>>;

norm_structure root_mean_square(norm_structure structure, long double epsilon) {
  structure.centred = false;
  structure.epsilon = epsilon;
  return structure;
}

}  // namespace

BOOST_AUTO_TEST_CASE(layer_norm_laws) { keeps_the_laws<layer_norm<>, shape{3, 7}>(); }
#ifdef PERGRAD_LONG_TESTS
BOOST_AUTO_TEST_CASE(layer_norm_vector_laws) { keeps_the_laws_in_double<layer_norm<>, shape{19}>(); }
BOOST_AUTO_TEST_CASE(layer_norm_two_axes_laws) { keeps_the_laws_in_double<layer_norm<axes<2>>, shape{3, 4}>(); }
BOOST_AUTO_TEST_CASE(layer_norm_image_laws) {
  keeps_the_laws_in_double<layer_norm<axes<2>, no_bias>, shape{2, 3, 4}>();
}
BOOST_AUTO_TEST_CASE(layer_norm_volume_laws) { keeps_the_laws_in_double<layer_norm<axes<3>>, shape{2, 2, 3, 2}>(); }
BOOST_AUTO_TEST_CASE(layer_norm_plain_laws) {
  keeps_the_laws_in_double<layer_norm<no_affine, eps<1, 10>>, shape{3, 5}>();
}
#endif
BOOST_AUTO_TEST_CASE(layer_norm_of_varying_lengths_laws) {
  expect_no_violation(pergrad::testing::check_network<varying<layer_norm<>>>());
}
BOOST_AUTO_TEST_CASE(rms_norm_laws) { keeps_the_laws<rms_norm<>, shape{3, 7}>(); }
#ifdef PERGRAD_LONG_TESTS
BOOST_AUTO_TEST_CASE(rms_norm_two_axes_laws) {
  keeps_the_laws_in_double<rms_norm<axes<2>, no_affine, eps<1, 100>>, shape{3, 4}>();
}
#endif
BOOST_AUTO_TEST_CASE(rms_norm_of_varying_lengths_laws) {
  expect_no_violation(pergrad::testing::check_network<varying<rms_norm<>>>());
}

BOOST_AUTO_TEST_CASE(formulas) {
  constexpr long double exact = 1e-14L;
  agrees_with_the_formulas<double, layer_norm<>, shape{37}>(rows_of(37, 37), 2, exact);
  agrees_with_the_formulas<double, layer_norm<>, shape{3, 16}>(rows_of(48, 16), 2, exact);
  agrees_with_the_formulas<double, layer_norm<no_bias, axes<2>>, shape{2, 3, 5}>(rows_of(30, 15), 1, exact);
  agrees_with_the_formulas<double, layer_norm<no_affine>, shape{3, 5}>(rows_of(15, 5), 0, exact);
  norm_structure quarter = rows_of(15, 5);
  quarter.epsilon = 0.25L;
  agrees_with_the_formulas<double, layer_norm<eps<1, 4>>, shape{3, 5}>(quarter, 2, exact);
  agrees_with_the_formulas<double, rms_norm<>, shape{3, 16}>(root_mean_square(rows_of(48, 16), 0x1p-52L), 1, exact);
  agrees_with_the_formulas<double, rms_norm<axes<2>, eps<1, 4>>, shape{3, 5}>(root_mean_square(rows_of(15, 15), 0.25L),
                                                                              1, exact);
}
BOOST_AUTO_TEST_CASE(formulas_in_float) {
  constexpr long double exact = 1e-6L;
  agrees_with_the_formulas<float, layer_norm<>, shape{3, 35}>(rows_of(105, 35), 2, exact);
  agrees_with_the_formulas<float, rms_norm<>, shape{64}>(root_mean_square(rows_of(64, 64), 0x1p-23L), 1, exact);
  // A mean that is large against the deviation: moments and differences in float would lose all digits.
  agrees_with_the_formulas<float, layer_norm<>, shape{3, 35}>(rows_of(105, 35), 2, exact, 1e6, 3);
}
BOOST_AUTO_TEST_CASE(constant_input_is_all_shift) {
  for (const double value : {0.0, -3.7, 1e8, 1e-300, 1e300}) {
    const auto y =
        respond<layer_norm<no_affine>, shape{3, 7}>(std::vector<double>(21, value), std::vector<double>(21, 1.0));
    for (const double each : y.output) BOOST_TEST(each == 0.0);
    for (const double each : y.input_gradient) BOOST_TEST(std::fabs(each) < 1e-12);
  }
}
BOOST_AUTO_TEST_CASE(huge_input_stays_finite) {
  constexpr double huge = std::numeric_limits<double>::max() / 3;
  std::vector<double> x(21, huge);
  for (std::size_t i = 0; i < x.size(); i += 2) x[i] = -huge;
  for (const auto& y :
       {respond<layer_norm<no_affine>, shape{3, 7}>(x, x), respond<rms_norm<no_affine>, shape{21}>(x, x)}) {
    for (const double each : y.output) BOOST_TEST(std::isfinite(each));
  }
}

BOOST_AUTO_TEST_SUITE_END()
