// SPDX-License-Identifier: Apache-2.0
// pergrad/detail/intrinsics.hpp - the compiler's header of vector operations, as small as the flags allow
//
// <immintrin.h> is a third of the text that nvcc reads three times; without AVX, two square roots are all that is used.
#pragma once

#include <pergrad/detail/processor.hpp>

#if defined(__AVX__) || (defined(__x86_64__) && PERGRAD_BEST_FAMILY > 0)
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif
