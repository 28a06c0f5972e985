// SPDX-License-Identifier: Apache-2.0
// bench/support/fma_peak.hpp - the rate of the machine's vector units: multiply-adds on registers, nothing is faster
#pragma once

#include <benchmark/benchmark.h>

#include <chrono>
#include <cstddef>
#include <utility>

#include <pergrad/simd/vector.hpp>

namespace bench {

/// As many chains as hide the latency of a multiply-add on any machine of today and still fit into the registers.
inline constexpr std::size_t fma_chains = pergrad::on_host::vector_registers == 32 ? 24 : 12;

/// `rounds` multiply-adds on each of `fma_chains` vectors of float.
template <std::size_t... Chain>
void multiply_and_add(float start, std::size_t rounds, std::index_sequence<Chain...>) {
  namespace host = pergrad::on_host;
  const host::vector<float> factor = host::splat(0.5F + start);
  const host::vector<float> term = host::splat(1.0F + start);
  host::vector<float> sums[fma_chains] = {host::splat(start + static_cast<float>(Chain))...};
  for (std::size_t round = 0; round < rounds; ++round) {
    ((sums[Chain] = sums[Chain] * factor + term), ...);
  }
  (benchmark::DoNotOptimize(sums[Chain]), ...);
}

/// Floating-point operations of one call.
[[nodiscard]] constexpr double fma_operations(std::size_t rounds) {
  return 2.0 * static_cast<double>(fma_chains * rounds * pergrad::on_host::vector_lanes<float>);
}

/// Operations a second of one thread, the best of a few short runs: measured beside what is compared with it, because
/// shared machines change their pace.
[[nodiscard]] inline double fma_peak_now() {
  constexpr std::size_t rounds = std::size_t{1} << 14U;
  float start = 0;
  benchmark::DoNotOptimize(start);
  double best = 0;
  for (int run = 0; run < 8; ++run) {
    const auto begin = std::chrono::steady_clock::now();
    multiply_and_add(start, rounds, std::make_index_sequence<fma_chains>{});
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    const double rate = fma_operations(rounds) / took.count();
    best = rate > best ? rate : best;
  }
  return best;
}

}  // namespace bench
