// SPDX-License-Identifier: Apache-2.0
// tests/layers/sinusoidal_positions_test.cpp - the laws, and the table against sines and cosines in long double
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstddef>
#include <vector>

#include <pergrad/layers/positions.hpp>
#include <pergrad/pergrad.hpp>

#include "laws.hpp"

BOOST_AUTO_TEST_SUITE(sinusoidal_positions_layer)

namespace {

using pergrad::mean_over_positions;
using pergrad::sequential;
using pergrad::shape;
using pergrad::sinusoidal_positions;

template <shape Input>
double largest_error() {
  const std::vector<double> nothing(Input.size(), 0.0);
  const auto y = layer_tests::respond<sinusoidal_positions, Input>(nothing, nothing).output;
  double worst = 0;
  for (std::size_t t = 0; t < Input.e0; ++t) {
    for (std::size_t i = 0; i < Input.e1; ++i) {
      const long double exponent = static_cast<long double>(i / 2 * 2) / static_cast<long double>(Input.e1);
      const long double angle = static_cast<long double>(t) / std::pow(10000.0L, exponent);
      const long double expected = i % 2 == 0 ? std::sin(angle) : std::cos(angle);
      worst = std::max(worst, std::fabs(static_cast<double>(expected - static_cast<long double>(y[t * Input.e1 + i]))));
    }
  }
  return worst;
}

}  // namespace

BOOST_AUTO_TEST_CASE(laws) {
  layer_tests::keeps_the_laws<sequential<sinusoidal_positions, pergrad::tanh>, shape{5, 3}>();
}
BOOST_AUTO_TEST_CASE(varying_laws) {
  layer_tests::keeps_the_laws_in_double<sequential<sinusoidal_positions, pergrad::tanh, mean_over_positions>,
                                        pergrad::variable(shape{4, 4})>();
}
BOOST_AUTO_TEST_CASE(table) {
  BOOST_TEST((largest_error<shape{5, 6}>()) < 1e-15);
  BOOST_TEST((largest_error<shape{600, 37}>()) < 1e-13);  // turned 600 times
}

BOOST_AUTO_TEST_SUITE_END()
