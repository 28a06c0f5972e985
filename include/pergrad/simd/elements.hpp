// SPDX-License-Identifier: Apache-2.0
// pergrad/simd/elements.hpp - loops over a stretch of elements, a vector at a time: sums, scaled sums, dot products
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>

#include <pergrad/detail/host_device.hpp>
#include <pergrad/detail/index.hpp>
#include <pergrad/detail/limits.hpp>
#include <pergrad/simd/vector.hpp>
#include <pergrad/team.hpp>

namespace pergrad::inline v0_1::on_host {

#if PERGRAD_VECTORS_ON_DEVICE
/// What the functions of layers that are marked for device compilation get on the host: a whole vector; one element
/// where the compiler takes no vectors in such functions.
template <class Scalar>
using pack = vector<Scalar>;

/// Vectors of the channels of a pixel, and of the doubles that their sums are taken in.
template <class Scalar>
using narrow_pack = narrow<Scalar>;
using wide_pack = vector<double>;
inline constexpr auto wide_pack_lanes = static_cast<index>(vector_lanes<double>);
template <class Pack>
[[nodiscard]] inline auto lane_of(const Pack& values, index lane) noexcept {
  return values[lane];
}

/// for_each_vector for `pack`s.
template <class Scalar, class Function>
inline void for_each_pack(index count, Function&& f) {
  for_each_vector<Scalar>(count, f);
}
#else
template <class Scalar>
using pack = Scalar;
template <class Scalar>
using narrow_pack = Scalar;
using wide_pack = double;
inline constexpr index wide_pack_lanes = 1;
template <class Value>
[[nodiscard]] PERGRAD_HD inline Value lane_of(Value value, index /*lane*/) noexcept {
  return value;
}

template <class Scalar>
struct one_element {
  [[nodiscard]] PERGRAD_HD Scalar load(const Scalar* from) const noexcept { return *from; }
  PERGRAD_HD void store(Scalar* to, Scalar value) const noexcept { *to = value; }
};
PERGRAD_ONLY_HOST_CALLS
template <class Scalar, class Function>
PERGRAD_HD inline void for_each_pack(index count, Function&& f) {
  for (index i = 0; i < count; ++i) f(i, one_element<Scalar>{});
}
#endif

/// The elements of a pack, as functions of layers see them: `at(p)` reads them from an array, `at.put(q, v)` writes
/// them.
template <class Scalar, class Lanes>
struct elements_at {
  index first;
  Lanes lanes;
  [[nodiscard]] PERGRAD_HD pack<Scalar> operator()(const Scalar* from) const noexcept {
    return lanes.load(from + first);
  }
  PERGRAD_HD void put(Scalar* to, pack<Scalar> value) const noexcept { lanes.store(to + first, value); }
  [[nodiscard]] PERGRAD_HD static pack<Scalar> zero() noexcept { return pack<Scalar>{}; }
};
template <class Scalar, class Lanes>
[[nodiscard]] PERGRAD_HD inline elements_at<Scalar, Lanes> elements_from(index first, const Lanes& lanes) noexcept {
  return {first, lanes};
}

/// f(f(a, b), ...) of a vector's lanes, halves with halves.
template <class Scalar, std::size_t Distance = vector_lanes<Scalar> / 2, class Function>
[[nodiscard]] inline Scalar across_lanes(vector<Scalar> values, const Function& f) noexcept {
  if constexpr (Distance == 0) {
    return values[0];
  } else {
    vector<Scalar> moved{};
#if PERGRAD_SHUFFLES
    moved = [&]<std::size_t... Lane>(std::index_sequence<Lane...>) {
      return __builtin_shufflevector(values, values, (Lane ^ Distance)...);
    }
    (std::make_index_sequence<vector_lanes<Scalar>>{});
#else
    for (std::size_t lane = 0; lane < vector_lanes<Scalar>; ++lane) moved[lane] = values[lane ^ Distance];
#endif
    return across_lanes<Scalar, Distance / 2>(f(values, moved), f);
  }
}
template <class Scalar>
[[nodiscard]] inline Scalar sum_of(vector<Scalar> values) noexcept {
  return across_lanes<Scalar>(values, [](vector<Scalar> a, vector<Scalar> b) { return vector<Scalar>{a + b}; });
}
template <class Scalar>
[[nodiscard]] inline Scalar largest_of(vector<Scalar> values) noexcept {
  return across_lanes<Scalar>(values, [](vector<Scalar> a, vector<Scalar> b) { return vector<Scalar>{a < b ? b : a}; });
}

#if PERGRAD_VECTORS_ON_DEVICE
/// The sum of f(at) over `count` elements, and their largest.
template <class Scalar, class Function>
[[nodiscard]] inline Scalar sum_of_packs(index count, const Function& f) {
  vector<Scalar> sums{};
  for_each_vector<Scalar>(count, [&](index i, const auto& lanes) {
    const vector<Scalar> terms = f(elements_from<Scalar>(i, lanes));
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(lanes)>, all_lanes<Scalar>>) {
      sums += terms;
    } else {
      alignas(vector_bytes) Scalar there[vector_lanes<Scalar>] = {};
      lanes.store(there, terms);
      sums += load(there);
    }
  });
  return sum_of<Scalar>(sums);
}
template <class Scalar>
[[nodiscard]] inline Scalar largest_of(const Scalar* from, index count) noexcept {
  vector<Scalar> most = splat(from[0]);
  for_each_vector<Scalar>(count, [&](index i, const auto& lanes) {
    alignas(vector_bytes) Scalar there[vector_lanes<Scalar>];
    vector<Scalar> here = lanes.load(from + i);
    if constexpr (!std::is_same_v<std::remove_cvref_t<decltype(lanes)>, all_lanes<Scalar>>) {
      store(there, splat(from[0]));
      lanes.store(there, here);
      here = load(there);
    }
    most = most < here ? here : most;
  });
  return largest_of<Scalar>(most);
}

