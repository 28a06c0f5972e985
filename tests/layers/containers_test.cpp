// SPDX-License-Identifier: Apache-2.0
// tests/layers/containers_test.cpp - flatten, sequential, repeat, residual: the laws, and what their parts compute
#include <boost/test/unit_test.hpp>

#include <vector>

#include <pergrad/pergrad.hpp>

#include "laws.hpp"

BOOST_AUTO_TEST_SUITE(container_layers)

namespace {

using layer_tests::keeps_the_laws;
using layer_tests::keeps_the_laws_in_double;
using layer_tests::respond;
using pergrad::basic_network;
using pergrad::conv2d;
using pergrad::flatten;
using pergrad::linear;
using pergrad::no_bias;
using pergrad::padding;
using pergrad::projection;
using pergrad::relu;
using pergrad::repeat;
using pergrad::residual;
using pergrad::sequential;
using pergrad::shape;
using pergrad::stride;

using numbers = std::vector<double>;

/// Gradients of two networks with the same parameters on the same samples.
template <class First, class Second>
void alike() {
  static_assert(First::parameter_count == Second::parameter_count);
  namespace testing = pergrad::testing;
  const First first{pergrad::host{}, pergrad::uniform{7, -0.5, 0.5}};
  const Second second{pergrad::host{}, pergrad::uniform{7, -0.5, 0.5}};
  testing::observer<First, pergrad::cross_entropy> first_observer{pergrad::threads{1}, 5};
  testing::observer<Second, pergrad::cross_entropy> second_observer{pergrad::threads{1}, 5};
  const auto a = first_observer.look(first, testing::draw_samples<First, pergrad::cross_entropy>(3, 5), 1);
  const auto b = second_observer.look(second, testing::draw_samples<Second, pergrad::cross_entropy>(3, 5), 1);
  BOOST_TEST(a.outputs == b.outputs, boost::test_tools::per_element());
  BOOST_TEST(a.rows == b.rows, boost::test_tools::per_element());
  BOOST_TEST(a.clipped == b.clipped, boost::test_tools::per_element());
}

}  // namespace

BOOST_AUTO_TEST_CASE(flatten_laws) { keeps_the_laws<flatten, shape{2, 3, 4}>(); }
#ifdef PERGRAD_LONG_TESTS
BOOST_AUTO_TEST_CASE(flatten_positions_laws) { keeps_the_laws_in_double<flatten, shape{3, 4}>(); }
#endif
BOOST_AUTO_TEST_CASE(flatten_keeps_the_order) {
  const numbers x{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  const auto y = respond<flatten, shape{2, 3, 2}>(x, x);
  BOOST_TEST(y.output == x, boost::test_tools::per_element());
  BOOST_TEST(y.input_gradient == x, boost::test_tools::per_element());
}

#ifdef PERGRAD_LONG_TESTS
BOOST_AUTO_TEST_CASE(repeat_laws) { keeps_the_laws_in_double<repeat<3, linear<5>, pergrad::tanh>, shape{5}>(); }
#endif
BOOST_AUTO_TEST_CASE(residual_laws) { keeps_the_laws<residual<linear<6>, relu>, shape{6}>(); }
BOOST_AUTO_TEST_CASE(residual_image_laws) {
  keeps_the_laws<residual<conv2d<3, 3, padding<1>>, relu, conv2d<3, 3, padding<1>>>, shape{3, 4, 5}>();
}
#ifdef PERGRAD_LONG_TESTS
BOOST_AUTO_TEST_CASE(residual_with_projection_laws) {
  keeps_the_laws_in_double<
      sequential<residual<conv2d<4, 3, stride<2>, padding<1>>, relu, projection<conv2d<4, 1, stride<2>, no_bias>>>,
                 relu>,
      shape{3, 5, 5}>();
}
BOOST_AUTO_TEST_CASE(residual_in_residual_laws) {
  keeps_the_laws_in_double<residual<linear<4>, residual<relu, linear<4>>, pergrad::tanh>, shape{4}>();
}
BOOST_AUTO_TEST_CASE(residual_around_nothing_but_an_activation_laws) {
  keeps_the_laws_in_double<residual<pergrad::tanh>, shape{7}>();
}
#endif

BOOST_AUTO_TEST_CASE(sequential_and_repeat_are_their_layers) {
  alike<basic_network<double, shape{5}, sequential<linear<4>, sequential<relu, linear<4>>>, relu, linear<3>>,
        basic_network<double, shape{5}, linear<4>, relu, linear<4>, relu, linear<3>>>();
  alike<basic_network<double, shape{5}, repeat<2, linear<5>, relu>, linear<3>>,
        basic_network<double, shape{5}, linear<5>, relu, linear<5>, relu, linear<3>>>();
}
BOOST_AUTO_TEST_CASE(a_residual_doubles_what_its_body_keeps) {
  const auto y = respond<residual<relu>, shape{4}>({-1, 2, -3, 4}, {1, 1, 1, 1});
  BOOST_TEST(y.output == (numbers{-1, 4, -3, 8}), boost::test_tools::per_element());
  BOOST_TEST(y.input_gradient == (numbers{1, 2, 1, 2}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()
