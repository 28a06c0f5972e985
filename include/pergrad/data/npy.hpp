// SPDX-License-Identifier: Apache-2.0
// pergrad/data/npy.hpp - the header of an NPY file, and arrays of small integers in one
//
// Format (numpy.lib.format, https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html):
//
//   offset 0  6 bytes  0x93 'N' 'U' 'M' 'P' 'Y'
//   offset 6  2 bytes  version 1.0, 2.0 or 3.0
//   offset 8  2 bytes (version 1.0) or 4 bytes, little-endian: size of the header text
//   then      text     a Python dictionary with the keys 'descr' (a string here), 'fortran_order' and 'shape'
//   then      data     as the header says
//
// Python 2 wrote some extents as 25000L.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <pergrad/data/idx.hpp>

namespace pergrad::inline v0_1::detail::npy {

struct header {
  std::string descr;  ///< NumPy's type string, such as "<i8" or "|O"
  bool fortran_order = false;
  std::vector<std::size_t> shape;
  std::size_t size = 0;  ///< offset of the data
};

/// Reads the three entries of the dictionary; every other key is refused.
class header_parser {
 public:
  /// `text` are bytes `offset` and following of the file `name`, which errors speak of.
  header_parser(std::string_view text, std::size_t offset, std::string_view name) noexcept
      : text_{text}, offset_{offset}, name_{name} {}

