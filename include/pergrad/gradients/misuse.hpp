// SPDX-License-Identifier: Apache-2.0
// pergrad/gradients/misuse.hpp - what functions of expressions say to expressions that they do not take
//
// Every function has one more overload, for expressions for which it has no meaning: it compiles to one readable error,
// and what it returns takes the place of the result without another word. Constraints keep it out of the way of what
// has a meaning.
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>

#include <pergrad/detail/stand_ins.hpp>
#include <pergrad/errors.hpp>
#include <pergrad/gradients/clip.hpp>
#include <pergrad/gradients/leaf.hpp>
#include <pergrad/gradients/noise.hpp>
#include <pergrad/gradients/plan.hpp>
#include <pergrad/gradients/scalars.hpp>
#include <pergrad/gradients/sums.hpp>
#include <pergrad/privacy/generator.hpp>
#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1 {

namespace detail {

template <class Type>
struct is_clipped : std::false_type {};
template <class Leaf, class Rule>
struct is_clipped<clipped_gradients<Leaf, Rule>> : std::true_type {};

template <class Leaf, class Numbers>
concept numbers_for =
    is_leaf<Leaf>::value && std::is_convertible_v<const Numbers&, std::span<const typename Leaf::scalar>>;

/// Operands of which one is an expression, but for which there is no arithmetic.
template <class Left, class Right>
concept unpaired = (expression<Left> || expression<Right>)&&!scalar_pairing<Left, Right>;

template <class Type>
inline constexpr bool is_noise = false;
template <class Generator>
inline constexpr bool is_noise<gaussian_noise_of<Generator>> = true;
template <class Expression>
inline constexpr bool is_noised = false;
template <class Sum, class Generator>
inline constexpr bool is_noised<noised_sum<Sum, Generator>> = true;
template <class Noised, class Begin>
inline constexpr bool is_noised<used_on_the_way<Noised, Begin>> = true;

/// Arithmetic that is offered for neither operand.
template <class Left, class Right>
concept meaningless_pair = unpaired<Left, Right> && !is_noise<Right>;

}  // namespace detail

template <norm_method Method, std::size_t... Entries, detail::expression_but_no_leaf Given>
[[nodiscard]] error::explained with_method(const Given& /*given*/) {
  if constexpr (!detail::is_explained<Given>) {
    static_cast<void>(error::needs_per_sample_gradients<error::function::with_method, Given>{});
  }
  return {};
}
template <strategy Strategy, detail::expression_but_no_leaf Given>
[[nodiscard]] error::explained with_strategy(const Given& /*given*/) {
  if constexpr (!detail::is_explained<Given>) {
    static_cast<void>(error::needs_per_sample_gradients<error::function::with_strategy, Given>{});
  }
  return {};
}
template <detail::expression_but_no_leaf Given, class Generator>
[[nodiscard]] error::explained with_randomness(const Given& /*given*/, Generator&& /*generator*/) {
  if constexpr (!detail::any_explained<Given, Generator>) {
    static_cast<void>(error::needs_per_sample_gradients<error::function::with_randomness, Given>{});
  }
  return {};
}
template <class Network, class Loss, random_generator Generator>
[[nodiscard]] error::explained with_randomness(const per_sample_gradient_leaf<Network, Loss>& /*gradients*/,
                                               const Generator&& /*generator*/) {
  static_cast<void>(error::temporary_operand<Generator>{});
  return {};
}
template <class Network, class Loss, class Other>
requires(!random_generator<std::remove_reference_t<Other>>) [[nodiscard]] error::explained
    with_randomness(const per_sample_gradient_leaf<Network, Loss>& gradients, Other&& /*other*/) {
  if constexpr (!detail::is_explained<Other>) {
    static_cast<void>(error::has_no_meaning<error::function::with_randomness, std::remove_cvref_t<decltype(gradients)>,
                                            std::remove_reference_t<Other>>{});
  }
  return {};
}

