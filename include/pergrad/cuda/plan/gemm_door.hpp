// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/plan/gemm_door.hpp - who multiplies an affine layer's matrices: the library's own kernel, or cuBLAS
//
// The choice is a constant of the shape. cuBLAS gets products that are plain matrices, one position whose view is x
// itself, large enough to be worth a call, and only with PERGRAD_CUBLAS=1 (the program is then linked with cuBLAS;
// without, nothing of it is mentioned). It never forms a sum over samples: the order of its additions is its own, and
// those sums must not depend on how a batch is cut.
//
// Forward and input gradient through cuBLAS are called for `library_slice` samples at a time, so that every call has
// the same shape and a sample the same place in it whatever the physical batch. Workspaces are rounded up to whole
// slices; rows beyond the batch hold anything and nobody reads what becomes of them.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include <pergrad/cuda/kernels/gemm.hpp>
#include <pergrad/cuda/kernels/gemm_affine.hpp>
#include <pergrad/cuda/kernels/geometry.hpp>
#include <pergrad/cuda/kernels/tables.hpp>

#ifndef PERGRAD_CUBLAS
#define PERGRAD_CUBLAS 0  // 1: products may go to cuBLAS; the same in all translation units
#endif

namespace pergrad::inline v0_1::on_device {

/// Whether this program may call cuBLAS.
inline constexpr bool has_gemm_library = PERGRAD_CUBLAS != 0;
/// Samples a call of cuBLAS.
inline constexpr int library_slice = 128;
/// Multiply-adds of a slice from which on cuBLAS is called: 256³. An estimate, not measured.
inline constexpr std::int64_t library_work = std::int64_t{1} << 24U;

/// Who forms a product, and the own kernel's tiles.
enum class gemm_way : int { narrow, square, large, library };
/// Which product of an affine layer.
enum class gemm_product : int { forward, adjoint, sums, squares };

[[nodiscard]] constexpr const char* name_of(gemm_way way) noexcept {
  switch (way) {
    case gemm_way::narrow:
      return "own kernel, 32 x 128 tiles";
    case gemm_way::square:
      return "own kernel, 64 x 64 tiles";
    case gemm_way::large:
      return "own kernel, 128 x 128 tiles";
    default:
      return "cuBLAS";
  }
}

/// The plan. `x_in_workspace`: cuBLAS cannot gather records by their ids.
[[nodiscard]] constexpr gemm_way choose_gemm(gemm_product product, const affine_view& view, bool x_in_workspace,
                                             bool library = has_gemm_library) noexcept {
  const bool over_samples = product == gemm_product::forward || product == gemm_product::adjoint;
  const std::int64_t work = std::int64_t{library_slice} * view.size();
  if (library && over_samples && x_in_workspace && view.groups == 1 && work >= library_work &&
      geometry{view}.contiguous != 0) {
    return gemm_way::library;
  }
  const int rows = product == gemm_product::adjoint ? view.channels : view.outputs;
  if (rows <= 32) return gemm_way::narrow;
  // Large tiles where they leave enough of them: columns are many where they count samples and positions.
  const int columns = over_samples ? library_slice * view.positions() : view.view_width();
  return rows >= 128 && columns >= 512 ? gemm_way::large : gemm_way::square;
}

/// The plan for a node's rows and leaves.
[[nodiscard]] constexpr gemm_way forward_way(const op_row& row) noexcept {
  return choose_gemm(gemm_product::forward, row.view, row.in >= 0);
}
[[nodiscard]] constexpr gemm_way adjoint_way(const op_row& row) noexcept {
  return choose_gemm(gemm_product::adjoint, row.view, row.dx >= 0);
}
[[nodiscard]] constexpr gemm_way sum_way(const outer_leaf& leaf) noexcept {
  return choose_gemm(gemm_product::sums, leaf.view, false);
}
[[nodiscard]] constexpr gemm_way squares_way(const outer_leaf& leaf) noexcept {
  return choose_gemm(gemm_product::squares, leaf.view, false);
}

/// Samples for which workspaces must be there if any product goes to cuBLAS.
[[nodiscard]] constexpr int library_capacity(int max_batch) noexcept {
  return (max_batch + library_slice - 1) / library_slice * library_slice;
}

/// C = op(A) B + beta C in column-major order, as cublasSgemm: C is m x n, op(A) m x k, B k x n.
struct gemm_call {
  bool transpose_a = false;
  int m = 0;
  int n = 0;
  int k = 0;
  const float* a = nullptr;
  int lda = 0;
  const float* b = nullptr;
  int ldb = 0;
  float* c = nullptr;
  int ldc = 0;
  float beta = 0;
  bool tf32 = false;  ///< may round operands to TF32, for operands that are so rounded already
};

/// A device that can call cuBLAS, also inside a capture.
template <class Device>
concept has_library_gemm = requires(Device& device, const gemm_call& call) {
  device.library_gemm(call);
};

/// What becomes of a planned way: cuBLAS is called by a device that can, for floats.
template <class Device, class Scalar>
[[nodiscard]] constexpr gemm_way way_on(gemm_way planned) noexcept {
  const bool callable = has_library_gemm<Device> && sizeof(Scalar) == sizeof(float);
  return planned == gemm_way::library && !callable ? gemm_way::square : planned;
}

/// What a `gemm_call` means: for devices that the host emulates.
inline void play_gemm(const gemm_call& call) noexcept {
  for (int j = 0; j < call.n; ++j) {
    for (int i = 0; i < call.m; ++i) {
      float sum = 0;
      for (int p = 0; p < call.k; ++p) {
        const float a = call.transpose_a ? call.a[static_cast<std::ptrdiff_t>(i) * call.lda + p]
                                         : call.a[static_cast<std::ptrdiff_t>(p) * call.lda + i];
        sum = fma(a, call.b[static_cast<std::ptrdiff_t>(j) * call.ldb + p], sum);
      }
      float& c = call.c[static_cast<std::ptrdiff_t>(j) * call.ldc + i];
      c = call.beta == 0 ? sum : fma(call.beta, c, sum);
    }
  }
}

/// Calls visit(call) for every slice of the forward product; y must hold what it is added to, bias or earlier values.
template <class Visitor>
void library_forward(const affine_operands<float>& on, int max_batch, Visitor&& visit) {
  const int width = on.map.view.view_width();
  for (int b = 0; b < library_capacity(max_batch); b += library_slice) {
    visit(gemm_call{.transpose_a = true,
                    .m = on.map.view.outputs,
                    .n = library_slice,
                    .k = width,
                    .a = on.weights,
                    .lda = width,
                    .b = on.values.at(b, on.x),
                    .ldb = static_cast<int>(on.values.stretch),
                    .c = on.values.at(b, on.y),
                    .ldc = static_cast<int>(on.values.stretch),
                    .beta = 1,
                    .tf32 = on.tf32 != 0});
  }
}
/// The same for the gradient of x; `on.accumulate` says whether x holds something already.
template <class Visitor>
void library_adjoint(const affine_operands<float>& on, int max_batch, Visitor&& visit) {
  const int width = on.map.view.view_width();
  for (int b = 0; b < library_capacity(max_batch); b += library_slice) {
    visit(gemm_call{.transpose_a = false,
                    .m = width,
                    .n = library_slice,
                    .k = on.map.view.outputs,
                    .a = on.weights,
                    .lda = width,
                    .b = on.values.at(b, on.y),
                    .ldb = static_cast<int>(on.values.stretch),
                    .c = on.values.at(b, on.x),
                    .ldc = static_cast<int>(on.values.stretch),
                    .beta = on.accumulate != 0 ? 1.0F : 0.0F,
                    .tf32 = on.tf32 != 0});
  }
}

/// y = bias (or zero) for all samples of the physical batch, before the product is added; blocks() of them.
template <class Scalar, int Threads>
struct bias_kernel {
  static constexpr int threads = Threads;
  struct shared_type {};
  affine_operands<Scalar> on;

