// SPDX-License-Identifier: Apache-2.0
// tests/certify/certify_test.cpp - no record has a larger gradient than was proven, whatever an adversary tries
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "search.hpp"

BOOST_AUTO_TEST_SUITE(certify_networks)

namespace {

namespace pg = pergrad;
using certify_tests::adversary;
using certify_tests::filtered;
using certify_tests::filtered_in_pairs;
using certify_tests::nearest;
using certify_tests::random_network;

}  // namespace

BOOST_AUTO_TEST_CASE(dense_networks) {
  using namespace pg;
#ifdef PERGRAD_LONG_TESTS
  nearest<network<shape{6}, linear<5>>, cross_entropy>("linear");
#endif
  nearest<network<shape{6}, linear<16>, pg::tanh, linear<8>, sigmoid, linear<4, no_bias>>,
          cross_entropy_with_label_smoothing<0.1>>("linear, tanh, sigmoid");
#ifdef PERGRAD_LONG_TESTS
  nearest<network<shape{6}, linear<8>, leaky_relu<0.2>, linear<8>, elu<1.5>, linear<8>, softplus, linear<8>, silu,
                  linear<6>, gelu, gelu_tanh, linear<3>, scale<std::ratio<-1, 4>>>,
          focal<>>("leaky_relu, elu, softplus, silu, gelu, gelu_tanh, scale");
#endif
}

BOOST_AUTO_TEST_CASE(images) {
  using namespace pg;
  nearest<network<shape{2, 6, 6}, conv2d<4, 3, padding<1>>, relu, max_pool2d<2, stride<1>>,
                  conv2d<4, 2, groups<2>, stride<2>, dilation<2>>, avg_pool2d<2, stride<1>, padding<1>>, flatten,
                  linear<4>>,
          cross_entropy>("conv2d, max_pool2d, avg_pool2d");
#ifdef PERGRAD_LONG_TESTS
  nearest<network<shape{2, 4, 4}, conv_transpose2d<3, 3, stride<2>>, upsample<2>, adaptive_avg_pool2d<3>,
                  augment<random_flip>, flatten, slice<2, 20>, linear<2>>,
          huber<0.5>>("conv_transpose2d, upsample, adaptive_avg_pool2d, slice");
#endif
#ifdef PERGRAD_LONG_TESTS
  nearest<network<shape{1, 3, 4, 4}, conv3d<2, 2>, avg_pool3d<2, stride<1>>, flatten, linear<3>>,
          binary_cross_entropy_with_logits>("conv3d, avg_pool3d");
#endif
#ifdef PERGRAD_LONG_TESTS
  nearest<filtered, cross_entropy>("conv2d, filtered");
  nearest<filtered_in_pairs, cross_entropy>("conv2d, filtered in pairs");
#endif
}

BOOST_AUTO_TEST_CASE(norms_and_branches) {
  using namespace pg;
  nearest<network<shape{4, 3, 3}, conv2d<4, 1>, group_norm<2, eps<1, 10>>, instance_norm2d<eps<1, 10>>, channel_affine,
                  flatten, linear<6>, layer_norm<eps<1, 10>>, linear<6>, rms_norm<eps<1, 10>>, linear<3>>,
          cross_entropy>("group_norm, instance_norm2d, channel_affine, layer_norm, rms_norm");
  nearest<network<shape{6}, linear<6>, residual<linear<6>, pg::tanh>, parallel<sequential<linear<3>>, sequential<relu>>,
                  swiglu<4>, dropout<0.25>, linear<3>>,
          cross_entropy>("residual, parallel, swiglu, dropout");
#ifdef PERGRAD_LONG_TESTS
  nearest<network<shape{5}, frozen<linear<5>>, tied<1, linear<5>>, relu, tied<1, linear<5>>, linear<2>>, cross_entropy>(
      "frozen, tied");
#endif
}

BOOST_AUTO_TEST_CASE(sequences) {
  using namespace pg;
  nearest<network<token_ids(5, 7), embedding<4>, learned_positions, added_bias, linear<4>, relu, mean_over_positions,
                  linear<3>>,
          cross_entropy>("embedding, learned_positions, added_bias, mean_over_positions");
#ifdef PERGRAD_LONG_TESTS
  nearest<network<token_ids(5, 7), embedding_bag<4, bag_sum>, linear<3>>, cross_entropy>("embedding_bag");
#endif
  nearest<network<shape{6, 3}, sinusoidal_positions, transpose, conv1d<4, 3, padding<1>>, max_pool1d<2, stride<1>>,
                  transpose, sequence_bias, take_positions<1, 4>, linear<3>>,
          token_cross_entropy<>>("sinusoidal_positions, conv1d, max_pool1d, sequence_bias, take_positions");
#ifdef PERGRAD_LONG_TESTS
  nearest<network<shape{4, 3}, linear<3>, select_last, linear<2>>, cross_entropy>("select_last");
#endif
}

