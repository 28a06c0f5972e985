// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/accounting/search.hpp - ends of what keeps to a target, on the safe side.
//
// Brackets whose safe end was evaluated by the very accountant that asks. Bounds need not be monotone to the last
// digit; an end that was found is safe all the same.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1::detail {

/// Numbers of steps that a search tries: all up to a million, and 2^13 for each doubling beyond. Fewer steps are part
/// of more, so what is said of a number is proven at the next one of these.
[[nodiscard]] constexpr std::uint64_t unit_of_tried(std::uint64_t steps) noexcept {
  return steps < (std::uint64_t{1} << 20U) ? 1 : std::bit_floor(steps) >> 13U;
}
[[nodiscard]] constexpr std::uint64_t tried_steps(std::uint64_t steps) noexcept {
  const std::uint64_t unit = unit_of_tried(steps);
  return (steps + unit - 1) / unit * unit;
}
/// The one below. Precondition: steps > 0.
[[nodiscard]] constexpr std::uint64_t tried_below(std::uint64_t steps) noexcept {
  return (steps - 1) / unit_of_tried(steps - 1) * unit_of_tried(steps - 1);
}

/// The smallest x, up to `tolerance` relatively and never below the true one, with excess(x) <= 0; excess falls, is
/// ln(spent / target) or +-infinity. Looks from `start` on, in [least, most]; `least` if that is safe, infinity if
/// `most` is not.
template <class Excess>
[[nodiscard, gnu::cold]] double smallest_safe(const Excess& excess, double start, double least, double most,
                                              double tolerance) {
  double high = start;
  double at_high = excess(high);
  double low = high;
  double at_low = at_high;
  if (at_high <= 0) {
    for (double factor = 0.5; at_low <= 0;) {
      high = low;
      at_high = at_low;
      if (high <= least) return high;
      // ln epsilon falls about as ln x does, or faster: a guess that lies a bit too low.
      const double guess = at_high > -2 ? std::exp(0.8 * at_high) * 0.98 : factor;
      low = std::max(least, high * std::max(guess, factor));
      factor *= 0.5;
      at_low = excess(low);
    }
  } else {
    for (double growth = 2; !(at_high <= 0); growth *= growth) {
      low = high;
      at_low = at_high;
      if (high >= most) return infinity;
      const double guess = at_high < 20 ? 1.02 * std::exp(at_high) : growth;
      high = std::min(most, high * std::min(guess, growth));
      at_high = excess(high);
    }
  }
  // Regula falsi of logarithms with the Illinois weights; half a tolerance away from either end, so that the bracket
  // always closes, and halved where three of them have not.
  double weight_low = at_low;
  double weight_high = at_high;
  bool high_moved = false;
  bool low_moved = false;
  double wide = infinity;
  for (int round = 1; high - low > tolerance * high; ++round) {
    const double width = std::log(high / low);
    double share = 0.5;
    if (weight_low < infinity && weight_high > -infinity) share = weight_low / (weight_low - weight_high);
    if (round % 4 == 0) {
      if (width > wide / 2) share = 0.5;
      wide = width;
    }
    const double inset = tolerance * high / 2;
    const double middle = std::clamp(low * std::exp(share * width), low + inset, high - inset);
    const double at_middle = excess(middle);
    if (at_middle <= 0) {
      high = middle;
      weight_high = at_middle;
      if (high_moved) weight_low /= 2;
    } else {
      low = middle;
      weight_low = at_middle;
      if (low_moved) weight_high /= 2;
    }
    high_moved = at_middle <= 0;
    low_moved = !high_moved;
  }
  return high;
}

/// ln(spent / target), and not positive exactly when spent <= target.
[[nodiscard]] inline double log_excess(double spent, double target) noexcept {
  if (spent <= target) return spent > 0 ? std::min(0.0, std::log(spent / target)) : -infinity;
  return target > 0 ? std::max(1e-16, std::log(spent / target)) : infinity;
}

/// The largest n of tried_steps with excess(n) <= 0, as far as the search tells: the next one was found to be too much.
/// `safe` is known to be; excess rises. 2^61 stands for any number.
template <class Excess>
[[nodiscard, gnu::cold]] std::uint64_t largest_safe(const Excess& excess, std::uint64_t safe) {
  constexpr std::uint64_t most = std::uint64_t{1} << 61U;
  // What is spent is nearly a power of n: secants of logarithms.
  struct tried {
    double log_steps = 0;
    double excess = -infinity;
    [[nodiscard]] bool is_known() const noexcept { return std::abs(excess) < infinity; }
  };
  const auto at = [&](std::uint64_t steps) { return tried{std::log(static_cast<double>(steps)), excess(steps)}; };
  tried before;
  tried low;
  tried high;
  if (safe > 0) low = at(safe);
  std::uint64_t unsafe = 0;  // none is known
  int streak = 0;            // so often in a row: safe, or minus so often: not
  int since_halved = 0;
  double width_before = 0;
  while (safe < most && (unsafe == 0 || tried_steps(safe + 1) < unsafe)) {
    double next = 8 * static_cast<double>(safe) + 1;
    if (low.is_known()) {
      // Between two of them; while all were safe, a bit further than the last two say.
      const tried& other = unsafe != 0 ? high : before;
      double power = 0.7;
      if (other.is_known()) power = (other.excess - low.excess) / (other.log_steps - low.log_steps);
      next = std::exp(low.log_steps - low.excess * (unsafe != 0 ? 1.0 : 1.2) / std::clamp(power, 0.05, 100.0));
    }
    if (unsafe != 0 && low.is_known()) {
      // A secant comes near from one side; a step beyond it, and longer ones, find the other.
      const auto unit = static_cast<double>(unit_of_tried(unsafe - 1));
      const double beyond = std::abs(streak) < 2 ? 0 : unit * std::ldexp(1.0, 3 * (std::abs(streak) - 2));
      next += streak > 0 ? beyond : -beyond;
    }
    if (unsafe != 0) {
      bool halve = !low.is_known();
      // Three of these have to halve the bracket, or it is halved for them: no curve makes this long.
      const double width = high.log_steps - std::log(static_cast<double>(safe) + 0.5);
      if (since_halved++ == 0) {
        width_before = width;
      } else if (since_halved > 3) {
        halve |= width > 0.5 * width_before;
        since_halved = 0;
      }
      if (halve) next = std::sqrt((static_cast<double>(safe) + 0.5) * static_cast<double>(unsafe));
    }
    next = std::min(next, 64 * static_cast<double>(safe) + 64);
    std::uint64_t steps = std::max(static_cast<std::uint64_t>(std::clamp(next, 0.0, 0x1p61)), safe + 1);
    if (unsafe != 0) steps = std::min(steps, unsafe - 1);
    steps = tried_steps(steps);
    if (steps == unsafe) steps = tried_below(unsafe);
    const tried here = at(steps);
    streak = here.excess <= 0 ? std::max(streak, 0) + 1 : std::min(streak, 0) - 1;
    if (here.excess <= 0) {
      safe = steps;
      before = low;
      low = here;
    } else {
      unsafe = steps;
      high = here;
    }
  }
  return safe;
}

}  // namespace pergrad::inline v0_1::detail
