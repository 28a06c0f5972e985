// expect-error: layer_rejects_its_input<.*at_layer<1>.*layer_type<same>.*gets<.*of_shape<64>
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

struct same {
#ifndef COMPILE_FAIL_FIXED
  static constexpr bool accepts(pg::shape in) { return in.size() > 100; }
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
using net_type = pg::network<pg::shape{1, 8, 8}, pg::flatten, same, pg::linear<10>>;

#include "whole_program.inc"
