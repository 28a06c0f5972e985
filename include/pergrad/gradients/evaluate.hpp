// SPDX-License-Identifier: Apache-2.0
// pergrad/gradients/evaluate.hpp - the verbs: they alone compute, and they name the executor
//
//   evaluate_into(exec, update, sum(clip(g, C)) + gaussian_noise(sigma, rng))              a release
//   unprotected::evaluate(exec, l2_norms(g))                                              a private value, returned
//   unprotected::evaluate_into(exec, assign(total, sum(clip(g, C))), assign(norms, l2_norms(g)), assign(ls, losses(g)))
// However many results one call asks for, it runs one forward and one backward pass.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include <pergrad/detail/error_text.hpp>
#include <pergrad/detail/executors.hpp>
#include <pergrad/errors.hpp>
#include <pergrad/gradients/misuse.hpp>
#include <pergrad/gradients/noise.hpp>
#include <pergrad/gradients/scalars.hpp>
#include <pergrad/gradients/sums.hpp>
#include <pergrad/host/executor.hpp>

namespace pergrad::inline v0_1 {

namespace detail {

template <class Type>
concept gradient_expression = requires(const Type& expression) {
  typename Type::value_type;
  expression.value_count(expression.leaf());
};
template <class Type>
concept evaluable = gradient_expression<Type> || per_sample_scalar<Type>;

template <class Expression>
[[nodiscard]] auto leaf_of_expression(const Expression& expression) {
  if constexpr (per_sample_scalar<Expression>) {
    return leaf_of(expression);
  } else {
    return expression.leaf();
  }
}

template <class Expression>
struct value_type_of {
  using type = double;
};
template <gradient_expression Expression>
struct value_type_of<Expression> {
  using type = typename Expression::value_type;
};

template <class Expression>
[[nodiscard]] std::size_t value_count_of(const Expression& expression) {
  const auto leaf = leaf_of_expression(expression);
  if constexpr (per_sample_scalar<Expression>) {
    return leaf.size();
  } else {
    return expression.value_count(leaf);
  }
}

[[noreturn]] inline void throw_result_does_not_fit(std::size_t values, std::size_t room) {
  throw_invalid_argument({"pergrad: a result of ", values, " values does not fit a destination of ", room});
}

/// What stands for a bounded_total where there is none.
struct no_total {};

/// One expression and where its result goes; with `Total`, into a bounded_total, which shows its numbers to nobody.
template <class Expression, class Total = no_total>
class assignment {
 public:
  using value_type = typename value_type_of<Expression>::type;

  assignment(std::span<value_type> out, Expression expression, bool accumulate, Total* total = nullptr)
      : out_{out}, expression_{expression}, accumulate_{accumulate}, total_{total} {
    if (const std::size_t count = value_count_of(expression_); out.size() != count) {
      throw_result_does_not_fit(count, out.size());
    }
  }
  [[nodiscard]] auto leaf() const { return leaf_of_expression(expression_); }
  [[nodiscard]] static constexpr bool whole_batch() {
    if constexpr (requires { Expression::whole_batch; }) {
      return Expression::whole_batch;
    } else {
      return true;
    }
  }
  /// May it ask for more than losses and outputs?
  [[nodiscard]] static constexpr bool needs_backward() {
    if constexpr (per_sample_scalar<Expression>) {
      return Expression::needs.backward;
    } else if constexpr (requires { Expression::needs_backward; }) {
      return Expression::needs_backward;
    } else {
      return true;
    }
  }

