// SPDX-License-Identifier: Apache-2.0
// tests/certify/boxes_test.cpp - records of a box: what intervals say beside norms, against who tries its corners
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "search.hpp"

BOOST_AUTO_TEST_SUITE(certify_boxes)

namespace {

namespace pg = pergrad;
using certify_tests::filtered;
using certify_tests::filtered_in_pairs;
using certify_tests::random_network;

/// The largest gradient of records in a box: corners, faces and inner points, then changes of the best one, and every
/// target.
template <class Network, class Loss>
double largest_in(Network& network, const std::vector<pg::interval>& box, std::uint64_t seed, int rounds) {
  using target = typename Loss::template target<typename Network::scalar>;
  constexpr std::size_t width = Network::input_shape.size();
  constexpr std::size_t targets_each = Loss::target_count(Network::output_shape);
  constexpr std::size_t together = 64;
  const pg::host executor{pg::threads{1}};
  pg::tape<Network> tape{executor, pg::max_batch{together}};
  std::mt19937_64 random{seed};
  const auto below = [&](std::size_t count) { return random() % count; };
  using value = typename Network::input_value;
  std::vector<value> inputs(together * width);
  std::vector<target> targets(together * targets_each);
  std::vector<std::uint32_t> numbers(together);
  const std::vector<std::uint32_t> lengths = certify_tests::lengths_of<Network>(together);
  const auto draw = [&](std::size_t b, std::size_t i) {
    const double share = below(3) == 0 ? static_cast<double>(below(1001)) / 1000 : static_cast<double>(below(2));
    const double x = box[i].lower + share * (box[i].upper - box[i].lower);
    inputs[b * width + i] = static_cast<value>(x);
  };
  double best = 0;
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t b = 0; b < together; ++b) {
      numbers[b] = static_cast<std::uint32_t>(b);
      for (std::size_t i = 0; i < width; ++i) {
        if (round == 0 || (b > 0 && below(width) < 2)) {
          draw(b, i);
        } else {
          inputs[b * width + i] = inputs[i];
        }
      }
      for (std::size_t i = 0; i < targets_each; ++i) {
        const std::size_t classes = Network::output_shape[Network::output_shape.rank() - 1];
        targets[b * targets_each + i] = static_cast<target>(std::is_integral_v<target> ? b % classes : below(2));
      }
    }
    const pg::dataset<value, target> records{inputs, targets, Network::input_shape, targets_each, lengths};
    const pg::batch<Network, Loss> all{records, std::span<const std::uint32_t>{numbers}};
    const std::vector<double> norms =
        pg::unprotected::evaluate(executor, l2_norms(per_sample_gradients(network, Loss{}, all, tape)));
    const auto at = static_cast<std::size_t>(std::max_element(norms.begin(), norms.end()) - norms.begin());
    best = std::max(best, norms[at]);
    std::copy_n(inputs.begin() + static_cast<std::ptrdiff_t>(at * width), width, inputs.begin());
  }
  return best;
}

/// Random boxes, whose ends are floats.
template <std::size_t Width>
std::vector<pg::interval> random_box(std::uint64_t seed) {
  std::mt19937_64 random{seed};
  std::vector<pg::interval> box(Width);
  for (pg::interval& each : box) {
    const auto middle = static_cast<double>(static_cast<std::int64_t>(random() % 64) - 32) / 16;
    const double half = static_cast<double>(random() % 32) / (seed % 2 == 0 ? 16 : 256);
    each = {middle - half, middle + half};
  }
  return box;
}

