// expect-error: (is private within this context|calling a private constructor)
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
  struct own_rule : pg::detail::flat_clip {
    [[nodiscard]] double sensitivity() const noexcept { return 1e-9; }
  };
  const auto g = pg::per_sample_gradients(net, pg::cross_entropy{}, samples, tape);
#ifdef COMPILE_FAIL_FIXED
  evaluate_into(exec, update, sum(clip(g, bound)) + gaussian_noise(sigma, rng));
#else
  const pg::clipped_gradients<std::remove_cvref_t<decltype(g)>, own_rule> clipped{g, own_rule{{1000}}};
#endif
}
