// SPDX-License-Identifier: Apache-2.0
// tests/expressions/fixture.hpp - two small networks with data, and plain arithmetic on materialised gradients to
// compare with.
#pragma once

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <pergrad/pergrad.hpp>

#include "comparing.hpp"

namespace fixture {

namespace pg = pergrad;
using comparing::check_close;
using comparing::norm_of;

/// A convolutional network with a residual whose shortcut is projected, an odd image and a pool.
template <class Scalar>
using cnn =
    pg::basic_network<Scalar, pg::shape{2, 7, 6}, pg::conv2d<4, 3, pg::padding<1>>, pg::tanh,
                      pg::residual<pg::conv2d<5, 3, pg::padding<1>>, pg::sigmoid, pg::projection<pg::conv2d<5, 1>>>,
                      pg::max_pool2d<2>, pg::flatten, pg::linear<3>>;
template <class Scalar>
using mlp = pg::basic_network<Scalar, pg::shape{6}, pg::linear<9>, pg::tanh, pg::linear<2>>;

/// A batch that owns its numbers.
template <class Network, class Loss>
struct samples {
  using scalar = typename Network::scalar;
  using target = pg::target_of<Loss, scalar>;
  static constexpr std::size_t width = Network::input_shape.size();
  static constexpr std::size_t target_count = Loss::target_count(Network::output_shape);

  std::vector<scalar> inputs;
  std::vector<target> targets;

  samples(std::size_t count, std::uint32_t seed) : inputs(count * width), targets(count * target_count) {
    std::mt19937 random{seed};
    std::uniform_real_distribution<double> uniform{-1, 1};
    for (scalar& value : inputs) value = static_cast<scalar>(uniform(random));
    for (target& value : targets) {
      if constexpr (std::is_integral_v<target>) {
        value = static_cast<target>(random() % Network::output_shape.size());
      } else {
        value = static_cast<target>(uniform(random));
      }
    }
  }
  [[nodiscard]] std::size_t size() const { return inputs.size() / width; }
  [[nodiscard]] pg::batch<Network, Loss> batch() const { return part(0, size()); }
  [[nodiscard]] pg::batch<Network, Loss> part(std::size_t first, std::size_t count) const {
    return {std::span{inputs}.subspan(first * width, count * width),
            std::span{targets}.subspan(first * target_count, count * target_count)};
  }
};

/// Network, data, tape and lazy gradients in one place.
template <class Network, class Loss>
struct problem {
  using network_type = Network;
  using loss_type = Loss;
  using scalar = typename Network::scalar;
  static constexpr std::size_t parameter_count = Network::parameter_count;

  pg::host exec;
  Network net;
  pg::tape<Network> tape;
  samples<Network, Loss> data;
  pg::batch<Network, Loss> batch;

  explicit problem(std::size_t count, std::size_t thread_count = 2, std::size_t sums = 8, std::uint32_t seed = 7)
      : exec{pg::threads{thread_count}},
        net{exec, pg::kaiming_uniform{5}},
        tape{exec, pg::max_batch{std::max<std::size_t>(count, 1)}, pg::max_sums{sums}},
        data{count, seed},
        batch{data.batch()} {}

  [[nodiscard]] auto gradients() { return pg::per_sample_gradients(net, Loss{}, batch, tape); }
  [[nodiscard]] std::vector<scalar> rows() { return pg::unprotected::evaluate(exec, pg::materialise(gradients())); }
};

using cnn_problem = problem<cnn<double>, pg::cross_entropy>;
using mlp_problem = problem<mlp<double>, pg::mean_squared_error>;

template <class Scalar>
[[nodiscard]] std::span<const Scalar> row_of(const std::vector<Scalar>& rows, std::size_t width, std::size_t sample) {
  return std::span{rows}.subspan(sample * width, width);
}
/// f(gradients, name) for each way to find norms of exactly what is added.
template <class Gradients, class Function>
void for_each_exact_way(const Gradients& g, Function&& f) {
  using enum pg::norm_method;
  f(pg::with_method<automatic>(g), "automatic");
  f(pg::with_method<gram>(g), "gram");
  f(pg::with_method<direct>(g), "direct");
  f(pg::with_method<instantiate>(g), "instantiate");
  f(pg::with_strategy<pg::strategy::crb>(g), "crb");
  f(pg::with_strategy<pg::strategy::ghost>(g), "ghost");
}

template <class Scalar>
void check_same_bits(const std::vector<Scalar>& found, const std::vector<Scalar>& wanted, const std::string& what) {
  BOOST_TEST_REQUIRE(found.size() == wanted.size(), what);
  std::size_t different = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const bool same = found[i] == wanted[i] ? std::signbit(found[i]) == std::signbit(wanted[i])
                                            : std::isnan(found[i]) && std::isnan(wanted[i]);
    different += same ? 0U : 1U;
  }
  BOOST_TEST(different == 0U, what << ": " << different << " of " << found.size() << " values differ");
}

/// sum_b weight(b) row_b
template <class Scalar, class Weight>
[[nodiscard]] std::vector<double> weighted(const std::vector<Scalar>& rows, std::size_t width, Weight weight) {
  std::vector<double> sum(width);
  for (std::size_t b = 0; b * width < rows.size(); ++b) {
    for (std::size_t i = 0; i < width; ++i) sum[i] += weight(b) * static_cast<double>(rows[b * width + i]);
  }
  return sum;
}

}  // namespace fixture
