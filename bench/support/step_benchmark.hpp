// SPDX-License-Identifier: Apache-2.0
// bench/support/step_benchmark.hpp - registers the benchmarks <task>/<dp|non_private|privacy>/<batch>/<threads> of a
// step
//
// What privacy costs is `privacy`: an ordinary step and a private one by turns, so that whatever slows the machine down
// for a while meets both.
//
//   dp_over_non_private  the median, over all pairs of neighbours, of private time / ordinary time
//   pairs                their number
//
// The others time one kind:
//
//   us_per_sample  the median step by the clock on the wall, divided by the batch size
//   gflops         counted operations (training.hpp: the same number for both kinds) divided by that time; 0 if none
//                  are counted
//   peak_bytes     heap at the worst moment of making network, tape and optimizer and of two steps: every byte that was
//                  asked for, touched or not, without the data
//   touched_bytes  of it, what was ever written or read, by pages (memory_meter.hpp): a batch that fills one tile
//   leaves
//                  untouched what the tape reserves for the others
#pragma once

#include <benchmark/benchmark.h>

#include <cstddef>
#include <initializer_list>
#include <string>

#include "support/memory_meter.hpp"
#include "support/step_times.hpp"
#include "support/training.hpp"

namespace bench {

/// Consecutive slices of the data, round and round. `Step` is training or differentiation of one kind.
template <class Step>
class stepper {
 public:
  using data_type = records<typename Step::network_type, typename Step::loss_type>;

  stepper(const data_type& data, std::size_t threads, std::size_t batch_size)
      : data_{data}, batch_size_{batch_size}, step_{threads, batch_size} {}
  void operator()() {
    if (first_ + batch_size_ > data_.size()) first_ = 0;
    step_.step(data_, first_, batch_size_);
    first_ += batch_size_;
  }
  [[nodiscard]] bool is_finite() const { return step_.is_finite(); }

 private:
  const data_type& data_;
  std::size_t batch_size_;
  std::size_t first_ = 0;
  Step step_;
};

/// Where records come from: a function that makes them when it is first called.
template <class Step>
using data_source = const typename stepper<Step>::data_type& (*)();

template <class Step>
void run_step(benchmark::State& state, data_source<Step> source, std::size_t batch_size, std::size_t threads) {
  const auto& data = source();
  {
    const memory_meter meter;
    stepper<Step> twice{data, threads, batch_size};
    twice();
    twice();
    state.counters["peak_bytes"] = static_cast<double>(meter.reserved_bytes());
    state.counters["touched_bytes"] = static_cast<double>(meter.touched_bytes());
  }
  stepper<Step> step{data, threads, batch_size};
  step();
  step_times times;
  for (auto _ : state) times.time(step);
  if (!step.is_finite()) state.SkipWithError("a result is not finite");
  const double per_sample = times.median() / static_cast<double>(batch_size);
  state.counters["us_per_sample"] = per_sample * 1e6;
  state.counters["gflops"] = flops_per_sample<typename Step::network_type>() / per_sample * 1e-9;
}

/// Of how many pairs a median is, where they take no longer than this.
inline constexpr std::size_t fewest_pairs = 25;
inline constexpr double most_seconds = 30;

/// Two kinds of a step by turns; each pair begins with the other kind than the pair before. Notes the median of the
/// ratios compared / base.
template <class Base, class Compared>
void run_pairs_of(benchmark::State& state, const char* ratio, Base& base, Compared& compared) {
  base();
  compared();
  step_times ratios;
  bool compared_first = false;
  const auto run_pair = [&] {
    const double before = compared_first ? step_times::seconds_of(compared) : 0;
    const double of_base = step_times::seconds_of(base);
    ratios.note((compared_first ? before : step_times::seconds_of(compared)) / of_base);
    compared_first = !compared_first;
  };
  double seconds = 0;
  for (auto _ : state) seconds += step_times::seconds_of(run_pair);
  // The median of one or two pairs of long steps says little.
  while (ratios.count() < fewest_pairs && seconds < most_seconds) seconds += step_times::seconds_of(run_pair);
  if (!base.is_finite() || !compared.is_finite()) state.SkipWithError("a result is not finite");
  state.counters[ratio] = ratios.median();
  state.counters["pairs"] = static_cast<double>(ratios.count());
}

/// Ordinary and private steps.
template <template <class, class, kind> class Step, class Network, class Loss, kind Private = kind::dp>
void run_pairs(benchmark::State& state, data_source<Step<Network, Loss, Private>> source, std::size_t batch_size,
               std::size_t threads) {
  const auto& data = source();
  stepper<Step<Network, Loss, kind::non_private>> plain{data, threads, batch_size};
  stepper<Step<Network, Loss, Private>> dp{data, threads, batch_size};
  run_pairs_of(state, "dp_over_non_private", plain, dp);
}

/// The same pairs with sums of integers.
template <template <class, class, kind> class Step, class Network, class Loss>
bool register_integers(const std::string& task, const records<Network, Loss>& (*source)(), std::size_t batch,
                       std::size_t threads) {
  benchmark::RegisterBenchmark((task + "/integers/" + std::to_string(batch) + "/" + std::to_string(threads)).c_str(),
                               run_pairs<Step, Network, Loss, kind::dp_integers>, source, batch, threads)
      ->Unit(benchmark::kMicrosecond);
  return true;
}

/// Both kinds of a step at every batch size on every number of threads.
template <template <class, class, kind> class Step, class Network, class Loss>
bool register_steps(const std::string& task, const records<Network, Loss>& (*source)(),
                    std::initializer_list<std::size_t> batches, std::initializer_list<std::size_t> thread_counts) {
  for (const std::size_t threads : thread_counts) {
    for (const std::size_t batch : batches) {
      const std::string tail = "/" + std::to_string(batch) + "/" + std::to_string(threads);
      benchmark::RegisterBenchmark((task + "/non_private" + tail).c_str(),
                                   run_step<Step<Network, Loss, kind::non_private>>, source, batch, threads)
          ->Unit(benchmark::kMicrosecond);
      benchmark::RegisterBenchmark((task + "/dp" + tail).c_str(), run_step<Step<Network, Loss, kind::dp>>, source,
                                   batch, threads)
          ->Unit(benchmark::kMicrosecond);
      benchmark::RegisterBenchmark((task + "/privacy" + tail).c_str(), run_pairs<Step, Network, Loss>, source, batch,
                                   threads)
          ->Unit(benchmark::kMicrosecond);
    }
  }
  return true;
}

/// Made-up records (training.hpp), kept from the first call on: two of the largest batch, and more than caches hold, so
/// that a step reads its batch from memory as it would in training.
template <class Network, class Loss, std::size_t LargestBatch>
const records<Network, Loss>& kept_records() {
  using made = records<Network, Loss>;
  constexpr std::size_t size =
      made::input_count * sizeof(typename made::input) + made::target_count * sizeof(typename made::target);
  constexpr std::size_t more_than_caches = 64U << 20U;
  constexpr std::size_t fill = more_than_caches / size;
  constexpr std::size_t two = LargestBatch * size > more_than_caches ? LargestBatch : 2 * LargestBatch;
  static const made data = made_up_records<Network, Loss>(fill > two ? fill : two);
  return data;
}

}  // namespace bench
