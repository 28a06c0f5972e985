// expect-error: layer_has_no_device_code<.*doubled
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <pergrad/cuda/run/executor.hpp>
#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

// y = 2 x, with functions that only the host can call
struct doubled {
#ifdef COMPILE_FAIL_FIXED
  static constexpr bool on_device = true;
#endif
  template <class Value>
  PERGRAD_HD static Value value(Value x) noexcept {
    return x + x;
  }
  template <class Value>
  PERGRAD_HD static Value derivative(Value /*x*/, Value /*y*/) noexcept {
    return Value{} + 2;
  }
};
using net_type = pg::network<pg::shape{8}, pg::linear<4>, doubled, pg::linear<3>>;
using loss_type = pg::cross_entropy;

#include "device_program.inc"
