// SPDX-License-Identifier: Apache-2.0
// pergrad/expressions/misuse.hpp - what functions say where an expression would lose its privacy
//
// What clips, sums and divides has one more overload, for what it does not take: it compiles to one readable error, and
// what it returns takes the place of the result without another word. Constraints keep it out of the way of what has a
// meaning. Other mistakes are what the compiler makes of them. What takes the place of an expression goes through every
// function in silence.
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>

#include <pergrad/errors.hpp>
#include <pergrad/expressions/clip.hpp>
#include <pergrad/expressions/leaf.hpp>
#include <pergrad/expressions/noise.hpp>
#include <pergrad/expressions/scalars.hpp>
#include <pergrad/expressions/sums.hpp>
#include <pergrad/gradients/plan.hpp>
#include <pergrad/graph/stand_ins.hpp>
#include <pergrad/privacy/generator.hpp>
#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1 {

namespace detail {

template <class Type>
concept explained_expression = is_explained<Type>;

template <class Type>
struct is_clipped : std::false_type {};
template <class Leaf, class Rule>
struct is_clipped<clipped_gradients<Leaf, Rule>> : std::true_type {};

template <class Type>
inline constexpr bool is_noise = false;
template <class Generator>
inline constexpr bool is_noise<noise_of<Generator>> = true;
template <class Expression>
inline constexpr bool is_noised = false;
template <class Sum, class Generator>
inline constexpr bool is_noised<noised_sum<Sum, Generator>> = true;
template <class Network, class Generator>
inline constexpr bool is_noised<noised_total<Network, Generator>> = true;

/// What is said of these arguments: nothing if one of them stands for a mistake that was explained.
template <class Explanation, class... Given>
using complaint = std::conditional_t<any_explained<Given...>, char, Explanation>;

}  // namespace detail

template <class Network, class Loss, detail::algorithms Which, random_generator Generator>
[[nodiscard]] error::explained with_randomness(const per_sample_gradient_leaf<Network, Loss, Which>& /*gradients*/,
                                               const Generator&& /*generator*/) {
  static_cast<void>(error::temporary_operand<Generator>{});
  return {};
}
template <detail::expression Given, class... Bound>
requires(!detail::is_leaf<Given>::value ||
         !(std::is_convertible_v<Bound, l2_clip_norm> && ... && (sizeof...(Bound) == 1))) [[nodiscard]] error::explained
    clip(const Given& /*given*/, const Bound&... /*bound*/) {
  static_cast<void>(
      detail::complaint<error::cannot_be_clipped<error::function::clip, Given, Bound...>, Given, Bound...>{});
  return {};
}
template <detail::expression Given, class... Bound>
requires(!detail::is_leaf<Given>::value || !((std::is_convertible_v<Bound, l2_clip_norm> ||
                                              std::is_convertible_v<Bound, std::span<const l2_clip_norm>>)&&... &&
                                             (sizeof...(Bound) == 1))) [[nodiscard]] error::explained
    clip_per_layer(const Given& /*given*/, const Bound&... /*bound*/) {
  static_cast<void>(
      detail::complaint<error::cannot_be_clipped<error::function::clip_per_layer, Given, Bound...>, Given, Bound...>{});
  return {};
}
template <detail::expression_but_no_leaf Given, class... Bound>
[[nodiscard]] error::explained clip_per_group(const Given& /*given*/, const Bound&... /*bound*/) {
  static_cast<void>(
      detail::complaint<error::cannot_be_clipped<error::function::clip_per_group, Given, Bound...>, Given, Bound...>{});
  return {};
}
template <detail::expression_but_no_leaf Given, class... Rest>
[[nodiscard]] error::explained normalise(const Given& /*given*/, const Rest&... /*rest*/) {
  static_cast<void>(
      detail::complaint<error::cannot_be_clipped<error::function::normalise, Given, Rest...>, Given, Rest...>{});
  return {};
}

