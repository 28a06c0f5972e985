// SPDX-License-Identifier: Apache-2.0
// pergrad/simd/math.hpp - elementary functions of a scalar or a whole vector register, stated once, without branches.
//
// What a value is, and why a lane gets a scalar's bits: pergrad/simd/lanes.hpp. Rounding to nearest is assumed.
// Nothing is converted from floating point to integer: where an integer is needed it is read from the low bits of x
// + 1.5*2^p, after x has been clamped.
//
//   exp       x = n ln2 + r, |r| <= ln2/2 (Cody & Waite 1980: n ln2 is taken off in two parts, the first product
//             exact); e^r = 1 + r + r^2 q(r), q a polynomial.
//   expm1     (2^n - 1) + 2^n (e^r - 1), its largest two terms added without loss (Dekker 1971).
//   log       x = 2^k (1 + f), s = f / (2 + f), log(1 + f) = f - f^2/2 + s (f^2/2 + R(s^2)) (Tang 1990).
//   log1p     as log, of 1 + x and the rounding error of that sum (Knuth, TAOCP 2, 4.2.2 theorem B): f = x near 0.
//   tanh      x + x^3 P(x^2)/Q(x^2) for |x| < 0.625, else 1 - 2/(1 + e^2|x|).
//   sigmoid   1/(1 + e^-x) for x >= 0, else e^x/(1 + e^x), corrected for what e^x and the sum were rounded by.
//   softplus  max(x, 0) + log1p(e^-|x|).
//   erf       x + x P(x^2)/Q(x^2) for |x| < 1, else 1 - e^(-x^2) P(|x|)/Q(|x|) (the form is Cody's, 1969).
//
// P, Q, q and R interpolate their function at the Chebyshev nodes of its interval (crowded once more towards 1 for
// erfc), solved in 60 digits; what each leaves over is below a quarter of a unit in the last place of its result.
// Against libm in the next wider type all are within 2 units in the last place (tests/detail/math_test.cpp).
// Special values follow C's Annex F: NaN gives NaN, infinities their limits, exp overflows to infinity and underflows
// gradually, odd functions keep -0.
#pragma once

#include <limits>
#include <type_traits>

#include <pergrad/detail/host_device.hpp>
#include <pergrad/simd/lanes.hpp>

