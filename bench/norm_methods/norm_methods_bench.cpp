// SPDX-License-Identifier: Apache-2.0
// bench/norm_methods/norm_methods_bench.cpp - norm_methods/<T>/<d>/<p> and norm_methods/3x3/<H>/<C>/<p>: what each norm
// method costs and should
//
// One outer-product block with T positions, view width d and p outputs, or that of a convolution of H x H pixels with
// C channels, 3 x 3 windows and a padding of 1; float. A method's cost is that of a sample's
// norm and of its share of the weighted sum, in a tile of as many samples as the engine would take if this block were
// all there is. Unit: one multiply-add of the product kernel where it is fastest, measured on a 512 x 512 x 512 product
// at the start.
//
//   product, gram, direct, instantiate   measured cost in thousands of units; absent if modelled at 30 times the best
//   *_ratio                              measured / modelled (gradients/plan.hpp)
//   chosen_vs_best                       cost of the method that the model chooses / cost of the best one
//
// Before it is timed, a sample's norm by every method is compared with that from Gram matrices.
//
// The constants in `host_costs` are set by hand so that the ratios are near 1 and chosen_vs_best is near 1 everywhere.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <random>
#include <string>
#include <vector>

#include <pergrad/gradients/plan.hpp>
#include <pergrad/host/norms/leaves.hpp>

#include "support/step_times.hpp"

namespace {

namespace pg = pergrad;
using pg::norm_method;
using pg::on_host::index;

std::vector<float> numbers(index count) {
  std::minstd_rand bits{1};
  std::vector<float> result(static_cast<std::size_t>(count));
  for (float& value : result) value = static_cast<float>(bits()) * 0x1p-31F - 0.5F;
  return result;
}

/// Seconds of one multiply-add where the product kernel is fastest.
double unit_seconds() {
  static const double seconds = [] {
    constexpr index edge = 512;
    const std::vector<float> left = numbers(edge * edge);
    const std::vector<float> right = numbers(edge * edge);
    std::vector<float> out(left.size());
    const pg::on_host::product_shape shape =
        pg::on_host::coalesce({{{}, {}, {edge, edge, edge}}, {{}, {}, {edge, 1, edge}}, edge});
    bench::step_times times;
    for (int i = 0; i < 41; ++i) {
      times.time([&] { pg::on_host::product(shape, left.data(), right.data(), out.data()); });
    }
    return times.median() / (static_cast<double>(edge) * edge * edge);
  }();
  return seconds;
}

/// One axis of a convolution's image: windows of `taps` pixels at each of `positions`, a pixel apart.
struct pixel_axis {
  index positions = 1;
  index taps = 1;
  index padding = 0;
  [[nodiscard]] index seen() const { return positions + taps - 1; }
};

/// A block, its factors for a tile of samples, and room for what the methods keep.
class block {
 public:
  block(index positions, index view, index outputs) {
    leaf_.view[2] = {view, 1, 1};
    leaf_.step[1] = {positions, view, outputs};
    leaf_.outputs = outputs;
    leaf_.x = {0, positions * view};
    make_room();
  }
  /// Of a convolution.
  block(pixel_axis along, index channels, index outputs) {
    const index row = along.seen() * channels;
    leaf_.view[0] = {along.taps, row, 1};
    leaf_.view[1] = {along.taps, channels, 1};
    leaf_.view[2] = {channels, 1, 1};
    leaf_.step[0] = {along.positions, row, along.positions * outputs};
    leaf_.step[1] = {along.positions, channels, outputs};
    leaf_.outputs = outputs;
    leaf_.x = {0, along.seen() * row};
    make_room();
    for (index b = 0; b < tile(norm_method::product); ++b) clear_halo(along, channels, b * leaf_.x.sample);
  }

  /// Samples of a tile: their activations, and where a method keeps them their gradients, fit into a megabyte.
  [[nodiscard]] index tile(norm_method method) const {
    constexpr index cache = (index{1} << 20) / static_cast<index>(sizeof(float));
    const index sample =
        leaf_.x.sample + leaf_.positions() * leaf_.outputs + (method == norm_method::instantiate ? leaf_.size() : 0);
    index samples = 16;
    while (samples > 1 && samples * sample > cache) samples /= 2;
    return samples;
  }

  /// Norms of the tile's samples, and what the samples add to the weighted sum.
  void run(norm_method method) {
    const index samples = tile(method);
    const pg::on_host::leaf_kernel<float> kernel{leaf_, workspace_.data()};
    pg::norm_bound norms;
    for (index b = 0; b < samples; ++b) norms += norm(method, kernel, b);
    benchmark::DoNotOptimize(norms);
    if (method == norm_method::instantiate) {
      for (index b = 0; b < samples; ++b) {
        pg::on_host::add_scaled_to(sum_.data(), 0.5F, static_cast<const float*>(kept_.data() + b * leaf_.size()),
                                   leaf_.size());
      }
    } else {
      kernel.add_weighted_sum(samples, weights_.data(), sum_.data(), scaled_.data());
    }
    benchmark::ClobberMemory();
  }
  /// Whether a method finds the norm that Gram matrices find.
  [[nodiscard]] bool agrees(norm_method method) {
    const pg::on_host::leaf_kernel<float> kernel{leaf_, workspace_.data()};
    const double expected = norm(norm_method::gram, kernel, 0).squared;
    return expected > 0 && std::abs(norm(method, kernel, 0).squared - expected) <= 1e-4 * expected;
  }
  [[nodiscard]] pg::block_size size() const { return leaf_.block(); }