/// None of their gradients is above K, and K is not above that of norms.
template <class Network, class Loss>
double tightened(const char* kind) {
  const pg::host executor{pg::threads{1}};
  double ratio = 1;
  for (std::uint64_t seed = 0; seed < certify_tests::networks_of_a_type; ++seed) {
    Network network = random_network<Network>(executor, seed);
    const std::vector<pg::interval> box = random_box<Network::input_shape.size()>(seed);
    const double proven = pg::certify(network, Loss{}, pg::element_box{box}).bound;
    double squares = 0;
    double largest = 0;
    for (const pg::interval& each : box) {
      squares += each.magnitude() * each.magnitude();
      largest = std::max(largest, each.magnitude());
    }
    const double by_norms =
        pg::certify(network, Loss{}, pg::input_bound{std::sqrt(squares) * (1 + 1e-12), largest}).bound;
    const double found = largest_in<Network, Loss>(network, box, seed, 3 * certify_tests::rounds);
    BOOST_TEST_CONTEXT(kind << ", seed " << seed) {
      BOOST_TEST(found > 0.0);
      BOOST_TEST(found <= proven);
      BOOST_TEST(proven <= by_norms * (1 + 1e-9));
    }
    ratio = std::min(ratio, proven / by_norms);
  }
  BOOST_TEST_MESSAGE(kind << ": K by boxes / K by norms, at best " << ratio);
  return ratio;
}

}  // namespace

BOOST_AUTO_TEST_CASE(dense_networks) {
  using namespace pg;
  BOOST_TEST((tightened<network<shape{5}, linear<8>, relu, linear<6>, pg::tanh, linear<4>>, cross_entropy>(
                 "relu, tanh")) < 0.9);
#ifdef PERGRAD_LONG_TESTS
  tightened<network<shape{5}, linear<8>, leaky_relu<0.2>, linear<8>, elu<0.5>, linear<8>, softplus, linear<6>, silu,
                    linear<6>, gelu, gelu_tanh, linear<3>, scale<std::ratio<-1, 4>>>,
            focal<>>("leaky_relu, elu, softplus, silu, gelu, gelu_tanh, scale");
  tightened<network<shape{5}, linear<6>, leaky_relu<1.5>, linear<6>, elu<1.5>, sigmoid, linear<2>>,
            binary_cross_entropy_with_logits>("slopes above 1, sigmoid");
#endif
}

BOOST_AUTO_TEST_CASE(images) {
  using namespace pg;
  BOOST_TEST((tightened<network<shape{2, 6, 6}, conv2d<4, 3, padding<1>>, relu, max_pool2d<2, stride<1>>,
                                conv2d<4, 2, groups<2>, stride<2>, dilation<2>>, avg_pool2d<2, stride<1>, padding<1>>,
                                flatten, slice<1, 30>, linear<4>>,
                        cross_entropy_with_label_smoothing<0.1>>("convolutions and pools")) < 0.9);
#ifdef PERGRAD_LONG_TESTS
  tightened<network<shape{2, 4, 4}, conv_transpose2d<3, 3, stride<2>>, upsample<2>, adaptive_avg_pool2d<3>, flatten,
                    linear<2>>,
            huber<0.5>>("conv_transpose2d, upsample, adaptive_avg_pool2d");
  tightened<network<shape{1, 3, 4, 4}, conv3d<2, 2>, max_pool3d<2, stride<1>>, flatten, linear<3>>, cross_entropy>(
      "conv3d, max_pool3d");
  tightened<filtered, cross_entropy>("conv2d, filtered");
  tightened<filtered_in_pairs, cross_entropy>("conv2d, filtered in pairs");
#endif
}

BOOST_AUTO_TEST_CASE(branches_and_layers_without_a_rule) {
  using namespace pg;
  tightened<
      network<shape{6}, linear<6>, residual<linear<6>, pg::tanh>, parallel<sequential<linear<3>>, sequential<relu>>,
              swiglu<4>, dropout<0.25>, layer_norm<eps<1, 10>>, linear<3>>,
      cross_entropy>("residual, parallel, swiglu, dropout, layer_norm");
#ifdef PERGRAD_LONG_TESTS
  tightened<network<shape{6, 3}, linear<4>, relu, transpose, conv1d<4, 3, padding<1>>, max_pool1d<2, stride<1>>,
                    transpose, linear<3>>,
            token_cross_entropy<>>("positions");
  tightened<network<shape{5}, tied<1, linear<5>>, relu, tied<1, linear<5>>, linear<2>>, cross_entropy>("tied");
#endif
}

