// SPDX-License-Identifier: Apache-2.0
// pergrad/detail/host_device.hpp - the one word that marks a function as callable on host and device.
//
// Outside cuda/ this is the only header that asks whether a CUDA compiler is reading it. What is marked must be valid
// device code: no library function, no exceptions, no address of a constexpr object.
#pragma once

#ifdef __CUDACC__
#define PERGRAD_HD __host__ __device__
/// Before a marked function that calls functions of the host, and that only the host calls: nvcc would warn of it.
#define PERGRAD_ONLY_HOST_CALLS _Pragma("nv_exec_check_disable")
/// Is there __builtin_shufflevector? nvcc's front end drops the dots behind a pack among its arguments.
#define PERGRAD_SHUFFLES 0
/// nvcc refuses vectors of the compiler's extension in functions that are marked, even where only the host calls them.
#define PERGRAD_VECTORS_ON_DEVICE 0
/// nvcc writes a structure that is a template argument as the list of its members when it hands the program on.
#define PERGRAD_WRITES_MEMBERS 1
#else
#define PERGRAD_HD
#define PERGRAD_ONLY_HOST_CALLS
#if defined(__clang__) || __GNUC__ >= 12
#define PERGRAD_SHUFFLES 1
#else
#define PERGRAD_SHUFFLES 0
#endif
#define PERGRAD_VECTORS_ON_DEVICE 1
#define PERGRAD_WRITES_MEMBERS 0
#endif
