// SPDX-License-Identifier: Apache-2.0
// tests/cuda/fake_runtime/watched_runtime.cpp - what fake_runtime.hpp tells, of a program on the real CUDA runtime
//
// For tests on a GPU. Linked with `-Xlinker --wrap=cudaMalloc` and so on (watched_calls.txt names all), so that the
// program's calls come here first: they are counted, memory becomes NaN when it is given out, and a test can let an
// allocation or the driver be missing. What is illegal the real runtime refuses by itself.
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime_api.h>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fake_runtime.hpp"
#include "kernel_name.hpp"

namespace {

struct world {
  std::map<const void*, std::string> functions;  // registered stubs and their names on the device
  std::map<const void*, const void*> stubs;      // of the runtime's kernel handles
  std::map<void*, std::size_t> device, pinned;
  std::set<void*> handles;
  std::vector<std::string> captured, last_graph, violations;
  bool is_capturing = false;
  std::map<cudaGraphExec_t, std::size_t> node_counts;
  fake_cuda::counts counts;
  int failing = 0;
  bool fail_allocation = false;
};
world& it() {
  static world* const only = [] {  // outlives every static object of the program
    auto* fresh = new world;
    std::atexit([] {
      for (const std::string& each : it().violations) std::fprintf(stderr, "watched cuda: %s\n", each.c_str());
      if (!it().violations.empty()) std::_Exit(86);
    });
    return fresh;
  }();
  return *only;
}

std::size_t total(const std::map<void*, std::size_t>& memory) {
  std::size_t sum = 0;
  for (const auto& [at, bytes] : memory) sum += bytes;
  return sum;
}
void note(std::size_t& counter, const std::string& node) {
  if (it().is_capturing) {
    it().captured.push_back(node);
  } else {
    ++counter;
  }
}
void refuse_in_capture(const char* call) {
  if (it().is_capturing) fake_cuda::blame(std::string{call} + " during a capture");
}
void give_back(std::map<void*, std::size_t>& memory, void* at) {
  if (at == nullptr) return;
  ++it().counts.frees;
  if (memory.erase(at) == 0) fake_cuda::blame("memory is given back that was not allocated");
}

}  // namespace

/// Only where the runtime below is the fake one under another name, which is how this file itself is tested.
namespace fake_cuda_below {
__attribute__((weak)) std::vector<std::string> take_violations();
}

namespace fake_cuda {

const counts& counted() { return it().counts; }
void reset() { it().counts = {}; }
std::size_t live_device_bytes() { return total(it().device); }
std::size_t live_pinned_bytes() { return total(it().pinned); }
std::size_t live_handles() { return it().handles.size(); }
const std::vector<std::string>& last_graph() { return it().last_graph; }
std::vector<std::string> take_violations() {
  std::vector<std::string> found = std::exchange(it().violations, {});
  if (fake_cuda_below::take_violations != nullptr) {
    for (const std::string& each : fake_cuda_below::take_violations()) {
      if (std::find(found.begin(), found.end(), each) == found.end()) found.push_back(each);
    }
  }
  return found;
}
void blame(const std::string& what) { it().violations.push_back(what); }
void fail_with(int error) { it().failing = error; }
void fail_next_allocation() { it().fail_allocation = true; }
bool plays_the_device() { return false; }
void share(host_memory /*how*/) {}
void be_of_capability(int /*major*/) {}
void be_compiled_for(int /*capability*/) {}

}  // namespace fake_cuda

