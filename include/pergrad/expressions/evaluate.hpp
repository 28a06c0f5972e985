// SPDX-License-Identifier: Apache-2.0
// pergrad/expressions/evaluate.hpp - the verbs: they alone compute, and they name the executor
//
//   evaluate_into(exec, update, sum(clip(g, C)) + noise)                                  a release
//   unprotected::evaluate(exec, l2_norms(g))                                              a private value, returned
//   unprotected::evaluate_into(exec, assign(total, sum(clip(g, C))), assign(norms, l2_norms(g)), assign(ls, losses(g)))
// However many results one call asks for, it runs one forward and one backward pass.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <pergrad/detail/error_text.hpp>
#include <pergrad/detail/executors.hpp>
#include <pergrad/detail/float_environment.hpp>
#include <pergrad/errors.hpp>
#include <pergrad/expressions/misuse.hpp>
#include <pergrad/expressions/noise.hpp>
#include <pergrad/expressions/scalars.hpp>
#include <pergrad/expressions/sums.hpp>

namespace pergrad::inline v0_1 {

template <class Loop>
class private_step;

namespace detail {

template <class Type>
concept evaluable = per_sample_scalar<Type> || requires(const Type& expression) {
  typename Type::value_type;
  expression.value_count(expression.leaf());
};

template <class Expression>
[[nodiscard]] std::size_t value_count_of(const Expression& expression) {
  return expression.value_count(leaf_of(expression));
}

[[noreturn]] inline void throw_result_does_not_fit(std::size_t values, std::size_t room) {
  throw_invalid_argument({"pergrad: a result of ", values, " values does not fit a destination of ", room});
}

/// One expression and where its result goes.
template <class Expression>
class assignment {
 public:
  using value_type = typename Expression::value_type;
  static constexpr bool whole_batch = Expression::whole_batch;
  static constexpr bool needs_backward = [] {
    if constexpr (per_sample_scalar<Expression>) {
      return Expression::needs.backward;
    } else {
      return Expression::needs_backward;
    }
  }();
  static constexpr bool needs_rows = Expression::needs_rows;
  static constexpr bool is_total = false;

  assignment(std::span<value_type> out, Expression expression, bool accumulate)
      : out_{out}, expression_{expression}, accumulate_{accumulate} {
    if (const std::size_t count = value_count_of(expression_); out.size() != count) {
      throw_result_does_not_fit(count, out.size());
    }
  }
  [[nodiscard]] auto leaf() const { return leaf_of(expression_); }

  template <class Scalar>
  void attach(detail::run_request<Scalar>& request) {
    if constexpr (per_sample_scalar<Expression>) {
      request.backward = request.backward || Expression::needs.backward;
      request.norms = request.norms || Expression::needs.norms;
      ask_for_projections(request, expression_);
      new_observer(request) = {this, [](void* self, const detail::sample_facts<Scalar>& facts) {
                                 auto* mine = static_cast<assignment*>(self);
                                 const double value = mine->expression_.at(facts);
                                 double& to = mine->out_[facts.sample];
                                 to = mine->accumulate_ ? to + value : value;
                               }};
    } else {
      expression_.attach(request, out_, accumulate_);
    }
  }
  void finish(const thread_pool& pool) {
    if constexpr (requires { expression_.finish(pool, out_); }) expression_.finish(pool, out_);
  }
  void abandon() noexcept {}

 private:
  std::span<value_type> out_;
  Expression expression_;
  bool accumulate_;
};

/// A clipped sum that goes into a total. What the total has to say of it is asked when it is evaluated, not before.
template <class Sum, class Network>
class chunk_of_total : public usual_needs {
 public:
  static constexpr bool is_total = true;  ///< its destination
  using scalar = typename Sum::scalar;
  chunk_of_total(bounded_total<Network>& total, const Sum& sum, bool begins_anew)
      : total_{&total}, sum_{sum}, begins_anew_{begins_anew} {}

  [[nodiscard]] auto leaf() const { return sum_.leaf(); }

 private:
  friend struct evaluation;
  template <class AnySum, class AnyNetwork, class Step>
  friend class chunk_of_step;
  template <class Noised, class AnyNetwork, bool IsPrivate, class Begin>
  friend class release_of_sum;

