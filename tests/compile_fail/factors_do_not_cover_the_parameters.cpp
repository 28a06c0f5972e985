// expect-error: factors_do_not_cover_the_parameters<.*at_layer<2>.*layer_type<scale>.*count<64.*count<65
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <span>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "scale_layer.inc"

struct scale : scale_passes, scale_shape, scale_factors {
#ifdef COMPILE_FAIL_FIXED
  static constexpr std::size_t parameter_count(pg::shape in) { return in.size(); }
#else
  static constexpr std::size_t parameter_count(pg::shape in) { return in.size() + 1; }
#endif
};

#include "scale_program.inc"
