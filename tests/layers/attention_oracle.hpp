// SPDX-License-Identifier: Apache-2.0
// tests/layers/attention_oracle.hpp - attention as PyTorch's documentation writes it, in long double, and its gradient
//
// One sample at a time and one loop a sum. Gradients by dual numbers: one evaluation of the whole layer a parameter.
#pragma once

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <pergrad/pergrad.hpp>

#include "laws.hpp"

namespace attention_tests {

/// a + b epsilon with epsilon^2 = 0.
struct dual {
  long double value = 0;
  long double slope = 0;
};
inline dual operator+(dual a, dual b) { return {a.value + b.value, a.slope + b.slope}; }
inline dual operator-(dual a, dual b) { return {a.value - b.value, a.slope - b.slope}; }
inline dual operator*(dual a, dual b) { return {a.value * b.value, a.slope * b.value + a.value * b.slope}; }
inline dual operator/(dual a, dual b) {
  const long double value = a.value / b.value;
  return {value, (a.slope - value * b.slope) / b.value};
}
inline dual exp(dual a) {
  const long double value = std::exp(a.value);
  return {value, a.slope * value};
}

using matrix = std::vector<std::vector<dual>>;

struct kind {
  std::size_t heads = 1;
  bool causal = false;
  bool bias = true;
  bool kv_bias = false;
};

/// rows W^T + b, with W at `weight` and b (null: none).
inline matrix project(const matrix& rows, std::size_t outputs, const dual* weight, const dual* bias) {
  matrix result;
  for (const auto& row : rows) {
    std::vector<dual> out(outputs);
    for (std::size_t o = 0; o < outputs; ++o) {
      if (bias != nullptr) out[o] = bias[o];
      for (std::size_t i = 0; i < row.size(); ++i) out[o] = out[o] + weight[o * row.size() + i] * row[i];
    }
    result.push_back(out);
  }
  return result;
}

/// Queries x ask memory m; parameters as PyTorch orders them.
inline matrix attention(const kind& how, const matrix& x, const matrix& m, const dual* parameters) {
  const std::size_t features = x[0].size();
  const std::size_t width = features / how.heads;
  const dual* key_weight = parameters + features * features;
  const dual* value_weight = key_weight + features * m[0].size();
  const dual* next = value_weight + features * m[0].size();
  const dual* bias = how.bias ? next : nullptr;
  next += how.bias ? 3 * features : 0;
  const matrix query = project(x, features, parameters, bias);
  matrix key = project(m, features, key_weight, how.bias ? bias + features : nullptr);
  matrix value = project(m, features, value_weight, how.bias ? bias + 2 * features : nullptr);
  const std::size_t given = key.size();
  if (how.kv_bias) {
    key.emplace_back(next, next + features);
    value.emplace_back(next + features, next + 2 * features);
    next += 2 * features;
  }
  matrix context(x.size(), std::vector<dual>(features));
  for (std::size_t head = 0; head < how.heads; ++head) {
    for (std::size_t t = 0; t < x.size(); ++t) {
      std::vector<dual> powers(key.size());
      dual sum;
      for (std::size_t s = 0; s < key.size(); ++s) {
        if (how.causal && s > t && s < given) continue;
        dual score;
        for (std::size_t i = head * width; i < (head + 1) * width; ++i) score = score + query[t][i] * key[s][i];
        powers[s] = exp(score * dual{1 / std::sqrt(static_cast<long double>(width))});
        sum = sum + powers[s];
      }
      for (std::size_t s = 0; s < key.size(); ++s) {
        for (std::size_t i = head * width; i < (head + 1) * width; ++i) {
          context[t][i] = context[t][i] + powers[s] / sum * value[s][i];
        }
      }
    }
  }
  return project(context, features, next, how.bias ? next + features * features : nullptr);
}

/// Compares a network of doubles with `expected(x, parameters)`, which gives the sample's output rows for input rows x
/// (only those that are there) and all parameters. The loss is the sum of outputs times targets.
template <class Network, class Function>
void compare(std::uint64_t seed, std::size_t samples, const Function& expected) {
  namespace testing = pergrad::testing;
  using loss = layer_tests::given_backprop;
  const Network network{pergrad::host{}, pergrad::uniform{seed, -0.7, 0.7}};
  const auto data = testing::draw_samples<Network, loss>(seed + 1, samples);
  testing::observer<Network, loss> observer{pergrad::threads{1}, samples};
  const auto seen = observer.look(network, data, 1);
  constexpr std::size_t count = Network::parameter_count;
  constexpr std::size_t features = Network::input_shape.e1;
  constexpr std::size_t outputs = Network::output_shape.size();
  for (std::size_t b = 0; b < samples; ++b) {
    const std::size_t length = data.lengths.empty() ? Network::input_shape.e0 : data.lengths[b];
    matrix x(length, std::vector<dual>(features));
    for (std::size_t t = 0; t < length; ++t) {
      for (std::size_t i = 0; i < features; ++i) {
        x[t][i].value = static_cast<long double>(data.inputs[(b * Network::input_shape.e0 + t) * features + i]);
      }
    }
    std::vector<dual> parameters(count);
    for (std::size_t p = 0; p < count; ++p) parameters[p].value = static_cast<long double>(network.parameters()[p]);
    const auto flat = [&] {
      std::vector<dual> y;
      for (const auto& row : expected(x, parameters.data())) y.insert(y.end(), row.begin(), row.end());
      return y;
    };
    std::vector<dual> y = flat();
    y.resize(outputs);  // zeros behind the length
    double worst = 0;
    for (std::size_t i = 0; i < outputs; ++i) {
      worst = std::max(worst, std::fabs(static_cast<double>(y[i].value) - seen.outputs[b * outputs + i]));
    }
    BOOST_TEST(worst < 1e-13);
    double worst_gradient = 0;
    double largest = 0;
    for (std::size_t p = 0; p < count; ++p) {
      parameters[p].slope = 1;
      const std::vector<dual> moved = flat();
      parameters[p].slope = 0;
      long double gradient = 0;
      for (std::size_t i = 0; i < moved.size(); ++i) {
        gradient += static_cast<long double>(data.targets[b * outputs + i]) * moved[i].slope;
      }
      largest = std::max(largest, static_cast<double>(std::fabs(gradient)));
      worst_gradient = std::max(worst_gradient, std::fabs(static_cast<double>(gradient) - seen.rows[b * count + p]));
    }
    BOOST_TEST(largest > 0.1);
    BOOST_TEST(worst_gradient < 1e-13 * std::max(1.0, largest));
  }
}

/// x + the element biases in front of the layer: their gradient is the layer's input gradient.
inline matrix add_biases(matrix x, const dual* biases) {
  for (std::size_t t = 0; t < x.size(); ++t) {
    for (std::size_t i = 0; i < x[t].size(); ++i) x[t][i] = x[t][i] + biases[t * x[t].size() + i];
  }
  return x;
}

}  // namespace attention_tests
