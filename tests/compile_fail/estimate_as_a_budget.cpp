// expect-error: estimate_as_bound<pergrad::(v0_1::)?estimate>
// SPDX-License-Identifier: Apache-2.0
#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

int main() {
  pg::pld_accountant ledger;
  ledger.record({0.01, 1.0}, 1000);
#ifdef COMPILE_FAIL_FIXED
  const pg::privacy_budget budget{pg::epsilon{ledger.epsilon(pg::delta{1e-5})}, pg::delta{1e-5}};
#else
  const pg::privacy_budget budget{pg::epsilon{pg::gdp_epsilon(ledger.ledger(), pg::delta{1e-5})}, pg::delta{1e-5}};
#endif
  return pg::privacy_accountant{budget}.within({0.01, 1.0}) ? 0 : 1;
}
