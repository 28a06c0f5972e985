// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/run/cuda_device.cuh - the CUDA runtime as a `device` (device.hpp): one stream, graphs, pinned staging
//
// Nothing here knows of networks. Everything is put into one stream and done in its order; the host waits in download
// and synchronise, and in upload only when it is nearly 2 MiB of uploads ahead of the device.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <cuda_runtime_api.h>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>
#if __has_include(<unistd.h>)
#include <unistd.h>
#endif

#include <pergrad/cuda/device/device.hpp>
#include <pergrad/cuda/device/kernel.cuh>
#include <pergrad/cuda/plan/gemm_door.hpp>

#if PERGRAD_CUBLAS
#include <cublas_v2.h>
#endif

#ifdef PERGRAD_EMULATED_KERNELS  // for tests with a CUDA runtime that has no device: how the host emulates a kernel
extern "C" void pergrad_emulated_kernel(const void* stub, std::size_t bytes, std::size_t shared_bytes, int threads,
                                        void (*emulate)(const void* kernel, int blocks),
                                        void (*clear_padding)(void* kernel));
#endif

namespace pergrad::inline v0_1 {

/// The device has no memory for what was asked: "pergrad: cuda: no memory for 17179869184 bytes on the device".
class cuda_out_of_memory : public std::bad_alloc {
 public:
  explicit cuda_out_of_memory(std::size_t bytes) noexcept {
    static_cast<void>(
        std::snprintf(what_.data(), what_.size(), "pergrad: cuda: no memory for %zu bytes on the device", bytes));
  }
  [[nodiscard]] const char* what() const noexcept override { return what_.data(); }

 private:
  std::array<char, 80> what_{};
};

/// What the CUDA runtime refused: "pergrad: cuda: cudaMalloc: out of memory (error 2)".
class cuda_error : public std::runtime_error {
 public:
  cuda_error(const std::string& what, cudaError_t code)
      : std::runtime_error{"pergrad: cuda: " + what}, code_{static_cast<int>(code)} {}
  /// The runtime's number of the error (cudaError_t).
  [[nodiscard]] int code() const noexcept { return code_; }

