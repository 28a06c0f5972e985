// SPDX-License-Identifier: Apache-2.0
// tests/cuda/nvcc/nccl_program.cu - ranks/told_run.hpp on GPUs that exchange by NCCL
#include <chrono>

#include <pergrad/nccl.cuh>

#include "ranks/told_run.hpp"

int main(int argc, char** argv) {
  return told_run::run(argc, argv, [](const told_run::told& all) {
    const std::chrono::milliseconds patience{all.patience};
    // [snippet: ranks]
    const pergrad::mpi_ranks host{MPI_COMM_WORLD, patience};
    const pergrad::nccl_ranks world{host, patience};
    const pergrad::cuda exec;
    // [snippet end]
    told_run::train(all, exec, world);
  });
}
