// SPDX-License-Identifier: Apache-2.0
// tests/expressions/noise_test.cpp - sensitivities, and noise that is exactly noise_multiplier times them.
#include <functional>
#include <utility>

#include "fixture.hpp"
#include "total_probe.hpp"

BOOST_AUTO_TEST_SUITE(expressions_noise)

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

/// Another loss over the same records.
struct other_loss : pg::mean_squared_error {};

template <class Network>
using rehearsal = pg::unprotected::rehearsed_gradient<Network>;
template <class Network, bool IsPrivate>
std::vector<typename Network::scalar> values_of(const pg::released_gradient<Network, IsPrivate>& update) {
  return {update.values().begin(), update.values().end()};
}
/// Evaluates into a rehearsal with noise from a seed: the same expression gives the same noise.
template <class Network, class Expression>
std::vector<typename Network::scalar> rehearsed(const pg::host& exec, const Expression& expression) {
  rehearsal<Network> update{exec};
  pg::evaluate_into(exec, update, expression);
  return values_of(update);
}

/// The noise of a step for a sum with this bound, as the release gate makes it of zeros.
template <class Scalar>
std::vector<Scalar> noise_alone(double bound, std::size_t count, double sensitivity, double sigma, std::uint64_t seed,
                                std::uint64_t step) {
  const auto grid = pg::release_grid::of(bound, count);
  pg::seeded_generator generator{seed, step};
  const pg::detail::release_gate<Scalar> gate{grid, sensitivity, pg::noise_multiplier{sigma}, 1, generator};
  std::vector<Scalar> out(count);
  for (std::size_t i = 0; i < gate.stretches(); ++i) gate.release(i, {}, out.data(), {});
  return out;
}
/// A rehearsal without noise is the sum, rounded to the grid.
template <class Network>
void check_rounded(const std::vector<double>& found, const std::vector<double>& wanted, double bound,
                   const std::string& what) {
  const auto grid = pg::release_grid::of(bound, Network::parameter_count);
  const double half = std::ldexp(0.5, grid.unit - grid.steps) * (1 + 1e-6);
  BOOST_TEST_REQUIRE(found.size() == wanted.size(), what);
  for (std::size_t i = 0; i < found.size(); ++i) BOOST_TEST(std::fabs(found[i] - wanted[i]) <= half, what);
}
/// D of a sum in one evaluation of a tape, in steps of the grid.
template <class Network>
double steps_of(double bound, int exchanged, std::size_t capacity) {
  const auto grid = pg::release_grid::of(bound, Network::parameter_count);
  return pg::sensitivity_in_steps(grid, pg::summation::of<typename Network::scalar>(capacity), exchanged);
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
  BOOST_TEST(pg::sum(pg::normalise_adaptively(g, bound)).sensitivity() == 0.75);
  BOOST_TEST(pg::sum(pg::clip(g, bound)).exchanged == 1);
  BOOST_TEST(pg::sum<pg::neighbouring::replace_one>(pg::clip(g, bound)).sensitivity() == 1.5);
  BOOST_TEST(pg::sum<pg::neighbouring::replace_one>(pg::clip(g, bound)).exchanged == 2);

  const std::vector<pg::l2_clip_norm> bounds{pg::l2_clip_norm{0.3}, pg::l2_clip_norm{0.4}};
  const double layered = pg::sum(pg::clip_per_layer(g, bounds)).sensitivity();
  BOOST_TEST(layered >= 0.5);  // sqrt(0.3² + 0.4²), never rounded down
  BOOST_TEST(layered < 0.5 * (1 + 1e-14));
  BOOST_TEST(pg::sum<pg::neighbouring::replace_one>(pg::clip_per_layer(g, bounds)).sensitivity() == 2 * layered);
  const double equal = pg::sum(pg::clip_per_layer(g, bound)).sensitivity();
  BOOST_TEST(equal >= 0.75);
  BOOST_TEST(equal < 0.75 * (1 + 1e-14));
}

