// SPDX-License-Identifier: Apache-2.0
// bench/ranks/ddp_ours.cpp - our side of ddp.py, started by mpirun: FOLDER RECORDS SECONDS FILE
//
// "network.hpp" and the files of FOLDER are those of bench/peers. The first step has rate RECORDS and no noise, so that
// it subtracts the sum of the clipped gradients; rank 0 writes the parameters to FILE. Then SECONDS of steps with
// noise. All steps take the same RECORDS, which are cut alike. Rank 0 prints JSON: milliseconds of each step, and the
// most megabytes that a process has held.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <pergrad/mpi.hpp>
#include <pergrad/pergrad.hpp>

#include "../support/peak_memory.hpp"
#include "network.hpp"

namespace {

namespace pg = pergrad;
using task::network;

template <class Value>
std::vector<Value> read_values(const std::string& path, std::size_t first, std::size_t count) {
  std::vector<Value> values(count);
  std::ifstream file{path, std::ios::binary};
  file.seekg(static_cast<std::streamoff>(first * sizeof(Value)));
  file.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(count * sizeof(Value)));
  if (!file) throw std::runtime_error(path + ": cannot be read");
  return values;
}

pg::dp_sgd_options options_of(std::size_t records, double rate, double noise) {
  pg::dp_sgd_options options;
  options.sampling = pg::poisson_sampling{pg::sampling_probability{1}};
  options.noise = pg::noise_multiplier{noise};
  options.clip = pg::l2_clip_norm{1};
  options.divisor = pg::expected_batch_size{static_cast<double>(records)};
  options.learning_rate = pg::learning_rate{rate};
  options.max_batch = pg::max_batch{records};
  return options;
}

void measure(const std::string& folder, std::size_t records, double seconds, const std::string& file) {
  const pg::mpi_ranks world{MPI_COMM_WORLD};
  const std::size_t first = records * world.rank() / world.size();
  const std::size_t count = records * (world.rank() + 1) / world.size() - first;
  constexpr std::size_t width = network::input_shape.size();
  const auto inputs = read_values<network::input_value>(folder + "/inputs.f32", first * width, count * width);
  const auto labels = read_values<std::int32_t>(folder + "/labels.i32", first, count);
  const pg::shard mine{pg::dataset<network::input_value, std::int32_t>{inputs, labels, network::input_shape}, first};
  const pg::host exec{pg::threads{1}};
  network net{exec, pg::zeros{}};

  pg::load_parameters(net, folder + "/initial.npy");
  {
    const auto options = options_of(records, static_cast<double>(records), 0);
    pg::dp_sgd trainer{exec, net, task::loss{}, options, world, pg::seeded_generator{1}};
    trainer.step(mine);
    if (world.rank() == 0) {
      std::ofstream out{file, std::ios::binary};
      const auto values = net.parameters();
      out.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size_bytes()));
      if (!out.flush()) throw std::runtime_error(file + ": cannot be written");
    }
  }
  pg::load_parameters(net, folder + "/initial.npy");
  const auto options = options_of(records, 0.15, 1.1);
  pg::dp_sgd trainer{exec, net, task::loss{}, options, world, pg::seeded_generator{1}};
  trainer.step(mine);  // looks at the records
  std::vector<double> milliseconds;
  double passed = 0;
  while (passed < seconds) {
    const auto begin = std::chrono::steady_clock::now();
    trainer.step(mine);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    milliseconds.push_back(took.count() * 1e3);
    passed = pg::detail::values_of_all(world, passed + took.count())[0];  // all end with the same step
  }
  const auto held = pg::detail::values_of_all(world, peak_megabytes());
  if (world.rank() != 0) return;
  std::printf("{\"peak_mb\": %.1f, \"milliseconds\": [", *std::ranges::max_element(held));
  for (std::size_t i = 0; i < milliseconds.size(); ++i) std::printf("%s%.4f", i == 0 ? "" : ", ", milliseconds[i]);
  std::printf("]}\n");
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int status = 0;
  try {
    if (argc != 5) throw std::invalid_argument("usage: ddp_ours FOLDER RECORDS SECONDS FILE");
    measure(argv[1], std::strtoul(argv[2], nullptr, 10), std::strtod(argv[3], nullptr), argv[4]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    status = 1;
  }
  MPI_Finalize();
  return status;
}
