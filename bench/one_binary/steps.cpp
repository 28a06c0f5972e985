// SPDX-License-Identifier: Apache-2.0
// bench/one_binary/steps.cpp - private training steps of two CNNs and the noise, timed with every target of kernels
//
// `steps BATCH SECONDS [FAMILY]` prints, for each thing that is timed, its name, the target and the median time in
// microseconds: of a sample in a step of one thread, of a million Gaussians.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <pergrad/models.hpp>
#include <pergrad/pergrad.hpp>

#include "mnist_cnn/images.hpp"
#include "support/training.hpp"

namespace {

namespace pg = pergrad;

/// Median seconds of calls of f, which are repeated for `seconds`; the first one warms up.
template <class Function>
double median_seconds(double seconds, Function&& f) {
  using clock = std::chrono::steady_clock;
  f();
  std::vector<double> times;
  for (double total = 0; total < seconds || times.size() < 3;) {
    const auto start = clock::now();
    f();
    times.push_back(std::chrono::duration<double>(clock::now() - start).count());
    total += times.back();
  }
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

void print(const char* what, double seconds) {
  const std::string_view target = name_of(pg::on_host::kernel_target_in_use());
  std::printf("%-10s %-8.*s %12.3f\n", what, static_cast<int>(target.size()), target.data(), seconds * 1e6);
  std::fflush(stdout);
}

template <class Network, class Loss>
void time_steps(const char* what, const bench::records<Network, Loss>& records, std::size_t batch, double seconds) {
  bench::training<Network, Loss, bench::kind::dp> training{1, batch};
  std::size_t first = 0;
  const double median = median_seconds(seconds, [&] {
    if (first + batch > records.size()) first = 0;
    training.step(records, first, batch);
    first += batch;
  });
  print(what, median / static_cast<double>(batch));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return std::fputs("usage: steps BATCH SECONDS [FAMILY]\n", stderr), 2;
  const std::size_t batch = std::strtoul(argv[1], nullptr, 10);
  const double seconds = std::strtod(argv[2], nullptr);
  const mnist_cnn::data digits = mnist_cnn::make_images(4 * batch);
  const auto images = bench::made_up_records<pg::models::cifar_cnn, pg::cross_entropy>(4 * batch);
  std::vector<float> sums(1'000'000);
  const pg::release_grid grid = pg::release_grid::of(1, sums.size());
  const double sensitivity = pg::sensitivity_in_steps(grid, pg::summation::of<float>(2048), 1);
  pg::seeded_generator generator{1};
  for (const auto target :
       {pg::on_host::kernel_target::avx512, pg::on_host::kernel_target::avx2, pg::on_host::kernel_target::baseline}) {
    if (argc > 3 && name_of(target) != argv[3]) continue;
    if (!pg::on_host::use_kernel_target(target)) continue;
    time_steps("mnist_cnn", digits, batch, seconds);
    time_steps("cifar_cnn", images, batch, seconds);
    print("gaussians", median_seconds(seconds, [&] {
            const pg::detail::release_gate<float> gate{grid, sensitivity, pg::noise_multiplier{1}, 1, generator};
            for (std::size_t i = 0; i < gate.stretches(); ++i) gate.release(i, {sums.data(), nullptr}, sums.data(), {});
          }));
  }
  return 0;
}
