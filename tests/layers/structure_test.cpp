// SPDX-License-Identifier: Apache-2.0
// tests/layers/structure_test.cpp - shared, frozen, grouped and parallel blocks, and layers that know lengths: the
// laws, and what the law cannot see: that sharing is exact, that frozen blocks cost no gradient, that lengths cut
// exactly
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <pergrad/pergrad.hpp>

#include "laws.hpp"

BOOST_AUTO_TEST_SUITE(structure)

namespace {

namespace pg = pergrad;
using layer_tests::keeps_the_laws;
using layer_tests::keeps_the_laws_in_double;
using layer_tests::network_keeps_the_laws;
using pg::basic_network;
using pg::linear;
using pg::shape;

template <class Network>
struct problem {
  pg::host exec{pg::threads{1}};
  Network net{exec, pg::uniform{3, -0.6, 0.6}};
  typename Network::tape tape{exec, pg::max_batch{16}};
  pg::testing::sample_set<Network, pg::cross_entropy> data;
  explicit problem(std::size_t count) : data{pg::testing::draw_samples<Network, pg::cross_entropy>(5, count)} {}
  [[nodiscard]] std::vector<typename Network::scalar> rows(const auto& samples) {
    return pg::unprotected::evaluate(
        exec, pg::materialise(pg::per_sample_gradients(net, pg::cross_entropy{}, samples, tape)));
  }
};

using twice = basic_network<double, shape{4}, pg::tied<1, linear<4>>, pg::tanh, pg::tied<1, linear<4>>, linear<3>>;
using apart = basic_network<double, shape{4}, linear<4>, pg::tanh, linear<4>, linear<3>>;

}  // namespace

BOOST_AUTO_TEST_CASE(tied_laws) { network_keeps_the_laws<twice>(); }
#ifdef PERGRAD_LONG_TESTS
BOOST_AUTO_TEST_CASE(tied_laws_in_float) { network_keeps_the_laws<twice::rebind<float>>(); }
#endif
BOOST_AUTO_TEST_CASE(tied_three_times_with_positions_and_images) {
  using sequence =
      basic_network<double, shape{3, 4}, pg::tied<7, linear<4>, pg::tanh>, pg::tied<7, linear<4>, pg::tanh>,
                    pg::tied<7, linear<4>, pg::tanh>, pg::mean_over_positions, linear<3>>;
  static_assert(sequence::parameter_count == 20 + 15);
  network_keeps_the_laws<sequence>();
  using image = basic_network<double, shape{2, 5, 4}, pg::conv2d<2, 3, pg::padding<1>>,
                              pg::residual<pg::tied<2, pg::conv2d<2, 3, pg::padding<1>>>, pg::tanh,
                                           pg::tied<2, pg::conv2d<2, 3, pg::padding<1>>>>,
                              pg::flatten, linear<3>>;
  static_assert(image::parameter_count == 2 * 38 + 3 * 41);
  network_keeps_the_laws<image>();
}

BOOST_AUTO_TEST_CASE(a_tied_gradient_is_the_sum_of_the_uses) {
  problem<twice> shared{5};
  problem<apart> separate{5};
  const auto copy = [&](std::size_t from, std::size_t to) {
    const auto values = shared.net.layer_parameters(from);
    std::copy(values.begin(), values.end(), separate.net.layer_parameters(to).begin());
  };
  copy(0, 0);
  copy(2, 2);
  copy(3, 3);
  BOOST_TEST(shared.net.layer_parameters(0).data() == shared.net.layer_parameters(2).data());
  const auto shared_rows = shared.rows(shared.data.view());
  const pg::batch<apart, pg::cross_entropy> same{shared.data.inputs, shared.data.targets};
  const auto separate_rows = separate.rows(same);
  for (std::size_t b = 0; b < 5; ++b) {
    for (std::size_t i = 0; i < 20; ++i) {
      const double sum = separate_rows[b * 55 + i] + separate_rows[b * 55 + 20 + i];
      BOOST_TEST(std::fabs(shared_rows[b * 35 + i] - sum) <= 1e-14);
    }
  }
}

BOOST_AUTO_TEST_CASE(frozen_blocks_are_not_trained) {
  using net = basic_network<double, shape{4}, linear<5>, pg::frozen<linear<4>, pg::tanh>, linear<3>>;
  using free = basic_network<double, shape{4}, linear<5>, linear<4>, pg::tanh, linear<3>>;
  static_assert(net::parameter_count == 25 + 15 && net::frozen_parameter_count == 24);
  static_assert(free::parameter_count == 25 + 24 + 15 && free::frozen_parameter_count == 0);
  network_keeps_the_laws<net>();
  problem<net> some{4};
  problem<free> all{4};
  const auto copy = [&](std::size_t from, std::size_t to) {
    const auto values = some.net.layer_parameters(from);
    std::copy(values.begin(), values.end(), all.net.layer_parameters(to).begin());
  };
  for (const std::size_t entry : {std::size_t{0}, std::size_t{1}, std::size_t{3}}) copy(entry, entry);
  const auto rows = some.rows(some.data.view());
  const pg::batch<free, pg::cross_entropy> same{some.data.inputs, some.data.targets};
  const auto all_rows = all.rows(same);
  for (std::size_t b = 0; b < 4; ++b) {
    for (std::size_t i = 0; i < 40; ++i) {
      BOOST_TEST(rows[b * 40 + i] == all_rows[b * 64 + (i < 25 ? i : i + 24)]);
    }
  }
}

