// SPDX-License-Identifier: Apache-2.0
// tests/cuda/fake_runtime/fake_runtime.cpp - a CUDA runtime without a device, for tests
//
// It has the symbols that a program compiled by nvcc needs, the launch paths of CUDA 12 and of CUDA 13 included. A
// kernel runs as its phase functor on the host (pergrad_emulated_kernel below is how the program says which functor
// belongs to which stub).
#include "fake_runtime.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime_api.h>
#include <deque>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernel_name.hpp"

namespace {

using bytes_type = std::vector<unsigned char>;

struct emulated_kernel {
  std::size_t bytes = 0;         // of the functor
  std::size_t shared_bytes = 0;  // of its shared memory
  int threads = 0;
  void (*emulate)(const void*, int) = nullptr;
  void (*clear_padding)(void*) = nullptr;
};

struct operation {
  std::string name;
  std::function<void()> run;
  std::size_t event_number = 0;   // not 0: an event is recorded here
  std::set<std::size_t> after{};  // of a graph: the nodes that it waits for
};

struct stream_data;
struct graph_data {
  std::vector<operation> nodes;
  stream_data* origin = nullptr;  // of its capture
};

struct stream_data {
  std::deque<operation> waiting;
  graph_data* capturing = nullptr;
  bool is_branch = false;          // of a capture that began on another stream, which has not waited for all of it yet
  std::set<std::size_t> newest{};  // in a capture: the nodes that its next one waits for
};

struct event_data {
  std::size_t newest = 0;  // number of its last record; 0: never recorded
  stream_data* stream = nullptr;
  graph_data* capture = nullptr;  // that it was recorded in last
  std::set<std::size_t> nodes{};  // there: those that it stands for
};

struct world {
  std::map<const void*, std::string> functions;  // registered stubs and their names on the device
  std::set<const void*> loaded;                  // those whose code the device has
  std::map<const void*, emulated_kernel> emulated;
  std::map<char*, std::size_t> device, pinned;
  std::set<stream_data*> streams;
  std::set<event_data*> events;
  std::set<graph_data*> graphs;
  std::map<graph_data*, bool> executable;
  stream_data default_stream;
  std::size_t event_numbers = 0;
  std::map<std::size_t, std::chrono::steady_clock::time_point> passed_events;  // and when they passed
  struct configuration {
    dim3 grid, block;
    std::size_t shared;
    cudaStream_t stream;
  };
  std::vector<configuration> configurations;
  std::map<const void*, int> shared_limits;
  std::vector<std::string> last_graph, violations;
  fake_cuda::counts counts;
  int failing = 0;
  int capability = 8;
  int compiled_for = 87;
  bool fail_allocation = false;
  fake_cuda::host_memory shared = fake_cuda::host_memory::separate;
  std::map<char*, std::size_t> registered;
  cudaError_t last_error = cudaSuccess;
  int running = 0;  // operations of the device that are under way
};
world& it() {
  static world* const only = [] {  // outlives every static object of the program
    auto* fresh = new world;
    std::atexit([] {
      world& w = it();
      for (const std::string& each : w.violations) std::fprintf(stderr, "fake cuda: %s\n", each.c_str());
      if (!w.violations.empty()) std::_Exit(86);
    });
    return fresh;
  }();
  return *only;
}

void blame(const std::string& what) { it().violations.push_back(what); }

cudaError_t answer(cudaError_t error) {
  if (error != cudaSuccess) it().last_error = error;
  return error;
}

constexpr std::size_t page = 4096;
constexpr std::size_t device_memory = std::size_t{8} << 30U;  // what it says it has
std::size_t whole_pages(std::size_t bytes) { return (std::max<std::size_t>(bytes, 1) + page - 1) / page * page; }

// Device memory can be touched only while the device runs.
class on_device {
 public:
  on_device() {
    if (it().running++ == 0) protect(PROT_READ | PROT_WRITE);
  }
  ~on_device() {
    if (--it().running == 0) protect(PROT_NONE);
  }
  on_device(const on_device&) = delete;
  on_device& operator=(const on_device&) = delete;

