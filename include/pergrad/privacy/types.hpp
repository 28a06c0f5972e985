// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/types.hpp - strong types for the numbers of private training that must never be swapped.
//
// Every type holds one double, checked once when it is made, so that no function behind this border has to ask again.
// NaN fails every check. Names follow Abadi et al. 2016 (arXiv:1607.00133) and Dwork & Roth 2014.
#pragma once

#include <concepts>
#include <cstdio>
#include <limits>
#include <type_traits>

#include <pergrad/detail/error_text.hpp>
#include <pergrad/errors.hpp>

namespace pergrad::inline v0_1 {

namespace detail {

[[noreturn]] inline void throw_bad_number(const char* what, const char* need, double got) {
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", got);
  throw_invalid_argument({"pergrad: ", what, " must be ", need, ", got ", text});
}

inline constexpr double largest_double = std::numeric_limits<double>::max();
inline constexpr double infinity = std::numeric_limits<double>::infinity();

/// Base of the strong types: `Derived` says its name, what it needs and which values it holds. It deletes the
/// conversion from a plain number in a line that compilers show; inherited, g++ 12 would take the explicit one in its
/// place.
template <class Derived>
class checked_number {
 public:
  /// Throws std::invalid_argument, naming the type and the value, unless `Derived::holds(value)`.
  constexpr explicit checked_number(double value) : value_{value} {
    if (!Derived::holds(value)) throw_bad_number(Derived::name, Derived::need, value);
  }

  [[nodiscard]] constexpr double value() const noexcept { return value_; }

  friend constexpr bool operator==(const Derived& left, const Derived& right) noexcept {
    return left.value() == right.value();
  }

 private:
  double value_;
};

}  // namespace detail

/// Bound C on the L2 norm of one sample's gradient: finite, at least 1e-30.
struct l2_clip_norm : detail::checked_number<l2_clip_norm> {
  using detail::checked_number<l2_clip_norm>::checked_number;
  template <std::same_as<double> Plain>
  l2_clip_norm(Plain) = delete;  // a plain number does not say what it stands for: write pergrad::l2_clip_norm{1.0}
  static constexpr const char* name = "l2_clip_norm";
  static constexpr const char* need = "finite and at least 1e-30";
  [[nodiscard]] static constexpr bool holds(double x) noexcept { return x >= 1e-30 && x <= detail::largest_double; }
};

/// Standard deviation of the noise divided by the L2 sensitivity of the sum: finite, not negative.
struct noise_multiplier : detail::checked_number<noise_multiplier> {
  using detail::checked_number<noise_multiplier>::checked_number;
  template <std::same_as<double> Plain>
  noise_multiplier(Plain) =
      delete;  // a plain number does not say what it stands for: write pergrad::noise_multiplier{1.1}
  static constexpr const char* name = "noise_multiplier";
  static constexpr const char* need = "finite and not negative";
  [[nodiscard]] static constexpr bool holds(double x) noexcept { return x >= 0 && x <= detail::largest_double; }
};

/// Probability with which each record enters a step's batch, independently of all others: in [0, 1].
struct sampling_probability : detail::checked_number<sampling_probability> {
  using detail::checked_number<sampling_probability>::checked_number;
  template <std::same_as<double> Plain>
  sampling_probability(Plain) =
      delete;  // a plain number does not say what it stands for: write pergrad::sampling_probability{0.01}
  static constexpr const char* name = "sampling_probability";
  static constexpr const char* need = "in [0, 1]";
  [[nodiscard]] static constexpr bool holds(double x) noexcept { return x >= 0 && x <= 1; }
};

/// Public constant that divides a noisy sum; never the size of a drawn batch. Finite and positive.
struct expected_batch_size : detail::checked_number<expected_batch_size> {
  using detail::checked_number<expected_batch_size>::checked_number;
  template <std::same_as<double> Plain>
  expected_batch_size(Plain) =
      delete;  // a plain number does not say what it stands for: write pergrad::expected_batch_size{256}
  static constexpr const char* name = "expected_batch_size";
  static constexpr const char* need = "finite and positive";
  [[nodiscard]] static constexpr bool holds(double x) noexcept { return x > 0 && x <= detail::largest_double; }
  /// A count of things is an error that says why.
  template <std::unsigned_integral Count>
  explicit expected_batch_size(Count /*count*/) : expected_batch_size{1.0} {
    static_cast<void>(error::count_as_divisor<Count>{});
  }
};

/// A number that is no proven bound of anything. Nothing that guards privacy takes it: where a bound is wanted, it is
/// an error that says so.
class estimate {
 public:
  constexpr explicit estimate(double value) noexcept : value_{value} {}
  [[nodiscard]] constexpr double value() const noexcept { return value_; }

 private:
  double value_;
};

/// Privacy loss bound of (epsilon, delta)-differential privacy: not negative; infinity means no guarantee.
struct epsilon : detail::checked_number<epsilon> {
  using detail::checked_number<epsilon>::checked_number;
  template <std::same_as<double> Plain>
  epsilon(Plain) = delete;  // a plain number does not say what it stands for: write pergrad::epsilon{3.0}
  static constexpr const char* name = "epsilon";
  static constexpr const char* need = "not negative";
  [[nodiscard]] static constexpr bool holds(double x) noexcept { return x >= 0; }
  /// An estimate is an error that says why.
  template <std::same_as<estimate> Estimate>
  explicit epsilon(Estimate /*value*/) : epsilon{0.0} {
    static_cast<void>(error::estimate_as_bound<Estimate>{});
  }
};

/// Probability with which the bound epsilon may fail: strictly between 0 and 1.
struct delta : detail::checked_number<delta> {
  using detail::checked_number<delta>::checked_number;
  template <std::same_as<double> Plain>
  delta(Plain) = delete;  // a plain number does not say what it stands for: write pergrad::delta{1e-5}
  static constexpr const char* name = "delta";
  static constexpr const char* need = "strictly between 0 and 1";
  [[nodiscard]] static constexpr bool holds(double x) noexcept { return x > 0 && x < 1; }
};

/// Step size of an optimizer: finite and positive.
struct learning_rate : detail::checked_number<learning_rate> {
  using detail::checked_number<learning_rate>::checked_number;
  template <std::same_as<double> Plain>
  learning_rate(Plain) = delete;  // a plain number does not say what it stands for: write pergrad::learning_rate{0.1}
  static constexpr const char* name = "learning_rate";
  static constexpr const char* need = "finite and positive";
  [[nodiscard]] static constexpr bool holds(double x) noexcept { return x > 0 && x <= detail::largest_double; }
};

/// Which datasets are neighbours: one with a record more or less, or one with a record exchanged.
enum class neighbouring { add_or_remove_one, replace_one };
/// In words.
[[nodiscard]] constexpr const char* name_of(neighbouring relation) noexcept {
  return relation == neighbouring::replace_one ? "replacing one record" : "adding or removing one record";
}

/// What a training run may spend in total.
struct privacy_budget {
  constexpr privacy_budget(pergrad::epsilon most, pergrad::delta at) noexcept : max_epsilon{most}, delta{at} {}
  // clang-format off
  template <class First, class Second>
  requires(!std::same_as<First, pergrad::epsilon> || !std::same_as<Second, pergrad::delta>)
  privacy_budget(First, Second) = delete;  // write pergrad::privacy_budget{pergrad::epsilon{3.0}, pergrad::delta{1e-5}}
  // clang-format on

  pergrad::epsilon max_epsilon;
  pergrad::delta delta;
};

}  // namespace pergrad::inline v0_1