  template <class Scalar>
  void attach(on_host::run_request<Scalar>& request) {
    if constexpr (per_sample_scalar<Expression>) {
      request.backward = request.backward || Expression::needs.backward;
      request.norms = request.norms || Expression::needs.norms;
      if (const Scalar* direction = direction_of<Scalar>(expression_); direction != nullptr) {
        if (request.direction != nullptr && request.direction != direction) {
          throw std::invalid_argument("pergrad: one evaluation can project on one direction only");
        }
        request.direction = direction;
      }
      new_observer(request) = {this, [](void* self, const on_host::sample_facts<Scalar>& facts) {
                                 auto* mine = static_cast<assignment*>(self);
                                 const double value = mine->expression_.at(facts);
                                 double& to = mine->out_[facts.sample];
                                 to = mine->accumulate_ ? to + value : value;
                               }};
    } else {
      if constexpr (is_enclosed) {
        const bool adds = gradient_access::begin_chunk(*total_);
        is_first_chunk_ = !adds;
        accumulate_ = accumulate_ && adds;
      }
      expression_.attach(request, out_, accumulate_);
    }
  }
  void finish(const host& executor) {
    if constexpr (requires { expression_.finish(executor, out_); }) expression_.finish(executor, out_);
  }
  /// After an exception: nobody may take what lies in the destination for a total or for a noised sum.
  void abandon() noexcept {
    if constexpr (is_enclosed) {
      if (is_first_chunk_) gradient_access::forget_chunk(*total_);
    } else if constexpr (is_noised<Expression>) {
      std::fill(out_.begin(), out_.end(), value_type{0});
    }
  }

 private:
  static constexpr bool is_enclosed = !std::is_same_v<Total, no_total>;