  [[nodiscard]] header parse() {
    header made;
    std::array<bool, 3> seen{};
    expect('{');
    while (!accept('}')) {
      const std::string key = string();
      expect(':');
      std::size_t which = 0;
      if (key == "descr") {
        made.descr = string();
      } else if (key == "fortran_order") {
        which = 1;
        made.fortran_order = boolean();
      } else if (key == "shape") {
        which = 2;
        made.shape = extents();
      } else {
        fail("found the key '" + key + "', expected 'descr', 'fortran_order' or 'shape'");
      }
      if (seen[which]) {
        fail("found the key '" + key + "' twice");
      }
      seen[which] = true;
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_spaces();
    if (place_ != text_.size()) {
      fail("found more after the header's dictionary");
    }
    if (!(seen[0] && seen[1] && seen[2])) {
      fail("the header ends without all of 'descr', 'fortran_order' and 'shape'");
    }
    return made;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { idx::throw_error(name_, offset_ + place_, what); }

  void skip_spaces() noexcept {
    while (place_ < text_.size() && (text_[place_] == ' ' || text_[place_] == '\n')) {
      ++place_;
    }
  }

  [[nodiscard]] bool accept(char character) {
    skip_spaces();
    const bool found = place_ < text_.size() && text_[place_] == character;
    place_ += found ? std::size_t{1} : std::size_t{0};
    return found;
  }

  void expect(char character) {
    if (!accept(character)) {
      fail(std::string("expected '") + character + "' in the header");
    }
  }

  [[nodiscard]] std::string string() {
    expect('\'');
    const std::size_t end = text_.find_first_of("'\\\n", place_);
    if (end == std::string_view::npos || text_[end] != '\'') {
      fail("expected a simple string in the header");
    }
    std::string found(text_.substr(place_, end - place_));
    place_ = end + 1;
    return found;
  }

  [[nodiscard]] bool boolean() {
    skip_spaces();
    for (const std::string_view word : {std::string_view("True"), std::string_view("False")}) {
      if (text_.substr(place_).starts_with(word)) {
        place_ += word.size();
        return word == "True";
      }
    }
    fail("expected True or False in the header");
  }

  [[nodiscard]] std::vector<std::size_t> extents() {
    constexpr std::size_t most = 32;  // NumPy's own limit was 32 dimensions for long
    std::vector<std::size_t> shape;
    expect('(');
    while (!accept(')')) {
      shape.push_back(number());
      if (shape.size() > most) {
        fail("expected at most 32 dimensions");
      }
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return shape;
  }

  [[nodiscard]] std::size_t number() {
    skip_spaces();
    const std::size_t start = place_;
    std::size_t value = 0;
    for (; place_ < text_.size() && text_[place_] >= '0' && text_[place_] <= '9'; ++place_) {
      const auto digit = static_cast<std::size_t>(text_[place_] - '0');
      if (value > (std::numeric_limits<std::size_t>::max() - digit) / 10) {
        fail("an extent of the shape overflows");
      }
      value = value * 10 + digit;
    }
    if (place_ == start) {
      fail("expected an extent in the shape");
    }
    if (place_ < text_.size() && text_[place_] == 'L') {
      ++place_;
    }
    return value;
  }

  std::string_view text_;
  std::size_t offset_;
  std::string_view name_;
  std::size_t place_ = 0;
};

/// The header of an NPY file. Throws std::runtime_error naming the file, the offset and what was expected there.
[[nodiscard]] inline header parse_header(std::span<const std::uint8_t> bytes, std::string_view name) {
  constexpr std::array<std::uint8_t, 6> magic{0x93, 'N', 'U', 'M', 'P', 'Y'};
  const auto short_of = [&](std::size_t expected) {
    idx::throw_error(name, bytes.size(),
                     "the file ends inside the NPY header, expected " + std::to_string(expected) + " bytes of it");
  };
  if (bytes.size() < 10) {
    short_of(10);
  }
  if (!std::equal(magic.begin(), magic.end(), bytes.begin())) {
    idx::throw_error(name, 0, "expected the magic number of an NPY file");
  }
  if (bytes[6] < 1 || bytes[6] > 3 || bytes[7] != 0) {
    idx::throw_error(name, 6,
                     "found NPY version " + std::to_string(bytes[6]) + "." + std::to_string(bytes[7]) +
                         ", expected 1.0, 2.0 or 3.0");
  }
  const std::size_t start = bytes[6] == 1 ? 10 : 12;
  if (bytes.size() < start) {
    short_of(start);
  }
  std::size_t length = 0;
  for (std::size_t place = start; place > 8; --place) {
    length = (length << 8U) | bytes[place - 1];
  }
  if (bytes.size() - start < length) {
    short_of(start + length);
  }
  std::string text;
  for (const std::uint8_t byte : bytes.subspan(start, length)) {
    text += static_cast<char>(byte);
  }
  header made = header_parser(text, start, name).parse();
  made.size = start + length;
  return made;
}

/// A one-dimensional array of type <i8 or <i4. Throws std::runtime_error for any other array and for values outside
/// `lowest` ... `highest`.
[[nodiscard]] inline std::vector<std::int32_t> parse_integers(std::span<const std::uint8_t> bytes,
                                                              std::string_view name, std::int32_t lowest,
                                                              std::int32_t highest) {
  const header head = parse_header(bytes, name);
  if ((head.descr != "<i8" && head.descr != "<i4") || head.shape.size() != 1) {
    idx::throw_error(name, 0,
                     "found a " + std::to_string(head.shape.size()) + "-dimensional array of type " + head.descr +
                         ", expected 1 dimension of <i8 or <i4");
  }
  const std::size_t width = head.descr == "<i8" ? 8 : 4;
  const auto data = bytes.subspan(head.size);
  const std::size_t count = head.shape[0];
  if (data.size() % width != 0 || data.size() / width != count) {
    idx::throw_error(name, head.size,
                     "found " + std::to_string(data.size()) + " bytes of data, expected " + std::to_string(count) +
                         " integers of " + std::to_string(width));
  }
  std::vector<std::int32_t> values;
  values.reserve(count);
  for (std::size_t index = 0; index < count; ++index) {
    std::uint64_t bits = 0;
    for (std::size_t place = width; place > 0; --place) {
      bits = (bits << 8U) | data[index * width + place - 1];
    }
    const auto value = width == 8 ? static_cast<std::int64_t>(bits) : std::int64_t{static_cast<std::int32_t>(bits)};
    if (value < lowest || value > highest) {
      idx::throw_error(
          name, head.size + index * width,
          "found " + std::to_string(value) + ", expected " + std::to_string(lowest) + " to " + std::to_string(highest));
    }
    values.push_back(static_cast<std::int32_t>(value));
  }
  return values;
}

}  // namespace pergrad::inline v0_1::detail::npy