template <detail::expression_but_no_leaf Given>
[[nodiscard]] error::explained losses(const Given& /*given*/) {
  if constexpr (!detail::is_explained<Given>)
    static_cast<void>(error::needs_per_sample_gradients<error::function::losses, Given>{});
  return {};
}
template <detail::expression_but_no_leaf Given>
[[nodiscard]] error::explained l2_norms(const Given& /*given*/) {
  if constexpr (!detail::is_explained<Given>)
    static_cast<void>(error::needs_per_sample_gradients<error::function::l2_norms, Given>{});
  return {};
}
template <detail::expression_but_no_leaf Given>
[[nodiscard]] error::explained squared_l2_norms(const Given& /*given*/) {
  if constexpr (!detail::is_explained<Given>) {
    static_cast<void>(error::needs_per_sample_gradients<error::function::squared_l2_norms, Given>{});
  }
  return {};
}
template <detail::expression_but_no_leaf Given, class... Rest>
[[nodiscard]] error::explained dot(const Given& /*given*/, const Rest&... /*rest*/) {
  if constexpr (!detail::any_explained<Given, Rest...>) {
    static_cast<void>(error::needs_per_sample_gradients<error::function::dot, Given, Rest...>{});
  }
  return {};
}
template <class Network, class Loss, class Direction>
requires(!detail::numbers_for<per_sample_gradient_leaf<Network, Loss>, Direction>) [[nodiscard]] error::explained
    dot(const per_sample_gradient_leaf<Network, Loss>& /*gradients*/, const Direction& /*direction*/) {
  if constexpr (!detail::is_explained<Direction>) {
    static_cast<void>(
        error::operand_does_not_fit<error::function::dot, std::span<const typename Network::scalar>, Direction>{});
  }
  return {};
}

template <detail::expression Given, class... Bound>
requires(!detail::is_leaf<Given>::value ||
         !(std::is_convertible_v<Bound, l2_clip_norm> && ... && (sizeof...(Bound) == 1))) [[nodiscard]] error::explained
    clip(const Given& /*given*/, const Bound&... /*bound*/) {
  if constexpr (!detail::any_explained<Given, Bound...>) {
    static_cast<void>(error::cannot_be_clipped<error::function::clip, Given, Bound...>{});
  }
  return {};
}
template <detail::expression Given, class... Bound>
requires(!detail::is_leaf<Given>::value || !((std::is_convertible_v<Bound, l2_clip_norm> ||
                                              std::is_convertible_v<Bound, std::span<const l2_clip_norm>>)&&... &&
                                             (sizeof...(Bound) == 1))) [[nodiscard]] error::explained
    clip_per_layer(const Given& /*given*/, const Bound&... /*bound*/) {
  if constexpr (!detail::any_explained<Given, Bound...>) {
    static_cast<void>(error::cannot_be_clipped<error::function::clip_per_layer, Given, Bound...>{});
  }
  return {};
}
template <detail::expression_but_no_leaf Given, class... Bound>
[[nodiscard]] error::explained clip_per_group(const Given& /*given*/, const Bound&... /*bound*/) {
  if constexpr (!detail::any_explained<Given, Bound...>) {
    static_cast<void>(error::cannot_be_clipped<error::function::clip_per_group, Given, Bound...>{});
  }
  return {};
}
template <detail::expression_but_no_leaf Given, class... Rest>
[[nodiscard]] error::explained normalise(const Given& /*given*/, const Rest&... /*rest*/) {
  if constexpr (!detail::any_explained<Given, Rest...>) {
    static_cast<void>(error::cannot_be_clipped<error::function::normalise, Given, Rest...>{});
  }
  return {};
}

