// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/noise/lanes.hpp - vectors of 32-bit words, on the vector extension of g++ and clang
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
