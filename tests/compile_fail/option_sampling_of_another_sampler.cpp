// expect-error: option_of_another_sampler<.*poisson_sampling, .*fixed_size_sampling
// slip: Opacus, a data loader whose batches have a fixed size
// SPDX-License-Identifier: Apache-2.0
#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

int main() {
#ifdef COMPILE_FAIL_FIXED
  pg::dp_options<pg::fixed_size_sampling> made;
#else
  pg::dp_sgd_options made;
#endif
  made.sampling = pg::fixed_size_sampling{pg::batch_size{64}, pg::public_record_count{1000}};
}
