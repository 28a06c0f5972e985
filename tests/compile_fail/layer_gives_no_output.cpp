// expect-error: layer_gives_no_output<.*at_layer<2>.*layer_type<scale>.*gets<.*of_shape<64>
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <span>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "scale_layer.inc"

struct scale : scale_passes, scale_parameters, scale_factors {
#ifdef COMPILE_FAIL_FIXED
  static constexpr pg::shape output_shape(pg::shape in) { return in; }
#else
  static constexpr pg::shape output_shape(pg::shape in) { return {in.e0 / 100}; }
#endif
};

#include "scale_program.inc"
