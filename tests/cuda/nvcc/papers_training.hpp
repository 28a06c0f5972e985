// SPDX-License-Identifier: Apache-2.0
// tests/cuda/nvcc/papers_training.hpp - networks of papers, trained privately for an epoch: once for either executor
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <pergrad.hpp>
#include <pergrad/models.hpp>

#include "training.hpp"

namespace device_training {

namespace models = pergrad::models;

/// Lee & Kifer's networks, the transformer with short texts and few words: a device is emulated here.
using lee_kifer_cnn = models::lee_kifer_cnn<>;
using lee_kifer_transformer = models::lee_kifer_transformer<300, 24>;
/// The word-language LSTM, as it is.
using word_lstm = models::imdb_lstm<>;

/// What a network of ids is trained on: words by an arithmetic rule, as many classes as the network has.
template <class Network>
struct records_of {
  using value = typename Network::input_value;
  std::vector<value> inputs;
  std::vector<std::int32_t> labels;

  records_of(const images& set, std::size_t count) {
    constexpr std::size_t width = Network::input_shape.size();
    if constexpr (Network::input_shape.ids == 0) {
      inputs.assign(set.pixels.begin(), set.pixels.begin() + static_cast<std::ptrdiff_t>(count * width));
      labels.assign(set.labels.begin(), set.labels.begin() + static_cast<std::ptrdiff_t>(count));
    } else {
      std::uint32_t state = 1;
      for (std::size_t i = 0; i < count * width; ++i) {
        state = state * 1664525U + 1013904223U;  // Numerical Recipes
        inputs.push_back(static_cast<std::int32_t>((state >> 8U) % Network::input_shape.ids));
      }
      for (std::size_t i = 0; i < count; ++i) labels.push_back(static_cast<std::int32_t>(i % 2));
    }
  }
};

/// How far a network goes: records, and steps of a third of them.
struct length_of_run {
  std::size_t records = 60;
  std::size_t steps = 4;
};

template <class Network, class Executor>
[[nodiscard]] outcome train_on_records(const Executor& executor, const images& set, const length_of_run& run,
                                       std::size_t max_batch) {
  const records_of<Network> records{set, run.records};
  pergrad::dp_sgd_options options = make_options({});
  options.sampling = pergrad::poisson_sampling{pergrad::sampling_probability{1.0 / 3}};
  options.divisor = pergrad::expected_batch_size{static_cast<double>(run.records) / 3};
  options.learning_rate = pergrad::learning_rate{0.5};
  options.max_batch = pergrad::max_batch{max_batch};
  Network net{executor, pergrad::kaiming_uniform{1}};
  outcome result;
  const auto parameters = [&net] { return std::vector<float>(net.parameters().begin(), net.parameters().end()); };
  result.before = parameters();
  pergrad::dp_sgd trainer{executor, net, pergrad::cross_entropy{}, options, pergrad::seeded_generator{7}};
  for (std::size_t step = 0; step < run.steps; ++step) {
    trainer.step(pergrad::dataset<typename Network::input_value, std::int32_t>{records.inputs, records.labels,
                                                                               Network::input_shape});
  }
  result.after = parameters();
  return result;
}

/// The same on the host, compiled by the host's compiler.
template <class Network>
[[nodiscard]] outcome train_paper_on_host(const images& set, const length_of_run& run);

}  // namespace device_training
