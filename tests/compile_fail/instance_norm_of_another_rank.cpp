// expect-error: needs_channels_and_positions<.*at_layer<0>.*instance_norm1d<>
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
using net_type = pg::network<pg::shape{1, 8, 8}, pg::instance_norm2d<>, pg::flatten, pg::linear<10>>;
#else
using net_type = pg::network<pg::shape{1, 8, 8}, pg::instance_norm1d<>, pg::flatten, pg::linear<10>>;
#endif

#include "whole_program.inc"