// NOLINTBEGIN(bugprone-reserved-identifier): the linker's names
extern "C" {

#define REAL(result, name, ...) result __real_##name(__VA_ARGS__)
REAL(void, __cudaRegisterFunction, void**, const char*, char*, const char*, int, uint3*, uint3*, dim3*, dim3*, int*);
REAL(cudaError_t, cudaGetDeviceCount, int*);
REAL(cudaError_t, cudaMalloc, void**, std::size_t);
REAL(cudaError_t, cudaFree, void*);
REAL(cudaError_t, cudaHostAlloc, void**, std::size_t, unsigned);
REAL(cudaError_t, cudaFreeHost, void*);
REAL(cudaError_t, cudaMemcpyAsync, void*, const void*, std::size_t, cudaMemcpyKind, cudaStream_t);
REAL(cudaError_t, cudaMemsetAsync, void*, int, std::size_t, cudaStream_t);
REAL(cudaError_t, cudaStreamCreateWithFlags, cudaStream_t*, unsigned);
REAL(cudaError_t, cudaStreamDestroy, cudaStream_t);
REAL(cudaError_t, cudaStreamSynchronize, cudaStream_t);
REAL(cudaError_t, cudaEventCreateWithFlags, cudaEvent_t*, unsigned);
REAL(cudaError_t, cudaEventDestroy, cudaEvent_t);
REAL(cudaError_t, cudaEventSynchronize, cudaEvent_t);
REAL(cudaError_t, cudaStreamBeginCapture, cudaStream_t, cudaStreamCaptureMode);
REAL(cudaError_t, cudaStreamEndCapture, cudaStream_t, cudaGraph_t*);
REAL(cudaError_t, cudaGraphInstantiate, cudaGraphExec_t*, cudaGraph_t, unsigned long long);
REAL(cudaError_t, cudaGraphDestroy, cudaGraph_t);
REAL(cudaError_t, cudaGraphExecDestroy, cudaGraphExec_t);
REAL(cudaError_t, cudaGraphLaunch, cudaGraphExec_t, cudaStream_t);
// CUDA 12 launches through the first, CUDA 13 through the others.
__attribute__((weak)) REAL(cudaError_t, cudaLaunchKernel, const void*, dim3, dim3, void**, std::size_t, cudaStream_t);
REAL(cudaError_t, cudaLaunchKernelExC, const cudaLaunchConfig_t*, const void*, void**);
__attribute__((weak)) REAL(cudaError_t, __cudaGetKernel, cudaKernel_t*, const void*);
__attribute__((weak))
REAL(cudaError_t, __cudaLaunchKernel, cudaKernel_t, dim3, dim3, void**, std::size_t, cudaStream_t);
// Of cuBLAS, which may not be linked: whole numbers stand for its enumerations.
__attribute__((weak)) REAL(int, cublasSgemm_v2, void*, int, int, int, int, int, const float*, const float*, int,
                           const float*, int, const float*, float*, int);
__attribute__((weak)) REAL(int, cublasSgemmStridedBatched, void*, int, int, int, int, int, const float*, const float*,
                           int, long long, const float*, int, long long, const float*, float*, int, long long, int);
#undef REAL

void __wrap___cudaRegisterFunction(void** binary, const char* stub, char* function, const char* name, int limit,
                                   uint3* a, uint3* b, dim3* c, dim3* d, int* e) {
  it().functions[stub] = name;
  __real___cudaRegisterFunction(binary, stub, function, name, limit, a, b, c, d, e);
}
static void note_kernel(const void* stub, dim3 grid, dim3 block, std::size_t shared) {
  const auto found = it().functions.find(stub);
  if (found == it().functions.end()) fake_cuda::blame("a kernel is launched that was never registered");
  note(it().counts.kernels, "kernel " + (found == it().functions.end() ? "?" : fake_cuda::short_name(found->second)) +
                                " " + std::to_string(grid.x) + " x " + std::to_string(block.x) + ", shared " +
                                std::to_string(shared));
}
cudaError_t __wrap_cudaLaunchKernel(const void* stub, dim3 grid, dim3 block, void** arguments, std::size_t shared,
                                    cudaStream_t stream) {
  note_kernel(stub, grid, block, shared);
  return __real_cudaLaunchKernel(stub, grid, block, arguments, shared, stream);
}
cudaError_t __wrap_cudaLaunchKernelExC(const cudaLaunchConfig_t* how, const void* stub, void** arguments) {
  note_kernel(stub, how->gridDim, how->blockDim, how->dynamicSmemBytes);
  return __real_cudaLaunchKernelExC(how, stub, arguments);
}
cudaError_t __wrap___cudaGetKernel(cudaKernel_t* kernel, const void* stub) {
  const cudaError_t error = __real___cudaGetKernel(kernel, stub);
  if (error == cudaSuccess) it().stubs[*kernel] = stub;
  return error;
}
cudaError_t __wrap___cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, std::size_t shared,
                                      cudaStream_t stream) {
  note_kernel(it().stubs[kernel], grid, block, shared);
  return __real___cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
}

cudaError_t __wrap_cudaGetDeviceCount(int* count) {
  if (it().failing != 0) return static_cast<cudaError_t>(it().failing);
  return __real_cudaGetDeviceCount(count);
}

