// SPDX-License-Identifier: Apache-2.0
// tests/layers/instance_norm_test.cpp - instance norms in one, two and three dimensions: the laws and the formulas
#include <boost/test/unit_test.hpp>

#include <pergrad/pergrad.hpp>

#include "laws.hpp"
#include "reference_norm.hpp"

BOOST_AUTO_TEST_SUITE(instance_norm_layers)

namespace {

using layer_tests::agrees_with_the_formulas;
using layer_tests::groups_of;
using layer_tests::keeps_the_laws;
using layer_tests::keeps_the_laws_in_double;
using pergrad::instance_norm1d;
using pergrad::instance_norm2d;
using pergrad::instance_norm3d;
using pergrad::no_affine;
using pergrad::shape;

}  // namespace

#ifdef PERGRAD_LONG_TESTS
BOOST_AUTO_TEST_CASE(sequence_laws) { keeps_the_laws_in_double<instance_norm1d<>, shape{3, 5}>(); }
#endif
BOOST_AUTO_TEST_CASE(image_laws) { keeps_the_laws<instance_norm2d<>, shape{5, 3, 2}>(); }
#ifdef PERGRAD_LONG_TESTS
BOOST_AUTO_TEST_CASE(volume_laws) { keeps_the_laws_in_double<instance_norm3d<no_affine>, shape{2, 2, 2, 3}>(); }
#endif

BOOST_AUTO_TEST_CASE(formulas) {
  constexpr long double exact = 2e-14L;
  agrees_with_the_formulas<double, instance_norm1d<>, shape{3, 11}>(groups_of(3, 11, 3), 2, exact);
  agrees_with_the_formulas<double, instance_norm2d<>, shape{90, 2, 3}>(groups_of(90, 6, 90), 2, exact);
  agrees_with_the_formulas<double, instance_norm3d<no_affine>, shape{2, 2, 3, 2}>(groups_of(2, 12, 2), 0, exact);
  agrees_with_the_formulas<float, instance_norm2d<>, shape{70, 4, 3}>(groups_of(70, 12, 70), 2, 1e-6L);
}

BOOST_AUTO_TEST_SUITE_END()