 private:
  static void protect(int rights) {
    for (const auto& [memory, bytes] : it().device) mprotect(memory, whole_pages(bytes), rights);
  }
};

bool lies_in(const std::map<char*, std::size_t>& memory, const void* at, std::size_t bytes) {
  auto after = memory.upper_bound(const_cast<char*>(static_cast<const char*>(at)));
  if (after == memory.begin()) return false;
  --after;
  const auto offset = static_cast<std::size_t>(static_cast<const char*>(at) - after->first);
  return offset + bytes <= after->second;
}
bool on_the_device(const void* at, std::size_t bytes) { return lies_in(it().device, at, bytes); }
bool is_pinned(const void* at, std::size_t bytes) { return lies_in(it().pinned, at, bytes); }

stream_data& stream_of(cudaStream_t stream) {
  if (stream == nullptr) return it().default_stream;
  auto* const known = reinterpret_cast<stream_data*>(stream);
  if (it().streams.count(known) == 0) {
    blame("a stream is used that does not exist");
    return it().default_stream;
  }
  return *known;
}

void run(const operation& next) {
  const on_device now;
  if (next.run) next.run();
  if (next.event_number != 0) it().passed_events[next.event_number] = std::chrono::steady_clock::now();
}
void finish(stream_data& stream) {
  while (!stream.waiting.empty()) {
    const operation next = std::move(stream.waiting.front());
    stream.waiting.pop_front();
    run(next);
  }
}
void finish_everything() {
  finish(it().default_stream);
  for (stream_data* each : it().streams) finish(*each);
}

bool somebody_captures() {
  return std::any_of(it().streams.begin(), it().streams.end(), [](const stream_data* s) { return s->capturing; });
}
// In turn the order in which nodes were captured, and that in which each comes as late as it may: what should wait for
// another and does not gives other results then.
std::vector<std::size_t> order_of(const graph_data& graph, std::size_t number) {
  std::vector<std::size_t> order(graph.nodes.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  if (number % 2 != 0) return order;
  std::set<std::size_t> done;
  for (std::size_t& next : order) {
    for (next = graph.nodes.size() - 1;; --next) {
      const operation& node = graph.nodes[next];
      const bool is_ready = std::includes(done.begin(), done.end(), node.after.begin(), node.after.end());
      if (is_ready && done.insert(next).second) break;
    }
  }
  return order;
}

// For calls that are illegal while a stream captures in thread-local mode.
bool illegal_in_capture(const char* call) {
  if (!somebody_captures()) return false;
  blame(std::string(call) + " during a capture");
  return true;
}

void submit(stream_data& stream, operation next) {
  if (stream.capturing != nullptr) {
    next.after = std::exchange(stream.newest, {stream.capturing->nodes.size()});
    stream.capturing->nodes.push_back(std::move(next));
  } else {
    stream.waiting.push_back(std::move(next));
  }
}

// Aligned words of a kernel's arguments that point into the host's memory: a device could not follow them. The bytes
// between the members are zero; left as the stack had them, they and the integer beside them may look like a pointer.
void look_for_host_pointers(const std::string& name, const bytes_type& arguments) {
  struct range {
    std::size_t begin, end;
  };
  if (it().shared == fake_cuda::host_memory::pageable) return;
  std::vector<range> host;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    range each{};
    if (std::sscanf(line.c_str(), "%zx-%zx", &each.begin, &each.end) == 2) host.push_back(each);
  }
  for (std::size_t at = 0; at + sizeof(void*) <= arguments.size(); at += sizeof(void*)) {
    std::size_t word = 0;
    std::memcpy(&word, arguments.data() + at, sizeof word);
    const void* pointer = nullptr;
    std::memcpy(&pointer, &word, sizeof pointer);
    if (on_the_device(pointer, 0) || is_pinned(pointer, 0) || lies_in(it().registered, pointer, 0)) continue;
    for (const range& each : host) {
      if (word >= each.begin && word < each.end) {
        blame("kernel " + name + " gets a pointer to the host's memory, byte " + std::to_string(at) +
              " of its arguments");
        return;
      }
    }
  }
}

cudaError_t launch(const void* stub, dim3 grid, dim3 block, void** arguments, std::size_t shared, cudaStream_t stream) {
  const auto function = it().functions.find(stub);
  if (function == it().functions.end()) {
    blame("a kernel is launched that was never registered");
    return answer(cudaErrorInvalidDeviceFunction);
  }
  const std::string name = fake_cuda::short_name(function->second);
  const auto found = it().emulated.find(stub);
  if (found == it().emulated.end()) {
    blame("nobody said how the host emulates kernel " + name);
    return answer(cudaErrorInvalidDeviceFunction);
  }
  const emulated_kernel& kernel = found->second;
  if (grid.x == 0 || grid.y != 1 || grid.z != 1 || block.y != 1 || block.z != 1 ||
      static_cast<int>(block.x) != kernel.threads) {
    blame("kernel " + name + " is launched with a grid or a block it is not written for");
    return answer(cudaErrorInvalidConfiguration);
  }
  if (shared < kernel.shared_bytes) blame("kernel " + name + " is launched with too little shared memory");
  const auto limit = it().shared_limits.find(stub);
  const std::size_t most = limit == it().shared_limits.end() ? 48 * 1024 : static_cast<std::size_t>(limit->second);
  if (shared > most) {
    blame("kernel " + name + " is launched with more shared memory than it was allowed");
    return answer(cudaErrorInvalidValue);
  }
  alignas(64) unsigned char members[4096];
  if (kernel.bytes > sizeof members) {
    blame("kernel " + name + " has more than 4096 bytes of arguments");
    return answer(cudaErrorInvalidValue);
  }
  std::memcpy(members, arguments[0], kernel.bytes);
  const auto copy = std::make_shared<bytes_type>(members, members + kernel.bytes);
  kernel.clear_padding(members);  // g++ 12 takes an element of an array of structures for padding, too
  look_for_host_pointers(name, bytes_type(members, members + kernel.bytes));
  operation next;
  next.name = "kernel " + name + " " + std::to_string(grid.x) + " x " + std::to_string(block.x) + ", shared " +
              std::to_string(shared);
  next.run = [copy, emulate = kernel.emulate, blocks = static_cast<int>(grid.x)] {
    alignas(64) static thread_local unsigned char aligned[4096];
    std::memcpy(aligned, copy->data(), copy->size());
    emulate(aligned, blocks);
  };
  stream_data& where = stream_of(stream);
  if (where.capturing == nullptr) {
    ++it().counts.kernels;
    it().loaded.insert(stub);
  } else if (it().loaded.count(stub) == 0) {  // as drivers before 12.3
    blame("kernel " + name + " is launched in a capture before its code was loaded");
    return answer(cudaErrorStreamCaptureUnsupported);
  }
  submit(where, std::move(next));
  return cudaSuccess;
}

cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, stream_data& stream,
                 bool synchronous) {
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (kind == cudaMemcpyHostToHost || kind == cudaMemcpyDefault) {
    blame("a copy does not say its direction");
    return answer(cudaErrorInvalidMemcpyDirection);
  }
  if ((to_device && !on_the_device(to, bytes)) || (from_device && !on_the_device(from, bytes))) {
    blame("a copy of " + std::to_string(bytes) + " bytes lies outside the device's memory");
    return answer(cudaErrorInvalidValue);
  }
  if ((!to_device && on_the_device(to, 1)) || (!from_device && on_the_device(from, 1))) {
    blame("a copy takes device memory for the host's");
    return answer(cudaErrorInvalidValue);
  }
  operation next;
  next.name = std::string(to_device ? (from_device ? "copy " : "upload ") : "download ") + std::to_string(bytes);
  const bool pageable = (!to_device && !is_pinned(to, bytes)) || (!from_device && !is_pinned(from, bytes));
  if (stream.capturing != nullptr) {
    if (pageable) blame("a captured " + next.name + " names host memory that is not pinned");
    next.run = [to, from, bytes] { std::memcpy(to, from, bytes); };
    submit(stream, std::move(next));
    return cudaSuccess;
  }
  if (to_device && !from_device) {
    ++it().counts.uploads;
    it().counts.uploaded_bytes += bytes;
  }
  if (from_device && !to_device) ++it().counts.downloads;
  if (!from_device && pageable) {
    // The driver copies what it cannot pin before it returns.
    const auto* first = static_cast<const unsigned char*>(from);
    const auto staged = std::make_shared<bytes_type>(first, first + bytes);
    next.run = [to, staged] { std::memcpy(to, staged->data(), staged->size()); };
  } else {
    next.run = [to, from, bytes] { std::memcpy(to, from, bytes); };
  }
  submit(stream, std::move(next));
  if (synchronous || (from_device && pageable)) {
    ++it().counts.waits;
    finish(stream);
  }
  return cudaSuccess;
}

}  // namespace

