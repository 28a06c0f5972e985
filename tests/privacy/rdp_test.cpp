// SPDX-License-Identifier: Apache-2.0
// tests/privacy/rdp_test.cpp - RDP of the sampled Gaussian against 60-digit values and public tables.
//
// "mpmath" rows were computed with 60 digits from the integral of Mironov, Talwar & Zhang 2019. Other rows are
// constants of public test suites, named with repository, commit and file.
#include <boost/test/unit_test.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <stdexcept>

#include <pergrad/privacy/accounting/rdp.hpp>

BOOST_AUTO_TEST_SUITE(privacy_rdp)

namespace {

namespace detail = pergrad::detail;
using pergrad::renyi_divergence;

constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();
constexpr double inf_value = std::numeric_limits<double>::infinity();

double relative(double got, double wanted) { return std::abs(got / wanted - 1); }

}  // namespace

BOOST_AUTO_TEST_CASE(one_step_equals_sixty_digit_values) {
  struct row {
    double q;
    double noise;
    double order;
    double rdp;
  };
  const std::array<row, 34> rows{{
      // mpmath
      {.01, 1, 1.25, 1.0539800509817623e-4},
      {.01, 1, 1.5, 1.2725374332744984e-4},
      {.01, 1, 2, 1.7181342207454794e-4},
      {.01, 1, 2.5, 2.1757533228188046e-4},
      {.01, 1, 4, 3.6315404891075673e-4},
      {.01, 1, 8, 8.9364390760603189e-4},
      {.01, 1, 16, 3.0878507836962446},
      {.01, 1, 32, 11.246275937048069},
      {.01, 1, 64, 27.32173187455178},
      {.01, 1, 256, 123.37677032308647},
      {.001, .7, 1.5, 4.9740550941037157e-6},
      {.001, .7, 3, 1.0262674064637646e-5},
      {.001, .7, 6.5, 6.8814661073085124e-5},
      {.04, 1.5, 3.9, 1.8332021995838586e-3},
      {.04, 1.5, 12, 7.765560381084015e-3},
      {.2, .5, 1.1, 0.20258092767130164},
      {.2, .5, 2, 1.1454723378159812},
      {.2, .5, 7.5, 13.142956254907311},
      {.5, 2, 1.5, 4.9819377632093183e-2},
      {.5, 2, 5, 0.21160515122263299},
      {.5, 2, 33.3, 3.4482144223108418},
      {.9, 4, 10.5, 0.27866243832835249},
      {1e-9, 1, 1.001, 8.60000052821973e-19},
      {1e-5, .6, 2.5, 1.8862581181164006e-9},
      // orders where signed binomial series of other implementations cancel below zero, vanish or diverge
      {.4, 12, 59.3, 3.6578999106573007e-2},
      {1e-5, 50, 1.1, 2.2004400507483443e-14},
      {.1, 1, 1.1, 8.0985684680738394e-3},
      {.001, 1.1, 512.5, 204.855599327244},
      // google/differential-privacy b5b0286, rdp_privacy_accountant_test.py, 50 steps (9 digits; exact value at 1.5)
      {.01, 2.5, 1.5, 6.50070897e-4 / 50},
      {.01, 2.5, 5, 2.18075656e-3 / 50},
      {.01, 2.5, 100, 167.416308 / 50},
      // yuxiangw/autodp 06489ea, unit_test_dp_sgd_poisson_sampling_add_remove.py
      {.01, .1, 2, 90.7896596280238},
      {.01, .1, 25, 1245.2029477229287},
      {.01, .1, 128, 6395.3585686314445},
  }};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const row& each = rows[i];
    const double got = renyi_divergence({each.q, each.noise}, each.order);
    const double tolerance = i < 28 ? 2e-13 : i < 31 ? 3e-9 : 1e-12;
    BOOST_TEST(relative(got, each.rdp) < tolerance,
               each.q << " " << each.noise << " " << each.order << ": " << got << " for " << each.rdp);
  }
}

