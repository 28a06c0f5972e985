// expect-error: event_of_another_sampler<.*sampled_gaussian_event, .*replace_one_gaussian_event
// SPDX-License-Identifier: Apache-2.0
#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

int main() {
  const pg::replace_one_poisson_sampling sampling{pg::sampling_probability{0.01}};
#ifdef COMPILE_FAIL_FIXED
  pg::basic_privacy_accountant<pg::replace_one_gaussian_event> ledger;
#else
  pg::privacy_accountant ledger;
#endif
  ledger.spend(sampling.event(pg::noise_multiplier{1.0}));
}
