// SPDX-License-Identifier: Apache-2.0
// tests/layers/activations_test.cpp - functions of one number: the laws, values, zeros, infinities and NaN
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <limits>
#include <vector>

#include <pergrad/pergrad.hpp>

#include "laws.hpp"

BOOST_AUTO_TEST_SUITE(activation_layers)

namespace {

using layer_tests::keeps_the_laws;
using layer_tests::keeps_the_laws_in_double;
using layer_tests::respond_to;
using pergrad::conv2d;
using pergrad::padding;
using pergrad::sequential;
using pergrad::shape;

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double tiny = std::numeric_limits<double>::denorm_min();

void close(double computed, long double expected, long double tolerance = 4e-16L) {
  BOOST_TEST(std::fabs(static_cast<long double>(computed) - expected) <=
             tolerance * std::max(1.0L, std::fabs(expected)));
}

}  // namespace

BOOST_AUTO_TEST_CASE(relu_laws) { keeps_the_laws_in_double<pergrad::relu, shape{9}>(); }
BOOST_AUTO_TEST_CASE(tanh_laws) { keeps_the_laws_in_double<pergrad::tanh, shape{9}>(); }
BOOST_AUTO_TEST_CASE(sigmoid_laws) { keeps_the_laws_in_double<pergrad::sigmoid, shape{9}>(); }
BOOST_AUTO_TEST_CASE(softplus_laws) { keeps_the_laws_in_double<pergrad::softplus, shape{9}>(); }
BOOST_AUTO_TEST_CASE(gelu_laws) { keeps_the_laws_in_double<pergrad::gelu, shape{9}>(); }
BOOST_AUTO_TEST_CASE(gelu_tanh_laws) { keeps_the_laws<pergrad::gelu_tanh, shape{9}>(); }
BOOST_AUTO_TEST_CASE(silu_laws) { keeps_the_laws_in_double<pergrad::silu, shape{9}>(); }
BOOST_AUTO_TEST_CASE(leaky_relu_laws) { keeps_the_laws_in_double<pergrad::leaky_relu<0.2>, shape{9}>(); }
BOOST_AUTO_TEST_CASE(elu_laws) { keeps_the_laws_in_double<pergrad::elu<0.7>, shape{9}>(); }
BOOST_AUTO_TEST_CASE(one_behind_the_other) {
  keeps_the_laws<sequential<pergrad::relu, pergrad::tanh, pergrad::sigmoid, pergrad::softplus, pergrad::gelu>,
                 shape{9}>();
  keeps_the_laws<sequential<pergrad::leaky_relu<>, pergrad::silu, pergrad::elu<>>, shape{9}>();
}
BOOST_AUTO_TEST_CASE(on_an_image_inside_a_halo) {
  keeps_the_laws<sequential<pergrad::relu, conv2d<2, 3, padding<2>>, pergrad::tanh>, shape{3, 4, 5}>();
}
#ifdef PERGRAD_LONG_TESTS
BOOST_AUTO_TEST_CASE(on_positions) { keeps_the_laws_in_double<pergrad::gelu, shape{3, 5}>(); }
BOOST_AUTO_TEST_CASE(on_four_axes) { keeps_the_laws_in_double<pergrad::softplus, shape{2, 2, 3, 2}>(); }
#endif

BOOST_AUTO_TEST_CASE(relu_values) {
  const auto y = respond_to<pergrad::relu>({-1, -0.0, 0.0, tiny, 2, infinity, -infinity, not_a_number});
  const std::vector<double> values{0, 0, 0, tiny, 2, infinity, 0};
  const std::vector<double> slopes{0, 0, 0, 1, 1, 1, 0};
  for (std::size_t i = 0; i < values.size(); ++i) {
    BOOST_TEST(y.output[i] == values[i]);
    BOOST_TEST(y.input_gradient[i] == slopes[i]);
  }
  BOOST_TEST(std::isnan(y.output[7]));
}

BOOST_AUTO_TEST_CASE(leaky_relu_and_elu_values) {
  const std::vector<double> x{-4, -0.0, 0.0, tiny, 2, infinity, -infinity, -tiny, not_a_number};
  const auto leaky = respond_to<pergrad::leaky_relu<0.25>>(x);
  const auto elu = respond_to<pergrad::elu<0.5>>(x);
  const std::vector<double> leaky_values{-1, 0, 0, tiny, 2, infinity, -infinity, 0};
  const std::vector<double> leaky_slopes{0.25, 0.25, 0.25, 1, 1, 1, 0.25, 0.25};
  const std::vector<double> elu_values{std::expm1(-4.0) / 2, 0, 0, tiny, 2, infinity, -0.5, 0};
  const std::vector<double> elu_slopes{std::exp(-4.0) / 2, 0.5, 0.5, 1, 1, 1, 0, 0.5};
  for (std::size_t i = 0; i < leaky_values.size(); ++i) {
    BOOST_TEST(leaky.output[i] == leaky_values[i]);
    BOOST_TEST(leaky.input_gradient[i] == leaky_slopes[i]);
    BOOST_TEST((elu.output[i] == elu_values[i] || std::fabs(elu.output[i] - elu_values[i]) < 2e-16));
    close(elu.input_gradient[i], static_cast<long double>(elu_slopes[i]));
  }
  BOOST_TEST(std::isnan(leaky.output.back()));
  BOOST_TEST(std::isnan(elu.output.back()));
  BOOST_TEST((respond_to<pergrad::leaky_relu<0.0>>({-3, 3}).output == std::vector<double>{0, 3}));
}
// Networks whose constants differ are different networks to a file.
BOOST_AUTO_TEST_CASE(constants_are_settings) {
  BOOST_TEST((pergrad::leaky_relu<>::settings() == pergrad::leaky_relu<0.01>::settings()));
  BOOST_TEST((pergrad::leaky_relu<>::settings() != pergrad::leaky_relu<0.02>::settings()));
  BOOST_TEST((pergrad::elu<>::settings() == pergrad::elu<1.0>::settings()));
}

