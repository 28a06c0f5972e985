// SPDX-License-Identifier: Apache-2.0
// examples/common/utf8.hpp - the code points of a text in UTF-8, one by one
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace example {

struct code_point {
  char32_t code;
  std::size_t size;  ///< bytes
};
/// The code point with which a text begins; none where no UTF-8 begins there.
[[nodiscard]] inline std::optional<code_point> first_code_point(std::string_view text) {
  const auto byte = [&](std::size_t i) -> unsigned {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const unsigned first = byte(0);
  if (text.empty() || (first >= 0x80 && first < 0xc2) || first > 0xf4) return std::nullopt;
  const std::size_t size = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  unsigned code = size == 1 ? first : first & (0x7fU >> size);
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0U) != 0x80U) return std::nullopt;
    code = code << 6U | (byte(i) & 0x3fU);
  }
  constexpr unsigned least[]{0, 0, 0x80, 0x800, 0x10000};
  const bool is_surrogate = code >= 0xd800 && code <= 0xdfff;
  if (code < least[size] || code > 0x10ffff || is_surrogate) return std::nullopt;
  return code_point{code, size};
}

}  // namespace example
