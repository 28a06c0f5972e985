// SPDX-License-Identifier: Apache-2.0
// pergrad/testing/spoil.hpp - ways to spoil one sample of many
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>

#include <pergrad/testing/samples.hpp>

namespace pergrad::inline v0_1::testing::testing_detail {

/// Ways to spoil one sample. Of ids: mirrored ones, one id everywhere, another one everywhere, one other id.
enum class spoil { other, huge, nan, infinity, one_nan, last_infinity };
inline constexpr const char* spoil_names[] = {"other values", "huge values", "NaN",
                                              "infinity",     "one NaN",     "one infinity"};
inline constexpr spoil all_spoils[] = {spoil::other,    spoil::huge,    spoil::nan,
                                       spoil::infinity, spoil::one_nan, spoil::last_infinity};

/// The same samples, one of them spoiled. There is no huge or broken id; what can be spoiled is which ids a sample has.
/// `vocabulary` counts the ids, if there are any.
template <class Value, class Target>
[[nodiscard]] sample_values<Value, Target> with_a_spoiled_sample(sample_values<Value, Target> result,
                                                                 std::size_t vocabulary, std::size_t sample,
                                                                 spoil how) {
  if constexpr (std::is_integral_v<Value>) {
    const auto last = static_cast<std::int32_t>(vocabulary - 1);
    const std::span<std::int32_t> ids = result.input(sample);
    for (std::int32_t& id : ids) {
      if (how == spoil::other) id = last - id;
      if (how == spoil::huge || how == spoil::infinity) id = last;
      if (how == spoil::nan) id = 0;
    }
    if (how == spoil::one_nan) ids.front() = last - ids.front();
    if (how == spoil::last_infinity) ids.back() = last - ids.back();
  } else {
    using scalar = Value;
    const std::span<scalar> input = result.input(sample);
    constexpr scalar nan = std::numeric_limits<scalar>::quiet_NaN();
    constexpr scalar infinity = std::numeric_limits<scalar>::infinity();
    for (scalar& value : input) {
      if (how == spoil::other) value = static_cast<scalar>(0.25) - 3 * value;
      if (how == spoil::huge) value *= std::numeric_limits<scalar>::max() / 2;
      if (how == spoil::nan) value = nan;
      if (how == spoil::infinity) value = value < 0 ? -infinity : infinity;
    }
    if (how == spoil::one_nan) input.front() = nan;
    if (how == spoil::last_infinity) input.back() = infinity;
  }
  return result;
}

}  // namespace pergrad::inline v0_1::testing::testing_detail
