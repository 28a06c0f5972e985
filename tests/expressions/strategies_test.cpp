// SPDX-License-Identifier: Apache-2.0
// tests/expressions/strategies_test.cpp - norm methods and strategies of the papers are other roads to the same
// numbers.
#include <boost/mpl/list.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>

#include "fixture.hpp"

BOOST_AUTO_TEST_SUITE(expressions_strategies)

namespace {

using namespace fixture;
using problems = boost::mpl::list<cnn_problem, mlp_problem>;
constexpr double tight = 1e-12;

/// Calls f(gradients, name) for every method and every strategy.
template <class Gradients, class Function>
void for_each_way(const Gradients& g, Function&& f) {
  using enum pg::norm_method;
  f(pg::with_method<automatic>(g), "automatic");
  f(pg::with_method<product>(g), "product");
  f(pg::with_method<gram>(g), "gram");
  f(pg::with_method<direct>(g), "direct");
  f(pg::with_method<instantiate>(g), "instantiate");
  f(pg::with_strategy<pg::strategy::book_keeping>(g), "book_keeping");
  f(pg::with_strategy<pg::strategy::naive>(g), "naive");
  f(pg::with_strategy<pg::strategy::multi>(g), "multi");
  f(pg::with_strategy<pg::strategy::crb>(g), "crb");
  f(pg::with_strategy<pg::strategy::ghost>(g), "ghost");
  f(pg::with_strategy<pg::strategy::ghost>(pg::with_method<gram>(g)), "ghost with gram");
  f(pg::with_strategy<pg::strategy::ghost>(pg::with_method<product>(g)), "ghost with product");
}

/// Gradients of two samples are more than the cache holds: the larger convolution's are formed last,
/// each sample's in the same room.
using wide_cnn =
    pg::basic_network<double, pg::shape{64, 6, 6}, pg::conv2d<64, 3, pg::padding<1>>, pg::tanh,
                      pg::conv2d<128, 3, pg::padding<1>>, pg::tanh, pg::conv2d<8, 3>, pg::flatten, pg::linear<3>>;
using wide_problem = problem<wide_cnn, pg::cross_entropy>;
static_assert(std::ranges::count_if(pg::on_host::program<wide_cnn>::table.outer,
                                    [](const auto& leaf) { return leaf.late; }) == 1);
static_assert(pg::on_host::program<wide_cnn>::table.outer[1].late);

}  // namespace

BOOST_AUTO_TEST_CASE_TEMPLATE(all_ways_give_the_same_norms_and_sums, Problem, problems) {
  Problem p{35};
  const auto g = p.gradients();
  constexpr std::size_t width = Problem::parameter_count;
  const auto rows = p.rows();
  std::vector<double> norms;
  for (std::size_t b = 0; b < 35; ++b) norms.push_back(static_cast<double>(norm_of(row_of(rows, width, b))));
  auto sorted = norms;
  std::sort(sorted.begin(), sorted.end());
  const pg::l2_clip_norm bound{sorted[17]};
  std::vector<double> list(35);
  for (std::size_t b = 0; b < 35; ++b) list[b] = b % 5 == 0 ? 0 : std::cos(static_cast<double>(b));
  const auto flat = weighted(rows, width, [&](std::size_t b) { return std::min(1.0, bound.value() / norms[b]); });
  const auto normal = weighted(rows, width, [&](std::size_t b) { return bound.value() / (norms[b] + 0.01); });
  const auto by_list = weighted(rows, width, [&](std::size_t b) { return list[b]; });
  const auto plain = weighted(rows, width, [](std::size_t) { return 1.0; });
  const auto per_layer_rows = pg::unprotected::evaluate(p.exec, pg::materialise(pg::clip_per_layer(g, bound)));
  const auto per_layer = weighted(per_layer_rows, width, [](std::size_t) { return 1.0; });
  const auto second = pg::unprotected::evaluate(p.exec, pg::second_moment(g));

  for_each_way(g, [&](const auto& h, const std::string& way) {
    check_close(pg::unprotected::evaluate(p.exec, pg::l2_norms(h)), norms, tight, way + ": l2_norms");
    check_close(pg::unprotected::evaluate(p.exec, pg::materialise(h)), rows, tight, way + ": materialise");
    check_close(pg::unprotected::evaluate(p.exec, pg::sum(h)), plain, tight, way + ": sum");
    check_close(pg::unprotected::evaluate(p.exec, pg::sum(pg::clip(h, bound))), flat, tight, way + ": clip");
    check_close(pg::unprotected::evaluate(p.exec, pg::sum(pg::normalise(h, bound))), normal, tight,
                way + ": normalise");
    check_close(pg::unprotected::evaluate(p.exec, pg::sum(pg::clip_per_layer(h, bound))), per_layer, tight,
                way + ": clip_per_layer");
    check_close(pg::unprotected::evaluate(p.exec, pg::weighted_sum(h, list)), by_list, tight, way + ": weighted_sum");
    check_close(pg::unprotected::evaluate(p.exec, pg::second_moment(h)), second, tight, way + ": second_moment");
  });
}

