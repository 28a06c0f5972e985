// SPDX-License-Identifier: Apache-2.0
// pergrad/ranks.hpp - training by several processes or threads together; beside the umbrella. With MPI: mpi.hpp
#pragma once

#include <pergrad/ranks/communicator.hpp>
#include <pergrad/ranks/thread_ranks.hpp>
#include <pergrad/ranks/trainer.hpp>