 private:
  int code_;
};

/// There is no GPU that this program can use; what() says in one line what is missing.
class cuda_unavailable : public cuda_error {
 public:
  using cuda_error::cuda_error;
};

namespace on_device {

namespace cuda_detail {

inline void check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // so that a later call does not find it
  throw cuda_error{
      std::string{call} + ": " + cudaGetErrorString(error) + " (error " + std::to_string(static_cast<int>(error)) + ")",
      error};
}

/// Gives a handle of the runtime back.
template <auto Close>
struct closer {
  template <class Handle>
  void operator()(Handle handle) const noexcept {
    static_cast<void>(Close(handle));
  }
};
template <class Handle, auto Close>
using owner = std::unique_ptr<std::remove_pointer_t<Handle>, closer<Close>>;
using event = owner<cudaEvent_t, cudaEventDestroy>;

[[nodiscard]] inline event make_event() {
  cudaEvent_t made = nullptr;
  check(cudaEventCreateWithFlags(&made, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  return event{made};
}

/// Where a device reads pinned memory of the host's; null if it cannot.
[[nodiscard]] inline void* place_on_device(const void* memory) {
  cudaPointerAttributes attributes{};
  if (cudaPointerGetAttributes(&attributes, memory) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return nullptr;
  }
  return attributes.type == cudaMemoryTypeHost ? attributes.devicePointer : nullptr;
}

/// What of the host's memory this program's views have pinned. Nobody else views a part of it meanwhile: where a range
/// is given back to the system and taken anew, what was pinned is still what lay there before. What others have pinned
/// is theirs to keep.
class pinned_memory {
 public:
  enum class state { refused, ours, of_others };
  [[nodiscard]] static state take(const std::byte* first, std::size_t bytes) {
    pinned_memory& all = of_program();
    const std::lock_guard lock{all.mutex_};
    const bool meets = std::ranges::any_of(all.ranges_, [&](const range& each) {
      return page_of(first) <= page_of(each.first + each.bytes - 1) &&
             page_of(each.first) <= page_of(first + bytes - 1);
    });
    if (meets) return state::refused;
    all.ranges_.reserve(all.ranges_.size() + 1);
    const cudaError_t error = cudaHostRegister(const_cast<std::byte*>(first), bytes, cudaHostRegisterMapped);
    if (error == cudaSuccess) {
      all.ranges_.push_back({first, bytes});
      return state::ours;
    }
    static_cast<void>(cudaGetLastError());
    return error == cudaErrorHostMemoryAlreadyRegistered ? state::of_others : state::refused;
  }
  static void give_back(const std::byte* first) noexcept {
    pinned_memory& all = of_program();
    const std::lock_guard lock{all.mutex_};
    static_cast<void>(cudaHostUnregister(const_cast<std::byte*>(first)));
    all.ranges_.erase(std::ranges::find(all.ranges_, first, &range::first));
  }
  /// Where a device reads this; null if it cannot read all of it in one piece.
  [[nodiscard]] static const std::byte* seen(const std::byte* first, std::size_t bytes) {
    const auto* const there = static_cast<const std::byte*>(place_on_device(first));
    for (std::size_t at = 0; at < bytes; at += page_bytes()) {
      if (there == nullptr || place_on_device(first + at) != there + at) return nullptr;
    }
    return place_on_device(first + bytes - 1) == there + (bytes - 1) ? there : nullptr;
  }

 private:
  /// Bytes: two vectors may lie next to each other, and share none.
  [[nodiscard]] static std::size_t page_bytes() noexcept {
#if __has_include(<unistd.h>)
    static const long bytes = sysconf(_SC_PAGESIZE);
    if (bytes > 0) return static_cast<std::size_t>(bytes);
#endif
    return std::size_t{1} << 16U;  // the largest of 64-bit ARM
  }
  struct range {
    const std::byte* first;
    std::size_t bytes;
  };
  /// Never destroyed: a trainer may live as long as the program.
  [[nodiscard]] static pinned_memory& of_program() {
    static auto* const all = new pinned_memory;
    return *all;
  }
  [[nodiscard]] static std::uintptr_t page_of(const std::byte* at) noexcept {
    return reinterpret_cast<std::uintptr_t>(at) / page_bytes();
  }

  std::mutex mutex_;
  std::vector<range> ranges_;
};

/// Why no kernel of this program can run, and the runtime's number of it; empty and 0 if one can.
struct obstacle {
  std::string what;
  cudaError_t code = cudaSuccess;
};
[[nodiscard, gnu::cold]] inline obstacle find_obstacle() {
  int count = 0;  // the runtime leaves it alone where it finds no driver
  cudaError_t error = cudaGetDeviceCount(&count);
  static_cast<void>(cudaGetLastError());
  const std::string runtime = std::to_string(CUDART_VERSION / 1000) + "." + std::to_string(CUDART_VERSION % 1000 / 10);
  if (error == cudaErrorInsufficientDriver) {
    return {"no usable GPU: no NVIDIA driver is loaded, or one that is too old for CUDA " + runtime, error};
  }
  if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0)) {
    return {"no usable GPU: the NVIDIA driver finds no device", cudaErrorNoDevice};
  }
  if (error != cudaSuccess) return {std::string{"no usable GPU: "} + cudaGetErrorString(error), error};
  cudaFuncAttributes attributes{};
  error = cudaFuncGetAttributes(&attributes, run_kernel<emulation::any_kernel>);
  static_cast<void>(cudaGetLastError());
  if (error == cudaSuccess) return {};
  int device = 0;
  int major = 0;
  int minor = 0;
  static_cast<void>(cudaGetDevice(&device));
  static_cast<void>(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  static_cast<void>(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  return {"no usable GPU: this program cannot run on the device found, compute capability " + std::to_string(major) +
              "." + std::to_string(minor) + ": " + cudaGetErrorString(error),
          error};
}

/// Pinned memory through which everything goes to the device: segments in turn, each filled by as many uploads as it
/// holds, with an event behind the last one's copy. So the host waits only when it is nearly all of it ahead.
class staging {
 public:
  staging() {
    void* memory = nullptr;
    check(cudaHostAlloc(&memory, segments * segment_bytes, cudaHostAllocDefault), "cudaHostAlloc");
    memory_.reset(static_cast<std::byte*>(memory));
    for (event& each : events_) each = make_event();
  }

  void upload(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
    const auto* source = static_cast<const std::byte*>(from);
    auto* target = static_cast<std::byte*>(to);
    while (bytes > 0) {
      // What fits into a segment is one copy.
      if (std::min(bytes, segment_bytes) > segment_bytes - used_) turn(stream);
      const std::size_t part = std::min(bytes, segment_bytes);
      std::byte* const place = memory_.get() + current_ * segment_bytes + used_;
      std::memcpy(place, source, part);
      check(cudaMemcpyAsync(target, place, part, cudaMemcpyHostToDevice, stream), "cudaMemcpyAsync");
      used_ += (part + line - 1) / line * line;
      source += part;
      target += part;
      bytes -= part;
    }
  }

 private:
  static constexpr std::size_t segments = 16;
  static constexpr std::size_t segment_bytes = std::size_t{1} << 17U;
  static constexpr std::size_t line = 64;

  /// Goes to the next segment, once its last copy is done.
  void turn(cudaStream_t stream) {
    check(cudaEventRecord(events_[current_].get(), stream), "cudaEventRecord");
    const std::size_t next = (current_ + 1) % segments;
    cudaEvent_t const done = events_[next].get();
    // An event that was never recorded counts as done. One that is not done counts as an error to the runtime, which a
    // later call would find.
    const cudaError_t state = cudaEventQuery(done);
    if (state == cudaErrorNotReady) {
      static_cast<void>(cudaGetLastError());
      check(cudaEventSynchronize(done), "cudaEventSynchronize");
    } else {
      check(state, "cudaEventQuery");
    }
    current_ = next;
    used_ = 0;
  }

  owner<std::byte*, cudaFreeHost> memory_;
  std::array<event, segments> events_;
  std::size_t current_ = 0;
  std::size_t used_ = 0;  ///< bytes of the current segment
};

#if PERGRAD_CUBLAS
/// Device memory that cuBLAS wants: NVIDIA's recommendation for Hopper.
inline constexpr std::size_t cublas_workspace_bytes = std::size_t{32} << 20U;

/// A cuBLAS handle bound to a stream. FP32 unless a call asks for TF32. The workspace is given by the caller, so that
/// nothing is allocated in a capture.
class cublas_library {
 public:
  /// `workspace` has `cublas_workspace_bytes` bytes and outlives this. Throws std::runtime_error.
  cublas_library(cudaStream_t stream, void* workspace) {
    cublasHandle_t made = nullptr;
    check(cublasCreate(&made), "cublasCreate");
    handle_.reset(made);
    check(cublasSetStream(made, stream), "cublasSetStream");
    check(cublasSetWorkspace(made, workspace, cublas_workspace_bytes), "cublasSetWorkspace");
  }

  /// Puts the product into the stream.
  void gemm(const gemm_call& call) {
    const float alpha = 1;
    check(cublasSetMathMode(handle_.get(), call.tf32 ? CUBLAS_TF32_TENSOR_OP_MATH : CUBLAS_DEFAULT_MATH),
          "cublasSetMathMode");
    const cublasOperation_t turned = call.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    if (call.count == 1) {
      check(cublasSgemm(handle_.get(), turned, CUBLAS_OP_N, call.m, call.n, call.k, &alpha, call.a, call.lda, call.b,
                        call.ldb, &call.beta, call.c, call.ldc),
            "cublasSgemm");
    } else {
      check(cublasSgemmStridedBatched(handle_.get(), turned, CUBLAS_OP_N, call.m, call.n, call.k, &alpha, call.a,
                                      call.lda, 0, call.b, call.ldb, call.stride, &call.beta, call.c, call.ldc,
                                      call.stride, call.count),
            "cublasSgemmStridedBatched");
    }
  }

 private:
  static void check(cublasStatus_t status, const char* call) {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    throw std::runtime_error{std::string{"pergrad: cuda: "} + call + ": " + cublasGetStatusString(status) +
                             " (status " + std::to_string(static_cast<int>(status)) + ")"};
  }

  owner<cublasHandle_t, cublasDestroy> handle_;
};
#endif

/// More shared memory than this a block must ask for.
inline constexpr std::size_t usual_shared_bytes = 48 * 1024;

}  // namespace cuda_detail

/// The GPU that is current when this is made. Not copyable: it owns its staging memory and, unless one is given, its
/// stream. Everything throws cuda_error; the constructors throw cuda_unavailable where there is no usable GPU.
class cuda_device {
 public:
  /// A captured step, ready to be replayed.
  class graph {
   public:
    graph() = default;

   private:
    friend class cuda_device;
    cuda_detail::owner<cudaGraphExec_t, cudaGraphExecDestroy> executable_;
    std::size_t nodes_ = 0;
  };

  class mailbox {
   public:
    mailbox(cuda_device& device, std::size_t bytes) : stream_{device.stream_}, arrived_{cuda_detail::make_event()} {
      void* memory = nullptr;
      cuda_detail::check(cudaHostAlloc(&memory, bytes, cudaHostAllocDefault), "cudaHostAlloc");
      memory_.reset(static_cast<std::byte*>(memory));
    }
    mailbox(const mailbox&) = delete;
    mailbox& operator=(const mailbox&) = delete;
    /// Nothing may arrive any more.
    ~mailbox() { static_cast<void>(cudaEventSynchronize(arrived_.get())); }
    void post(const void* from, std::size_t bytes) {
      cuda_detail::check(cudaMemcpyAsync(memory_.get(), from, bytes, cudaMemcpyDeviceToHost, stream_),
                         "cudaMemcpyAsync");
      cuda_detail::check(cudaEventRecord(arrived_.get(), stream_), "cudaEventRecord");
    }
    [[nodiscard]] const void* wait() {
      cuda_detail::check(cudaEventSynchronize(arrived_.get()), "cudaEventSynchronize");
      return memory_.get();
    }

   private:
    cudaStream_t stream_;
    cuda_detail::event arrived_;
    cuda_detail::owner<std::byte*, cudaFreeHost> memory_;
  };

  cuda_device() {
    require_usable();
    cudaStream_t stream = nullptr;
    cuda_detail::check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    own_stream_.reset(stream);
    stream_ = stream;
    open();
  }
  /// Uses the caller's stream, which must outlive this. Throws std::invalid_argument for a default stream: CUDA cannot
  /// capture it.
  explicit cuda_device(cudaStream_t stream) : stream_{stream} {
    if (stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread) {
      throw std::invalid_argument(
          "pergrad: cuda: a default stream cannot be captured; give a stream that cudaStreamCreate made, or none");
    }
    require_usable();
    open();
  }
  cuda_device(const cuda_device&) = delete;
  cuda_device& operator=(const cuda_device&) = delete;
  ~cuda_device() {
    if (staging_ != nullptr) static_cast<void>(cudaStreamSynchronize(stream_));
  }

  [[nodiscard]] static constexpr const char* name() noexcept { return "CUDA device"; }
  /// One line that says why no GPU can be used here; empty if one can.
  [[nodiscard]] static std::string missing() { return cuda_detail::find_obstacle().what; }
  /// The stream in which everything is done.
  [[nodiscard]] cudaStream_t stream() const noexcept { return stream_; }

  [[nodiscard]] void* allocate(std::size_t bytes) {
    void* memory = nullptr;
    const cudaError_t error = cudaMalloc(&memory, std::max<std::size_t>(bytes, 1));
    if (error == cudaErrorMemoryAllocation) {
      static_cast<void>(cudaGetLastError());
      throw cuda_out_of_memory{bytes};
    }
    cuda_detail::check(error, "cudaMalloc");
    return memory;
  }
  void release(void* memory) noexcept { static_cast<void>(cudaFree(memory)); }

  void upload(void* to, const void* from, std::size_t bytes) { staging_->upload(to, from, bytes, stream_); }
  void download(void* to, const void* from, std::size_t bytes) {
    if (bytes == 0) return;
    cuda_detail::check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_), "cudaMemcpyAsync");
    synchronise();
  }
  /// Memory of the host's is read by integrated GPUs, and by others if it `streams`: as it is where they follow the
  /// host's page tables, else once it is pinned, for as long as it is viewed. What the caller has pinned is shared, and
  /// stays so for as long as it is viewed. Null also where a view of this program has pinned a part of it, and where
  /// the runtime refuses.
  [[nodiscard]] std::shared_ptr<const std::byte> view(const void* memory, std::size_t bytes, bool streams) {
    const auto* const bytes_of_it = static_cast<const std::byte*>(memory);
    if (bytes == 0 || !(streams || is(cudaDevAttrIntegrated))) return nullptr;
    // Others that can read all of it move its pages to their own memory and back.
    const bool shares_pages = is(cudaDevAttrIntegrated) || is(cudaDevAttrPageableMemoryAccessUsesHostPageTables);
    if (shares_pages && is(cudaDevAttrPageableMemoryAccess)) return {bytes_of_it, [](const std::byte* /*its own*/) {}};
    if (!is(cudaDevAttrCanMapHostMemory) || !is(cudaDevAttrHostRegisterSupported)) return nullptr;
    using cuda_detail::pinned_memory;
    const auto state = pinned_memory::take(bytes_of_it, bytes);
    if (state == pinned_memory::state::refused) return nullptr;
    const auto unpin = [stream = stream_, bytes_of_it,
                        is_ours = state == pinned_memory::state::ours](const std::byte* /*on the device*/) {
      static_cast<void>(cudaStreamSynchronize(stream));
      if (is_ours) pinned_memory::give_back(bytes_of_it);
    };
    const std::byte* const seen = pinned_memory::seen(bytes_of_it, bytes);
    if (seen == nullptr) {  // of others': a part of it, or not for this device
      unpin(nullptr);
      return nullptr;
    }
    return {seen, unpin};
  }
  void fill_zero(void* to, std::size_t bytes) {
    if (bytes == 0 || is_warming_up_) return;
    cuda_detail::check(cudaMemsetAsync(to, 0, bytes, stream_), "cudaMemsetAsync");
  }