BOOST_AUTO_TEST_CASE(bounds_that_are_none_are_refused) {
  mlp_problem p{4};
  for (const double bad : {0.0, -1.0, 1e-31, std::nan(""), static_cast<double>(INFINITY)}) {
    BOOST_CHECK_THROW(pg::l2_clip_norm{bad}, std::invalid_argument);
  }
  for (const double bad : {0.0, -1.0, 1e-101, std::nan(""), static_cast<double>(INFINITY)}) {
    BOOST_CHECK_THROW(static_cast<void>(pg::normalise(p.gradients(), pg::l2_clip_norm{1}, bad)), std::invalid_argument);
    BOOST_CHECK_THROW(static_cast<void>(pg::normalise_adaptively(p.gradients(), pg::l2_clip_norm{1}, bad)),
                      std::invalid_argument);
  }
}

BOOST_AUTO_TEST_CASE(noise_is_multiplier_times_sensitivity_bit_for_bit) {
  mlp_problem p{12};
  using network = mlp<double>;
  const auto g = p.gradients();
  const pg::l2_clip_norm bound{0.2};
  pg::seeded_generator generator{11};
  const auto check = [&](const auto& sum, int exchanged, const char* what) {
    const std::uint64_t step = generator.step();
    const auto expression = sum + pg::unaccounted::gaussian_noise(pg::noise_multiplier{1.7}, generator);
    BOOST_TEST(generator.step() == step);  // nothing is drawn before evaluation
    const auto released = rehearsed<network>(p.exec, expression);
    BOOST_TEST(generator.step() == step + 1);
    const double sensitivity = steps_of<network>(sum.clipped().sensitivity(), exchanged, p.tape.capacity());
    const auto noise =
        noise_alone<double>(sum.clipped().sensitivity(), network::parameter_count, sensitivity, 1.7, 11, step);
    const auto grid = pg::release_grid::of(sum.clipped().sensitivity(), network::parameter_count);
    const double grid_step = std::ldexp(1.0, grid.unit - grid.steps);
    const auto plain = pg::unprotected::evaluate(p.exec, sum);
    for (std::size_t i = 0; i < plain.size(); ++i) {
      BOOST_TEST(released[i] - noise[i] == grid_step * std::nearbyint(plain[i] / grid_step), what);
    }
    BOOST_TEST(sensitivity * grid_step >= sum.sensitivity());
    BOOST_TEST(sensitivity * grid_step < 1.001 * sum.sensitivity());
  };
  check(pg::sum(pg::clip(g, bound)), 1, "clip");
  check(pg::sum<pg::neighbouring::replace_one>(pg::clip(g, bound)), 2, "clip, replace_one");
  check(pg::sum(pg::clip_per_layer(g, bound)), 1, "clip_per_layer");
  check(pg::sum(pg::normalise(g, bound)), 1, "normalise");

  // Divided by a public constant.
  pg::seeded_generator again{11};
  pg::seeded_generator same{11};
  const auto sum = pg::sum(pg::clip(g, bound));
  const auto divided = rehearsed<network>(
      p.exec, (sum + pg::unaccounted::gaussian_noise(pg::noise_multiplier{1.7}, again)) / pg::expected_batch_size{8.0});
  const auto whole = rehearsed<network>(p.exec, sum + pg::unaccounted::gaussian_noise(pg::noise_multiplier{1.7}, same));
  for (std::size_t i = 0; i < whole.size(); ++i) BOOST_TEST(divided[i] == whole[i] / 8);
}

// Neither with a secret key nor for a gradient that may be released.
BOOST_AUTO_TEST_CASE(a_sum_without_noise_is_a_rehearsal_only) {
  mlp_problem p{12};
  const auto sum = pg::sum(pg::clip(p.gradients(), pg::l2_clip_norm{0.2}));
  pg::seeded_generator generator{11};
  const auto found =
      rehearsed<mlp<double>>(p.exec, sum + pg::unaccounted::gaussian_noise(pg::noise_multiplier{0}, generator));
  check_rounded<mlp<double>>(found, pg::unprotected::evaluate(p.exec, sum), 0.2, "no noise");
  BOOST_TEST(generator.step() == 1U);
  pg::os_keyed_generator secret;
  pg::private_gradient<mlp<double>> update{p.exec};
  BOOST_CHECK_THROW(
      pg::evaluate_into(p.exec, update, sum + pg::unaccounted::gaussian_noise(pg::noise_multiplier{0}, secret)),
      std::invalid_argument);
  check_same_bits(values_of(update), std::vector<double>(mlp<double>::parameter_count), "nothing is released");
}

