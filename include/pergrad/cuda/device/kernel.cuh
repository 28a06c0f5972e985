// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/device/kernel.cuh - a block of threads on the device, and the one __global__ function of the library
#pragma once

#include <pergrad/cuda/device/kernel.hpp>

namespace pergrad::inline v0_1::on_device {

/// f(f(a, b), ...) of a warp's values.
template <class Value, class Function>
[[nodiscard]] __device__ inline Value fold_of_warp(Value value, const Function& f) noexcept {
  PERGRAD_ROLLED
  for (int apart = warp_size / 2; apart > 0; apart /= 2) value = f(value, __shfl_xor_sync(0xffffffffU, value, apart));
  return value;
}

/// One value a thread: a register.
template <class Value>
class thread_value {
 public:
  [[nodiscard]] __device__ Value& operator[](int /*thread*/) noexcept { return value_; }
  [[nodiscard]] __device__ const Value& operator[](int /*thread*/) const noexcept { return value_; }

 private:
  Value value_;
};

/// c += a b of a warp, from compute capability 8.0 on.
#if __CUDA_ARCH__ >= 800
#define PERGRAD_MMA(shape)                                                                                 \
  asm("mma.sync.aligned." shape " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"         \
      : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)                                                             \
      : "r"(__float_as_uint(from.a[0])), "r"(__float_as_uint(from.a[1])), "r"(__float_as_uint(from.a[2])), \
        "r"(__float_as_uint(from.a[3])), "r"(__float_as_uint(from.b[0])), "r"(__float_as_uint(from.b[1])))
#else
#define PERGRAD_MMA(shape) __trap()
#endif
__device__ inline void multiply_add(tf32_format /*format*/, const tensor_registers& from, float& c0, float& c1,
                                    float& c2, float& c3) noexcept {
  PERGRAD_MMA("m16n8k8.row.col.f32.tf32.tf32.f32");
}
__device__ inline void multiply_add(bf16_format /*format*/, const tensor_registers& from, float& c0, float& c1,
                                    float& c2, float& c3) noexcept {
  PERGRAD_MMA("m16n8k16.row.col.f32.bf16.bf16.f32");
}
#undef PERGRAD_MMA

/// A warp of a block, as a block of its own.
class device_warp {
 public:
  static constexpr int threads = warp_size;
  template <class Value>
  using local = thread_value<Value>;

  [[nodiscard]] __device__ int index() const noexcept { return static_cast<int>(threadIdx.x) / warp_size; }
  template <class Function>
  __device__ void each(Function&& f) const {
    f(static_cast<int>(threadIdx.x) % warp_size);
    __syncwarp();
  }
  template <class Function>
  __device__ void once(Function&& f) const {
    if (threadIdx.x % warp_size == 0) f();
    __syncwarp();
  }
  template <class Value>
  [[nodiscard]] __device__ Value sum(const local<Value>& own, Value (&/*partial*/)[1]) const noexcept {
    return fold_of_warp(own[0], [](Value a, Value b) { return a + b; });
  }
  template <class Value>
  [[nodiscard]] __device__ Value largest(const local<Value>& own, Value (&/*partial*/)[1]) const noexcept {
    const Value largest = fold_of_warp(own[0], [](Value a, Value b) { return larger_of(a, b); });
    return __shfl_sync(0xffffffffU, largest, 0);  // of NaN, and of zeros of both signs, lanes may have different ones
  }
};

/// The `Block` that kernels get on the device; emulated_block (kernel.hpp) is its twin on the host.
template <int Threads>
class device_block {
 public:
  static constexpr int threads = Threads;
  template <class Value>
  using local = thread_value<Value>;

  [[nodiscard]] __device__ int index() const noexcept { return static_cast<int>(blockIdx.x); }
  template <class Shared>
  [[nodiscard]] __device__ Shared& shared() const noexcept {
    extern __shared__ __align__(16) unsigned char pergrad_shared_memory[];  // as much as the launch asked for
    return *reinterpret_cast<Shared*>(pergrad_shared_memory);
  }

  template <class Function>
  __device__ void each(Function&& f) const {
    f(static_cast<int>(threadIdx.x));
    __syncthreads();
  }
  template <class Function>
  __device__ void once(Function&& f) const {
    if (threadIdx.x == 0) f();
    __syncthreads();
  }
  template <class Begin, class Together, class End>
  __device__ void overlap(Begin&& begin, Together&& together, End&& end) const {
    begin(static_cast<int>(threadIdx.x));
    together();
    end(static_cast<int>(threadIdx.x));
    __syncthreads();
  }
  template <class Sums, class Function>
  __device__ void multiply_by_warps(local<Sums>& sums, Function&& f) const {
    const auto from = f(static_cast<int>(threadIdx.x));
    using fragments = decltype(f(0));
    using format = typename fragments::format;
    Sums& own = sums[0];
    PERGRAD_UNROLL
    for (int i = 0; i < from.row_pairs; ++i) {
      PERGRAD_UNROLL
      for (int j = 0; j < 2 * from.column_pairs; ++j) {
        multiply_add(format{}, registers_of(from, i, j), own[place_of_result<fragments>(i, j, 0)],
                     own[place_of_result<fragments>(i, j, 1)], own[place_of_result<fragments>(i, j, 2)],
                     own[place_of_result<fragments>(i, j, 3)]);
      }
    }
  }
  template <class Function>
  __device__ void warps(Function&& f) const {
    f(device_warp{});
    __syncthreads();
  }
  template <class Value>
  [[nodiscard]] __device__ Value sum(const local<Value>& own, Value (&partial)[Threads / warp_size]) const noexcept {
    return fold(own, partial, [](Value a, Value b) { return a + b; });
  }
  template <class Value>
  [[nodiscard]] __device__ Value largest(const local<Value>& own,
                                         Value (&partial)[Threads / warp_size]) const noexcept {
    return fold(own, partial, [](Value a, Value b) { return larger_of(a, b); });
  }

 private:
  template <class Value, class Function>
  [[nodiscard]] __device__ Value fold(const local<Value>& own, Value (&partial)[Threads / warp_size],
                                      const Function& f) const noexcept {
    const Value value = fold_of_warp(own[0], f);
    if (threadIdx.x % warp_size == 0) partial[threadIdx.x / warp_size] = value;
    __syncthreads();
    Value total = partial[0];
    for (int warp = 1; warp < Threads / warp_size; ++warp) total = f(total, partial[warp]);
    __syncthreads();  // the caller may write to `partial` now
    return total;
  }
};

/// Blocks that a multiprocessor should be able to hold at once: a kernel's `least_blocks`, or 1. Without a wish ptxas
/// guesses one, and spills registers for it.
template <class Kernel>
inline constexpr int least_blocks = 1;
template <class Kernel>
requires requires { Kernel::least_blocks; }
inline constexpr int least_blocks<Kernel> = Kernel::least_blocks;

template <class Kernel>
__global__ void __launch_bounds__(Kernel::threads, least_blocks<Kernel>)
    run_kernel(const __grid_constant__ Kernel kernel) {
  kernel(device_block<Kernel::threads>{});
}

}  // namespace pergrad::inline v0_1::on_device
