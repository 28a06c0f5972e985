// SPDX-License-Identifier: Apache-2.0
// tests/consume/main.cpp - the program that is built against the library in each of the ways a user can get it.
#include <cstdio>
#include <string>

#include <pergrad.hpp>

int main() {
  const std::string numbers = std::to_string(PERGRAD_VERSION_MAJOR) + "." + std::to_string(PERGRAD_VERSION_MINOR) +
                              "." + std::to_string(PERGRAD_VERSION_PATCH);
  std::printf("pergrad %s\n", numbers.c_str());
  return numbers == pergrad::version ? 0 : 1;
}