  std::span<value_type> out_;
  Expression expression_;
  bool accumulate_;
  bool is_first_chunk_ = false;
  Total* total_;
};

/// Runs several assignments over the same gradients in one pass.
template <executor Executor, class First, class... Rest>
void evaluate_together(const Executor& executor, First& first, Rest&... rest) {
  const auto leaf = first.leaf();
  if constexpr (device_executor<Executor>) {  // here and not where it runs: a short way back to the user's line
    static_assert(sizeof(typename Executor::template loss_explanation<typename decltype(leaf)::loss_type>) != 0);
  }
  if ((!leaf.same_as(rest.leaf()) || ...)) {
    throw std::invalid_argument("pergrad: expressions evaluated together must be over the same per-sample gradients");
  }
  if (sizeof...(Rest) > 0 && !(First::whole_batch() && (Rest::whole_batch() && ...))) {
    throw std::invalid_argument("pergrad: one sample's gradient g[b] is evaluated on its own");
  }
  try {
    on_host::run_request<typename decltype(leaf)::scalar> request;
    request.count = leaf.size();
    first.attach(request);
    (rest.attach(request), ...);
    leaf.template run<(First::needs_backward() || ... || Rest::needs_backward())>(executor, request);
    first.finish(crew_of(executor));
    (rest.finish(crew_of(executor)), ...);
  } catch (...) {
    first.abandon();
    (rest.abandon(), ...);
    throw;
  }
}

template <class Destination, class Expression>
[[nodiscard]] auto destination_of(Destination& destination, const Expression& expression) {
  using value_type = typename value_type_of<Expression>::type;
  if constexpr (requires { gradient_access::values(destination); }) {
    return gradient_access::values(destination);
  } else if constexpr (requires { destination.values(); }) {
    return destination.values();
  } else {
    static_cast<void>(expression);
    return std::span<value_type>{destination};
  }
}

template <class Destination>
struct is_private_gradient : std::false_type {};
template <class Network>
struct is_private_gradient<private_gradient<Network>> : std::true_type {};
template <class Destination>
struct is_bounded_total : std::false_type {};
template <class Network>
struct is_bounded_total<bounded_total<Network>> : std::true_type {};
template <class Expression>
struct is_bounded_sum : std::false_type {};
template <class Leaf, class Rule>
struct is_bounded_sum<bounded_sum<Leaf, Rule>> : std::true_type {};
template <class Type>
struct is_assignment : std::false_type {};
template <class Expression, class Total>
struct is_assignment<assignment<Expression, Total>> : std::true_type {};

template <class Destination, class Value>
concept is_destination = is_private_gradient<Destination>::value || is_bounded_total<Destination>::value ||
                         std::is_constructible_v<std::span<Value>, Destination&> ||
                         requires(Destination& destination) {
  requires std::is_convertible_v<decltype(destination.values()), std::span<Value>>;
};

/// What is wrong with `destination = expression`, as a class whose body says so; `char` if nothing is.
template <class Function, class Destination, class Expression>
[[nodiscard]] constexpr auto explanation_of_assignment() {
  if constexpr (any_explained<Destination, Expression>) {
    return std::type_identity<char>{};
  } else if constexpr (is_private_gradient<Destination>::value &&
                       (!is_noised<Expression> || std::is_same_v<Function, error::function::accumulate>)) {
    return std::type_identity<error::private_step_needs_a_noised_sum<Expression>>{};
  } else if constexpr (is_bounded_total<Destination>::value && !is_bounded_sum<Expression>::value) {
    return std::type_identity<error::total_needs_a_clipped_sum<Expression>>{};
  } else if constexpr (!evaluable<Expression>) {
    return std::type_identity<error::has_no_meaning<Function, Expression>>{};
  } else if constexpr (!is_destination<Destination, typename value_type_of<Expression>::type>) {
    return std::type_identity<error::destination_does_not_fit<
        Destination, std::span<typename value_type_of<Expression>::type>, Expression>>{};
  } else {
    return std::type_identity<char>{};
  }
}
template <class Function, class Destination, class Expression>
using assignment_explanation = typename decltype(explanation_of_assignment<Function, Destination, Expression>())::type;

/// `destination = expression`, or with `Adds` `destination += expression`.
template <class Function, bool Adds, class Destination, class Expression>
[[nodiscard]] auto assignment_of(Destination&& destination, const Expression& expression) {
  using plain = std::remove_cvref_t<Destination>;
  using explanation = assignment_explanation<Function, plain, Expression>;
  if constexpr (!std::is_same_v<explanation, char> || any_explained<plain, Expression>) {
    static_cast<void>(explanation{});
    return error::explained{};
  } else {
    const auto out = destination_of(destination, expression);
    if constexpr (is_bounded_total<plain>::value) {
      if constexpr (!Adds) destination.clear();
      gradient_access::admit(destination, expression.sensitivity());
      return assignment<Expression, plain>{out, expression, Adds, &destination};
    } else {
      return assignment<Expression>{out, expression, Adds};
    }
  }
}

}  // namespace detail

/// `destination = expression` as one of several results of an evaluation. Destinations: a vector or span of the right
/// size, an `unprotected::gradient`, a `private_gradient` (noised sums only), a `bounded_total` (clipped sums only).
template <class Destination, class Expression>
[[nodiscard]] auto assign(Destination&& destination, const Expression& expression) {
  return detail::assignment_of<error::function::assign, false>(destination, expression);
}
/// `destination += expression`: sums over chunks of a batch.
template <class Destination, class Expression>
[[nodiscard]] auto accumulate(Destination&& destination, const Expression& expression) {
  return detail::assignment_of<error::function::accumulate, true>(destination, expression);
}

namespace detail {

/// Evaluates a noised sum into a private gradient, which is all zeros if that fails. `begin` as in detail::add_noise.
template <executor Executor, class Network, class Sum, class Generator, class Begin>
void release(const Executor& executor, private_gradient<Network>& update, const noised_sum<Sum, Generator>& noised,
             const Begin& begin) {
  auto only = assign(update, used_on_the_way<noised_sum<Sum, Generator>, Begin>{noised, begin});
  evaluate_together(executor, only);
}
/// Adds noise to a total of chunks into a private gradient.
template <executor Executor, class Network, class Generator, class Begin = unused>
void release(const Executor& executor, private_gradient<Network>& update,
             const noised_total<Network, Generator>& noised, const Begin& begin = {}) {
  const std::span<typename Network::scalar> out = gradient_access::values(update);
  if (out.size() != Network::parameter_count) {
    throw std::invalid_argument("pergrad: a private_gradient that was moved from cannot take a noised sum");
  }
  noised.release(crew_of(executor), out.data(), begin);
}

}  // namespace detail

/// Evaluates a noised sum into a private gradient: the one thing that may be released. Draws the noise once, also for
/// an empty batch. Throws what the batch, the tape and the generator throw; the gradient is all zeros then.
template <executor Executor, class Network, class Expression>
void evaluate_into(const Executor& executor, private_gradient<Network>& update, const Expression& expression) {
  if constexpr (detail::is_noised<Expression>) {
    auto only = assign(update, expression);
    detail::evaluate_together(executor, only);
  } else if constexpr (!detail::is_explained<Expression>) {
    static_cast<void>(error::private_step_needs_a_noised_sum<Expression>{});
  }
}
/// The same for a total of chunks.
template <executor Executor, class Network, class Generator>
void evaluate_into(const Executor& executor, private_gradient<Network>& update,
                   const noised_total<Network, Generator>& noised) {
  detail::release(executor, update, noised);
}
/// Adds a chunk's clipped sum to a total: `evaluate_into(exec, accumulate(total, sum(clip(g, C))))`. If that throws,
/// the total holds what it held, or it is empty again, or parts of the chunk are in it.
template <executor Executor, class Leaf, class Rule, class Network>
void evaluate_into(const Executor& executor,
                   detail::assignment<bounded_sum<Leaf, Rule>, bounded_total<Network>> chunk) {
  detail::evaluate_together(executor, chunk);
}
/// Everything else is not a release.
template <executor Executor, class Given>
void evaluate_into(const Executor& /*executor*/, const Given& /*given*/) {
  if constexpr (!detail::is_explained<Given>) static_cast<void>(error::release_needs_noise<Given>{});
}
template <executor Executor, class Destination, class Expression>
void evaluate_into(const Executor& /*executor*/, Destination&& /*destination*/, const Expression& /*expression*/) {
  if constexpr (!detail::any_explained<Destination, Expression>) {
    static_cast<void>(error::release_needs_noise<std::remove_cvref_t<Destination>, Expression>{});
  }
}
template <executor Executor, class First, class Second, class Third, class... Rest>
void evaluate_into(const Executor& /*executor*/, const First&, const Second&, const Third&, const Rest&...) {
  if constexpr (!detail::any_explained<First, Second, Third, Rest...>) {
    static_cast<void>(error::release_needs_noise<First, Second, Third, Rest...>{});
  }
}

template <class First, class... Rest>
requires(!executor<First> && sizeof...(Rest) > 0) void evaluate_into(const First& /*destination*/, const Rest&...) {
  static_cast<void>(error::needs_an_executor<error::function::evaluate_into, First>{});
}

/// Values that are not protected by noise: for tests, debugging and non-private training. Their names say so.
namespace unprotected {

/// Evaluates one expression into a destination of the right size.
template <executor Executor, class Destination, class Expression>
requires(!pergrad::detail::is_assignment<Expression>::value) void evaluate_into(const Executor& executor,
                                                                                Destination&& destination,
                                                                                const Expression& expression) {
  auto only = pergrad::detail::assignment_of<error::function::assign, false>(destination, expression);
  if constexpr (!pergrad::detail::is_explained<decltype(only)>) pergrad::detail::evaluate_together(executor, only);
}
/// Evaluates several results over the same gradients in one pass.
template <executor Executor, class... Assignments>
requires((pergrad::detail::is_assignment<Assignments>::value ||
          pergrad::detail::is_explained<Assignments>)&&...) void evaluate_into(const Executor& executor,
                                                                               Assignments... assignments) {
  if constexpr (!pergrad::detail::any_explained<Assignments...>) {
    pergrad::detail::evaluate_together(executor, assignments...);
  }
}
template <class First, class... Rest>
requires(!executor<First> && sizeof...(Rest) > 0) void evaluate_into(const First& /*destination*/, const Rest&...) {
  static_cast<void>(error::needs_an_executor<error::function::evaluate_into, First>{});
}
/// Evaluates and returns the values. Allocates them.
template <executor Executor, class Expression>
[[nodiscard]] auto evaluate(const Executor& executor, const Expression& expression) {
  if constexpr (pergrad::detail::is_explained<Expression>) {
    return error::unknown_values{};
  } else if constexpr (!pergrad::detail::evaluable<Expression>) {
    static_cast<void>(error::has_no_meaning<error::function::evaluate, Expression>{});
    return error::unknown_values{};
  } else {
    std::vector<typename pergrad::detail::value_type_of<Expression>::type> result(
        pergrad::detail::value_count_of(expression));
    unprotected::evaluate_into(executor, result, expression);
    return result;
  }
}

}  // namespace unprotected
}  // namespace pergrad::inline v0_1
