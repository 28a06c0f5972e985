// SPDX-License-Identifier: Apache-2.0
// tests/total_probe.hpp - what lies un-noised in a total, for tests of what is added up
#pragma once

#include <pergrad/expressions/totals.hpp>

namespace pergrad::inline v0_1::detail {

/// Named as a friend by the library, which does not define it.
struct total_probe {
  template <class Network>
  [[nodiscard]] static auto sum_of(const bounded_total<Network>& total) noexcept {
    return total_access::sum_of(total);
  }
  template <class Network>
  [[nodiscard]] static const total_state& state(const bounded_total<Network>& total) noexcept {
    return total_access::state(total);
  }
};

}  // namespace pergrad::inline v0_1::detail
