// expect-error: loss_has_no_device_code<.*first_output
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <pergrad/pergrad.hpp>
// behind it: the way to an error is shorter then
#include <pergrad/cuda/run/executor.hpp>

namespace pg = pergrad;

// The loss is the first output, whatever the target.
struct first_output {
  template <class Scalar>
  using target = std::int32_t;
  static constexpr std::size_t target_count(pg::shape) { return 1; }
  static constexpr bool accepts(pg::shape) { return true; }
  static constexpr bool valid(pg::shape, std::span<const std::int32_t>) { return true; }
  template <class Scalar>
  static double evaluate(std::span<const Scalar> y, std::span<const std::int32_t> targets, std::span<Scalar> dy) {
    return evaluate(y.data(), y.size(), targets.data(), dy.data());
  }
#ifdef COMPILE_FAIL_FIXED
  static constexpr bool on_device = true;
#endif
  template <class Scalar>
  PERGRAD_HD static double evaluate(const Scalar* y, std::size_t count, const std::int32_t* /*targets*/, Scalar* dy) {
    for (std::size_t i = 0; i < count; ++i) dy[i] = i == 0 ? Scalar{1} : Scalar{0};
    return static_cast<double>(y[0]);
  }
};
using net_type = pg::network<pg::shape{8}, pg::linear<4>, pg::relu, pg::linear<3>>;
using loss_type = first_output;

#include "device_program.inc"
