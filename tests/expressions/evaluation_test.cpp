// SPDX-License-Identifier: Apache-2.0
// tests/expressions/evaluation_test.cpp - one pass whatever is asked for, chunks, the same bits on any pool of threads,
// and what is refused.
#include <boost/mpl/list.hpp>

#include <array>
#include <atomic>
#include <limits>

#include "fixture.hpp"

BOOST_AUTO_TEST_SUITE(expressions_evaluation)

namespace {

using namespace fixture;
using problems = boost::mpl::list<cnn_problem, mlp_problem>;

/// y_i = w_i x_i, counting how often samples pass.
struct counting_scale {
  static inline std::atomic<std::size_t> forwards{0};
  static inline std::atomic<std::size_t> backwards{0};
  static constexpr pg::shape output_shape(pg::shape in) { return in; }
  static constexpr std::size_t parameter_count(pg::shape in) { return in.size(); }
  template <class Scalar>
  static void forward(pg::shape in, std::span<const Scalar> w, std::span<const Scalar> x, std::span<Scalar> y) {
    ++forwards;
    for (std::size_t i = 0; i < in.size(); ++i) y[i] = w[i] * x[i];
  }
  template <class Scalar>
  static void backward(pg::shape in, std::span<const Scalar> w, std::span<const Scalar> /*x*/,
                       std::span<const Scalar> backprop, std::span<Scalar> dx) {
    ++backwards;
    for (std::size_t i = 0; i < in.size(); ++i) dx[i] = w[i] * backprop[i];
  }
  static constexpr auto factors(pg::shape in) {
    return pg::list_factors(pg::elementwise_sum(1, in.size(), {pg::source::backprop}, {pg::source::activation}));
  }
};
using counted = pg::basic_network<double, pg::shape{6}, pg::linear<8>, counting_scale, pg::tanh, pg::linear<3>>;
using counted_problem = problem<counted, pg::cross_entropy>;

template <class Function>
std::array<std::size_t, 2> count_passes(Function&& f) {
  counting_scale::forwards = counting_scale::backwards = 0;
  f();
  return {counting_scale::forwards, counting_scale::backwards};
}

}  // namespace

BOOST_AUTO_TEST_CASE(nothing_is_computed_before_evaluation_and_then_once) {
  counted_problem p{20};
  constexpr std::size_t width = counted::parameter_count;
  std::vector<double> clipped(width), plain(width), weighted(width), second(width), layered(width), norms(20),
      losses(20), both(20), outputs(60), rows(20 * width);
  using passes = std::array<std::size_t, 2>;
  BOOST_TEST((count_passes([&] {
                const auto g = p.gradients();
                static_cast<void>(pg::sum(pg::clip(g, pg::l2_clip_norm{1})));
                static_cast<void>(g[3]);
                static_cast<void>(pg::losses(g) * pg::l2_norms(g));
              }) == passes{0, 0}));
  const auto g = p.gradients();
  BOOST_TEST((count_passes([&] {
                pg::unprotected::evaluate_into(
                    p.exec, pg::assign(clipped, pg::sum(pg::clip(g, pg::l2_clip_norm{0.1}))),
                    pg::assign(plain, pg::sum(g)), pg::assign(weighted, pg::weighted_sum(g, pg::losses(g))),
                    pg::assign(second, pg::second_moment(g)),
                    pg::assign(layered, pg::sum(pg::clip_per_layer(g, pg::l2_clip_norm{0.1}))),
                    pg::assign(norms, pg::l2_norms(g)), pg::assign(losses, pg::losses(g)),
                    pg::assign(both, pg::losses(g) / pg::l2_norms(g)), pg::assign(outputs, pg::outputs(g)),
                    pg::assign(rows, pg::materialise(g)));
              }) == passes{20, 20}));
  BOOST_TEST((count_passes([&] {
                static_cast<void>(pg::unprotected::evaluate(p.exec, pg::sum(pg::clip(g, pg::l2_clip_norm{0.1}))));
              }) == passes{20, 20}));
  BOOST_TEST(
      (count_passes([&] { static_cast<void>(pg::unprotected::evaluate(p.exec, pg::variance(g))); }) == passes{20, 20}));
  BOOST_TEST((count_passes([&] { static_cast<void>(pg::unprotected::evaluate(p.exec, g[7])); }) == passes{1, 1}));
  // Losses and outputs need no gradient.
  BOOST_TEST((count_passes([&] {
                pg::unprotected::evaluate_into(p.exec, pg::assign(losses, pg::losses(g)),
                                               pg::assign(outputs, pg::outputs(g)));
              }) == passes{20, 0}));
  // The strategy that is known for its second pass has one.
  const auto ghost = pg::with_strategy<pg::strategy::ghost>(g);
  BOOST_TEST((count_passes([&] {
                static_cast<void>(pg::unprotected::evaluate(p.exec, pg::sum(pg::clip(ghost, pg::l2_clip_norm{0.1}))));
              }) == passes{40, 40}));
  check_close(clipped, pg::unprotected::evaluate(p.exec, pg::sum(pg::clip(g, pg::l2_clip_norm{0.1}))), 1e-12,
              "clipped sum of a custom layer");
}

