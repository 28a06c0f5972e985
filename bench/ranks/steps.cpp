// SPDX-License-Identifier: Apache-2.0
// bench/ranks/steps.cpp - private steps of one task by the ranks that mpirun started: TASK THREADS STEPS
//
// Rank 0 prints the median of its steps in milliseconds. All steps draw expected batches of 256 of 2048 records, which
// are cut alike.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <pergrad.hpp>
#include <pergrad/models.hpp>
#include <pergrad/mpi.hpp>

namespace pg = pergrad;

namespace {

constexpr std::size_t records = 2048;

template <class Network>
void measure(std::size_t threads, int steps, std::int32_t classes) {
  using value = typename Network::input_value;
  constexpr std::size_t width = Network::input_shape.size();
  const pg::mpi_ranks world{MPI_COMM_WORLD};
  const std::size_t first = records * world.rank() / world.size();
  const std::size_t count = records * (world.rank() + 1) / world.size() - first;
  std::mt19937 random{7};
  std::vector<value> inputs(records * width);
  for (value& each : inputs) {
    if constexpr (std::is_integral_v<value>) {
      each = static_cast<value>(random() % Network::input_shape.ids);
    } else {
      each = static_cast<value>(random() % 2000) / 1000 - 1;
    }
  }
  std::vector<std::int32_t> targets(records);
  for (auto& each : targets) each = static_cast<std::int32_t>(random() % static_cast<unsigned>(classes));
  const pg::dataset<value, std::int32_t> mine{std::span<const value>{inputs}.subspan(first * width, count * width),
                                              std::span<const std::int32_t>{targets}.subspan(first, count),
                                              Network::input_shape};

  const pg::host exec{pg::threads{threads}};
  const auto net = std::make_unique<Network>(exec, pg::kaiming_uniform{1});
  pg::dp_sgd_options options;
  options.sampling = pg::poisson_sampling{pg::sampling_probability{256.0 / records}};
  options.noise = pg::noise_multiplier{1};
  options.clip = pg::l2_clip_norm{1};
  options.divisor = pg::expected_batch_size{256};
  options.learning_rate = pg::learning_rate{0.01};
  pg::dp_sgd trainer{exec, *net, pg::cross_entropy{}, options, world, pg::seeded_generator{3}};
  std::vector<double> times;
  for (int step = 0; step <= steps; ++step) {
    const auto begin = std::chrono::steady_clock::now();
    trainer.step(pg::shard{mine, first});
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    if (step > 0) times.push_back(took.count());  // the first one looks at the records
  }
  std::ranges::sort(times);
  if (world.rank() == 0) std::printf("%.3f\n", times[times.size() / 2]);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int status = 0;
  try {
    const std::string task = argc == 4 ? argv[1] : "";
    const std::size_t threads = argc == 4 ? std::strtoul(argv[2], nullptr, 10) : 0;
    const int steps = argc == 4 ? std::atoi(argv[3]) : 0;
    if (steps < 1) {
      std::fprintf(stderr, "usage: steps TASK THREADS STEPS\n");
      status = 2;
    } else if (task == "cifar_cnn") {
      measure<pg::models::cifar_cnn>(threads, steps, 10);
    } else if (task == "mnist_cnn") {
      measure<pg::models::mnist_cnn>(threads, steps, 10);
    } else if (task == "lstm") {
      measure<pg::models::imdb_lstm<>>(threads, steps, 2);
    } else {
      std::fprintf(stderr, "steps: there is no task '%s'; there are cifar_cnn, mnist_cnn, lstm\n", task.c_str());
      status = 2;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    status = 1;
  }
  MPI_Finalize();
  return status;
}