// What lies behind a record's length is 0, whatever the box says of it.
BOOST_AUTO_TEST_CASE(records_of_varying_length) {
  using namespace pg;
  tightened<network<variable(shape{4, 3}), linear<4>, relu, mean_over_positions, linear<3>>, cross_entropy>(
      "varying length, mean_over_positions");
#ifdef PERGRAD_LONG_TESTS
  tightened<network<variable(shape{4, 3}), linear<4>, pg::tanh, select_last, linear<3>>, cross_entropy>(
      "varying length, select_last");
  tightened<network<variable(shape{4, 3}), transpose, conv1d<4, 2>, max_pool1d<2, stride<1>>, transpose,
                    mean_over_positions, linear<3>>,
            cross_entropy>("varying length, conv1d, max_pool1d");
  tightened<network<variable(shape{4, 3}), added_bias, sigmoid, linear<3>>, token_cross_entropy<>>(
      "varying length, added_bias");
  tightened<network<variable(shape{4, 3}), lstm<4, last_output>, linear<3>>, cross_entropy>("varying length, lstm");
#endif
}

BOOST_AUTO_TEST_CASE(networks_of_double) {
  using namespace pg;
  tightened<basic_network<double, shape{5}, linear<8>, relu, linear<6>, pg::tanh, linear<4>>, cross_entropy>("double");
}

// x in [1, 2], y = W x, sure and wrong: the record of length sqrt(4 + 4) has a gradient of sqrt(2) sqrt(8 + 1).
BOOST_AUTO_TEST_CASE(a_bound_that_is_attained_is_not_exceeded_by_rounding) {
  using net_type = pg::network<pg::shape{2}, pg::linear<2>>;
  const pg::host executor{pg::threads{1}};
  net_type net{executor, pg::zeros{}};
  const std::vector<float> weights{90, 0, -90, 0, 0, 0};
  std::copy(weights.begin(), weights.end(), net.parameters().begin());
  const std::vector<pg::interval> box(2, pg::interval{1, 2});
  const double bound = pg::certify(net, pg::cross_entropy{}, pg::element_box{box}).bound;
  const double found = largest_in<net_type, pg::cross_entropy>(net, box, 1, 20);
  BOOST_TEST(std::fabs(found - std::sqrt(18)) < 1e-5);
  BOOST_TEST(found <= bound);
  BOOST_TEST(bound <= found * (1 + 2e-5));
  // In [-2, -1] it is as sure of the other class; where the weights do not matter nobody is sure.
  for (float& each : net.parameters()) each = 0;
  BOOST_TEST(pg::certify(net, pg::cross_entropy{}, pg::element_box{box}).bound <= std::sqrt(0.5 * 9) * (1 + 1e-5));
}

// Sums that cancel may overflow on the way: an interval of their result does not tell.
BOOST_AUTO_TEST_CASE(what_may_overflow_has_no_bound) {
  const pg::host executor{pg::threads{1}};
  using forward = pg::network<pg::shape{2}, pg::linear<1>, pg::linear<2>>;
  forward net{executor, pg::zeros{}};
  std::fill(net.parameters().begin(), net.parameters().end(), 1.0F);
  net.parameters()[0] = 1e20F;
  net.parameters()[1] = -1e20F;
  BOOST_TEST(pg::certify(net, pg::cross_entropy{}, pg::element_box::of(2, {1, 1})).is_finite());
  BOOST_TEST(!pg::certify(net, pg::cross_entropy{}, pg::element_box::of(2, {1e20, 1e20})).is_finite());
  // On the way back: gradients of 1e20 times weights of 1e20, which cancel in front of `relu` alone.
  using backward = pg::network<pg::shape{1}, pg::linear<2>, pg::linear<1, pg::no_bias>, pg::linear<2>>;
  backward deep{executor, pg::zeros{}};
  std::fill(deep.parameters().begin(), deep.parameters().end(), 1e-30F);
  for (float& each : deep.layer_parameters(1)) each = 1e20F;
  for (float& each : deep.layer_parameters(2)) each = 1e20F;
  BOOST_TEST(!pg::certify(deep, pg::cross_entropy{}, pg::element_box::of(1, {0, 1e-30})).is_finite());
}

