// SPDX-License-Identifier: Apache-2.0
// tests/cuda/device_fixture.hpp - one problem on two executors: the host, and a device that the host emulates
#pragma once

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <pergrad/cuda/run/executor.hpp>
#include <pergrad/cuda/run/trainer.hpp>
#include <pergrad/pergrad.hpp>

#include "comparing.hpp"

namespace device_fixture {

namespace pg = pergrad;
using comparing::check_close;
using comparing::norm_of;
using pg::on_device::emulation_order;

/// Of steps that take all records and release their clipped sum without noise.
inline pg::dp_sgd_options of_whole_sums(double clip, std::size_t records, std::size_t max_batch) {
  pg::dp_sgd_options options;
  options.clip = pg::l2_clip_norm{clip};
  options.noise = pg::noise_multiplier{0};
  options.sampling = pg::poisson_sampling{pg::sampling_probability{1.0}};
  options.divisor = pg::expected_batch_size{static_cast<double>(records)};
  options.learning_rate = pg::learning_rate{0.3};
  options.max_batch = pg::max_batch{max_batch};
  return options;
}

/// A device whose blocks have no shared memory but what a kernel has of its own: none holds a sample.
template <class Device>
struct without_room : Device {
  using Device::Device;
  [[nodiscard]] static constexpr std::size_t most_shared_bytes() noexcept { return 0; }
};

/// A device that, while it is told to, makes other noise than the host in the last number that it hands over.
struct wrong_device : pg::on_device::emulated_device {
  bool is_wrong = false;
  void download(void* to, const void* from, std::size_t bytes) {
    emulated_device::download(to, from, bytes);
    if (is_wrong) static_cast<unsigned char*>(to)[bytes - sizeof(float)] ^= 1U;
  }
};

/// A custom elementwise layer, marked for devices.
struct bent {
  static constexpr bool on_device = true;
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value value(Value x) noexcept {
    return x * x * x + x;
  }
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value derivative(Value x, Value /*y*/) noexcept {
    return x * x * 3 + 1;
  }
};

/// A custom general layer, y = g (.) x + v (u . x), written for any view of values: two kinds of factor, one saved.
struct gain_and_line {
  static constexpr bool on_device = true;
  [[nodiscard]] static constexpr pg::shape output_shape(pg::shape in) { return in; }
  [[nodiscard]] static constexpr std::size_t parameter_count(pg::shape in) { return 3 * in.size(); }
  [[nodiscard]] static constexpr std::size_t saved_count(pg::shape /*in*/) { return 2; }  // u . x, v . dy

