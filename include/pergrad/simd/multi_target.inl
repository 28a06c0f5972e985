// SPDX-License-Identifier: Apache-2.0
// pergrad/simd/multi_target.inl - a source, compiled once for each target that a program has
//
// Included behind simd/processor.hpp with PERGRAD_TARGET_SOURCE defined as the source's name in quotes, which no macro
// reaches into; without it, it is empty. The target of the flags comes first, then those beyond it, each in its own
// namespace and under its pragma. PERGRAD_OF_TARGET (simd/processor.hpp) chooses among what the source defines.
#if defined(PERGRAD_TARGET_SOURCE)
#define PERGRAD_TARGET PERGRAD_OWN_TARGET
#include <pergrad/simd/multi_target_begin.inl>
// in between
#include PERGRAD_TARGET_SOURCE
// end
#include <pergrad/simd/multi_target_end.inl>
#if PERGRAD_OWN_TARGET < 1 && PERGRAD_BEST_TARGET >= 1
#define PERGRAD_TARGET 1
#include <pergrad/simd/multi_target_begin.inl>
// in between
#include PERGRAD_TARGET_SOURCE
// end
#include <pergrad/simd/multi_target_end.inl>
#endif
#if PERGRAD_OWN_TARGET < 2 && PERGRAD_BEST_TARGET >= 2
#define PERGRAD_TARGET 2
#include <pergrad/simd/multi_target_begin.inl>
// in between
#include PERGRAD_TARGET_SOURCE
// end
#include <pergrad/simd/multi_target_end.inl>
#endif
#undef PERGRAD_TARGET_SOURCE
#endif  // PERGRAD_TARGET_SOURCE
