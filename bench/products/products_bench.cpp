// SPDX-License-Identifier: Apache-2.0
// bench/products/products_bench.cpp - products/<network>/<layer>/<forward|dx|dw>: a convolution's products as a step
// runs them
//
// One thread, the samples of one tile, the places and strides of the network's own program; a layer is named
// <node>_<channels in>-<channels out>_<height>x<width of its output>. `dw` forms each sample's weight gradient with its
// squared norm. VGG16 and AlexNet (on images of 256 x 256) are cut behind their convolutions.
//
//   gflops    2 positions x weights a sample, whatever the product does beside them, by the median; the same where a
//             convolution is filtered (host/conv/winograd.hpp) and does fewer
//   of_peak   of what the vector units of this core do in the same moments (support/fma_peak.hpp)
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include <pergrad/detail/aligned_buffer.hpp>
#include <pergrad/models.hpp>
#include <pergrad/pergrad.hpp>

#include "support/fma_peak.hpp"
#include "support/step_times.hpp"

namespace {

namespace pg = pergrad;
namespace host = pergrad::on_host;

enum class which { forward, dx, dw };

/// Numbers in [-1, 1) for whatever a program keeps in memory, on a cache line as a tape's.
pg::detail::aligned_buffer<float> numbers(host::index count) {
  pg::detail::aligned_buffer<float> values{static_cast<std::size_t>(count), "a benchmark's numbers"};
  std::uint32_t state = 12345;
  for (float& value : values.span()) {
    state = state * 1664525U + 1013904223U;
    value = static_cast<float>(state >> 8U) * 0x1p-23F - 1;
  }
  return values;
}

template <class Network>
void run(benchmark::State& state, std::size_t node, which product) {
  static constexpr const auto& table = host::program<Network>::table;
  const host::node_row& row = table.nodes[node];
  auto tape = numbers(table.workspace);
  const auto weights = numbers(table.panel_size + host::line);
  float* const workspace = tape.data();
  float* const room = workspace + table.winograd.offset;
  const float* const panels = weights.data();
  const host::slot& in = table.slots[row.in];
  const host::slot& out = table.slots[row.out];
  std::size_t leaf = 0;
  while (table.outer[leaf].node != node) ++leaf;
  auto gradient = numbers(table.outer[leaf].size());
  double squares = 0;
  const auto work = [&] {
    switch (product) {
      case which::forward:
        if (row.winograd_rows > 0) {
          host::filter_windows<float>(
              row, panels, table.tile, {in.value_layout, workspace + in.value.offset, in.value.sample},
              {out.value_layout, workspace + out.value.offset, out.value.sample}, gradient.data(), room);
          break;
        }
        host::through_windows<float>(
            row, panels, table.tile, {in.value_layout, workspace + in.value.offset, in.value.sample},
            {out.value_layout, workspace + out.value.offset, out.value.sample}, gradient.data(), false);
        break;
      case which::dx:
        if (row.winograd_dx_rows > 0) {
          host::filter_adjoint<float>(
              row, panels, table.tile, {out.gradient_layout, workspace + out.gradient.offset, out.gradient.sample},
              {in.gradient_layout, workspace + in.gradient.offset, in.gradient.sample}, false, room);
          break;
        }
        host::through_adjoint<float>(
            row, panels, table.tile, {out.gradient_layout, workspace + out.gradient.offset, out.gradient.sample},
            {in.gradient_layout, workspace + in.gradient.offset, in.gradient.sample}, nullptr, false);
        break;
      case which::dw:
        for (host::index b = 0; b < table.tile; ++b) {
          squares += host::leaf_kernel<float>{table.outer[leaf], workspace}.instantiate(b, gradient.data());
        }
        break;
    }
    benchmark::ClobberMemory();
  };
  work();
  bench::step_times times;
  double peak = 0;
  std::size_t count = 0;
  for (auto _ : state) {
    if (count++ % 64 == 0) {
      state.PauseTiming();
      peak = std::max(peak, bench::fma_peak_now());
      state.ResumeTiming();
    }
    times.time(work);
  }
  benchmark::DoNotOptimize(squares);
  const double operations =
      2.0 * static_cast<double>(row.map.positions() * row.map.weight_count()) * static_cast<double>(table.tile);
  const double rate = operations / times.median();
  state.counters["gflops"] = rate * 1e-9;
  state.counters["of_peak"] = rate / peak;
}

template <class Network>
bool register_layers(const std::string& network) {
  static constexpr const auto& table = host::program<Network>::table;
  for (std::size_t node = 0; node < table.nodes.size(); ++node) {
    const host::node_row& row = table.nodes[node];
    if (row.kind != host::node_kind::affine || row.map.kernel.size() == 1) continue;
    const std::string name = "products/" + network + "/" + std::to_string(node) + "_" +
                             std::to_string(row.map.in_channels) + "-" + std::to_string(row.map.out_channels) + "_" +
                             std::to_string(row.map.out_size.height) + "x" + std::to_string(row.map.out_size.width);
    const auto add = [&](const char* product, which kind) {
      benchmark::RegisterBenchmark((name + product).c_str(), run<Network>, node, kind)->Unit(benchmark::kMicrosecond);
    };
    add("/forward", which::forward);
    if (row.input_gradient) add("/dx", which::dx);
    add("/dw", which::dw);
  }
  return true;
}

template <std::size_t Channels>
using conv = pg::sequential<pg::conv2d<Channels, 3, pg::padding<1>>, pg::relu>;
template <std::size_t Channels>
using twice = pg::sequential<conv<Channels>, conv<Channels>, pg::max_pool2d<2>>;
template <std::size_t Channels>
using thrice = pg::sequential<conv<Channels>, conv<Channels>, conv<Channels>, pg::max_pool2d<2>>;
using vgg16 = pg::network<pg::shape{3, 256, 256}, twice<64>, twice<128>, thrice<256>, thrice<512>, thrice<512>,
                          pg::adaptive_avg_pool2d<1>, pg::flatten>;
using alexnet = pg::network<pg::shape{3, 256, 256}, pg::conv2d<64, 11, pg::stride<4>, pg::padding<2>>, pg::relu,
                            pg::max_pool2d<3, pg::stride<2>>, pg::conv2d<192, 5, pg::padding<2>>, pg::relu,
                            pg::max_pool2d<3, pg::stride<2>>, pg::conv2d<384, 3, pg::padding<1>>, pg::relu,
                            pg::conv2d<256, 3, pg::padding<1>>, pg::relu, pg::conv2d<256, 3, pg::padding<1>>, pg::relu,
                            pg::max_pool2d<3, pg::stride<2>>, pg::adaptive_avg_pool2d<1>, pg::flatten>;

const bool registered = register_layers<pg::models::cifar_cnn>("cifar_cnn") &&
                        register_layers<pg::models::mnist_cnn>("mnist_cnn") && register_layers<vgg16>("vgg16") &&
                        register_layers<alexnet>("alexnet");

}  // namespace
