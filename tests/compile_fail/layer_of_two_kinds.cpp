// expect-error: layer_of_two_kinds<.*at_layer<2>.*layer_type<scale>.*gets<.*of_shape<64>
// SPDX-License-Identifier: Apache-2.0
// A layer with parameters whose helpers have the names of an elementwise layer's functions.
#include <cstddef>
#include <span>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "scale_layer.inc"

struct scale : scale_passes, scale_shape, scale_parameters, scale_factors {
#ifdef COMPILE_FAIL_FIXED

 private:
#endif
  template <class Value>
  static Value value(Value x) {
    return x;
  }
  template <class Value>
  static Value derivative(Value x, Value /*y*/) {
    return x - x + 1;
  }
};

#include "scale_program.inc"