namespace pergrad::inline v0_1::math {
namespace detail {

template <class Element>
struct float_format;

template <>
struct float_format<float> {
  using word = word_t<float>;
  static constexpr word fraction_bits = 23;
  static constexpr word bias = 127;
  static constexpr word sign = 0x8000'0000;
  static constexpr word sqrt_half = 0x3f35'04f3;
  static constexpr float shifter = 0x1.8p23F;  // x + shifter rounds x to an integer, which its low bits then hold
  static constexpr float log2_e = 0x1.715476p+0F;
  static constexpr float ln2_high = 0x1.62e4p-1F;  // 15 bits: its product with any exponent is exact
  static constexpr float ln2_low = 0x1.7f7d1cp-20F;
  static constexpr float least = std::numeric_limits<float>::min();
  static constexpr float infinity = std::numeric_limits<float>::infinity();
  static constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  static constexpr float tiny = 0x1p-25F;  // below it expm1, log1p: x + x^2 (..) rounds to x
  static constexpr float exp_lowest = -104.0F;
  static constexpr float exp_normal_lowest = -87.0F;
  static constexpr float exp_highest = 89.0F;
  static constexpr float expm1_lowest = -18.0F;  // e^x is lost against 1
  static constexpr float tanh_highest = 10.0F;   // the result is 1 from here
  static constexpr float erf_highest = 4.0F;
};

template <>
struct float_format<double> {
  using word = word_t<double>;
  static constexpr word fraction_bits = 52;
  static constexpr word bias = 1023;
  static constexpr word sign = 0x8000'0000'0000'0000;
  static constexpr word sqrt_half = 0x3fe6'a09e'667f'3bcd;
  static constexpr double shifter = 0x1.8p52;
  static constexpr double log2_e = 0x1.71547652b82fep+0;
  static constexpr double ln2_high = 0x1.62e42feep-1;  // 32 bits
  static constexpr double ln2_low = 0x1.a39ef35793c76p-33;
  static constexpr double least = std::numeric_limits<double>::min();
  static constexpr double infinity = std::numeric_limits<double>::infinity();
  static constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  static constexpr double tiny = 0x1p-54;
  static constexpr double exp_lowest = -746.0;
  static constexpr double exp_normal_lowest = -708.0;
  static constexpr double exp_highest = 710.0;
  static constexpr double expm1_lowest = -38.0;
  static constexpr double tanh_highest = 20.0;
  static constexpr double erf_highest = 6.0;
};

template <class Value>
using format_of = float_format<element_t<Value>>;

/// 2^(biased - bias).
template <class Value>
[[nodiscard, gnu::always_inline]] PERGRAD_HD inline Value power_of_two(bits_t<Value> biased) noexcept {
  return from_bits<Value>(biased << format_of<Value>::fraction_bits);
}

/// lowest + next x + ... by Horner's rule.
template <class Value, class... Elements>
[[nodiscard, gnu::always_inline]] PERGRAD_HD inline Value polynomial(Value x, element_t<Value> lowest,
                                                                     Elements... next) noexcept {
  if constexpr (sizeof...(Elements) == 0) {
    return splat<Value>(lowest);
  } else {
    return lowest + x * polynomial(x, next...);
  }
}

/// e^x = 2^exponent (1 + head + tail), |tail| << |head|; exponent in two's complement.
template <class Value>
struct exp_parts {
  Value head;
  Value tail;
  bits_t<Value> exponent;
};

template <class Value>
[[nodiscard, gnu::always_inline]] PERGRAD_HD inline exp_parts<Value> split_exp(Value x) noexcept {
  using traits = format_of<Value>;
  const Value shifted = x * traits::log2_e + traits::shifter;
  const Value count = shifted - traits::shifter;
  const Value head = x - count * traits::ln2_high;
  const Value low = count * traits::ln2_low;
  const Value rest = head - low;
  Value series;
  if constexpr (std::is_same_v<element_t<Value>, float>) {
    series = polynomial(rest, 0.5F, 0.166666667F, 0.0416664647F, 0.0083333109F, 0.00139336737F, 0.000198910172F);
  } else {
    series = polynomial(rest, 0.5, 0.16666666666666671, 0.04166666666666667, 0.0083333333333261199,
                        0.0013888888888883737, 0.00019841269874873975, 2.4801587325585839e-5, 2.7557255332554409e-6,
                        2.7557273594799413e-7, 2.510524515390137e-8, 2.0914707069612353e-9);
  }
  return {head, rest * rest * series - low,
          to_bits(shifted) - __builtin_bit_cast(typename traits::word, traits::shifter)};
}

/// e^x where neither it nor 2^n leaves the normal range.
template <class Value>
[[nodiscard, gnu::always_inline]] PERGRAD_HD inline Value exp_normal(Value x) noexcept {
  const exp_parts<Value> parts = split_exp(x);
  return (element_t<Value>{1} + (parts.head + parts.tail)) *
         power_of_two<Value>(parts.exponent + format_of<Value>::bias);
}

/// e^x = value (1 + relative_error), for any x.
template <class Value>
struct corrected_exp {
  Value value;
  Value relative_error;
};

template <class Value>
[[nodiscard, gnu::always_inline]] PERGRAD_HD inline corrected_exp<Value> exp_with_error(Value x) noexcept {
  using traits = format_of<Value>;
  constexpr element_t<Value> one{1};
  const exp_parts<Value> parts =
      split_exp(min(max(x, splat<Value>(traits::exp_lowest)), splat<Value>(traits::exp_highest)));
  // 2^n in two factors, because n may lie one beyond the largest exponent and far below the least.
  const bits_t<Value> biased = parts.exponent + 2 * traits::bias;
  const bits_t<Value> half = biased >> 1;
  const Value above_one = parts.head + parts.tail;
  const Value significand = one + above_one;
  const Value lost = (one - significand) + above_one;
  return {significand * power_of_two<Value>(half) * power_of_two<Value>(biased - half), lost * (one - above_one)};
}

/// log(2^k (1 + f)) for 1 + f in [sqrt 1/2, sqrt 2); `low` is what f and k ln2_high leave over.
template <class Value>
[[nodiscard, gnu::always_inline]] PERGRAD_HD inline Value log_series(Value count, Value f, Value low) noexcept {
  using element = element_t<Value>;
  const Value half_square = element(0.5) * f * f;
  const Value s = f / (element{2} + f);
  const Value square = s * s;
  Value series;
  if constexpr (std::is_same_v<element, float>) {
    series = polynomial(square, 0.666666666F, 0.40000122F, 0.285508026F, 0.233309641F);
  } else {
    series = polynomial(square, 0.66666666666666697, 0.39999999999899239, 0.28571428626095892, 0.22222211115144162,
                        0.18182890556695604, 0.15331674030167862, 0.1461703754879165);
  }
  return count * format_of<Value>::ln2_high - ((half_square - (s * (half_square + square * series) + low)) - f);
}

/// A positive normal value = 2^count significand, significand in [sqrt 1/2, sqrt 2).
template <class Value>
struct log_parts {
  Value significand;
  Value count;
  bits_t<Value> biased;
};

template <class Value>
[[nodiscard, gnu::always_inline]] PERGRAD_HD inline log_parts<Value> split_log(Value x) noexcept {
  using traits = format_of<Value>;
  using word = typename traits::word;
  using element = element_t<Value>;
  constexpr word one = traits::bias << traits::fraction_bits;
  constexpr word fraction_mask = (word{1} << traits::fraction_bits) - 1;
  constexpr element integers = element(word{1} << traits::fraction_bits);  // from here on one unit is the last bit
  const bits_t<Value> bits = to_bits(x) + (one - traits::sqrt_half);
  const bits_t<Value> biased = (bits & ~traits::sign) >> traits::fraction_bits;
  const Value count =
      from_bits<Value>(biased + __builtin_bit_cast(word, integers)) - (integers + element(traits::bias));
  return {from_bits<Value>((bits & fraction_mask) + traits::sqrt_half), count, biased};
}

/// log1p for 0 <= x or -1 < x, finite.
template <class Value>
[[nodiscard, gnu::always_inline]] PERGRAD_HD inline Value log1p_finite(Value x) noexcept {
  using traits = format_of<Value>;
  using element = element_t<Value>;
  const Value sum = element{1} + x;
  const Value added = sum - element{1};
  const Value error = (x - added) + (element{1} - (sum - added));
  const log_parts<Value> parts = split_log(sum);
  // 2^(1 - k): with 2^-k the largest sums would need an exponent that no number has.
  const Value scale = power_of_two<Value>(2 * traits::bias + 1 - parts.biased);
  const Value scaled_error = element(0.5) * error * scale;
  const Value leading = parts.significand - element{1};
  const Value f = leading + scaled_error;
  const Value lost = (leading - f) + scaled_error;
  const Value result = log_series(parts.count, f, parts.count * traits::ln2_low + lost);
  return select(abs(x) < splat<Value>(traits::tiny), x, result);
}

}  // namespace detail

/// e^x. Results below the least normal number round once more (gradual underflow).
template <class Value>
[[nodiscard, gnu::always_inline]] PERGRAD_HD inline Value exp(Value x) noexcept {
  return detail::exp_with_error(x).value;
}

/// e^x of x <= 0, and 0 where that is hardly a normal number (x < -87, of double -708): a softmax's powers.
template <class Value>
[[nodiscard, gnu::always_inline]] PERGRAD_HD inline Value exp_or_zero(Value x) noexcept {
  return select(x < splat<Value>(detail::format_of<Value>::exp_normal_lowest), Value{}, detail::exp_normal(x));
}

/// e^x - 1, to full relative accuracy near 0.
template <class Value>
[[nodiscard, gnu::always_inline]] PERGRAD_HD inline Value expm1(Value x) noexcept {
  using traits = detail::format_of<Value>;
  using element = element_t<Value>;
  const Value clamped = min(max(x, splat<Value>(traits::expm1_lowest)), splat<Value>(traits::exp_highest));
  const auto parts = detail::split_exp(clamped);
  const Value half_power = detail::power_of_two<Value>(parts.exponent + (traits::bias - 1));  // 2^n itself may overflow
  const Value constant = half_power - element(0.5);
  const Value linear = half_power * parts.head;
  const Value sum = constant + linear;
  const Value lost = (constant - sum) + linear;
  const Value result = element{2} * (sum + (lost + half_power * parts.tail));
  return select(abs(x) < splat<Value>(traits::tiny), x, result);
}

/// Natural logarithm; -inf at 0, NaN below.
template <class Value>
[[nodiscard, gnu::always_inline]] PERGRAD_HD inline Value log(Value x) noexcept {
  using traits = detail::format_of<Value>;
  using element = element_t<Value>;
  constexpr element raise = element(typename traits::word{1} << traits::fraction_bits);
  const auto denormal = x < splat<Value>(traits::least);
  const auto parts = detail::split_log(select(denormal, x * raise, x));
  const Value count = parts.count - select(denormal, splat<Value>(element(traits::fraction_bits)), Value{});
  const Value finite = detail::log_series(count, parts.significand - element{1}, count * traits::ln2_low);
  const Value outside = select(x == Value{}, splat<Value>(-traits::infinity), splat<Value>(traits::nan));
  return select(x < splat<Value>(traits::infinity), select(x > Value{}, finite, outside), x);
}

/// log(1 + x), to full relative accuracy near 0; -inf at -1, NaN below.
template <class Value>
[[nodiscard, gnu::always_inline]] PERGRAD_HD inline Value log1p(Value x) noexcept {
  using traits = detail::format_of<Value>;
  const Value pole = splat<Value>(element_t<Value>{-1});
  const Value outside = select(x == pole, splat<Value>(-traits::infinity), splat<Value>(traits::nan));
  return select(x < splat<Value>(traits::infinity), select(x > pole, detail::log1p_finite(x), outside), x);
}

/// Hyperbolic tangent.
template <class Value>
[[nodiscard, gnu::always_inline]] PERGRAD_HD inline Value tanh(Value x) noexcept {
  using traits = detail::format_of<Value>;
  using element = element_t<Value>;
  const Value size = min(abs(x), splat<Value>(traits::tanh_highest));
  const Value square = size * size;
  Value above;
  Value below;
  if constexpr (std::is_same_v<element, float>) {
    above = detail::polynomial(square, -0.333333333F, -0.0147729852F);
    below = detail::polynomial(square, 1.0F, 0.444318951F, 0.0158228781F);
  } else {
    above = detail::polynomial(square, -0.33333333333333333, -0.020498797014128276, -0.00019917792421746069);
    below = detail::polynomial(square, 1.0, 0.46149639104238135, 0.023291328284948218, 0.00020653360964084979);
  }
  const auto near_zero = size < splat<Value>(element(0.625));
  const Value numerator = select(near_zero, size * square * above, splat<Value>(element{-2}));
  const Value denominator = select(near_zero, below, detail::exp_normal(size + size) + element{1});
  const Value result = select(near_zero, size, splat<Value>(element{1})) + numerator / denominator;
  return detail::from_bits<Value>(detail::to_bits(result) | (detail::to_bits(x) & traits::sign));
}

/// Logistic function 1 / (1 + e^-x).
template <class Value>
[[nodiscard, gnu::always_inline]] PERGRAD_HD inline Value sigmoid(Value x) noexcept {
  constexpr element_t<Value> one{1};
  const auto power = detail::exp_with_error(-abs(x));
  const Value sum = one + power.value;
  const Value lost = ((one - sum) + power.value) + power.value * power.relative_error;
  const auto negative = x < Value{};
  const Value rounded = select(negative, power.value, splat<Value>(one)) / sum;
  // 1 / (1 + p) and p / (1 + p) add up to one, so either is the other's derivative by log p.
  const Value reciprocal = select(negative, one - rounded, rounded);
  return rounded + rounded * (select(negative, power.relative_error, Value{}) - lost * reciprocal);
}

/// log(1 + e^x), without overflow.
template <class Value>
[[nodiscard, gnu::always_inline]] PERGRAD_HD inline Value softplus(Value x) noexcept {
  return max(x, Value{}) + detail::log1p_finite(exp(-abs(x)));
}

/// Gauss error function 2/sqrt(pi) int_0^x e^(-t^2) dt.
template <class Value>
[[nodiscard, gnu::always_inline]] PERGRAD_HD inline Value erf(Value x) noexcept {
  using traits = detail::format_of<Value>;
  using element = element_t<Value>;
  const Value size = min(abs(x), splat<Value>(traits::erf_highest));
  const Value square = size * size;
  Value above;
  Value below;
  Value far_above;
  Value far_below;
  if constexpr (std::is_same_v<element, float>) {
    above = detail::polynomial(square, 0.128379167F, -0.320349887F, -0.0409917308F, -0.00524891256F);
    below = detail::polynomial(square, 1.0F, 0.434466955F, 0.0746598807F, 0.00525691711F);
    far_above = detail::polynomial(size, 1.00101401F, 0.736984618F, 0.235814343F, -8.0558799e-5F);
    far_below = detail::polynomial(size, 1.0F, 1.87175337F, 1.32900761F, 0.415254521F);
  } else {
    above = detail::polynomial(square, 0.12837916709551257, -0.31698916933954893, -0.048371274599796295,
                               -0.0088223363248167772, -0.00049664035253739076, -2.0780228076561899e-5);
    below = detail::polynomial(square, 1.0, 0.46064498648983655, 0.093874608765124095, 0.010705251871973175,
                               0.00069373623323491591, 2.0866484101019163e-5);
    far_above =
        detail::polynomial(size, 0.99999999670728632, 1.8298552575063472, 1.6525806387586935, 0.92374240264294516,
                           0.3417085341869327, 0.083629048448242701, 0.01264788648504756, 0.00093536571645476184);
    far_below =
        detail::polynomial(size, 1.0, 2.9582343862885306, 3.9905909053962238, 3.220659672292991, 1.7105849169570096,
                           0.61687082786767299, 0.1490576123099342, 0.022417793825188561, 0.0016578925871363651);
  }
  const auto near_zero = size < splat<Value>(element{1});
  const Value numerator = select(near_zero, size * above, -(detail::exp_normal(-square) * far_above));
  const Value denominator = select(near_zero, below, far_below);
  const Value result = select(near_zero, size, splat<Value>(element{1})) + numerator / denominator;
  return detail::from_bits<Value>(detail::to_bits(result) | (detail::to_bits(x) & traits::sign));
}

}  // namespace pergrad::inline v0_1::math
