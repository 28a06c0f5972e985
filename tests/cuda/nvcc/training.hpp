// SPDX-License-Identifier: Apache-2.0
// tests/cuda/nvcc/training.hpp - one private epoch on real images, written once and run on two executors
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pergrad.hpp>

#include "../../../examples/common/fashion_mnist_data.hpp"

namespace device_training {

using cnn = pergrad::network<pergrad::shape{1, 28, 28},  //
                             pergrad::conv2d<16, 8, pergrad::stride<2>, pergrad::padding<3>>, pergrad::tanh,
                             pergrad::max_pool2d<2, pergrad::stride<1>>,                    //
                             pergrad::conv2d<32, 4, pergrad::stride<2>>, pergrad::tanh,     //
                             pergrad::max_pool2d<2, pergrad::stride<1>>, pergrad::flatten,  //
                             pergrad::linear<32>, pergrad::tanh, pergrad::linear<10>>;
static_assert(cnn::parameter_count == 26'010);
using mlp = pergrad::network<pergrad::shape{784}, pergrad::linear<128>, pergrad::relu, pergrad::linear<256>,
                             pergrad::relu, pergrad::linear<10>>;
/// Too many weights for every block to read all of them.
using wide = pergrad::network<pergrad::shape{784}, pergrad::linear<384>, pergrad::relu, pergrad::linear<384>,
                              pergrad::relu, pergrad::linear<10>>;
/// Of an image's rows as a sequence, with a wide projection of each that is not trained.
using rows = pergrad::network<pergrad::shape{28, 28}, pergrad::linear<1024>, pergrad::tanh,
                              pergrad::frozen<pergrad::linear<640>>, pergrad::mean_over_positions, pergrad::linear<10>>;

/// The first images of Fashion-MNIST.
struct images {
  std::vector<float> pixels;
  std::vector<std::int32_t> labels;

  template <class Network>
  [[nodiscard]] pergrad::dataset<float, std::int32_t> as() const {
    return {pixels, labels, Network::input_shape};
  }
};
[[nodiscard]] inline images load_images(std::size_t count) {
  const example::labelled_images all = example::load_fashion_mnist("/usr/share/datasets/fashion-mnist", "t10k");
  return {{all.images.begin(), all.images.begin() + static_cast<std::ptrdiff_t>(count * 784)},
          {all.labels.begin(), all.labels.begin() + static_cast<std::ptrdiff_t>(count)}};
}

inline constexpr std::size_t image_count = 320;
inline constexpr double expected_batch = 64;
inline constexpr std::size_t steps_of_an_epoch = 5;

struct choices {
  pergrad::optimizer_kind optimizer = pergrad::optimizer_kind::sgd;
  double momentum = 0.9;
  pergrad::clipping_kind clipping = pergrad::clipping_kind::flat;
  std::size_t max_batch = 24;  // so that a step has several physical batches
  double clip_factor = 0;      // of a schedule, from step to step
  std::size_t steps = steps_of_an_epoch;
};
[[nodiscard]] inline pergrad::dp_sgd_options make_options(const choices& chosen) {
  pergrad::dp_sgd_options options;
  options.clip = pergrad::l2_clip_norm{0.1};
  options.noise = pergrad::noise_multiplier{1.0};
  options.sampling =
      pergrad::poisson_sampling{pergrad::sampling_probability{expected_batch / static_cast<double>(image_count)}};
  options.divisor = pergrad::expected_batch_size{expected_batch};
  options.learning_rate = pergrad::learning_rate{chosen.optimizer == pergrad::optimizer_kind::adam ? 0.002 : 2.0};
  options.optimizer = chosen.optimizer;
  options.momentum = chosen.optimizer == pergrad::optimizer_kind::adam ? 0.0 : chosen.momentum;
  options.clipping = chosen.clipping;
  options.max_batch = pergrad::max_batch{chosen.max_batch};
  options.capacity = pergrad::record_capacity{0};  // integers on the host, too: then arithmetic alone tells them apart
  if (chosen.clip_factor > 0) {
    options.schedules.steps = steps_of_an_epoch;
    options.schedules.clip = pergrad::schedule::exponential(options.clip->value(), chosen.clip_factor);
    options.clip.reset();
  }
  return options;
}

/// Something of each step.
using of_steps = std::vector<std::vector<float>>;

/// Parameters before and after one epoch; those that each step began with, and what it released.
struct outcome {
  std::vector<float> before, after;
  of_steps begins, released;
};

/// The first steps begin with the parameters of `begins`, wherever the step before has led.
template <class Network, class Executor>
[[nodiscard]] outcome train(const Executor& executor, const images& set, const choices& chosen,
                            const of_steps& begins = {}) {
  Network net{executor, pergrad::kaiming_uniform{1}};
  outcome result;
  const auto copy = [](std::span<const float> values) { return std::vector<float>(values.begin(), values.end()); };
  const auto parameters = [&] { return copy(std::as_const(net).parameters()); };
  result.before = parameters();
  pergrad::dp_sgd trainer{executor, net, pergrad::cross_entropy{}, make_options(chosen), pergrad::seeded_generator{7}};
  const auto records = set.as<Network>();
  for (std::size_t step = 0; step < chosen.steps; ++step) {
    if (step < begins.size()) std::copy(begins[step].begin(), begins[step].end(), net.parameters().begin());
    result.begins.push_back(parameters());
    trainer.step(records);
    result.released.push_back(copy(trainer.last_update().values()));
  }
  result.after = parameters();
  return result;
}

/// || a - b || over the length of the way that b went.
[[nodiscard]] inline double distance(const outcome& a, const outcome& b) {
  double apart = 0;
  double way = 0;
  for (std::size_t i = 0; i < a.after.size(); ++i) {
    const double difference = static_cast<double>(a.after[i]) - static_cast<double>(b.after[i]);
    const double moved = static_cast<double>(b.after[i]) - static_cast<double>(b.before[i]);
    apart += difference * difference;
    way += moved * moved;
  }
  return std::sqrt(apart / way);
}

/// Each parameter's neighbour, above or below it.
[[nodiscard]] inline std::vector<float> one_rounding_off(std::vector<float> parameters, std::uint32_t seed) {
  for (float& each : parameters) {
    seed = seed * 1664525U + 1013904223U;  // Numerical Recipes
    each = std::nextafter(each, seed >> 31U == 0 ? -1e9F : 1e9F);
  }
  return parameters;
}

/// How far from `host` the host's runs end, on_host(begins), whose first parameters are one rounding off.
template <class OnHost>
[[nodiscard]] double distance_by_roundings(const outcome& host, OnHost&& on_host) {
  double farthest = 0;
  for (std::uint32_t seed = 1; seed <= 8; ++seed) {
    farthest = std::max(farthest, distance(on_host(of_steps{one_rounding_off(host.before, seed)}), host));
  }
  return farthest;
}

/// The same on the host, compiled by the host's compiler.
[[nodiscard]] outcome train_cnn_on_host(const images& set, const choices& chosen, const of_steps& begins = {});
[[nodiscard]] outcome train_mlp_on_host(const images& set, const choices& chosen, const of_steps& begins = {});
[[nodiscard]] outcome train_wide_on_host(const images& set, const choices& chosen, const of_steps& begins = {});
[[nodiscard]] outcome train_rows_on_host(const images& set, const choices& chosen);
/// The host's accuracy and loss with these parameters.
[[nodiscard]] pergrad::classifier_result judge_on_host(std::span<const float> parameters, const images& set);

}  // namespace device_training
