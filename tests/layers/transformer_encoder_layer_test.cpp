// SPDX-License-Identifier: Apache-2.0
// tests/layers/transformer_encoder_layer_test.cpp - the laws, PyTorch's order of parameters, dropout in all its places
#include <boost/test/unit_test.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <ratio>
#include <vector>

#include <pergrad/layers/transformer_encoder_layer.hpp>
#include <pergrad/pergrad.hpp>

#include "laws.hpp"

BOOST_AUTO_TEST_SUITE(transformer_encoder_layer_layer)

namespace {

using layer_tests::given_backprop;
using pergrad::basic_network;
using pergrad::dropout_rate;
using pergrad::gelu_activation;
using pergrad::mean_over_positions;
using pergrad::pre_norm;
using pergrad::sequential;
using pergrad::shape;
using pergrad::transformer_encoder_layer;
using pergrad::variable;

/// Offsets of the nodes' parameters, of those nodes that have any.
template <class Network>
std::vector<std::size_t> offsets() {
  std::vector<std::size_t> result;
  for (std::size_t i = 0; i < Network::structure::size; ++i) {
    if (Network::structure::parameter_counts[i] > 0) result.push_back(Network::structure::parameter_offsets[i]);
  }
  return result;
}

// in_proj 3 * 4 * 5, out_proj 4 * 5; linear1 6 * 5, linear2 4 * 7, norms 8 each.
constexpr std::size_t linear1 = 80;
constexpr std::size_t linear2 = linear1 + 30;
constexpr std::size_t norm1 = linear2 + 28;
constexpr std::size_t norm2 = norm1 + 8;
constexpr std::size_t end = norm2 + 8;

using dropping = basic_network<double, variable(shape{4, 4}),
                               transformer_encoder_layer<2, 6, dropout_rate<1.0 / 3>, gelu_activation>>;

}  // namespace

BOOST_AUTO_TEST_CASE(laws) { layer_tests::keeps_the_laws<transformer_encoder_layer<2, 5>, shape{4, 4}>(); }
BOOST_AUTO_TEST_CASE(varying_pre_norm_gelu_laws) {
  layer_tests::keeps_the_laws_in_double<
      sequential<transformer_encoder_layer<1, 5, pre_norm, gelu_activation, dropout_rate<1.0 / 3>>,
                 mean_over_positions>,
      variable(shape{4, 3})>();
}

BOOST_AUTO_TEST_CASE(parameters_are_in_pytorchs_order) {
  using behind = basic_network<float, shape{3, 4}, transformer_encoder_layer<2, 6>>;
  using before = basic_network<float, shape{3, 4}, transformer_encoder_layer<2, 6, pre_norm>>;
  using before_with_dropout =
      basic_network<float, shape{3, 4}, transformer_encoder_layer<2, 6, dropout_rate<1.0 / 9>, pre_norm>,
                    pergrad::linear<2>>;
  static_assert(behind::parameter_count == end);
  BOOST_TEST(offsets<behind>() == (std::vector<std::size_t>{0, norm1, linear1, linear2, norm2}),
             boost::test_tools::per_element());
  BOOST_TEST(offsets<dropping>() == (std::vector<std::size_t>{0, norm1, linear1, linear2, norm2}),
             boost::test_tools::per_element());
  BOOST_TEST(offsets<before>() == (std::vector<std::size_t>{norm1, 0, norm2, linear1, linear2}),
             boost::test_tools::per_element());
  BOOST_TEST(offsets<before_with_dropout>() == (std::vector<std::size_t>{norm1, 0, norm2, linear1, linear2, end}),
             boost::test_tools::per_element());
}
BOOST_AUTO_TEST_CASE(order_among_tied_frozen_and_several) {
  using two = basic_network<float, shape{3, 4}, transformer_encoder_layer<2, 6>, transformer_encoder_layer<2, 6>>;
  BOOST_TEST(offsets<two>() == (std::vector<std::size_t>{0, norm1, linear1, linear2, norm2, end, end + norm1,
                                                         end + linear1, end + linear2, end + norm2}),
             boost::test_tools::per_element());
  using tied = basic_network<float, shape{3, 4}, pergrad::tied<1, transformer_encoder_layer<2, 6, pre_norm>>,
                             pergrad::tied<1, transformer_encoder_layer<2, 6, pre_norm>>>;
  BOOST_TEST(offsets<tied>() ==
                 (std::vector<std::size_t>{norm1, 0, norm2, linear1, linear2, norm1, 0, norm2, linear1, linear2}),
             boost::test_tools::per_element());
  using frozen = basic_network<float, shape{3, 4}, pergrad::frozen<transformer_encoder_layer<2, 6>>,
                               pergrad::linear<4, pergrad::no_bias>>;
  BOOST_TEST(offsets<frozen>() == (std::vector<std::size_t>{16, 16 + norm1, 16 + linear1, 16 + linear2, 16 + norm2, 0}),
             boost::test_tools::per_element());
}

// Attention's probabilities, its output, the hidden values and the block's end all drop; the gradient is that of the
// function that was drawn.
BOOST_AUTO_TEST_CASE(dropout_keeps_gradients_true) {
  constexpr std::size_t samples = 4;
  constexpr std::size_t outputs = 16;
  const pergrad::layer_randomness randomness = layer_tests::randomness_of(3, 2);
  const pergrad::host exec{pergrad::threads{1}};
  dropping net{exec, pergrad::uniform{2, -0.7, 0.7}};
  dropping::tape tape{exec, pergrad::max_batch{samples}};
  const auto data = pergrad::testing::draw_samples<dropping, given_backprop>(4, samples);
  const auto batch = data.view();
  const auto outputs_of = [&](const pergrad::layer_randomness& how) {
    return pergrad::unprotected::evaluate(
        exec, pergrad::outputs(pergrad::per_sample_gradients(net, given_backprop{}, batch, tape).with(how)));
  };
  const auto rows = pergrad::unprotected::evaluate(
      exec, pergrad::materialise(pergrad::per_sample_gradients(net, given_backprop{}, batch, tape).with(randomness)));
  BOOST_TEST(outputs_of({}) != outputs_of(randomness));
  double worst = 0;
  for (std::size_t p = 0; p < dropping::parameter_count; ++p) {
    const double before = net.parameters()[p];
    net.parameters()[p] = before + 1e-5;
    const auto high = outputs_of(randomness);
    net.parameters()[p] = before - 1e-5;
    const auto low = outputs_of(randomness);
    net.parameters()[p] = before;
    for (std::size_t b = 0; b < samples; ++b) {
      double slope = 0;
      for (std::size_t i = b * outputs; i < (b + 1) * outputs; ++i)
        slope += data.targets[i] * (high[i] - low[i]) / 2e-5;
      worst = std::max(worst, std::fabs(slope - rows[b * dropping::parameter_count + p]));
    }
  }
  BOOST_TEST(worst < 1e-7);
}

BOOST_AUTO_TEST_SUITE_END()
