// SPDX-License-Identifier: Apache-2.0
// pergrad/optim/optimizer.hpp - what every optimizer takes: a noised gradient, or a plain one by a name that says so
//
// A step on a private gradient is post-processing: it can be anything. The divisor is a public constant that the user
// states, never the size of the batch that was drawn, which is a private value.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>

#include <pergrad/detail/error_text.hpp>
#include <pergrad/detail/executors.hpp>
#include <pergrad/detail/float_environment.hpp>
#include <pergrad/detail/thread_pool.hpp>
#include <pergrad/errors.hpp>
#include <pergrad/expressions/evaluate.hpp>
#include <pergrad/expressions/noise.hpp>
#include <pergrad/optim/held.hpp>
#include <pergrad/privacy/types.hpp>
#include <pergrad/simd/elements.hpp>

namespace pergrad::inline v0_1 {

namespace detail {

struct checkpoint_access;

inline void require_weight_decay(double decay) {
  if (decay >= 0 && decay <= largest_double) return;
  throw_invalid_argument({"pergrad: weight decay must be finite and not negative, got ", decay});
}
/// Throws std::invalid_argument for a number that a network's scalar takes for nothing or for infinity: every step
/// would be paid for, and train nothing. 0 is what it is.
template <class Scalar>
[[gnu::cold]] void require_number_that_counts(const char* where, const char* name, double number) {
  const auto kept = static_cast<Scalar>(number);
  if (number == 0 || (kept > 0 && kept <= std::numeric_limits<Scalar>::max())) return;
  throw_invalid_argument({"pergrad: ", where, ": the network's scalar takes ", name, " for ",
                          kept > 0 ? "infinity" : "0", ", got ", number});
}
/// The same for weight decay by a factor of infinity.
template <class Scalar>
[[gnu::cold]] void require_decay_that_fits(const char* where, double rate, double decay) {
  const auto keep = static_cast<Scalar>(1 - rate * decay);
  if (keep >= -std::numeric_limits<Scalar>::max()) return;
  throw_invalid_argument({"pergrad: ", where,
                          ": the network's scalar takes 1 - learning_rate * weight_decay for infinity, got a decay of ",
                          decay});
}
/// Both of a step's learning rate.
template <class Scalar>
[[gnu::cold]] void require_rate_that_counts(const char* where, double rate, double decay) {
  require_number_that_counts<Scalar>(where, "learning_rate", rate);
  require_decay_that_fits<Scalar>(where, rate, decay);
}

/// An update by a rule of optim/rules.hpp over parameters and an optimizer's arrays, a vector at a time.
template <class Rule, class Scalar, class... State>
[[nodiscard]] auto update_by(const Rule& rule, Scalar* parameters, State*... arrays) {
  return [=](std::size_t first, const Scalar* gradient, std::size_t size) {
    // By value: what is stored might lie over anything else, and would be read again each time.
    const auto step = [=](on_host::index i, const auto& lanes) {
      const auto apply = [&](on_host::pack<Scalar> parameter, auto... state) {
        rule(on_host::pack<Scalar>{lanes.load(gradient + i)}, parameter, state...);
        (lanes.store(arrays + first + i, state), ...);
        lanes.store(parameters + first + i, parameter);
      };
      apply(lanes.load(parameters + first + i), on_host::pack<Scalar>{lanes.load(arrays + first + i)}...);
    };
    on_host::for_each_pack<Scalar>(static_cast<on_host::index>(size), step);
  };
}

/// An update, and the arrays that it reads at the elements of the values that it gets.
template <class Update, class Scalar>
struct update_of_arrays {
  Update update;
  std::array<const Scalar*, 3> beside{};

