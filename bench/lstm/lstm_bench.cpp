// SPDX-License-Identifier: Apache-2.0
// bench/lstm/lstm_bench.cpp - lstm/<dp|non_private>/<batch>/<threads>: a training step of the IMDb LSTM of fast-dpsgd
//
// 256 words, embedding 100, LSTM 100 with one bias, mean over positions, linear 2 (Subramani, Vadivelu, Kamath 2021,
// arXiv:2010.09063). Their protocol: float, softmax cross-entropy, plain SGD with rate 0.15, clip norm 1, noise
// multiplier 1.1, consecutive slices of the data; words are made up.
//   us_per_sample  the median step by the clock on the wall, divided by the batch size
//   gflops         operations of an ordinary step's matrix products (a multiply-add counted as 2, the embedding free:
//                  the same number for both kinds) divided by that time
//   peak_bytes, touched_bytes  heap of network, tape, optimizer and two steps, asked for and used (memory_meter.hpp)
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <pergrad/pergrad.hpp>

#include "support/memory_meter.hpp"
#include "support/step_times.hpp"

namespace {

namespace pg = pergrad;

constexpr std::size_t words = 256;
constexpr std::size_t vocabulary = 10'004;
constexpr std::size_t width = 100;

using net = pg::network<pg::token_ids(words, vocabulary), pg::embedding<width>, pg::lstm<width, pg::one_bias>,
                        pg::mean_over_positions, pg::linear<2>>;
static_assert(net::parameter_count == vocabulary * width + 4 * width * (2 * width + 1) + 2 * (width + 1));

/// Three products (forward, input gradient, weight gradient) with both matrices of the LSTM.
constexpr double flops_per_sample = 3.0 * 2.0 * words * 4 * width * 2 * width;

struct records {
  std::vector<std::int32_t> inputs;
  std::vector<std::int32_t> labels;
};
const records& data() {
  static const records made = [] {
    constexpr std::size_t count = 2048;
    std::mt19937 bits{20240229};
    records result{std::vector<std::int32_t>(count * net::input_shape.size()), std::vector<std::int32_t>(count)};
    for (auto& word : result.inputs) word = static_cast<std::int32_t>(bits() % vocabulary);
    for (auto& label : result.labels) label = static_cast<std::int32_t>(bits() % 2);
    return result;
  }();
  return made;
}

enum class kind { dp, non_private };

/// Everything that training takes, the data apart.
template <kind Kind>
class training {
 public:
  training(std::size_t thread_count, std::size_t batch_size)
      : exec_{pg::threads{thread_count}}, tape_{exec_, pg::max_batch{batch_size}}, batch_size_{batch_size} {}

  /// One step on the next slice of the data.
  void step() {
    if (first_ + batch_size_ > data().labels.size()) first_ = 0;
    constexpr std::size_t size = net::input_shape.size();
    const pg::batch<net, pg::cross_entropy> samples{std::span{data().inputs}.subspan(first_ * size, batch_size_ * size),
                                                    std::span{data().labels}.subspan(first_, batch_size_)};
    first_ += batch_size_;
    const auto gradients = pg::per_sample_gradients(net_, pg::cross_entropy{}, samples, tape_);
    if constexpr (Kind == kind::dp) {
      const auto clipped = pg::sum(pg::clip(gradients, pg::l2_clip_norm{1.0}));
      pg::evaluate_into(exec_, update_, clipped + pg::gaussian_noise(pg::noise_multiplier{1.1}, noise_));
      optimizer_.step(exec_, net_, update_, pg::expected_batch_size{static_cast<double>(batch_size_)});
    } else {
      pg::unprotected::evaluate_into(exec_, update_, pg::mean(gradients));
      pg::unprotected::step(optimizer_, exec_, net_, update_);
    }
  }
  [[nodiscard]] const net& network() const noexcept { return net_; }

 private:
  using update = std::conditional_t<Kind == kind::dp, pg::private_gradient<net>, pg::unprotected::gradient<net>>;

  pg::host exec_;
  net net_{exec_, pg::layer_default{1}};
  net::tape tape_;
  std::size_t batch_size_;
  std::size_t first_ = 0;
  pg::os_keyed_generator noise_;
  update update_{exec_};
  pg::sgd<net> optimizer_{pg::learning_rate{0.15}};
};

template <kind Kind>
void run(benchmark::State& state, std::size_t batch_size, std::size_t threads) {
  data();
  {
    const bench::memory_meter meter;
    training<Kind> twice{threads, batch_size};
    twice.step();
    twice.step();
    state.counters["peak_bytes"] = static_cast<double>(meter.reserved_bytes());
    state.counters["touched_bytes"] = static_cast<double>(meter.touched_bytes());
  }
  training<Kind> steps{threads, batch_size};
  steps.step();
  bench::step_times times;
  for (auto _ : state) times.time([&] { steps.step(); });
  for (const float parameter : steps.network().parameters()) {
    if (!std::isfinite(parameter)) state.SkipWithError("a parameter is not finite any more");
  }
  const double per_sample = times.median() / static_cast<double>(batch_size);
  state.counters["us_per_sample"] = per_sample * 1e6;
  state.counters["gflops"] = flops_per_sample / per_sample * 1e-9;
}

const bool registered = [] {
  for (const std::size_t threads : {1U, 2U}) {
    for (const std::size_t batch : {16U, 256U}) {
      const std::string tail = "/" + std::to_string(batch) + "/" + std::to_string(threads);
      benchmark::RegisterBenchmark(("lstm/non_private" + tail).c_str(), run<kind::non_private>, batch, threads)
          ->Unit(benchmark::kMicrosecond);
      benchmark::RegisterBenchmark(("lstm/dp" + tail).c_str(), run<kind::dp>, batch, threads)
          ->Unit(benchmark::kMicrosecond);
    }
  }
  return true;
}();

}  // namespace