// A unit whose input is below 0 in all of the box has no gradient, and nothing comes through it.
BOOST_AUTO_TEST_CASE(units_that_are_never_active_do_not_count) {
  using net_type = pg::network<pg::shape{3}, pg::linear<4>, pg::relu, pg::linear<2>>;
  const pg::host executor{pg::threads{1}};
  net_type net = random_network<net_type>(executor, 2);
  for (float& bias : net.layer_parameters(0).subspan(12)) bias = -100;
  const pg::certificate proven = pg::certify(net, pg::cross_entropy{}, pg::element_box::of(3, {-1, 1}));
  BOOST_TEST(proven.layers[0].bound < 1e-4);
  BOOST_TEST(pg::certify(net, pg::cross_entropy{}, pg::linf_ball(1)).layers[0].bound > 0.1);
}

namespace {

/// Each found interval is the wanted one, and hardly more.
void check_boxes(const pg::certified::box& found, const pg::certified::box& wanted, const char* what) {
  BOOST_REQUIRE_EQUAL(found.size(), wanted.size());
  for (std::size_t k = 0; k < wanted.size(); ++k) {
    BOOST_TEST_CONTEXT(what << " " << k << ": " << found[k].lower << " " << found[k].upper) {
      BOOST_TEST(found[k].contains(wanted[k]));
      BOOST_TEST(found[k].width() <= wanted[k].width() + 1e-4);
    }
  }
}

/// A user's own: both channels of a pixel. That channels of an image come first need not be said.
struct pixel_by_pixel {
  static constexpr pg::shape output_shape(pg::shape in) { return {1, in.e1, in.e2}; }
  static constexpr pg::affine_map affine(pg::shape in) {
    const pg::extent size{in.e1, in.e2};
    return {.in_channels = 2, .in_size = size, .out_channels = 1, .out_size = size, .bias = false};
  }
};

}  // namespace

