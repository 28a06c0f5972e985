// SPDX-License-Identifier: Apache-2.0
// bench/ranks/tasks.hpp - the tasks that ranks are timed on: networks by their names, made-up records, the same options
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <pergrad.hpp>
#include <pergrad/models.hpp>
#include <pergrad/ranks.hpp>

namespace task {

namespace pg = pergrad;

/// One layer of GPT-2 small (Radford et al. 2019), 7,087,872 parameters, on 128 positions, and a classifier behind it.
using gpt2_layer =
    pg::network<pg::shape{128, 768}, pg::transformer_encoder_layer<12, 3072>, pg::mean_over_positions, pg::linear<2>>;

/// Records and classes, the same on all ranks.
template <class Network>
class made_up {
 public:
  using value = typename Network::input_value;
  made_up(std::size_t count, std::int32_t classes) : inputs_(count * width), targets_(count) {
    std::mt19937 random{7};
    for (value& each : inputs_) {
      if constexpr (std::is_integral_v<value>) {
        each = static_cast<value>(random() % Network::input_shape.ids);
      } else {
        each = static_cast<value>(random() % 2000) / 1000 - 1;
      }
    }
    for (auto& each : targets_) each = static_cast<std::int32_t>(random() % static_cast<unsigned>(classes));
  }
  [[nodiscard]] pg::dataset<value, std::int32_t> part(std::size_t first, std::size_t count) const {
    return {std::span<const value>{inputs_}.subspan(first * width, count * width),
            std::span<const std::int32_t>{targets_}.subspan(first, count), Network::input_shape};
  }

 private:
  static constexpr std::size_t width = Network::input_shape.size();
  std::vector<value> inputs_;
  std::vector<std::int32_t> targets_;
};

/// A private step's options; `probability` of each record.
inline pg::dp_sgd_options options_of(double probability, double expected) {
  pg::dp_sgd_options options;
  options.sampling = pg::poisson_sampling{pg::sampling_probability{probability}};
  options.noise = pg::noise_multiplier{1};
  options.clip = pg::l2_clip_norm{1};
  options.divisor = pg::expected_batch_size{expected};
  options.learning_rate = pg::learning_rate{0.01};
  return options;
}

/// f.template operator()<Network>(classes) for the task of this name; false if there is none.
template <class Function>
bool with_task(const std::string& name, Function&& f) {
  if (name == "mlp") {
    f.template operator()<pg::models::lee_kifer_mlp>(10);
  } else if (name == "mnist_cnn") {
    f.template operator()<pg::models::mnist_cnn>(10);
  } else if (name == "cifar_cnn") {
    f.template operator()<pg::models::cifar_cnn>(10);
  } else if (name == "lstm") {
    f.template operator()<pg::models::imdb_lstm<>>(2);
  } else if (name == "gpt2_layer") {
    f.template operator()<gpt2_layer>(2);
  } else {
    return false;
  }
  return true;
}
inline constexpr const char* names = "mlp, mnist_cnn, cifar_cnn, lstm, gpt2_layer";

}  // namespace task