BOOST_AUTO_TEST_CASE_TEMPLATE(results_of_one_evaluation_are_those_of_many, Problem, problems) {
  Problem p{37};
  constexpr std::size_t width = Problem::parameter_count;
  const auto g = p.gradients();
  const pg::l2_clip_norm bound{0.4};
  std::vector<double> clipped(width), plain(width), variance(width), norms(37), losses(37), dots(37);
  const std::vector<double> direction(width, 0.5);
  std::vector<double> outputs(37 * Problem::network_type::output_shape.size()), rows(37 * width);
  pg::unprotected::evaluate_into(p.exec, pg::assign(outputs, pg::outputs(g)), pg::assign(variance, pg::variance(g)),
                                 pg::assign(clipped, pg::sum(pg::clip(g, bound))), pg::assign(norms, pg::l2_norms(g)),
                                 pg::assign(plain, pg::sum(g)), pg::assign(losses, pg::losses(g)),
                                 pg::assign(rows, pg::materialise(g)), pg::assign(dots, pg::dot(g, direction)));
  check_close(clipped, pg::unprotected::evaluate(p.exec, pg::sum(pg::clip(g, bound))), 1e-12, "clip");
  check_close(plain, pg::unprotected::evaluate(p.exec, pg::sum(g)), 1e-12, "sum");
  check_close(variance, pg::unprotected::evaluate(p.exec, pg::variance(g)), 1e-12, "variance");
  check_close(norms, pg::unprotected::evaluate(p.exec, pg::l2_norms(g)), 1e-12, "l2_norms");
  check_same_bits(losses, pg::unprotected::evaluate(p.exec, pg::losses(g)), "losses");
  check_same_bits(outputs, pg::unprotected::evaluate(p.exec, pg::outputs(g)), "outputs");
  check_same_bits(rows, p.rows(), "materialise");
  check_close(dots, pg::unprotected::evaluate(p.exec, pg::dot(g, direction)), 1e-12, "dot");
}

BOOST_AUTO_TEST_CASE_TEMPLATE(chunks_add_up_to_the_whole, Problem, problems) {
  Problem p{50};
  constexpr std::size_t width = Problem::parameter_count;
  const pg::l2_clip_norm bound{0.4};
  const auto g = p.gradients();
  pg::tape<typename Problem::network_type> small{p.exec, pg::max_batch{17}, pg::max_sums{2}};
  pg::unprotected::gradient<typename Problem::network_type> total{p.exec};
  std::vector<double> clipped(width, 3.0), norms;
  std::fill(clipped.begin(), clipped.end(), 0.0);
  for (std::size_t first = 0; first < 50; first += 17) {
    const auto chunk = p.data.part(first, std::min<std::size_t>(17, 50 - first));
    const auto h = pg::per_sample_gradients(p.net, typename Problem::loss_type{}, chunk, small);
    std::vector<double> part(chunk.size());
    pg::unprotected::evaluate_into(p.exec, pg::accumulate(total, pg::sum(h)),
                                   pg::accumulate(clipped, pg::sum(pg::clip(h, bound))),
                                   pg::assign(part, pg::l2_norms(h)));
    norms.insert(norms.end(), part.begin(), part.end());
  }
  check_close(std::vector<double>(total.values().begin(), total.values().end()),
              pg::unprotected::evaluate(p.exec, pg::sum(g)), 1e-12, "sum");
  check_close(clipped, pg::unprotected::evaluate(p.exec, pg::sum(pg::clip(g, bound))), 1e-12, "clip");
  check_same_bits(norms, pg::unprotected::evaluate(p.exec, pg::l2_norms(g)), "norms");
}

