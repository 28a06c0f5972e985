// SPDX-License-Identifier: Apache-2.0
// pergrad/nccl.cuh - ranks that are processes with a GPU each; beside the umbrella, as it needs NCCL
//
// Sums and parameters go from GPU to GPU, in the order of the executor's stream: NCCL's calls are captured into the
// graph of a step, as kernels are. What is small, and what tells that a rank has failed, goes by the host's ranks.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <memory>
#include <nccl.h>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <pergrad/cuda/cuda.cuh>
#include <pergrad/cuda/ranks/device_step.hpp>
#include <pergrad/ranks.hpp>

namespace pergrad::inline v0_1 {

/// NCCL's ranks beside those of the host, mpi_ranks say, which outlive them: the same numbers. Every process has chosen
/// its GPU before (cudaSetDevice), and no two have the same one. Not copyable.
template <communicator Host>
class nccl_ranks {
 public:
  /// Collective. `patience`: how long a rank waits for a step's exchange on the device. Throws on all ranks rank_failed
  /// where one of them has no GPU, or NCCL fails. While NCCL connects they wait for each other as long as it does.
  explicit nccl_ranks(const Host& host, std::chrono::milliseconds patience = std::chrono::minutes{5})
      : host_{&host}, patience_{detail::patience_of(patience)} {
    ncclUniqueId id{};
    detail::do_together(host, [&] {
      const std::string missing = on_device::cuda_device::missing();
      if (!missing.empty()) throw std::runtime_error("pergrad: nccl_ranks: " + missing);
      if (rank() == 0) check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    });
    host.broadcast(std::as_writable_bytes(std::span{&id, 1}), 0);
    detail::do_together(host, [&] {
      ncclComm_t made = nullptr;
      check(ncclCommInitRank(&made, static_cast<int>(size()), id, static_cast<int>(rank())), "ncclCommInitRank");
      own_.reset(made);
    });
    detail::do_together(host, [&] { connect(); });
  }
  nccl_ranks(const nccl_ranks&) = delete;
  nccl_ranks& operator=(const nccl_ranks&) = delete;
  ~nccl_ranks() = default;

  [[nodiscard]] std::size_t rank() const noexcept { return host_->rank(); }
  [[nodiscard]] std::size_t size() const noexcept { return host_->size(); }

  void broadcast(std::span<std::byte> bytes, std::size_t from) const { host_->broadcast(bytes, from); }
  void reduce_scatter(std::span<std::int64_t> sum, std::span<const std::size_t> places) const {
    host_->reduce_scatter(sum, places);
  }
  void all_gather(std::span<std::byte> bytes, std::span<const std::size_t> places) const {
    host_->all_gather(bytes, places);
  }

  /// Parts have different lengths, so each is a reduction of its own; NCCL does those of a group at once.
  void reduce_scatter(on_device::cuda_device& device, std::span<std::int64_t> sum,
                      std::span<const std::size_t> places) const {
    if (device.is_warming_up()) return;  // the others may not
    for_each_part(places, [&](std::size_t first, std::size_t count, int owner) {
      std::int64_t* const part = sum.data() + first;
      check(ncclReduce(part, part, count, ncclInt64, ncclSum, owner, own_.get(), device.stream()), "ncclReduce");
    });
  }
  void all_gather(on_device::cuda_device& device, std::span<std::byte> bytes,
                  std::span<const std::size_t> places) const {
    if (device.is_warming_up()) return;
    for_each_part(places, [&](std::size_t first, std::size_t count, int owner) {
      std::byte* const part = bytes.data() + first;
      check(ncclBroadcast(part, part, count, ncclUint8, owner, own_.get(), device.stream()), "ncclBroadcast");
    });
  }
  void wait(on_device::cuda_device& device) const {
    const auto begin = std::chrono::steady_clock::now();
    while (!device.is_done()) {
      ncclResult_t found = ncclSuccess;
      check(ncclCommGetAsyncError(own_.get(), &found), "ncclCommGetAsyncError");
      if (found != ncclSuccess && found != ncclInProgress) end(ncclGetErrorString(found));
      if (std::chrono::steady_clock::now() - begin > patience_) end("waited too long for the others");
      std::this_thread::yield();
    }
  }

 private:
  struct closer {
    void operator()(ncclComm_t ranks) const noexcept { static_cast<void>(ncclCommDestroy(ranks)); }
  };
  template <class Function>
  static void for_each_part(std::span<const std::size_t> places, Function&& f) {
    check(ncclGroupStart(), "ncclGroupStart");
    try {
      for (std::size_t owner = 0; owner + 1 < places.size(); ++owner) {
        const std::size_t count = places[owner + 1] - places[owner];
        if (count > 0) f(places[owner], count, static_cast<int>(owner));
      }
    } catch (...) {
      static_cast<void>(ncclGroupEnd());  // else what comes later would still belong to it
      throw;
    }
    check(ncclGroupEnd(), "ncclGroupEnd");
  }
  /// NCCL connects GPUs when they exchange something for the first time, and that waits for all of them. Here they are
  /// all there; in a step one may have failed before.
  void connect() const {
    const auto device = std::make_shared<on_device::cuda_device>();
    const std::vector<std::int64_t> zeros(size());
    const std::size_t bytes = zeros.size() * sizeof(std::int64_t);
    const std::shared_ptr<std::byte> memory = on_device::allocate_on(device, bytes);
    device->upload(memory.get(), zeros.data(), bytes);
    std::vector<std::size_t> places(size() + 1);
    std::iota(places.begin(), places.end(), std::size_t{0});
    reduce_scatter(*device, {reinterpret_cast<std::int64_t*>(memory.get()), size()}, places);
    all_gather(*device, {memory.get(), size()}, places);
    wait(*device);
  }
  static void check(ncclResult_t result, const char* call) {
    if (result == ncclSuccess) return;
    throw std::runtime_error(std::string{"pergrad: nccl_ranks: "} + call + ": " + ncclGetErrorString(result));
  }
  /// NCCL's kernels wait for ever for one that is gone: they are ended. Aborting returns only when no graph has NCCL's
  /// calls any more, and those graphs are the trainer's, which whoever catches this has still to give up.
  [[noreturn]] void end(const char* why) const {
    std::thread{[ranks = own_.release()] { static_cast<void>(ncclCommAbort(ranks)); }}.detach();
    throw rank_failed("pergrad: rank " + std::to_string(rank()) + " of " + std::to_string(size()) +
                      ": a step's exchange by NCCL: " + why);
  }

  const Host* host_;
  std::chrono::milliseconds patience_;
  mutable std::unique_ptr<ncclComm, closer> own_;
};

}  // namespace pergrad::inline v0_1