BOOST_AUTO_TEST_CASE(nothing_is_computed_for_frozen_blocks_in_front) {
  using net = basic_network<double, shape{4}, pg::frozen<linear<5>, pg::tanh>, linear<3>>;
  constexpr const auto& table = pg::on_host::program<net>::table;
  static_assert(table.outer_count == 1 && !table.nodes[0].backward && !table.nodes[1].backward);
  static_assert(!table.nodes[2].input_gradient);
  network_keeps_the_laws<net>();
}

BOOST_AUTO_TEST_CASE(parallel_laws) {
  keeps_the_laws<pg::parallel<linear<2>, pg::sequential<>, pg::sequential<linear<3>, pg::tanh>>, shape{4, 3}>();
#ifdef PERGRAD_LONG_TESTS
  keeps_the_laws_in_double<pg::parallel<pg::conv2d<2, 1>, pg::sequential<>>, shape{2, 3, 3}>();
  keeps_the_laws_in_double<pg::parallel<linear<2>, pg::sequential<linear<3>, pg::tanh>>, shape{5}>();
#endif
}

BOOST_AUTO_TEST_CASE(mean_over_positions_laws) { keeps_the_laws<pg::mean_over_positions, shape{5, 3}>(); }

BOOST_AUTO_TEST_CASE(parallel_channels_laws) {
  keeps_the_laws_in_double<
      pg::sequential<pg::transpose,
                     pg::parallel_channels<pg::conv1d<2, 1>, pg::sequential<>,
                                           pg::sequential<pg::conv1d<1, 3, pg::padding<1>>, pg::tanh>>,
                     pg::transpose>,
      shape{4, 3}>();
#ifdef PERGRAD_LONG_TESTS
  keeps_the_laws_in_double<pg::parallel_channels<pg::conv2d<2, 1>, pg::sequential<>>, shape{2, 3, 3}>();
  keeps_the_laws_in_double<pg::parallel_channels<pg::conv3d<1, 1>, pg::sequential<>>, shape{2, 2, 3, 2}>();
#endif
}
BOOST_AUTO_TEST_CASE(which_axis_branches_are_joined_along) {
  using branch = pg::sequential<>;
  const std::vector<double> x{1, 2, 3, 4, 5, 6};
  const std::vector<double> backprop{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  const auto rows = layer_tests::respond<pg::parallel<branch, branch>, shape{2, 3}>(x, backprop);
  BOOST_TEST(rows.output == (std::vector<double>{1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6}),
             boost::test_tools::per_element());
  BOOST_TEST(rows.input_gradient == (std::vector<double>{5, 7, 9, 17, 19, 21}), boost::test_tools::per_element());
  const auto channels = layer_tests::respond<pg::parallel_channels<branch, branch>, shape{2, 3}>(x, backprop);
  BOOST_TEST(channels.output == (std::vector<double>{1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6}),
             boost::test_tools::per_element());
  BOOST_TEST(channels.input_gradient == (std::vector<double>{8, 10, 12, 14, 16, 18}), boost::test_tools::per_element());
  static_assert(basic_network<double, shape{2, 3}, pg::parallel<branch, branch>>::output_shape == shape{2, 6});
  static_assert(basic_network<double, shape{2, 3}, pg::parallel_channels<branch, branch>>::output_shape == shape{4, 3});
}

BOOST_AUTO_TEST_CASE(nothing_behind_a_length_of_channels_exists) {
  using joined = pg::parallel_channels<pg::conv1d<2, 3>, pg::sequential<pg::conv1d<3, 3>, pg::tanh>>;
  layer_tests::keeps_the_law_of_lengths<basic_network<double, pg::variable(shape{6, 3}), linear<4>, pg::transpose,
                                                      joined, pg::transpose, pg::mean_over_positions>>();
}

BOOST_AUTO_TEST_CASE(a_residual_of_convolutions_keeps_lengths) {
  using shorter = pg::residual<pg::conv1d<4, 2>, pg::tanh, pg::projection<pg::conv1d<4, 2>>>;
  layer_tests::keeps_the_law_of_lengths<
      basic_network<double, pg::variable(shape{6, 3}), linear<4>, pg::transpose,
                    pg::residual<pg::conv1d<4, 3, pg::padding<1>>, pg::tanh>, shorter, pg::residual<pg::conv1d<4, 1>>,
                    pg::transpose, pg::mean_over_positions, linear<3>>>();
}

BOOST_AUTO_TEST_CASE(lengths_laws) {
  network_keeps_the_laws<basic_network<double, pg::variable(shape{5, 3}), linear<4>, pg::tanh,
                                       pg::residual<linear<4>, pg::sigmoid>, pg::mean_over_positions, linear<3>>>();
}

BOOST_AUTO_TEST_CASE(what_lies_beyond_a_length_does_not_exist) {
  using net = basic_network<double, pg::variable(shape{6, 3}), linear<4>, pg::tanh, linear<2>, pg::mean_over_positions,
                            linear<3>>;
  using cut = basic_network<double, shape{2, 3}, linear<4>, pg::tanh, linear<2>, pg::mean_over_positions, linear<3>>;
  problem<net> whole{3};
  whole.data.lengths = {2, 6, 1};
  const auto before = whole.rows(whole.data.view());
  for (std::size_t i = 2 * 3; i < 6 * 3; ++i) whole.data.input(0)[i] = std::numeric_limits<double>::quiet_NaN();
  for (std::size_t i = 3; i < 6 * 3; ++i) whole.data.input(2)[i] = 1e300;
  BOOST_TEST(whole.rows(whole.data.view()) == before, boost::test_tools::per_element());

  problem<cut> short_one{1};
  const auto values = whole.net.parameters();
  std::copy(values.begin(), values.end(), short_one.net.parameters().begin());
  const std::vector<double> first(whole.data.inputs.begin(), whole.data.inputs.begin() + 6);
  const std::vector<std::int32_t> target{whole.data.targets[0]};
  const pg::batch<cut, pg::cross_entropy> sample{first, target};
  const auto row = short_one.rows(sample);
  for (std::size_t i = 0; i < row.size(); ++i) BOOST_TEST(row[i] == before[i]);
}

BOOST_AUTO_TEST_CASE(lengths_that_do_not_fit_are_refused) {
  using net = basic_network<double, pg::variable(shape{6, 3}), pg::mean_over_positions, linear<3>>;
  const std::vector<double> inputs(2 * 18);
  const std::vector<std::int32_t> targets(2);
  using batch = pg::batch<net, pg::cross_entropy>;
  using lengths = std::vector<std::uint32_t>;
  const lengths empty{0, 1}, long_one{7, 1}, few{1}, good{6, 1};
  BOOST_CHECK_THROW((batch{inputs, targets, empty}), std::invalid_argument);
  BOOST_CHECK_THROW((batch{inputs, targets, long_one}), std::invalid_argument);
  BOOST_CHECK_THROW((batch{inputs, targets, few}), std::invalid_argument);
  BOOST_CHECK_THROW((batch{inputs, targets}), std::invalid_argument);
  BOOST_CHECK_NO_THROW((batch{inputs, targets, good}));
}

BOOST_AUTO_TEST_CASE(groups_are_clipped_on_their_own) {
  using net = basic_network<double, shape{4}, linear<5>, pg::tanh, pg::parameter_group<1, linear<4>, pg::tanh>,
                            pg::parameter_group<2, linear<3>>>;
  problem<net> p{7};
  const auto samples = p.data.view();
  const auto g = pg::per_sample_gradients(p.net, pg::cross_entropy{}, samples, p.tape);
  const auto rows = pg::unprotected::evaluate(p.exec, pg::materialise(g));
  const std::vector<pg::l2_clip_norm> bounds{pg::l2_clip_norm{0.1}, pg::l2_clip_norm{0.05}, pg::l2_clip_norm{0.3}};
  const auto clipped = pg::clip_per_group(g, bounds);
  BOOST_TEST(std::fabs(clipped.sensitivity() - std::sqrt(0.01 + 0.0025 + 0.09)) < 1e-12);
  const auto sum = pg::unprotected::evaluate(p.exec, pg::sum(clipped));
  std::vector<double> expected(net::parameter_count);
  constexpr std::size_t ends[] = {25, 49, 64};
  for (std::size_t b = 0; b < 7; ++b) {
    std::size_t first = 0;
    for (std::size_t group = 0; group < 3; ++group) {
      double squared = 0;
      for (std::size_t i = first; i < ends[group]; ++i) squared += rows[b * 64 + i] * rows[b * 64 + i];
      const double weight = std::min(1.0, bounds[group].value() / std::sqrt(squared));
      for (std::size_t i = first; i < ends[group]; ++i) expected[i] += weight * rows[b * 64 + i];
      first = ends[group];
    }
  }
  for (std::size_t i = 0; i < 64; ++i) BOOST_TEST(std::fabs(sum[i] - expected[i]) <= 1e-13);
  const std::vector<pg::l2_clip_norm> too_few(2, pg::l2_clip_norm{1.0});
  BOOST_CHECK_THROW(static_cast<void>(pg::clip_per_group(g, too_few)), std::invalid_argument);
}

BOOST_AUTO_TEST_SUITE_END()