template <detail::expression_but_no_leaf Given, class... Rest>
requires(!detail::is_clipped<Given>::value) [[nodiscard]] error::explained
    sum(const Given& /*given*/, const Rest&... /*rest*/) {
  static_cast<void>(detail::complaint<error::cannot_be_summed<error::function::sum, Given, Rest...>, Given, Rest...>{});
  return {};
}
template <detail::expression_but_no_leaf Given>
[[nodiscard]] error::explained mean(const Given& /*given*/) {
  static_cast<void>(detail::complaint<error::cannot_be_summed<error::function::mean, Given>, Given>{});
  return {};
}
template <class Noised, class Number>
requires(detail::is_noised<Noised>&& std::is_arithmetic_v<Number>) [[nodiscard]] error::explained operator/(
    const Noised& /*noised*/, Number /*divisor*/) {
  static_cast<void>(error::plain_number<error::function::divided_by, expected_batch_size, Number>{});
  return {};
}

// What takes the place of an expression.
// clang-format off
template <norm_method Method, std::size_t... Entries, detail::explained_expression Given>
[[nodiscard]] error::explained with_method(const Given& /*given*/) { return {}; }
template <strategy Strategy, detail::explained_expression Given>
[[nodiscard]] error::explained with_strategy(const Given& /*given*/) { return {}; }
template <detail::explained_expression Given, class Generator>
[[nodiscard]] error::explained with_randomness(const Given& /*given*/, Generator&& /*generator*/) { return {}; }
template <detail::explained_expression Given> [[nodiscard]] error::explained losses(const Given& /*given*/) { return {}; }
template <detail::explained_expression Given> [[nodiscard]] error::explained l2_norms(const Given& /*given*/) { return {}; }
template <detail::explained_expression Given> [[nodiscard]] error::explained squared_l2_norms(const Given& /*given*/) { return {}; }
template <detail::explained_expression Given> [[nodiscard]] error::explained materialise(const Given& /*given*/) { return {}; }
template <detail::explained_expression Given> [[nodiscard]] error::explained second_moment(const Given& /*given*/) { return {}; }
template <detail::explained_expression Given> [[nodiscard]] error::explained variance(const Given& /*given*/) { return {}; }
template <detail::explained_expression Given> [[nodiscard]] error::explained outputs(const Given& /*given*/) { return {}; }
template <detail::explained_expression Given> [[nodiscard]] error::explained gram(const Given& /*given*/) { return {}; }
template <class... Given> requires detail::any_explained<Given...> [[nodiscard]] error::explained dot(const Given&... /*given*/) { return {}; }
template <class... Given> requires detail::any_explained<Given...> [[nodiscard]] error::explained weighted_sum(const Given&... /*given*/) { return {}; }
template <class First, class Second> requires detail::any_explained<First, Second> [[nodiscard]] error::explained min(const First& /*first*/, const Second& /*second*/) { return {}; }
template <class First, class Second> requires detail::any_explained<First, Second> [[nodiscard]] error::explained max(const First& /*first*/, const Second& /*second*/) { return {}; }
template <class First, class Second> requires detail::any_explained<First, Second> [[nodiscard]] error::explained pow(const First& /*first*/, const Second& /*second*/) { return {}; }
template <class First, class Second> requires(detail::any_explained<First, Second> && !detail::is_noise<Second>) [[nodiscard]] error::explained operator+(const First& /*first*/, const Second& /*second*/) { return {}; }
template <class First, class Second> requires detail::any_explained<First, Second> [[nodiscard]] error::explained operator-(const First& /*first*/, const Second& /*second*/) { return {}; }
template <class First, class Second> requires detail::any_explained<First, Second> [[nodiscard]] error::explained operator*(const First& /*first*/, const Second& /*second*/) { return {}; }
template <class First, class Second> requires detail::any_explained<First, Second> [[nodiscard]] error::explained operator/(const First& /*first*/, const Second& /*second*/) { return {}; }
// clang-format on

}  // namespace pergrad::inline v0_1