namespace fake_cuda {

const counts& counted() { return it().counts; }
void reset() { it().counts = {}; }
std::size_t live_device_bytes() {
  std::size_t sum = 0;
  for (const auto& [memory, bytes] : it().device) sum += bytes;
  return sum;
}
std::size_t live_pinned_bytes() {
  std::size_t sum = 0;
  for (const auto& [memory, bytes] : it().pinned) sum += bytes;
  for (const auto& [memory, bytes] : it().registered) sum += bytes;
  return sum;
}
std::size_t live_handles() {
  return it().streams.size() + it().events.size() + it().graphs.size() + it().executable.size();
}
const std::vector<std::string>& last_graph() { return it().last_graph; }
std::vector<std::string> take_violations() { return std::exchange(it().violations, {}); }
void submit(void* stream, const std::string& name, std::function<void()> work) {
  ::submit(stream_of(static_cast<cudaStream_t>(stream)), {name, std::move(work), 0});
}
bool on_the_device(const void* memory, std::size_t bytes) { return ::on_the_device(memory, bytes); }
void blame(const std::string& what) { ::blame(what); }
void fail_with(int error) { it().failing = error; }
void be_of_capability(int major) { it().capability = major; }
void be_compiled_for(int capability) { it().compiled_for = capability; }
void fail_next_allocation() { it().fail_allocation = true; }
void share(host_memory how) { it().shared = how; }
bool plays_the_device() { return true; }

}  // namespace fake_cuda

