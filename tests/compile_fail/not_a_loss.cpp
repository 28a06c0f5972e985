// expect-error: not_a_loss<absolute>
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

struct absolute {
  template <class Scalar>
  using target = std::int32_t;
  static constexpr std::size_t target_count(pg::shape) { return 1; }
  static constexpr bool accepts(pg::shape) { return true; }
#ifdef COMPILE_FAIL_FIXED
  static constexpr bool valid(pg::shape, std::span<const std::int32_t>) { return true; }
#endif
  template <class Scalar>
  static double evaluate(std::span<const Scalar> y, std::span<const std::int32_t>, std::span<Scalar> dy) {
    for (Scalar& value : dy) value = 0;
    return static_cast<double>(y[0]);
  }
};

int main() {
#ifdef COMPILE_FAIL_FIXED

#else

#endif
  const pg::batch<net_type, absolute> others{pixels, labels};
  const auto g = pg::per_sample_gradients(net, absolute{}, others, tape);
  evaluate_into(exec, update, sum(clip(g, bound)) + gaussian_noise(sigma, rng));
  pg::unprotected::evaluate_into(exec, numbers, l2_norms(g) / 2.0);
}