BOOST_AUTO_TEST_CASE(a_bound_that_is_attained_is_not_exceeded_by_rounding) {
  // ‖softmax - onehot‖ = sqrt(2) where the network is sure and wrong, and x = R e_1: the bound is the gradient's norm.
  using net_type = pg::network<pg::shape{3}, pg::linear<2>>;
  const pg::host executor{pg::threads{1}};
  net_type net{executor, pg::kaiming_uniform{1}};
  const std::vector<float> weights{90, 0, 0, -90, 0, 0, 0, 0};
  std::copy(weights.begin(), weights.end(), net.parameters().begin());
  pg::tape<net_type> tape{executor, pg::max_batch{1}};
  for (const float length : {1.0F, 1.7F, 3.1F, 12.3F}) {
    const std::vector<float> x{length, 0, 0};
    const std::vector<std::int32_t> target{1};
    const pg::dataset<float, std::int32_t> records{x, target, net_type::input_shape};
    const std::vector<std::uint32_t> first{0};
    const pg::batch<net_type, pg::cross_entropy> batch{records, std::span<const std::uint32_t>{first}};
    const double norm =
        pg::unprotected::evaluate(executor, l2_norms(per_sample_gradients(net, pg::cross_entropy{}, batch, tape)))[0];
    const double bound = pg::certify(net, pg::cross_entropy{}, pg::l2_ball(static_cast<double>(length))).bound;
    BOOST_TEST(norm <= bound);
    BOOST_TEST(bound <= norm * (1 + 2e-5));
  }
}

// One row that all windows of a maximum see, and averages of equal numbers: no bound of windows that overlap is below
// what is there, and those of averages fall short by their ends alone.
BOOST_AUTO_TEST_CASE(bounds_of_windows_that_overlap_are_attained) {
  constexpr std::size_t wide = 60;
  using net_type =
      pg::network<pg::shape{1, 3, wide}, pg::conv2d<1, 1, pg::no_bias>, pg::max_pool2d<pg::extent{2, 1}, pg::stride<1>>,
                  pg::avg_pool2d<pg::extent{1, 2}, pg::stride<1>>, pg::flatten, pg::linear<2, pg::no_bias>>;
  const pg::host executor{pg::threads{1}};
  net_type net{executor, pg::zeros{}};
  const auto parameters = net.parameters();
  parameters[0] = 1;  // all values are what they were
  for (std::size_t i = 1; i < parameters.size(); ++i) parameters[i] = i <= parameters.size() / 2 ? 1.0F : -1.0F;
  std::vector<float> x(3 * wide);
  std::fill_n(x.begin() + wide, wide, 1.0F);
  const std::vector<std::int32_t> target{1};  // the network is sure, and wrong
  const pg::dataset<float, std::int32_t> records{x, target, net_type::input_shape};
  const std::vector<std::uint32_t> first{0};
  const pg::batch<net_type, pg::cross_entropy> batch{records, std::span<const std::uint32_t>{first}};
  pg::tape<net_type> tape{executor, pg::max_batch{1}};
  const double norm =
      pg::unprotected::evaluate(executor, l2_norms(per_sample_gradients(net, pg::cross_entropy{}, batch, tape)))[0];
  const double bound = pg::certify(net, pg::cross_entropy{}, pg::l2_ball(std::sqrt(double{wide}))).bound;
  BOOST_TEST(norm <= bound);
  BOOST_TEST(norm >= 0.97 * bound);
}

namespace {

/// y = 2 x, as layers with the right rule and with a wrong one.
struct twice {
  template <class Value>
  [[nodiscard]] static Value value(Value x) {
    return x + x;
  }
  template <class Value>
  [[nodiscard]] static Value derivative(Value x, Value /*y*/) {
    return (x - x) + 2;
  }
  static constexpr pg::certified::element_bounds element_bounds{.slope = 2};
};
struct twice_with_a_wrong_slope : twice {
  static constexpr pg::certified::element_bounds element_bounds{.slope = 1};
};

}  // namespace

