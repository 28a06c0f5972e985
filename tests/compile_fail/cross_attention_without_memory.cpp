// expect-error: branches_not_given<.*at_layer<0>.*layer_type<.*cross_attention<2
// expect-error: pergrad::queries<layers...>, pergrad::memory<layers...> and then its options
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
using attention = pg::cross_attention<2, pg::queries<>, pg::memory<>>;
#else
using attention = pg::cross_attention<2, pg::queries<>>;
#endif

using net_type = pg::network<pg::shape{4, 8}, attention, pg::flatten, pg::linear<10>>;

#include "whole_program.inc"
