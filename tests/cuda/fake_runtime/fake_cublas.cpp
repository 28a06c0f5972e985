// SPDX-License-Identifier: Apache-2.0
// tests/cuda/fake_runtime/fake_cublas.cpp - the little of cuBLAS that the library calls, for tests without a GPU
//
// Products are plain loops. What the real one would answer with an error or read beyond, leading dimensions first of
// all, is blamed.
#include <algorithm>
#include <cstddef>
#include <cublas_v2.h>
#include <string>

#include "fake_runtime.hpp"

struct cublasContext {
  cudaStream_t stream = nullptr;
  bool has_workspace = false;
  bool has_multiplied = false;
  cublasMath_t mode = CUBLAS_DEFAULT_MATH;
};

extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  *handle = new cublasContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void* workspace, std::size_t bytes) {
  if (!fake_cuda::on_the_device(workspace, bytes))
    fake_cuda::blame("cuBLAS gets a workspace that is not on the device");
  handle->has_workspace = true;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  handle->mode = mode;
  return CUBLAS_STATUS_SUCCESS;
}
const char* cublasGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS ? "success" : "an error of the fake cuBLAS";
}
cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m,
                                         int n, int k, const float* alpha, const float* a, int lda, long long stride_a,
                                         const float* b, int ldb, long long stride_b, const float* beta, float* c,
                                         int ldc, long long stride_c, int count) {
  const bool turned_a = op_a == CUBLAS_OP_T;
  const bool turned_b = op_b == CUBLAS_OP_T;
  if (!handle->has_workspace) fake_cuda::blame("cuBLAS would allocate a workspace of its own");
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  static_cast<void>(cudaStreamIsCapturing(handle->stream, &status));
  if (status != cudaStreamCaptureStatusNone && !handle->has_multiplied) {
    fake_cuda::blame("cuBLAS would load its code in a capture");
  }
  handle->has_multiplied = true;
  if (m <= 0 || n <= 0 || k <= 0 || count <= 0 || lda < std::max(1, turned_a ? k : m) ||
      ldb < std::max(1, turned_b ? n : k) || ldc < std::max(1, m) || (count > 1 && stride_c == 0)) {
    fake_cuda::blame("cublasSgemm gets an impossible size or leading dimension");
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const auto bytes = [count](int ld, int columns, int rows, long long stride) {
    return (static_cast<std::size_t>(ld) * static_cast<std::size_t>(columns - 1) + static_cast<std::size_t>(rows) +
            static_cast<std::size_t>(stride) * static_cast<std::size_t>(count - 1)) *
           sizeof(float);
  };
  if (!fake_cuda::on_the_device(a, turned_a ? bytes(lda, m, k, stride_a) : bytes(lda, k, m, stride_a)) ||
      !fake_cuda::on_the_device(b, turned_b ? bytes(ldb, k, n, stride_b) : bytes(ldb, n, k, stride_b)) ||
      !fake_cuda::on_the_device(c, bytes(ldc, n, m, stride_c))) {
    fake_cuda::blame("cublasSgemm reads or writes beyond the device's memory");
    return CUBLAS_STATUS_EXECUTION_FAILED;
  }
  const float by = *alpha;
  const float keep = *beta;
  const std::string sizes = std::to_string(m) + " x " + std::to_string(n) + " x " + std::to_string(k);
  fake_cuda::submit(handle->stream, "sgemm " + sizes + (count == 1 ? "" : ", " + std::to_string(count)), [=] {
    for (std::ptrdiff_t number = 0; number < count; ++number) {
      const float* const left = a + number * stride_a;
      const float* const right = b + number * stride_b;
      float* const results = c + number * stride_c;
      for (std::ptrdiff_t j = 0; j < n; ++j) {
        for (std::ptrdiff_t i = 0; i < m; ++i) {
          float sum = 0;
          for (std::ptrdiff_t p = 0; p < k; ++p) {
            sum += left[turned_a ? i * lda + p : p * lda + i] * right[turned_b ? p * ldb + j : j * ldb + p];
          }
          float& to = results[j * ldc + i];
          to = by * sum + (keep == 0 ? 0 : keep * to);
        }
      }
    }
  });
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n,
                              int k, const float* alpha, const float* a, int lda, const float* b, int ldb,
                              const float* beta, float* c, int ldc) {
  return cublasSgemmStridedBatched(handle, op_a, op_b, m, n, k, alpha, a, lda, 0, b, ldb, 0, beta, c, ldc, 0, 1);
}

}  // extern "C"
