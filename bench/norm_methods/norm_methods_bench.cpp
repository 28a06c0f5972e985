// SPDX-License-Identifier: Apache-2.0
// bench/norm_methods/norm_methods_bench.cpp - norm_methods/<T>/<d>/<p>: what each norm method costs and should
//
// One outer-product block with T positions, view width d and p outputs, float. A method's cost is that of a sample's
// norm and of its share of the weighted sum, in a tile of as many samples as the engine would take if this block were
// all there is. Unit: one multiply-add of the product kernel where it is fastest, measured on a 512 x 512 x 512 product
// at the start.
//
//   product, gram, direct, instantiate   measured cost in thousands of units; absent if modelled at 30 times the best
//   *_ratio                              measured / modelled (gradients/plan.hpp)
//   chosen_vs_best                       cost of the method that the model chooses / cost of the best one
//
// The constants in `host_costs` are set by hand so that the ratios are near 1 and chosen_vs_best is near 1 everywhere.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <random>
#include <string>
#include <vector>

#include <pergrad/gradients/plan.hpp>
#include <pergrad/host/leaves.hpp>

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

/// A block, its factors for a tile of samples, and room for what the methods keep.
class block {
 public:
  block(index positions, index view, index outputs) {
    leaf_.view[2] = {view, 1, 1};
    leaf_.step[1] = {positions, view, outputs};
    leaf_.outputs = outputs;
    leaf_.x = {0, positions * view};
    const index samples = tile(norm_method::product);
    leaf_.delta = {samples * positions * view, positions * outputs};
    workspace_ = numbers(samples * positions * (view + outputs) + pg::on_host::line);
    kept_.resize(static_cast<std::size_t>(tile(norm_method::instantiate) * leaf_.size()));
    sum_.resize(static_cast<std::size_t>(leaf_.size()));
    scaled_.resize(static_cast<std::size_t>(samples * positions * outputs));
    weights_.fill(0.5F);
  }

  /// Samples of a tile: their activations, and where a method keeps them their gradients, fit into a megabyte.
  [[nodiscard]] index tile(norm_method method) const {
    constexpr index cache = (index{1} << 20) / static_cast<index>(sizeof(float));
    const index sample = leaf_.positions() * (leaf_.view_width() + leaf_.outputs) +
                         (method == norm_method::instantiate ? leaf_.size() : 0);
    index samples = 16;
    while (samples > 1 && samples * sample > cache) samples /= 2;
    return samples;
  }

  /// Norms of the tile's samples, and what the samples add to the weighted sum.
  void run(norm_method method) {
    const index samples = tile(method);
    const pg::on_host::leaf_kernel<float> kernel{leaf_, workspace_.data()};
    pg::on_host::norm_part norms;
    for (index b = 0; b < samples; ++b) {
      switch (method) {
        case norm_method::product:
          norms += kernel.by_product(b);
          break;
        case norm_method::gram:
          norms += kernel.gram(b);
          break;
        case norm_method::direct:
          norms += kernel.direct(b);
          break;
        default:
          norms.squared += kernel.instantiate(b, kept_.data() + b * leaf_.size());
          break;
      }
    }
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
  [[nodiscard]] pg::block_size size() const { return leaf_.block(); }

 private:
  pg::on_host::outer_leaf leaf_;
  std::vector<float> workspace_;
  std::vector<float> kept_;
  std::vector<float> sum_;
  std::vector<float> scaled_;
  std::array<float, 16> weights_{};
};

void norm_methods(benchmark::State& state, index positions, index view, index outputs) {
  block measured{positions, view, outputs};
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
    if (modelled <= 30 * cheapest) entries.push_back({method, modelled, {}});
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

const bool registered = [] {
  struct cell {
    index view;
    index outputs;
  };
  for (const index positions : {1, 4, 16, 25, 64, 196, 784}) {
    for (const auto& [view, outputs] : {cell{27, 32}, cell{64, 16}, cell{256, 32}, cell{512, 10}, cell{576, 64},
                                        cell{512, 512}, cell{1152, 256}, cell{2304, 512}}) {
      if (positions * (view + outputs) > 1'500'000) continue;
      const std::string name =
          "norm_methods/" + std::to_string(positions) + "/" + std::to_string(view) + "/" + std::to_string(outputs);
      benchmark::RegisterBenchmark(name.c_str(), norm_methods, positions, view, outputs)->Unit(benchmark::kMicrosecond);
    }
  }
  return true;
}();

}  // namespace
