// SPDX-License-Identifier: Apache-2.0
// tests/ranks/rank_tests.hpp - records, and threads as ranks, of the tests on the host and on devices
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <pergrad/pergrad.hpp>
#include <pergrad/ranks.hpp>

namespace rank_tests {

/// Records of a classifier of three classes.
template <class Network>
struct random_data {
  explicit random_data(std::size_t count) : inputs(count * Network::input_shape.size()), targets(count) {
    std::mt19937 random{5};
    std::normal_distribution<float> normal;
    for (float& each : inputs) each = normal(random);
    for (auto& each : targets) each = static_cast<std::int32_t>(random() % 3);
  }
  [[nodiscard]] pergrad::dataset<float, std::int32_t> part(std::size_t first, std::size_t count) const {
    constexpr std::size_t width = Network::input_shape.size();
    return {std::span{inputs}.subspan(first * width, count * width), std::span{targets}.subspan(first, count),
            Network::input_shape};
  }
  std::vector<float> inputs;
  std::vector<std::int32_t> targets;
};

using values = std::vector<float>;
template <class Network>
values parameters_of(const Network& net) {
  return {net.parameters().begin(), net.parameters().end()};
}

/// What f(member) throws on each rank, as a text.
template <class Member>
std::vector<std::string> on_threads(std::size_t count, const std::function<void(const Member&)>& f,
                                    std::chrono::milliseconds patience = std::chrono::minutes{2}) {
  pergrad::thread_ranks world{count, patience};
  std::vector<std::string> thrown(count);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < count; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        f(Member{world, rank});
      } catch (const std::exception& error) {
        thrown[rank] = error.what();
      }
    });
  }
  for (std::thread& each : threads) each.join();
  return thrown;
}

}  // namespace rank_tests