BOOST_AUTO_TEST_CASE(a_wrong_rule_is_found) {
  using right = pg::network<pg::shape{3}, pg::linear<3>, twice, twice, pg::linear<2>>;
  using wrong =
      pg::network<pg::shape{3}, pg::linear<3>, twice_with_a_wrong_slope, twice_with_a_wrong_slope, pg::linear<2>>;
  const pg::host executor{pg::threads{1}};
  int caught = 0;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    right good = random_network<right>(executor, seed);
    wrong bad = random_network<wrong>(executor, seed);
    const double found = adversary<right, pg::cross_entropy>{good, seed}.largest(3, 12);
    BOOST_TEST(found <= pg::certify(good, pg::cross_entropy{}, pg::l2_ball(3)).bound);
    caught += found > pg::certify(bad, pg::cross_entropy{}, pg::l2_ball(3)).bound ? 1 : 0;
  }
  BOOST_TEST(caught >= 5);
}

BOOST_AUTO_TEST_CASE(slopes_of_functions_are_bounds) {
  const auto check = [&]<class Function>(std::type_identity<Function> /*function*/) {
    constexpr pg::certified::element_bounds f = pg::certified::bounds_of_function<Function>;
    double steepest = 0;
    for (int i = -60000; i <= 60000; ++i) {
      const float x = static_cast<float>(i) / 2000;
      const float y = Function::value(x);
      const double slope = std::fabs(static_cast<double>(Function::derivative(x, y)));
      steepest = std::max(steepest, slope);
      const double size = f.slope * std::fabs(static_cast<double>(x)) + f.at_zero;
      BOOST_REQUIRE_LE(std::fabs(static_cast<double>(y)), std::min(size, f.largest) * (1 + 1e-6));
    }
    BOOST_TEST(steepest <= f.slope * (1 + 1e-6));
    BOOST_TEST(steepest >= f.slope * 0.998);  // none is wider than it has to be
  };
  check(std::type_identity<pg::relu>{});
  check(std::type_identity<pg::tanh>{});
  check(std::type_identity<pg::sigmoid>{});
  check(std::type_identity<pg::softplus>{});
  check(std::type_identity<pg::gelu>{});
  check(std::type_identity<pg::gelu_tanh>{});
  check(std::type_identity<pg::silu>{});
  check(std::type_identity<pg::leaky_relu<1.5>>{});
  check(std::type_identity<pg::elu<1.5>>{});
  check(std::type_identity<pg::scale<std::ratio<-3, 2>>>{});
}

BOOST_AUTO_TEST_CASE(any_input_has_a_bound_behind_into_ball_alone) {
  using open = pg::network<pg::shape{4}, pg::tanh, pg::linear<3>>;
  using closed = pg::network<pg::shape{4}, pg::into_ball<2.0>, pg::tanh, pg::linear<3>>;
  const pg::host executor{pg::threads{1}};
  BOOST_TEST(
      !pg::certify(open{executor, pg::kaiming_uniform{1}}, pg::cross_entropy{}).is_finite());  // tanh(NaN) is NaN
  closed net{executor, pg::kaiming_uniform{1}};
  const double bound = pg::certify(net, pg::cross_entropy{}).bound;
  BOOST_TEST(bound <= std::sqrt(2.0 * 5) * 1.0001);

  constexpr float infinity = std::numeric_limits<float>::infinity();
  constexpr float most = std::numeric_limits<float>::max();
  const std::vector<float> inputs{1,      2,        3, 4,  1e20F,         -1e30F, 5, 0, most, most, most, most,
                                  1e-40F, infinity, 1, -1, std::nanf(""), 1,      1, 1, 0,    0,    0,    0};
  const std::vector<std::int32_t> targets{0, 1, 2, 0, 1, 2};
  const std::vector<std::uint32_t> all{0, 1, 2, 3, 4, 5};
  const pg::dataset<float, std::int32_t> records{inputs, targets, closed::input_shape};
  const pg::batch<closed, pg::cross_entropy> batch{records, std::span<const std::uint32_t>{all}};
  pg::tape<closed> tape{executor, pg::max_batch{6}};
  const auto norms =
      pg::unprotected::evaluate(executor, l2_norms(per_sample_gradients(net, pg::cross_entropy{}, batch, tape)));
  for (const double norm : norms) BOOST_TEST(norm <= bound);
}