// What the library calls when it is compiled with PERGRAD_EMULATED_KERNELS.
extern "C" void pergrad_emulated_kernel(const void* stub, std::size_t bytes, std::size_t shared_bytes, int threads,
                                        void (*emulate)(const void*, int), void (*clear_padding)(void*)) {
  it().emulated[stub] = {bytes, shared_bytes, threads, emulate, clear_padding};
}

extern "C" {

// Registration of the program's kernels, called before main -----------------------------------------------------------
void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char* stub, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*,
                            int*) {
  it().functions[stub] = name;
}
void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}
char __cudaInitModule(void**) { return 1; }

// Launches ------------------------------------------------------------------------------------------------------------
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared, CUstream_st* stream) {
  it().configurations.push_back({grid, block, shared, stream});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared, void* stream) {
  if (it().configurations.empty()) return answer(cudaErrorMissingConfiguration);
  const auto last = it().configurations.back();
  it().configurations.pop_back();
  *grid = last.grid;
  *block = last.block;
  *shared = last.shared;
  *static_cast<cudaStream_t*>(stream) = last.stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* stub) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(stub));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, std::size_t shared,
                               cudaStream_t stream) {
  return launch(kernel, grid, block, arguments, shared, stream);
}
cudaError_t cudaLaunchKernel(const void* stub, dim3 grid, dim3 block, void** arguments, std::size_t shared,
                             cudaStream_t stream) {
  return launch(stub, grid, block, arguments, shared, stream);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* how, const void* stub, void** arguments) {
  if (how->numAttrs != 0) return answer(cudaErrorInvalidValue);
  return launch(stub, how->gridDim, how->blockDim, arguments, how->dynamicSmemBytes, how->stream);
}
cudaError_t cudaFuncSetAttribute(const void* stub, cudaFuncAttribute attribute, int value) {
  if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) {
    if (value > 163 * 1024) return answer(cudaErrorInvalidValue);
    it().shared_limits[stub] = value;
  }
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* stub) {
  *attributes = {};
  attributes->ptxVersion = it().compiled_for;
  if (it().functions.count(stub) == 0) return answer(cudaErrorInvalidDeviceFunction);
  it().loaded.insert(stub);
  const auto limit = it().shared_limits.find(stub);
  if (limit != it().shared_limits.end()) attributes->maxDynamicSharedSizeBytes = limit->second;
  return cudaSuccess;
}

