// SPDX-License-Identifier: Apache-2.0
// bench/mnist_cnn/mnist_cnn_bench.cpp - mnist_cnn/<dp|non_private>/<batch>/<threads>: a training step of the MNIST CNN
//
//   us_per_sample  the median step by the clock on the wall, divided by the batch size
//   gflops         counted operations (problem.hpp: the same number for both kinds) divided by that time
//   peak_bytes     heap at the worst moment of making network, tape and optimizer and of two steps: every byte that was
//                  asked for, touched or not, without the data
//   touched_bytes  of it, what was ever written or read, by pages (support/memory_meter.hpp): a batch that fills one
//                  tile leaves untouched what the tape reserves for the others
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstddef>
#include <string>

#include "mnist_cnn/problem.hpp"
#include "support/memory_meter.hpp"
#include "support/step_times.hpp"

namespace {

using mnist_cnn::kind;

/// 51 MB: more than caches hold, so that a step reads its batch from memory as it would in training.
const mnist_cnn::images& data() {
  static const mnist_cnn::images images = mnist_cnn::make_images(16'384);
  return images;
}

/// Consecutive slices of the data, round and round.
class slices {
 public:
  explicit slices(std::size_t batch_size) : batch_size_{batch_size} {}
  template <class Training>
  void step(Training& training) {
    constexpr std::size_t pixels = mnist_cnn::net::input_shape.size();
    if (first_ + batch_size_ > data().labels.size()) first_ = 0;
    training.step(std::span{data().pixels}.subspan(first_ * pixels, batch_size_ * pixels),
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

template <kind Kind>
memory memory_of(std::size_t batch_size, std::size_t threads) {
  slices batches{batch_size};
  data();
  const bench::memory_meter meter;
  mnist_cnn::training<Kind> training{threads, batch_size};
  batches.step(training);
  batches.step(training);
  return {meter.reserved_bytes(), meter.touched_bytes()};
}

template <kind Kind>
void run(benchmark::State& state, std::size_t batch_size, std::size_t threads) {
  const memory used = memory_of<Kind>(batch_size, threads);
  slices batches{batch_size};
  mnist_cnn::training<Kind> training{threads, batch_size};
  batches.step(training);
  bench::step_times times;
  for (auto _ : state) times.time([&] { batches.step(training); });
  for (const float parameter : training.network().parameters()) {
    if (!std::isfinite(parameter)) state.SkipWithError("a parameter is not finite any more");
  }
  const double per_sample = times.median() / static_cast<double>(batch_size);
  state.counters["us_per_sample"] = per_sample * 1e6;
  state.counters["gflops"] = mnist_cnn::flops_per_sample() / per_sample * 1e-9;
  state.counters["peak_bytes"] = static_cast<double>(used.reserved);
  state.counters["touched_bytes"] = static_cast<double>(used.touched);
}

const bool registered = [] {
  for (const std::size_t threads : {1U, 2U}) {
    for (const std::size_t batch : {16U, 256U, 2048U}) {
      const std::string tail = "/" + std::to_string(batch) + "/" + std::to_string(threads);
      benchmark::RegisterBenchmark(("mnist_cnn/non_private" + tail).c_str(), run<kind::non_private>, batch, threads)
          ->Unit(benchmark::kMicrosecond);
      benchmark::RegisterBenchmark(("mnist_cnn/dp" + tail).c_str(), run<kind::dp>, batch, threads)
          ->Unit(benchmark::kMicrosecond);
    }
  }
  return true;
}();

}  // namespace