  template <kernel Kernel>
  void launch(const Kernel& kernel, int blocks) {
    const std::size_t shared = shared_bytes_of(kernel);
    static_assert(sizeof(Kernel) <= 4096, "a kernel's arguments are at most 4096 bytes");
    if (blocks <= 0) return;
    void (*const stub)(Kernel) = run_kernel<Kernel>;
#ifdef PERGRAD_EMULATED_KERNELS
    pergrad_emulated_kernel(
        reinterpret_cast<const void*>(stub), sizeof(Kernel), shared, Kernel::threads,
        [](const void* memory, int count) { emulate(*static_cast<const Kernel*>(memory), count); },
        [](void* memory) { __builtin_clear_padding(static_cast<Kernel*>(memory)); });
#endif
    void* arguments[] = {const_cast<Kernel*>(&kernel)};
    launch_stub(reinterpret_cast<const void*>(stub), blocks, Kernel::threads, shared, arguments);
  }

  /// In a capture a branch that begins behind what was launched before; else one after the other.
  template <class Function>
  void beside(Function&& f) {
    if (is_warming_up_ && branches_.back().end == nullptr) make_branches();  // nothing is made in a capture
    if (!is_capturing_) return f();
    const main_stream main{stream_, stream_};
    branch& mine = branches_[next_branch_++ % branches_.size()];
    cuda_detail::check(cudaEventRecord(fork_.get(), main.stream), "cudaEventRecord");
    stream_ = mine.stream.get();
    cuda_detail::check(cudaStreamWaitEvent(stream_, fork_.get(), 0), "cudaStreamWaitEvent");
    f();
  }
  void join() {
    const std::size_t used = std::min(std::exchange(next_branch_, 0), branches_.size());
    for (std::size_t k = 0; k < used; ++k) {
      const branch& each = branches_[k];
      cuda_detail::check(cudaEventRecord(each.end.get(), each.stream.get()), "cudaEventRecord");
      cuda_detail::check(cudaStreamWaitEvent(stream_, each.end.get(), 0), "cudaStreamWaitEvent");
    }
  }
  /// Calls f twice: first its kernels are only loaded, and cuBLAS multiplies what lies there. f is the same each time,
  /// and may overwrite only what a step overwrites anyway.
  template <class Function>
  [[nodiscard, gnu::cold]] graph capture(Function&& f) {
    // Code is loaded when a kernel is first launched, which drivers before 12.3 cannot do in a capture; nor can cuBLAS
    // make its first call of a kind there.
    is_warming_up_ = true;
    try {
      f();
    } catch (...) {
      is_warming_up_ = false;
      throw;
    }
    is_warming_up_ = false;
    return instantiate(record(f));
  }
  /// Captures f into a graph that is there already, if only the numbers that its kernels are given have changed since:
  /// the GPU may be at work with those of before. Else, or if there is none, as capture(f).
  template <class Function>
  [[gnu::cold]] void recapture(graph& recorded, Function&& f) {
    if (recorded.executable_.get() == nullptr) {
      recorded = capture(f);
      return;
    }
    cudaGraphExecUpdateResultInfo result{};
    if (const recorded_graph again = record(f);
        cudaGraphExecUpdate(recorded.executable_.get(), again.get(), &result) != cudaSuccess) {
      static_cast<void>(cudaGetLastError());  // so that a later call does not find it
      synchronise();
      recorded = capture(f);
    }
  }
  void replay(graph& recorded) {
    cuda_detail::check(cudaGraphLaunch(recorded.executable_.get(), stream_), "cudaGraphLaunch");
  }
  [[nodiscard]] static std::size_t node_count(const graph& recorded) noexcept { return recorded.nodes_; }
#if PERGRAD_CUBLAS
  /// A product by cuBLAS; its workspace is a second allocation, made with the device.
  void library_gemm(const gemm_call& call) { library_->gemm(call); }
#endif
  void synchronise() { cuda_detail::check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }
  /// Is this the first time of a function that is captured? What is no kernel of the library's is left out then if it
  /// must not be done twice.
  [[nodiscard]] bool is_warming_up() const noexcept { return is_warming_up_; }
  [[nodiscard]] static std::size_t most_shared_bytes() {
    return static_cast<std::size_t>(attribute_of(cudaDevAttrMaxSharedMemoryPerBlockOptin));
  }
  /// Has the current device tensor cores that take TF32 and BF16, and the program code for them? What was compiled for
  /// older devices, as nvcc does unless it is told otherwise, runs on new ones, and has none (kernel.cuh).
  [[nodiscard]] static bool has_tensor_cores() {
    cudaFuncAttributes attributes{};
    cuda_detail::check(cudaFuncGetAttributes(&attributes, run_kernel<emulation::any_kernel>), "cudaFuncGetAttributes");
    return attribute_of(cudaDevAttrComputeCapabilityMajor) >= 8 && attributes.ptxVersion >= 80;
  }
  /// By what the driver says of the current device's clocks, units and memory. A multiprocessor has 64 units for floats
  /// in compute capability 7.0 to 8.0, 128 in later ones (CUDA C++ Programming Guide, "Arithmetic Instructions"). Its
  /// multiply-adds of TF32 a clock, without sparsity, follow from NVIDIA's data sheets: 512 of A100 and AGX Orin, 256
  /// of A40 and L40, 1024 of H100, 2048 of B200 and Thor, which stand for later ones.
  [[nodiscard]] static device_speed speed() {
    const int capability =
        10 * attribute_of(cudaDevAttrComputeCapabilityMajor) + attribute_of(cudaDevAttrComputeCapabilityMinor);
    const auto kilohertz = [](cudaDeviceAttr clock) { return 1e3 * attribute_of(clock); };
    const double clocks = kilohertz(cudaDevAttrClockRate) * attribute_of(cudaDevAttrMultiProcessorCount);
    const int of_tensors = capability < 80                        ? 0
                           : capability == 80 || capability == 87 ? 512
                           : capability < 90                      ? 256
                           : capability == 90                     ? 1024
                                                                  : 2048;
    return {.multiply_adds = clocks * (capability <= 80 ? 64 : 128),
            .bytes = 2 * kilohertz(cudaDevAttrMemoryClockRate) * attribute_of(cudaDevAttrGlobalMemoryBusWidth) / 8,
            .tensor_multiply_adds = clocks * of_tensors,
            .multiprocessors = attribute_of(cudaDevAttrMultiProcessorCount)};
  }
  /// Is everything done that was put into the stream? Does not wait.
  [[nodiscard]] bool is_done() const {
    const cudaError_t state = cudaStreamQuery(stream_);
    if (state != cudaErrorNotReady) {
      cuda_detail::check(state, "cudaStreamQuery");
      return true;
    }
    static_cast<void>(cudaGetLastError());  // so that a later call does not find it
    return false;
  }

