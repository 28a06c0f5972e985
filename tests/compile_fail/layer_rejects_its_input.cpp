// expect-error: layer_rejects_its_input<.*at_layer<2>.*layer_type<scale>.*gets<.*of_shape<64>
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <span>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "scale_layer.inc"

struct scale : scale_passes, scale_shape, scale_parameters, scale_factors {
#ifndef COMPILE_FAIL_FIXED
  static constexpr bool accepts(pg::shape in) { return in.size() > 100; }
#endif
};

#include "scale_program.inc"
