// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/cuda.cuh - pergrad::cuda: the executor whose device is a GPU
#pragma once

#include <pergrad/cuda/run/cuda_device.cuh>
#include <pergrad/cuda/run/describe.hpp>
#include <pergrad/cuda/run/executor.hpp>
#include <pergrad/cuda/run/trainer.hpp>

namespace pergrad::inline v0_1 {

/// Runs everything on a GPU: `cuda exec;`, or `cuda exec{stream};` for a stream of the caller's, in the place of
/// `host exec;`. Nothing else in a program changes. Throws cuda_unavailable where there is no usable GPU;
/// `cuda::missing()` says beforehand what is missing.
using cuda = basic_device_executor<on_device::cuda_device>;

/// Its choices: `cuda exec{cuda_options{.tf32 = true}};` or `cuda exec{stream, {.tf32 = true}};`.
using cuda_options = device_options;

}  // namespace pergrad::inline v0_1
