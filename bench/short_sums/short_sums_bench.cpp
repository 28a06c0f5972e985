// SPDX-License-Identifier: Apache-2.0
// bench/short_sums/short_sums_bench.cpp - <network>/short_sums/<batch>/<threads>: what it costs that a clipped sum adds
// up few samples before their sum is added to that of others
//
// Private steps by turns: the library's, whose accumulators add up 32 samples, and the same of a network whose batch is
// one chunk, so that they add up 128. At 256 there is no difference: 16 accumulators do for both. How far neighbours'
// sums may then be apart is not what the noise counts with: only its time is looked at.
//
//   short_over_long  the median, over all pairs of neighbours, of the library's time / that with long sums
//   pairs            their number
#include <algorithm>
#include <cstddef>
#include <string>

#include <pergrad/models.hpp>

#include "mnist_cnn/images.hpp"
#include "support/step_benchmark.hpp"

namespace {

namespace pg = pergrad;

/// The same network as another type: flattening what is flat takes no time and moves nothing.
template <class Network>
struct renamed;
template <class Scalar, class Input, class... Layers>
struct renamed<pg::static_network<Scalar, Input, Layers...>> {
  using type = pg::static_network<Scalar, Input, Layers..., pg::flatten>;
};
template <class Network>
using with_long_sums = typename renamed<Network>::type;

using mnist = mnist_cnn::net;
using cifar = pg::models::cifar_cnn;

}  // namespace

namespace pergrad::inline v0_1::on_host {

template <>
inline constexpr index chunk_samples<with_long_sums<mnist>> = index{1} << 20;
template <>
inline constexpr index chunk_samples<with_long_sums<cifar>> = index{1} << 20;
template <>
constexpr index part_samples<with_long_sums<mnist>>(std::size_t /*capacity*/) noexcept {
  return chunk_samples<with_long_sums<mnist>>;
}
template <>
constexpr index part_samples<with_long_sums<cifar>>(std::size_t /*capacity*/) noexcept {
  return chunk_samples<with_long_sums<cifar>>;
}
// Else their chunks would be added up as integers.
template <>
constexpr detail::addition_way way_of_additions<with_long_sums<mnist>>(std::size_t capacity) noexcept {
  return way_of_additions<mnist>(capacity);
}
template <>
constexpr detail::addition_way way_of_additions<with_long_sums<cifar>>(std::size_t capacity) noexcept {
  return way_of_additions<cifar>(capacity);
}

/// Samples that an accumulator adds up of a batch, at most.
template <class Network>
constexpr index samples_in_a_row(index batch) {
  constexpr index tile = program<Network>::table.tile;
  const index tiles = std::min(batch, chunk_samples<Network>) / tile;
  return tiles * tile / bounded_accumulators_for<Network>(tiles, tile, static_cast<std::size_t>(batch));
}
static_assert(samples_in_a_row<mnist>(2048) == 32 && samples_in_a_row<with_long_sums<mnist>>(2048) == 128);
static_assert(samples_in_a_row<cifar>(2048) == 32 && samples_in_a_row<with_long_sums<cifar>>(2048) == 128);

}  // namespace pergrad::inline v0_1::on_host

namespace {

template <class Network>
using step_of = bench::stepper<bench::training<Network, pg::cross_entropy, bench::kind::dp>>;

template <class Network>
void run(benchmark::State& state, const bench::records<Network, pg::cross_entropy>& (*source)(), std::size_t batch,
         std::size_t threads) {
  using other = with_long_sums<Network>;
  const auto& data = source();
  const bench::records<other, pg::cross_entropy> same{data.inputs, data.targets};
  step_of<Network> shorter{data, threads, batch};
  step_of<other> longer{same, threads, batch};
  bench::run_pairs_of(state, "short_over_long", longer, shorter);
}

const bench::records<mnist, pg::cross_entropy>& images() {
  static const auto made = mnist_cnn::make_images(16'384);
  return made;
}

template <class Network>
bool add(const char* name, const bench::records<Network, pg::cross_entropy>& (*source)()) {
  benchmark::RegisterBenchmark((std::string{name} + "/short_sums/2048/2").c_str(), run<Network>, source,
                               std::size_t{2048}, std::size_t{2})
      ->Unit(benchmark::kMicrosecond);
  return true;
}
const bool added =
    add<mnist>("mnist_cnn", images) && add<cifar>("cifar_cnn", bench::kept_records<cifar, pg::cross_entropy, 2048>);

}  // namespace
