// SPDX-License-Identifier: Apache-2.0
// tests/cuda/nvcc/noise_gate.cu - the kernel that releases and updates, for gates.py to read its PTX
#include <pergrad/cuda/device/kernel.cuh>
#include <pergrad/cuda/kernels/release.hpp>

namespace pergrad::inline v0_1::on_device {

#define GATE(...) template __global__ void run_kernel<__VA_ARGS__>(const __grid_constant__ __VA_ARGS__)
GATE(release_kernel<float>);

}  // namespace pergrad::inline v0_1::on_device
