// SPDX-License-Identifier: Apache-2.0
// tests/cuda/fake_runtime/fake_nccl.cpp - NCCL between processes that have the fake CUDA runtime for a GPU
//
// What is asked of it is put into the stream, or into the graph that is captured, and done by MPI when the stream comes
// to it. What a rank may not read afterwards is overwritten. Memory that is not on the device, calls outside of a group
// and ranks that ask for different things are blamed.
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mpi.h>
#include <nccl.h>
#include <string>
#include <thread>

#include "fake_runtime.hpp"

struct ncclComm {
  MPI_Comm mpi = MPI_COMM_NULL;
  int rank = 0;
  int size = 0;
  std::atomic<bool> is_aborted = false;                  ///< then what still lies in streams does nothing
  std::shared_ptr<int> calls = std::make_shared<int>();  ///< those in streams and graphs have it as well
};

namespace {

int groups = 0;  // that are open

/// An abort ends what waits for other ranks.
void wait_for(MPI_Request request, const ncclComm& ranks) {
  for (int done = 0; done == 0 && !ranks.is_aborted; MPI_Test(&request, &done, MPI_STATUS_IGNORE)) {
  }
}
/// Do all ranks come here with the same?
bool all_ask_for(const ncclComm& ranks, const std::array<std::int64_t, 3>& wanted) {
  static std::array<std::int64_t, 3> of_first;  // an abort leaves it to MPI
  of_first = wanted;
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ibcast(of_first.data(), 3, MPI_INT64_T, 0, ranks.mpi, &request);
  wait_for(request, ranks);
  return of_first == wanted || ranks.is_aborted;
}
ncclResult_t begin(const void* from, const void* to, std::size_t bytes, int root, const ncclComm& ranks) {
  if (groups == 0) fake_cuda::blame("NCCL: a call outside of a group");
  if (from != to) fake_cuda::blame("NCCL: the library works in place");
  if (root < 0 || root >= ranks.size || bytes == 0) {
    fake_cuda::blame("NCCL: a part without a length, or of no rank");
    return ncclInvalidArgument;
  }
  if (!fake_cuda::on_the_device(to, bytes)) {
    fake_cuda::blame("NCCL gets memory that is not on the device");
    return ncclInvalidUsage;
  }
  return ncclSuccess;
}

}  // namespace

extern "C" {

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::snprintf(id->internal, sizeof id->internal, "the ranks of the fake NCCL");
  return ncclSuccess;
}
ncclResult_t ncclCommInitRank(ncclComm_t* made, int size, ncclUniqueId id, int rank) {
  ncclUniqueId known{};
  ncclGetUniqueId(&known);
  if (std::memcmp(&known, &id, sizeof id) != 0) fake_cuda::blame("NCCL: not the id of rank 0");
  auto* const fresh = new ncclComm;
  MPI_Comm_dup(MPI_COMM_WORLD, &fresh->mpi);
  MPI_Comm_rank(fresh->mpi, &fresh->rank);
  MPI_Comm_size(fresh->mpi, &fresh->size);
  if (fresh->rank != rank || fresh->size != size) fake_cuda::blame("NCCL: another rank than the process has");
  *made = fresh;
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t ranks) {
  MPI_Comm_free(&ranks->mpi);
  delete ranks;
  return ncclSuccess;
}
// As the real one: for ever, where nobody gives up the graph that has its calls.
ncclResult_t ncclCommAbort(ncclComm_t ranks) {
  ranks->is_aborted = true;
  while (ranks->calls.use_count() > 1) std::this_thread::sleep_for(std::chrono::milliseconds{1});
  return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t /*ranks*/, ncclResult_t* found) {
  static long asked = 0;
  const char* const after = std::getenv("FAKE_NCCL_FAILS_AFTER");  // so many questions
  *found = after != nullptr && ++asked > std::strtol(after, nullptr, 10) ? ncclUnhandledCudaError : ncclSuccess;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclSuccess ? "success" : "an error of the fake NCCL";
}
ncclResult_t ncclGroupStart() {
  ++groups;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (--groups < 0) fake_cuda::blame("NCCL: a group ends that has not begun");
  return ncclSuccess;
}
ncclResult_t ncclReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t how, int root,
                        ncclComm_t ranks, cudaStream_t stream) {
  if (type != ncclInt64 || how != ncclSum) fake_cuda::blame("NCCL: sums are of integers");
  const ncclResult_t begun = begin(from, to, 8 * count, root, *ranks);
  if (begun != ncclSuccess) return begun;
  fake_cuda::submit(stream, "ncclReduce " + std::to_string(count), [=, calls = ranks->calls] {
    if (ranks->is_aborted) return;
    if (!all_ask_for(*ranks, {1, static_cast<std::int64_t>(count), root})) {
      return fake_cuda::blame("NCCL: ranks reduce different things");
    }
    const bool is_mine = ranks->rank == root;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Ireduce(is_mine ? MPI_IN_PLACE : to, is_mine ? to : nullptr, static_cast<int>(count), MPI_INT64_T, MPI_SUM,
                root, ranks->mpi, &request);
    wait_for(request, *ranks);
    if (!is_mine) std::memset(to, 0x5a, 8 * count);
  });
  return ncclSuccess;
}
ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t ranks, cudaStream_t stream) {
  if (type != ncclUint8) fake_cuda::blame("NCCL: what is shared are bytes");
  const ncclResult_t begun = begin(from, to, count, root, *ranks);
  if (begun != ncclSuccess) return begun;
  fake_cuda::submit(stream, "ncclBroadcast " + std::to_string(count), [=, calls = ranks->calls] {
    if (ranks->is_aborted) return;
    if (!all_ask_for(*ranks, {2, static_cast<std::int64_t>(count), root})) {
      return fake_cuda::blame("NCCL: ranks share different things");
    }
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Ibcast(to, static_cast<int>(count), MPI_BYTE, root, ranks->mpi, &request);
    wait_for(request, *ranks);
  });
  return ncclSuccess;
}
}