  void attach(detail::run_request<scalar>& request) {
    if (total_access::floating(*total_).size() != Network::parameter_count) {
      throw_invalid_argument({"pergrad: a total or private gradient that was moved from cannot take a sum"});
    }
    total_state& state = total_access::state(*total_);
    state.require_nobody_writes();
    if (begins_anew_) state.clear();
    const auto& samples = sum_.leaf().samples();
    const auto grid = release_grid::of(sum_.clipped().sensitivity(), Network::parameter_count);
    const std::size_t most = sum_.leaf().capacity();
    state.require_room(most);
    state.expect(grid, Sum::exchanged);
    state.admit(samples);
    const bool had_floating = state.has_floating();
    const bool had_integers = state.has_integers();
    const bool as_integers = state.next_as_integers(most, way_of_additions(request, grid, most));
    state.is_being_written();
    writes_ = true;
    std::int64_t* const integers = as_integers ? total_access::integers(*total_, !had_integers) : nullptr;
    sum_.attach(request, grid, total_access::floating(*total_).data(), integers, as_integers || had_floating);
  }
  /// Beside a total that is added up as integers chunks are as short as those need: whole tiles, and more than half.
  [[nodiscard]] addition_way way_of_additions(const detail::run_request<scalar>& request, const release_grid& grid,
                                              std::size_t most) const {
    addition_way way = sum_.leaf().way_of_additions();
    if (request.has_several_totals && sizeof(scalar) == sizeof(std::int32_t)) {
      const std::size_t least = (most_rounded_shares(grid.steps) + 1) / 2;
      way.onto = std::max(way.onto, (most + least - 1) / least);
    }
    return way;
  }
  void finish(const thread_pool& /*pool*/) {
    total_access::state(*total_).is_written();
    writes_ = false;
  }
  /// After an exception nobody may take what lies in the total for a sum: it says so until it is cleared.
  void abandon() noexcept {
    if (writes_) total_access::state(*total_).is_given_up();
  }

  bounded_total<Network>* total_;
  Sum sum_;
  bool begins_anew_;
  bool writes_ = false;  ///< this evaluation, and it is not over
};

/// A clipped sum that goes into the total of a private step, which has to admit it.
template <class Sum, class Network, class Step>
class chunk_of_step : public chunk_of_total<Sum, Network> {
 public:
  chunk_of_step(Step& step, const Sum& sum) : chunk_of_total<Sum, Network>{step.total(), sum, false}, step_{&step} {}
  void attach(detail::run_request<typename Sum::scalar>& request) {
    step_->admit(&this->leaf().samples());
    chunk_of_total<Sum, Network>::attach(request);
  }
  void finish(const thread_pool& pool) {
    chunk_of_total<Sum, Network>::finish(pool);
    step_->is_in_the_sum();
  }
  void abandon() noexcept { chunk_of_total<Sum, Network>::abandon(); }

 private:
  Step* step_;
};

/// A noised sum that goes into a released gradient: a total beside its values, which it meets at the gate.
template <class Noised, class Network, bool IsPrivate, class Begin>
class release_of_sum : public usual_needs {
 public:
  static constexpr bool is_total = true;
  using scalar = typename Noised::scalar;
  using sum_type = std::remove_cvref_t<decltype(std::declval<const Noised&>().sum())>;
  release_of_sum(released_gradient<Network, IsPrivate>& update, const Noised& noised, const Begin& begin)
      : update_{&update}, noised_{noised}, begin_{begin}, chunk_{total_, noised.sum(), false} {}

  [[nodiscard]] auto leaf() const { return noised_.leaf(); }

 private:
  friend struct evaluation;

  void attach(detail::run_request<scalar>& request) {
    total_access::borrow(total_, *update_, {noised_.leaf().capacity()});
    chunk_.total_ = &total_;
    chunk_.attach(request);
  }
  void finish(const thread_pool& pool) {
    total_access::state(total_).is_written();
    total_release::of_total(pool, total_, noised_.noise(), noised_.divisor(), total_access::values(*update_).data(),
                            begin_);
    give_back();
  }
  /// After an exception nobody may take an earlier release for this one.
  void abandon() noexcept {
    if (!total_access::has_memory(total_)) return;
    std::fill_n(total_access::values(*update_).data(), Network::parameter_count, scalar{0});
    give_back();
  }
  void give_back() noexcept { total_access::give_back(total_, *update_); }

