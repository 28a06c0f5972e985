// SPDX-License-Identifier: Apache-2.0
// tests/ranks/mpi_program.cpp - told_run.hpp on the host
#include <chrono>
#include <cstddef>

#include "told_run.hpp"

int main(int argc, char** argv) {
  return told_run::run(argc, argv, [](const told_run::told& all) {
    const pergrad::mpi_ranks world{MPI_COMM_WORLD, std::chrono::milliseconds{all.patience}};
    const pergrad::host exec{pergrad::threads{static_cast<std::size_t>(all.threads)}};
    told_run::train(all, exec, world);
  });
}
