// expect-error: no_derivative<.*at_layer<1>.*layer_type<square>
// slip: PyTorch, autograd finds the derivative
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

struct square {
  template <class Value>
  static Value value(Value x) {
    return x * x;
  }
#ifdef COMPILE_FAIL_FIXED
  template <class Value>
  static Value derivative(Value x, Value /*y*/) {
    return x + x;
  }
#endif
};
using net_type = pg::network<pg::shape{1, 8, 8}, pg::flatten, square, pg::linear<10>>;

#include "whole_program.inc"