// One evaluation of many sums gives what evaluations of one each give, however the work is arranged.
BOOST_AUTO_TEST_CASE_TEMPLATE(sums_formed_together_do_not_disturb_each_other, Problem, problems) {
  Problem p{35};
  constexpr std::size_t width = Problem::parameter_count;
  std::vector<double> list(35);
  for (std::size_t b = 0; b < 35; ++b) list[b] = b % 3 == 0 ? 0 : std::cos(static_cast<double>(b));
  const pg::l2_clip_norm bound{0.3};
  for_each_way(p.gradients(), [&](const auto& g, const std::string& way) {
    const auto by_list = pg::weighted_sum(g, list);
    const auto clipped = pg::sum(pg::clip(g, bound));
    const auto layered = pg::sum(pg::clip_per_layer(g, bound));
    const auto by_loss = pg::weighted_sum(g, pg::losses(g));
    const auto plain = pg::sum(g);
    std::vector<double> a(width), b(width), c(width), d(width), e(width), norms(35), losses(35);
    const auto check = [&](const std::string& order) {
      const std::string where = way + ", " + order + ": ";
      check_close(a, pg::unprotected::evaluate(p.exec, by_list), tight, where + "list");
      check_close(b, pg::unprotected::evaluate(p.exec, clipped), tight, where + "clip");
      check_close(c, pg::unprotected::evaluate(p.exec, layered), tight, where + "clip_per_layer");
      check_close(d, pg::unprotected::evaluate(p.exec, by_loss), tight, where + "losses");
      check_close(e, pg::unprotected::evaluate(p.exec, plain), tight, where + "sum");
      check_close(norms, pg::unprotected::evaluate(p.exec, pg::l2_norms(g)), tight, where + "l2_norms");
      check_close(losses, pg::unprotected::evaluate(p.exec, pg::losses(g)), tight, where + "losses of samples");
    };
    pg::unprotected::evaluate_into(p.exec, pg::assign(a, by_list), pg::assign(b, clipped), pg::assign(c, layered),
                                   pg::assign(d, by_loss), pg::assign(e, plain), pg::assign(norms, pg::l2_norms(g)),
                                   pg::assign(losses, pg::losses(g)));
    check("one order");
    pg::unprotected::evaluate_into(p.exec, pg::assign(losses, pg::losses(g)), pg::assign(e, plain),
                                   pg::assign(d, by_loss), pg::assign(c, layered), pg::assign(b, clipped),
                                   pg::assign(norms, pg::l2_norms(g)), pg::assign(a, by_list));
    check("the other order");
  });
}

BOOST_AUTO_TEST_CASE(methods_can_be_chosen_for_single_layers) {
  cnn_problem p{11};
  const auto g = p.gradients();
  const auto norms = pg::unprotected::evaluate(p.exec, pg::l2_norms(g));
  // Entries: conv2d 0, tanh 1, conv2d 2, sigmoid 3, conv2d 4, sum 5, max_pool2d 6, flatten 7, linear 8.
  check_close(pg::unprotected::evaluate(p.exec, pg::l2_norms(pg::with_method<pg::norm_method::gram, 0, 4>(g))), norms,
              tight, "gram for 0 and 4");
  check_close(pg::unprotected::evaluate(p.exec, pg::l2_norms(pg::with_method<pg::norm_method::product, 8>(g))), norms,
              tight, "product for 8");
  check_close(pg::unprotected::evaluate(p.exec, pg::l2_norms(pg::with_method<pg::norm_method::direct, 2>(g))), norms,
              tight, "direct for 2");
}

BOOST_AUTO_TEST_CASE(gradients_that_are_formed_late_are_the_same) {
  wide_problem p{7};
  const auto rows = p.rows();
  std::vector<double> norms;
  for (std::size_t b = 0; b < 7; ++b) norms.push_back(static_cast<double>(norm_of(row_of(rows, p.parameter_count, b))));
  const pg::l2_clip_norm bound{norms[3]};
  const auto clipped =
      weighted(rows, p.parameter_count, [&](std::size_t b) { return std::min(1.0, bound.value() / norms[b]); });
  // The clip factor leaves room for as many roundings as the norm has terms (privacy/clip.hpp).
  const double room = (static_cast<double>(p.parameter_count) + 64) * std::numeric_limits<double>::epsilon();
  for_each_way(p.gradients(), [&](const auto& g, const std::string& way) {
    check_close(pg::unprotected::evaluate(p.exec, pg::l2_norms(g)), norms, tight, way + ": l2_norms");
    check_close(pg::unprotected::evaluate(p.exec, pg::sum(pg::clip(g, bound))), clipped, tight + room, way + ": clip");
  });
  const auto sum_with = [&](std::size_t threads) {
    wide_problem same{7, threads};
    return pg::unprotected::evaluate(same.exec, pg::sum(pg::clip(same.gradients(), bound)));
  };
  check_same_bits(sum_with(1), sum_with(3), "one thread and three");
}

BOOST_AUTO_TEST_CASE(a_sample_without_finite_gradient_leaves_nothing_in_late_sums) {
  wide_problem p{7};
  auto rows = p.rows();
  const auto width = static_cast<std::ptrdiff_t>(p.parameter_count);
  std::fill_n(rows.begin() + 4 * width, width, 0.0);
  p.data.inputs[4 * decltype(p.data)::width] = std::numeric_limits<double>::infinity();
  const pg::l2_clip_norm bound{1e6};
  check_close(pg::unprotected::evaluate(p.exec, pg::sum(pg::clip(p.gradients(), bound))),
              weighted(rows, p.parameter_count, [](std::size_t) { return 1.0; }), tight, "without the fifth sample");
}

BOOST_AUTO_TEST_SUITE_END()