BOOST_AUTO_TEST_CASE(into_ball_has_the_slope_of_its_formula) {
  std::mt19937_64 random{5};
  std::normal_distribution<double> normal;
  using layer = pg::into_ball<1.5>;
  for (const double length : {0.5, 1.4, 1.6, 100.0}) {
    std::vector<double> x(5), y(5), above(5), dy(5), dx(5);
    for (double& each : x) each = normal(random) * length;
    for (double& each : dy) each = normal(random);
    layer::forward(pg::shape{5}, {}, std::span<const double>{x}, std::span{y});
    layer::backward(pg::shape{5}, {}, std::span<const double>{x}, std::span<const double>{dy}, std::span{dx});
    double norm = 0;
    for (const double each : y) norm += each * each;
    BOOST_TEST(std::sqrt(norm) <= 1.5 * (1 + 1e-12));
    for (std::size_t i = 0; i < 5; ++i) {
      std::vector<double> moved = x;
      const double step = 1e-6 * length;
      moved[i] += step;
      layer::forward(pg::shape{5}, {}, std::span<const double>{moved}, std::span{above});
      double slope = 0;
      for (std::size_t k = 0; k < 5; ++k) slope += dy[k] * (above[k] - y[k]) / step;
      BOOST_TEST(std::fabs(slope - dx[i]) <= 1e-4);
    }
  }
}

BOOST_AUTO_TEST_CASE(where_a_gradient_overflows_nothing_is_proven) {
  using net_type = pg::network<pg::shape{1}, pg::linear<1>, pg::linear<1>>;
  using loss = pg::binary_cross_entropy_with_logits;
  const pg::host executor{pg::threads{1}};
  net_type net{executor, pg::zeros{}};
  net.parameters()[0] = 1e-25F;  // so that values are small, and what goes back meets a large input
  net.parameters()[2] = 1e30F;
  const std::vector<float> inputs{1e15F};
  const std::vector<float> targets{0};
  const pg::dataset<float, float> records{inputs, targets, net_type::input_shape};
  const std::vector<std::uint32_t> first{0};
  const pg::batch<net_type, loss> batch{records, std::span<const std::uint32_t>{first}};
  pg::tape<net_type> tape{executor, pg::max_batch{1}};
  const auto norms = pg::unprotected::evaluate(executor, l2_norms(per_sample_gradients(net, loss{}, batch, tape)));
  BOOST_TEST(!std::isfinite(norms[0]));
  BOOST_TEST(!pg::certify(net, loss{}, pg::l2_ball(2e15)).is_finite());
  net.parameters()[2] = 1e10F;
  BOOST_TEST(pg::certify(net, loss{}, pg::l2_ball(2e15)).is_finite());
}

BOOST_AUTO_TEST_CASE(limits_hold_for_all_weights_within_them) {
  using net_type = pg::network<pg::shape{2, 6, 6}, pg::into_ball<3.0>, pg::conv2d<3, 3>, pg::relu, pg::group_norm<1>,
                               pg::flatten, pg::linear<4>>;
  const pg::host executor{pg::threads{1}};
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    const net_type net = random_network<net_type>(executor, seed);
    pg::weight_limits limits{0, 0};
    for (const auto& each : pg::certified::network_rules<net_type>::measure(net)) {
      limits.norm = std::max(limits.norm, each.norm.value());
      limits.bias = std::max(limits.bias, each.bias.value());
    }
    const pg::certificate all = pg::describe_sensitivity<net_type>(pg::cross_entropy{}, pg::any_input, limits);
    BOOST_TEST(pg::certify(net, pg::cross_entropy{}).bound <= all.bound);
  }
}

BOOST_AUTO_TEST_CASE(a_certificate_says_what_limits_it) {
  using net_type = pg::network<pg::shape{4}, pg::into_ball<50.0>, pg::linear<4>, pg::tanh, pg::linear<3>>;
  const pg::certificate proven = pg::describe_sensitivity<net_type>(pg::cross_entropy{});
  BOOST_TEST(proven.largest().node == 1U);
  const std::string text = describe(proven);
  BOOST_TEST(text.find("most of it from node 1, linear") != std::string::npos);
  BOOST_TEST(text.find("into_ball") != std::string::npos);
  BOOST_TEST(svg(proven).find("</svg>") != std::string::npos);
  using open = pg::network<pg::shape{4}, pg::linear<3>>;
  BOOST_TEST(describe(pg::describe_sensitivity<open>(pg::cross_entropy{})).find("into_ball<R>") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