BOOST_AUTO_TEST_CASE(an_empty_batch_is_noised_all_the_same) {
  mlp_problem p{0};
  using network = mlp<double>;
  rehearsal<network> update{p.exec};
  pg::seeded_generator generator{12};
  const pg::noise_multiplier two{2};
  const auto found = rehearsed<network>(p.exec, pg::sum(pg::clip(p.gradients(), pg::l2_clip_norm{0.5})) +
                                                    pg::unaccounted::gaussian_noise(two, generator));
  check_same_bits(
      found, noise_alone<double>(0.5, network::parameter_count, steps_of<network>(0.5, 1, p.tape.capacity()), 2, 12, 0),
      "an empty batch");
  // A total without any chunk, too, once it is told its bound.
  pg::bounded_total<network> total{p.exec};
  BOOST_CHECK_THROW(pg::evaluate_into(p.exec, update, total + pg::unaccounted::gaussian_noise(two, generator)),
                    std::logic_error);
  total.expect(pg::l2_clip_norm{0.5});
  const std::uint64_t step = generator.step();
  const auto of_total = rehearsed<network>(p.exec, total + pg::unaccounted::gaussian_noise(two, generator));
  const double sensitivity = pg::detail::total_probe::state(total).sensitivity();
  check_same_bits(of_total, noise_alone<double>(0.5, network::parameter_count, sensitivity, 2, 12, step),
                  "an empty total");
}

// Each generator of the operating system has a noise key of its own: what one released says nothing of another's noise.
BOOST_AUTO_TEST_CASE(noise_of_the_systems_keys_differs) {
  const pg::host exec;
  using network = mlp<double>;
  pg::bounded_total<network> nothing{exec};
  nothing.expect(pg::l2_clip_norm{0.5});
  const auto noise = [&] {
    pg::os_keyed_generator generator;
    pg::private_gradient<network> update{exec};
    pg::evaluate_into(exec, update, nothing + pg::unaccounted::gaussian_noise(pg::noise_multiplier{2}, generator));
    return values_of(update);
  };
  const auto first = noise();
  const auto second = noise();
  std::size_t equal = 0;
  for (std::size_t i = 0; i < first.size(); ++i) equal += first[i] == second[i] ? 1U : 0U;
  BOOST_TEST(equal < first.size() / 10);
}

BOOST_AUTO_TEST_CASE(every_evaluation_draws_anew) {
  mlp_problem p{0};
  pg::seeded_generator generator{12};
  const auto expression = pg::sum(pg::clip(p.gradients(), pg::l2_clip_norm{0.5})) +
                          pg::unaccounted::gaussian_noise(pg::noise_multiplier{2}, generator);
  const auto first = rehearsed<mlp<double>>(p.exec, expression);
  const auto second = rehearsed<mlp<double>>(p.exec, expression);
  std::size_t equal = 0;
  for (std::size_t i = 0; i < first.size(); ++i) equal += first[i] == second[i] ? 1U : 0U;
  BOOST_TEST(equal == 0U);
}

namespace {

/// Chunks of one data set.
struct chunked {
  mlp_problem p{50};
  pg::dataset<double, double> records{p.data.inputs, p.data.targets, pg::shape{p.data.inputs.size() / 50},
                                      p.data.targets.size() / 50};
  std::vector<std::uint32_t> ids;

  explicit chunked() {
    for (std::uint32_t i = 0; i < 50; ++i) ids.push_back(i);
  }
  [[nodiscard]] auto chunk(std::size_t first, std::size_t count) const {
    return pg::batch<mlp<double>, pg::mean_squared_error>{records, std::span{ids}.subspan(first, count)};
  }
  [[nodiscard]] auto gradients(const auto& chunk) {
    return pg::per_sample_gradients(p.net, pg::mean_squared_error{}, chunk, p.tape);
  }
};

}  // namespace