BOOST_AUTO_TEST_CASE(values_of_layers) {
  using box = pg::certified::box;
  const auto forward = [](auto layer, pg::shape in, pg::shape out, const box& x, const box& x2,
                          std::span<const float> weights = {}) {
    const pg::certified::node_boxes<float> at{{.in = in, .in2 = in, .out = out, .x = {10, 10}}, x, x2, weights};
    return pg::certified::values_of(layer, at);
  };
  const box x{{0, 1}, {2, 3}, {0, 1}, {.5, 2}};
  const pg::shape row{1, 1, 4};
  check_boxes(forward(std::type_identity<pg::max_pool2d<{1, 2}>>{}, row, {1, 1, 2}, x, {}), {{2, 3}, {.5, 2}},
              "maximum");
  check_boxes(forward(std::type_identity<pg::avg_pool2d<{1, 2}>>{}, row, {1, 1, 2}, x, {}), {{1, 2}, {.25, 1.5}},
              "mean");
  check_boxes(forward(std::type_identity<pg::dropout<0.5>>{}, {2}, {2}, {{1, 2}, {-3, 4}}, {}), {{0, 4}, {-6, 8}},
              "dropout");
  check_boxes(forward(std::type_identity<pg::elementwise_product>{}, {2}, {2}, {{-1, 1}, {2, 3}}, {{2, 4}, {-1, 1}}),
              {{-4, 4}, {-3, 3}}, "product");
  check_boxes(forward(std::type_identity<pg::slice<1, 2>>{}, {4}, {2}, x, {}), {{2, 3}, {0, 1}}, "slice");
  const std::array<float, 8> weights{1, -1, 0, 2, 0, 0.5, 3, 4};  // two outputs of three inputs, two biases
  check_boxes(forward(std::type_identity<pg::linear<2>>{}, {3}, {2}, {{0, 1}, {2, 3}, {-1, 1}}, {}, weights),
              {{0, 2}, {3.5, 6.5}}, "linear");
  check_boxes(forward(std::type_identity<pg::transpose>{}, {2, 2}, {2, 2}, x, {}), {{0, 1}, {0, 1}, {2, 3}, {.5, 2}},
              "transpose");
  check_boxes(forward(std::type_identity<pg::detail::concatenate>{}, {2, 2}, {2, 4}, x, x),
              {{0, 1}, {2, 3}, {0, 1}, {2, 3}, {0, 1}, {.5, 2}, {0, 1}, {.5, 2}}, "joint by positions");
  check_boxes(forward(std::type_identity<pg::into_ball<5.0>>{}, {4}, {4}, x, {}),  // of length 10 at most
              {{0, 1}, {1, 3}, {0, 1}, {.25, 2}}, "into_ball");
  // y_j = sum over k of w_k x_(j - k): a transposed convolution of one channel.
  const std::array<float, 3> taps{1, -2, 7};
  check_boxes(
      forward(std::type_identity<pg::conv_transpose2d<1, {1, 2}>>{}, {1, 1, 2}, {1, 1, 3}, {{0, 1}, {2, 3}}, {}, taps),
      {{7, 8}, {7, 10}, {1, 3}}, "adjoint");
  check_boxes(forward(std::type_identity<pixel_by_pixel>{}, {2, 1, 2}, {1, 1, 2}, x, {}, std::span{taps}.first(2)),
              {{-2, 1}, {-2, 2}}, "a layer that says nothing of channels");
}

BOOST_AUTO_TEST_CASE(gradients_of_pools_and_products) {
  using box = pg::certified::box;
  const auto back = [](auto layer, pg::shape in, pg::shape out, const box& x, const box& x2, const box& dy) {
    const pg::certified::node_boxes<float> at{{.in = in, .in2 = in, .out = out}, x, x2, {}};
    std::array<box, 2> found{box(x.size()), box(x2.size())};
    pg::certified::gradients_of(layer, at, dy, 10, found[0], found[1]);
    return found;
  };
  const box x{{0, 1}, {2, 3}, {0, 1}, {.5, 2}};
  const pg::shape row{1, 1, 4};
  // The first element is below the second one in all of the box; either of the others may be the largest.
  check_boxes(back(std::type_identity<pg::max_pool2d<{1, 2}>>{}, row, {1, 1, 2}, x, {}, {{1, 2}, {-2, -1}})[0],
              {{0, 0}, {0, 2}, {-2, 0}, {-2, 0}}, "maximum");
  check_boxes(back(std::type_identity<pg::avg_pool2d<{1, 2}>>{}, row, {1, 1, 2}, x, {}, {{1, 2}, {-2, -1}})[0],
              {{.5, 1}, {.5, 1}, {-1, -.5}, {-1, -.5}}, "mean");
  check_boxes(
      back(std::type_identity<pg::max_pool2d<{1, 3}, pg::stride<1>>>{}, row, {1, 1, 2}, x, {}, {{1, 2}, {1, 1}})[0],
      {{0, 0}, {0, 3}, {0, 0}, {0, 1}}, "windows that overlap");
  const auto both = back(std::type_identity<pg::elementwise_product>{}, {2}, {2}, {{-1, 1}, {2, 3}}, {{2, 4}, {0, 0}},
                         {{1, 2}, {-1, 1}});
  check_boxes(both[0], {{2, 8}, {0, 0}}, "product");
  check_boxes(both[1], {{-2, 2}, {-3, 3}}, "its second input");
  check_boxes(back(std::type_identity<pg::slice<1, 2>>{}, {4}, {2}, x, {}, {{1, 2}, {3, 4}})[0],
              {{0, 0}, {1, 2}, {3, 4}, {0, 0}}, "slice");
  check_boxes(back(std::type_identity<pg::transpose>{}, {2, 2}, {2, 2}, x, {}, {{1, 1}, {2, 2}, {3, 3}, {4, 4}})[0],
              {{1, 1}, {3, 3}, {2, 2}, {4, 4}}, "transpose");
  const auto joined = back(std::type_identity<pg::detail::concatenate>{}, {2}, {4}, {{0, 1}, {0, 1}}, {{0, 1}, {0, 1}},
                           {{1, 1}, {2, 2}, {3, 3}, {4, 4}});
  check_boxes(joined[0], {{1, 1}, {2, 2}}, "joint");
  check_boxes(joined[1], {{3, 3}, {4, 4}}, "its second input");
  check_boxes(back(std::type_identity<pg::dropout<0.5>>{}, {2}, {2}, {{1, 2}, {3, 4}}, {}, {{1, 2}, {-3, 4}})[0],
              {{0, 4}, {-6, 8}}, "dropout");
}

