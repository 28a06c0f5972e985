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

#define PERGRAD_FAMILY_TEXT "pergrad/detail/vector_text.hpp"
#include <pergrad/detail/every_family_text.hpp>
