// SPDX-License-Identifier: Apache-2.0
// pergrad/detail/error_text.hpp - what run-time errors say, put together in one place
//
// Sentences with numbers in them stand in many functions. Made of std::string, each would bring its own copy of string
// code for the compiler to optimise; as a list of pieces a sentence is a few stores and one call.
#pragma once

#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <stdexcept>
#include <type_traits>

namespace pergrad::inline v0_1::detail {

/// A piece of a sentence: text or a number. Implicit, as it stands in lists only.
class text_piece {
 public:
  // NOLINTBEGIN(google-explicit-constructor,cppcoreguidelines-pro-type-member-init): one of a union
  constexpr text_piece(const char* text) noexcept : text_{text} {}
  template <std::signed_integral Integer>
  constexpr text_piece(Integer number) noexcept : kind_{kind::whole}, whole_{number} {}
  template <std::unsigned_integral Integer>
  constexpr text_piece(Integer number) noexcept : kind_{kind::natural}, natural_{number} {}
  template <std::floating_point Real>
  constexpr text_piece(Real number) noexcept
      : kind_{std::is_same_v<Real, float> ? kind::single : kind::real}, real_{static_cast<double>(number)} {}
  // NOLINTEND(google-explicit-constructor,cppcoreguidelines-pro-type-member-init)

  /// Writes it in at most `room` characters, the closing 0 included; returns how many it has in full.
  int write(char* to, std::size_t room) const noexcept {
    switch (kind_) {
      case kind::whole:
        return std::snprintf(to, room, "%lld", whole_);
      case kind::natural:
        return std::snprintf(to, room, "%llu", natural_);
      case kind::single:
      case kind::real:
        return write_real(to, room);
      default:
        return std::snprintf(to, room, "%s", text_);
    }
  }

 private:
  enum class kind { text, whole, natural, single, real };
  /// With as many digits as it takes to tell the number from its neighbours: an error may be about the last one.
  int write_real(char* to, std::size_t room) const noexcept {
    const auto is_read_back = [&](int length) {
      if (length < 0 || static_cast<std::size_t>(length) >= room) return false;
      const double read = std::strtod(to, nullptr);
      return read == real_ || (kind_ == kind::single && static_cast<float>(read) == static_cast<float>(real_));
    };
    if (std::fabs(real_) < 1e15) {
      if (const int length = std::snprintf(to, room, "%f", real_); is_read_back(length)) return length;
    }
    if (const int length = std::snprintf(to, room, "%.9g", real_); is_read_back(length)) return length;
    return std::snprintf(to, room, "%.17g", real_);
  }
  kind kind_ = kind::text;
  // NOLINTBEGIN(readability-identifier-naming): private, although a union says otherwise
  union {
    const char* text_;
    long long whole_;
    unsigned long long natural_;
    double real_;
  };
  // NOLINTEND(readability-identifier-naming)
};

/// A sentence; what is longer than any of this library's is cut off.
struct error_text {
  char text[512] = {};

  [[gnu::cold, gnu::noinline]] error_text(std::initializer_list<text_piece> pieces) noexcept {
    std::size_t used = 0;
    for (const text_piece& piece : pieces) {
      const int length = piece.write(text + used, sizeof text - used);
      used += length > 0 ? static_cast<std::size_t>(length) : 0;
      if (used >= sizeof text) return;
    }
  }
};

[[noreturn, gnu::cold, gnu::noinline]] inline void throw_invalid_argument(std::initializer_list<text_piece> pieces) {
  throw std::invalid_argument(error_text{pieces}.text);
}
[[noreturn, gnu::cold, gnu::noinline]] inline void throw_out_of_range(std::initializer_list<text_piece> pieces) {
  throw std::out_of_range(error_text{pieces}.text);
}
[[noreturn, gnu::cold, gnu::noinline]] inline void throw_logic_error(std::initializer_list<text_piece> pieces) {
  throw std::logic_error(error_text{pieces}.text);
}
[[noreturn, gnu::cold, gnu::noinline]] inline void throw_runtime_error(std::initializer_list<text_piece> pieces) {
  throw std::runtime_error(error_text{pieces}.text);
}

}  // namespace pergrad::inline v0_1::detail
