// SPDX-License-Identifier: Apache-2.0
// tests/cuda/nvcc/check.hpp - checks for tests that nvcc compiles, which takes too long with a test framework
#pragma once

#include <cstdio>
#include <exception>
#include <string>

namespace check {

inline int failures = 0;

inline void that(bool holds, const char* text, const char* file, int line) {
  if (holds) return;
  ++failures;
  std::printf("%s:%d: does not hold: %s\n", file, line, text);
}

/// What f throws, as text; empty if it throws nothing.
template <class Exception, class Function>
[[nodiscard]] std::string thrown_by(Function&& f) {
  try {
    f();
  } catch (const Exception& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string{"another exception: "} + error.what();
  }
  return {};
}

/// The program's exit code.
[[nodiscard]] inline int result() {
  std::printf(failures == 0 ? "all checks hold\n" : "%d checks do not hold\n", failures);
  return failures == 0 ? 0 : 1;
}

}  // namespace check

#define CHECK(...) check::that((__VA_ARGS__), #__VA_ARGS__, __FILE__, __LINE__)
