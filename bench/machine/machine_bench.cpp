// SPDX-License-Identifier: Apache-2.0
// bench/machine/machine_bench.cpp - what this machine can do: Eigen's matrix product, its vector units, and our noise
//
//   gemm/<n>, gemm/1024/threads:2  float n x n times n x n by Eigen, 2 n^3 operations. On two threads each multiplies
//                                  matrices of its own: what two threads of any program get from this product at most,
//                                  so that a step on two threads is compared with two cores that share caches alike.
//   fma_peak, fma_peak/threads:2   independent chains of vector multiply-adds on registers: nothing is faster
//   noise/<dimension>              Gaussians a second on one thread, added to a vector of that dimension
#include <benchmark/benchmark.h>

// g++ 12 takes the deliberately undefined operands in its own AVX-512 header for a mistake (GCC bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <Eigen/Core>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <pergrad/host/executor.hpp>
#include <pergrad/privacy/generator.hpp>
#include <pergrad/privacy/release.hpp>

#include "support/fma_peak.hpp"
#include "support/step_times.hpp"

namespace {

namespace pg = pergrad;

void gemm(benchmark::State& state, Eigen::Index size, std::size_t threads) {
  struct operands {
    Eigen::MatrixXf left;
    Eigen::MatrixXf right;
    Eigen::MatrixXf product;
  };
  const operands one{Eigen::MatrixXf::Random(size, size), Eigen::MatrixXf::Random(size, size), {}};
  std::vector<operands> all(threads, one);
  const pg::host exec{pg::threads{threads}};
  const auto multiply = [&] {
    exec.parallel(threads, [&](std::size_t task, std::size_t) {
      all[task].product.noalias() = all[task].left * all[task].right;
      benchmark::DoNotOptimize(all[task].product.data());
    });
  };
  multiply();
  bench::step_times times;
  for (auto _ : state) times.time(multiply);
  const auto edge = static_cast<double>(size);
  state.counters["gflops"] = 2e-9 * edge * edge * edge * static_cast<double>(threads) / times.median();
}

constexpr std::size_t rounds = std::size_t{1} << 17U;

void fma_peak(benchmark::State& state, std::size_t threads) {
  const pg::host exec{pg::threads{threads}};
  float start = 0;
  benchmark::DoNotOptimize(start);
  const auto work = [&] {
    exec.parallel(threads, [&](std::size_t, std::size_t) {
      bench::multiply_and_add(start, rounds, std::make_index_sequence<bench::fma_chains>{});
    });
  };
  work();
  bench::step_times times;
  for (auto _ : state) times.time(work);
  state.counters["gflops"] = 1e-9 * bench::fma_operations(rounds) * static_cast<double>(threads) / times.median();
}

void noise(benchmark::State& state, std::size_t dimension) {
  pg::seeded_generator generator{1};
  const pg::release_grid grid = pg::release_grid::of(1, dimension);
  const double sensitivity = pg::sensitivity_in_steps(grid, pg::summation::of<float>(2048), 1);
  std::vector<float> values(dimension);
  bench::step_times times;
  for (auto _ : state) {
    times.time([&] {
      const pg::detail::release_gate<float> gate{grid, sensitivity, pg::noise_multiplier{1}, 1, generator};
      for (std::size_t i = 0; i < gate.stretches(); ++i) gate.release(i, {values.data(), nullptr}, values.data(), {});
    });
    benchmark::ClobberMemory();
  }
  state.counters["gaussians_per_second"] = static_cast<double>(dimension) / times.median();
  state.SetLabel(std::string{name_of(pg::on_host::kernel_target_in_use())});
}

const bool registered = [] {
  for (const int size : {256, 512, 1024}) {
    benchmark::RegisterBenchmark(("gemm/" + std::to_string(size)).c_str(), gemm, size, 1U)
        ->Unit(benchmark::kMicrosecond);
  }
  benchmark::RegisterBenchmark("gemm/1024/threads:2", gemm, 1024, 2U)->Unit(benchmark::kMicrosecond);
  benchmark::RegisterBenchmark("fma_peak", fma_peak, 1U)->Unit(benchmark::kMicrosecond);
  benchmark::RegisterBenchmark("fma_peak/threads:2", fma_peak, 2U)->Unit(benchmark::kMicrosecond);
  for (const std::size_t dimension : {26'010U, 1U << 20U}) {
    benchmark::RegisterBenchmark(("noise/" + std::to_string(dimension)).c_str(), noise, dimension)
        ->Unit(benchmark::kMicrosecond);
  }
  return true;
}();

}  // namespace
