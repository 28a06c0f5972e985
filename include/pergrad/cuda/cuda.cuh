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

namespace on_device {

struct cuda_device_bf16 : cuda_device {
  using cuda_device::cuda_device;
  using tensor_format = bf16_format;
};

}  // namespace on_device

/// The same with BF16, for networks in float: what layers hand to each other, and its gradients, is stored with the 8
/// bits of fraction that BF16 has, and products of matrices in layered networks are formed by tensor cores of numbers
/// that are so rounded, and added up in float. What is squared for a norm are the numbers that the sum adds, as with
/// TF32; the network's output, losses, parameters and sums stay float. A type of its own, as its kernels are: who does
/// not name it does not compile them. From compute capability 8.0 on.
using cuda_bf16 = basic_device_executor<on_device::cuda_device_bf16>;

/// Its choices: `cuda exec{cuda_options{.tf32 = true}};` or `cuda exec{stream, {.tf32 = true}};`.
using cuda_options = device_options;

}  // namespace pergrad::inline v0_1
