// SPDX-License-Identifier: Apache-2.0
// tests/layers/sequence_bias_test.cpp - the laws, and where the learned position stands
#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <pergrad/layers/sequence_bias.hpp>
#include <pergrad/pergrad.hpp>

#include "laws.hpp"

BOOST_AUTO_TEST_SUITE(sequence_bias_layer)

namespace {

using layer_tests::given_backprop;
using pergrad::linear;
using pergrad::mean_over_positions;
using pergrad::sequence_bias;
using pergrad::sequential;
using pergrad::shape;

}  // namespace

BOOST_AUTO_TEST_CASE(laws) { layer_tests::keeps_the_laws<sequential<sequence_bias, pergrad::tanh>, shape{4, 3}>(); }
BOOST_AUTO_TEST_CASE(varying_laws) {
  layer_tests::keeps_the_laws_in_double<sequential<sequence_bias, pergrad::tanh, linear<2>, mean_over_positions>,
                                        pergrad::variable(shape{4, 3})>();
}
BOOST_AUTO_TEST_CASE(it_stands_behind_the_last_position_of_every_sample) {
  using network =
      pergrad::basic_network<double, pergrad::variable(shape{3, 2}), layer_tests::element_bias, sequence_bias>;
  const pergrad::host exec{pergrad::threads{1}};
  network net{exec, pergrad::zeros{}};
  net.parameters()[6] = 7;
  net.parameters()[7] = 8;
  const std::vector<double> x{1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6};
  const std::vector<double> dy{1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8};
  const std::vector<std::uint32_t> lengths{1, 3};
  network::tape tape{exec, pergrad::max_batch{2}};
  const pergrad::batch<network, given_backprop> batch{std::span<const double>{x}, std::span<const double>{dy}, lengths};
  const auto gradients = pergrad::per_sample_gradients(net, given_backprop{}, batch, tape);
  BOOST_TEST(pergrad::unprotected::evaluate(exec, pergrad::outputs(gradients)) ==
                 (std::vector<double>{1, 2, 7, 8, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8}),
             boost::test_tools::per_element());
  BOOST_TEST(pergrad::unprotected::evaluate(exec, pergrad::materialise(gradients)) ==
                 (std::vector<double>{1, 2, 0, 0, 0, 0, 3, 4, 1, 2, 3, 4, 5, 6, 7, 8}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()