BOOST_AUTO_TEST_CASE(no_sampling_full_sampling_no_noise) {
  BOOST_TEST(renyi_divergence({0, 1}, 5) == 0);
  BOOST_TEST(renyi_divergence({0, 0}, 5) == 0);
  BOOST_TEST(renyi_divergence({1, 2}, 5) == 0.625);
  BOOST_TEST(renyi_divergence({1, 0}, 5) == inf_value);
  BOOST_TEST(renyi_divergence({.5, 0}, 1.5) == inf_value);
  BOOST_TEST(relative(renyi_divergence({1 - 1e-9, 2}, 5), 0.625) < 1e-8);
  BOOST_TEST(relative(renyi_divergence({1 - 1e-9, 2}, 5.5), 0.6875) < 1e-8);
}

BOOST_AUTO_TEST_CASE(whole_and_real_formulas_agree) {
  constexpr unsigned seed = 20240505;
  BOOST_TEST_MESSAGE("seed " << seed);
  std::mt19937_64 engine{seed};
  std::uniform_real_distribution<double> uniform{0, 1};
  double worst = 0;
  for (int turn = 0; turn < 300; ++turn) {
    const double q = std::exp(std::log(1e-9) * uniform(engine)) * 0.999;
    const double noise = std::exp(std::log(0.1) + std::log(1000.0) * uniform(engine));
    const auto order = 2 + static_cast<std::uint64_t>(std::exp(std::log(300.0) * uniform(engine)));
    const double whole = detail::sampled_gaussian_log_moment_whole(q, noise, order);
    const double real = detail::sampled_gaussian_log_moment_real(q, noise, static_cast<double>(order));
    worst = std::max(worst, relative(real, whole));
    const double near = detail::sampled_gaussian_log_moment_real(q, noise, static_cast<double>(order) + 1e-9);
    BOOST_TEST(near > whole * (1 - 1e-12));
    BOOST_TEST(near < whole * (1 + 1e-5));
  }
  BOOST_TEST_MESSAGE("largest relative difference " << worst);
  BOOST_TEST(worst < 1e-12);
}

BOOST_AUTO_TEST_CASE(tiny_noise_is_bounded_from_above) {
  // Too long for the quadrature: the chord of ln A must be used, and it must lie above the neighbours' geometric
  // course.
  for (const double order : {1.5, 7.3, 100.25}) {
    const double below = std::floor(order);
    const pergrad::sampled_gaussian_event event{.01, .002};
    const double got = renyi_divergence(event, order) * (order - 1);
    const double lower = below == 1 ? 0 : renyi_divergence(event, below) * (below - 1);
    const double upper = renyi_divergence(event, below + 1) * below;
    BOOST_TEST(relative(got, lower + (order - below) * (upper - lower)) < 1e-12);
  }
  // Where both are possible, the chord is not below the exact value.
  for (const double order : {1.5, 2.3, 7.3}) {
    const double below = std::floor(order);
    for (const double noise : {.1, .5, 2.0}) {
      const double exact = detail::sampled_gaussian_log_moment_real(.05, noise, order);
      const double lower = detail::sampled_gaussian_log_moment_whole(.05, noise, static_cast<std::uint64_t>(below));
      const double upper = detail::sampled_gaussian_log_moment_whole(.05, noise, static_cast<std::uint64_t>(below) + 1);
      BOOST_TEST(lower + (order - below) * (upper - lower) >= exact);
    }
  }
}

BOOST_AUTO_TEST_CASE(never_negative_and_monotone) {
  constexpr unsigned seed = 20240506;
  BOOST_TEST_MESSAGE("seed " << seed);
  std::mt19937_64 engine{seed};
  std::uniform_real_distribution<double> uniform{0, 1};
  for (int turn = 0; turn < 400; ++turn) {
    const double q = std::exp(std::log(1e-12) * uniform(engine)) * 0.9;
    const double noise = std::exp(std::log(0.05) + std::log(4000.0) * uniform(engine));
    const double order = 1 + 1e-3 * std::exp(std::log(5e5) * uniform(engine));
    const double rdp = renyi_divergence({q, noise}, order);
    BOOST_TEST(rdp >= 0);
    BOOST_TEST(std::isfinite(rdp));
    BOOST_TEST(renyi_divergence({q * 1.01, noise}, order) > rdp);
    BOOST_TEST(renyi_divergence({q, noise * 1.01}, order) < rdp);
    BOOST_TEST(renyi_divergence({q, noise}, 1 + (order - 1) * 1.01) > rdp);
    BOOST_TEST(rdp <= order / (2 * noise * noise) * (1 + 1e-12));  // sampling never costs more than taking all
  }
}

