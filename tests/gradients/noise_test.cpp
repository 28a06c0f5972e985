// SPDX-License-Identifier: Apache-2.0
// tests/gradients/noise_test.cpp - sensitivities, and noise that is exactly noise_multiplier times them.
#include "fixture.hpp"

BOOST_AUTO_TEST_SUITE(gradients_noise)

namespace {

using namespace fixture;

/// Loss 0 with gradient 0: what remains of a noised sum is the noise.
struct no_loss {
  template <class Scalar>
  using target = Scalar;
  static constexpr std::size_t target_count(pg::shape) noexcept { return 1; }
  static constexpr bool accepts(pg::shape) noexcept { return true; }
  template <class Scalar>
  static constexpr bool valid(pg::shape, std::span<const Scalar>) noexcept {
    return true;
  }
  template <class Scalar>
  static double evaluate(std::span<const Scalar>, std::span<const Scalar>, std::span<Scalar> dy) noexcept {
    std::fill(dy.begin(), dy.end(), Scalar{0});
    return 0;
  }
};

constexpr pg::random_purpose purpose = pg::random_purpose::gradient_noise;

/// sum + noise as add_gaussian makes it in one piece.
template <class Scalar>
std::vector<Scalar> noised(std::vector<Scalar> sum, const pg::seeded_generator& generator, std::uint64_t step,
                           double deviation) {
  pg::add_gaussian<Scalar>(generator.key(), purpose, step, 0, deviation, sum);
  return sum;
}
template <class Network>
std::vector<typename Network::scalar> values_of(const pg::private_gradient<Network>& update) {
  return {update.values().begin(), update.values().end()};
}

}  // namespace

BOOST_AUTO_TEST_CASE(sensitivities) {
  mlp_problem p{4};
  const auto g = p.gradients();
  const pg::l2_clip_norm bound{0.75};
  BOOST_TEST(pg::sum(pg::clip(g, bound)).sensitivity() == 0.75);
  BOOST_TEST(pg::clip(g, bound).sensitivity() == 0.75);
  BOOST_TEST(pg::sum(pg::normalise(g, bound)).sensitivity() == 0.75);
  BOOST_TEST(pg::sum(pg::normalise(g)).sensitivity() == 1.0);
  BOOST_TEST((pg::sum(pg::clip(g, bound)).relation() == pg::neighbouring::add_or_remove_one));
  BOOST_TEST(pg::sum(pg::clip(g, bound), pg::neighbouring::replace_one).sensitivity() == 1.5);
  BOOST_TEST((pg::sum(pg::clip(g, bound), pg::neighbouring::replace_one).relation() == pg::neighbouring::replace_one));

  const std::vector<pg::l2_clip_norm> bounds{pg::l2_clip_norm{0.3}, pg::l2_clip_norm{0.4}};
  const double layered = pg::sum(pg::clip_per_layer(g, bounds)).sensitivity();
  BOOST_TEST(layered >= 0.5);  // sqrt(0.3² + 0.4²), never rounded down
  BOOST_TEST(layered < 0.5 * (1 + 1e-14));
  BOOST_TEST(pg::sum(pg::clip_per_layer(g, bounds), pg::neighbouring::replace_one).sensitivity() == 2 * layered);
  const double equal = pg::sum(pg::clip_per_layer(g, bound)).sensitivity();
  BOOST_TEST(equal >= 0.75);
  BOOST_TEST(equal < 0.75 * (1 + 1e-14));
}

BOOST_AUTO_TEST_CASE(bounds_that_are_none_are_refused) {
  mlp_problem p{4};
  for (const double bad : {0.0, -1.0, 1e-31, std::nan(""), static_cast<double>(INFINITY)}) {
    BOOST_CHECK_THROW(pg::l2_clip_norm{bad}, std::invalid_argument);
  }
  for (const double bad : {0.0, -1.0, std::nan(""), static_cast<double>(INFINITY)}) {
    BOOST_CHECK_THROW(static_cast<void>(pg::normalise(p.gradients(), pg::l2_clip_norm{1}, bad)), std::invalid_argument);
  }
}