 private:
  pg::norm_bound norm(norm_method method, const pg::on_host::leaf_kernel<float>& kernel, index sample) {
    if (method == norm_method::product) return kernel.by_product(sample);
    if (method == norm_method::gram) return kernel.gram(sample);
    if (method == norm_method::direct) return kernel.direct(sample);
    pg::norm_bound kept;
    kept.squared = kernel.instantiate(sample, kept_.data() + sample * leaf_.size());
    return kept;
  }
  void clear_halo(pixel_axis along, index channels, index image) {
    const auto outside = [&](index pixel) { return pixel < along.padding || pixel >= along.seen() - along.padding; };
    for (index i = 0; i < along.seen() * along.seen(); ++i) {
      if (!outside(i / along.seen()) && !outside(i % along.seen())) continue;
      std::fill_n(workspace_.begin() + image + i * channels, channels, 0.0F);
    }
  }
  void make_room() {
    const index samples = tile(norm_method::product);
    const index deltas = leaf_.positions() * leaf_.outputs;
    leaf_.delta = {samples * leaf_.x.sample, deltas};
    leaf_.find_one_sample();
    workspace_ = numbers(samples * (leaf_.x.sample + deltas) + pg::on_host::line);
    kept_.resize(static_cast<std::size_t>(tile(norm_method::instantiate) * leaf_.size()));
    sum_.resize(static_cast<std::size_t>(leaf_.size()));
    scaled_.resize(static_cast<std::size_t>(samples * deltas));
    weights_.fill(0.5F);
  }

  pg::on_host::outer_leaf leaf_;
  std::vector<float> workspace_;
  std::vector<float> kept_;
  std::vector<float> sum_;
  std::vector<float> scaled_;
  std::array<float, 16> weights_{};
};

void norm_methods(benchmark::State& state, block measured) {
  struct entry {
    norm_method method;
    double modelled;
    bench::step_times times;
  };
  const norm_method chosen = pg::cheapest_method(measured.size(), sizeof(float));
  const double cheapest = pg::modelled_cost(chosen, measured.size(), sizeof(float));
  std::vector<entry> entries;
  for (const auto method : {norm_method::product, norm_method::gram, norm_method::direct, norm_method::instantiate}) {
    const double modelled = pg::modelled_cost(method, measured.size(), sizeof(float));
    if (modelled > 30 * cheapest) continue;
    if (!measured.agrees(method)) {
      return state.SkipWithError((std::string{pg::name_of(method)} + " finds another norm").c_str());
    }
    entries.push_back({method, modelled, {}});
  }
  unit_seconds();
  for (auto _ : state) {
    for (entry& each : entries) {
      measured.run(each.method);  // the first run after another method finds its data elsewhere
      for (int repeat = 0; repeat < 4; ++repeat) each.times.time([&] { measured.run(each.method); });
    }
  }
  double best = 1e300;
  double of_chosen = 0;
  for (entry& each : entries) {
    const double units = each.times.median() / static_cast<double>(measured.tile(each.method)) / unit_seconds();
    const std::string name{pg::name_of(each.method)};
    state.counters[name] = units / 1000;
    state.counters[name + "_ratio"] = units / each.modelled;
    best = std::min(best, units);
    if (each.method == chosen) of_chosen = units;
  }
  state.counters["chosen_vs_best"] = of_chosen / best;
  state.SetLabel(std::string{pg::name_of(chosen)});
}

template <class... Sizes>
void add(const std::string& name, Sizes... sizes) {
  benchmark::RegisterBenchmark(("norm_methods/" + name).c_str(), [=](benchmark::State& state) {
    norm_methods(state, block{sizes...});
  })->Unit(benchmark::kMicrosecond);
}

const bool registered = [] {
  struct cell {
    index x;
    index outputs;
    [[nodiscard]] std::string text() const { return std::to_string(x) + "/" + std::to_string(outputs); }
  };
  for (const index positions : {1, 4, 16, 25, 64, 196, 784}) {
    for (const cell& of : {cell{27, 32}, cell{64, 16}, cell{256, 32}, cell{512, 10}, cell{576, 64}, cell{512, 512},
                           cell{1152, 256}, cell{2304, 512}}) {
      if (positions * (of.x + of.outputs) > 1'500'000) continue;
      add(std::to_string(positions) + "/" + of.text(), positions, of.x, of.outputs);
    }
  }
  for (const index edge : {2, 4, 5, 7, 8, 14}) {
    for (const cell& of : {cell{16, 32}, cell{64, 64}, cell{256, 10}, cell{128, 128}, cell{256, 256}, cell{512, 512}}) {
      add("3x3/" + std::to_string(edge) + "/" + of.text(), pixel_axis{edge, 3, 1}, of.x, of.outputs);
    }
  }
  return true;
}();

}  // namespace
