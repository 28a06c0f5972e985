// SPDX-License-Identifier: Apache-2.0
// bench/support/step_times.hpp - the time of every iteration of a benchmark, and their median
//
// The counters of our benchmarks are made of the median iteration, by a steady clock: what a program next door takes
// now and then does not move it. Google Benchmark's own column `Time` is the mean. Benchmarks are registered without
// UseRealTime, which would append "/real_time" to their names; where other threads help, the caller's works all the
// time as well, so its CPU time, by which Google Benchmark chooses the number of iterations, is as good.
#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

namespace bench {

/// Collects durations of calls.
class step_times {
 public:
  step_times() { seconds_.reserve(std::size_t{1} << 16U); }

  /// Calls f() and notes how long it took.
  template <class Function>
  void time(Function&& f) {
    note(seconds_of(f));
  }
  void note(double seconds) {
    if (seconds_.size() < seconds_.capacity()) seconds_.push_back(seconds);
  }
  template <class Function>
  [[nodiscard]] static double seconds_of(Function&& f) {
    const auto start = std::chrono::steady_clock::now();
    f();
    return std::chrono::duration<double>{std::chrono::steady_clock::now() - start}.count();
  }
  [[nodiscard]] std::size_t count() const { return seconds_.size(); }
  /// The median in seconds; 0 before the first call.
  [[nodiscard]] double median() {
    if (seconds_.empty()) return 0;
    const auto middle = seconds_.begin() + static_cast<std::ptrdiff_t>(seconds_.size() / 2);
    std::nth_element(seconds_.begin(), middle, seconds_.end());
    return *middle;
  }

 private:
  std::vector<double> seconds_;
};

}  // namespace bench
