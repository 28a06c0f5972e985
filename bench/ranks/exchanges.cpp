// SPDX-License-Identifier: Apache-2.0
// bench/ranks/exchanges.cpp - what exchanges cost the ranks that mpirun started, for model.py: REPEATS ELEMENTS
//
// Rank 0 prints JSON: microseconds, the least of REPEATS, of an all_gather of 8 bytes a rank, of a reduce_scatter of
// ELEMENTS integers, and of adding up as many in memory, which is a part of it.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <limits>
#include <span>
#include <vector>

#include <pergrad/mpi.hpp>

namespace pg = pergrad;

namespace {

template <class Function>
double least_microseconds(int repeats, Function&& f) {
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i <= repeats; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    f();
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    if (i > 0) least = std::min(least, took.count());  // the first one connects
  }
  return least;
}

void measure(int repeats, std::size_t elements) {
  const pg::mpi_ranks world{MPI_COMM_WORLD};
  std::vector<std::size_t> places(world.size() + 1);
  for (std::size_t i = 0; i <= world.size(); ++i) places[i] = elements * i / world.size();
  std::vector<std::int64_t> sum(elements, 1);
  std::vector<std::int64_t> others(elements, 1);
  // Several in a row: ranks wait for each other, and no single one is timed before all have come.
  constexpr int row = 20;
  const double small = least_microseconds(repeats, [&] {
    for (int i = 0; i < row; ++i) static_cast<void>(pg::detail::values_of_all(world, std::uint64_t{1}));
  });
  const double large = least_microseconds(repeats, [&] {
    world.reduce_scatter(sum, places);
    static_cast<void>(pg::detail::values_of_all(world, std::uint64_t{1}));
  });
  const double adding = least_microseconds(repeats, [&] {
    for (std::size_t i = 0; i < elements; ++i) sum[i] += others[i];
  });
  if (world.rank() == 0) {
    std::printf(
        "{\"ranks\": %zu, \"elements\": %zu, \"all_gather\": %.2f, \"reduce_scatter\": %.2f, \"adding\": %.2f}\n",
        world.size(), elements, small / row, large - small / row, adding);
  }
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int status = 0;
  try {
    const int repeats = argc == 3 ? std::atoi(argv[1]) : 0;
    const std::size_t elements = argc == 3 ? std::strtoul(argv[2], nullptr, 10) : 0;
    if (repeats < 1 || elements == 0) {
      std::fprintf(stderr, "usage: exchanges REPEATS ELEMENTS\n");
      status = 2;
    } else {
      measure(repeats, elements);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    status = 1;
  }
  MPI_Finalize();
  return status;
}