/// Elements that are summed up in double: all lanes of a vector of doubles, or the first `count`; the others are 0.
template <bool All>
struct wide_elements {
  index first = 0;
  index count = 0;
  template <class Scalar>
  [[nodiscard]] vector<double> operator()(const Scalar* from) const noexcept {
    if constexpr (All) {
      return widen(load_narrow(from + first));
    } else {
      Scalar lanes[vector_lanes<double>]{};
      for (index i = 0; i < count; ++i) lanes[i] = from[first + i];
      return widen(load_narrow(lanes));
    }
  }
};
/// Sums over i < count, in double and in an order that depends on `count` only. `f(at)` gives the summands of some
/// elements, as `values`.
template <int Sums, class Scalar, class Function>
[[nodiscard]] inline values_of<double, Sums> reduce_in_double(index count, const Function& f) {
  constexpr auto width = static_cast<index>(vector_lanes<double>);
  vector<double> sums[2][static_cast<std::size_t>(Sums)]{};
  index i = 0;
  for (; i + 2 * width <= count; i += 2 * width) {
    for (index half = 0; half < 2; ++half) {
      const values_of<vector<double>, Sums> here = f(wide_elements<true>{i + half * width});
      for (int s = 0; s < Sums; ++s) sums[half][s] += here[s];
    }
  }
  values_of<double, Sums> totals{};
  for (int s = 0; s < Sums; ++s) totals[s] = sum_of<double>(sums[0][s] + sums[1][s]);
  for (; i < count; i += width) {
    const index rest = count - i < width ? count - i : width;
    const values_of<vector<double>, Sums> here = f(wide_elements<false>{i, rest});
    for (int s = 0; s < Sums; ++s) {
      for (index lane = 0; lane < rest; ++lane) totals[s] += here[s][lane];
    }
  }
  return totals;
}
#else
template <class Scalar, class Function>
[[nodiscard]] PERGRAD_HD inline Scalar sum_of_packs(index count, const Function& f) {
  Scalar sum = 0;
  for (index i = 0; i < count; ++i) sum += f(elements_from<Scalar>(i, one_element<Scalar>{}));
  return sum;
}
template <class Scalar>
[[nodiscard]] PERGRAD_HD inline Scalar largest_of(const Scalar* from, index count) noexcept {
  Scalar most = from[0];
  for (index i = 1; i < count; ++i) most = most < from[i] ? from[i] : most;
  return most;
}
struct wide_element {
  index first;
  template <class Scalar>
  [[nodiscard]] PERGRAD_HD double operator()(const Scalar* from) const noexcept {
    return static_cast<double>(from[first]);
  }
};
template <int Sums, class Scalar, class Function>
[[nodiscard]] PERGRAD_HD inline values_of<double, Sums> reduce_in_double(index count, const Function& f) {
  values_of<double, Sums> sums{};
  for (index i = 0; i < count; ++i) {
    const values_of<double, Sums> here = f(wide_element{i});
    for (int s = 0; s < Sums; ++s) sums[s] += here[s];
  }
  return sums;
}
#endif

