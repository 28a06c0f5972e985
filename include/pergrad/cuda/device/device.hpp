// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/device/device.hpp - what the engine asks of a device, and a device that the host emulates
//
//   allocate(bytes)            memory of the device, aligned to 256 bytes; std::bad_alloc if there is none
//   release(memory)            gives it back; never throws
//   upload(to, from, bytes)    host to device, in stream order; `from` may change as soon as this returns
//   download(to, from, bytes)  device to host; complete when this returns
//   view(memory, bytes)        where kernels find memory of the host's that the device reads where it lies, until the
//                              last who holds it lets go; null if it does not. Nothing is copied
//   fill_zero(to, bytes)       in stream order
//   launch(kernel, blocks)     in stream order; 0 blocks: nothing happens
//   beside(f)                  what f launches or fills depends on nothing that comes behind it until join(), nor does
//                              that on it: a device may do both at the same time
//   join()                     what comes from here on depends on all of it
//   capture(f)                 what f launches and fills becomes a graph instead of being done; f may be called twice
//   replay(graph)              does it, in stream order
//   node_count(graph)
//   synchronise()              waits
//   mailbox{device, bytes}     memory of the host's: post(from, bytes) has the device copy into it, in stream order and
//                              without waiting; wait() waits for what was posted last, and says where it is
// allocate, release, upload, download, view, synchronise, replay and a mailbox are errors inside a capture. Only
// download, synchronise and a mailbox's wait let the host wait. A device may also have `library_gemm` (gemm_door.hpp),
// `most_shared_bytes()`, that a block may have, and `speed()`, for descriptions.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <pergrad/cuda/device/kernel.hpp>

namespace pergrad::inline v0_1 {

/// Choices of an executor on a device.
struct device_options {
  /// What layers hand to each other, and its gradients, is stored with the 10 bits of fraction that TF32 has, and
  /// products of matrices round weights so, too, and are formed by tensor cores: in layered networks, attention's
  /// included, and by cuBLAS. What is squared for a norm are the numbers that the sum adds, formed by the same
  /// instructions, so the clip bound holds as it does without. For networks in float; the network's output, losses,
  /// parameters and sums stay float. From compute capability 8.0 on.
  bool tf32 = false;
  /// Trainers copy data sets to the device also where it could read them where they lie, as GPUs can that share the
  /// host's memory. A step then does not wait for the device at its end.
  bool copy_records = false;
  /// Bytes of a data set that trainers copy to the device at most. A larger one, and one for which the device has no
  /// memory, stays with the host, pinned, and each physical batch fetches its own records from there, in the graph of
  /// its step; the step waits for the device at its end. Not of records that differ in length.
  std::size_t most_record_bytes = ~std::size_t{0};
};

}  // namespace pergrad::inline v0_1

namespace pergrad::inline v0_1::on_device {

/// What a device does at its best; 0: not known.
struct device_speed {
  double multiply_adds = 0;         ///< of floats, a second
  double bytes = 0;                 ///< to and from its memory, a second
  double tensor_multiply_adds = 0;  ///< of TF32, a second; of BF16 twice as many
  int multiprocessors = 0;
};

namespace emulation {

/// Stands for any kernel where only the signature is asked for.
struct any_kernel {
  static constexpr int threads = 32;
  struct shared_type {};
  template <class Block>
  PERGRAD_HD void operator()(const Block& /*block*/) const {}
};

}  // namespace emulation

/// See the table above.
template <class Device>
concept device = requires(Device& it, typename Device::graph& graph, typename Device::mailbox& mailbox, void* memory,
                          const void* other, std::size_t bytes, void (*step)()) {
  requires std::constructible_from<typename Device::mailbox, Device&, std::size_t>;
  mailbox.post(other, bytes);
  { mailbox.wait() } -> std::same_as<const void*>;
  { it.allocate(bytes) } -> std::same_as<void*>;
  { it.release(memory) }
  noexcept;
  it.upload(memory, other, bytes);
  it.download(memory, other, bytes);
  { it.view(other, bytes, true) } -> std::same_as<std::shared_ptr<const std::byte>>;
  it.fill_zero(memory, bytes);
  it.launch(emulation::any_kernel{}, 1);
  it.beside(step);
  it.join();
  { it.capture(step) } -> std::same_as<typename Device::graph>;
  it.replay(graph);
  { it.node_count(graph) } -> std::convertible_to<std::size_t>;
  it.synchronise();
};

/// Of a device whose kernels run: one that only writes them down makes no noise.
template <class Device>
inline constexpr bool runs_kernels = !requires {
  Device::is_only_listed;
};

/// Branches of a captured step beside its main line, at most.
inline constexpr int most_branches = 7;

/// Runs a kernel on the host, block after block in the given order. Shared memory is NaN when a block starts.
template <kernel Kernel>
void emulate(const Kernel& kernel, int blocks, emulation_order order = emulation_order::forward) {
  const std::size_t bytes = shared_bytes_of(kernel);
  // On the heap, so that a sanitizer sees every access beyond it.
  const std::unique_ptr<std::byte, void (*)(std::byte*)> shared{
      static_cast<std::byte*>(::operator new (bytes, std::align_val_t{64})),
      [](std::byte* memory) { ::operator delete (memory, std::align_val_t{64}); }};
  const emulation::call_order calls{order, blocks, static_cast<std::uint32_t>(blocks)};
  for (std::uint32_t i = 0; i < calls.size; ++i) {
    const int index = calls[i];
    if (index >= blocks) continue;
    std::memset(shared.get(), 0xff, bytes);
    kernel(emulated_block<Kernel::threads>{index, order, shared.get()});
  }
}

/// A device that the host emulates: plain memory, poisoned with NaN, and kernels in an order that tests choose. For
/// tests and for machines without a GPU; it is slow and shows mistakes.
class emulated_device {
 public:
  class graph {
   public:
    graph() = default;