BOOST_AUTO_TEST_CASE(extreme_arguments_give_numbers) {
  for (const double q : {5e-324, 1e-300, 1e-17, .5, 0.99999999999999989}) {
    for (const double noise : {1e-150, 1e-3, .03, 1.0, 1e8, 1e150}) {
      for (const double order : {1.0000000001, 1.5, 2.0, 63.7, 4000.0}) {
        const double rdp = renyi_divergence({q, noise}, order);
        BOOST_TEST(rdp >= 0, q << " " << noise << " " << order << " gives " << rdp);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(what_is_no_event_or_order_is_refused) {
  BOOST_CHECK_THROW(static_cast<void>(renyi_divergence({nan_value, 1}, 2)), std::invalid_argument);
  BOOST_CHECK_THROW(static_cast<void>(renyi_divergence({-.1, 1}, 2)), std::invalid_argument);
  BOOST_CHECK_THROW(static_cast<void>(renyi_divergence({1.1, 1}, 2)), std::invalid_argument);
  BOOST_CHECK_THROW(static_cast<void>(renyi_divergence({.1, nan_value}, 2)), std::invalid_argument);
  BOOST_CHECK_THROW(static_cast<void>(renyi_divergence({.1, -1}, 2)), std::invalid_argument);
  for (const double order : {1.0, .5, nan_value, inf_value}) {
    BOOST_CHECK_THROW(static_cast<void>(renyi_divergence({.1, 1}, order)), std::invalid_argument);
  }
  BOOST_CHECK_THROW(static_cast<void>(pergrad::epsilon_from_rdp(2, -1e-20, pergrad::delta{1e-5})),
                    std::invalid_argument);
  BOOST_CHECK_THROW(static_cast<void>(pergrad::epsilon_from_rdp(2, nan_value, pergrad::delta{1e-5})),
                    std::invalid_argument);
  BOOST_CHECK_THROW(static_cast<void>(pergrad::delta_from_rdp(1, 1, pergrad::epsilon{1})), std::invalid_argument);
}

BOOST_AUTO_TEST_CASE(conversion_has_its_clamps_and_its_inverse) {
  const pergrad::delta at{1e-5};
  BOOST_TEST(pergrad::epsilon_from_rdp(2, 0, at) == 0);
  BOOST_TEST(pergrad::epsilon_from_rdp(2, 9e-11, at) == 0);  // 1 - exp(-r) <= delta^2
  BOOST_TEST(pergrad::epsilon_from_rdp(2, 1.2e-10, at) > 0);
  BOOST_TEST(pergrad::epsilon_from_rdp(2, inf_value, at) == inf_value);
  BOOST_TEST(pergrad::epsilon_from_rdp(100, 1e-3, pergrad::delta{.9}) == 0);  // never negative
  BOOST_TEST(pergrad::delta_from_rdp(2, 0, pergrad::epsilon{0}) == 0);
  BOOST_TEST(pergrad::delta_from_rdp(2, inf_value, pergrad::epsilon{1}) == 1);
  BOOST_TEST(relative(pergrad::delta_from_rdp(2, 1e-8, pergrad::epsilon{0}), 1e-4) < 1e-8);  // sqrt(1 - exp(-r))
  for (const double order : {1.5, 8.0, 40.0}) {
    const double spent = pergrad::epsilon_from_rdp(order, .3, at);
    BOOST_TEST(relative(pergrad::delta_from_rdp(order, .3, pergrad::epsilon{spent}), at.value()) < 1e-11);
  }
  // google/differential-privacy b5b0286, rdp_privacy_accountant_test.py: RDP 1.1 at order 32
  BOOST_TEST(relative(pergrad::epsilon_from_rdp(32, 1.1, at), 1.32783806176) < 1e-11);
}

BOOST_AUTO_TEST_SUITE_END()
