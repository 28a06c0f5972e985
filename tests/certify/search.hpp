// SPDX-License-Identifier: Apache-2.0
// tests/certify/search.hpp - the largest per-sample gradient that an adversary finds who chooses records and targets
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <type_traits>
#include <vector>

#include <pergrad/certify.hpp>
#include <pergrad/pergrad.hpp>

namespace certify_tests {

namespace pg = pergrad;

template <class Network, class Loss>
class adversary {
  using value = typename Network::input_value;
  using target = typename Loss::template target<typename Network::scalar>;
  static constexpr std::size_t width = Network::input_shape.size();
  static constexpr std::size_t targets_each = Loss::target_count(Network::output_shape);
  static constexpr std::size_t together = 64;

 public:
  adversary(Network& network, std::uint64_t seed) : network_{&network}, random_{seed} {}

  /// Samples, then climbs from the best: each round keeps the best of many changes of it. `length`: of records.
  double largest(double length, int rounds) {
    for (std::size_t b = 0; b < together; ++b) {
      draw(b, length);
      draw_target(b);
    }
    double best = 0;
    for (int round = 0; round < rounds; ++round) {
      const std::vector<double> norms = evaluate();
      const auto at = static_cast<std::size_t>(std::max_element(norms.begin(), norms.end()) - norms.begin());
      best = std::max(best, norms[at]);
      copy(at, 0);
      for (std::size_t b = 1; b < together; ++b) {
        copy(0, b);
        change(b, length, std::ldexp(1.0, -static_cast<int>(b % 8)));
      }
    }
    return best;
  }

 private:
  double normal() { return std::normal_distribution<double>{}(random_); }
  std::size_t below(std::size_t count) { return random_() % count; }
  void copy(std::size_t from, std::size_t to) {
    if (from == to) return;
    std::copy_n(inputs_.begin() + static_cast<std::ptrdiff_t>(from * width), width,
                inputs_.begin() + static_cast<std::ptrdiff_t>(to * width));
    std::copy_n(targets_.begin() + static_cast<std::ptrdiff_t>(from * targets_each), targets_each,
                targets_.begin() + static_cast<std::ptrdiff_t>(to * targets_each));
  }
  void draw(std::size_t b, double length) {
    for (std::size_t i = 0; i < width; ++i) {
      if constexpr (Network::input_shape.ids != 0) {
        inputs_[b * width + i] =
            static_cast<value>(b % 2 == 0 ? b % Network::input_shape.ids : below(Network::input_shape.ids));
      } else {
        inputs_[b * width + i] = static_cast<value>(b % 4 == 0 ? 1 + 0.1 * normal() : normal());
      }
    }
    rescale(b, length);
  }
  void rescale(std::size_t b, double length) {
    if constexpr (Network::input_shape.ids == 0) {
      const auto at = [&](std::size_t i) { return static_cast<double>(inputs_[b * width + i]); };
      double squares = 0;
      for (std::size_t i = 0; i < width; ++i) squares += at(i) * at(i);
      const double factor = length / std::sqrt(squares);
      for (std::size_t i = 0; i < width; ++i) inputs_[b * width + i] = static_cast<value>(at(i) * factor);
    }
  }
  void draw_target(std::size_t b) {
    for (std::size_t i = 0; i < targets_each; ++i) {
      target& to = targets_[b * targets_each + i];
      if constexpr (std::is_integral_v<target>) {
        to = static_cast<target>(below(Network::output_shape[Network::output_shape.rank() - 1]));
      } else {
        to = static_cast<target>(below(2));
      }
    }
  }
  void change(std::size_t b, double length, double size) {
    if (below(4) == 0) draw_target(b);
    for (std::size_t i = 0; i < width; ++i) {
      if constexpr (Network::input_shape.ids != 0) {
        if (below(width) == 0) inputs_[b * width + i] = static_cast<value>(below(Network::input_shape.ids));
      } else {
        inputs_[b * width + i] += static_cast<value>(size * length * normal() / std::sqrt(static_cast<double>(width)));
      }
    }
    rescale(b, length * (below(4) == 0 ? 0.5 : 1));
  }
  std::vector<double> evaluate() {
    const pg::dataset<value, target> records{inputs_, targets_, Network::input_shape, targets_each};
    const pg::batch<Network, Loss> all{records, std::span<const std::uint32_t>{numbers_}};
    return pg::unprotected::evaluate(executor_, l2_norms(per_sample_gradients(*network_, Loss{}, all, tape_)));
  }

  Network* network_;
  std::mt19937_64 random_;
  pg::host executor_{pg::threads{1}};
  pg::tape<Network> tape_{executor_, pg::max_batch{together}};
  std::vector<value> inputs_ = std::vector<value>(together * width);
  std::vector<target> targets_ = std::vector<target>(together * targets_each);
  std::vector<std::uint32_t> numbers_ = [] {
    std::vector<std::uint32_t> all(together);
    for (std::uint32_t i = 0; i < together; ++i) all[i] = i;
    return all;
  }();
};

/// Random parameters: PyTorch's, times a size, and gains and biases away from 1 and 0.
template <class Network>
Network random_network(const pg::host& executor, std::uint64_t seed) {
  Network network{executor, pg::kaiming_uniform{seed}};
  std::mt19937_64 random{seed};
  const auto size = static_cast<typename Network::scalar>(std::exp2(static_cast<double>(seed % 5) - 2));
  for (auto& each : network.all_parameters()) {
    each = each * size + static_cast<typename Network::scalar>(0.02 * std::normal_distribution<double>{}(random));
  }
  return network;
}

}  // namespace certify_tests
