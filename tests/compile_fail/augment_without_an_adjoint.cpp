// expect-error: option_not_offered<.*at_layer<0>.*layer_type<.*augment<darker>
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <span>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

struct darker {
  template <class Scalar>
  static void apply(const pg::shape& in, const std::uint32_t*, const Scalar* x, Scalar* y) {
    std::transform(x, x + in.size(), y, [](Scalar value) { return value / 2; });
  }
#ifdef COMPILE_FAIL_FIXED
  template <class Scalar>
  static void adjoint(const pg::shape& in, const std::uint32_t* words, const Scalar* dy, Scalar* dx) {
    apply(in, words, dy, dx);
  }
#endif
};
using net_type = pg::network<pg::shape{1, 8, 8}, pg::augment<darker>, pg::flatten, pg::linear<10>>;

#include "whole_program.inc"
