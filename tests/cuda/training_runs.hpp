// SPDX-License-Identifier: Apache-2.0
// tests/cuda/training_runs.hpp - short private runs of a small network, whole or in two parts, on any executor
#pragma once

#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <random>
#include <string>
#include <unistd.h>
#include <vector>

#include <pergrad/cuda/run/executor.hpp>
#include <pergrad/cuda/run/trainer.hpp>
#include <pergrad/pergrad.hpp>

#include "kept_data_set.hpp"

namespace training_runs {

namespace pg = pergrad;

using network =
    pg::network<pg::shape{1, 10, 9}, pg::parameter_group<1, pg::conv2d<4, 3, pg::padding<1>, pg::stride<2>>>, pg::tanh,
                pg::max_pool2d<2, pg::stride<1>>, pg::flatten, pg::linear<8>, pg::relu, pg::linear<3>>;
constexpr std::size_t record_count = 300;

struct records_of_noise {
  std::vector<float> inputs;
  std::vector<std::int32_t> targets;
  records_of_noise() : inputs(record_count * network::input_shape.size()), targets(record_count) {
    std::mt19937 random{1};
    std::uniform_real_distribution<float> uniform{-1, 1};
    for (float& value : inputs) value = uniform(random);
    for (std::int32_t& value : targets) value = static_cast<std::int32_t>(random() % 3);
  }
  [[nodiscard]] const pg::dataset<float, std::int32_t>& view() const {
    return data_set_.of(inputs, targets, network::input_shape);
  }

 private:
  kept_data_set<float> data_set_;
};

inline pg::dp_sgd_options usual_options() {
  pg::dp_sgd_options options;
  options.clip = pg::l2_clip_norm{0.7};
  options.noise = pg::noise_multiplier{0.8};
  options.sampling = pg::poisson_sampling{pg::sampling_probability{0.1}};
  options.divisor = pg::expected_batch_size{30};
  options.learning_rate = pg::learning_rate{0.3};
  options.max_batch = pg::max_batch{64};
  return options;
}

/// What a run leaves: its parameters, their average, the next step's clip norm, and what each record has spent.
template <class Trainer>
std::vector<float> left_by(const Trainer& trainer, const network& net) {
  const auto parameters = net.parameters();
  std::vector<float> all{parameters.begin(), parameters.end()};
  const pg::dp_sgd_options& options = trainer.options();
  if (options.average_decay > 0) {
    const auto average = trainer.average().parameters();
    all.insert(all.end(), average.begin(), average.end());
  }
  if (options.adaptive_clip) all.push_back(static_cast<float>(options.clip->value()));
  if (options.individual) {
    for (const double spent : pg::unprotected::individual_epsilons(trainer, pg::delta{1e-5})) {
      all.push_back(static_cast<float>(spent));
    }
  }
  return all;
}

template <class Executor>
std::vector<float> trained(const Executor& executor, const pg::dp_sgd_options& options, int steps,
                           double factor_of_later_rates = 1) {
  const records_of_noise data;
  network net{executor, pg::kaiming_uniform{5}};
  pg::dp_sgd trainer{executor, net, pg::cross_entropy{}, options, pg::seeded_generator{9}};
  for (int step = 0; step < steps; ++step) {
    if (step == steps / 2 && factor_of_later_rates != 1)
      trainer.set_learning_rate(pg::learning_rate{options.learning_rate->value() * factor_of_later_rates});
    trainer.step(data.view());
  }
  return left_by(trainer, net);
}

struct scratch_file {
  std::string path =
      (std::filesystem::temp_directory_path() / ("pergrad_device_" + std::to_string(::getpid()) + ".run")).string();
  scratch_file() = default;
  scratch_file(const scratch_file&) = delete;
  scratch_file& operator=(const scratch_file&) = delete;
  ~scratch_file() { std::filesystem::remove(path); }
};

/// The same, of which the first half is done on another executor, and saved there.
template <class First, class Second>
std::vector<float> trained_in_parts(const First& first, const Second& second, const pg::dp_sgd_options& options,
                                    int steps) {
  const records_of_noise data;
  const scratch_file file;
  {
    network net{first, pg::kaiming_uniform{5}};
    pg::dp_sgd trainer{first, net, pg::cross_entropy{}, options, pg::seeded_generator{9}};
    for (int step = 0; step < steps / 2; ++step) trainer.step(data.view());
    options.individual ? pg::unprotected::save_checkpoint(trainer, file.path) : pg::save_checkpoint(trainer, file.path);
  }
  network net{second, pg::kaiming_uniform{6}};
  pg::dp_sgd trainer{second, net, pg::cross_entropy{}, options, pg::seeded_generator{9}};
  pg::load_checkpoint(trainer, file.path);
  BOOST_TEST(trainer.steps() == static_cast<std::uint64_t>(steps / 2));
  for (int step = steps / 2; step < steps; ++step) trainer.step(data.view());
  return left_by(trainer, net);
}

}  // namespace training_runs
