// SPDX-License-Identifier: Apache-2.0
// pergrad/simd/multi_target_begin.inl - opens a target: its names, the widths of its vectors, its pragma
//
// Included behind simd/processor.hpp with PERGRAD_TARGET defined as the target's number; without it, it is empty.
// Then comes a source for that target, and simd/multi_target_end.inl closes it (simd/multi_target.inl does all of
// it). The pragma holds for the functions in between. The target of the flags needs none, and its namespace is inline.
#if defined(PERGRAD_TARGET)
#if PERGRAD_TARGET == PERGRAD_OWN_TARGET
#define PERGRAD_KERNELS inline PERGRAD_OWN_KERNELS
#define PERGRAD_VECTOR_BYTES PERGRAD_OWN_VECTOR_BYTES
#define PERGRAD_VECTOR_REGISTERS PERGRAD_OWN_VECTOR_REGISTERS
#elif PERGRAD_TARGET == 1
#define PERGRAD_KERNELS avx2
#define PERGRAD_VECTOR_BYTES 32
#define PERGRAD_VECTOR_REGISTERS 16
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif
#elif PERGRAD_TARGET == 2
#define PERGRAD_KERNELS avx512
#define PERGRAD_VECTOR_BYTES 64
#define PERGRAD_VECTOR_REGISTERS 32
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,avx512f,avx512cd,avx512vl,avx512dq,avx512bw"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,avx512f,avx512cd,avx512vl,avx512dq,avx512bw")
#endif
#endif
#endif  // PERGRAD_TARGET