  template <class Weights, class Input, class Output, class Saved>
  PERGRAD_HD static void forward(pg::shape /*in*/, Weights w, Input x, Output y, Saved saved) {
    const std::size_t n = x.size();
    saved[0] = 0;
    for (std::size_t i = 0; i < n; ++i) saved[0] += w[n + i] * x[i];
    for (std::size_t i = 0; i < n; ++i) y[i] = w[i] * x[i] + w[2 * n + i] * saved[0];
  }
  template <class Weights, class Input, class Backprop, class Gradient, class Saved>
  PERGRAD_HD static void backward(pg::shape /*in*/, Weights w, Input x, Backprop dy, Gradient dx, Saved saved) {
    const std::size_t n = x.size();
    saved[1] = 0;
    for (std::size_t i = 0; i < n; ++i) saved[1] += w[2 * n + i] * dy[i];
    for (std::size_t i = 0; i < n; ++i) dx[i] = w[i] * dy[i] + w[n + i] * saved[1];
  }
  [[nodiscard]] static constexpr auto factors(pg::shape in) {
    using pg::source;
    const std::size_t n = in.size();
    return pg::list_factors(pg::elementwise_sum(1, n, {source::backprop}, {source::activation}),
                            pg::outer_sum(1, 1, {source::saved, 1}, n, {source::activation}),
                            pg::outer_sum(1, n, {source::backprop}, 1, {source::saved, 0}));
  }
};

template <class Scalar>
using mlp =
    pg::basic_network<Scalar, pg::shape{6}, pg::linear<9>, pg::tanh, pg::linear<40>, pg::sigmoid, pg::linear<2>>;
/// Odd images, strides, groups and dilation, a residual with a projection, overlapping and padded pools.
template <class Scalar>
using cnn =
    pg::basic_network<Scalar, pg::shape{2, 9, 8}, pg::conv2d<4, 3, pg::padding<1>, pg::groups<2>>, pg::tanh,
                      pg::residual<pg::conv2d<6, 3, pg::padding<2>, pg::dilation<2>, pg::no_bias>, pg::sigmoid,
                                   pg::projection<pg::conv2d<6, 1>>>,
                      pg::max_pool2d<3, pg::stride<2>, pg::padding<1>>, pg::relu, pg::conv2d<5, 2, pg::stride<2, 1>>,
                      pg::softplus, pg::adaptive_avg_pool2d<2, 2>, pg::flatten, pg::linear<3>>;
/// Positions of features, averages, branches that join, layers of the user, a frozen layer.
template <class Scalar>
using mixed = pg::basic_network<Scalar, pg::shape{5, 4}, pg::linear<6>, bent, pg::residual<pg::linear<6>, pg::gelu>,
                                pg::frozen<pg::linear<4>>, pg::flatten, pg::residual<gain_and_line>,
                                pg::reshape<pg::shape{1, 4, 5}>, pg::avg_pool2d<2, pg::stride<1>>, pg::flatten,
                                pg::linear<3, pg::no_bias>>;

/// The sum over positions: of zeros behind a sample's length.
struct sum_of_positions {
  static constexpr bool on_device = true;
  static constexpr bool knows_lengths = true;
  [[nodiscard]] static constexpr pg::shape output_shape(pg::shape in) { return {in.e1}; }
  [[nodiscard]] static constexpr std::size_t parameter_count(pg::shape /*in*/) { return 0; }
  template <class Weights, class Input, class Output>
  PERGRAD_HD static void forward(pg::shape in, Weights /*w*/, Input x, Output y) {
    for (std::size_t i = 0; i < in.e1; ++i) y[i] = 0;
    for (std::size_t i = 0; i < in.e0 * in.e1; ++i) y[i % in.e1] += x[i];
  }
  template <class Weights, class Input, class Backprop, class Gradient>
  PERGRAD_HD static void backward(pg::shape in, Weights /*w*/, Input /*x*/, Backprop dy, Gradient dx) {
    for (std::size_t i = 0; i < in.e0 * in.e1; ++i) dx[i] = dy[i % in.e1];
  }
};

/// Data, a network and a tape on each executor.
template <class Network, class Loss, class Device = pg::emulated>
struct both {
  using scalar = typename Network::scalar;
  using value = typename Network::input_value;
  using target = pg::target_of<Loss, scalar>;
  static constexpr std::size_t width = Network::input_shape.size();
  static constexpr std::size_t target_count = Loss::target_count(Network::output_shape);

  std::vector<value> inputs;
  std::vector<target> targets;
  std::vector<std::uint32_t> lengths;  ///< if samples have lengths of their own: all that there may be
  pg::host host{pg::threads{1}};
  Device device;
  Network net{host, pg::kaiming_uniform{5}};
  pg::tape<Network> host_tape;
  pg::tape<Network> device_tape;
  pg::batch<Network, Loss> batch;
  std::uint64_t unrounded_before = pg::on_device::emulation::unrounded_operands;

  explicit both(std::size_t count, emulation_order order = emulation_order::forward, std::uint32_t seed = 3,
                const pg::device_options& options = {})
      : inputs(make_inputs(count, seed)),
        targets(make_targets(count, seed)),
        lengths(make_lengths(count)),
        device{order, options},
        host_tape{host, pg::max_batch{std::max<std::size_t>(1, count)}, pg::max_sums{4}},
        device_tape{device, pg::max_batch{std::max<std::size_t>(1, count)}, pg::max_sums{4}},
        batch{std::span<const value>{inputs}, std::span<const target>{targets},
              std::span<const std::uint32_t>{lengths}} {}

  both(const both&) = delete;
  both& operator=(const both&) = delete;
  /// Tensor cores must be given what has been rounded: they ignore bits, where norms that are formed otherwise do not.
  ~both() { BOOST_TEST(pg::on_device::emulation::unrounded_operands == unrounded_before); }

  [[nodiscard]] auto on_host() { return pg::per_sample_gradients(net, Loss{}, batch, host_tape); }
  [[nodiscard]] auto on_device() { return pg::per_sample_gradients(net, Loss{}, batch, device_tape); }
  template <class Expression>
  [[nodiscard]] auto evaluate(const Expression& expression) {
    return pg::unprotected::evaluate(device, expression);
  }

