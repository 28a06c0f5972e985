// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/noise/lanes.hpp - a few machine vectors of 32-bit words with exactly rounded fma and square root.
//
// Built on the vector extension of g++ and clang. Everything that depends on rounding is one IEEE-754 operation: fma
// and sqrt are correctly rounded, so one lane or sixteen, with or without FMA hardware, any compiler: the same bits. A
// sum with a product is never written as `a * b + c`, which a compiler may or may not contract.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#if defined(__aarch64__)
#include <arm_neon.h>
#endif

#include <pergrad/detail/host_device.hpp>
#include <pergrad/detail/no_fast_math.hpp>
#include <pergrad/simd/processor.hpp>

#define PERGRAD_FAMILY_TEXT "pergrad/privacy/noise/lanes.inl"
#include <pergrad/simd/multi_target.inl>
