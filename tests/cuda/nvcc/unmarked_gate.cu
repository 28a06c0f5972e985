// SPDX-License-Identifier: Apache-2.0
// tests/cuda/nvcc/unmarked_gate.cu - a layer that says it runs on a device, with functions that only the host can call
//
// gates.py expects an error that names it, and none with GATE_MARKED.
#include <pergrad/cuda/device/kernel.cuh>
#include <pergrad/cuda/kernels/samples.hpp>
#include <pergrad/losses/cross_entropy.hpp>

#ifdef GATE_MARKED
#define GATE_HD PERGRAD_HD
#else
#define GATE_HD
#endif

namespace unmarked_gate {

struct doubled {
  static constexpr bool on_device = true;
  template <class Value>
  GATE_HD static Value value(Value x) noexcept {
    return x + x;
  }
  template <class Value>
  GATE_HD static Value derivative(Value /*x*/, Value /*y*/) noexcept {
    return Value{} + 2;
  }
};

}  // namespace unmarked_gate

namespace pergrad::inline v0_1::on_device {

using unmarked_kernel = sample_kernel<float, cross_entropy, function_list<unmarked_gate::doubled>, 64, 0>;
template __global__ void run_kernel<unmarked_kernel>(const __grid_constant__ unmarked_kernel);

}  // namespace pergrad::inline v0_1::on_device
