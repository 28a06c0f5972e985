// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/lanes.hpp - a few machine vectors of 32-bit words with exactly rounded fma and square root.
//
// Built on the vector extension of g++ and clang. Everything that depends on rounding is one IEEE-754 operation: fma
// and sqrt are correctly rounded, so one lane or sixteen, with or without FMA hardware, any compiler: the same bits. A
// sum with a product is never written as `a * b + c`, which a compiler may or may not contract.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <pergrad/detail/host_device.hpp>
#include <pergrad/detail/intrinsics.hpp>
#include <pergrad/detail/no_fast_math.hpp>
#include <pergrad/detail/processor.hpp>

// Of the family of the flags; privacy/noise.hpp has those beyond it.
#define PERGRAD_KERNELS inline PERGRAD_OWN_KERNELS
#define PERGRAD_FAMILY PERGRAD_OWN_FAMILY
#define PERGRAD_VECTOR_BYTES PERGRAD_OWN_VECTOR_BYTES
#include <pergrad/privacy/lanes_text.hpp>
#undef PERGRAD_KERNELS
#undef PERGRAD_FAMILY
#undef PERGRAD_VECTOR_BYTES
