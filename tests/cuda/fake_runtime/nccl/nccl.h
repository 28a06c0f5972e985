// SPDX-License-Identifier: Apache-2.0
// tests/cuda/fake_runtime/nccl/nccl.h - the little of NCCL that the library calls, for tests without a GPU
#pragma once

#include <cstddef>
#include <cuda_runtime_api.h>

extern "C" {

struct ncclComm;
using ncclComm_t = ncclComm*;
struct ncclUniqueId {
  char internal[128];
};
enum ncclResult_t {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclInProgress = 7
};
enum ncclDataType_t { ncclUint8 = 1, ncclInt64 = 4 };
enum ncclRedOp_t { ncclSum = 0 };

ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
ncclResult_t ncclCommInitRank(ncclComm_t* made, int size, ncclUniqueId id, int rank);
ncclResult_t ncclCommDestroy(ncclComm_t ranks);
ncclResult_t ncclCommAbort(ncclComm_t ranks);
ncclResult_t ncclCommGetAsyncError(ncclComm_t ranks, ncclResult_t* found);
const char* ncclGetErrorString(ncclResult_t result);
ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();
ncclResult_t ncclReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t how, int root,
                        ncclComm_t ranks, cudaStream_t stream);
ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t ranks, cudaStream_t stream);
}
