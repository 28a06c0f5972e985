// expect-error: mixes_samples<.*at_layer<2>.*layer_type<scale>.*gets<.*of_shape<64>
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <span>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "scale_layer.inc"

struct scale : scale_passes, scale_shape, scale_parameters, scale_factors {
#ifndef COMPILE_FAIL_FIXED
  static constexpr bool mixes_samples = true;
#endif
};

#include "scale_program.inc"
