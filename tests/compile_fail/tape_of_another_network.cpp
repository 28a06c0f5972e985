// expect-error: tape_does_not_fit<.*static_network<float, .*linear<10>.*tape<.*linear<3>
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

using other_type = pg::network<pg::shape{1, 8, 8}, pg::flatten, pg::linear<3>>;
other_type other{exec, pg::zeros{}};
other_type::tape other_tape{exec, pg::max_batch{2}};

int main() {
#ifdef COMPILE_FAIL_FIXED
  const auto g = pg::per_sample_gradients(net, pg::cross_entropy{}, samples, tape);
#else
  const auto g = pg::per_sample_gradients(net, pg::cross_entropy{}, samples, other_tape);
#endif
  evaluate_into(exec, update, sum(clip(g, bound)) + gaussian_noise(sigma, rng));
  pg::unprotected::evaluate_into(exec, numbers, l2_norms(g) / 2.0);
}
