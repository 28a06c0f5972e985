// SPDX-License-Identifier: Apache-2.0
// tests/layers/multihead_attention_test.cpp - self-attention: the laws, a long double oracle, masks, dropout
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <ratio>
#include <span>
#include <tuple>
#include <vector>

#include <pergrad/layers/multihead_attention.hpp>
#include <pergrad/pergrad.hpp>

#include "attention_oracle.hpp"
#include "laws.hpp"

BOOST_AUTO_TEST_SUITE(multihead_attention_layer)

namespace {

using attention_tests::dual;
using attention_tests::matrix;
using layer_tests::element_bias;
using layer_tests::given_backprop;
using layer_tests::keeps_the_laws;
using layer_tests::keeps_the_laws_in_double;
using pergrad::basic_network;
using pergrad::causal;
using pergrad::kv_bias;
using pergrad::mean_over_positions;
using pergrad::multihead_attention;
using pergrad::no_bias;
using pergrad::sequential;
using pergrad::shape;
using pergrad::variable;

template <class Layer, shape Input>
void is_the_oracle(const attention_tests::kind& how, std::size_t samples) {
  using network = basic_network<double, Input, element_bias, Layer>;
  attention_tests::compare<network>(11, samples, [&](const matrix& x, const dual* parameters) {
    const matrix biased = attention_tests::add_biases(x, parameters);
    return attention_tests::attention(how, biased, biased, parameters + Input.size());
  });
}

}  // namespace

BOOST_AUTO_TEST_CASE(laws) { keeps_the_laws<multihead_attention<2>, shape{5, 4}>(); }
#ifdef PERGRAD_LONG_TESTS
BOOST_AUTO_TEST_CASE(causal_kv_bias_laws) {
  keeps_the_laws_in_double<multihead_attention<3, causal, kv_bias>, shape{4, 6}>();
}
BOOST_AUTO_TEST_CASE(no_bias_laws) { keeps_the_laws_in_double<multihead_attention<1, no_bias>, shape{5, 3}>(); }
#endif
BOOST_AUTO_TEST_CASE(varying_laws) {
  keeps_the_laws<sequential<multihead_attention<2>, mean_over_positions>, variable(shape{5, 4})>();
}
#ifdef PERGRAD_LONG_TESTS
BOOST_AUTO_TEST_CASE(varying_causal_kv_bias_no_bias_laws) {
  keeps_the_laws_in_double<sequential<multihead_attention<2, kv_bias, no_bias, causal>, mean_over_positions>,
                           variable(shape{4, 4})>();
}
#endif

BOOST_AUTO_TEST_CASE(oracle) { is_the_oracle<multihead_attention<3>, shape{7, 6}>({.heads = 3}, 3); }
BOOST_AUTO_TEST_CASE(oracle_without_bias) {
  is_the_oracle<multihead_attention<2, no_bias, kv_bias>, shape{6, 4}>({.heads = 2, .bias = false, .kv_bias = true}, 3);
}
BOOST_AUTO_TEST_CASE(oracle_of_long_causal_sequences) {  // longer than the blocks that share a product
  is_the_oracle<multihead_attention<2, causal>, shape{39, 4}>({.heads = 2, .causal = true}, 1);
  is_the_oracle<multihead_attention<1, kv_bias, causal>, shape{33, 3}>({.heads = 1, .causal = true, .kv_bias = true},
                                                                       1);
}
BOOST_AUTO_TEST_CASE(oracle_of_more_queries_than_a_stretch) {
  is_the_oracle<multihead_attention<2>, shape{70, 4}>({.heads = 2}, 1);
  is_the_oracle<multihead_attention<1, kv_bias>, variable(shape{67, 2})>({.heads = 1, .kv_bias = true}, 2);
}
BOOST_AUTO_TEST_CASE(oracle_of_varying_lengths) {
  is_the_oracle<multihead_attention<2>, variable(shape{9, 4})>({.heads = 2}, 6);
  is_the_oracle<multihead_attention<2, causal, kv_bias>, variable(shape{35, 2})>(
      {.heads = 2, .causal = true, .kv_bias = true}, 3);
}