BOOST_AUTO_TEST_CASE(noise_is_multiplier_times_sensitivity_bit_for_bit) {
  mlp_problem p{12};
  const auto g = p.gradients();
  const pg::l2_clip_norm bound{0.2};
  pg::private_gradient<mlp<double>> update{p.exec};
  pg::seeded_generator generator{11};
  const auto check = [&](const auto& sum, const char* what) {
    const std::uint64_t step = generator.step();
    const auto expression = sum + pg::gaussian_noise(pg::noise_multiplier{1.7}, generator);
    BOOST_TEST(expression.standard_deviation() == 1.7 * sum.sensitivity());
    BOOST_TEST(generator.step() == step);  // nothing is drawn before evaluation
    pg::evaluate_into(p.exec, update, expression);
    BOOST_TEST(generator.step() == step + 1);
    check_same_bits(values_of(update),
                    noised(pg::unprotected::evaluate(p.exec, sum), generator, step, 1.7 * sum.sensitivity()), what);
  };
  check(pg::sum(pg::clip(g, bound)), "clip");
  check(pg::sum(pg::clip(g, bound), pg::neighbouring::replace_one), "clip, replace_one");
  check(pg::sum(pg::clip_per_layer(g, bound)), "clip_per_layer");
  check(pg::sum(pg::normalise(g, bound)), "normalise");

  // Divided by a public constant.
  const std::uint64_t step = generator.step();
  const auto sum = pg::sum(pg::clip(g, bound));
  pg::evaluate_into(p.exec, update,
                    (sum + pg::gaussian_noise(pg::noise_multiplier{1.7}, generator)) / pg::expected_batch_size{10});
  auto wanted = noised(pg::unprotected::evaluate(p.exec, sum), generator, step, 1.7 * 0.2);
  for (double& value : wanted) value /= 10;
  check_same_bits(values_of(update), wanted, "divided");
}

BOOST_AUTO_TEST_CASE(noise_multiplier_zero_leaves_the_sum) {
  mlp_problem p{12};
  const auto sum = pg::sum(pg::clip(p.gradients(), pg::l2_clip_norm{0.2}));
  pg::private_gradient<mlp<double>> update{p.exec};
  pg::seeded_generator generator{11};
  pg::evaluate_into(p.exec, update, sum + pg::gaussian_noise(pg::noise_multiplier{0}, generator));
  check_same_bits(values_of(update), pg::unprotected::evaluate(p.exec, sum), "no noise");
  BOOST_TEST(generator.step() == 1U);
}

BOOST_AUTO_TEST_CASE(an_empty_batch_is_noised_all_the_same) {
  mlp_problem p{0};
  pg::private_gradient<mlp<double>> update{p.exec};
  pg::seeded_generator generator{12};
  const std::vector<double> zeros(mlp<double>::parameter_count);
  pg::evaluate_into(
      p.exec, update,
      pg::sum(pg::clip(p.gradients(), pg::l2_clip_norm{0.5})) + pg::gaussian_noise(pg::noise_multiplier{2}, generator));
  check_same_bits(values_of(update), noised(zeros, generator, 0, 1.0), "an empty batch");
  // A total without any chunk, too, once it is told its sensitivity.
  pg::bounded_total<mlp<double>> total{p.exec};
  BOOST_CHECK_THROW(pg::evaluate_into(p.exec, update, total + pg::gaussian_noise(pg::noise_multiplier{2}, generator)),
                    std::logic_error);
  total.clear(0.5);
  const std::uint64_t step = generator.step();
  pg::evaluate_into(p.exec, update, total + pg::gaussian_noise(pg::noise_multiplier{2}, generator));
  check_same_bits(values_of(update), noised(zeros, generator, step, 1.0), "an empty total");
}

BOOST_AUTO_TEST_CASE(every_evaluation_draws_anew) {
  mlp_problem p{0};
  pg::private_gradient<mlp<double>> update{p.exec};
  pg::seeded_generator generator{12};
  const auto expression =
      pg::sum(pg::clip(p.gradients(), pg::l2_clip_norm{0.5})) + pg::gaussian_noise(pg::noise_multiplier{2}, generator);
  pg::evaluate_into(p.exec, update, expression);
  const auto first = values_of(update);
  pg::evaluate_into(p.exec, update, expression);
  const auto second = values_of(update);
  std::size_t equal = 0;
  for (std::size_t i = 0; i < first.size(); ++i) equal += first[i] == second[i] ? 1U : 0U;
  BOOST_TEST(equal == 0U);
}