 private:
  [[nodiscard]] static std::vector<value> make_inputs(std::size_t count, std::uint32_t seed) {
    std::mt19937 random{seed};
    std::uniform_real_distribution<double> uniform{-1, 1};
    std::vector<value> values(count * width);
    for (value& each : values) {
      if constexpr (std::is_integral_v<value>) {
        each = static_cast<value>(random() % Network::input_shape.ids);
      } else {
        each = static_cast<value>(uniform(random));
      }
    }
    return values;
  }
  [[nodiscard]] static std::vector<std::uint32_t> make_lengths(std::size_t count) {
    std::vector<std::uint32_t> values(Network::input_shape.varying_axis() == 0 ? 0 : count);
    for (std::size_t b = 0; b < values.size(); ++b) {
      values[b] = static_cast<std::uint32_t>(1 + b % Network::input_shape.e0);
    }
    return values;
  }
  [[nodiscard]] static std::vector<target> make_targets(std::size_t count, std::uint32_t seed) {
    std::mt19937 random{seed + 1};
    std::uniform_real_distribution<double> uniform{0, 1};
    std::vector<target> values(count * target_count);
    constexpr std::size_t classes = [] {  // of a loss over positions those of one
      if constexpr (requires { Loss::ignores(target{}); }) {
        return Network::output_shape.e1;
      } else {
        return Network::output_shape.size();
      }
    }();
    for (target& value : values) {
      if constexpr (std::is_integral_v<target>) {
        value = static_cast<target>(random() % classes);
      } else {
        value = static_cast<target>(uniform(random));
      }
    }
    return values;
  }
};

/// The same bits.
template <class Value>
void check_same(const std::vector<Value>& found, const std::vector<Value>& wanted, const std::string& what) {
  BOOST_TEST_REQUIRE(found.size() == wanted.size(), what);
  std::size_t different = 0;
  for (std::size_t i = 0; i < found.size(); ++i) different += found[i] == wanted[i] ? 0U : 1U;
  BOOST_TEST(different == 0U, what << ": " << different << " of " << found.size() << " differ");
}

template <class Scalar>
inline constexpr double tolerance = std::is_same_v<Scalar, float> ? 1e-5 : 1e-12;

/// Every result of one network, on both executors. Norms that are bounds are compared with the host's of the same kind.
template <class Network, class Loss, pg::norm_method HostMethod = pg::norm_method::automatic>
void compare(const std::string& what) {
  using scalar = typename Network::scalar;
  constexpr double allowed = tolerance<scalar>;
  both<Network, Loss> it{11};
  const auto of_host = pg::with_method<HostMethod>(it.on_host());
  const auto of_device = it.on_device();
  const pg::l2_clip_norm bound{0.3};
  const auto rows = pg::unprotected::evaluate(it.host, pg::materialise(of_host));
  check_close(it.evaluate(pg::materialise(of_device)), rows, allowed, what + ": rows");
  const auto compare_one = [&](const auto& found, const auto& wanted, const char* name) {
    check_close(it.evaluate(found), pg::unprotected::evaluate(it.host, wanted), allowed, what + ": " + name);
  };
  compare_one(pg::losses(of_device), pg::losses(of_host), "losses");
  compare_one(pg::outputs(of_device), pg::outputs(of_host), "outputs");
  compare_one(pg::l2_norms(of_device), pg::l2_norms(of_host), "norms");
  compare_one(pg::sum(pg::clip(of_device, bound)), pg::sum(pg::clip(of_host, bound)), "clipped sum");
  compare_one(pg::sum(pg::clip_per_layer(of_device, bound)), pg::sum(pg::clip_per_layer(of_host, bound)), "per layer");
  compare_one(pg::sum(pg::normalise(of_device, bound)), pg::sum(pg::normalise(of_host, bound)), "normalised");
  compare_one(pg::mean(of_device), pg::mean(of_host), "mean");
  compare_one(pg::second_moment(of_device), pg::second_moment(of_host), "second moment");
  compare_one(pg::gram(of_device), pg::gram(of_host), "gram");
  compare_one(pg::weighted_sum(of_device, pg::losses(of_device)), pg::weighted_sum(of_host, pg::losses(of_host)),
              "weighted by losses");
  compare_one(pg::dot(of_device, std::span<const scalar>{rows}.first(Network::parameter_count)),
              pg::dot(of_host, std::span<const scalar>{rows}.first(Network::parameter_count)), "projection");
  if constexpr (HostMethod == pg::norm_method::automatic) {  // the host knows the norms of rows exactly
    compare_one(pg::materialise(pg::clip(of_device, bound)), pg::materialise(pg::clip(of_host, bound)), "clipped rows");
  }
  compare_one(of_device[4], of_host[4], "one row");
  compare_one(pg::l2_norms(pg::with_method<pg::norm_method::gram>(of_device)), pg::l2_norms(of_host), "norms by gram");
  compare_one(pg::l2_norms(pg::with_method<pg::norm_method::direct>(of_device)), pg::l2_norms(of_host), "direct norms");
  compare_one(pg::sum(pg::clip(pg::with_method<pg::norm_method::instantiate>(of_device), bound)),
              pg::sum(pg::clip(of_host, bound)), "instantiated");
  compare_one(pg::sum(pg::clip(pg::with_method<pg::norm_method::gram>(of_device), bound)),
              pg::sum(pg::clip(pg::with_method<pg::norm_method::gram>(of_host), bound)), "clipped sum by gram");
}

/// Every strategy, of which `naive` and `ghost` evaluate samples again for each sum.
template <class Network, class Loss>
void compare_strategies(const std::string& what) {
  using pg::strategy;
  using scalar = typename Network::scalar;
  both<Network, Loss> it{5};
  const pg::l2_clip_norm bound{0.3};
  for (const strategy each : {strategy::naive, strategy::multi, strategy::crb, strategy::ghost}) {
    const auto of_host = it.on_host().with(each);
    const auto of_device = it.on_device().with(each);
    const auto evaluated = [&](const auto& executor, const auto& gradients) {
      std::vector<double> norms(5);
      std::vector<double> losses(5);
      std::vector<scalar> clipped(Network::parameter_count);
      std::vector<scalar> plain(Network::parameter_count);
      pg::unprotected::evaluate_into(
          executor, pg::assign(norms, pg::l2_norms(gradients)), pg::assign(losses, pg::losses(gradients)),
          pg::assign(clipped, pg::sum(pg::clip(gradients, bound))), pg::assign(plain, pg::sum(gradients)));
      std::vector<double> all(norms);
      all.insert(all.end(), losses.begin(), losses.end());
      all.insert(all.end(), clipped.begin(), clipped.end());
      all.insert(all.end(), plain.begin(), plain.end());
      const auto rows = pg::unprotected::evaluate(executor, pg::materialise(pg::clip_per_layer(gradients, bound)));
      all.insert(all.end(), rows.begin(), rows.end());
      return all;
    };
    const auto name = what + ", strategy " + std::to_string(static_cast<int>(each));
    check_close(evaluated(it.device, of_device), evaluated(it.host, of_host), tolerance<scalar>, name);
  }
}

/// What a layer that has no device code of its own can get wrong: its gradients, and the norms that come of its
/// geometry.
template <class Network, class Loss>
void compare_gradients(const std::string& what) {
  constexpr double allowed = tolerance<typename Network::scalar>;
  both<Network, Loss> it{5};
  const auto of_host = it.on_host();
  const auto of_device = it.on_device();
  const auto norms = pg::unprotected::evaluate(it.host, pg::l2_norms(of_host));
  check_close(it.evaluate(pg::materialise(of_device)), pg::unprotected::evaluate(it.host, pg::materialise(of_host)),
              allowed, what + ": rows");
  check_close(it.evaluate(pg::l2_norms(pg::with_method<pg::norm_method::gram>(of_device))), norms, allowed,
              what + ": norms by gram");
  check_close(it.evaluate(pg::l2_norms(pg::with_method<pg::norm_method::direct>(of_device))), norms, allowed,
              what + ": direct norms");
  const pg::l2_clip_norm bound{0.3};
  check_close(it.evaluate(pg::sum(pg::clip(of_device, bound))),
              pg::unprotected::evaluate(it.host, pg::sum(pg::clip(of_host, bound))), allowed, what + ": clipped sum");
}

/// Every result in the long tier. In the short one, where a network of the same plan has every result, what the code of
/// layers can get wrong: half of the time to compile a network goes into its results, each of them on two executors.
template <class Network, class Loss>
void compare_layers(const std::string& what) {
#ifdef PERGRAD_ALL_NETWORKS
  compare<Network, Loss>(what);
#else
  compare_gradients<Network, Loss>(what);
#endif
}

}  // namespace device_fixture
