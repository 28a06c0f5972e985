// SPDX-License-Identifier: Apache-2.0
// bench/mnist_cnn/correlated_bench.cpp - mnist_cnn/correlated/<stored|regenerated>/<batch>/<threads>: a trainer's step
// with banded noise of eight bands and one with independent noise, by turns
//
//   correlated_over_independent  the median, over all pairs of neighbours, of their times' ratio (step_benchmark.hpp)
//
// Both draw the same records: cyclic Poisson sampling of eight groups from the same seed. Regenerated noise takes time
// in proportion to the steps before, of which there are some hundreds here.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include <pergrad/correlated_noise.hpp>

#include "mnist_cnn/images.hpp"
#include "support/step_benchmark.hpp"

namespace {

namespace pg = pergrad;
using mnist_cnn::net;

constexpr std::uint32_t bands = 8;
constexpr std::size_t images = 16'384;

template <class Noise>
class trainer {
  using options_type = pg::dp_options<pg::cyclic_poisson_sampling, Noise>;

 public:
  trainer(const mnist_cnn::data& data, std::size_t batch, std::size_t threads, bool is_stored)
      : exec_{pg::threads{threads}},
        records_{data.inputs, data.targets, net::input_shape},
        trainer_{exec_, net_, pg::cross_entropy{}, options(batch, is_stored), pg::seeded_generator{1}} {}
  void operator()() { trainer_.step(records_); }
  [[nodiscard]] bool is_finite() const {
    return std::ranges::all_of(net_.parameters(), [](auto value) { return std::isfinite(value); });
  }

 private:
  [[nodiscard]] static options_type options(std::size_t batch, bool is_stored) {
    options_type made;
    made.clip = pg::l2_clip_norm{1};
    made.noise = pg::noise_multiplier{1.1};
    const double of_group = bands * static_cast<double>(batch) / static_cast<double>(images);
    made.sampling = pg::cyclic_poisson_sampling{pg::sampling_probability{of_group}, pg::round_steps{bands}};
    made.divisor = pg::expected_batch_size{static_cast<double>(batch)};
    made.learning_rate = pg::learning_rate{0.15};
    made.max_batch = pg::max_batch{2048};
    if constexpr (!std::is_same_v<Noise, pg::independent_noise>) {
      const pg::banded_noise noise = pg::optimal_banded_noise({.steps = 100'000}, bands);
      made.correlation = is_stored ? noise : noise.regenerated();
    }
    return made;
  }

  pg::host exec_;
  net net_{exec_, pg::layer_default{1}};
  pg::dataset<float, std::int32_t> records_;
  pg::dp_sgd<net, pg::cross_entropy, pg::seeded_generator, pg::host, options_type> trainer_;
};

void run(benchmark::State& state, std::size_t batch, std::size_t threads, bool is_stored) {
  static const mnist_cnn::data data = mnist_cnn::make_images(images);
  trainer<pg::independent_noise> independent{data, batch, threads, is_stored};
  trainer<pg::banded_noise> banded{data, batch, threads, is_stored};
  bench::run_pairs_of(state, "correlated_over_independent", independent, banded);
}

const bool registered = [] {
  for (const std::size_t threads : {1U, 2U}) {
    for (const std::size_t batch : {16U, 256U}) {
      for (const bool is_stored : {true, false}) {
        const std::string name = std::string{"mnist_cnn/correlated/"} + (is_stored ? "stored/" : "regenerated/") +
                                 std::to_string(batch) + "/" + std::to_string(threads);
        benchmark::RegisterBenchmark(name.c_str(), run, batch, threads, is_stored)->Unit(benchmark::kMicrosecond);
      }
    }
  }
  return true;
}();

}  // namespace