// Devices and errors --------------------------------------------------------------------------------------------------
cudaError_t cudaGetDeviceCount(int* count) {
  if (it().failing != 0) return answer(static_cast<cudaError_t>(it().failing));  // and *count stays what it was
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return it().failing != 0 ? answer(static_cast<cudaError_t>(it().failing)) : cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  if (it().failing != 0) return answer(static_cast<cudaError_t>(it().failing));
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
      *value = it().capability;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = 7;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = 163 * 1024;
      break;
    case cudaDevAttrMultiProcessorCount:
      *value = 8;
      break;
    case cudaDevAttrClockRate:  // kHz
      *value = 1'000'000;
      break;
    case cudaDevAttrMemoryClockRate:
      *value = 3'000'000;
      break;
    case cudaDevAttrGlobalMemoryBusWidth:  // bits
      *value = 128;
      break;
    case cudaDevAttrIntegrated:
      *value = it().shared == fake_cuda::host_memory::registered || it().shared == fake_cuda::host_memory::pageable;
      break;
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrHostRegisterSupported:
      *value = 1;
      break;
    case cudaDevAttrPageableMemoryAccess:
      *value = it().shared == fake_cuda::host_memory::pageable || it().shared == fake_cuda::host_memory::migrating;
      break;
    case cudaDevAttrPageableMemoryAccessUsesHostPageTables:
      *value = it().shared == fake_cuda::host_memory::pageable ? 1 : 0;
      break;
    default:
      *value = 0;
  }
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (it().failing != 0) return answer(static_cast<cudaError_t>(it().failing));
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "no GPU: kernels emulated by the host");
  properties->totalGlobalMem = device_memory;
  cudaDeviceGetAttribute(&properties->major, cudaDevAttrComputeCapabilityMajor, device);
  cudaDeviceGetAttribute(&properties->minor, cudaDevAttrComputeCapabilityMinor, device);
  cudaDeviceGetAttribute(&properties->multiProcessorCount, cudaDevAttrMultiProcessorCount, device);
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() {
  const cudaError_t last = it().last_error;
  it().last_error = cudaSuccess;
  return last;
}
cudaError_t cudaPeekAtLastError() { return it().last_error; }
const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInsufficientDriver:
      return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    default:
      return "an error of the fake runtime";
  }
}
const char* cudaGetErrorName(cudaError_t error) { return cudaGetErrorString(error); }