BOOST_AUTO_TEST_CASE(a_total_of_chunks_is_noised_once) {
  chunked c;
  const pg::l2_clip_norm bound{0.3};
  pg::bounded_total<mlp<double>> total{c.p.exec};
  pg::seeded_generator generator{13};
  for (std::size_t first = 0; first < 50; first += 20) {
    const auto chunk = c.chunk(first, std::min<std::size_t>(20, 50 - first));
    pg::evaluate_into(c.p.exec, pg::accumulate(total, pg::sum(pg::clip(c.gradients(chunk), bound))));
  }
  BOOST_TEST(generator.step() == 0U);
  const auto released =
      rehearsed<mlp<double>>(c.p.exec, total + pg::unaccounted::gaussian_noise(pg::noise_multiplier{0}, generator));
  BOOST_TEST(generator.step() == 1U);
  check_rounded<mlp<double>>(released, pg::unprotected::evaluate(c.p.exec, pg::sum(pg::clip(c.p.gradients(), bound))),
                             0.3, "total");

  // Chunks that are clipped in another way would make the noise too small.
  const auto all = c.chunk(0, 50);
  const auto g = c.gradients(all);
  BOOST_CHECK_THROW(pg::evaluate_into(c.p.exec, pg::accumulate(total, pg::sum(pg::clip(g, pg::l2_clip_norm{0.4})))),
                    std::logic_error);
  BOOST_CHECK_THROW(
      pg::evaluate_into(c.p.exec, pg::accumulate(total, pg::sum<pg::neighbouring::replace_one>(pg::clip(g, bound)))),
      std::logic_error);
  // Assigning begins again.
  pg::evaluate_into(c.p.exec, pg::assign(total, pg::sum(pg::clip(g, pg::l2_clip_norm{0.4}))));
  check_rounded<mlp<double>>(
      rehearsed<mlp<double>>(c.p.exec, total + pg::unaccounted::gaussian_noise(pg::noise_multiplier{0}, generator)),
      pg::unprotected::evaluate(c.p.exec, pg::sum(pg::clip(g, pg::l2_clip_norm{0.4}))), 0.4, "assigned total");
}

// A record that is in a sum twice moves it by twice the bound. Each of these ran without a word once.
BOOST_AUTO_TEST_CASE(every_record_is_in_a_sum_once) {
  chunked c;
  const pg::l2_clip_norm bound{0.3};
  pg::bounded_total<mlp<double>> total{c.p.exec};
  const auto first = c.chunk(0, 20);
  const auto second = c.chunk(20, 20);
  const auto g1 = c.gradients(first);
  const auto g2 = c.gradients(second);
  const auto add = [&](const auto& g) {
    pg::evaluate_into(c.p.exec, pg::accumulate(total, pg::sum(pg::clip(g, bound))));
  };

  // the same chunk twice; chunks in another order than the data set's
  add(g1);
  BOOST_CHECK_THROW(add(g1), std::logic_error);
  add(g2);
  BOOST_CHECK_THROW(add(g1), std::logic_error);
  // a record under another number
  BOOST_CHECK_THROW(add(c.gradients(first.numbered_from(100))), std::logic_error);
  // two losses over one batch
  total.clear();
  add(g1);
  const pg::batch<mlp<double>, other_loss> with_other_loss{c.records, std::span{c.ids}.first(20)};
  const auto other = pg::per_sample_gradients(c.p.net, other_loss{}, with_other_loss, c.p.tape);
  BOOST_CHECK_THROW(add(other), std::logic_error);
  // another data set, whose records may be the same: of these arrays when they held others
  total.clear();
  add(g1);
  const pg::dataset<double, double> then{c.p.data.inputs, c.p.data.targets, c.records.input_shape(),
                                         c.p.data.targets.size() / 50};
  std::vector<std::uint32_t> behind(20);
  std::iota(behind.begin(), behind.end(), 20U);
  BOOST_CHECK_THROW(add(c.gradients(pg::batch<mlp<double>, pg::mean_squared_error>{then, behind})), std::logic_error);
  // a batch that lists one record several times
  total.clear();
  c.ids.assign(5, 7);
  const pg::batch<mlp<double>, pg::mean_squared_error> repeated{c.records, c.ids};
  const auto five_times = c.gradients(repeated);
  BOOST_CHECK_THROW(add(five_times), std::logic_error);
  pg::private_gradient<mlp<double>> update{c.p.exec};
  pg::os_keyed_generator secret;
  BOOST_CHECK_THROW(pg::evaluate_into(c.p.exec, update,
                                      pg::sum(pg::clip(five_times, bound)) +
                                          pg::unaccounted::gaussian_noise(pg::noise_multiplier{1}, secret)),
                    std::logic_error);
  // another data set, whose records may be the same
  total.clear();
  add(g2);
  const auto copy = c.p.data.inputs;
  const pg::dataset<double, double> elsewhere{copy, c.p.data.targets, c.records.input_shape(),
                                              c.p.data.targets.size() / 50};
  std::vector<std::uint32_t> last{49};
  const pg::batch<mlp<double>, pg::mean_squared_error> stranger{elsewhere, last};
  const auto g3 = c.gradients(stranger);
  BOOST_CHECK_THROW(add(g3), std::logic_error);
}

