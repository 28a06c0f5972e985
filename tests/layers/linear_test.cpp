// SPDX-License-Identifier: Apache-2.0
// tests/layers/linear_test.cpp - linear on features and on positions keeps every law
#include <boost/test/unit_test.hpp>

#include <pergrad/pergrad.hpp>

#include "laws.hpp"

BOOST_AUTO_TEST_SUITE(linear_layer)

namespace {

using layer_tests::keeps_the_laws;
using layer_tests::keeps_the_laws_in_double;
using pergrad::flatten;
using pergrad::linear;
using pergrad::no_bias;
using pergrad::sequential;
using pergrad::shape;

}  // namespace

BOOST_AUTO_TEST_CASE(on_features) { keeps_the_laws<linear<4>, shape{5}>(); }
BOOST_AUTO_TEST_CASE(on_positions) { keeps_the_laws<linear<4>, shape{3, 5}>(); }
#ifdef PERGRAD_LONG_TESTS
BOOST_AUTO_TEST_CASE(without_bias) { keeps_the_laws_in_double<linear<4, no_bias>, shape{5}>(); }
BOOST_AUTO_TEST_CASE(on_positions_without_bias) { keeps_the_laws_in_double<linear<4, no_bias>, shape{3, 5}>(); }
BOOST_AUTO_TEST_CASE(one_by_one) { keeps_the_laws_in_double<linear<1>, shape{1}>(); }
BOOST_AUTO_TEST_CASE(wider_than_a_vector) { keeps_the_laws_in_double<linear<37>, shape{19}>(); }
BOOST_AUTO_TEST_CASE(on_an_image_flattened) {
  keeps_the_laws_in_double<sequential<flatten, linear<5>>, shape{2, 3, 4}>();
}
#endif

BOOST_AUTO_TEST_CASE(parameters_are_weight_then_bias) {
  using network = pergrad::basic_network<double, shape{2}, linear<2>>;
  const pergrad::host exec{pergrad::threads{1}};
  network net{exec, pergrad::zeros{}};
  const std::vector<double> parameters{1, 10, 100, 1000, 0.5, 0.25};
  std::copy(parameters.begin(), parameters.end(), net.parameters().begin());
  network::tape tape{exec, pergrad::max_batch{1}};
  const std::vector<double> x{2, 3};
  const std::vector<double> dy{5, 7};
  const pergrad::batch<network, layer_tests::given_backprop> batch{std::span<const double>{x},
                                                                   std::span<const double>{dy}};
  const auto gradients = pergrad::per_sample_gradients(net, layer_tests::given_backprop{}, batch, tape);
  BOOST_TEST(pergrad::unprotected::evaluate(exec, pergrad::outputs(gradients)) == (std::vector<double>{32.5, 3200.25}),
             boost::test_tools::per_element());
  BOOST_TEST(pergrad::unprotected::evaluate(exec, pergrad::materialise(gradients)) ==
                 (std::vector<double>{10, 15, 14, 21, 5, 7}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()
