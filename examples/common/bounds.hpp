// SPDX-License-Identifier: Apache-2.0
// examples/common/bounds.hpp - bounds as text: what is printed of an upper bound is never less, of a lower one never
// more
#pragma once

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace example {

[[nodiscard]] inline std::string nearest(double value, int decimals) {
  char text[400];  // the largest double has 309 digits in front of the point
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}

/// The smallest text of so many decimals that is read as a number of at least `value`, such as an epsilon spent.
[[nodiscard]] inline std::string rounded_up(double value, int decimals) {
  const std::string text = nearest(value, decimals);
  const double read = std::strtod(text.c_str(), nullptr);
  return read < value ? nearest(read + std::pow(10.0, -decimals), decimals) : text;
}
/// The largest one of at most `value`, such as an epsilon that an audit has proven.
[[nodiscard]] inline std::string rounded_down(double value, int decimals) {
  const std::string text = nearest(value, decimals);
  const double read = std::strtod(text.c_str(), nullptr);
  return read > value ? nearest(read - std::pow(10.0, -decimals), decimals) : text;
}

}  // namespace example