BOOST_AUTO_TEST_CASE(values_and_slopes_against_long_double) {
  const std::vector<double> x{-30, -3.5, -0.7, -1e-9, 0, 1e-9, 0.3, 2.25, 17};
  const auto tanh = respond_to<pergrad::tanh>(x);
  const auto sigmoid = respond_to<pergrad::sigmoid>(x);
  const auto softplus = respond_to<pergrad::softplus>(x);
  const auto gelu = respond_to<pergrad::gelu>(x);
  const auto gelu_tanh = respond_to<pergrad::gelu_tanh>(x);
  const auto silu = respond_to<pergrad::silu>(x);
  const auto leaky = respond_to<pergrad::leaky_relu<>>(x);
  const auto elu = respond_to<pergrad::elu<1.5>>(x);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto z = static_cast<long double>(x[i]);
    const long double s = 1 / (1 + std::exp(-z));
    close(tanh.output[i], std::tanh(z));
    close(tanh.input_gradient[i], 1 - std::tanh(z) * std::tanh(z));
    close(sigmoid.output[i], s);
    close(sigmoid.input_gradient[i], s * (1 - s));
    close(softplus.output[i], std::max(z, 0.0L) + std::log1p(std::exp(-std::fabs(z))));
    close(softplus.input_gradient[i], s);
    close(silu.output[i], z * s);
    close(silu.input_gradient[i], s + z * s * (1 - s));
    close(leaky.output[i], z > 0 ? z : z * static_cast<long double>(0.01));
    close(leaky.input_gradient[i], z > 0 ? 1 : static_cast<long double>(0.01));
    close(elu.output[i], z > 0 ? z : 1.5L * std::expm1(z));
    close(elu.input_gradient[i], z > 0 ? 1 : 1.5L * std::exp(z));
    const long double root = std::sqrt(2 / std::acos(-1.0L));
    const long double t = std::tanh(root * (z + 0.044715L * z * z * z));
    // An error of t counts x times, and x u' times.
    close(gelu_tanh.output[i], z * (1 + t) / 2, 2e-15L);
    close(gelu_tanh.input_gradient[i], (1 + t) / 2 + z * (1 - t * t) * root * (1 + 3 * 0.044715L * z * z) / 2, 4e-15L);
    const long double cdf = std::erfc(-z / std::sqrt(2.0L)) / 2;
    close(gelu.output[i], z * cdf);
    close(gelu.input_gradient[i], cdf + z * std::exp(-z * z / 2) / std::sqrt(2 * std::acos(-1.0L)));
  }
}

BOOST_AUTO_TEST_CASE(ends_of_the_range) {
  const std::vector<double> x{infinity, -infinity, 1e300, -1e300};
  const auto tanh = respond_to<pergrad::tanh>(x);
  const auto sigmoid = respond_to<pergrad::sigmoid>(x);
  const auto softplus = respond_to<pergrad::softplus>(x);
  BOOST_TEST(tanh.output == (std::vector<double>{1, -1, 1, -1}), boost::test_tools::per_element());
  BOOST_TEST(sigmoid.output == (std::vector<double>{1, 0, 1, 0}), boost::test_tools::per_element());
  BOOST_TEST(softplus.output == (std::vector<double>{infinity, 0, 1e300, 0}), boost::test_tools::per_element());
  for (const double slope : tanh.input_gradient) BOOST_TEST(slope == 0);
  const auto gelu_tanh = respond_to<pergrad::gelu_tanh>({infinity, 1e300, -1e300});
  BOOST_TEST(gelu_tanh.output == (std::vector<double>{infinity, 1e300, 0}), boost::test_tools::per_element());
  BOOST_TEST(gelu_tanh.input_gradient == (std::vector<double>{1, 1, 0}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(nan_stays_nan) {
  for (const double y :
       {respond_to<pergrad::relu>({not_a_number}).output[0], respond_to<pergrad::tanh>({not_a_number}).output[0],
        respond_to<pergrad::sigmoid>({not_a_number}).output[0], respond_to<pergrad::softplus>({not_a_number}).output[0],
        respond_to<pergrad::gelu>({not_a_number}).output[0], respond_to<pergrad::silu>({not_a_number}).output[0],
        respond_to<pergrad::gelu_tanh>({not_a_number}).output[0]}) {
    BOOST_TEST(std::isnan(y));
  }
}

BOOST_AUTO_TEST_CASE(signs_of_zero) {
  BOOST_TEST(!std::signbit(respond_to<pergrad::tanh>({0.0}).output[0]));
  BOOST_TEST(std::signbit(respond_to<pergrad::tanh>({-0.0}).output[0]));
  BOOST_TEST(respond_to<pergrad::sigmoid>({-0.0}).output[0] == 0.5);
}

BOOST_AUTO_TEST_SUITE_END()
