// expect-error: layer_is_not_on_devices_yet<.*layer_norm
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <pergrad/cuda/run/executor.hpp>
#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
using net_type = pg::network<pg::shape{8}, pg::linear<4>, pg::linear<3>>;
#else
using net_type = pg::network<pg::shape{8}, pg::linear<4>, pg::layer_norm<>, pg::linear<3>>;
#endif
using loss_type = pg::cross_entropy;

#include "device_program.inc"
