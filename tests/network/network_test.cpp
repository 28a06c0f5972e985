// SPDX-License-Identifier: Apache-2.0
// Networks as types: shapes, parameter counts and offsets against PyTorch's, the unfolding of blocks, the order of
// parameters and what the initialisers fill them with. Large networks are never constructed.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <pergrad/expressions/evaluate.hpp>
#include <pergrad/expressions/leaf.hpp>
#include <pergrad/graph/sequential.hpp>
#include <pergrad/host/executor.hpp>
#include <pergrad/layers/activations.hpp>
#include <pergrad/layers/conv.hpp>
#include <pergrad/layers/linear.hpp>
#include <pergrad/layers/pools.hpp>
#include <pergrad/layers/reshape.hpp>
#include <pergrad/losses/mean_squared_error.hpp>
#include <pergrad/network.hpp>

BOOST_AUTO_TEST_SUITE(network_type)

namespace {

namespace pg = pergrad;
using pg::conv2d, pg::flatten, pg::linear, pg::max_pool2d, pg::no_bias, pg::padding, pg::relu, pg::repeat, pg::residual,
    pg::sequential, pg::shape, pg::stride;

// Parameter counts of published networks
// ---------------------------------------------------------------------------------

using mnist_cnn =
    pg::network<shape{1, 28, 28}, conv2d<16, 8, stride<2>, padding<3>>, relu, max_pool2d<2, stride<1>>,
                conv2d<32, 4, stride<2>>, relu, max_pool2d<2, stride<1>>, flatten, linear<32>, relu, linear<10>>;
static_assert(mnist_cnn::parameter_count == 26'010);
static_assert(mnist_cnn::input_shape == shape{1, 28, 28} && mnist_cnn::output_shape == shape{10});
static_assert(mnist_cnn::structure::shapes == std::array{shape{1, 28, 28}, shape{16, 14, 14}, shape{16, 14, 14},
                                                         shape{16, 13, 13}, shape{32, 5, 5}, shape{32, 5, 5},
                                                         shape{32, 4, 4}, shape{512}, shape{32}, shape{32}, shape{10}});

template <std::size_t Channels>
using conv3_relu = sequential<conv2d<Channels, 3, padding<1>>, relu>;

using cifar_cnn = pg::network<shape{3, 32, 32}, repeat<2, conv3_relu<32>>, pg::avg_pool2d<2>, repeat<2, conv3_relu<64>>,
                              pg::avg_pool2d<2>, repeat<2, conv3_relu<128>>, pg::avg_pool2d<2>, conv3_relu<256>,
                              conv2d<10, 3, padding<1>>, pg::adaptive_avg_pool2d<1>, flatten>;
static_assert(cifar_cnn::parameter_count == 605'226);
static_assert(cifar_cnn::output_shape == shape{10});

template <std::size_t Size>
using vgg16_of = pg::network<shape{3, Size, Size}, repeat<2, conv3_relu<64>>, max_pool2d<2>, repeat<2, conv3_relu<128>>,
                             max_pool2d<2>, repeat<3, conv3_relu<256>>, max_pool2d<2>, repeat<3, conv3_relu<512>>,
                             max_pool2d<2>, repeat<3, conv3_relu<512>>, max_pool2d<2>, pg::adaptive_avg_pool2d<7>,
                             flatten, linear<4096>, relu, linear<4096>, relu, linear<1000>>;
static_assert(vgg16_of<224>::parameter_count == 138'357'544);
static_assert(vgg16_of<256>::parameter_count == 138'357'544 && vgg16_of<256>::output_shape == shape{1000});

template <std::size_t Size>
using alexnet_of =
    pg::network<shape{3, Size, Size}, conv2d<64, 11, stride<4>, padding<2>>, relu, max_pool2d<3, stride<2>>,
                conv2d<192, 5, padding<2>>, relu, max_pool2d<3, stride<2>>, conv3_relu<384>, repeat<2, conv3_relu<256>>,
                max_pool2d<3, stride<2>>, pg::adaptive_avg_pool2d<6>, flatten, linear<4096>, relu, linear<4096>, relu,
                linear<1000>>;
static_assert(alexnet_of<224>::parameter_count == 61'100'840);
static_assert(alexnet_of<256>::parameter_count == 61'100'840);
static_assert(alexnet_of<256>::structure::shapes[1] == shape{64, 63, 63} &&
              alexnet_of<256>::structure::shapes[3] == shape{64, 31, 31});

// torchvision's resnet18 has 11,689,512 parameters, of which its batch normalisations, left out here, have 9,600.
template <std::size_t Channels, std::size_t Stride = 1>
using basic_block = sequential<
    residual<conv2d<Channels, 3, stride<Stride>, padding<1>, no_bias>, relu, conv2d<Channels, 3, padding<1>, no_bias>>,
    relu>;
template <std::size_t Channels>
using halving_block = sequential<
    residual<conv2d<Channels, 3, stride<2>, padding<1>, no_bias>, relu, conv2d<Channels, 3, padding<1>, no_bias>,
             pg::projection<conv2d<Channels, 1, stride<2>, no_bias>>>,
    relu>;
using resnet18 = pg::network<shape{3, 224, 224}, conv2d<64, 7, stride<2>, padding<3>, no_bias>, relu,
                             max_pool2d<3, stride<2>, padding<1>>, repeat<2, basic_block<64>>, halving_block<128>,
                             basic_block<128>, halving_block<256>, basic_block<256>, halving_block<512>,
                             basic_block<512>, pg::adaptive_avg_pool2d<1>, flatten, linear<1000>>;
static_assert(resnet18::parameter_count == 11'689'512 - 9'600);
static_assert(resnet18::output_shape == shape{1000});

// Unfolding
// ----------------------------------------------------------------------------------------------------------------

using plain = pg::network<shape{8}, linear<8>, relu, linear<8>, relu, linear<3>>;
using by_sequential =
    pg::network<shape{8}, sequential<linear<8>, relu>, sequential<sequential<>, linear<8>>, relu, linear<3>>;
using by_repeat = pg::network<shape{8}, repeat<2, linear<8>, relu>, repeat<0, linear<7>>, repeat<1, linear<3>>>;
template <class Network, std::size_t Index>
using layer_at = typename Network::structure::template layer_at<Index>;
template <class First, class Second>
constexpr bool same_structure() {
  if (First::structure::size != Second::structure::size || First::structure::shapes != Second::structure::shapes ||
      First::structure::inputs != Second::structure::inputs ||
      First::structure::inputs2 != Second::structure::inputs2 ||
      First::structure::parameter_offsets != Second::structure::parameter_offsets) {
    return false;
  }
  bool same = true;
  pg::detail::for_each_index<First::structure::size>(
      [&](auto index) { same = same && std::is_same_v<layer_at<First, index>, layer_at<Second, index>>; });
  return same;
}
static_assert(plain::structure::size == 5);
static_assert(same_structure<plain, by_sequential>() && same_structure<plain, by_repeat>());
static_assert(plain::structure::parameter_offsets == std::array<std::size_t, 6>{0, 72, 72, 144, 144, 171});
static_assert(pg::network<shape{8}, repeat<5, linear<8>, relu>>::structure::size == 10);
static_assert(pg::network<shape{8}, repeat<2, repeat<3, linear<8>>, relu>>::structure::size == 8);

// y = body(x) + x: slot 0 is the input, node i writes slot i + 1.
using identity_block = pg::network<shape{8}, pg::tanh, residual<linear<8>, relu, linear<8>>, linear<3>>;
static_assert(identity_block::structure::size == 6);
static_assert(identity_block::structure::inputs[4] == 4 && identity_block::structure::inputs2[4] == 1);
static_assert(identity_block::parameter_count == 72 + 72 + 27);
// y = body(x) + shortcut(x): both read slot 1, the body's parameters come first.
using projected_block =
    pg::network<shape{8}, pg::tanh, residual<linear<6>, relu, linear<5>, pg::projection<linear<5, no_bias>>>,
                linear<3>>;
static_assert(projected_block::structure::size == 7);
static_assert(projected_block::structure::inputs[1] == 1 && projected_block::structure::inputs[4] == 1);
static_assert(projected_block::structure::inputs[5] + projected_block::structure::inputs2[5] == 4 + 5);
static_assert(projected_block::structure::parameter_counts == std::array<std::size_t, 8>{0, 54, 0, 35, 40, 0, 18, 0});
static_assert(projected_block::structure::shapes[6] == shape{5} && projected_block::output_shape == shape{3});
// A residual in a residual reads the outer one's input and its own.
using nested_block = pg::network<shape{8}, residual<linear<8>, residual<relu, linear<8>>, pg::tanh>>;
static_assert(nested_block::structure::size == 6 && nested_block::parameter_count == 144);
static_assert(nested_block::structure::inputs == std::array<std::size_t, 7>{0, 1, 2, 3, 4, 5, 0} &&
              nested_block::structure::inputs2 == std::array<std::size_t, 7>{0, 0, 0, 1, 0, 0, 0});

// Scalar types
// -------------------------------------------------------------------------------------------------------------

static_assert(std::is_same_v<plain::rebind<double>,
                             pg::basic_network<double, shape{8}, linear<8>, relu, linear<8>, relu, linear<3>>>);
static_assert(std::is_same_v<plain::rebind<double>::rebind<float>, plain>);
static_assert(std::is_same_v<plain::scalar, float> && std::is_same_v<plain::rebind<double>::scalar, double>);
static_assert(vgg16_of<224>::rebind<double>::parameter_count == 138'357'544);

const pg::host executor{pg::threads{1}};

}  // namespace

BOOST_AUTO_TEST_CASE(parameters_are_one_buffer_in_the_order_of_the_layers) {
  plain net{executor, pg::zeros{}};
  BOOST_TEST(net.parameters().size() == plain::parameter_count);
  std::size_t offset = 0;
  for (std::size_t entry = 0; entry < plain::structure::size; ++entry) {
    BOOST_TEST(net.layer_parameters(entry).size() == plain::structure::parameter_counts[entry]);
    BOOST_TEST(net.layer_parameters(entry).data() == net.parameters().data() + offset);
    offset += net.layer_parameters(entry).size();
  }
  BOOST_TEST(offset == plain::parameter_count);
  const plain& fixed = net;
  net.layer_parameters(2)[5] = 3;
  BOOST_TEST(fixed.parameters()[72 + 5] == 3);
  BOOST_TEST(fixed.layer_parameters(2).data() == fixed.parameters().data() + 72);
}

// One weight is 1 and all others are 0: the output shows which tap of which channel it is.
BOOST_AUTO_TEST_CASE(a_convolutions_parameters_are_in_pytorchs_order) {
  using net_type = pg::basic_network<double, shape{2, 4, 4}, conv2d<3, pg::extent{2, 3}>, flatten>;
  constexpr std::size_t rows = 3;
  constexpr std::size_t columns = 2;
  static_assert(net_type::parameter_count == 3 * 2 * 2 * 3 + 3 && net_type::output_shape == shape{3 * rows * columns});
  std::vector<double> image(32);
  for (std::size_t i = 0; i < image.size(); ++i) image[i] = 1 + static_cast<double>(i);
  const std::vector<double> wishes(net_type::output_shape.size());
  const pg::batch<net_type, pg::mean_squared_error> one{image, wishes};
  net_type net{executor, pg::zeros{}};
  net_type::tape tape{executor, pg::max_batch{1}};
  const auto outputs = [&] {
    return pg::unprotected::evaluate(executor,
                                     pg::outputs(pg::per_sample_gradients(net, pg::mean_squared_error{}, one, tape)));
  };
  std::size_t parameter = 0;
  std::vector<double> expected(wishes.size());
  for (std::size_t out = 0; out < 3; ++out) {
    for (std::size_t in = 0; in < 2; ++in) {
      for (std::size_t k = 0; k < 2; ++k) {
        for (std::size_t l = 0; l < 3; ++l, ++parameter) {
          std::fill(expected.begin(), expected.end(), 0.0);
          for (std::size_t i = 0; i < rows; ++i) {
            for (std::size_t j = 0; j < columns; ++j) {
              expected[(out * rows + i) * columns + j] = image[(in * 4 + i + k) * 4 + j + l];
            }
          }
          net.parameters()[parameter] = 1;
          const std::vector<double> found = outputs();
          net.parameters()[parameter] = 0;
          BOOST_TEST(found == expected, boost::test_tools::per_element());
        }
      }
    }
  }
  for (std::size_t out = 0; out < 3; ++out, ++parameter) {
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = i / (rows * columns) == out ? 1 : 0;
    net.parameters()[parameter] = 1;
    BOOST_TEST(outputs() == expected, boost::test_tools::per_element());
    net.parameters()[parameter] = 0;
  }
  BOOST_TEST(parameter == net_type::parameter_count);
}

// A residual's sum and the order of its branches' parameters, by hand: y = B relu(A x) + S x.
BOOST_AUTO_TEST_CASE(a_residual_adds_its_branches) {
  using net_type =
      pg::basic_network<double, shape{2}, residual<linear<2>, relu, linear<1>, pg::projection<linear<1, no_bias>>>>;
  static_assert(net_type::parameter_count == 6 + 3 + 2);
  net_type net{executor, pg::zeros{}};
  const std::array<double, 11> parameters{1, -2, 3, 4, 0.5, -1, /* B */ 10, 100, 0.25, /* S */ 1000, 10000};
  std::copy(parameters.begin(), parameters.end(), net.parameters().begin());
  const std::array<double, 4> inputs{3, 1, -1, 2};
  const std::array<double, 2> wishes{};
  const pg::batch<net_type, pg::mean_squared_error> two{inputs, wishes};
  net_type::tape tape{executor, pg::max_batch{2}};
  const auto y = pg::unprotected::evaluate(
      executor, pg::outputs(pg::per_sample_gradients(net, pg::mean_squared_error{}, two, tape)));
  BOOST_TEST(y[0] == 10 * 1.5 + 100 * 12 + 0.25 + 13000);  // A x + a = (1.5, 12)
  BOOST_TEST(y[1] == 10 * 0.0 + 100 * 4 + 0.25 + 19000);   // A x + a = (-4.5, 4)
}

namespace {

using uniform_net = pg::basic_network<double, shape{6, 9, 9}, conv2d<12, 3, pg::groups<2>>, flatten, linear<40>>;
constexpr std::size_t conv_weights = 12 * 3 * 9;
constexpr std::size_t features = 12 * 7 * 7;
constexpr double conv_fan_in = 3 * 9;
constexpr double conv_fan_out = 12 * 9;

struct spread {
  double low;
  double high;
  double mean;
  double deviation;
};
spread spread_of(std::span<const double> values) {
  spread result{values[0], values[0], 0, 0};
  for (const double value : values) {
    result.low = std::min(result.low, value);
    result.high = std::max(result.high, value);
    result.mean += value / static_cast<double>(values.size());
  }
  for (const double value : values) {
    result.deviation += (value - result.mean) * (value - result.mean) / static_cast<double>(values.size());
  }
  result.deviation = std::sqrt(result.deviation);
  return result;
}
/// Uniform on [-bound, bound], as far as `count` values can tell: inside, and reaching both ends.
void check_uniform(std::span<const double> values, double bound) {
  const spread found = spread_of(values);
  const auto count = static_cast<double>(values.size());
  BOOST_TEST(found.low >= -bound);
  BOOST_TEST(found.high <= bound);
  BOOST_TEST(found.low < -bound * (1 - 20 / count));
  BOOST_TEST(found.high > bound * (1 - 20 / count));
  BOOST_TEST(std::abs(found.mean) < 5 * bound / std::sqrt(3 * count));
}
void check_normal(std::span<const double> values, double mean, double deviation) {
  const spread found = spread_of(values);
  const auto count = static_cast<double>(values.size());
  BOOST_TEST(std::abs(found.mean - mean) < 5 * deviation / std::sqrt(count));
  BOOST_TEST(std::abs(found.deviation / deviation - 1) < 5 / std::sqrt(2 * count));
  BOOST_TEST(found.high - mean > 2 * deviation);
}

}  // namespace

BOOST_AUTO_TEST_CASE(initialisers_have_pytorchs_bounds) {
  for (const std::uint64_t seed : {0U, 1U, 20261121U}) {
    BOOST_TEST_CONTEXT("seed " << seed) {
      const auto weights = [](uniform_net& net, std::size_t entry) {
        const std::size_t bias = entry == 0 ? 12 : 40;
        return net.layer_parameters(entry).first(net.layer_parameters(entry).size() - bias);
      };
      uniform_net plain_default{executor, pg::layer_default{seed}};
      check_uniform(plain_default.layer_parameters(0), 1 / std::sqrt(conv_fan_in));
      check_uniform(plain_default.layer_parameters(2), 1 / std::sqrt(double{features}));
      uniform_net kaiming{executor, pg::kaiming_uniform{seed}};
      BOOST_TEST(weights(kaiming, 0).size() == conv_weights);
      check_uniform(weights(kaiming, 0), std::sqrt(6 / conv_fan_in));
      check_uniform(weights(kaiming, 2), std::sqrt(6 / double{features}));
      check_uniform(kaiming.layer_parameters(2).last(40), 1 / std::sqrt(double{features}));
      uniform_net leaky{executor,
                        pg::kaiming_uniform{seed, std::sqrt(5.0)}};  // nn.Linear's own call: the same as its default
      check_uniform(weights(leaky, 2), 1 / std::sqrt(double{features}));
      uniform_net xavier{executor, pg::xavier_uniform{seed, 2}};
      check_uniform(weights(xavier, 0), 2 * std::sqrt(6 / (conv_fan_in + conv_fan_out)));
      check_uniform(weights(xavier, 2), 2 * std::sqrt(6 / double{features + 40}));
      uniform_net normals{executor, pg::kaiming_normal{seed}};
      check_normal(weights(normals, 0), 0, std::sqrt(2 / conv_fan_in));
      check_normal(weights(normals, 2), 0, std::sqrt(2 / double{features}));
      uniform_net xavier_normals{executor, pg::xavier_normal{seed}};
      check_normal(weights(xavier_normals, 2), 0, std::sqrt(2 / double{features + 40}));
      uniform_net shifted{executor, pg::normal{seed, 3, 0.5}};
      check_normal(shifted.parameters(), 3, 0.5);
      uniform_net between{executor, pg::uniform{seed, -0.25, 0.25}};
      check_uniform(between.parameters(), 0.25);
    }
  }
}

// As a network draws both from one seed: an embedding and what is behind it, normal weights and uniform biases.
BOOST_AUTO_TEST_CASE(normal_numbers_share_nothing_with_uniform_ones) {
  const uniform_net normals{executor, pg::normal{7}}, uniforms{executor, pg::uniform{7}};
  const std::span<const double> normal = normals.parameters(), uniform = uniforms.parameters();
  for (const auto& [from, every] : {std::pair<std::size_t, std::size_t>{0, 1}, {0, 2}, {1, 2}}) {
    const std::size_t count = (normal.size() - from) / every;
    double sum = 0;
    for (std::size_t i = 0; i < count; ++i) {
      sum += (normal[i] * normal[i] - 1) * (uniform[from + every * i] - 0.5) / std::sqrt(2.0 / 12);
    }
    BOOST_TEST(std::abs(sum / static_cast<double>(count)) < 5 / std::sqrt(static_cast<double>(count)));
  }
}

BOOST_AUTO_TEST_CASE(constant_initialisers) {
  const auto all = [](const uniform_net& net, double value) {
    return std::all_of(net.parameters().begin(), net.parameters().end(), [&](double each) { return each == value; });
  };
  BOOST_TEST(all(uniform_net{executor, pg::zeros{}}, 0));
  BOOST_TEST(all(uniform_net{executor, pg::ones{}}, 1));
  BOOST_TEST(all(uniform_net{executor, pg::constant{-2.5}}, -2.5));
}

BOOST_AUTO_TEST_CASE(initial_values_depend_on_the_seed_and_nothing_else) {
  const pg::host other_executor{pg::threads{2}};
  const auto values = [](const auto& net) {
    return std::vector<double>{net.parameters().begin(), net.parameters().end()};
  };
  const std::vector<double> first = values(uniform_net{executor, pg::kaiming_uniform{7}});
  BOOST_TEST((first == values(uniform_net{other_executor, pg::kaiming_uniform{7}})));
  BOOST_TEST((first != values(uniform_net{executor, pg::kaiming_uniform{8}})));
  const uniform_net::rebind<float> narrow{executor, pg::kaiming_uniform{7}};  // the same numbers, rounded
  std::size_t different = 0;
  for (std::size_t i = 0; i < first.size(); ++i)
    different += narrow.parameters()[i] == static_cast<float>(first[i]) ? 0U : 1U;
  BOOST_TEST(different == 0U);
  std::vector<double> sorted = first;
  std::sort(sorted.begin(), sorted.end());
  BOOST_TEST((std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end()));  // no value is used twice
}

namespace {

/// y = x + w, with initial values of its own.
struct shift_by {
  static constexpr shape output_shape(shape in) { return in; }
  static constexpr std::size_t parameter_count(shape in) { return in.size(); }
  template <class Scalar>
  static void forward(shape, std::span<const Scalar> w, std::span<const Scalar> x, std::span<Scalar> y) {
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] + w[i];
  }
  template <class Scalar>
  static void backward(shape, std::span<const Scalar>, std::span<const Scalar>, std::span<const Scalar> backprop,
                       std::span<Scalar> dx) {
    std::copy(backprop.begin(), backprop.end(), dx.begin());
  }
  static constexpr auto factors(shape in) {
    return pg::list_factors(pg::elementwise_sum(1, in.size(), {.from = pg::source::backprop}));
  }
  template <class Initialiser, class Scalar>
  static void initialise(shape in, const Initialiser&, std::uint64_t first, std::span<Scalar> parameters) {
    for (std::size_t i = 0; i < in.size(); ++i) parameters[i] = static_cast<Scalar>(first * 100 + i);
  }
};

}  // namespace

BOOST_AUTO_TEST_CASE(a_layer_may_bring_its_own_initial_values) {
  using net_type = pg::network<shape{2}, linear<3>, shift_by>;
  const net_type net{executor, pg::zeros{}};
  const std::vector<float> expected{0, 0, 0, 0, 0, 0, 0, 0, 0, 900, 901, 902};
  BOOST_TEST(net.parameters() == expected, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()
