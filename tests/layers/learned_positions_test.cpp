// SPDX-License-Identifier: Apache-2.0
// tests/layers/learned_positions_test.cpp - the laws, and the gradients that positions get
#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <pergrad/layers/positions.hpp>
#include <pergrad/pergrad.hpp>

#include "laws.hpp"

BOOST_AUTO_TEST_SUITE(learned_positions_layer)

namespace {

using layer_tests::given_backprop;
using pergrad::learned_positions;
using pergrad::mean_over_positions;
using pergrad::sequential;
using pergrad::shape;

}  // namespace

BOOST_AUTO_TEST_CASE(laws) { layer_tests::keeps_the_laws<sequential<learned_positions, pergrad::tanh>, shape{4, 3}>(); }
BOOST_AUTO_TEST_CASE(varying_laws) {
  layer_tests::keeps_the_laws_in_double<sequential<learned_positions, pergrad::tanh, mean_over_positions>,
                                        pergrad::variable(shape{4, 3})>();
}
BOOST_AUTO_TEST_CASE(only_positions_that_are_there_get_a_gradient) {
  using network = pergrad::basic_network<double, pergrad::variable(shape{3, 2}), learned_positions>;
  const pergrad::host exec{pergrad::threads{1}};
  network net{exec, pergrad::zeros{}};
  for (std::size_t i = 0; i < 6; ++i) net.parameters()[i] = static_cast<double>(i + 1);
  const std::vector<double> x(12, 10.0);
  const std::vector<double> dy{1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6};
  const std::vector<std::uint32_t> lengths{1, 3};
  network::tape tape{exec, pergrad::max_batch{2}};
  const pergrad::batch<network, given_backprop> batch{std::span<const double>{x}, std::span<const double>{dy}, lengths};
  const auto gradients = pergrad::per_sample_gradients(net, given_backprop{}, batch, tape);
  BOOST_TEST(pergrad::unprotected::evaluate(exec, pergrad::outputs(gradients)) ==
                 (std::vector<double>{11, 12, 0, 0, 0, 0, 11, 12, 13, 14, 15, 16}),
             boost::test_tools::per_element());
  BOOST_TEST(pergrad::unprotected::evaluate(exec, pergrad::materialise(gradients)) ==
                 (std::vector<double>{1, 2, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()
