// expect-error: scalar_not_offered<long double>
// slip: PyTorch, model.half()
// SPDX-License-Identifier: Apache-2.0
#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
using mine = pg::basic_network<double, pg::shape{4}, pg::linear<2>>;
#else
using mine = pg::basic_network<long double, pg::shape{4}, pg::linear<2>>;
#endif

int main() {
  const pg::host exec;
  const mine net{exec, pg::kaiming_uniform{1}};
  return net.parameters().empty() ? 1 : 0;
}
