// SPDX-License-Identifier: Apache-2.0
// pergrad/detail/vector.hpp - the widest vectors that the build's flags allow, and which kernels a program has
//
// Three families of kernels exist for x86-64: avx512, avx2 (with fused multiply-add) and baseline, which is whatever
// the flags allow below that. The family of the flags, and what goes beyond it, is compiled; host/tile.hpp chooses
// among them when the program runs. Everything else uses the vectors of the flags, which are named here. Other
// processors have one family, the baseline.
#pragma once

#include <cstddef>
#include <cstring>
#include <type_traits>

#include <pergrad/detail/processor.hpp>

#define PERGRAD_FAMILY PERGRAD_OWN_FAMILY
#include <pergrad/detail/family_begin_text.hpp>
// its kernels
#include <pergrad/detail/vector_text.hpp>
// end
#include <pergrad/detail/family_end_text.hpp>
