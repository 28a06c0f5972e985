// SPDX-License-Identifier: Apache-2.0
// pergrad/detail/vector.hpp - the widest vectors that the build's flags allow, and which kernels a program has
//
// Three families of kernels exist for x86-64: avx512, avx2 (with fused multiply-add) and baseline, which is whatever the
// flags allow below that. The family of the flags, and what goes beyond it, is compiled; host/tile.hpp chooses among
// them when the program runs. Everything else uses the vectors of the flags, which are named here. Other processors
// have one family, the baseline.
#pragma once

#include <cstddef>
#include <cstring>
#include <type_traits>

// The family of the flags: 0 baseline, 1 avx2, 2 avx512.
#if defined(__AVX512F__) && defined(__AVX512VL__) && defined(__AVX512DQ__) && defined(__AVX512BW__)
#define PERGRAD_OWN_FAMILY 2
#define PERGRAD_OWN_KERNELS avx512
#define PERGRAD_OWN_VECTOR_BYTES 64
#define PERGRAD_OWN_VECTOR_REGISTERS 32
#elif defined(__AVX2__) && defined(__FMA__)
#define PERGRAD_OWN_FAMILY 1
#define PERGRAD_OWN_KERNELS avx2
#define PERGRAD_OWN_VECTOR_BYTES 32
#define PERGRAD_OWN_VECTOR_REGISTERS 16
#else
#define PERGRAD_OWN_FAMILY 0
#define PERGRAD_OWN_KERNELS baseline
#if defined(__AVX__)
#define PERGRAD_OWN_VECTOR_BYTES 32
#else
#define PERGRAD_OWN_VECTOR_BYTES 16
#endif
#if defined(__aarch64__)
#define PERGRAD_OWN_VECTOR_REGISTERS 32
#else
#define PERGRAD_OWN_VECTOR_REGISTERS 16
#endif
#endif

// The best family that is compiled. A program that runs on one kind of processor only may define
// PERGRAD_NO_KERNEL_DISPATCH; device compilers do not know the built-ins of other targets.
#if defined(__x86_64__) && !defined(PERGRAD_NO_KERNEL_DISPATCH) && !defined(__CUDACC__)
#define PERGRAD_BEST_FAMILY 2
#else
#define PERGRAD_BEST_FAMILY PERGRAD_OWN_FAMILY
#endif

#define PERGRAD_KERNELS inline PERGRAD_OWN_KERNELS
#define PERGRAD_VECTOR_BYTES PERGRAD_OWN_VECTOR_BYTES
#define PERGRAD_VECTOR_REGISTERS PERGRAD_OWN_VECTOR_REGISTERS
#include <pergrad/detail/vector_text.hpp>
#undef PERGRAD_KERNELS
#undef PERGRAD_VECTOR_BYTES
#undef PERGRAD_VECTOR_REGISTERS
