// SPDX-License-Identifier: Apache-2.0
// tests/layers/gated_test.cpp - products of branches, the gated unit, and biases behind frozen weights
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include <pergrad/layers/added_bias.hpp>
#include <pergrad/layers/gated.hpp>
#include <pergrad/pergrad.hpp>

#include "laws.hpp"

BOOST_AUTO_TEST_SUITE(gated_layers)

namespace {

namespace pg = pergrad;
using layer_tests::keeps_the_laws_in_double;
using pg::linear;
using pg::sequential;
using pg::shape;

}  // namespace

BOOST_AUTO_TEST_CASE(laws) {
  keeps_the_laws_in_double<sequential<pg::swiglu<5>, pg::added_bias, pg::mean_over_positions, pg::added_bias>,
                           pg::variable(shape{4, 3})>();
}

BOOST_AUTO_TEST_CASE(swiglu_is_its_formula) {
  using network = pg::basic_network<double, shape{2}, pg::swiglu<1, pg::no_bias>>;
  const pg::host exec{pg::threads{1}};
  network net{exec, pg::zeros{}};
  std::ranges::copy(std::vector{0.5, -0.25, 2.0, 3.0}, net.parameters().begin());
  const std::vector<double> x{1.0, 4.0};
  const double gate = 0.5 - 1.0, up = 2.0 + 12.0;
  BOOST_TEST(std::fabs(pg::predict(exec, net, pg::public_records{x})[0] - gate / (1 + std::exp(-gate)) * up) < 1e-14);
}

/// The gradient of a bias does not depend on who else is trained.
BOOST_AUTO_TEST_CASE(an_added_bias_is_the_bias_of_the_layer_in_front) {
  using whole = pg::basic_network<double, shape{3, 2}, linear<4>, pg::tanh, pg::mean_over_positions>;
  using biases = pg::basic_network<double, shape{3, 2}, pg::frozen<linear<4, pg::no_bias>>, pg::added_bias, pg::tanh,
                                   pg::mean_over_positions>;
  static_assert(biases::parameter_count == 4 && biases::frozen_parameter_count == 8);
  const pg::host exec{pg::threads{1}};
  whole full{exec, pg::layer_default{3}};
  biases few{exec, pg::zeros{}};
  std::ranges::copy(full.parameters().first(8), few.frozen_parameters().begin());
  std::ranges::copy(full.parameters().subspan(8), few.parameters().begin());
  std::vector<double> x(12), targets(8, 0.25);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<double>(i * i));
  const auto rows = [&]<class Network>(const Network& net) {
    typename Network::tape tape{exec, pg::max_batch{2}};
    const pg::batch<Network, pg::mean_squared_error> batch{x, targets};
    const auto g = pg::per_sample_gradients(net, pg::mean_squared_error{}, batch, tape);
    return pg::unprotected::evaluate(exec, pg::materialise(g));
  };
  const std::vector<double> all = rows(full), some = rows(few);
  for (std::size_t b = 0; b < 2; ++b) {
    for (std::size_t i = 0; i < 4; ++i) BOOST_TEST(std::fabs(all[b * 12 + 8 + i] - some[b * 4 + i]) < 1e-15);
  }
}

/// 0 as the shifts of norms are, wherever PyTorch's layers would choose; else what is said of biases.
BOOST_AUTO_TEST_CASE(first_values_of_an_added_bias) {
  using network = pg::network<shape{2, 3}, pg::added_bias>;
  const pg::host exec{pg::threads{1}};
  const auto begins_with = [](const network& net, float value) {
    return std::ranges::all_of(net.parameters(), [&](float each) { return each == value; });
  };
  BOOST_TEST(begins_with({exec, pg::layer_default{1}}, 0));
  BOOST_TEST(begins_with({exec, pg::kaiming_uniform{1}}, 0));
  BOOST_TEST(begins_with({exec, pg::xavier_normal{1}}, 0));
  BOOST_TEST(begins_with({exec, pg::constant{0.5}}, 0.5F));
}

// Seed and index of a value in double that rounds to 1 in single precision.
BOOST_AUTO_TEST_CASE(uniform_first_values_stay_below_the_upper_end) {
  const auto in_float = [](const pg::uniform& begin) { return static_cast<float>(begin.weight(6'705'997, {})); };
  BOOST_TEST(in_float({7, 0, 1}) == 0.0F);
  BOOST_TEST(in_float({7, -2, 2}) == -2.0F);
  BOOST_TEST((pg::uniform{7, 0, 1e300}.weight(6'705'997, {})) > 0.9e300);  // in double alone
  BOOST_TEST((pg::uniform{7, 1, 1 + 1e-9}.weight(0, {})) > 1.0);
  BOOST_TEST((pg::uniform{7, 3, 3}.weight(0, {})) == 3.0);
}

BOOST_AUTO_TEST_SUITE_END()
