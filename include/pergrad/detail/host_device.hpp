// SPDX-License-Identifier: Apache-2.0
// pergrad/detail/host_device.hpp - the one word that marks a function as callable on host and device.
//
// This is the only header that asks whether a CUDA compiler is reading it. What is marked must be valid device code:
// no library function, no exceptions, no address of a constexpr object.
#pragma once

#ifdef __CUDACC__
#define PERGRAD_HD __host__ __device__
#else
#define PERGRAD_HD
#endif
