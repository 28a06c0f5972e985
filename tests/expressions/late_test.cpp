// SPDX-License-Identifier: Apache-2.0
// tests/expressions/late_test.cpp - sums of gradients that samples form in one room by turns: each is added before the
// next one takes its place.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include "fixture.hpp"

BOOST_AUTO_TEST_SUITE(expressions_late)

namespace {

using namespace fixture;

constexpr std::size_t count = 37;
constexpr double bound = 0.05;
using scalars = std::tuple<float, double>;

/// Two convolutions whose gradients come late: outputs of one, two and three vectors, with and without a rest.
template <class Scalar, std::size_t First, std::size_t Second>
using network = pg::basic_network<Scalar, pg::shape{3, 28, 28}, pg::conv2d<First, 5, pg::stride<2>>, pg::tanh,
                                  pg::conv2d<Second, 4, pg::stride<2>>, pg::tanh, pg::flatten, pg::linear<20>, pg::tanh,
                                  pg::linear<3>>;

template <class Problem>
void check(double tolerance) {
  using network_type = typename Problem::network_type;
  using scalar = typename Problem::scalar;
  constexpr const auto& table = pg::on_host::program<network_type>::table;
  static_assert(table.has_late && table.tile > 2, "the network is too small for this test");
  constexpr std::size_t width = Problem::parameter_count;
  Problem p{count};
  Problem alone{count, 1};
  const auto g = p.gradients();
  const auto rows = p.rows();
  std::vector<double> factors;
  for (std::size_t b = 0; b < count; ++b) {
    factors.push_back(std::min(1.0, bound / static_cast<double>(norm_of(row_of(rows, width, b)))));
  }
  const auto factor = [&](std::size_t b) { return factors[b]; };
  const auto clipped = pg::unprotected::evaluate(p.exec, pg::sum(pg::clip(g, pg::l2_clip_norm{bound})));
  check_close(clipped, weighted(rows, width, factor), tolerance, "clipped");
  check_same_bits(pg::unprotected::evaluate(alone.exec, pg::sum(pg::clip(alone.gradients(), pg::l2_clip_norm{bound}))),
                  clipped, "one thread and two");

  std::vector<scalar> list(count);
  for (std::size_t b = 0; b < count; ++b) list[b] = static_cast<scalar>(b % 3 == 1 ? 0.0 : 0.25 * double(b) - 3);
  const auto wanted = weighted(rows, width, [&](std::size_t b) { return static_cast<double>(list[b]); });
  using enum pg::norm_method;
  check_close(pg::unprotected::evaluate(p.exec, pg::weighted_sum(pg::with_method<instantiate>(g), list)), wanted,
              tolerance, "some weights are 0");

  const auto by_layer = pg::unprotected::evaluate(p.exec, pg::sum(pg::clip_per_layer(g, pg::l2_clip_norm{bound})));
  check_close(by_layer,
              pg::unprotected::evaluate(p.exec, pg::sum(pg::clip_per_layer(pg::with_strategy<pg::strategy::naive>(g),
                                                                           pg::l2_clip_norm{bound}))),
              tolerance, "by layer");
}

/// Late blocks of several layers, two a direction, beside biases.
template <class Scalar>
using two_ways = pg::basic_network<Scalar, pg::shape{48, 24}, pg::lstm<40, pg::bidirectional>, pg::linear<60>, pg::tanh,
                                   pg::lstm<40, pg::bidirectional, pg::last_output>, pg::linear<3>>;

}  // namespace

BOOST_AUTO_TEST_CASE(two_vectors_of_floats) { check<problem<network<float, 16, 32>, pg::cross_entropy>>(2e-6); }
// Factors round down by what is known of the error of the norm, which is some 1e-12 of it here.
BOOST_AUTO_TEST_CASE(two_vectors_of_doubles) { check<problem<network<double, 16, 20>, pg::cross_entropy>>(1e-11); }
BOOST_AUTO_TEST_CASE(a_rest_of_columns) { check<problem<network<float, 21, 37>, pg::cross_entropy>>(2e-6); }
BOOST_AUTO_TEST_CASE(more_vectors) { check<problem<network<float, 13, 80>, pg::cross_entropy>>(2e-6); }

// A layer's squares are added up in one order, whichever sample's turn it is.
BOOST_AUTO_TEST_CASE_TEMPLATE(a_norm_does_not_depend_on_whose_turn_it_is, Scalar, scalars) {
  using problem_type = problem<two_ways<Scalar>, pg::cross_entropy>;
  constexpr const auto& table = pg::on_host::program<two_ways<Scalar>>::table;
  constexpr auto late_of = [](std::size_t node) {
    return std::ranges::count_if(table.outer, [&](const auto& leaf) { return leaf.late && leaf.node == node; });
  };
  static_assert(table.tile > 2 && late_of(0) == 2 && late_of(3) == 1 && late_of(5) == 2,
                "the network is too small for this test");
  for (std::uint32_t seed = 1; seed <= 8; ++seed) {
    problem_type p{count, 2, 1, seed};
    constexpr std::size_t width = two_ways<Scalar>::input_shape.size();
    for (std::size_t b = 1; b < count; ++b) {
      std::copy_n(p.data.inputs.data(), width, p.data.inputs.data() + b * width);
      p.data.targets[b] = p.data.targets[0];
    }
    const auto norms = pg::unprotected::evaluate(p.exec, pg::l2_norms(p.gradients()));
    check_same_bits(norms, std::vector(count, norms[0]), "norms of one sample many times");
  }
}

BOOST_AUTO_TEST_SUITE_END()
