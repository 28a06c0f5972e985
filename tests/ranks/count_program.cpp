// SPDX-License-Identifier: Apache-2.0
// tests/ranks/count_program.cpp - prints what ranks of a trainer exchange in a step, for bytes_test.py
//
// A line of JSON for each network, number of ranks and rank: {"parameters", "ranks", "rank", "steps": [[[what, bytes of
// all parts, bytes of the own one], ...], ...]}.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <pergrad/pergrad.hpp>
#include <pergrad/ranks.hpp>

namespace pg = pergrad;

namespace {

struct exchange {
  const char* what;
  std::size_t all;
  std::size_t own;
};

/// A rank that notes what it is asked for.
class counting {
 public:
  explicit counting(const pg::thread_ranks::member& rank) : rank_{rank} {}
  [[nodiscard]] std::size_t rank() const noexcept { return rank_.rank(); }
  [[nodiscard]] std::size_t size() const noexcept { return rank_.size(); }
  void broadcast(std::span<std::byte> bytes, std::size_t from) const {
    note("broadcast", bytes.size(), rank() == from ? bytes.size() : 0);
    rank_.broadcast(bytes, from);
  }
  void reduce_scatter(std::span<std::int64_t> sum, std::span<const std::size_t> places) const {
    note("reduce_scatter", sum.size_bytes(), (places[rank() + 1] - places[rank()]) * sizeof(std::int64_t));
    rank_.reduce_scatter(sum, places);
  }
  void all_gather(std::span<std::byte> bytes, std::span<const std::size_t> places) const {
    note("all_gather", bytes.size(), places[rank() + 1] - places[rank()]);
    rank_.all_gather(bytes, places);
  }
  [[nodiscard]] std::vector<exchange> taken() const { return std::exchange(noted_, {}); }

 private:
  void note(const char* what, std::size_t all, std::size_t own) const { noted_.push_back({what, all, own}); }
  pg::thread_ranks::member rank_;
  mutable std::vector<exchange> noted_;
};

template <class Network>
std::string count(const counting& me) {
  constexpr std::size_t width = Network::input_shape.size();
  constexpr std::size_t records = 40;
  std::mt19937 random{5};
  std::vector<typename Network::scalar> inputs(records * width);
  std::vector<std::int32_t> targets(records);
  for (auto& each : inputs) each = static_cast<typename Network::scalar>(random() % 1000) / 500 - 1;
  for (auto& each : targets) each = static_cast<std::int32_t>(random() % 3);
  const std::size_t first = records * me.rank() / me.size();
  const std::size_t own = records * (me.rank() + 1) / me.size() - first;
  const pg::shard mine{pg::dataset<typename Network::scalar, std::int32_t>{
                           std::span<const typename Network::scalar>{inputs}.subspan(first * width, own * width),
                           std::span<const std::int32_t>{targets}.subspan(first, own), Network::input_shape},
                       first};
  const pg::host exec{pg::threads{1}};
  Network net{exec, pg::kaiming_uniform{1}};
  pg::dp_sgd_options options;
  options.sampling = pg::poisson_sampling{pg::sampling_probability{0.2}};
  options.noise = pg::noise_multiplier{1};
  options.clip = pg::l2_clip_norm{1};
  options.divisor = pg::expected_batch_size{8};
  options.learning_rate = pg::learning_rate{0.1};
  options.momentum = 0.9;
  pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options, me, pg::seeded_generator{3}};
  static_cast<void>(me.taken());
  std::string steps;
  for (int step = 0; step < 3; ++step) {
    trainer.step(mine);
    std::string noted;
    for (const exchange& each : me.taken()) {
      noted += std::string{noted.empty() ? "" : ", "} + "[\"" + each.what + "\", " + std::to_string(each.all) + ", " +
               std::to_string(each.own) + "]";
    }
    steps += (steps.empty() ? "[" : ", [") + noted + "]";
  }
  return "{\"parameters\": " + std::to_string(Network::parameter_count) +
         ", \"scalar_bytes\": " + std::to_string(sizeof(typename Network::scalar)) +
         ", \"ranks\": " + std::to_string(me.size()) + ", \"rank\": " + std::to_string(me.rank()) + ", \"steps\": [" +
         steps + "]}";
}

template <class Network>
void count_on(std::size_t ranks) {
  pg::thread_ranks world{ranks};
  std::vector<std::string> lines(ranks);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        lines[rank] = count<Network>(counting{{world, rank}});
      } catch (const std::exception& error) {
        lines[rank] = error.what();
      }
    });
  }
  for (std::thread& each : threads) each.join();
  for (const std::string& line : lines) std::puts(line.c_str());
}

}  // namespace

int main() {
  // Fewer parameters than a stretch of a release, several stretches with a rest, and double.
  using small = pg::network<pg::shape{5}, pg::linear<4>, pg::relu, pg::linear<3>>;
  using wide = pg::network<pg::shape{12}, pg::linear<300>, pg::tanh, pg::linear<40>, pg::relu, pg::linear<3>>;
  using exact = pg::basic_network<double, pg::shape{12}, pg::linear<300>, pg::tanh, pg::linear<3>>;
  for (const std::size_t ranks : {1U, 2U, 3U, 7U}) {
    count_on<small>(ranks);
    count_on<wide>(ranks);
    count_on<exact>(ranks);
  }
}
