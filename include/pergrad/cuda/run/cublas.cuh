// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/run/cublas.cuh - cuBLAS as the library behind gemm_door.hpp; empty without PERGRAD_CUBLAS=1
//
// FP32 unless a call asks for TF32. The workspace is given by the caller, so that nothing is allocated in a capture.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>

#include <pergrad/cuda/plan/gemm_door.hpp>

#if PERGRAD_CUBLAS

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

namespace pergrad::inline v0_1::on_device {

/// Device memory that cuBLAS wants: NVIDIA's recommendation for Hopper.
inline constexpr std::size_t cublas_workspace_bytes = std::size_t{32} << 20U;

/// A cuBLAS handle bound to a stream.
class cublas_library {
 public:
  /// `workspace` has `cublas_workspace_bytes` bytes and outlives this. Throws std::runtime_error.
  cublas_library(cudaStream_t stream, void* workspace) {
    check(cublasCreate(&handle_), "cublasCreate");
    try {
      check(cublasSetStream(handle_, stream), "cublasSetStream");
      check(cublasSetWorkspace(handle_, workspace, cublas_workspace_bytes), "cublasSetWorkspace");
    } catch (...) {
      static_cast<void>(cublasDestroy(handle_));
      throw;
    }
  }
  cublas_library(const cublas_library&) = delete;
  cublas_library& operator=(const cublas_library&) = delete;
  ~cublas_library() { static_cast<void>(cublasDestroy(handle_)); }

  /// Puts the product into the stream.
  void gemm(const gemm_call& call) {
    const float alpha = 1;
    check(cublasSetMathMode(handle_, call.tf32 ? CUBLAS_TF32_TENSOR_OP_MATH : CUBLAS_DEFAULT_MATH),
          "cublasSetMathMode");
    check(cublasSgemm(handle_, call.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N, CUBLAS_OP_N, call.m, call.n, call.k,
                      &alpha, call.a, call.lda, call.b, call.ldb, &call.beta, call.c, call.ldc),
          "cublasSgemm");
  }

 private:
  static void check(cublasStatus_t status, const char* call) {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    throw std::runtime_error{std::string{"pergrad: cuda: "} + call + ": " + cublasGetStatusString(status) +
                             " (status " + std::to_string(static_cast<int>(status)) + ")"};
  }

  cublasHandle_t handle_ = nullptr;
};

}  // namespace pergrad::inline v0_1::on_device

#endif  // PERGRAD_CUBLAS
