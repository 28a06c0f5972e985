// SPDX-License-Identifier: Apache-2.0
// tests/layers/dropout_test.cpp - dropout: the laws in evaluation, what its bits depend on, and how many it keeps
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include <pergrad/pergrad.hpp>

#include "laws.hpp"

BOOST_AUTO_TEST_SUITE(dropout_layer)

namespace {

namespace pg = pergrad;
using layer_tests::keeps_the_laws;
using pg::basic_network;
using pg::linear;
using pg::shape;

}  // namespace

// Whatever double is meant, its fraction is the one that people mean: files hold it.
BOOST_AUTO_TEST_CASE(a_probability_is_the_simplest_fraction) {
  const auto is = [](pg::probability p, std::intmax_t numerator, std::intmax_t denominator) {
    return p.numerator == numerator && p.denominator == denominator;
  };
  for (std::intmax_t denominator = 1; denominator <= 1000; ++denominator) {
    for (std::intmax_t numerator = 0; numerator < denominator; ++numerator) {
      const std::intmax_t common = std::gcd(numerator, denominator);
      const pg::probability p{static_cast<double>(numerator) / static_cast<double>(denominator)};
      if (!is(p, numerator / common, denominator / common) || !p.holds())
        BOOST_ERROR(numerator << " / " << denominator);
    }
  }
  BOOST_TEST(is(1e-12, 1, 1'000'000'000'000));
  BOOST_TEST(is(1e-300, 0, 1));
  BOOST_TEST(is(-0.25, -1, 4));
  BOOST_TEST(is(0.1F, 1, 10));
  BOOST_TEST(is(50, 50, 1));
  for (const double wrong : {-0.25, -1e-9, 1.0, 1.5, 1e300, std::numeric_limits<double>::quiet_NaN()}) {
    BOOST_TEST(!pg::probability{wrong}.holds(), wrong);
  }
  BOOST_TEST(pg::probability{0.1}.threshold() == 429'496'729U);  // floor(2^32 / 10)
  BOOST_TEST(pg::probability{std::nextafter(1.0, 0.0)}.threshold() == 0xffff'ffffU);
  BOOST_TEST(static_cast<double>(pg::probability{0.75}.scale()) == 4.0);
}

BOOST_AUTO_TEST_CASE(laws_in_evaluation) { keeps_the_laws<pg::dropout<0.25>, shape{5, 3}>(); }

BOOST_AUTO_TEST_CASE(bits_depend_on_key_step_record_and_element_only) {
  using net = pg::network<shape{40}, linear<8>, pg::dropout<0.5>, pg::tanh, pg::dropout<0.25>, linear<3>>;
  constexpr std::size_t records_count = 50;
  const auto data = pg::testing::draw_samples<net, pg::cross_entropy>(9, records_count);
  const pg::dataset<float, std::int32_t> records{data.inputs, data.targets, net::input_shape};
  std::vector<std::uint32_t> all(records_count);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint32_t>(i);
  const std::vector<std::uint32_t> few{31, 7, 7, 44};
  const auto run = [&](std::size_t thread_count, std::span<const std::uint32_t> ids, std::uint64_t seed, int steps) {
    const pg::host exec{pg::threads{thread_count}};
    const net model{exec, pg::uniform{2, -0.5, 0.5}};
    net::tape tape{exec, pg::max_batch{records_count}};
    const pg::batch<net, pg::cross_entropy> samples{records, ids};
    pg::seeded_generator generator{seed};
    for (int i = 1; i < steps; ++i) static_cast<void>(generator.next_step());
    const auto g = pg::with_randomness(pg::per_sample_gradients(model, pg::cross_entropy{}, samples, tape), generator);
    const auto once = pg::unprotected::evaluate(exec, pg::materialise(g));
    BOOST_TEST(pg::unprotected::evaluate(exec, pg::materialise(g)) == once, boost::test_tools::per_element());
    return once;
  };
  const auto reference = run(1, all, 1, 1);
  BOOST_TEST(run(3, all, 1, 1) == reference, boost::test_tools::per_element());
  const auto part = run(2, few, 1, 1);
  constexpr std::size_t width = net::parameter_count;
  for (std::size_t i = 0; i < few.size(); ++i) {
    for (std::size_t k = 0; k < width; ++k) BOOST_TEST(part[i * width + k] == reference[few[i] * width + k]);
  }
  BOOST_TEST(run(1, all, 2, 1) != reference);
  BOOST_TEST(run(1, all, 1, 2) != reference);
}

BOOST_AUTO_TEST_CASE(keeps_the_right_share_and_scales_it) {
  using net = basic_network<double, shape{4096}, pg::dropout<0.25>, linear<2, pg::no_bias>>;
  const pg::host exec{pg::threads{1}};
  const net model{exec, pg::ones{}};
  net::tape tape{exec, pg::max_batch{64}};
  const std::vector<double> inputs(64 * 4096, 1.0);
  const std::vector<double> targets(64 * 2);
  const pg::batch<net, pg::mean_squared_error> samples{inputs, targets};
  pg::seeded_generator generator{7};
  const auto g =
      pg::with_randomness(pg::per_sample_gradients(model, pg::mean_squared_error{}, samples, tape), generator);
  const auto sums = pg::unprotected::evaluate(exec, pg::outputs(g));
  double kept = 0;
  for (std::size_t b = 0; b < 64; ++b) kept += sums[2 * b] * 0.75;
  const double share = kept / (64 * 4096);
  BOOST_TEST(std::fabs(share - 0.75) < 5 * std::sqrt(0.75 * 0.25 / (64 * 4096)));
  const auto plain = pg::unprotected::evaluate(
      exec, pg::outputs(pg::per_sample_gradients(model, pg::mean_squared_error{}, samples, tape)));
  BOOST_TEST(plain[0] == 4096);
}

BOOST_AUTO_TEST_SUITE_END()
