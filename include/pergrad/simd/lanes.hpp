// SPDX-License-Identifier: Apache-2.0
// pergrad/simd/lanes.hpp - what lets one template serve a scalar and a whole vector register.
//
// A value is float, double, or a vector of either made by the compiler's vector extension (vector_size), no wider than
// the machine's registers: wider ones compile to slow code and -Wpsabi says so. Every function works lane by lane and
// without branches: a choice computes both sides and selects bits, so that a lane does the same operations as a scalar.
// The bits are then equal too if a*b+c is rounded once in both or twice in both. That is the compiler's choice
// (-ffp-contract): clang decides expression by expression; g++ decides basic block by basic block and may move a result
// that is not needed yet, so load, evaluate and store in one loop body, as elementwise layers do. Loops that add
// products up do not leave it to the compiler: on_host::multiply_add (simd/vector.inl).
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <pergrad/detail/host_device.hpp>

namespace pergrad::inline v0_1::math {
namespace detail {

template <class Value>
struct value_traits {
  using element = std::remove_cvref_t<decltype(std::declval<Value&>()[0])>;
  using word = std::conditional_t<sizeof(element) == 4, std::uint32_t, std::uint64_t>;
  typedef word bits __attribute__((vector_size(sizeof(Value))));
  static constexpr bool is_vector = true;
};

template <class Element, class Word>
struct scalar_traits {
  using element = Element;
  using word = Word;
  using bits = Word;
  static constexpr bool is_vector = false;
};

template <>
struct value_traits<float> : scalar_traits<float, std::uint32_t> {};

template <>
struct value_traits<double> : scalar_traits<double, std::uint64_t> {};

/// The unsigned integer as wide as one element.
template <class Value>
using word_t = typename value_traits<Value>::word;

/// Its scalar or vector, as wide as `Value`.
template <class Value>
using bits_t = typename value_traits<Value>::bits;

}  // namespace detail

/// float or double: what one lane of `Value` holds.
template <class Value>
using element_t = typename detail::value_traits<Value>::element;

/// Whether `Value` is a vector of the compiler's vector extension.
template <class Value>
inline constexpr bool is_vector_v = detail::value_traits<Value>::is_vector;

/// How many elements a `Value` holds; 1 for a scalar.
template <class Value>
inline constexpr std::size_t lanes_v = sizeof(Value) / sizeof(element_t<Value>);

/// `element` in every lane: constants, and what a choice must put against a vector.
template <class Value>
[[nodiscard, gnu::always_inline]] PERGRAD_HD inline Value splat(element_t<Value> element) noexcept {
  if constexpr (is_vector_v<Value>) {
    return element - Value{};  // and not +, which would lose the sign of -0
  } else {
    return element;
  }
}

namespace detail {

template <class Value>
[[nodiscard, gnu::always_inline]] PERGRAD_HD inline bits_t<Value> to_bits(Value value) noexcept {
  return __builtin_bit_cast(bits_t<Value>, value);
}

template <class Value>
[[nodiscard, gnu::always_inline]] PERGRAD_HD inline Value from_bits(bits_t<Value> bits) noexcept {
  return __builtin_bit_cast(Value, bits);
}

}  // namespace detail

/// Lane by lane `mask ? if_true : if_false`. A mask is what comparing two values gives: bool, or a vector of 0 and -1.
template <class Mask, class Value>
[[nodiscard, gnu::always_inline]] PERGRAD_HD inline Value select(Mask mask, Value if_true, Value if_false) noexcept {
  if constexpr (is_vector_v<Value>) {
    return mask ? if_true : if_false;
  } else {
    // Not a conditional: the compiler would move what only one side needs into a branch, and contract it differently.
    using word = detail::bits_t<Value>;
    const word ones = word{0} - static_cast<word>(mask);
    return detail::from_bits<Value>((detail::to_bits(if_true) & ones) | (detail::to_bits(if_false) & ~ones));
  }
}

/// |x|; clears the sign, of NaN too.
template <class Value>
[[nodiscard, gnu::always_inline]] PERGRAD_HD inline Value abs(Value x) noexcept {
  return detail::from_bits<Value>(detail::to_bits(x) & (~detail::word_t<Value>{0} >> 1));
}

/// The larger; `first` if they are equal or either is NaN, so max(x, zero) lets a NaN in x through.
template <class Value>
[[nodiscard, gnu::always_inline]] PERGRAD_HD inline Value max(Value first, Value second) noexcept {
  return select(first < second, second, first);
}

/// The smaller; `first` if they are equal or either is NaN.
template <class Value>
[[nodiscard, gnu::always_inline]] PERGRAD_HD inline Value min(Value first, Value second) noexcept {
  return select(second < first, second, first);
}

}  // namespace pergrad::inline v0_1::math
