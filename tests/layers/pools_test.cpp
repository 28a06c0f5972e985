// SPDX-License-Identifier: Apache-2.0
// tests/layers/pools_test.cpp - max, average and adaptive average pools in 1, 2 and 3 dimensions: the laws, and ties,
// NaN and padding
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <vector>

#include <pergrad/pergrad.hpp>

#include "derived.hpp"
#include "laws.hpp"

BOOST_AUTO_TEST_SUITE(pool_layers)

namespace {

using layer_tests::keeps_the_laws;
using layer_tests::keeps_the_laws_in_double;
using layer_tests::respond;
using pergrad::adaptive_avg_pool1d;
using pergrad::adaptive_avg_pool2d;
using pergrad::adaptive_avg_pool3d;
using pergrad::avg_pool1d;
using pergrad::avg_pool2d;
using pergrad::avg_pool3d;
using pergrad::extent;
using pergrad::max_pool1d;
using pergrad::max_pool2d;
using pergrad::max_pool3d;
using pergrad::padding;
using pergrad::sequential;
using pergrad::shape;
using pergrad::stride;

using numbers = std::vector<double>;
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

/// Executors have kernels for these.
template <class... Pools>
inline constexpr bool all_have_kernels = (pergrad::detail::has_known_rule<Pools> && ...);
static_assert(
    all_have_kernels<max_pool1d<2>, max_pool2d<2>, max_pool3d<2>, avg_pool1d<2>, avg_pool2d<2>, avg_pool3d<2>,
                     adaptive_avg_pool1d<2>, adaptive_avg_pool2d<2>, adaptive_avg_pool3d<2>, pergrad::upsample<2>>);

/// A pool as users derive it, with a part of a rule; derived.hpp has one with all of it.
struct half_the_mean : avg_pool2d<2> {
  template <class Value, class Divisor>
  static Value finish(Value sum, Divisor divisor) {
    return sum / (divisor + divisor);
  }
  template <class Value, class Divisor>
  static Value share(Value /*x*/, Value /*y*/, Value& dy, Divisor divisor) {
    return dy / (divisor + divisor);
  }
};

void equal(const numbers& computed, const numbers& expected) {
  BOOST_TEST(computed == expected, boost::test_tools::per_element());
}

}  // namespace

BOOST_AUTO_TEST_CASE(max_laws) { keeps_the_laws_in_double<max_pool2d<2>, shape{3, 5, 4}>(); }
#ifdef PERGRAD_LONG_TESTS
BOOST_AUTO_TEST_CASE(max_overlapping_laws) {
  keeps_the_laws_in_double<max_pool2d<3, stride<1, 2>, padding<1>>, shape{2, 5, 6}>();
}
BOOST_AUTO_TEST_CASE(max_of_whole_vectors_laws) {
  keeps_the_laws_in_double<max_pool2d<2>, shape{16, 4, 5}>();
  keeps_the_laws_in_double<max_pool2d<2, stride<1>>, shape{11, 4, 5}>();
}
#endif
BOOST_AUTO_TEST_CASE(average_laws) { keeps_the_laws_in_double<avg_pool2d<2, stride<1>>, shape{3, 4, 5}>(); }
#ifdef PERGRAD_LONG_TESTS
BOOST_AUTO_TEST_CASE(average_padded_laws) {
  keeps_the_laws_in_double<avg_pool2d<extent{3, 2}, padding<1>>, shape{2, 6, 5}>();
}
#endif
BOOST_AUTO_TEST_CASE(adaptive_laws) { keeps_the_laws_in_double<adaptive_avg_pool2d<2, 3>, shape{3, 5, 7}>(); }
#ifdef PERGRAD_LONG_TESTS
BOOST_AUTO_TEST_CASE(adaptive_larger_than_its_input_laws) {
  keeps_the_laws_in_double<adaptive_avg_pool2d<4>, shape{2, 3, 2}>();
}
#endif

