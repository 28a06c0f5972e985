// SPDX-License-Identifier: Apache-2.0
// tests/layers/group_norm_test.cpp - group_norm: the laws, the formulas in long double, extreme inputs
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include <pergrad/pergrad.hpp>

#include "laws.hpp"
#include "reference_norm.hpp"

BOOST_AUTO_TEST_SUITE(group_norm_layer)

namespace {

using layer_tests::agrees_with_the_formulas;
using layer_tests::groups_of;
using layer_tests::keeps_the_laws;
using layer_tests::keeps_the_laws_in_double;
using layer_tests::norm_structure;
using layer_tests::respond;
using pergrad::conv2d;
using pergrad::eps;
using pergrad::group_norm;
using pergrad::no_affine;
using pergrad::padding;
using pergrad::residual;
using pergrad::shape;

}  // namespace

BOOST_AUTO_TEST_CASE(image_laws) { keeps_the_laws<group_norm<2>, shape{6, 3, 2}>(); }
#ifdef PERGRAD_LONG_TESTS
BOOST_AUTO_TEST_CASE(vector_laws) { keeps_the_laws_in_double<group_norm<2>, shape{10}>(); }
BOOST_AUTO_TEST_CASE(sequence_laws) { keeps_the_laws_in_double<group_norm<2>, shape{4, 5}>(); }
BOOST_AUTO_TEST_CASE(volume_laws) { keeps_the_laws_in_double<group_norm<1, eps<1, 10>>, shape{3, 2, 2, 2}>(); }
BOOST_AUTO_TEST_CASE(plain_laws) { keeps_the_laws_in_double<group_norm<3, no_affine>, shape{6, 2, 2}>(); }
#endif
// Halos on both sides, and a second consumer of the input.
#ifdef PERGRAD_LONG_TESTS
BOOST_AUTO_TEST_CASE(between_convolutions_laws) {
  using convolution = conv2d<2, 3, padding<1>>;
  keeps_the_laws_in_double<residual<convolution, residual<group_norm<1>, convolution>>, shape{2, 4, 3}>();
}
#endif

// Channels: fewer than a vector, more than two vectors with a rest, more than are taken together.
BOOST_AUTO_TEST_CASE(formulas) {
  constexpr long double exact = 2e-14L;
  agrees_with_the_formulas<double, group_norm<2>, shape{6, 5, 3}>(groups_of(6, 15, 2), 2, exact);
  agrees_with_the_formulas<double, group_norm<7>, shape{21, 2, 3}>(groups_of(21, 6, 7), 2, exact);
  agrees_with_the_formulas<double, group_norm<2, no_affine>, shape{140, 2, 2}>(groups_of(140, 4, 2), 0, exact);
  agrees_with_the_formulas<double, group_norm<4>, shape{12}>(groups_of(12, 1, 4), 2, exact);
  agrees_with_the_formulas<double, group_norm<3>, shape{6, 7}>(groups_of(6, 7, 3), 2, exact);
  agrees_with_the_formulas<double, group_norm<2>, shape{4, 2, 3, 2}>(groups_of(4, 12, 2), 2, exact);
  norm_structure tenth = groups_of(6, 4, 3);
  tenth.epsilon = 0.1L;
  agrees_with_the_formulas<double, group_norm<3, eps<1, 10>>, shape{6, 2, 2}>(tenth, 2, exact);
}
BOOST_AUTO_TEST_CASE(formulas_in_float) {
  constexpr long double exact = 1e-6L;
  using layer = group_norm<3>;
  agrees_with_the_formulas<float, layer, shape{21, 4, 3}>(groups_of(21, 12, 3), 2, exact);
  // A mean that is large against the deviation: moments and differences in float would lose all digits.
  agrees_with_the_formulas<float, layer, shape{21, 4, 3}>(groups_of(21, 12, 3), 2, exact, 1e6, 3);
}
BOOST_AUTO_TEST_CASE(constant_input_is_all_shift) {
  for (const double value : {0.0, -3.7, 1e8, 1e-300, 1e300}) {
    const std::vector<double> x(27, value);
    const std::vector<double> dy(27, 1.0);
    for (const auto& y : {respond<group_norm<3, no_affine>, shape{3, 3, 3}>(x, dy),
                          respond<group_norm<3, no_affine>, shape{27}>(x, dy)}) {
      for (const double each : y.output) BOOST_TEST(each == 0.0);
      for (const double each : y.input_gradient) BOOST_TEST(std::fabs(each) < 1e-12);
    }
  }
}
BOOST_AUTO_TEST_CASE(huge_input_stays_finite) {
  constexpr double huge = std::numeric_limits<double>::max() / 3;
  std::vector<double> x(27, huge);
  for (std::size_t i = 0; i < x.size(); i += 2) x[i] = -huge;
  for (const double each : respond<group_norm<3, no_affine>, shape{3, 3, 3}>(x, x).output) {
    BOOST_TEST(std::isfinite(each));
  }
}

BOOST_AUTO_TEST_SUITE_END()
