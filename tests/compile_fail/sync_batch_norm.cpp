// expect-error: mixes_samples<.*at_layer<1>.*sync_batch_norm
// slip: Opacus, ModuleValidator refuses SyncBatchNorm
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
using net_type = pg::network<pg::shape{1, 8, 8}, pg::conv2d<2, 3>, pg::group_norm<2>, pg::flatten, pg::linear<10>>;
#else
using net_type = pg::network<pg::shape{1, 8, 8}, pg::conv2d<2, 3>, pg::sync_batch_norm, pg::flatten, pg::linear<10>>;
#endif

#include "whole_program.inc"
