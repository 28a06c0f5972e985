// SPDX-License-Identifier: Apache-2.0
// bench/prediction/prediction_bench.cpp - prediction/<network>/<way>: the outputs of one record, microseconds a record
//
// `one` is a `predictor`, whose memory for one record is kept; `call` is `predict` with one record; `of_1024` is
// `predict` with 1,024, divided by them. One thread.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include <pergrad/models.hpp>
#include <pergrad/pergrad.hpp>

namespace {

namespace pg = pergrad;

using small = pg::network<pg::shape{8}, pg::linear<16>, pg::tanh, pg::linear<2>>;

template <class Network>
std::vector<float> numbers(std::size_t records) {
  std::vector<float> made(records * Network::input_shape.size());
  for (std::size_t i = 0; i < made.size(); ++i) made[i] = static_cast<float>(i * 7 % 13) / 13.0F;
  return made;
}

template <class Network>
void one(benchmark::State& state) {
  const pg::host exec{pg::threads{1}};
  const Network net{exec, pg::kaiming_uniform{1}};
  const std::vector<float> input = numbers<Network>(1);
  pg::predictor predict_one{exec, net};
  if (const auto alone = predict_one(pg::public_records{input});
      !std::ranges::equal(alone, pg::predict(exec, net, pg::public_records{input}))) {
    state.SkipWithError("a predictor says something else than predict");
  }
  for (auto _ : state) benchmark::DoNotOptimize(predict_one(pg::public_records{input}).data());
}
template <class Network, std::size_t Records>
void together(benchmark::State& state) {
  const pg::host exec{pg::threads{1}};
  const Network net{exec, pg::kaiming_uniform{1}};
  const std::vector<float> inputs = numbers<Network>(Records);
  for (auto _ : state) benchmark::DoNotOptimize(pg::predict(exec, net, pg::public_records{inputs}).data());
  state.counters["us_per_sample"] = benchmark::Counter(
      static_cast<double>(Records) * 1e-6, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

template <class Network>
bool add(const std::string& name) {
  benchmark::RegisterBenchmark(("prediction/" + name + "/one").c_str(), one<Network>)

      ->Unit(benchmark::kMicrosecond);
  benchmark::RegisterBenchmark(("prediction/" + name + "/call").c_str(), together<Network, 1>)

      ->Unit(benchmark::kMicrosecond);
  benchmark::RegisterBenchmark(("prediction/" + name + "/of_1024").c_str(), together<Network, 1024>)

      ->Unit(benchmark::kMicrosecond);
  return true;
}

const bool registered =
    add<small>("small") && add<pg::models::lee_kifer_mlp>("mlp") && add<pg::models::mnist_cnn>("mnist_cnn");

}  // namespace