// What a chunk is asked is asked when it is evaluated: an assignment that was made before clear() is as new as any.
BOOST_AUTO_TEST_CASE(a_chunk_is_admitted_when_it_is_evaluated) {
  chunked c;
  pg::bounded_total<mlp<double>> total{c.p.exec};
  const auto all = c.chunk(0, 50);
  const auto g = c.gradients(all);
  const auto wide = pg::accumulate(total, pg::sum(pg::clip(g, pg::l2_clip_norm{1000})));
  total.clear();
  pg::evaluate_into(c.p.exec, wide);
  BOOST_CHECK_THROW(total.expect(pg::l2_clip_norm{1}), std::logic_error);  // the bound of 1000 is known
  BOOST_CHECK_THROW(pg::evaluate_into(c.p.exec, wide), std::logic_error);  // and the records are in
  total.clear();
  total.expect(pg::l2_clip_norm{1});
  BOOST_CHECK_THROW(pg::evaluate_into(c.p.exec, wide), std::logic_error);
}

// Two assignments to one total in one evaluation: records behind the first chunk of samples were in the sum twice.
BOOST_AUTO_TEST_CASE(one_evaluation_has_one_sum_for_a_total) {
  mlp_problem p{1500};
  const auto sum = pg::sum(pg::clip(p.gradients(), pg::l2_clip_norm{0.3}));
  pg::bounded_total<mlp<double>> total{p.exec};
  BOOST_CHECK_THROW(pg::unprotected::evaluate_into(p.exec, pg::assign(total, sum), pg::assign(total, sum)),
                    std::logic_error);
  BOOST_CHECK_THROW(pg::unprotected::evaluate_into(p.exec, pg::accumulate(total, sum), pg::assign(total, sum)),
                    std::logic_error);
  pg::seeded_generator generator{15};
  const auto noise = pg::unaccounted::gaussian_noise(pg::noise_multiplier{0}, generator);
  BOOST_CHECK_THROW(static_cast<void>(rehearsed<mlp<double>>(p.exec, total + noise)), std::logic_error);
  pg::evaluate_into(p.exec, pg::assign(total, sum));  // begins anew
  check_rounded<mlp<double>>(rehearsed<mlp<double>>(p.exec, total + noise), pg::unprotected::evaluate(p.exec, sum), 0.3,
                             "after all that");
  // nor one for a released gradient
  rehearsal<mlp<double>> update{p.exec};
  BOOST_CHECK_THROW(
      pg::unprotected::evaluate_into(p.exec, pg::assign(update, sum + noise), pg::assign(update, sum + noise)),
      std::invalid_argument);
  check_same_bits(values_of(update), std::vector<double>(mlp<double>::parameter_count), "nothing is released");
}