  void operator()(std::size_t first, const Scalar* values, std::size_t count) const { update(first, values, count); }
};

}  // namespace detail

/// The library's own way to an optimizer's formula.
struct optimizer_access {
  /// What an optimizer remembers: arrays of values, and a count of steps or null.
  [[nodiscard]] static auto state(auto& optimizer) noexcept { return optimizer.state(); }
  [[nodiscard]] static std::uint64_t* count(auto& optimizer) noexcept { return optimizer.count(); }
  /// What noise has left in DP-AdamBC's second moment; null: it is none.
  [[nodiscard]] static double* noise_share(auto& optimizer) noexcept {
    if constexpr (requires { optimizer.noise_share(); }) return optimizer.noise_share();
    return nullptr;
  }
  /// Tells Adam the deviation of the noise in each element of the next gradient.
  static void set_deviation(auto& adam, double deviation) noexcept { adam.deviation_ = deviation; }
  /// Throws std::logic_error for an optimizer that was moved from: what it remembers is another's.
  static void require_memory(const auto& optimizer) {
    if (!optimizer.has_memory()) detail::throw_logic_error({"pergrad: an optimizer that was moved from takes no step"});
  }
  /// Begins one update with scale * gradient. The result takes the gradient stretch by stretch, each stretch once, on
  /// any thread: f(first parameter, values, how many). The rows of padding ids stay what they are.
  template <class Optimizer, class Network>
  [[nodiscard]] static auto begin(Optimizer& optimizer, Network& network, double scale) {
    return detail::hold_parameters<Network>(optimizer.begin(network, scale));
  }
  /// One update with a gradient that lies in memory. Throws std::logic_error where one of the three was moved from.
  template <class Optimizer, class Network, class Scalar>
  static void apply(Optimizer& optimizer, const detail::thread_pool& pool, Network& network,
                    std::span<const Scalar> gradient, double scale) {
    require_memory(optimizer);
    if (gradient.size() != Network::parameter_count) {
      detail::throw_logic_error({"pergrad: a gradient that was moved from has no values for a step"});
    }
    constexpr std::size_t share = std::size_t{1} << 12U;
    const auto use = begin(optimizer, network, scale);
    pool.parallel((gradient.size() + share - 1) / share, [&](std::size_t task, std::size_t) {
      const std::size_t first = task * share;
      use(first, gradient.data() + first, std::min(gradient.size() - first, share));
    });
  }
  /// What begins an update with released values, divided by a public constant, once nothing can fail any more. Throws
  /// std::logic_error for an optimizer that was moved from.
  template <class Optimizer, class Network>
  [[nodiscard]] static auto beginning(Optimizer& optimizer, Network& network, expected_batch_size divisor) {
    require_memory(optimizer);
    return [&optimizer, &network, scale = 1 / divisor.value()] {
      using scalar = typename Network::scalar;
      using update = decltype(begin(optimizer, network, scale));
      detail::update_of_arrays<update, scalar> result{begin(optimizer, network, scale), {network.parameters().data()}};
      std::size_t next = 1;
      for (const std::span<scalar> each : state(optimizer)) {
        if (next < result.beside.size()) result.beside[next++] = each.data();  // null: it keeps none
      }
      return result;
    };
  }
};

/// Base of the optimizers: the private step. Throws std::logic_error where optimizer, network or gradient was moved
/// from.
template <class Optimizer, class Network>
class optimizer_steps {
 public:
  /// One update with gradient / divisor. Only a noised gradient fits.
  template <executor Executor, bool IsPrivate>
  void step(const Executor& executor, Network& network, const released_gradient<Network, IsPrivate>& gradient,
            expected_batch_size divisor) {
    const detail::float_environment proven;
    optimizer_access::apply(self(), executor.pool(), network, gradient.values(), 1 / divisor.value());
  }
  /// Noise on a finished total, and one update with (total + noise) / divisor in the same sweep: the noised values are
  /// stored nowhere, the total stays as it is. Equal in every bit to `evaluate_into` a private gradient and a step with
  /// that. Draws the noise once, also for an empty total. Throws what `evaluate_into` throws; nothing is changed then.
  template <executor Executor, class Generator>
  void step(const Executor& executor, Network& network, const noised_total<Network, Generator>& noised,
            expected_batch_size divisor) {
    const detail::float_environment proven;
    detail::total_release::of_total<Network>(executor.pool(), *noised.total, noised.noise, 1, nullptr,
                                             optimizer_access::beginning(self(), network, divisor));
  }
  /// Evaluates `noised`, a clipped sum or a total with noise, into `update` and takes the step with `update` / divisor
  /// in the same sweep. Equal in every bit to `evaluate_into(executor, update, noised)` and a step with `update`.
  /// Throws what `evaluate_into` throws; network and optimizer are unchanged then.
  template <executor Executor, bool IsPrivate, class Noised>
  requires(detail::is_noised<Noised>) void step(const Executor& executor, Network& network,
                                                released_gradient<Network, IsPrivate>& update, const Noised& noised,
                                                expected_batch_size divisor) {
    using explanation =
        detail::assignment_explanation<error::function::assign, released_gradient<Network, IsPrivate>, Noised>;
    if constexpr (std::is_same_v<explanation, char>) {
      const detail::float_environment proven;
      detail::total_release::into(executor, update, noised, optimizer_access::beginning(self(), network, divisor));
    } else {
      static_cast<void>(explanation{});
    }
  }

