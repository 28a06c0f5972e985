// SPDX-License-Identifier: Apache-2.0
// pergrad/host/conv/pool.hpp - maxima and means of windows on the host: what the kernels are given, and their targets
#pragma once

#include <cstddef>
#include <limits>

#include <pergrad/concepts.hpp>
#include <pergrad/graph/layout.hpp>
#include <pergrad/host/gemm/micro_kernel.hpp>
#include <pergrad/simd/processor.hpp>
#include <pergrad/simd/vector.hpp>

namespace pergrad::inline v0_1::on_host {

/// Steps between neighbours of an image, in elements.
struct pool_steps {
  index plane = 0;
  index row = 0;
  index column = 0;
};

/// Windows of one row of the output, all of the same rows and planes.
template <class Scalar>
struct pool_task {  // NOLINT(cppcoreguidelines-pro-type-member-init): only `count` windows are written and read
  static constexpr index most = 64;  ///< windows of one task

  index channels = 0;
  window_range planes{};
  window_range rows{};
  std::size_t count = 0;
  window_range columns[most];
  index alike = 0;            // columns from window to window if all see equally many at equal steps, or 0
  Scalar divisors[most];      // of means
  const Scalar* x = nullptr;  // the sample's first pixel
  pool_steps x_step{};
  Scalar* y = nullptr;           // of the first window
  const Scalar* best = nullptr;  // the same, for the backward kernel
  index y_column = 0;
  const Scalar* dy = nullptr;  // of the first window
  index dy_column = 0;
  Scalar* dx = nullptr;  // the sample's first pixel
  pool_steps dx_step{};
};

template <class Scalar>
struct pool_kernels {
  void (*forward)(const pool_task<Scalar>&) noexcept;
  void (*backward)(const pool_task<Scalar>&) noexcept;
};

}  // namespace pergrad::inline v0_1::on_host

#define PERGRAD_TARGET_SOURCE "pergrad/host/conv/pool.inl"
#include <pergrad/simd/multi_target.inl>

namespace pergrad::inline v0_1::on_host {

/// The kernels of a target, which must be compiled into the program.
template <class Scalar, window_rule Rule>
[[nodiscard]] inline const pool_kernels<Scalar>& pools_of(kernel_target target) noexcept {
  return PERGRAD_OF_TARGET(target, pools::kernels<Scalar, Rule>);
}

}  // namespace pergrad::inline v0_1::on_host