   private:
    friend class emulated_device;
    /// A launch or a fill. Its closure is kept as bytes: a smart pointer to each type of closure would be a dozen
    /// functions a kernel, and <functional> would cost every program that nvcc compiles.
    struct node {
      std::shared_ptr<const void> closure;
      void (*run)(const void* closure);
    };
    std::vector<node> nodes_;
  };

  class mailbox {
   public:
    mailbox(emulated_device& device, std::size_t bytes) : device_{&device}, memory_(bytes) {}
    void post(const void* from, std::size_t bytes) {
      device_->refuse_in_capture("posts");
      device_->require_inside(from, bytes);
      if (bytes > memory_.size()) throw std::out_of_range("pergrad: emulated_device: a mailbox is too small");
      if (bytes > 0) std::memcpy(memory_.data(), from, bytes);
    }
    [[nodiscard]] const void* wait() const noexcept { return memory_.data(); }

   private:
    emulated_device* device_;
    std::vector<std::byte> memory_;
  };

  /// What has been asked of the device since it was made.
  struct statistics {
    std::size_t allocations = 0;
    std::size_t allocated_bytes = 0;  ///< of all memory that is not yet released
    std::size_t launches = 0;
    std::size_t uploads = 0;
    std::size_t uploaded_bytes = 0;
    std::size_t views = 0;
    std::size_t downloads = 0;
    std::size_t waits = 0;
    std::size_t captures = 0;
    std::size_t replays = 0;
  };

  explicit emulated_device(emulation_order order = emulation_order::forward) : order_{order} {}
  emulated_device(const emulated_device&) = delete;
  emulated_device& operator=(const emulated_device&) = delete;
  ~emulated_device() {
    for (const block& each : memory_) ::operator delete(each.begin, alignment);
  }

  [[nodiscard]] static constexpr const char* name() noexcept { return "emulated device"; }

  [[nodiscard]] void* allocate(std::size_t bytes) {
    refuse_in_capture("allocates");
    if (bytes > memory_limit_ - std::min(memory_limit_, statistics_.allocated_bytes)) throw std::bad_alloc{};
    void* memory = ::operator new(bytes == 0 ? 1 : bytes, alignment);
    std::memset(memory, 0xff, bytes);
    memory_.push_back({static_cast<std::byte*>(memory), bytes});
    ++statistics_.allocations;
    statistics_.allocated_bytes += bytes;
    return memory;
  }
  void release(void* memory) noexcept {
    for (block& each : memory_) {
      if (each.begin != memory) continue;
      statistics_.allocated_bytes -= each.bytes;
      each = memory_.back();
      memory_.pop_back();
      return ::operator delete(memory, alignment);
    }
  }
  void upload(void* to, const void* from, std::size_t bytes) {
    refuse_in_capture("uploads");
    count_to_failure();
    require_inside(to, bytes);
    if (bytes > 0) std::memcpy(to, from, bytes);
    ++statistics_.uploads;
    statistics_.uploaded_bytes += bytes;
  }
  void download(void* to, const void* from, std::size_t bytes) {
    refuse_in_capture("downloads");
    count_to_failure();
    require_inside(from, bytes);
    if (bytes > 0) std::memcpy(to, from, bytes);
    ++statistics_.downloads;
  }
  [[nodiscard]] std::shared_ptr<const std::byte> view(const void* memory, std::size_t /*bytes*/, bool streams) {
    refuse_in_capture("views");
    if (!shares_memory_ && !streams) return nullptr;
    ++statistics_.views;
    return {static_cast<const std::byte*>(memory), [](const std::byte* /*of the host*/) {}};
  }
  void fill_zero(void* to, std::size_t bytes) {
    require_inside(to, bytes);
    submit([to, bytes] { std::memset(to, 0, bytes); });
  }
  template <kernel Kernel>
  void launch(const Kernel& kernel, int blocks) {
    if (blocks <= 0) return;
    count_to_failure();
    ++statistics_.launches;
    submit([kernel, blocks, this] { emulate(kernel, blocks, order_); });
  }
  /// An Orin's.
  [[nodiscard]] static constexpr std::size_t most_shared_bytes() noexcept { return 163 << 10; }
  /// Forward at once; in all other orders as late as it may, in the order of threads and blocks: what does depend on
  /// each other gives other bits then.
  template <class Function>
  void beside(Function&& f) {
    if (order_ == emulation_order::forward) return f();
    const deferral now{&deferred_, &late_.emplace_back()};
    f();
  }
  void join() {
    const std::vector<graph> late = std::exchange(late_, {});
    const auto count = static_cast<int>(late.size());
    emulation::for_each_in_order(order_, count, static_cast<std::uint32_t>(count), [&](int i) {
      for (const auto& node : late[static_cast<std::size_t>(i)].nodes_) {
        capturing_ == nullptr ? node.run(node.closure.get()) : capturing_->nodes_.push_back(node);
      }
    });
  }
  template <class Function>
  [[nodiscard]] graph capture(Function&& f) {
    refuse_in_capture("captures");
    graph recorded;
    capturing_ = &recorded;
    try {
      f();
    } catch (...) {
      capturing_ = nullptr;
      late_.clear();
      throw;
    }
    capturing_ = nullptr;
    if (!std::exchange(late_, {}).empty()) {
      throw std::logic_error("pergrad: emulated_device: a captured step ends before it is joined");
    }
    ++statistics_.captures;
    return recorded;
  }
  void replay(graph& recorded) {
    refuse_in_capture("replays");
    count_to_failure();
    ++statistics_.replays;
    for (const auto& node : recorded.nodes_) node.run(node.closure.get());
  }
  [[nodiscard]] static std::size_t node_count(const graph& recorded) noexcept { return recorded.nodes_.size(); }
  void synchronise() {
    refuse_in_capture("waits");
    ++statistics_.waits;
  }