  /// Releases a step of a private loop and takes it, divided by the loop's public constant; with `update` the released
  /// values stay there. The step is used up. Throws what its release throws; nothing is changed then.
  template <executor Executor, class Loop>
  void step(const Executor& executor, Network& network, private_step<Loop>&& taken) {
    optimizer_access::require_memory(self());  // before the step is used up
    const expected_batch_size divisor = taken.divisor();
    step(executor, network, std::move(taken).consumed(), divisor);
  }
  template <executor Executor, class Loop>
  void step(const Executor& executor, Network& network, released_gradient<Network, Loop::is_private>& update,
            private_step<Loop>&& taken) {
    optimizer_access::require_memory(self());
    const expected_batch_size divisor = taken.divisor();
    step(executor, network, update, std::move(taken).consumed(), divisor);
  }
  template <executor Executor, class Loop>
  void step(const Executor& /*executor*/, Network& /*network*/, const private_step<Loop>& /*taken*/) {
    static_cast<void>(error::step_is_used_up_by_a_release<Loop>{});
  }
  template <executor Executor, class Destination, class Loop>
  void step(const Executor& /*executor*/, Network& /*network*/, Destination& /*update*/,
            const private_step<Loop>& /*taken*/) {
    static_cast<void>(error::step_is_used_up_by_a_release<Loop>{});
  }

  template <executor Executor, class Gradient>
  void step(const Executor& /*executor*/, Network& /*network*/, const Gradient& /*gradient*/,
            expected_batch_size /*divisor*/) {
    if constexpr (!detail::is_explained<Gradient>) {
      static_cast<void>(error::private_step_needs_a_noised_sum<Gradient>{});
    }
  }
  template <executor Executor, class Destination, class Given>
  void step(const Executor& /*executor*/, Network& /*network*/, Destination&& /*destination*/, const Given& /*given*/,
            expected_batch_size /*divisor*/) {
    if constexpr (!detail::any_explained<Destination, Given>) {
      static_cast<void>(error::release_needs_noise<std::remove_cvref_t<Destination>, Given>{});
    }
  }
  template <executor Executor, class Gradient, class Number>
  requires std::is_arithmetic_v<Number>
  void step(const Executor& /*executor*/, Network& /*network*/, const Gradient& /*gradient*/, Number /*divisor*/) {
    static_cast<void>(error::plain_number<error::function::step, expected_batch_size, Number>{});
  }
  template <executor Executor, class Destination, class Given, class Number>
  requires std::is_arithmetic_v<Number>
  void step(const Executor& /*executor*/, Network& /*network*/, Destination&& /*destination*/, const Given& /*given*/,
            Number /*divisor*/) {
    static_cast<void>(error::plain_number<error::function::step, expected_batch_size, Number>{});
  }
  template <executor Executor, class... Rest>
  void step(const Executor& /*executor*/, const Network& /*network*/, const Rest&... /*rest*/) {
    static_cast<void>(error::network_is_const<Network>{});
  }
  template <class First, class... Rest>
  requires(!executor<First>) void step(const First& /*first*/, const Rest&... /*rest*/) {
    if constexpr (!detail::any_explained<First, Rest...>) {
      static_cast<void>(error::needs_an_executor<error::function::step, First>{});
    }
  }
  template <class Nothing = void>
  void step() {
    static_cast<void>(error::needs_an_executor<error::function::step, Nothing>{});
  }
  void zero_grad() = delete;  // nothing is left over from a step: leave it out

 protected:
  optimizer_steps() = default;

 private:
  [[nodiscard]] Optimizer& self() noexcept { return static_cast<Optimizer&>(*this); }
};

namespace unprotected {

/// One update with scale * gradient, for ordinary training: no privacy.
template <class Optimizer, executor Executor, class Network>
void step(Optimizer& optimizer, const Executor& executor, Network& network, const gradient<Network>& gradient,
          double scale = 1) {
  if constexpr (!detail::is_explained<Network>) {
    const pergrad::detail::float_environment proven;
    optimizer_access::apply(optimizer, executor.pool(), network, gradient.values(), scale);
  }
}
// clang-format off
template <class Optimizer, executor Executor, class Network, class... Given>
void step(Optimizer&, const Executor&, const Network&, const Given&...) = delete;  // declare the network without const, give it a gradient of its own type
// clang-format on

}  // namespace unprotected
}  // namespace pergrad::inline v0_1