  [[nodiscard]] int blocks() const noexcept { return on.most_samples; }
  template <class Block>
  PERGRAD_HD void operator()(const Block& block) const {
    if (block.index() >= on.samples()) return;
    block.each([&](int t) {
      Scalar* y = on.values.at(block.index(), on.y);
      for (int i = t; i < on.map.view.outputs; i += threads) y[i] = on.bias == nullptr ? Scalar{0} : on.bias[i];
    });
  }
};

/// Stores what cuBLAS has left at a place of every sample as TF32; blocks() of them.
template <class Scalar, int Threads>
struct rounding_kernel {
  static constexpr int threads = Threads;
  struct shared_type {};
  batch_values<Scalar> values;
  const step_state* state = nullptr;
  int place = 0;
  int count = 0;
  int most_samples = 0;

  [[nodiscard]] int blocks() const noexcept { return most_samples; }
  template <class Block>
  PERGRAD_HD void operator()(const Block& block) const {
    if (block.index() >= static_cast<int>(state->count)) return;
    block.each([&](int t) {
      Scalar* at = values.at(block.index(), place);
      for (int i = t; i < count; i += threads) at[i] = round_to_tf32(at[i]);
    });
  }
};
template <class Device, class Scalar>
void launch_rounding(Device& device, const affine_operands<Scalar>& on, int place, int count) {
  if (on.tf32_result == 0) return;
  const rounding_kernel<Scalar, 128> kernel{on.values, on.state, place, count, on.most_samples};
  device.launch(kernel, kernel.blocks());
}

/// Calls launch(kernel) with the own kernel of tiles `way` for `problem`.
template <class Scalar, class Problem, class Launch>
void with_gemm_kernel(gemm_way way, const Problem& problem, Launch&& launch) {
  switch (way) {
    case gemm_way::narrow:
      return launch(gemm_kernel<Scalar, Problem, narrow_tiles>{problem});
    case gemm_way::large:
      return launch(gemm_kernel<Scalar, Problem, large_tiles>{problem});
    default:
      return launch(gemm_kernel<Scalar, Problem, square_tiles>{problem});
  }
}

/// Launches an affine layer's forward product, whoever forms it: 1 node, with cuBLAS 1 and one a slice.
template <class Device, class Scalar>
void launch_forward(Device& device, gemm_way way, const affine_operands<Scalar>& on, int max_batch) {
  if constexpr (has_library_gemm<Device> && sizeof(Scalar) == sizeof(float)) {
    if (way == gemm_way::library) {
      if (on.accumulate == 0) {
        const bias_kernel<Scalar, 128> start{on};
        device.launch(start, start.blocks());
      }
      library_forward(on, max_batch, [&](const gemm_call& call) { device.library_gemm(call); });
      return launch_rounding(device, on, on.y, on.map.view.outputs);
    }
  }
  with_gemm_kernel<Scalar>(way, affine_forward<Scalar>{on},
                           [&](const auto& kernel) { device.launch(kernel, kernel.blocks()); });
}
/// The same for the gradient of x.
template <class Device, class Scalar>
void launch_adjoint(Device& device, gemm_way way, const affine_operands<Scalar>& on, int max_batch) {
  if constexpr (has_library_gemm<Device> && sizeof(Scalar) == sizeof(float)) {
    if (way == gemm_way::library && on.bias == nullptr) {
      library_adjoint(on, max_batch, [&](const gemm_call& call) { device.library_gemm(call); });
      return launch_rounding(device, on, on.x, on.map.view.view_width());
    }
  }
  with_gemm_kernel<Scalar>(way, affine_adjoint<Scalar>{on},
                           [&](const auto& kernel) { device.launch(kernel, kernel.blocks()); });
}

}  // namespace pergrad::inline v0_1::on_device
