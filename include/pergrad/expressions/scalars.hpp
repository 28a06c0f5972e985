// SPDX-License-Identifier: Apache-2.0
// pergrad/expressions/scalars.hpp - one number a sample: losses, norms, projections, and arithmetic on them
//
// These are private values. They come out under `unprotected::` only, and as weights of a sum they give it no
// sensitivity.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <type_traits>

#include <pergrad/detail/error_text.hpp>
#include <pergrad/expressions/leaf.hpp>

namespace pergrad::inline v0_1 {

/// An expression with one double a sample.
template <class Type>
concept per_sample_scalar = std::is_base_of_v<detail::per_sample_scalar_tag, Type>;

namespace detail {

/// What a scalar expression needs of the engine.
struct scalar_needs {
  bool backward = false;
  bool norms = false;
  [[nodiscard]] constexpr scalar_needs with(scalar_needs other) const noexcept {
    return {backward || other.backward, norms || other.norms};
  }
};

template <class Leaf>
struct loss_of : per_sample_scalar_tag {
  Leaf leaf;
  static constexpr scalar_needs needs{};
  template <class Scalar>
  [[nodiscard]] double at(const detail::sample_facts<Scalar>& facts) const noexcept {
    return facts.loss;
  }
  explicit loss_of(Leaf of) : leaf{of} {}
};

template <class Leaf, bool Squared>
struct norm_of : per_sample_scalar_tag {
  Leaf leaf;
  static constexpr scalar_needs needs{true, true};
  template <class Scalar>
  [[nodiscard]] double at(const detail::sample_facts<Scalar>& facts) const noexcept {
    return Squared ? facts.norm.squared : std::sqrt(facts.norm.squared);
  }
  explicit norm_of(Leaf of) : leaf{of} {}
};

template <class Leaf>
struct projection_of : per_sample_scalar_tag {
  Leaf leaf;
  std::span<const typename Leaf::scalar> direction;
  static constexpr scalar_needs needs{true, true};
  template <class Scalar>
  [[nodiscard]] double at(const detail::sample_facts<Scalar>& facts) const noexcept {
    return facts.projection;
  }
  projection_of(Leaf of, std::span<const typename Leaf::scalar> along) : leaf{of}, direction{along} {}
};

template <class Operation, class Left, class Right>
struct scalar_pair : per_sample_scalar_tag {
  Left left;
  Right right;
  static constexpr scalar_needs needs = [] {
    scalar_needs result;
    if constexpr (per_sample_scalar<Left>) result = result.with(Left::needs);
    if constexpr (per_sample_scalar<Right>) result = result.with(Right::needs);
    return result;
  }();
  scalar_pair(Left a, Right b) : left{a}, right{b} {
    if constexpr (per_sample_scalar<Left> && per_sample_scalar<Right>) {
      if (!leaf_of(left).same_as(leaf_of(right))) {
        throw std::invalid_argument("pergrad: an expression mixes the per-sample gradients of different evaluations");
      }
    }
  }
  template <class Scalar>
  [[nodiscard]] double at(const detail::sample_facts<Scalar>& facts) const noexcept {
    return Operation{}(value(left, facts), value(right, facts));
  }

