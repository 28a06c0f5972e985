// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/cuda.cuh - everything that only nvcc can read
#pragma once

#include <pergrad/cuda/cuda_device.cuh>