// Memory --------------------------------------------------------------------------------------------------------------
cudaError_t cudaMemGetInfo(std::size_t* unused, std::size_t* all) {
  if (it().failing != 0) return answer(static_cast<cudaError_t>(it().failing));
  std::size_t taken = 0;
  for (const auto& [memory, bytes] : it().device) taken += whole_pages(bytes);
  *unused = device_memory - taken;
  *all = device_memory;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  if (it().failing != 0) return answer(static_cast<cudaError_t>(it().failing));
  if (illegal_in_capture("cudaMalloc")) return answer(cudaErrorStreamCaptureUnsupported);
  if (it().fail_allocation) {
    it().fail_allocation = false;
    return answer(cudaErrorMemoryAllocation);
  }
  void* const fresh = mmap(nullptr, whole_pages(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (fresh == MAP_FAILED) return answer(cudaErrorMemoryAllocation);
  std::memset(fresh, 0xff, whole_pages(bytes));
  if (it().running == 0) mprotect(fresh, whole_pages(bytes), PROT_NONE);
  it().device[static_cast<char*>(fresh)] = bytes;
  ++it().counts.device_allocations;
  *memory = fresh;
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  if (memory == nullptr) return cudaSuccess;
  if (illegal_in_capture("cudaFree")) return answer(cudaErrorStreamCaptureUnsupported);
  const auto found = it().device.find(static_cast<char*>(memory));
  if (found == it().device.end()) {
    blame("device memory is given back that was not allocated");
    return answer(cudaErrorInvalidValue);
  }
  finish_everything();
  munmap(found->first, whole_pages(found->second));
  it().device.erase(found);
  ++it().counts.frees;
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned) {
  if (it().failing != 0) return answer(static_cast<cudaError_t>(it().failing));
  if (illegal_in_capture("cudaHostAlloc")) return answer(cudaErrorStreamCaptureUnsupported);
  void* const fresh = std::aligned_alloc(page, whole_pages(bytes));
  std::memset(fresh, 0xff, whole_pages(bytes));
  it().pinned[static_cast<char*>(fresh)] = bytes;
  ++it().counts.pinned_allocations;
  *memory = fresh;
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
  if (memory == nullptr) return cudaSuccess;
  const auto found = it().pinned.find(static_cast<char*>(memory));
  if (found == it().pinned.end()) {
    blame("pinned memory is given back that was not allocated");
    return answer(cudaErrorInvalidValue);
  }
  finish_everything();
  std::free(memory);
  it().pinned.erase(found);
  ++it().counts.frees;
  return cudaSuccess;
}
// As the real one, whole pages: two ranges cannot share one.
cudaError_t cudaHostRegister(void* memory, std::size_t bytes, unsigned flags) {
  if (illegal_in_capture("cudaHostRegister")) return answer(cudaErrorStreamCaptureUnsupported);
  if (bytes == 0 || flags != cudaHostRegisterMapped) return answer(cudaErrorInvalidValue);
  const auto first_page = [](const char* at) { return reinterpret_cast<std::size_t>(at) / page; };
  auto* const begin = static_cast<char*>(memory);
  for (const auto* ranges : {&it().registered, &it().pinned}) {
    for (const auto& [known, size] : *ranges) {
      if (first_page(begin) <= first_page(known + size - 1) && first_page(known) <= first_page(begin + bytes - 1)) {
        return answer(cudaErrorHostMemoryAlreadyRegistered);
      }
    }
  }
  it().registered[begin] = bytes;
  return cudaSuccess;
}
cudaError_t cudaHostGetDevicePointer(void** seen, void* memory, unsigned) {
  if (!lies_in(it().registered, memory, 1)) return answer(cudaErrorInvalidValue);
  *seen = memory;
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* memory) {
  *attributes = {};
  auto* const at = const_cast<void*>(memory);
  const bool is_pinned = lies_in(it().registered, at, 1) || lies_in(it().pinned, at, 1);
  attributes->type = is_pinned ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered;
  attributes->hostPointer = is_pinned ? at : nullptr;
  attributes->devicePointer = attributes->hostPointer;
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* memory) {
  if (it().registered.erase(static_cast<char*>(memory)) == 0) {
    blame("memory is no longer registered that was not");
    return answer(cudaErrorHostMemoryNotRegistered);
  }
  for (const stream_data* each : it().streams) {
    if (!each->waiting.empty()) blame("memory is no longer registered while a device may read it");
  }
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return copy(to, from, bytes, kind, stream_of(stream), false);
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  if (illegal_in_capture("cudaMemcpy")) return answer(cudaErrorStreamCaptureUnsupported);
  return copy(to, from, bytes, kind, it().default_stream, true);
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  if (!on_the_device(to, bytes)) {
    blame("a fill of " + std::to_string(bytes) + " bytes lies outside the device's memory");
    return answer(cudaErrorInvalidValue);
  }
  stream_data& where = stream_of(stream);
  if (where.capturing == nullptr) ++it().counts.fills;
  submit(where, {"memset " + std::to_string(bytes), [to, value, bytes] { std::memset(to, value, bytes); }, 0});
  return cudaSuccess;
}

// Streams and events --------------------------------------------------------------------------------------------------
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  if (it().failing != 0) return answer(static_cast<cudaError_t>(it().failing));
  auto* const fresh = new stream_data;
  it().streams.insert(fresh);
  *stream = reinterpret_cast<cudaStream_t>(fresh);
  return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithFlags(stream, 0); }
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  stream_data& known = stream_of(stream);
  if (&known == &it().default_stream) return answer(cudaErrorInvalidResourceHandle);
  finish(known);
  it().streams.erase(&known);
  for (event_data* each : it().events) {
    if (each->stream == &known) each->stream = nullptr;
  }
  delete &known;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  stream_data& where = stream_of(stream);
  if (where.capturing != nullptr) {
    blame("cudaStreamSynchronize during a capture");
    return answer(cudaErrorStreamCaptureUnsupported);
  }
  ++it().counts.waits;
  finish(where);
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  stream_data& where = stream_of(stream);
  if (where.waiting.empty()) return cudaSuccess;
  const operation next = std::move(where.waiting.front());  // every question lets the device do one thing more
  where.waiting.pop_front();
  run(next);
  return answer(cudaErrorNotReady);
}
cudaError_t cudaDeviceSynchronize() {
  if (illegal_in_capture("cudaDeviceSynchronize")) return answer(cudaErrorStreamCaptureUnsupported);
  ++it().counts.waits;
  finish_everything();
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status = stream_of(stream).capturing != nullptr ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  if (it().failing != 0) return answer(static_cast<cudaError_t>(it().failing));
  auto* const fresh = new event_data;
  it().events.insert(fresh);
  *event = reinterpret_cast<cudaEvent_t>(fresh);
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  auto* const known = reinterpret_cast<event_data*>(event);
  if (it().events.erase(known) == 0) {
    blame("an event is destroyed that does not exist");
    return answer(cudaErrorInvalidResourceHandle);
  }
  delete known;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  stream_data& where = stream_of(stream);
  auto* const known = reinterpret_cast<event_data*>(event);
  known->capture = where.capturing;
  if (where.capturing != nullptr) {  // for another stream of the capture
    known->stream = &where;
    known->nodes = where.newest;
    return cudaSuccess;
  }
  known->newest = ++it().event_numbers;
  known->stream = &where;
  submit(where, {"event", nullptr, known->newest});
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  stream_data& where = stream_of(stream);
  auto* const known = reinterpret_cast<event_data*>(event);
  if (known->capture == nullptr || (where.capturing != nullptr && where.capturing != known->capture)) {
    blame("a stream waits for an event that is none of its capture's");
    return answer(cudaErrorStreamCaptureIsolation);
  }
  if (&where == known->capture->origin) {
    known->stream->is_branch = false;
  } else {
    if (where.capturing == nullptr) where.newest.clear();
    where.capturing = known->capture;
    where.is_branch = true;
  }
  where.newest.insert(known->nodes.begin(), known->nodes.end());
  return cudaSuccess;
}
// What was recorded in a capture the host can never wait for.
bool is_of_a_capture(const event_data* event) {
  if (event->capture == nullptr) return false;
  blame("the host waits for an event of a capture");
  return true;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  auto* const known = reinterpret_cast<event_data*>(event);
  if (is_of_a_capture(known)) return answer(cudaErrorCapturedEvent);
  if (known->newest == 0 || it().passed_events.count(known->newest) != 0) return cudaSuccess;
  // Every question lets the device do one thing more, so that asking again and again ends.
  if (known->stream != nullptr && !known->stream->waiting.empty()) {
    const operation next = std::move(known->stream->waiting.front());
    known->stream->waiting.pop_front();
    run(next);
  }
  return answer(cudaErrorNotReady);  // as the real one does: it stays the last error until somebody asks for that
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  auto* const known = reinterpret_cast<event_data*>(event);
  if (is_of_a_capture(known)) return answer(cudaErrorCapturedEvent);
  if (known->newest == 0 || it().passed_events.count(known->newest) != 0) return cudaSuccess;
  ++it().counts.waits;
  while (it().passed_events.count(known->newest) == 0 && known->stream != nullptr && !known->stream->waiting.empty()) {
    const operation next = std::move(known->stream->waiting.front());
    known->stream->waiting.pop_front();
    run(next);
  }
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  const auto passed = [](cudaEvent_t event) {
    return it().passed_events.find(reinterpret_cast<event_data*>(event)->newest);
  };
  const auto first = passed(begin);
  const auto last = passed(end);
  if (first == it().passed_events.end() || last == it().passed_events.end()) return answer(cudaErrorNotReady);
  *milliseconds = std::chrono::duration<float, std::milli>(last->second - first->second).count();
  return cudaSuccess;
}