BOOST_AUTO_TEST_CASE(a_ball_that_nobody_leaves_changes_nothing) {
  const pg::host executor{pg::threads{1}};
  using bare = pg::network<pg::shape{6}, pg::linear<8>, pg::relu, pg::linear<3>>;
  using behind = pg::network<pg::shape{6}, pg::into_ball<100.0>, pg::linear<8>, pg::relu, pg::linear<3>>;
  const pg::element_box box = pg::element_box::of(6, {0.9, 1});
  const double alone = pg::certify(bare{executor, pg::kaiming_uniform{2}}, pg::cross_entropy{}, box).bound;
  const double with = pg::certify(behind{executor, pg::kaiming_uniform{2}}, pg::cross_entropy{}, box).bound;
  BOOST_TEST(with >= alone);
  BOOST_TEST(with <= alone * (1 + 1e-4));
}

BOOST_AUTO_TEST_CASE(functions_stay_in_their_intervals) {
  const auto check = [](const auto& function, const char* name) {
    using f = typename std::remove_cvref_t<decltype(function)>::type;
    const pg::certified::upper off = pg::certified::roundoff{}.gamma(32);
    std::mt19937_64 random{7};
    const auto real = [&](double most) { return (static_cast<double>(random() >> 11U) * 0x1p-52 - 1) * most; };
    bool is_tight = true;
    for (int i = 0; i < 400; ++i) {
      const auto middle = static_cast<double>(static_cast<float>(real(i % 2 == 0 ? 4 : 40)));
      const double half = std::fabs(real(i % 3 == 0 ? 3 : 0.1));
      const pg::interval x{static_cast<double>(static_cast<float>(middle - half)),
                           static_cast<double>(static_cast<float>(middle + half))};
      const pg::interval y = pg::certified::inside::value_in<f>(x, off);
      const pg::interval slope = pg::certified::inside::slope_in<f>(x, off);
      pg::interval seen = pg::interval::nothing();
      for (int k = 0; k <= 50; ++k) {
        const auto at = static_cast<float>(k == 50 ? x.upper : x.lower + (x.upper - x.lower) * k / 50);
        if (!x.contains(static_cast<double>(at))) continue;
        const float value = f::value(at);
        BOOST_REQUIRE_MESSAGE(y.contains(static_cast<double>(value)), name << " of " << at);
        BOOST_REQUIRE_MESSAGE(slope.contains(static_cast<double>(f::derivative(at, value))), name << " at " << at);
        seen = hull(seen, pg::interval{static_cast<double>(value), static_cast<double>(value)});
      }
      is_tight = is_tight && (!pg::certified::bounds_of_function<f>.is_monotone ||
                              y.width() <= seen.width() * 1.2 + 1e-4 * (1 + y.magnitude()));
    }
    BOOST_TEST(is_tight, name);
  };
  check(std::type_identity<pg::relu>{}, "relu");
  check(std::type_identity<pg::tanh>{}, "tanh");
  check(std::type_identity<pg::sigmoid>{}, "sigmoid");
  check(std::type_identity<pg::softplus>{}, "softplus");
  check(std::type_identity<pg::gelu>{}, "gelu");
  check(std::type_identity<pg::gelu_tanh>{}, "gelu_tanh");
  check(std::type_identity<pg::silu>{}, "silu");
  check(std::type_identity<pg::leaky_relu<>>{}, "leaky_relu");
  check(std::type_identity<pg::leaky_relu<1.5>>{}, "leaky_relu<1.5>");
  check(std::type_identity<pg::elu<>>{}, "elu");
  check(std::type_identity<pg::elu<1.5>>{}, "elu<1.5>");
  check(std::type_identity<pg::scale<std::ratio<-3, 2>>>{}, "scale");
}

