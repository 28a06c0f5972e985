// SPDX-License-Identifier: Apache-2.0
// tests/layers/affine_reference.hpp - convolutions of any kind by their definition, and networks that must agree
#pragma once

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <pergrad/pergrad.hpp>

#include "laws.hpp"

namespace layer_tests {

[[nodiscard]] inline std::vector<double> made_up(std::size_t count, std::uint64_t seed) {
  std::vector<double> numbers(count);
  for (std::size_t i = 0; i < count; ++i) numbers[i] = 2 * pergrad::detail::public_uniform(seed, i) - 1;
  return numbers;
}

inline void expect_close(const std::vector<double>& computed, const std::vector<double>& expected) {
  BOOST_REQUIRE_EQUAL(computed.size(), expected.size());
  for (std::size_t i = 0; i < computed.size(); ++i) {
    if (!(std::abs(computed[i] - expected[i]) <= 1e-12 * (1 + std::abs(expected[i])))) {
      BOOST_ERROR("element " << i << ": " << computed[i] << " instead of " << expected[i]);
    }
  }
}

/// Calls f(weight, element in the windows, position's element) for every multiply-add of a map, all in PyTorch's order.
template <class Function>
void for_each_link(const pergrad::affine_map& map, Function&& f) {
  const auto flat = [](std::size_t channel, pergrad::extent size, std::size_t d, std::size_t i, std::size_t j) {
    return ((channel * size.depth + d) * size.height + i) * size.width + j;
  };
  const std::size_t channels = map.in_channels / map.groups;
  for (std::size_t o = 0; o < map.out_channels; ++o) {
    const std::size_t group = o / (map.out_channels / map.groups);
    for (std::size_t c = 0; c < channels; ++c) {
      for (std::size_t tap = 0; tap < map.kernel.size(); ++tap) {
        const std::size_t kd = tap / map.kernel.width / map.kernel.height;
        const std::size_t kh = tap / map.kernel.width % map.kernel.height;
        const std::size_t kw = tap % map.kernel.width;
        for (std::size_t t = 0; t < map.out_size.size(); ++t) {
          const std::size_t d = t / map.out_size.width / map.out_size.height;
          const std::size_t i = t / map.out_size.width % map.out_size.height;
          const std::size_t j = t % map.out_size.width;
          const std::size_t in_d = d * map.stride.depth + kd * map.dilation.depth - map.padding.depth;
          const std::size_t in_i = i * map.stride.height + kh * map.dilation.height - map.padding.height;
          const std::size_t in_j = j * map.stride.width + kw * map.dilation.width - map.padding.width;
          // Before the first pixel these wrap round to huge numbers.
          if (in_d >= map.in_size.depth || in_i >= map.in_size.height || in_j >= map.in_size.width) continue;
          f((o * channels + c) * map.kernel.size() + tap, flat(group * channels + c, map.in_size, in_d, in_i, in_j),
            flat(o, map.out_size, d, i, j));
        }
      }
    }
  }
}

struct affine_answer {
  std::vector<double> y;
  std::vector<double> dx;
  std::vector<double> dw;  ///< weights, then biases
};

[[nodiscard]] inline affine_answer affine_by_definition(const pergrad::affine_map& map, const std::vector<double>& w,
                                                        const std::vector<double>& x, const std::vector<double>& dy) {
  affine_answer answer{std::vector<double>(dy.size()), std::vector<double>(x.size()), std::vector<double>(w.size())};
  const std::size_t per_bias = map.bias ? dy.size() / map.bias_count() : 1;
  for (std::size_t n = 0; n < dy.size() && map.bias; ++n) {
    answer.y[n] = w[map.weight_count() + n / per_bias];
    answer.dw[map.weight_count() + n / per_bias] += dy[n];
  }
  for_each_link(map, [&](std::size_t weight, std::size_t windowed, std::size_t position) {
    const std::size_t from = map.adjoint ? position : windowed;
    const std::size_t to = map.adjoint ? windowed : position;
    answer.y[to] += w[weight] * x[from];
    answer.dx[from] += w[weight] * dy[to];
    answer.dw[weight] += dy[to] * x[from];
  });
  return answer;
}

/// Outputs and per-sample gradients of three samples whose output gradients are given numbers.
struct network_answer {
  std::vector<double> outputs;
  std::vector<double> rows;
};
template <class Network>
[[nodiscard]] network_answer run_network(std::uint64_t seed = 7) {
  constexpr std::size_t samples = 3;
  const auto x = made_up(samples * Network::input_shape.size(), seed + 1);
  const auto dy = made_up(samples * Network::output_shape.size(), seed + 2);
  const pergrad::host exec{pergrad::threads{1}};
  const Network net{exec, pergrad::uniform{seed, -1, 1}};
  typename Network::tape tape{exec, pergrad::max_batch{samples}};
  const pergrad::batch<Network, given_backprop> batch{std::span<const double>{x}, std::span<const double>{dy}};
  const auto gradients = pergrad::per_sample_gradients(net, given_backprop{}, batch, tape);
  return {pergrad::unprotected::evaluate(exec, pergrad::outputs(gradients)),
          pergrad::unprotected::evaluate(exec, pergrad::materialise(gradients))};
}

/// An affine layer behind one bias an input element, against its definition: outputs, parameter and input gradients.
template <class Layer, pergrad::shape Input>
void agrees_with_its_definition(pergrad::shape output) {
  using network = pergrad::basic_network<double, Input, element_bias, Layer>;
  BOOST_TEST((network::output_shape == output));
  constexpr std::uint64_t seed = 11;
  constexpr pergrad::affine_map map = Layer::affine(Input);
  const network_answer computed = run_network<network>(seed);
  const auto parameters = [&] {
    const pergrad::host exec{pergrad::threads{1}};
    const network net{exec, pergrad::uniform{seed, -1, 1}};
    return std::vector<double>(net.parameters().begin(), net.parameters().end());
  }();
  const auto x = made_up(3 * Input.size(), seed + 1);
  const auto dy = made_up(3 * output.size(), seed + 2);
  const std::vector<double> weights(parameters.begin() + Input.size(), parameters.end());
  network_answer expected;
  for (std::size_t b = 0; b < 3; ++b) {
    std::vector<double> in(Input.size());
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = x[b * in.size() + i] + parameters[i];
    const std::vector<double> backprop(dy.data() + b * output.size(), dy.data() + (b + 1) * output.size());
    const affine_answer answer = affine_by_definition(map, weights, in, backprop);
    expected.outputs.insert(expected.outputs.end(), answer.y.begin(), answer.y.end());
    expected.rows.insert(expected.rows.end(), answer.dx.begin(), answer.dx.end());
    expected.rows.insert(expected.rows.end(), answer.dw.begin(), answer.dw.end());
  }
  expect_close(computed.outputs, expected.outputs);
  expect_close(computed.rows, expected.rows);
}

/// Two networks with the same parameters and values, under different shapes.
template <class One, class Other>
void agree() {
  const network_answer one = run_network<One>();
  const network_answer other = run_network<Other>();
  BOOST_TEST(one.outputs.size() > 0U);
  expect_close(one.outputs, other.outputs);
  expect_close(one.rows, other.rows);
}

}  // namespace layer_tests