  released_gradient<Network, IsPrivate>* update_;
  Noised noised_;
  Begin begin_;
  bounded_total<Network> total_ = total_access::total_without_memory<Network>();
  chunk_of_total<sum_type, Network> chunk_;  ///< of `total_`, where this has it when it is evaluated
};

template <class Destination, class Expression>
[[nodiscard]] auto destination_of(Destination& destination, const Expression& /*expression*/) {
  if constexpr (requires { destination.values(); }) {
    return destination.values();
  } else {
    return std::span<typename Expression::value_type>{destination};
  }
}

template <class Destination>
struct is_private_gradient : std::false_type {};
template <class Network, bool IsPrivate>
struct is_private_gradient<released_gradient<Network, IsPrivate>> : std::true_type {
  static constexpr bool is_private = IsPrivate;
};
template <class Destination>
struct is_bounded_total : std::false_type {};
template <class Network>
struct is_bounded_total<bounded_total<Network>> : std::true_type {};
template <class Destination>
inline constexpr bool is_private_step = false;
template <class Loop>
inline constexpr bool is_private_step<private_step<Loop>> = true;
template <class Expression>
struct is_bounded_sum : std::false_type {};
template <class Leaf, class Rule, neighbouring Relation>
struct is_bounded_sum<bounded_sum<Leaf, Rule, Relation>> : std::true_type {};
template <class Type>
struct is_assignment : std::false_type {};
template <class Expression>
struct is_assignment<assignment<Expression>> : std::true_type {};
template <class Sum, class Network>
struct is_assignment<chunk_of_total<Sum, Network>> : std::true_type {};
template <class Sum, class Network, class Step>
struct is_assignment<chunk_of_step<Sum, Network, Step>> : std::true_type {};
template <class Noised, class Network, bool IsPrivate, class Begin>
struct is_assignment<release_of_sum<Noised, Network, IsPrivate, Begin>> : std::true_type {};

/// The only way to carry out what is assigned: requests know where un-noised sums lie.
struct evaluation {
  /// Runs several assignments over the same gradients in one pass.
  template <executor Executor, class First, class... Rest>
  static void together(const Executor& executor, First& first, Rest&... rest) {
    static_assert(is_assignment<First>::value && (is_assignment<Rest>::value && ...));
    const float_environment proven;
    const auto leaf = first.leaf();
    // Here and not where it runs: a short way back to the user's line.
    static_assert(sizeof(typename Executor::template loss_explanation<typename decltype(leaf)::loss_type>) != 0);
    if ((!leaf.same_as(rest.leaf()) || ...)) {
      throw_invalid_argument({"pergrad: expressions evaluated together must be over the same per-sample gradients"});
    }
    if (sizeof...(Rest) > 0 && !(First::whole_batch && (Rest::whole_batch && ...))) {
      throw_invalid_argument({"pergrad: one sample's gradient g[b] is evaluated on its own"});
    }
    try {
      run_request<typename decltype(leaf)::scalar> request;
      request.count = leaf.size();
      request.has_several_totals = (std::size_t{First::is_total} + ... + std::size_t{Rest::is_total}) > 1;
      first.attach(request);
      (rest.attach(request), ...);
      constexpr evaluation_needs needs{(First::needs_backward || ... || Rest::needs_backward),
                                       (First::needs_rows || ... || Rest::needs_rows)};
      leaf.template run<needs>(executor, request);
      first.finish(executor.pool());
      (rest.finish(executor.pool()), ...);
    } catch (...) {
      first.abandon();
      (rest.abandon(), ...);
      throw;
    }
  }
};

template <class Destination, class Value>
concept is_destination = is_private_gradient<Destination>::value || is_bounded_total<Destination>::value ||
                         std::is_constructible_v<std::span<Value>, Destination&> ||
                         requires(Destination& destination) {
  requires std::is_convertible_v<decltype(destination.values()), std::span<Value>>;
};

/// The network whose sums a destination holds, or of an expression.
template <class Type>
[[nodiscard]] constexpr auto network_of() {
  if constexpr (requires { typename Type::network_type; }) {
    return std::type_identity<typename Type::network_type>{};
  } else {
    using leaf = std::remove_cvref_t<decltype(std::declval<const Type&>().leaf())>;
    return std::type_identity<typename leaf::network_type>{};
  }
}

/// What is wrong with `destination = expression`, as a class whose body says so; `char` if nothing is.
template <class Function, class Destination, class Expression>
[[nodiscard]] constexpr auto explanation_of_assignment() {
  constexpr bool adds = std::is_same_v<Function, error::function::accumulate>;
  constexpr bool takes_release = is_private_gradient<Destination>::value;
  constexpr bool takes_sum = is_private_step<Destination> || is_bounded_total<Destination>::value;
  if constexpr (any_explained<Destination, Expression>) {
    return std::type_identity<char>{};
  } else if constexpr (takes_release && (!is_noised<Expression> || adds)) {
    return std::type_identity<error::private_step_needs_a_noised_sum<Expression>>{};
  } else if constexpr (!takes_release && is_noised<Expression>) {
    return std::type_identity<error::release_needs_a_private_gradient<Destination>>{};
  } else if constexpr (is_private_step<Destination> && !(is_bounded_sum<Expression>::value && adds)) {
    return std::type_identity<error::step_accumulates_clipped_sums<Expression>>{};
  } else if constexpr (takes_sum && !is_bounded_sum<Expression>::value) {
    return std::type_identity<error::total_needs_a_clipped_sum<Expression>>{};
  } else if constexpr (takes_release || takes_sum) {
    constexpr bool same = std::is_same_v<decltype(network_of<Destination>()), decltype(network_of<Expression>())>;
    if constexpr (takes_release) {
      using generator = typename Expression::generator_type;
      if constexpr (is_private_gradient<Destination>::is_private != generator::is_private) {
        return std::type_identity<error::noise_from_a_seed<Destination, generator>>{};
      } else {
        return std::conditional<same, char, error::sum_of_another_network<Destination, Expression>>{};
      }
    } else if constexpr (same && is_private_step<Destination> && Expression::exchanged != 1) {
      return std::type_identity<error::step_counts_records_added_or_removed<Expression>>{};
    } else {
      return std::conditional<same, char, error::sum_of_another_network<Destination, Expression>>{};
    }
  } else if constexpr (!evaluable<Expression>) {
    return std::type_identity<error::has_no_meaning<Function, Expression>>{};
  } else {
    using values = std::span<typename Expression::value_type>;
    return std::conditional<is_destination<Destination, typename Expression::value_type>, char,
                            error::destination_does_not_fit<Destination, values, Expression>>{};
  }
}
template <class Function, class Destination, class Expression>
using assignment_explanation = typename decltype(explanation_of_assignment<Function, Destination, Expression>())::type;

/// `destination = expression`, or of `accumulate` `destination += expression`.
template <class Function, class Destination, class Expression>
[[nodiscard]] auto assignment_of(Destination&& destination, const Expression& expression) {
  using plain = std::remove_cvref_t<Destination>;
  constexpr bool lost = !std::is_lvalue_reference_v<Destination> && !std::ranges::enable_borrowed_range<plain>;
  using found = assignment_explanation<Function, plain, Expression>;
  using explanation = std::conditional_t<lost && std::is_same_v<found, char> && !any_explained<plain, Expression>,
                                         error::temporary_destination<plain>, found>;
  constexpr bool adds = std::is_same_v<Function, error::function::accumulate>;
  if constexpr (!std::is_same_v<explanation, char> || any_explained<plain, Expression>) {
    static_cast<void>(explanation{});
    return error::explained{};
  } else if constexpr (is_private_step<plain>) {
    return chunk_of_step<Expression, typename plain::network_type, plain>{destination, expression};
  } else if constexpr (is_bounded_total<plain>::value) {
    return chunk_of_total{destination, expression, !adds};
  } else if constexpr (is_private_gradient<plain>::value) {
    return release_of_sum{destination, expression, unused{}};
  } else {
    return assignment<Expression>{destination_of(destination, expression), expression, adds};
  }
}

}  // namespace detail

/// `destination = expression` as one of several results of an evaluation. Destinations: a vector or span of the right
/// size, an `unprotected::gradient`, a `private_gradient` (noised sums only), a `bounded_total` (clipped sums only).
template <class Destination, class Expression>
[[nodiscard]] auto assign(Destination&& destination, const Expression& expression) {
  return detail::assignment_of<error::function::assign>(std::forward<Destination>(destination), expression);
}
/// `destination += expression`: sums over chunks of a batch.
template <class Destination, class Expression>
[[nodiscard]] auto accumulate(Destination&& destination, const Expression& expression) {
  return detail::assignment_of<error::function::accumulate>(std::forward<Destination>(destination), expression);
}

namespace detail {

template <executor Executor, class Network, bool IsPrivate, class Generator, class Begin>
void total_release::into(const Executor& executor, released_gradient<Network, IsPrivate>& update,
                         const noised_total<Network, Generator>& noised, const Begin& begin) {
  static_assert(IsPrivate == Generator::is_private);
  const auto out = total_access::values(update);
  if (out.size() != Network::parameter_count) {
    throw_invalid_argument({"pergrad: a private_gradient that was moved from cannot take a noised sum"});
  }
  of_total(executor.pool(), *noised.total, noised.noise, 1, out.data(), begin);
}
template <executor Executor, class Network, bool IsPrivate, class Sum, class Generator, class Begin>
void total_release::into(const Executor& executor, released_gradient<Network, IsPrivate>& update,
                         const noised_sum<Sum, Generator>& noised, const Begin& begin) {
  static_assert(IsPrivate == Generator::is_private);
  release_of_sum only{update, noised, begin};
  evaluation::together(executor, only);
}

}  // namespace detail

/// Evaluates a noised sum, or a total of chunks with noise, into a private gradient: the one thing that may be
/// released. Draws the noise once, also for an empty batch. Throws what the batch, the tape, the total and the
/// generator throw; of a sum the gradient is all zeros then.
template <executor Executor, class Network, bool IsPrivate, class Expression>
void evaluate_into(const Executor& executor, released_gradient<Network, IsPrivate>& update,
                   const Expression& expression) {
  using explanation =
      detail::assignment_explanation<error::function::assign, released_gradient<Network, IsPrivate>, Expression>;
  if constexpr (!detail::is_explained<Expression>) {
    if constexpr (std::is_same_v<explanation, char>) {
      detail::total_release::into(executor, update, expression);
    } else {
      static_cast<void>(explanation{});
    }
  }
}
/// Adds a chunk's clipped sum to a total: `evaluate_into(exec, accumulate(total, sum(clip(g, C))))`. Throws
/// std::logic_error, and changes nothing, for a record that the total has already, for another bound than that of the
/// chunks before, and after an evaluation into this total has failed.
template <executor Executor, class Sum, class Network>
void evaluate_into(const Executor& executor, detail::chunk_of_total<Sum, Network> chunk) {
  detail::evaluation::together(executor, chunk);
}
/// The same of a private step: `evaluate_into(exec, accumulate(step, sum(clip(step.gradients(), bound))))`. Throws
/// std::logic_error for another batch than the step's, for one that is in the sum, and for another bound than the
/// loop's.
template <executor Executor, class Sum, class Network, class Step>
void evaluate_into(const Executor& executor, detail::chunk_of_step<Sum, Network, Step> chunk) {
  detail::evaluation::together(executor, chunk);
}
/// Everything else is not a release.
template <executor Executor, class... Given>
void evaluate_into(const Executor& /*executor*/, const Given&... /*given*/) {
  if constexpr (!detail::any_explained<Given...>) static_cast<void>(error::release_needs_noise<Given...>{});
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
  auto only =
      pergrad::detail::assignment_of<error::function::assign>(std::forward<Destination>(destination), expression);
  if constexpr (!pergrad::detail::is_explained<decltype(only)>) pergrad::detail::evaluation::together(executor, only);
}
/// Evaluates several results over the same gradients in one pass.
template <executor Executor, class... Assignments>
requires((pergrad::detail::is_assignment<Assignments>::value ||
          pergrad::detail::is_explained<Assignments>)&&...) void evaluate_into(const Executor& executor,
                                                                               Assignments... assignments) {
  if constexpr (!pergrad::detail::any_explained<Assignments...>) {
    pergrad::detail::evaluation::together(executor, assignments...);
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
    std::vector<typename Expression::value_type> result(pergrad::detail::value_count_of(expression));
    unprotected::evaluate_into(executor, result, expression);
    return result;
  }
}

}  // namespace unprotected
}  // namespace pergrad::inline v0_1