namespace {

/// A loss that does something in the middle of an evaluation.
struct meddling_loss : pg::mean_squared_error {
  static inline std::function<void()> meddle;
  template <class Scalar>
  static double evaluate(std::span<const Scalar> y, std::span<const Scalar> targets, std::span<Scalar> dy) {
    if (meddle) std::exchange(meddle, nullptr)();
    return pg::mean_squared_error{}.evaluate(y, targets, dy);
  }
};

}  // namespace

// What the user's own code does while a sum is formed, or how it fails, gets nothing out of the total.
BOOST_AUTO_TEST_CASE(a_total_in_the_middle_of_an_evaluation) {
  using network = mlp<double>;
  problem<network, meddling_loss> p{20, 1};
  const pg::host other{pg::threads{1}};
  network::tape tape{other, pg::max_batch{20}};
  const auto g = p.gradients();
  const auto sum = pg::sum(pg::clip(g, pg::l2_clip_norm{0.3}));
  const auto elsewhere =
      pg::sum(pg::clip(pg::per_sample_gradients(p.net, meddling_loss{}, p.batch, tape), pg::l2_clip_norm{0.3}));
  pg::seeded_generator generator{15};
  const auto noise = pg::unaccounted::gaussian_noise(pg::noise_multiplier{0}, generator);
  pg::bounded_total<network> total{p.exec};
  const auto released = [&] { return rehearsed<network>(other, total + noise); };

  meddling_loss::meddle = [] { throw std::runtime_error("a loss of the user's"); };
  BOOST_CHECK_THROW(pg::evaluate_into(p.exec, pg::accumulate(total, sum)), std::runtime_error);
  BOOST_CHECK_THROW(static_cast<void>(released()), std::logic_error);
  BOOST_CHECK_THROW(pg::evaluate_into(p.exec, pg::accumulate(total, sum)), std::logic_error);

  int refused = 0;
  const auto try_it = [&](const auto& f) {
    try {
      f();
    } catch (const std::logic_error&) {
      ++refused;
    }
  };
  total.clear();
  meddling_loss::meddle = [&] {
    try_it([&] { static_cast<void>(released()); });
    try_it([&] { pg::evaluate_into(other, pg::accumulate(total, elsewhere)); });
    try_it([&] { pg::evaluate_into(other, pg::assign(total, elsewhere)); });
  };
  pg::evaluate_into(p.exec, pg::accumulate(total, sum));
  BOOST_TEST(refused == 3);
  check_rounded<network>(released(), pg::unprotected::evaluate(p.exec, sum), 0.3, "nothing came of it");

  // cleared in between: it is empty, and what is still added does not count
  meddling_loss::meddle = [&] {
    total.clear();
    try_it([&] { pg::evaluate_into(other, pg::accumulate(total, elsewhere)); });
  };
  total.clear();
  pg::evaluate_into(p.exec, pg::accumulate(total, sum));
  BOOST_TEST(refused == 4);
  BOOST_CHECK_THROW(static_cast<void>(released()), std::logic_error);
  total.expect(pg::l2_clip_norm{0.3});
  check_same_bits(released(), std::vector<double>(network::parameter_count), "empty");
}

// A total is one: no copies, and what was moved from releases nothing.
BOOST_AUTO_TEST_CASE(a_total_that_was_moved_from) {
  static_assert(!std::is_copy_constructible_v<pg::bounded_total<mlp<double>>> &&
                !std::is_copy_assignable_v<pg::bounded_total<mlp<double>>>);
  mlp_problem p{6};
  const auto sum = pg::sum(pg::clip(p.gradients(), pg::l2_clip_norm{0.3}));
  pg::seeded_generator generator{15};
  const auto noise = pg::unaccounted::gaussian_noise(pg::noise_multiplier{0}, generator);
  pg::bounded_total<mlp<double>> total{p.exec};
  pg::evaluate_into(p.exec, pg::accumulate(total, sum));
  pg::bounded_total<mlp<double>> moved{std::move(total)};
  // NOLINTBEGIN(bugprone-use-after-move)
  BOOST_CHECK_THROW(static_cast<void>(rehearsed<mlp<double>>(p.exec, total + noise)), std::invalid_argument);
  BOOST_CHECK_THROW(pg::evaluate_into(p.exec, pg::accumulate(total, sum)), std::invalid_argument);
  BOOST_CHECK_THROW(pg::evaluate_into(p.exec, pg::assign(total, sum)), std::invalid_argument);
  // NOLINTEND(bugprone-use-after-move)
  BOOST_CHECK_THROW(pg::evaluate_into(p.exec, pg::accumulate(moved, sum)), std::logic_error);  // its records came along
  check_rounded<mlp<double>>(rehearsed<mlp<double>>(p.exec, moved + noise), pg::unprotected::evaluate(p.exec, sum), 0.3,
                             "moved");
}

