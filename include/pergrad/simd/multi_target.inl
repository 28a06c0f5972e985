// SPDX-License-Identifier: Apache-2.0
// pergrad/simd/multi_target.inl - a source, compiled once for each target that a program has
//
// Included behind simd/processor.hpp with PERGRAD_FAMILY_TEXT defined as the source's name in quotes, which no macro
// reaches into; without it, it is empty. The target of the flags comes first, then those beyond it, each in its own
// namespace and under its pragma. PERGRAD_OF_FAMILY (simd/processor.hpp) chooses among what the source defines.
#if defined(PERGRAD_FAMILY_TEXT)
#define PERGRAD_FAMILY PERGRAD_OWN_FAMILY
#include <pergrad/simd/multi_target_begin.inl>
// in between
#include PERGRAD_FAMILY_TEXT
// end
#include <pergrad/simd/multi_target_end.inl>
#if PERGRAD_OWN_FAMILY < 1 && PERGRAD_BEST_FAMILY >= 1
#define PERGRAD_FAMILY 1
#include <pergrad/simd/multi_target_begin.inl>
// in between
#include PERGRAD_FAMILY_TEXT
// end
#include <pergrad/simd/multi_target_end.inl>
#endif
#if PERGRAD_OWN_FAMILY < 2 && PERGRAD_BEST_FAMILY >= 2
#define PERGRAD_FAMILY 2
#include <pergrad/simd/multi_target_begin.inl>
// in between
#include PERGRAD_FAMILY_TEXT
// end
#include <pergrad/simd/multi_target_end.inl>
#endif
#undef PERGRAD_FAMILY_TEXT
#endif  // PERGRAD_FAMILY_TEXT
