// expect-error: records_may_be_private<.*vector<float
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#include "small_program.inc"

int main() {
#ifdef COMPILE_FAIL_FIXED
  return predict(exec, net, pg::public_records{pixels}).size() + pg::unprotected::predict(exec, net, pixels).size() > 1;
#else
  return predict(exec, net, pixels).size() > 1;
#endif
}