 private:
  using recorded_graph = cuda_detail::owner<cudaGraph_t, cudaGraphDestroy>;
  template <class Function>
  [[nodiscard]] recorded_graph record(Function&& f) {
    // Thread-local: what other threads do with the runtime meanwhile is their affair.
    cuda_detail::check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    cudaGraph_t recorded = nullptr;
    is_capturing_ = true;
    try {
      f();
    } catch (...) {
      is_capturing_ = false;
      next_branch_ = 0;
      static_cast<void>(cudaStreamEndCapture(stream_, &recorded));
      if (recorded != nullptr) static_cast<void>(cudaGraphDestroy(recorded));
      static_cast<void>(cudaGetLastError());
      throw;
    }
    is_capturing_ = false;
    cuda_detail::check(cudaStreamEndCapture(stream_, &recorded), "cudaStreamEndCapture");
    return recorded_graph{recorded};
  }
  [[nodiscard]] static graph instantiate(const recorded_graph& recorded) {
    graph result;
    cuda_detail::check(cudaGraphGetNodes(recorded.get(), nullptr, &result.nodes_), "cudaGraphGetNodes");
    cudaGraphExec_t executable = nullptr;
    cuda_detail::check(cudaGraphInstantiate(&executable, recorded.get(), 0), "cudaGraphInstantiate");
    result.executable_.reset(executable);
    return result;
  }
  /// A stream beside the main one, which captures alone use.
  struct branch {
    cuda_detail::owner<cudaStream_t, cudaStreamDestroy> stream;
    cuda_detail::event end;
  };
  /// Puts the main stream back.
  struct main_stream {
    cudaStream_t& place;
    cudaStream_t stream;
    ~main_stream() { place = stream; }
  };
  [[gnu::cold]] void make_branches() {
    fork_ = cuda_detail::make_event();
    for (branch& each : branches_) {
      cudaStream_t stream = nullptr;
      cuda_detail::check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
      each.stream.reset(stream);
      each.end = cuda_detail::make_event();
    }
  }
  /// What the current device says of itself.
  [[nodiscard]] static int attribute_of(cudaDeviceAttr attribute) {
    int device = 0;
    int value = 0;
    cuda_detail::check(cudaGetDevice(&device), "cudaGetDevice");
    cuda_detail::check(cudaDeviceGetAttribute(&value, attribute, device), "cudaDeviceGetAttribute");
    return value;
  }
  [[nodiscard]] static bool is(cudaDeviceAttr attribute) { return attribute_of(attribute) != 0; }
  void launch_stub(const void* stub, int blocks, int threads, std::size_t shared, void** arguments) const {
    if (is_warming_up_) {
      cudaFuncAttributes attributes{};
      return cuda_detail::check(cudaFuncGetAttributes(&attributes, stub), "cudaFuncGetAttributes");
    }
    if (shared > cuda_detail::usual_shared_bytes) {
      // Never less than before: a captured launch of the same kernel may have asked for more, and another thread may
      // ask.
      static std::mutex asking;
      const std::lock_guard lock{asking};
      cudaFuncAttributes attributes{};
      cuda_detail::check(cudaFuncGetAttributes(&attributes, stub), "cudaFuncGetAttributes");
      if (static_cast<std::size_t>(attributes.maxDynamicSharedSizeBytes) < shared) {
        cuda_detail::check(
            cudaFuncSetAttribute(stub, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)),
            "cudaFuncSetAttribute");
      }
    }
    cudaLaunchConfig_t how{};
    how.gridDim = dim3{static_cast<unsigned>(blocks)};
    how.blockDim = dim3{static_cast<unsigned>(threads)};
    how.dynamicSmemBytes = shared;
    how.stream = stream_;
    // Its own return code: what cudaGetLastError knows may be of another call.
    cuda_detail::check(cudaLaunchKernelExC(&how, stub, arguments), "launch of a kernel");
  }
  static void require_usable() {
    const cuda_detail::obstacle found = cuda_detail::find_obstacle();
    if (!found.what.empty()) throw cuda_unavailable{found.what, found.code};
  }
  void open() {
    staging_ = std::make_unique<cuda_detail::staging>();
#if PERGRAD_CUBLAS
    library_workspace_.reset(allocate(cuda_detail::cublas_workspace_bytes));
    library_ = std::make_unique<cuda_detail::cublas_library>(stream_, library_workspace_.get());
#endif
  }

  cuda_detail::owner<cudaStream_t, cudaStreamDestroy> own_stream_;
  cudaStream_t stream_ = nullptr;
  std::unique_ptr<cuda_detail::staging> staging_;
  bool is_warming_up_ = false;
  bool is_capturing_ = false;
  std::array<branch, most_branches> branches_;
  std::size_t next_branch_ = 0;  ///< how many have begun since they were joined
  cuda_detail::event fork_;
#if PERGRAD_CUBLAS
  cuda_detail::owner<void*, cudaFree> library_workspace_;
  std::unique_ptr<cuda_detail::cublas_library> library_;
#endif
};

static_assert(device<cuda_device>);

}  // namespace on_device
}  // namespace pergrad::inline v0_1