template <detail::expression_but_no_leaf Given, class... Rest>
requires(!detail::is_clipped<Given>::value) [[nodiscard]] error::explained
    sum(const Given& /*given*/, const Rest&... /*rest*/) {
  if constexpr (!detail::any_explained<Given, Rest...>) {
    static_cast<void>(error::cannot_be_summed<error::function::sum, Given, Rest...>{});
  }
  return {};
}
template <detail::expression_but_no_leaf Given>
[[nodiscard]] error::explained mean(const Given& /*given*/) {
  if constexpr (!detail::is_explained<Given>)
    static_cast<void>(error::cannot_be_summed<error::function::mean, Given>{});
  return {};
}
template <detail::expression Given, class Weights>
requires(!detail::is_leaf<Given>::value || (!per_sample_scalar<Weights> && !detail::numbers_for<Given, Weights>))
    [[nodiscard]] error::explained weighted_sum(const Given& /*given*/, const Weights& /*weights*/) {
  if constexpr (!detail::any_explained<Given, Weights>) {
    if constexpr (detail::is_leaf<Given>::value && !detail::expression<Weights>) {
      static_cast<void>(error::operand_does_not_fit<error::function::weighted_sum,
                                                    std::span<const typename Given::scalar>, Weights>{});
    } else {
      static_cast<void>(error::has_no_meaning<error::function::weighted_sum, Given, Weights>{});
    }
  }
  return {};
}
template <detail::expression_but_no_leaf Given>
requires(!detail::is_clipped<Given>::value) [[nodiscard]] error::explained materialise(const Given& /*given*/) {
  if constexpr (!detail::is_explained<Given>)
    static_cast<void>(error::has_no_meaning<error::function::materialise, Given>{});
  return {};
}
template <detail::expression_but_no_leaf Given>
[[nodiscard]] error::explained second_moment(const Given& /*given*/) {
  if constexpr (!detail::is_explained<Given>)
    static_cast<void>(error::needs_per_sample_gradients<error::function::second_moment, Given>{});
  return {};
}
template <detail::expression_but_no_leaf Given>
[[nodiscard]] error::explained variance(const Given& /*given*/) {
  if constexpr (!detail::is_explained<Given>)
    static_cast<void>(error::needs_per_sample_gradients<error::function::variance, Given>{});
  return {};
}
template <detail::expression_but_no_leaf Given>
[[nodiscard]] error::explained outputs(const Given& /*given*/) {
  if constexpr (!detail::is_explained<Given>)
    static_cast<void>(error::needs_per_sample_gradients<error::function::outputs, Given>{});
  return {};
}
template <detail::expression_but_no_leaf Given>
[[nodiscard]] error::explained gram(const Given& /*given*/) {
  if constexpr (!detail::is_explained<Given>)
    static_cast<void>(error::needs_per_sample_gradients<error::function::gram, Given>{});
  return {};
}

/// Arithmetic is for per-sample scalars and numbers; on anything else it is an error that says so.
template <class Left, class Right>
requires detail::unpaired<Left, Right>
[[nodiscard]] error::explained min(const Left& /*left*/, const Right& /*right*/) {
  if constexpr (!detail::any_explained<Left, Right>)
    static_cast<void>(error::has_no_meaning<error::function::min, Left, Right>{});
  return {};
}
template <class Left, class Right>
requires detail::unpaired<Left, Right>
[[nodiscard]] error::explained max(const Left& /*left*/, const Right& /*right*/) {
  if constexpr (!detail::any_explained<Left, Right>)
    static_cast<void>(error::has_no_meaning<error::function::max, Left, Right>{});
  return {};
}
template <class Left, class Right>
requires detail::unpaired<Left, Right>
[[nodiscard]] error::explained pow(const Left& /*left*/, const Right& /*right*/) {
  if constexpr (!detail::any_explained<Left, Right>)
    static_cast<void>(error::has_no_meaning<error::function::pow, Left, Right>{});
  return {};
}
template <class Left, class Right>
requires detail::meaningless_pair<Left, Right>
[[nodiscard]] error::explained operator+(const Left& /*left*/, const Right& /*right*/) {
  if constexpr (!detail::any_explained<Left, Right>)
    static_cast<void>(error::has_no_meaning<error::function::plus, Left, Right>{});
  return {};
}
template <class Left, class Right>
requires detail::meaningless_pair<Left, Right>
[[nodiscard]] error::explained operator-(const Left& /*left*/, const Right& /*right*/) {
  if constexpr (!detail::any_explained<Left, Right>)
    static_cast<void>(error::has_no_meaning<error::function::minus, Left, Right>{});
  return {};
}
template <class Left, class Right>
requires detail::meaningless_pair<Left, Right>
[[nodiscard]] error::explained operator*(const Left& /*left*/, const Right& /*right*/) {
  if constexpr (!detail::any_explained<Left, Right>)
    static_cast<void>(error::has_no_meaning<error::function::times, Left, Right>{});
  return {};
}
template <class Left, class Right>
requires detail::meaningless_pair<Left, Right>
[[nodiscard]] error::explained operator/(const Left& /*left*/, const Right& /*right*/) {
  if constexpr (detail::is_noised<Left> && std::is_arithmetic_v<Right>) {
    static_cast<void>(error::plain_number<error::function::divided_by, expected_batch_size, Right>{});
  } else if constexpr (!detail::any_explained<Left, Right>) {
    static_cast<void>(error::has_no_meaning<error::function::divided_by, Left, Right>{});
  }
  return {};
}

}  // namespace pergrad::inline v0_1
