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
#include <string>
#include <vector>

#include <pergrad/mpi.hpp>

#include "tasks.hpp"

namespace pg = pergrad;

namespace {

constexpr std::size_t records = 2048;

template <class Network>
void measure(std::size_t threads, int steps, std::int32_t classes) {
  const pg::mpi_ranks world{MPI_COMM_WORLD};
  const std::size_t first = records * world.rank() / world.size();
  const task::made_up<Network> all{records, classes};
  const pg::shard mine{all.part(first, records * (world.rank() + 1) / world.size() - first), first};

  const pg::host exec{pg::threads{threads}};
  const auto net = std::make_unique<Network>(exec, pg::kaiming_uniform{1});
  const auto options = task::options_of(256.0 / records, 256);
  pg::dp_sgd trainer{exec, *net, pg::cross_entropy{}, options, world, pg::seeded_generator{3}};
  std::vector<double> times;
  for (int step = 0; step <= steps; ++step) {
    const auto begin = std::chrono::steady_clock::now();
    trainer.step(mine);
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
    const std::string name = argc == 4 ? argv[1] : "";
    const std::size_t threads = argc == 4 ? std::strtoul(argv[2], nullptr, 10) : 0;
    const int steps = argc == 4 ? std::atoi(argv[3]) : 0;
    if (steps < 1) {
      std::fprintf(stderr, "usage: steps TASK THREADS STEPS\n");
      status = 2;
    } else if (!task::with_task(
                   name, [&]<class Network>(std::int32_t classes) { measure<Network>(threads, steps, classes); })) {
      std::fprintf(stderr, "steps: there is no task '%s'; there are %s\n", name.c_str(), task::names);
      status = 2;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    status = 1;
  }
  MPI_Finalize();
  return status;
}