  /// Does f() in stream order, or records it: for what is no kernel of this library's.
  template <class Function>
  void submit(const Function& node) {
    static_assert(std::is_trivially_copyable_v<Function>);
    graph* const to = deferred_ != nullptr ? deferred_ : capturing_;
    if (to == nullptr) return node();
    record(*to, &node, sizeof node, &call<Function>);
  }

  /// From now on it reads the host's memory, as GPUs do that have none of their own.
  void share_memory() noexcept { shares_memory_ = true; }
  /// From now on it has no memory for more than this.
  void limit_memory(std::size_t bytes) noexcept { memory_limit_ = bytes; }
  /// One of the next calls that hand work to the device throws std::runtime_error: 1 is the very next upload,
  /// download, launch or replay. Nothing of it is done then.
  void fail_after(std::size_t calls) noexcept { calls_to_failure_ = calls; }
  [[nodiscard]] const statistics& counted() const noexcept { return statistics_; }

 private:
  static constexpr std::align_val_t alignment{256};
  struct block {
    std::byte* begin;
    std::size_t bytes;
  };
  struct deferral {
    graph** place;
    deferral(graph** of, graph* to) : place{of} { *of = to; }
    deferral(const deferral&) = delete;
    deferral& operator=(const deferral&) = delete;
    ~deferral() { *place = nullptr; }
  };

  template <class Function>
  static void call(const void* closure) {
    (*static_cast<const Function*>(closure))();
  }
  static void record(graph& to, const void* closure, std::size_t bytes, void (*run)(const void*)) {
    const std::shared_ptr<void> copy{::operator new(bytes, alignment),
                                     [](void* memory) { ::operator delete(memory, alignment); }};
    std::memcpy(copy.get(), closure, bytes);
    to.nodes_.push_back({copy, run});
  }
  void count_to_failure() {
    if (calls_to_failure_ > 0 && --calls_to_failure_ == 0) {
      late_.clear();
      throw std::runtime_error("pergrad: emulated_device: the failure that was asked for");
    }
  }
  void refuse_in_capture(const char* what) const {
    if (capturing_ != nullptr) {
      throw std::logic_error(std::string{"pergrad: emulated_device: a step that is being captured "} + what);
    }
  }
  void require_inside(const void* at, std::size_t bytes) const {
    if (bytes == 0) return;
    for (const block& each : memory_) {
      const auto offset = reinterpret_cast<std::uintptr_t>(at) - reinterpret_cast<std::uintptr_t>(each.begin);
      if (offset <= each.bytes && bytes <= each.bytes - offset) return;
    }
    throw std::out_of_range("pergrad: emulated_device: a copy of " + std::to_string(bytes) +
                            " bytes lies outside the device's memory");
  }

  std::vector<block> memory_;
  statistics statistics_;
  std::size_t calls_to_failure_ = 0;  ///< 0: none is planted
  bool shares_memory_ = false;
  std::size_t memory_limit_ = ~std::size_t{0};
  emulation_order order_;
  graph* capturing_ = nullptr;
  graph* deferred_ = nullptr;
  std::vector<graph> late_;  ///< what runs beside others, and waits
};

static_assert(device<emulated_device>);

}  // namespace pergrad::inline v0_1::on_device
