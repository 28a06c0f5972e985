// SPDX-License-Identifier: Apache-2.0
// tests/cuda/fake_runtime/fake_runtime.hpp - what a test asks the fake CUDA runtime about
//
// The fake stands in for libcudart when a program that nvcc has compiled is linked with `--cudart none`. Streams are as
// lazy as the real ones may be: work is done when somebody waits for it, not before. Device memory is NaN when it is
// given out, and the host cannot touch it between two operations of the runtime. Whatever a real device would answer
// with an error or with wrong numbers later is written down as a violation, in words.
//
// On a machine with a GPU the same tests run on the real runtime: watched_runtime.cpp stands between the two, counts,
// and answers the questions below as far as one can from there.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace fake_cuda {

/// What has happened since the start of the program or the last reset().
struct counts {
  std::size_t device_allocations = 0;
  std::size_t pinned_allocations = 0;
  std::size_t frees = 0;
  std::size_t kernels = 0;  ///< launched, outside of graphs
  std::size_t uploads = 0;
  std::size_t uploaded_bytes = 0;
  std::size_t downloads = 0;
  std::size_t fills = 0;
  std::size_t waits = 0;  ///< calls in which the host waits for the device, events that were done already not counted
  std::size_t captures = 0;
  std::size_t updates = 0;  ///< of graphs, by what was captured later
  std::size_t replays = 0;
  std::size_t replayed_nodes = 0;
};

[[nodiscard]] const counts& counted();
void reset();

/// Bytes of device memory that are allocated now; the same of pinned host memory, registered or allocated.
[[nodiscard]] std::size_t live_device_bytes();
[[nodiscard]] std::size_t live_pinned_bytes();
/// Streams, events and graphs that exist now, the default stream not counted.
[[nodiscard]] std::size_t live_handles();

/// Node by node what the newest instantiated graph does: "kernel scale_kernel 4 x 128, shared 512", "memset 256".
[[nodiscard]] const std::vector<std::string>& last_graph();

/// What must not have happened, since the last call. A program that leaves any ends with exit code 86.
[[nodiscard]] std::vector<std::string> take_violations();

/// Does the host emulate the device, so that every argument of a kernel is looked at? False on a GPU.
[[nodiscard]] bool plays_the_device();

/// For libraries above the runtime: puts work into a stream, or into the graph that it captures.
void submit(void* stream, const std::string& name, std::function<void()> work);
[[nodiscard]] bool on_the_device(const void* memory, std::size_t bytes);
void blame(const std::string& what);

/// From now on the runtime answers as one without a driver (35) or without a device (100); 0: as one with a device.
void fail_with(int error);
/// What a device says of the host's memory: it has its own; it has none of its own and reads what is registered; it
/// reads all, by the host's page tables; it has its own, and moves pages of the host's there that it reads. Only where
/// the host emulates the device.
enum class host_memory { separate, registered, pageable, migrating };
void share(host_memory how);
/// Of the compute capability of the device: 8 where the host emulates it.
void be_of_capability(int major);
/// Programs are compiled for it: 87 at first.
void be_compiled_for(int capability);
/// The next allocation of device memory fails with cudaErrorMemoryAllocation.
void fail_next_allocation();

}  // namespace fake_cuda