// Scores far beyond what exp can take: the largest wins, and nothing overflows.
BOOST_AUTO_TEST_CASE(large_scores) {
  using network = basic_network<double, shape{3, 1}, multihead_attention<1, no_bias>>;
  network net{pergrad::host{}, pergrad::ones{}};
  const std::vector<double> x{100, 200, -300};
  const std::vector<double> dy{1, 1, 1};
  typename network::tape tape{pergrad::host{}, pergrad::max_batch{1}};
  const pergrad::batch<network, given_backprop> batch{std::span<const double>{x}, std::span<const double>{dy}};
  const auto gradients = pergrad::per_sample_gradients(net, given_backprop{}, batch, tape);
  const auto y = pergrad::unprotected::evaluate(pergrad::host{}, pergrad::outputs(gradients));
  BOOST_TEST(y == (std::vector<double>{200, 200, -300}), boost::test_tools::per_element());
  // d/d in_proj: the scores' part is zero, the values' part sees the winners.
  const auto row = pergrad::unprotected::evaluate(pergrad::host{}, pergrad::materialise(gradients));
  BOOST_TEST(row == (std::vector<double>{0, 0, 100, 100}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(first_values_are_pytorchs) {
  using network = pergrad::network<shape{2, 6}, multihead_attention<2, kv_bias>>;
  const network net{pergrad::host{}, pergrad::layer_default{3}};
  const std::span<const float> w = net.parameters();
  const auto largest = [&](std::size_t from, std::size_t to) {
    float most = 0;
    for (std::size_t i = from; i < to; ++i) most = std::max(most, std::fabs(w[i]));
    return static_cast<double>(most);
  };
  BOOST_TEST(largest(0, 108) <= 0.5);  // in_proj_weight: Xavier, sqrt(6 / (6 + 18))
  BOOST_TEST(largest(0, 108) > 0.45);
  BOOST_TEST(largest(108, 126) == 0);  // in_proj_bias
  BOOST_TEST(largest(126, 138) > 0);   // bias_k, bias_v
  BOOST_TEST(largest(138, 174) <= 1 / std::sqrt(6.0));
  BOOST_TEST(largest(138, 174) > 0.35);
  BOOST_TEST(largest(174, 180) == 0);  // out_proj.bias
}

// Dropout -----------------------------------------------------------------------------------------------------------

namespace {
using dropping = basic_network<double, variable(shape{6, 4}), element_bias,
                               multihead_attention<2, kv_bias, causal, pergrad::attention_dropout<1.0 / 3>>>;
using keeping = basic_network<double, variable(shape{6, 4}), element_bias, multihead_attention<2, kv_bias, causal>>;
// Of several tiles, in each of which the mask is drawn again for the backward pass.
template <std::size_t Positions, class... Options>
using long_dropping = basic_network<double, variable(shape{Positions, 2}),
                                    multihead_attention<2, pergrad::attention_dropout<1.0 / 3>, Options...>>;
using dropping_networks = std::tuple<dropping, long_dropping<75>, long_dropping<40, causal>>;

template <class Network>
struct run {
  std::vector<double> outputs;
  std::vector<double> rows;
};
template <class Network>
run<Network> look(const Network& net, const pergrad::testing::sample_set<Network, given_backprop>& data,
                  const pergrad::layer_randomness& randomness, std::size_t threads = 1) {
  const pergrad::host exec{pergrad::threads{threads}};
  typename Network::tape tape{exec, pergrad::max_batch{data.size()}};
  const auto batch = data.view();
  const auto gradients = pergrad::per_sample_gradients(net, given_backprop{}, batch, tape).with(randomness);
  return {pergrad::unprotected::evaluate(exec, pergrad::outputs(gradients)),
          pergrad::unprotected::evaluate(exec, pergrad::materialise(gradients))};
}
}  // namespace

BOOST_AUTO_TEST_CASE_TEMPLATE(dropout_keeps_gradients_true, network, dropping_networks) {
  constexpr std::size_t size = network::output_shape.size();
  const pergrad::layer_randomness randomness = layer_tests::randomness_of(1, 5);
  constexpr std::size_t samples = 5;
  network net{pergrad::host{}, pergrad::uniform{2, -0.7, 0.7}};
  const auto data = pergrad::testing::draw_samples<network, given_backprop>(4, samples);
  const auto at = look(net, data, randomness);
  BOOST_TEST(look(net, data, randomness, 3).rows == at.rows, boost::test_tools::per_element());
  BOOST_TEST(look(net, data, layer_tests::randomness_of(1, 6)).outputs != at.outputs);
  double worst = 0;
  for (std::size_t p = 0; p < network::parameter_count; ++p) {
    const double before = net.parameters()[p];
    std::vector<double> sides[2];
    for (int side = 0; side < 2; ++side) {
      net.parameters()[p] = before + (side == 0 ? 1e-5 : -1e-5);
      sides[side] = look(net, data, randomness).outputs;
    }
    net.parameters()[p] = before;
    for (std::size_t b = 0; b < samples; ++b) {
      double slope = 0;
      for (std::size_t i = 0; i < size; ++i) {
        slope += data.targets[b * size + i] * (sides[0][b * size + i] - sides[1][b * size + i]) / 2e-5;
      }
      worst = std::max(worst, std::fabs(slope - at.rows[b * network::parameter_count + p]));
    }
  }
  BOOST_TEST(worst < 1e-8);
}
BOOST_AUTO_TEST_CASE(dropout_does_nothing_in_evaluation) {
  const dropping net{pergrad::host{}, pergrad::uniform{2, -0.7, 0.7}};
  const keeping same{pergrad::host{}, pergrad::uniform{2, -0.7, 0.7}};
  const auto data = pergrad::testing::draw_samples<dropping, given_backprop>(4, 7);
  pergrad::testing::sample_set<keeping, given_backprop> twin{data.inputs, data.targets, data.lengths};
  const auto a = look(net, data, {});
  const auto b = look(same, twin, {});
  BOOST_TEST(a.outputs == b.outputs, boost::test_tools::per_element());
  BOOST_TEST(a.rows == b.rows, boost::test_tools::per_element());
}
// The mean over many masks is the layer without dropout: y is linear in the probabilities.
BOOST_AUTO_TEST_CASE(dropout_is_unbiased) {
  constexpr std::size_t samples = 4000;
  const dropping net{pergrad::host{}, pergrad::uniform{2, -0.7, 0.7}};
  auto data = pergrad::testing::draw_samples<dropping, given_backprop>(4, 1);
  data.lengths = {5};
  const auto plain = look(net, data, {});
  for (std::size_t b = 1; b < samples; ++b) {
    data.inputs.insert(data.inputs.end(), data.inputs.begin(), data.inputs.begin() + 24);
    data.targets.insert(data.targets.end(), data.targets.begin(), data.targets.begin() + 24);
    data.lengths.push_back(5);
  }
  const auto masked = look(net, data, layer_tests::randomness_of(1, 1));
  for (std::size_t i = 0; i < 20; ++i) {
    double sum = 0;
    double squares = 0;
    for (std::size_t b = 0; b < samples; ++b) {
      const double y = masked.outputs[b * 24 + i] - plain.outputs[i];
      sum += y;
      squares += y * y;
    }
    BOOST_TEST(squares > 0);
    BOOST_TEST(std::fabs(sum) < 5 * std::sqrt(squares));
  }
}

BOOST_AUTO_TEST_CASE(nothing_behind_a_length_exists) {
  layer_tests::keeps_the_law_of_lengths<basic_network<double, variable(shape{6, 4}), multihead_attention<2, kv_bias>,
                                                      multihead_attention<1, causal>, mean_over_positions>>();
}

BOOST_AUTO_TEST_SUITE_END()