cudaError_t __wrap_cudaMalloc(void** memory, std::size_t bytes) {
  refuse_in_capture("cudaMalloc");
  if (std::exchange(it().fail_allocation, false)) return cudaErrorMemoryAllocation;
  cudaError_t error = __real_cudaMalloc(memory, bytes);
  if (error != cudaSuccess) return error;
  ++it().counts.device_allocations;
  it().device[*memory] = bytes;
  error = __real_cudaMemsetAsync(*memory, 0xff, bytes, nullptr);
  return error != cudaSuccess ? error : __real_cudaStreamSynchronize(nullptr);
}
cudaError_t __wrap_cudaFree(void* memory) {
  refuse_in_capture("cudaFree");
  give_back(it().device, memory);
  return __real_cudaFree(memory);
}
cudaError_t __wrap_cudaHostAlloc(void** memory, std::size_t bytes, unsigned flags) {
  refuse_in_capture("cudaHostAlloc");
  const cudaError_t error = __real_cudaHostAlloc(memory, bytes, flags);
  if (error != cudaSuccess) return error;
  ++it().counts.pinned_allocations;
  it().pinned[*memory] = bytes;
  return error;
}
cudaError_t __wrap_cudaFreeHost(void* memory) {
  give_back(it().pinned, memory);
  return __real_cudaFreeHost(memory);
}
cudaError_t __wrap_cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                                   cudaStream_t stream) {
  const bool is_upload = kind == cudaMemcpyHostToDevice;
  if (is_upload && !it().is_capturing) it().counts.uploaded_bytes += bytes;
  note(is_upload ? it().counts.uploads : it().counts.downloads,
       (is_upload ? "upload " : "download ") + std::to_string(bytes));
  return __real_cudaMemcpyAsync(to, from, bytes, kind, stream);
}
cudaError_t __wrap_cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  note(it().counts.fills, "memset " + std::to_string(bytes));
  return __real_cudaMemsetAsync(to, value, bytes, stream);
}

cudaError_t __wrap_cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  const cudaError_t error = __real_cudaStreamCreateWithFlags(stream, flags);
  if (error == cudaSuccess) it().handles.insert(*stream);
  return error;
}
cudaError_t __wrap_cudaStreamDestroy(cudaStream_t stream) {
  it().handles.erase(stream);
  return __real_cudaStreamDestroy(stream);
}
cudaError_t __wrap_cudaStreamSynchronize(cudaStream_t stream) {
  refuse_in_capture("cudaStreamSynchronize");
  ++it().counts.waits;
  return __real_cudaStreamSynchronize(stream);
}
cudaError_t __wrap_cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  const cudaError_t error = __real_cudaEventCreateWithFlags(event, flags);
  if (error == cudaSuccess) it().handles.insert(*event);
  return error;
}
cudaError_t __wrap_cudaEventDestroy(cudaEvent_t event) {
  it().handles.erase(event);
  return __real_cudaEventDestroy(event);
}
cudaError_t __wrap_cudaEventSynchronize(cudaEvent_t event) {
  ++it().counts.waits;
  return __real_cudaEventSynchronize(event);
}

cudaError_t __wrap_cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  const cudaError_t error = __real_cudaStreamBeginCapture(stream, mode);
  it().is_capturing = error == cudaSuccess;
  it().captured.clear();
  return error;
}
cudaError_t __wrap_cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  it().is_capturing = false;
  ++it().counts.captures;
  const cudaError_t error = __real_cudaStreamEndCapture(stream, graph);
  if (error == cudaSuccess && *graph != nullptr) it().handles.insert(*graph);
  return error;
}
cudaError_t __wrap_cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags) {
  const cudaError_t error = __real_cudaGraphInstantiate(executable, graph, flags);
  if (error != cudaSuccess) return error;
  it().handles.insert(*executable);
  it().last_graph = it().captured;
  it().node_counts[*executable] = it().captured.size();
  return error;
}
cudaError_t __wrap_cudaGraphDestroy(cudaGraph_t graph) {
  it().handles.erase(graph);
  return __real_cudaGraphDestroy(graph);
}
cudaError_t __wrap_cudaGraphExecDestroy(cudaGraphExec_t executable) {
  it().handles.erase(executable);
  return __real_cudaGraphExecDestroy(executable);
}
cudaError_t __wrap_cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  ++it().counts.replays;
  it().counts.replayed_nodes += it().node_counts[executable];
  return __real_cudaGraphLaunch(executable, stream);
}

static std::string name_of_sgemm(int m, int n, int k) {
  return "sgemm " + std::to_string(m) + " x " + std::to_string(n) + " x " + std::to_string(k);
}
int __wrap_cublasSgemm_v2(void* handle, int op_a, int op_b, int m, int n, int k, const float* alpha, const float* a,
                          int lda, const float* b, int ldb, const float* beta, float* c, int ldc) {
  note(it().counts.kernels, name_of_sgemm(m, n, k));
  return __real_cublasSgemm_v2(handle, op_a, op_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
int __wrap_cublasSgemmStridedBatched(void* handle, int op_a, int op_b, int m, int n, int k, const float* alpha,
                                     const float* a, int lda, long long stride_a, const float* b, int ldb,
                                     long long stride_b, const float* beta, float* c, int ldc, long long stride_c,
                                     int count) {
  note(it().counts.kernels, name_of_sgemm(m, n, k) + ", " + std::to_string(count));
  return __real_cublasSgemmStridedBatched(handle, op_a, op_b, m, n, k, alpha, a, lda, stride_a, b, ldb, stride_b, beta,
                                          c, ldc, stride_c, count);
}

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier)
