// SPDX-License-Identifier: Apache-2.0
// pergrad/detail/every_family_text.hpp - a text, compiled once for each family of kernels that a program has
//
// Included behind detail/processor.hpp with PERGRAD_FAMILY_TEXT defined as the text's name in quotes, which no macro
// reaches into; without it, it is empty. The family of the flags comes first, then those beyond it, each in its own
// namespace and under its target. PERGRAD_OF_FAMILY (detail/processor.hpp) chooses among what the text defines.
#if defined(PERGRAD_FAMILY_TEXT)
#define PERGRAD_FAMILY PERGRAD_OWN_FAMILY
#include <pergrad/detail/family_begin_text.hpp>
// in between
#include PERGRAD_FAMILY_TEXT
// end
#include <pergrad/detail/family_end_text.hpp>
#if PERGRAD_OWN_FAMILY < 1 && PERGRAD_BEST_FAMILY >= 1
#define PERGRAD_FAMILY 1
#include <pergrad/detail/family_begin_text.hpp>
// in between
#include PERGRAD_FAMILY_TEXT
// end
#include <pergrad/detail/family_end_text.hpp>
#endif
#if PERGRAD_OWN_FAMILY < 2 && PERGRAD_BEST_FAMILY >= 2
#define PERGRAD_FAMILY 2
#include <pergrad/detail/family_begin_text.hpp>
// in between
#include PERGRAD_FAMILY_TEXT
// end
#include <pergrad/detail/family_end_text.hpp>
#endif
#undef PERGRAD_FAMILY_TEXT
#endif  // PERGRAD_FAMILY_TEXT
