// SPDX-License-Identifier: Apache-2.0
// tests/expressions/allocation_test.cpp - evaluation takes nothing from the heap: every byte is reserved by tape and
// destination.
#include "counted_allocations.hpp"
#include "fixture.hpp"

BOOST_AUTO_TEST_SUITE(expressions_allocation)

namespace {

using namespace fixture;

template <class Function>
std::size_t count_allocations(Function&& f) {
  const std::size_t before = allocations;
  f();
  return allocations - before;
}

template <class Problem>
void check_problem(std::size_t threads) {
  using network = typename Problem::network_type;
  using scalar = typename Problem::scalar;
  Problem p{40, threads};
  const pg::l2_clip_norm bound{0.3};
  pg::unprotected::rehearsed_gradient<network> update{p.exec};
  pg::bounded_total<network> total{p.exec};
  pg::unprotected::gradient<network> plain{p.exec};
  pg::seeded_generator generator{5};
  std::vector<scalar> clipped(Problem::parameter_count), weights(40, scalar{0.5}), rows(40 * Problem::parameter_count),
      one(Problem::parameter_count), second(Problem::parameter_count), direction(Problem::parameter_count, scalar{1}),
      outputs(40 * network::output_shape.size());
  std::vector<double> norms(40), losses(40), dots(40);
  for (int turn = 0; turn < 3; ++turn) {
    BOOST_TEST(count_allocations([&] {
                 const auto g = p.gradients();
                 pg::evaluate_into(
                     p.exec, update,
                     pg::sum(pg::clip(g, bound)) + pg::unaccounted::gaussian_noise(pg::noise_multiplier{1}, generator));
               }) == 0U,
               "a private step allocates");
    BOOST_TEST(count_allocations([&] {
                 const auto g = p.gradients();
                 total.clear();
                 pg::evaluate_into(p.exec, pg::accumulate(total, pg::sum(pg::clip_per_layer(g, bound))));
                 pg::evaluate_into(p.exec, update,
                                   total + pg::unaccounted::gaussian_noise(pg::noise_multiplier{1}, generator));
               }) == 0U,
               "a private step in chunks allocates");
    BOOST_TEST(count_allocations([&] {
                 const auto g = p.gradients();
                 pg::unprotected::evaluate_into(p.exec, plain, pg::mean(g));
                 pg::unprotected::evaluate_into(p.exec, pg::assign(clipped, pg::sum(pg::normalise(g, bound))),
                                                pg::assign(norms, pg::l2_norms(g)), pg::assign(losses, pg::losses(g)),
                                                pg::assign(second, pg::second_moment(g)));
                 pg::unprotected::evaluate_into(p.exec, clipped, pg::weighted_sum(g, weights));
                 pg::unprotected::evaluate_into(p.exec, clipped,
                                                pg::weighted_sum(g, min(1.0, 0.5 / pg::l2_norms(g)) * pg::losses(g)));
                 pg::unprotected::evaluate_into(p.exec, dots, pg::dot(g, direction));
                 pg::unprotected::evaluate_into(p.exec, rows, pg::materialise(g));
                 pg::unprotected::evaluate_into(p.exec, rows, pg::materialise(pg::clip(g, bound)));
                 pg::unprotected::evaluate_into(p.exec, one, g[3]);
                 pg::unprotected::evaluate_into(p.exec, outputs, pg::outputs(g));
               }) == 0U,
               "an unprotected evaluation allocates");
    BOOST_TEST(count_allocations([&] {
                 const auto g = p.gradients();
                 pg::unprotected::evaluate_into(p.exec, clipped,
                                                pg::sum(pg::clip(pg::with_strategy<pg::strategy::naive>(g), bound)));
                 pg::unprotected::evaluate_into(p.exec, clipped,
                                                pg::sum(pg::clip(pg::with_strategy<pg::strategy::ghost>(g), bound)));
                 pg::unprotected::evaluate_into(p.exec, clipped,
                                                pg::sum(pg::clip(pg::with_method<pg::norm_method::gram>(g), bound)));
               }) == 0U,
               "a strategy or method allocates");
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_counter_counts) {
  BOOST_TEST(count_allocations([] {
               std::vector<double> some(3, 1.0);
               BOOST_TEST_REQUIRE(some[2] == 1.0);
             }) >= 1U);
  const pg::host exec{pg::threads{1}};
  BOOST_TEST(count_allocations([&] { pg::tape<mlp<double>> tape{exec, pg::max_batch{3}}; }) >= 5U);
}
BOOST_AUTO_TEST_CASE(convolutional_network) {
  check_problem<cnn_problem>(1);
  check_problem<cnn_problem>(3);
}
BOOST_AUTO_TEST_CASE(large_layers) {
  using large = pg::basic_network<double, pg::shape{2, 16, 16}, pg::conv2d<4, 3, pg::padding<1>>, pg::tanh, pg::flatten,
                                  pg::linear<130>, pg::tanh, pg::linear<3>>;
  static_assert(pg::on_host::program<large>::table.deferred_count == 2);
  check_problem<problem<large, pg::cross_entropy>>(1);
  check_problem<problem<large, pg::cross_entropy>>(3);
}
BOOST_AUTO_TEST_CASE(multilayer_perceptron) {
  check_problem<mlp_problem>(1);
  check_problem<mlp_problem>(3);
}

BOOST_AUTO_TEST_SUITE_END()