namespace {

/// 1 / (1 + x²), the largest where neither end is.
struct bell {
  template <class Value>
  [[nodiscard]] static Value value(Value x) {
    return 1 / (x * x + 1);
  }
  template <class Value>
  [[nodiscard]] static Value derivative(Value x, Value y) {
    return x * y * y * -2;
  }
  static constexpr pg::certified::element_bounds element_bounds{.slope = 0.65, .at_zero = 1, .largest = 1};
};
struct bell_by_its_ends : bell {
  static constexpr pg::certified::element_bounds element_bounds{
      .slope = 0.65, .at_zero = 1, .largest = 1, .is_monotone = true};
};

}  // namespace

BOOST_AUTO_TEST_CASE(a_wrong_interval_is_found) {
  using right = pg::network<pg::shape{3}, pg::linear<3>, bell, pg::linear<2>>;
  using wrong = pg::network<pg::shape{3}, pg::linear<3>, bell_by_its_ends, pg::linear<2>>;
  const pg::host executor{pg::threads{1}};
  const std::vector<pg::interval> box(3, pg::interval{-4, 4});
  int caught = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    right good = random_network<right>(executor, seed);
    wrong bad = random_network<wrong>(executor, seed);
    const double found = largest_in<right, pg::binary_cross_entropy_with_logits>(good, box, seed, 12);
    BOOST_TEST(found <= pg::certify(good, pg::binary_cross_entropy_with_logits{}, pg::element_box{box}).bound);
    caught += found > pg::certify(bad, pg::binary_cross_entropy_with_logits{}, pg::element_box{box}).bound ? 1 : 0;
  }
  BOOST_TEST(caught >= 5);
}

BOOST_AUTO_TEST_CASE(boxes_that_are_none_throw) {
  const auto says = [](const auto& make, const std::string& text) {
    BOOST_CHECK_EXCEPTION(make(), std::invalid_argument, [&](const std::exception& error) {
      return std::string{error.what()}.find(text) != std::string::npos;
    });
  };
  const double nan = std::nan("");
  says(
      [] {
        pg::element_box{std::vector<pg::interval>{{0, 1}, {2, 1}}};
      },
      "element 1 of the box is not between two numbers: [2.000000, 1.000000]");
  says([=] { pg::element_box{std::vector<pg::interval>(1, {nan, 1})}; }, "element 0 of the box");
  says([] { static_cast<void>(pg::element_box::of(3, pg::interval::everything())); }, "element 0 of the box");
  using net_type = pg::network<pg::shape{3}, pg::linear<2>>;
  const pg::host executor{pg::threads{1}};
  const net_type net{executor, pg::kaiming_uniform{1}};
  says(
      [&] {
        static_cast<void>(pg::certify(net, pg::cross_entropy{}, pg::element_box::of(4, {0, 1})));
      },
      "the box has 4 elements, a record has 3");
}

BOOST_AUTO_TEST_SUITE_END()