// Records are known by their data set and number: a data set that begins within another one is another one, and may not
// be mixed with it; the list of a batch is looked at when it is evaluated.
BOOST_AUTO_TEST_CASE(data_sets_that_overlap_and_lists_that_change) {
  chunked c;
  const pg::l2_clip_norm bound{0.3};
  pg::bounded_total<mlp<double>> total{c.p.exec};
  const auto add = [&](const auto& batch) {
    pg::evaluate_into(c.p.exec, pg::accumulate(total, pg::sum(pg::clip(c.gradients(batch), bound))));
  };
  const std::size_t width = c.records.input_shape().size();
  const std::size_t targets = c.records.targets().size() / 50;
  const pg::dataset<double, double> tail{std::span{c.p.data.inputs}.subspan(30 * width),
                                         std::span{c.p.data.targets}.subspan(30 * targets), c.records.input_shape(),
                                         targets};
  const pg::batch<mlp<double>, pg::mean_squared_error> of_tail{tail, std::span{c.ids}.first(10)};
  add(c.chunk(20, 20));
  BOOST_CHECK_THROW(add(of_tail), std::logic_error);  // records 30 to 39 again
  total.clear();
  add(of_tail);
  BOOST_CHECK_THROW(add(c.chunk(45, 5)), std::logic_error);
  // a data set of the same memory with other targets has the same records
  total.clear();
  const auto other_targets = c.p.data.targets;
  const pg::dataset<double, double> relabelled{c.p.data.inputs, other_targets, c.records.input_shape(), targets};
  add(c.chunk(0, 20));
  BOOST_CHECK_THROW(add((pg::batch<mlp<double>, pg::mean_squared_error>{relabelled, std::span{c.ids}.first(20)})),
                    std::logic_error);
  // nothing at all is no chunk of any data set
  const pg::dataset<double, double> nothing{{}, {}, c.records.input_shape(), targets};
  add(pg::batch<mlp<double>, pg::mean_squared_error>{nothing, {}});
  add(c.chunk(20, 0));
  add(c.chunk(20, 10));

  std::vector<std::uint32_t> list{30, 31, 32};
  const pg::batch<mlp<double>, pg::mean_squared_error> listed{c.records, list};
  list = {30, 31, 31};
  BOOST_CHECK_THROW(add(listed), std::logic_error);
  list = {30, 31, 50};
  BOOST_CHECK_THROW(add(listed), std::out_of_range);
  BOOST_CHECK_THROW((pg::batch<mlp<double>, pg::mean_squared_error>{c.records, list}), std::out_of_range);
}

// clear() touches no number: what counts is that nothing of the old sum comes back.
BOOST_AUTO_TEST_CASE(a_cleared_total_is_the_empty_sum) {
  mlp_problem p{6};
  const pg::l2_clip_norm bound{0.3};
  const auto sum = pg::sum(pg::clip(p.gradients(), bound));
  pg::bounded_total<mlp<double>> total{p.exec};
  pg::seeded_generator generator{15};
  const auto found = [&] {
    return rehearsed<mlp<double>>(p.exec, total + pg::unaccounted::gaussian_noise(pg::noise_multiplier{0}, generator));
  };
  const std::vector<double> zeros(mlp<double>::parameter_count);
  pg::evaluate_into(p.exec, pg::accumulate(total, sum));
  const auto once = found();
  check_rounded<mlp<double>>(once, pg::unprotected::evaluate(p.exec, sum), 0.3, "added to an empty total");
  total.clear();
  total.expect(bound);
  check_same_bits(found(), zeros, "cleared");
  pg::evaluate_into(p.exec, pg::accumulate(total, sum));
  check_same_bits(found(), once, "added after clearing");
}

