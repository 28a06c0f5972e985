// SPDX-License-Identifier: Apache-2.0
// tests/layers/laws.hpp - runs a layer through the shipped laws, and shows its response to chosen numbers
#pragma once

#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include <pergrad/pergrad.hpp>
#include <pergrad/testing/layer_laws.hpp>
#include <pergrad/testing/length_law.hpp>

namespace layer_tests {

inline void expect_no_violation(const pergrad::testing::laws_report& report) {
  BOOST_TEST_MESSAGE(report.text());
  BOOST_TEST(report.comparisons() > 10'000U);
  for (const auto& broken : report) BOOST_ERROR(broken.text());
}

/// Has each layer of the library, and each part of one, a name?
template <class Network>
constexpr bool has_names() {
  bool all = true;
  pergrad::detail::for_each_layer<typename Network::structure>(
      [&]<class Layer>(std::type_identity<Layer> /*type*/, std::size_t /*entry*/) {
        all = all && std::string_view{pergrad::detail::name_of_layer<Layer>()} != "layer";
      });
  return all;
}

/// The randomness inside layers of a step, by a seed. The generator lives as long as the program.
inline pergrad::layer_randomness randomness_of(std::uint64_t seed, std::uint64_t step) {
  static std::deque<pergrad::seeded_generator> generators;
  return pergrad::layer_randomness::of_next_step(generators.emplace_back(seed, step));
}

/// Half the compile time: for the options of a layer whose float twin is examined elsewhere. Most options are examined
/// in the long tier alone; each layer is in both.
template <class Layer, pergrad::shape Input>
void keeps_the_laws_in_double() {
  static_assert(has_names<pergrad::testing::network_around<double, Layer, Input>>());
  expect_no_violation(pergrad::testing::check_network<pergrad::testing::network_around<double, Layer, Input>>());
}
/// In the long tier in float, too.
template <class Layer, pergrad::shape Input>
void keeps_the_laws() {
#ifdef PERGRAD_LONG_TESTS
  static_assert(has_names<pergrad::testing::network_around<double, Layer, Input>>());
  expect_no_violation(pergrad::testing::check_layer<Layer, Input>());
#else
  keeps_the_laws_in_double<Layer, Input>();
#endif
}

/// A whole network, for what does not fit between two linear layers.
template <class Network>
void network_keeps_the_laws() {
  expect_no_violation(pergrad::testing::check_network<Network>());
}

/// Samples with lengths of their own: what lies behind them does not exist. Each network here can be cut.
template <class Network>
void keeps_the_law_of_lengths() {
  static_assert(pergrad::testing::has_shorter<Network, (Network::input_shape.e0 + 1) / 2>);
  const auto report = pergrad::testing::check_lengths<Network>();
  BOOST_TEST_MESSAGE(report.text());
  BOOST_TEST(report.comparisons() > 200U);
  for (const auto& broken : report) BOOST_ERROR(broken.text());
}

/// y = x + b, one b an element: its gradient is the input gradient of the layer behind it.
struct element_bias {
  [[nodiscard]] static constexpr pergrad::shape output_shape(pergrad::shape in) { return in; }
  [[nodiscard]] static constexpr std::size_t parameter_count(pergrad::shape in) { return in.size(); }
  template <class Scalar>
  static void forward(pergrad::shape /*in*/, std::span<const Scalar> b, std::span<const Scalar> x,
                      std::span<Scalar> y) {
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = x[i] + b[i];
  }
  template <class Scalar>
  static void backward(pergrad::shape /*in*/, std::span<const Scalar> /*b*/, std::span<const Scalar> /*x*/,
                       std::span<const Scalar> backprop, std::span<Scalar> dx) {
    for (std::size_t i = 0; i < dx.size(); ++i) dx[i] = backprop[i];
  }
  [[nodiscard]] static constexpr auto factors(pergrad::shape in) {
    return pergrad::list_factors(pergrad::elementwise_sum(1, in.size(), {pergrad::source::backprop}));
  }
};

/// L = sum_i t_i y_i: the targets are the gradient with respect to the output.
struct given_backprop {
  template <class Scalar>
  using target = Scalar;
  [[nodiscard]] static constexpr std::size_t target_count(pergrad::shape output) { return output.size(); }
  [[nodiscard]] static constexpr bool accepts(pergrad::shape /*output*/) { return true; }
  template <class Scalar>
  [[nodiscard]] static constexpr bool valid(pergrad::shape /*output*/, std::span<const Scalar> /*targets*/) {
    return true;
  }
  template <class Scalar>
  [[nodiscard]] static double evaluate(std::span<const Scalar> y, std::span<const Scalar> targets,
                                       std::span<Scalar> dy) {
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) {
      sum += static_cast<double>(y[i] * targets[i]);
      dy[i] = targets[i];
    }
    return sum;
  }
};

struct response {
  std::vector<double> output;
  std::vector<double> input_gradient;
};

/// What a layer without parameters makes of one input x and one output gradient dy.
template <class Layer, pergrad::shape Input>
[[nodiscard]] response respond(const std::vector<double>& x, const std::vector<double>& dy) {
  using network = pergrad::basic_network<double, Input, element_bias, Layer>;
  const pergrad::host exec{pergrad::threads{1}};
  const network net{exec, pergrad::constant{-0.0}};  // x + -0 is x, also for -0
  typename network::tape tape{exec, pergrad::max_batch{1}};
  const pergrad::batch<network, given_backprop> batch{std::span<const double>{x}, std::span<const double>{dy}};
  const auto gradients = pergrad::per_sample_gradients(net, given_backprop{}, batch, tape);
  return {pergrad::unprotected::evaluate(exec, pergrad::outputs(gradients)),
          pergrad::unprotected::evaluate(exec, pergrad::materialise(gradients))};
}

/// An elementwise layer's function on doubles, by the vectors that networks use.
template <class Layer>
[[nodiscard]] response respond_to(const std::vector<double>& x) {
  constexpr std::size_t most = 11;  // not a multiple of any vector
  std::vector<double> padded(most, 0.5);
  for (std::size_t i = 0; i < x.size(); ++i) padded[i] = x[i];
  response result = respond<Layer, pergrad::shape{most}>(padded, std::vector<double>(most, 1.0));
  result.output.resize(x.size());
  result.input_gradient.resize(x.size());
  return result;
}

}  // namespace layer_tests