// Graphs --------------------------------------------------------------------------------------------------------------
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  stream_data& where = stream_of(stream);
  if (&where == &it().default_stream || where.capturing != nullptr) {
    blame("a capture begins on a stream that cannot begin one");
    return answer(cudaErrorStreamCaptureUnsupported);
  }
  where.capturing = new graph_data{{}, &where};
  where.newest.clear();
  it().graphs.insert(where.capturing);
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  stream_data& where = stream_of(stream);
  if (where.capturing == nullptr) {
    blame("a capture ends that did not begin");
    return answer(cudaErrorIllegalState);
  }
  *graph = reinterpret_cast<cudaGraph_t>(where.capturing);
  for (stream_data* each : it().streams) {
    if (each == &where || each->capturing != where.capturing) continue;
    if (each->is_branch) blame("a capture ends before it has waited for all of its branches");
    each->capturing = nullptr;
  }
  where.capturing = nullptr;
  ++it().counts.captures;
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count) {
  if (nodes != nullptr) return answer(cudaErrorInvalidValue);
  *count = reinterpret_cast<graph_data*>(graph)->nodes.size();
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  auto* const fresh = new graph_data(*reinterpret_cast<graph_data*>(graph));
  it().executable[fresh] = true;
  it().last_graph.clear();
  for (const operation& each : fresh->nodes) it().last_graph.push_back(each.name);
  *executable = reinterpret_cast<cudaGraphExec_t>(fresh);
  return cudaSuccess;
}
// What was launched before is as it was: it is done first. Nodes and what they wait for have to be the same.
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t executable, cudaGraph_t graph, cudaGraphExecUpdateResultInfo*) {
  auto* const known = reinterpret_cast<graph_data*>(executable);
  const auto& fresh = *reinterpret_cast<graph_data*>(graph);
  if (it().executable.count(known) == 0) {
    blame("a graph is updated that does not exist");
    return answer(cudaErrorInvalidResourceHandle);
  }
  finish_everything();
  const bool is_alike = std::equal(
      known->nodes.begin(), known->nodes.end(), fresh.nodes.begin(), fresh.nodes.end(),
      [](const operation& old, const operation& now) { return old.name == now.name && old.after == now.after; });
  if (!is_alike) return answer(cudaErrorGraphExecUpdateFailure);
  known->nodes = fresh.nodes;
  ++it().counts.updates;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  auto* const known = reinterpret_cast<graph_data*>(graph);
  if (it().graphs.erase(known) == 0) {
    blame("a graph is destroyed that does not exist");
    return answer(cudaErrorInvalidResourceHandle);
  }
  delete known;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  auto* const known = reinterpret_cast<graph_data*>(executable);
  if (it().executable.count(known) == 0) {
    blame("an executable graph is destroyed that does not exist");
    return answer(cudaErrorInvalidResourceHandle);
  }
  finish_everything();
  it().executable.erase(known);
  delete known;
  return cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  auto* const known = reinterpret_cast<graph_data*>(executable);
  if (it().executable.count(known) == 0) {
    blame("a graph is launched that does not exist");
    return answer(cudaErrorInvalidResourceHandle);
  }
  stream_data& where = stream_of(stream);
  if (where.capturing != nullptr) {
    blame("cudaGraphLaunch during a capture");
    return answer(cudaErrorStreamCaptureUnsupported);
  }
  ++it().counts.replays;
  it().counts.replayed_nodes += known->nodes.size();
  submit(where, {"graph",
                 [known, number = it().counts.replays] {
                   for (const std::size_t node : order_of(*known, number)) run(known->nodes[node]);
                 },
                 0});
  return cudaSuccess;
}

}  // extern "C"
