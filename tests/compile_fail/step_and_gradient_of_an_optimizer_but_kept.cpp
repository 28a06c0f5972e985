// expect-error: step_is_used_up_by_a_release<.*private_loop<
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
  pg::private_options options;
  options.clip = bound;
  options.noise = sigma;
  options.sampling = pg::poisson_sampling{pg::sampling_probability{0.5}};
  options.divisor = pg::expected_batch_size{2};
  pg::private_loop loop{exec, net, pg::cross_entropy{}, options};
  auto step = loop.begin(pg::dataset<float, std::int32_t>{pixels, labels, net_type::input_shape});
  while (step.next()) evaluate_into(exec, accumulate(step, sum(clip(step.gradients(), bound))));
  pg::sgd<net_type> optimizer{pg::learning_rate{0.1}};
#ifdef COMPILE_FAIL_FIXED
  optimizer.step(exec, net, update, std::move(step));
#else
  optimizer.step(exec, net, update, step);
#endif
}
