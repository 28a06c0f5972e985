// expect-error: element_function_changes_shape<.*at_layer<1>.*layer_type<cut>.*gets<.*of_shape<64>
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

struct cut {
  template <class Value>
  static Value value(Value x) {
    return x;
  }
  template <class Value>
  static Value derivative(Value x, Value) {
    return x - x + 1;
  }
#ifndef COMPILE_FAIL_FIXED
  static constexpr pg::shape output_shape(pg::shape in) { return {in.e0 / 2}; }
#endif
};
using net_type = pg::network<pg::shape{1, 8, 8}, pg::flatten, cut, pg::linear<10>>;

#include "whole_program.inc"
