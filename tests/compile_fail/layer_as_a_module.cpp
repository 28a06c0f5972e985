// expect-error: no_output_shape<.*at_layer<1>.*layer_type<doubled>
// slip: PyTorch, a module is a forward
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

struct doubled {
#ifdef COMPILE_FAIL_FIXED
  template <class Value>
  static Value value(Value x) {
    return x + x;
  }
  template <class Value>
  static Value derivative(Value /*x*/, Value /*y*/) {
    return Value{} + 2;
  }
#else
  std::vector<float> forward(const std::vector<float>& x) const { return x; }
#endif
};
using net_type = pg::network<pg::shape{1, 8, 8}, pg::flatten, doubled, pg::linear<10>>;

#include "whole_program.inc"