// An evaluation that throws leaves neither half a sum in a private gradient nor an old one in a total.
BOOST_AUTO_TEST_CASE(failures_leave_no_sum_behind) {
  mlp_problem p{6, 2, 1};
  const pg::l2_clip_norm bound{0.3};
  const auto sum = pg::sum(pg::clip(p.gradients(), bound));
  pg::bounded_total<mlp<double>> total{p.exec};
  pg::private_gradient<mlp<double>> update{p.exec};
  pg::os_keyed_generator generator;
  const pg::noise_multiplier one{1};
  const std::vector<double> zeros(mlp<double>::parameter_count);
  pg::evaluate_into(p.exec, pg::assign(total, sum));
  // The tape has room for one sum.
  std::vector<double> other(mlp<double>::parameter_count);
  BOOST_CHECK_THROW(pg::unprotected::evaluate_into(p.exec, pg::assign(total, sum), pg::assign(other, sum)),
                    std::invalid_argument);
  BOOST_CHECK_THROW(pg::evaluate_into(p.exec, update, total + pg::unaccounted::gaussian_noise(one, generator)),
                    std::logic_error);
  BOOST_CHECK_THROW(pg::evaluate_into(p.exec, pg::accumulate(total, sum)), std::logic_error);
  pg::evaluate_into(p.exec, pg::assign(total, sum));
  pg::evaluate_into(p.exec, update, total + pg::unaccounted::gaussian_noise(one, generator));
  BOOST_TEST((values_of(update) != zeros));
  pg::os_keyed_generator spent;
  const pg::os_keyed_generator taken{std::move(spent)};
  BOOST_CHECK_THROW(pg::evaluate_into(p.exec, update, sum + pg::unaccounted::gaussian_noise(one, spent)),
                    std::logic_error);
  check_same_bits(values_of(update), zeros, "the private gradient");
  // What was moved from has no memory.
  const pg::private_gradient<mlp<double>> elsewhere{std::move(update)};
  BOOST_TEST(update.values().empty());
  BOOST_CHECK_THROW(pg::evaluate_into(p.exec, update, sum + pg::unaccounted::gaussian_noise(one, generator)),
                    std::invalid_argument);
  BOOST_CHECK_THROW(pg::evaluate_into(p.exec, update, total + pg::unaccounted::gaussian_noise(one, generator)),
                    std::invalid_argument);
}

// A million coordinates of a sum of zero gradients: noise alone, cut among the threads, is what one call makes, and is
// Gaussian.
BOOST_AUTO_TEST_CASE(a_million_coordinates_of_noise) {
  using wide = pg::network<pg::shape{1000}, pg::linear<1000>>;
  problem<wide, no_loss> p{3, 3, 1};
  pg::seeded_generator generator{14};
  const auto sum = pg::sum(pg::clip(p.gradients(), pg::l2_clip_norm{0.25}));
  check_same_bits(pg::unprotected::evaluate(p.exec, sum), std::vector<float>(wide::parameter_count), "zero gradients");
  const auto values =
      rehearsed<wide>(p.exec, sum + pg::unaccounted::gaussian_noise(pg::noise_multiplier{3}, generator));
  const double sensitivity = steps_of<wide>(0.25, 1, p.tape.capacity());
  check_same_bits(values, noise_alone<float>(0.25, wide::parameter_count, sensitivity, 3, 14, 0), "noise");
  double mean = 0;  // of a million terms: rounding is far below the standard errors
  double square = 0;
  std::size_t beyond = 0;
  const auto grid = pg::release_grid::of(0.25, wide::parameter_count);
  const double deviation = 3 * sensitivity * std::ldexp(1.0, grid.unit - grid.steps);
  for (const float value : values) {
    const double z = static_cast<double>(value) / deviation;
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