template <class Scalar>
[[gnu::noinline]] void add_to(Scalar* to, const Scalar* from, index count) {
  for_each_vector<Scalar>(
      count, [&](index i, const auto& lanes) { lanes.store(to + i, lanes.load(to + i) + lanes.load(from + i)); });
}
/// to += weight * from
template <class Scalar>
[[gnu::noinline]] void add_scaled_to(Scalar* to, Scalar weight, const Scalar* from, index count) {
  for_each_vector<Scalar>(count, [&](index i, const auto& lanes) {
    lanes.store(to + i, multiply_add(splat(weight), lanes.load(from + i), lanes.load(to + i)));
  });
}
/// A stretch of elements and what it is multiplied by.
template <class Scalar>
struct scaled_stretch {
  Scalar weight = 0;
  const Scalar* from = nullptr;
};
/// to += weight * from of as many terms as `Index`, one after the other, from element `first` of each on.
template <class Scalar, std::size_t... Index>
[[gnu::noinline]] void add_scaled_terms(Scalar* to, const scaled_stretch<Scalar>* terms, index first, index count,
                                        std::index_sequence<Index...>) {
  const vector<Scalar> weights[] = {splat(terms[Index].weight)...};
  const Scalar* const from[] = {terms[Index].from + first...};
  for_each_vector<Scalar>(count, [&](index i, const auto& lanes) {
    vector<Scalar> total = lanes.load(to + i);
    ((total = multiply_add(weights[Index], lanes.load(from[Index] + i), total)), ...);
    lanes.store(to + i, total);
  });
}
/// The same for any number of terms, a few in one pass over `to`.
template <class Scalar>
inline void add_all_scaled_to(Scalar* to, std::span<const scaled_stretch<Scalar>> terms, index first, index count) {
  for (; terms.size() >= 4; terms = terms.subspan(4)) {
    add_scaled_terms(to, terms.data(), first, count, std::make_index_sequence<4>{});
  }
  for (; terms.size() >= 2; terms = terms.subspan(2)) {
    add_scaled_terms(to, terms.data(), first, count, std::make_index_sequence<2>{});
  }
  if (!terms.empty()) add_scaled_to(to, terms[0].weight, terms[0].from + first, count);
}
/// Integers of a scalar's size, which lie where a sum's scalars would.
template <class Scalar>
using integer_of = std::conditional_t<sizeof(Scalar) == sizeof(std::int32_t), std::int32_t, std::int64_t>;
/// Adding it to a number of less than 2^51 rounds that to an integer and leaves it in the last bits.
inline constexpr double shift_to_integer = 0x1.8p52;
/// The integer next to a number of less than 2^51.
[[nodiscard]] inline std::int64_t nearest_integer(double value) noexcept {
  return std::bit_cast<std::int64_t>(value + shift_to_integer) - std::bit_cast<std::int64_t>(shift_to_integer);
}
/// to += the integer next to factor * from
template <class Scalar, class Integer>
[[gnu::noinline]] void add_rounded_to(Integer* to, double factor, const Scalar* from, index count) {
  constexpr auto lanes = static_cast<index>(vector_lanes<double>);
  using wide = typename vector_detail::vector_of<double>::lanes_type;
  using sums = std::conditional_t<sizeof(Integer) == sizeof(double), wide,
                                  typename vector_detail::vector_of<float>::narrow_lanes_type>;
  const vector<double> shift = splat(shift_to_integer);
  index i = 0;
  for (; i + lanes <= count; i += lanes) {
    const vector<double> value = splat(factor) * widen(load_narrow(from + i));
    const vector<double> shifted = value + shift;
    sums total;
    std::memcpy(&total, to + i, sizeof total);
    total += __builtin_convertvector(__builtin_bit_cast(wide, shifted) - __builtin_bit_cast(wide, shift), sums);
    std::memcpy(to + i, &total, sizeof total);
  }
  for (; i < count; ++i) {
    to[i] += static_cast<Integer>(nearest_integer(factor * static_cast<double>(from[i])));
  }
}
/// to += weight * v, or weight * v^2, with v = scale * from, rounded to Scalar
template <class Scalar>
[[gnu::noinline]] void add_widened_to(double* to, double weight, Scalar scale, const Scalar* from, bool squared,
                                      index count) {
  constexpr auto lanes = static_cast<index>(vector_lanes<double>);
  index i = 0;
  for (; i + lanes <= count; i += lanes) {
    const vector<double> value = widen(scale * load_narrow(from + i));
    store(to + i, load(to + i) + splat(weight) * (squared ? value * value : value));
  }
  for (; i < count; ++i) {
    const auto value = static_cast<double>(static_cast<Scalar>(scale * from[i]));
    to[i] += weight * (squared ? value * value : value);
  }
}
/// to (=|+=) from, rounded
template <class Scalar>
[[gnu::noinline]] void round_to(Scalar* to, const double* from, bool onto, index count) {
  constexpr auto lanes = static_cast<index>(vector_lanes<double>);
  index i = 0;
  for (; i + lanes <= count; i += lanes) {
    auto value = __builtin_convertvector(load(from + i), narrow<Scalar>);
    if (onto) value += load_narrow(to + i);
    std::memcpy(to + i, &value, sizeof value);
  }
  for (; i < count; ++i) to[i] = (onto ? to[i] : Scalar{0}) + static_cast<Scalar>(from[i]);
}
/// to += weight * from^2
template <class Scalar>
[[gnu::noinline]] void add_scaled_squares_to(Scalar* to, Scalar weight, const Scalar* from, index count) {
  for_each_vector<Scalar>(count, [&](index i, const auto& lanes) {
    const vector<Scalar> value = lanes.load(from + i);
    lanes.store(to + i, multiply_add(splat(weight), value * value, lanes.load(to + i)));
  });
}