 private:
  template <class Operand, class Scalar>
  [[nodiscard]] static double value(const Operand& operand, const detail::sample_facts<Scalar>& facts) noexcept {
    if constexpr (per_sample_scalar<Operand>) {
      return operand.at(facts);
    } else {
      return static_cast<double>(operand);
    }
  }
};

/// The leaf that an expression reads.
template <class Expression>
[[nodiscard]] auto leaf_of(const Expression& expression) {
  if constexpr (requires { expression.leaf(); }) {
    return expression.leaf();
  } else if constexpr (requires { expression.leaf; }) {
    return expression.leaf;
  } else if constexpr (per_sample_scalar<decltype(expression.left)>) {
    return leaf_of(expression.left);
  } else {
    return leaf_of(expression.right);
  }
}

/// Asks for the projections that a scalar expression reads: one evaluation has one direction.
template <class Scalar, class Expression>
void ask_for_projections(run_request<Scalar>& request, const Expression& expression) {
  if constexpr (requires { expression.direction; }) {
    if (request.direction != nullptr && request.direction != expression.direction.data()) {
      throw std::invalid_argument("pergrad: one evaluation can project on one direction only");
    }
    request.direction = expression.direction.data();
  } else if constexpr (requires { expression.left; }) {
    ask_for_projections(request, expression.left);
    ask_for_projections(request, expression.right);
  }
}

template <class Left, class Right, class Operation>
[[nodiscard]] auto pair_of(const Left& left, const Right& right, Operation /*operation*/) {
  return scalar_pair<Operation, Left, Right>{left, right};
}
template <class Right, class Left>
concept scalar_beside = (per_sample_scalar<Left> && (per_sample_scalar<Right> || std::is_arithmetic_v<Right>)) ||
                        (std::is_arithmetic_v<Left> && per_sample_scalar<Right>);

}  // namespace detail

/// The loss of every sample.
template <class Network, class Loss, detail::algorithms Which>
[[nodiscard]] auto losses(const per_sample_gradient_leaf<Network, Loss, Which>& gradients) {
  return detail::loss_of{gradients};
}
/// The L2 norm of every sample's gradient.
template <class Network, class Loss, detail::algorithms Which>
[[nodiscard]] auto l2_norms(const per_sample_gradient_leaf<Network, Loss, Which>& gradients) {
  return detail::norm_of<per_sample_gradient_leaf<Network, Loss, Which>, false>{gradients};
}
/// The squared L2 norm of every sample's gradient.
template <class Network, class Loss, detail::algorithms Which>
[[nodiscard]] auto squared_l2_norms(const per_sample_gradient_leaf<Network, Loss, Which>& gradients) {
  return detail::norm_of<per_sample_gradient_leaf<Network, Loss, Which>, true>{gradients};
}
/// The inner product of every sample's gradient with `direction`, parameter_count values in PyTorch's order that must
/// live until the evaluation. Throws std::invalid_argument for another size.
template <class Network, class Loss, detail::algorithms Which>
[[nodiscard]] auto dot(const per_sample_gradient_leaf<Network, Loss, Which>& gradients,
                       std::type_identity_t<std::span<const typename Network::scalar>> direction) {
  if (direction.size() != Network::parameter_count) {
    detail::throw_invalid_argument(
        {"pergrad: dot: a direction of ", direction.size(), " values for ", Network::parameter_count, " parameters"});
  }
  return detail::projection_of<per_sample_gradient_leaf<Network, Loss, Which>>{gradients, direction};
}

/// Arithmetic on per-sample scalars and numbers, in double.
template <class Left, detail::scalar_beside<Left> Right>
[[nodiscard]] auto operator+(const Left& left, const Right& right) {
  return detail::pair_of(left, right, [](double a, double b) noexcept { return a + b; });
}
template <class Left, detail::scalar_beside<Left> Right>
[[nodiscard]] auto operator-(const Left& left, const Right& right) {
  return detail::pair_of(left, right, [](double a, double b) noexcept { return a - b; });
}
template <class Left, detail::scalar_beside<Left> Right>
[[nodiscard]] auto operator*(const Left& left, const Right& right) {
  return detail::pair_of(left, right, [](double a, double b) noexcept { return a * b; });
}
template <class Left, detail::scalar_beside<Left> Right>
[[nodiscard]] auto operator/(const Left& left, const Right& right) {
  return detail::pair_of(left, right, [](double a, double b) noexcept { return a / b; });
}
template <class Left, detail::scalar_beside<Left> Right>
[[nodiscard]] auto min(const Left& left, const Right& right) {
  return detail::pair_of(left, right, [](double a, double b) noexcept { return std::min(a, b); });
}
template <class Left, detail::scalar_beside<Left> Right>
[[nodiscard]] auto max(const Left& left, const Right& right) {
  return detail::pair_of(left, right, [](double a, double b) noexcept { return std::max(a, b); });
}
template <class Left, detail::scalar_beside<Left> Right>
[[nodiscard]] auto pow(const Left& left, const Right& right) {
  return detail::pair_of(left, right, [](double a, double b) noexcept { return std::pow(a, b); });
}

}  // namespace pergrad::inline v0_1
