// SPDX-License-Identifier: Apache-2.0
// bench/embed/embed_bench.cpp - embed/<dp|non_private>/<batch>/<threads>: a training step of the IMDb embedding network
//
// embed_rows/...  the same network as embedding and mean_over_positions instead of embedding_bag
//   us_per_sample  the median step by the clock on the wall, divided by the batch size
//   peak_bytes     heap at the worst moment of making network, tape and optimizer and of two steps: every byte that was
//                  asked for, touched or not, without the data
//   touched_bytes  of it, what was ever written or read, by pages (support/memory_meter.hpp)
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstddef>
#include <string>

#include "embed/problem.hpp"
#include "support/memory_meter.hpp"
#include "support/step_times.hpp"

namespace {

using embed::kind;

const embed::reviews& data() {
  static const embed::reviews reviews = embed::make_reviews(16'384);
  return reviews;
}

/// Consecutive slices of the data, round and round.
class slices {
 public:
  explicit slices(std::size_t batch_size) : batch_size_{batch_size} {}
  template <class Training>
  void step(Training& training) {
    constexpr std::size_t positions = embed::bag::input_shape.size();
    if (first_ + batch_size_ > data().labels.size()) first_ = 0;
    training.step(std::span{data().ids}.subspan(first_ * positions, batch_size_ * positions),
                  std::span{data().labels}.subspan(first_, batch_size_));
    first_ += batch_size_;
  }

 private:
  std::size_t batch_size_;
  std::size_t first_ = 0;
};

struct memory {
  std::size_t reserved = 0;
  std::size_t touched = 0;
};

template <class Network, kind Kind>
memory memory_of(std::size_t batch_size, std::size_t threads) {
  slices batches{batch_size};
  data();
  const bench::memory_meter meter;
  embed::training<Network, Kind> training{threads, batch_size};
  batches.step(training);
  batches.step(training);
  return {meter.reserved_bytes(), meter.touched_bytes()};
}

template <class Network, kind Kind>
void run(benchmark::State& state, std::size_t batch_size, std::size_t threads) {
  const memory used = memory_of<Network, Kind>(batch_size, threads);
  slices batches{batch_size};
  embed::training<Network, Kind> training{threads, batch_size};
  batches.step(training);
  bench::step_times times;
  for (auto _ : state) times.time([&] { batches.step(training); });
  for (const float parameter : training.network().parameters()) {
    if (!std::isfinite(parameter)) state.SkipWithError("a parameter is not finite any more");
  }
  state.counters["us_per_sample"] = times.median() / static_cast<double>(batch_size) * 1e6;
  state.counters["peak_bytes"] = static_cast<double>(used.reserved);
  state.counters["touched_bytes"] = static_cast<double>(used.touched);
}

template <class Network>
void add(const std::string& name, std::size_t batch, std::size_t threads) {
  const std::string tail = "/" + std::to_string(batch) + "/" + std::to_string(threads);
  benchmark::RegisterBenchmark((name + "/non_private" + tail).c_str(), run<Network, kind::non_private>, batch, threads)
      ->Unit(benchmark::kMicrosecond);
  benchmark::RegisterBenchmark((name + "/dp" + tail).c_str(), run<Network, kind::dp>, batch, threads)
      ->Unit(benchmark::kMicrosecond);
}

const bool registered = [] {
  for (const std::size_t threads : {1U, 2U}) {
    for (const std::size_t batch : {16U, 256U, 2048U}) {
      add<embed::bag>("embed", batch, threads);
      add<embed::rows>("embed_rows", batch, threads);
    }
  }
  return true;
}();

}  // namespace
