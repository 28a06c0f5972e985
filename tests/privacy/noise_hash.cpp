// SPDX-License-Identifier: Apache-2.0
// tests/privacy/noise_hash.cpp - prints the noise hash of this build; exit code 1 when it is not the pinned one.
#include <cstdio>

#include "rounded_gaussian_golden.hpp"

int main() {
  const auto hash = noise_golden::noise_hash<pergrad::detail::native_lanes>();
  std::printf("0x%016llx, %d lanes\n", static_cast<unsigned long long>(hash), pergrad::detail::native_lanes);
  if (hash == noise_golden::expected) return 0;
  std::printf("expected 0x%016llx\n", static_cast<unsigned long long>(noise_golden::expected));
  return 1;
}