/// A sum over `count` elements in double: `add_vector` and `add_element` add those from element i on to a sum.
template <class AddVector, class AddElement>
[[nodiscard, gnu::always_inline]] inline double sum_in_double(index count, const AddVector& add_vector,
                                                              const AddElement& add_element) noexcept {
  constexpr auto width = static_cast<index>(vector_lanes<double>);
  vector<double> even{};
  vector<double> odd{};
  index i = 0;
  for (; i + 2 * width <= count; i += 2 * width) {
    add_vector(even, i);
    add_vector(odd, i + width);
  }
  if (i + width <= count) {
    add_vector(even, i);
    i += width;
  }
  double total = sum_of<double>(even + odd);
  for (; i < count; ++i) add_element(total, i);
  return total;
}

/// sum_i a_i b_i in double. Products of floats are exact there, so only the additions round.
template <class Scalar>
[[nodiscard, gnu::noinline]] double dot(const Scalar* a, const Scalar* b, index count) noexcept {
  return sum_in_double(
      count,
      [&](vector<double>& sum, index i) {
        sum = multiply_add(widen(load_narrow(a + i)), widen(load_narrow(b + i)), sum);
      },
      [&](double& sum, index i) { sum = multiply_add(static_cast<double>(a[i]), static_cast<double>(b[i]), sum); });
}

/// sum_i a_i^2, where each is squared in double: those of floats are exact there.
template <class Scalar>
[[nodiscard, gnu::noinline]] double squares_in_double(const Scalar* a, index count) noexcept {
  return sum_in_double(
      count,
      [&](vector<double>& sum, index i) {
        const vector<double> value = widen(load_narrow(a + i));
        sum = multiply_add(value, value, sum);
      },
      [&](double& sum, index i) {
        const auto value = static_cast<double>(a[i]);
        sum = multiply_add(value, value, sum);
      });
}

/// From here on, if finite, sums of squares of floats may be added up a few at a time in float: what vanishes of at
/// most 2^14 numbers, whole squares below the smallest normal float where a program has such results flushed to zero,
/// is less than 2^-32 of the sum. Otherwise each is squared in double.
inline constexpr double least_squares_in_float = 0x1p-80;

/// sum_i a_i^2 in double. Squares of floats are added up four at a time in float, each rounded three times at most: the
/// product of two such sums is within 2^-21 of the true one (host/gemm/epilogue.hpp).
template <class Scalar>
[[nodiscard, gnu::noinline]] double squares(const Scalar* a, index count) noexcept {
  if constexpr (sizeof(Scalar) < sizeof(double)) {
    constexpr auto lanes = static_cast<index>(vector_lanes<Scalar>);
    vector<double> sums[2] = {};
    index i = 0;
    for (; i + 4 * lanes <= count; i += 4 * lanes) {
      const vector<Scalar> first = load(a + i);
      const vector<Scalar> second = load(a + i + lanes);
      const vector<Scalar> third = load(a + i + 2 * lanes);
      const vector<Scalar> fourth = load(a + i + 3 * lanes);
      // Through memory: of taking a register apart g++ 12 makes several instructions.
      alignas(64) Scalar four[vector_lanes<Scalar>];
      store(four, (first * first + second * second) + (third * third + fourth * fourth));
      sums[0] += widen(load_narrow(four));
      sums[1] += widen(load_narrow(four + lanes / 2));
    }
    const double total = sum_of<double>(sums[0] + sums[1]) + squares_in_double(a + i, count - i);
    const double least = least_squares_in_float * (1 + static_cast<double>(count >> 14));
    if (total >= least && total <= limits::largest<double>) return total;
  }
  return squares_in_double(a, count);
}

}  // namespace pergrad::inline v0_1::on_host