BOOST_AUTO_TEST_CASE(a_total_of_chunks_is_noised_once) {
  mlp_problem p{50};
  const pg::l2_clip_norm bound{0.3};
  pg::bounded_total<mlp<double>> total{p.exec};
  pg::seeded_generator generator{13};
  BOOST_TEST(total.sensitivity() == 0.0);
  for (std::size_t first = 0; first < 50; first += 20) {
    const auto chunk = p.data.part(first, std::min<std::size_t>(20, 50 - first));
    const auto h = pg::per_sample_gradients(p.net, pg::mean_squared_error{}, chunk, p.tape);
    pg::evaluate_into(p.exec, pg::accumulate(total, pg::sum(pg::clip(h, bound))));
  }
  BOOST_TEST(total.sensitivity() == 0.3);
  BOOST_TEST(generator.step() == 0U);
  pg::private_gradient<mlp<double>> update{p.exec};
  pg::evaluate_into(p.exec, update, total + pg::gaussian_noise(pg::noise_multiplier{1.5}, generator));
  BOOST_TEST(generator.step() == 1U);
  check_close(
      values_of(update),
      noised(pg::unprotected::evaluate(p.exec, pg::sum(pg::clip(p.gradients(), bound))), generator, 0, 1.5 * 0.3),
      1e-13, "total");

  // Chunks that are clipped in another way would make the noise too small.
  BOOST_CHECK_THROW(static_cast<void>(pg::accumulate(total, pg::sum(pg::clip(p.gradients(), pg::l2_clip_norm{0.4})))),
                    std::logic_error);
  BOOST_CHECK_THROW(
      static_cast<void>(pg::accumulate(total, pg::sum(pg::clip(p.gradients(), bound), pg::neighbouring::replace_one))),
      std::logic_error);
  // Assigning begins again.
  pg::evaluate_into(p.exec, pg::assign(total, pg::sum(pg::clip(p.gradients(), pg::l2_clip_norm{0.4}))));
  BOOST_TEST(total.sensitivity() == 0.4);
  pg::evaluate_into(p.exec, update, total + pg::gaussian_noise(pg::noise_multiplier{0}, generator));
  check_same_bits(values_of(update),
                  pg::unprotected::evaluate(p.exec, pg::sum(pg::clip(p.gradients(), pg::l2_clip_norm{0.4}))),
                  "assigned total");
}

// clear() touches no number: what counts is that nothing of the old sum comes back.
BOOST_AUTO_TEST_CASE(a_cleared_total_is_the_empty_sum) {
  mlp_problem p{6};
  const pg::l2_clip_norm bound{0.3};
  const auto sum = pg::sum(pg::clip(p.gradients(), bound));
  const auto once = pg::unprotected::evaluate(p.exec, sum);
  pg::bounded_total<mlp<double>> total{p.exec};
  pg::private_gradient<mlp<double>> update{p.exec};
  pg::seeded_generator generator{15};
  const auto found = [&] {
    pg::evaluate_into(p.exec, update, total + pg::gaussian_noise(pg::noise_multiplier{0}, generator));
    return values_of(update);
  };
  const std::vector<double> zeros(mlp<double>::parameter_count);
  pg::evaluate_into(p.exec, pg::accumulate(total, sum));
  check_same_bits(found(), once, "added to an empty total");
  total.clear(0.3);
  check_same_bits(found(), zeros, "cleared");
  pg::evaluate_into(p.exec, pg::accumulate(total, sum));
  check_same_bits(found(), once, "added after clearing");
  static_cast<void>(pg::assign(total, sum));  // not evaluated: begun anew, and empty
  check_same_bits(found(), zeros, "assigned but not evaluated");
  // Two chunks of one evaluation: the first is assigned, the second added.
  total.clear();
  pg::tape<mlp<double>> two{p.exec, pg::max_batch{6}, pg::max_sums{2}};
  const auto twice = pg::sum(pg::clip(pg::per_sample_gradients(p.net, pg::mean_squared_error{}, p.batch, two), bound));
  pg::unprotected::evaluate_into(p.exec, pg::accumulate(total, twice), pg::accumulate(total, twice));
  auto doubled = once;
  for (double& value : doubled) value *= 2;
  check_same_bits(found(), doubled, "two chunks at once");
}