BOOST_AUTO_TEST_CASE(one_behind_the_other) {
  keeps_the_laws<sequential<max_pool2d<2, stride<1>>, avg_pool2d<2, padding<1>>, adaptive_avg_pool2d<2, 3>>,
                 shape{3, 6, 5}>();
}
BOOST_AUTO_TEST_CASE(one_dimension_laws) {
  keeps_the_laws_in_double<sequential<max_pool1d<2, stride<1>>, avg_pool1d<3, padding<1>>, adaptive_avg_pool1d<2>>,
                           shape{3, 9}>();
}
BOOST_AUTO_TEST_CASE(three_dimensions_laws) {
  keeps_the_laws_in_double<sequential<max_pool3d<2, stride<1>, padding<1>>,
                                      avg_pool3d<extent{1, 2, 2}, padding<0, 1, 1>>, adaptive_avg_pool3d<2, 3, 1>>,
                           shape{2, 3, 3, 4}>();
}
BOOST_AUTO_TEST_CASE(a_box) {
  const auto most = respond<max_pool3d<2>, shape{1, 2, 2, 2}>({1, 2, 3, 4, 8, 7, 8, 5}, {3});
  equal(most.output, {8});
  equal(most.input_gradient, {0, 0, 0, 0, 3, 0, 0, 0});
  const auto mean = respond<avg_pool3d<2>, shape{1, 2, 2, 2}>({1, 2, 3, 4, 8, 7, 8, 7}, {8});
  equal(mean.output, {5});
  equal(mean.input_gradient, numbers(8, 1.0));
}
BOOST_AUTO_TEST_CASE(a_tie_goes_to_the_first) {
  const auto y = respond<max_pool2d<2>, shape{1, 2, 4}>({1, 1, 0, 2, 1, 1, 2, 2}, {10, 20});
  equal(y.output, {1, 2});
  equal(y.input_gradient, {10, 0, 0, 20, 0, 0, 0, 0});
}
BOOST_AUTO_TEST_CASE(zeros_of_either_sign_tie) {
  const auto y = respond<max_pool2d<extent{1, 2}>, shape{1, 1, 4}>({-0.0, 0.0, 0.0, -0.0}, {1, 1});
  equal(y.input_gradient, {1, 0, 1, 0});
}
BOOST_AUTO_TEST_CASE(a_nan_wins_and_stays) {
  for (const numbers& x :
       {numbers{not_a_number, 3, 1, 2}, numbers{3, 1, not_a_number, 2}, numbers{3, 1, 2, not_a_number}}) {
    BOOST_TEST(std::isnan(respond<max_pool2d<2>, shape{1, 2, 2}>(x, {1}).output[0]));
  }
}
BOOST_AUTO_TEST_CASE(the_first_nan_has_the_gradient) {
  const numbers x{3, not_a_number, 5, not_a_number};
  equal(respond<max_pool2d<2>, shape{1, 2, 2}>(x, {7}).input_gradient, {0, 7, 0, 0});
  equal(respond<max_pool1d<3, stride<1>>, shape{1, 4}>({1, 2, not_a_number, 9}, {10, 20}).input_gradient,
        {0, 0, 30, 0});
}
BOOST_AUTO_TEST_CASE(channels_do_not_mix) {
  // Window by window: the maximum is first, second, third or fourth, there is a tie, a NaN, nothing but -infinity.
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const std::vector<numbers> windows{{4, 1, 2, 3},         {1, 4, 2, 3}, {1, 2, 4, 3},
                                     {1, 2, 3, 4},         {1, 5, 5, 5}, {1, not_a_number, 3, 9},
                                     numbers(4, -infinity)};
  constexpr std::size_t channels = 37;  // whole vectors of every target and a rest
  numbers x(channels * 4);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = windows[i / 4 % windows.size()][i % 4];
  numbers dy(channels);
  std::iota(dy.begin(), dy.end(), 1.0);
  const auto y = respond<max_pool2d<2>, shape{channels, 2, 2}>(x, dy);
  for (std::size_t c = 0; c < channels; ++c) {
    BOOST_TEST_CONTEXT("channel " << c) {
      const auto alone = respond<max_pool2d<2>, shape{1, 2, 2}>(windows[c % windows.size()], {dy[c]});
      BOOST_TEST((y.output[c] == alone.output[0] || (std::isnan(y.output[c]) && std::isnan(alone.output[0]))));
      equal(numbers(y.input_gradient.begin() + static_cast<std::ptrdiff_t>(4 * c),
                    y.input_gradient.begin() + static_cast<std::ptrdiff_t>(4 * c + 4)),
            alone.input_gradient);
    }
  }
}
BOOST_AUTO_TEST_CASE(padding_never_wins_a_maximum) {
  const auto y = respond<max_pool2d<2, stride<2>, padding<1>>, shape{1, 2, 2}>({-1, -2, -3, -4}, {1, 2, 3, 4});
  equal(y.output, {-1, -2, -3, -4});
  equal(y.input_gradient, {1, 2, 3, 4});
}
BOOST_AUTO_TEST_CASE(infinities_are_values) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const auto y = respond<max_pool2d<extent{1, 2}>, shape{1, 1, 4}>({-infinity, -infinity, infinity, 1}, {1, 2});
  equal(y.output, {-infinity, infinity});
  equal(y.input_gradient, {1, 0, 2, 0});
}
BOOST_AUTO_TEST_CASE(averages_count_their_padding) {
  const auto y = respond<avg_pool2d<2, stride<2>, padding<1>>, shape{1, 2, 2}>({4, 8, 12, 16}, {4, 8, 12, 16});
  equal(y.output, {1, 2, 3, 4});
  equal(y.input_gradient, {1, 2, 3, 4});
}
// A pool that derives from another one and has functions of its own: they are called, and no kernel in their place.
BOOST_AUTO_TEST_CASE(functions_of_ones_own_are_called) {
  const auto sum = respond<derived::twice_the_sum, shape{1, 2, 2}>({1, 2, 3, 4}, {5});
  equal(sum.output, {20});
  equal(sum.input_gradient, {10, 10, 10, 10});
  const auto mean = respond<half_the_mean, shape{1, 2, 2}>({1, 2, 3, 6}, {8});
  equal(mean.output, {1.5});
  equal(mean.input_gradient, {1, 1, 1, 1});
}
BOOST_AUTO_TEST_CASE(adaptive_windows_overlap) {
  const auto y = respond<adaptive_avg_pool2d<1, 2>, shape{1, 1, 3}>({2, 4, 6}, {2, 4});
  equal(y.output, {3, 5});
  equal(y.input_gradient, {1, 3, 2});
}

BOOST_AUTO_TEST_SUITE_END()