BOOST_AUTO_TEST_CASE(scalars_accumulate_too) {
  mlp_problem p{8};
  const auto g = p.gradients();
  std::vector<double> losses = pg::unprotected::evaluate(p.exec, pg::losses(g));
  std::vector<double> twice = losses;
  pg::unprotected::evaluate_into(p.exec, pg::accumulate(twice, pg::losses(g)));
  for (double& value : losses) value *= 2;
  check_same_bits(twice, losses, "losses twice");
}

BOOST_AUTO_TEST_CASE_TEMPLATE(the_same_bits_again_and_on_any_number_of_threads, Problem, problems) {
  constexpr std::size_t width = Problem::parameter_count;
  constexpr std::size_t count = 67;
  struct results {
    std::vector<double> clipped, plain, layered, variance, rows, norms, gram, release;
  };
  const auto run = [&](Problem& p, const pg::host& exec) {
    results r{std::vector<double>(width),
              std::vector<double>(width),
              std::vector<double>(width),
              {},
              {},
              std::vector<double>(count),
              {},
              {}};
    const auto g = p.gradients();
    const pg::l2_clip_norm bound{0.4};
    pg::unprotected::evaluate_into(
        exec, pg::assign(r.clipped, pg::sum(pg::clip(g, bound))), pg::assign(r.plain, pg::sum(g)),
        pg::assign(r.layered, pg::sum(pg::clip_per_layer(g, bound))), pg::assign(r.norms, pg::l2_norms(g)));
    r.variance = pg::unprotected::evaluate(exec, pg::variance(g));
    r.rows = pg::unprotected::evaluate(exec, pg::materialise(g));
    r.gram = pg::unprotected::evaluate(exec, pg::gram(g));
    pg::seeded_generator generator{3};
    pg::unprotected::rehearsed_gradient<typename Problem::network_type> update{exec};
    pg::evaluate_into(
        exec, update,
        pg::sum(pg::clip(g, bound)) + pg::unaccounted::gaussian_noise(pg::noise_multiplier{1.5}, generator));
    r.release.assign(update.values().begin(), update.values().end());
    return r;
  };
  Problem p{count, 5};
  const results first = run(p, p.exec);
  const auto compare = [&](const results& r, const std::string& what) {
    check_same_bits(r.clipped, first.clipped, what + ": clip");
    check_same_bits(r.plain, first.plain, what + ": sum");
    check_same_bits(r.layered, first.layered, what + ": clip_per_layer");
    check_same_bits(r.variance, first.variance, what + ": variance");
    check_same_bits(r.rows, first.rows, what + ": materialise");
    check_same_bits(r.norms, first.norms, what + ": l2_norms");
    check_same_bits(r.gram, first.gram, what + ": gram");
    check_same_bits(r.release, first.release, what + ": noised sum");
  };
  compare(run(p, p.exec), "again");
  for (std::size_t threads = 1; threads <= 5; ++threads) {
    const pg::host other{pg::threads{threads}};
    compare(run(p, other), std::to_string(threads) + " threads on a tape for 5");
    Problem q{count, threads};
    compare(run(q, q.exec), std::to_string(threads) + " threads on a tape of their own");
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_permuted_batch_has_permuted_results, Problem, problems) {
  Problem p{43};
  constexpr std::size_t width = Problem::parameter_count;
  const pg::l2_clip_norm bound{0.4};
  const auto g = p.gradients();
  std::vector<std::uint32_t> order(43);
  for (std::uint32_t i = 0; i < 43; ++i) order[i] = i * 17 % 43;
  const pg::dataset<double, typename decltype(p.data)::target> records{
      p.data.inputs, p.data.targets, Problem::network_type::input_shape, decltype(p.data)::target_count};
  const pg::batch<typename Problem::network_type, typename Problem::loss_type> permuted{records, order};
  const auto h = pg::per_sample_gradients(p.net, typename Problem::loss_type{}, permuted, p.tape);
  const auto permute = [&](const std::vector<double>& values, std::size_t each) {
    std::vector<double> result;
    for (const std::uint32_t i : order) {
      result.insert(result.end(), values.begin() + static_cast<std::ptrdiff_t>(i * each),
                    values.begin() + static_cast<std::ptrdiff_t>((i + 1) * each));
    }
    return result;
  };
  check_same_bits(pg::unprotected::evaluate(p.exec, pg::l2_norms(h)),
                  permute(pg::unprotected::evaluate(p.exec, pg::l2_norms(g)), 1), "norms");
  check_same_bits(pg::unprotected::evaluate(p.exec, pg::losses(h)),
                  permute(pg::unprotected::evaluate(p.exec, pg::losses(g)), 1), "losses");
  check_same_bits(pg::unprotected::evaluate(p.exec, pg::materialise(h)), permute(p.rows(), width), "rows");
  check_same_bits(pg::unprotected::evaluate(p.exec, pg::materialise(pg::clip(h, bound))),
                  permute(pg::unprotected::evaluate(p.exec, pg::materialise(pg::clip(g, bound))), width),
                  "clipped rows");
  check_close(pg::unprotected::evaluate(p.exec, pg::sum(pg::clip(h, bound))),
              pg::unprotected::evaluate(p.exec, pg::sum(pg::clip(g, bound))), 1e-13, "clipped sum");
}

BOOST_AUTO_TEST_CASE_TEMPLATE(an_empty_batch, Problem, problems) {
  Problem p{0};
  constexpr std::size_t width = Problem::parameter_count;
  const auto g = p.gradients();
  const std::vector<double> zeros(width);
  const pg::l2_clip_norm bound{0.75};
  std::vector<double> overwritten(width, 7.0);
  pg::unprotected::evaluate_into(p.exec, overwritten, pg::sum(g));
  check_same_bits(overwritten, zeros, "sum");
  check_same_bits(pg::unprotected::evaluate(p.exec, pg::sum(pg::clip(g, bound))), zeros, "clip");
  check_same_bits(pg::unprotected::evaluate(p.exec, pg::sum(pg::clip_per_layer(g, bound))), zeros, "clip_per_layer");
  check_same_bits(pg::unprotected::evaluate(p.exec, pg::weighted_sum(g, pg::losses(g))), zeros, "weighted_sum");
  BOOST_TEST(pg::unprotected::evaluate(p.exec, pg::l2_norms(g)).empty());
  BOOST_TEST(pg::unprotected::evaluate(p.exec, pg::materialise(g)).empty());
  BOOST_TEST(pg::unprotected::evaluate(p.exec, pg::gram(g)).empty());
  BOOST_CHECK_THROW(static_cast<void>(pg::mean(g)), std::invalid_argument);
  BOOST_CHECK_THROW(static_cast<void>(pg::variance(g)), std::invalid_argument);
  BOOST_CHECK_THROW(static_cast<void>(pg::second_moment(g)), std::invalid_argument);
  BOOST_CHECK_THROW(static_cast<void>(g[0]), std::out_of_range);
}

BOOST_AUTO_TEST_CASE(what_does_not_fit_is_refused) {
  mlp_problem p{10, 2, 2};
  constexpr std::size_t width = mlp_problem::parameter_count;
  const auto g = p.gradients();
  std::vector<double> a(width), b(width), c(width), wrong(width + 1), scalars(10), short_scalars(9);
  const pg::l2_clip_norm bound{1};

  // More sums than the tape has room for; more than there are places.
  BOOST_CHECK_THROW(
      pg::unprotected::evaluate_into(p.exec, pg::assign(a, pg::sum(g)), pg::assign(b, pg::sum(pg::clip(g, bound))),
                                     pg::assign(c, pg::weighted_sum(g, pg::losses(g)))),
      std::invalid_argument);
  BOOST_CHECK_NO_THROW(
      pg::unprotected::evaluate_into(p.exec, pg::assign(a, pg::sum(g)), pg::assign(b, pg::sum(pg::clip(g, bound)))));
  const auto s = pg::sum(g);
  BOOST_CHECK_THROW(pg::unprotected::evaluate_into(p.exec, pg::assign(a, s), pg::assign(a, s), pg::assign(a, s),
                                                   pg::assign(a, s), pg::assign(a, s), pg::assign(a, s),
                                                   pg::assign(a, s), pg::assign(a, s), pg::assign(a, s)),
                    std::invalid_argument);

  // Destinations of another size.
  BOOST_CHECK_THROW(static_cast<void>(pg::assign(wrong, pg::sum(g))), std::invalid_argument);
  BOOST_CHECK_THROW(static_cast<void>(pg::accumulate(wrong, pg::sum(g))), std::invalid_argument);
  BOOST_CHECK_THROW(pg::unprotected::evaluate_into(p.exec, wrong, pg::sum(pg::clip(g, bound))), std::invalid_argument);
  BOOST_CHECK_THROW(pg::unprotected::evaluate_into(p.exec, short_scalars, pg::l2_norms(g)), std::invalid_argument);
  BOOST_CHECK_THROW(pg::unprotected::evaluate_into(p.exec, scalars, pg::outputs(g)), std::invalid_argument);
  BOOST_CHECK_THROW(pg::unprotected::evaluate_into(p.exec, a, pg::materialise(g)), std::invalid_argument);
  BOOST_CHECK_THROW(pg::unprotected::evaluate_into(p.exec, wrong, g[0]), std::invalid_argument);

  // Operands of another size.
  BOOST_CHECK_THROW(static_cast<void>(pg::weighted_sum(g, short_scalars)), std::invalid_argument);
  BOOST_CHECK_THROW(static_cast<void>(pg::dot(g, wrong)), std::invalid_argument);

  // Results that cannot be added to; rows twice; two directions; a row beside other results.
  std::vector<double> rows(10 * width), more_rows(10 * width), outputs(20), square(100);
  BOOST_CHECK_THROW(pg::unprotected::evaluate_into(p.exec, pg::accumulate(rows, pg::materialise(g))),
                    std::invalid_argument);
  BOOST_CHECK_THROW(pg::unprotected::evaluate_into(p.exec, pg::accumulate(a, pg::variance(g))), std::invalid_argument);
  BOOST_CHECK_THROW(pg::unprotected::evaluate_into(p.exec, pg::accumulate(outputs, pg::outputs(g))),
                    std::invalid_argument);
  BOOST_CHECK_THROW(pg::unprotected::evaluate_into(p.exec, pg::accumulate(square, pg::gram(g))), std::invalid_argument);
  BOOST_CHECK_THROW(pg::unprotected::evaluate_into(p.exec, pg::assign(rows, pg::materialise(g)),
                                                   pg::assign(more_rows, pg::materialise(g))),
                    std::invalid_argument);
  BOOST_CHECK_THROW(pg::unprotected::evaluate_into(p.exec, pg::assign(a, g[0]), pg::assign(b, pg::sum(g))),
                    std::invalid_argument);
  std::vector<double> dots(10);
  BOOST_CHECK_THROW(
      pg::unprotected::evaluate_into(p.exec, pg::assign(scalars, pg::dot(g, a)), pg::assign(dots, pg::dot(g, b))),
      std::invalid_argument);
  BOOST_CHECK_THROW(pg::unprotected::evaluate_into(p.exec, dots, pg::dot(g, a) + pg::dot(g, b)), std::invalid_argument);
}

BOOST_AUTO_TEST_CASE(gradients_of_different_evaluations_do_not_mix) {
  mlp_problem p{10};
  mlp_problem q{10};
  const auto g = p.gradients();
  const auto h = q.gradients();
  const auto other_method = pg::with_method<pg::norm_method::gram>(g);
  const auto other_strategy = pg::with_strategy<pg::strategy::multi>(g);
  std::vector<double> a(mlp_problem::parameter_count), norms(10);
  BOOST_CHECK_THROW(static_cast<void>(pg::losses(g) * pg::l2_norms(h)), std::invalid_argument);
  BOOST_CHECK_THROW(static_cast<void>(pg::weighted_sum(g, pg::losses(h))), std::invalid_argument);
  BOOST_CHECK_THROW(static_cast<void>(pg::weighted_sum(g, pg::losses(other_method))), std::invalid_argument);
  BOOST_CHECK_THROW(
      pg::unprotected::evaluate_into(p.exec, pg::assign(a, pg::sum(g)), pg::assign(norms, pg::l2_norms(h))),
      std::invalid_argument);
  BOOST_CHECK_THROW(pg::unprotected::evaluate_into(p.exec, pg::assign(a, pg::sum(g)),
                                                   pg::assign(norms, pg::l2_norms(other_strategy))),
                    std::invalid_argument);
}

// Of a tape, batches and sums are limits: none is too large, and memory follows what an evaluation can have.
BOOST_AUTO_TEST_CASE(a_tape_of_any_capacity) {
  using tables =
      pg::basic_network<double, pg::token_ids(6, 50), pg::embedding<9>, pg::mean_over_positions, pg::linear<3>>;
  using dense = pg::basic_network<double, pg::shape{6}, pg::linear<9>, pg::tanh, pg::linear<3>>;
  const pg::host exec{pg::threads{2}};
  const auto check = [&]<class Network>(const Network& net, const auto& inputs) {
    const std::vector<std::int32_t> classes{0, 2, 1};
    const pg::batch<Network, pg::cross_entropy> batch{inputs, classes};
    const auto sum_on = [&](pg::max_batch capacity, pg::max_sums sums) {
      pg::tape<Network> tape{exec, capacity, sums};
      const auto g = pg::per_sample_gradients(net, pg::cross_entropy{}, batch, tape);
      return pg::unprotected::evaluate(exec, pg::sum(pg::clip(g, pg::l2_clip_norm{0.5})));
    };
    const std::vector<double> wanted = sum_on(pg::max_batch{3}, pg::max_sums{1});
    constexpr std::size_t most = std::numeric_limits<std::size_t>::max(), half = most / 2;
    for (const std::size_t large : {std::size_t{1} << 40U, half, half + 1, most}) {
      check_close(sum_on(pg::max_batch{large}, pg::max_sums{1}), wanted, 1e-12, "batches");
    }
    for (const std::size_t large : {std::size_t{9}, std::size_t{1} << 55U, half + 1, most}) {
      check_same_bits(sum_on(pg::max_batch{3}, pg::max_sums{large}), wanted, "sums");
    }
  };
  check(dense{exec, pg::kaiming_uniform{5}}, std::vector<double>(3 * 6, 0.5));
  check(tables{exec, pg::kaiming_uniform{5}}, std::vector<std::int32_t>(3 * 6, 7));
}

BOOST_AUTO_TEST_CASE(batches_tapes_and_executors_must_fit) {
  mlp_problem p{10};
  pg::tape<mlp<double>> small{p.exec, pg::max_batch{9}};
  BOOST_CHECK_THROW(static_cast<void>(pg::per_sample_gradients(p.net, pg::mean_squared_error{}, p.batch, small)),
                    std::invalid_argument);
  const pg::host pool{pg::threads{3}};
  BOOST_CHECK_THROW(static_cast<void>(pg::unprotected::evaluate(pool, pg::sum(p.gradients()))), std::invalid_argument);
  BOOST_CHECK_THROW((pg::tape<mlp<double>>{p.exec, pg::max_batch{0}}), std::invalid_argument);
  BOOST_CHECK_THROW((pg::tape<mlp<double>>{p.exec, pg::max_batch{1}, pg::max_sums{0}}), std::invalid_argument);

  using mlp_batch = pg::batch<mlp<double>, pg::mean_squared_error>;
  using cnn_batch = pg::batch<cnn<double>, pg::cross_entropy>;
  const std::vector<double> inputs(12), targets(4);
  BOOST_CHECK_THROW((mlp_batch{inputs, std::span{targets}.first(3)}), std::invalid_argument);
  BOOST_CHECK_THROW((mlp_batch{std::span{inputs}.first(11), targets}), std::invalid_argument);
  const std::vector<double> images(2 * 84);
  for (const std::int32_t wrong : {-1, 3, 1000}) {
    const std::vector<std::int32_t> classes{0, wrong};
    BOOST_CHECK_THROW((cnn_batch{images, classes}), std::invalid_argument);
  }
  const std::vector<std::int32_t> classes{0, 2};
  BOOST_CHECK_NO_THROW((cnn_batch{images, classes}));
  const pg::dataset<double, std::int32_t> records{images, classes, pg::shape{2, 7, 6}};
  const std::vector<std::uint32_t> ids{1, 2};
  BOOST_CHECK_THROW((cnn_batch{records, ids}), std::out_of_range);
  const pg::dataset<double, std::int32_t> halves{std::span{images}.first(84), classes, pg::shape{42}};
  BOOST_CHECK_THROW((cnn_batch{halves, std::span{ids}.first(1)}), std::invalid_argument);
}

BOOST_AUTO_TEST_SUITE_END()