// An evaluation that throws leaves neither half a sum in a private gradient nor an old one in a total.
BOOST_AUTO_TEST_CASE(failures_leave_no_sum_behind) {
  mlp_problem p{6, 2, 1};
  const pg::l2_clip_norm bound{0.3};
  const auto sum = pg::sum(pg::clip(p.gradients(), bound));
  pg::bounded_total<mlp<double>> total{p.exec};
  pg::private_gradient<mlp<double>> update{p.exec};
  pg::seeded_generator generator{15};
  const std::vector<double> zeros(mlp<double>::parameter_count);
  pg::evaluate_into(p.exec, pg::assign(total, sum));
  // The tape has room for one sum.
  std::vector<double> other(mlp<double>::parameter_count);
  BOOST_CHECK_THROW(pg::unprotected::evaluate_into(p.exec, pg::assign(total, sum), pg::assign(other, sum)),
                    std::invalid_argument);
  pg::evaluate_into(p.exec, update, total + pg::gaussian_noise(pg::noise_multiplier{0}, generator));
  check_same_bits(values_of(update), zeros, "the total");
  pg::evaluate_into(p.exec, update, sum + pg::gaussian_noise(pg::noise_multiplier{1}, generator));
  pg::os_keyed_generator spent;
  const pg::os_keyed_generator taken{std::move(spent)};
  BOOST_CHECK_THROW(pg::evaluate_into(p.exec, update, sum + pg::gaussian_noise(pg::noise_multiplier{1}, spent)),
                    std::logic_error);
  check_same_bits(values_of(update), zeros, "the private gradient");
  // What was moved from has no memory.
  const pg::private_gradient<mlp<double>> elsewhere{std::move(update)};
  BOOST_TEST(update.values().empty());
  BOOST_CHECK_THROW(pg::evaluate_into(p.exec, update, sum + pg::gaussian_noise(pg::noise_multiplier{1}, generator)),
                    std::invalid_argument);
  pg::evaluate_into(p.exec, pg::assign(total, sum));
  BOOST_CHECK_THROW(pg::evaluate_into(p.exec, update, total + pg::gaussian_noise(pg::noise_multiplier{1}, generator)),
                    std::invalid_argument);
}

// A million coordinates of a sum of zero gradients: noise alone, cut among the threads, is what one call makes, and is
// Gaussian.
BOOST_AUTO_TEST_CASE(a_million_coordinates_of_noise) {
  using wide = pg::network<pg::shape{1000}, pg::linear<1000>>;
  problem<wide, no_loss> p{3, 3, 1};
  pg::private_gradient<wide> update{p.exec};
  pg::seeded_generator generator{14};
  const auto sum = pg::sum(pg::clip(p.gradients(), pg::l2_clip_norm{0.25}));
  check_same_bits(pg::unprotected::evaluate(p.exec, sum), std::vector<float>(wide::parameter_count), "zero gradients");
  pg::evaluate_into(p.exec, update, sum + pg::gaussian_noise(pg::noise_multiplier{3}, generator));
  check_same_bits(values_of(update), noised(std::vector<float>(wide::parameter_count), generator, 0, 0.75), "noise");
  double mean = 0;  // of a million terms: rounding is far below the standard errors
  double square = 0;
  std::size_t beyond = 0;
  for (const float value : update.values()) {
    const double z = static_cast<double>(value) / 0.75;
    mean += z;
    square += z * z;
    beyond += std::fabs(z) > 1.959963985 ? 1U : 0U;
  }
  const auto count = static_cast<double>(wide::parameter_count);
  // Five standard errors each.
  BOOST_TEST(std::fabs(mean / count) < 5 / std::sqrt(count));
  BOOST_TEST(std::fabs(square / count - 1) < 5 * std::sqrt(2 / count));
  BOOST_TEST(std::fabs(static_cast<double>(beyond) / count - 0.05) < 5 * std::sqrt(0.05 * 0.95 / count));
}

BOOST_AUTO_TEST_SUITE_END()
