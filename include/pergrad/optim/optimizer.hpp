// SPDX-License-Identifier: Apache-2.0
// pergrad/optim/optimizer.hpp - what every optimizer takes: a noised gradient, or a plain one by a name that says so
//
// A step on a private gradient is post-processing: it can be anything. The divisor is a public constant that the user
// states, never the size of the batch that was drawn, which is a private value.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <type_traits>

#include <pergrad/detail/executors.hpp>
#include <pergrad/errors.hpp>
#include <pergrad/gradients/noise.hpp>
#include <pergrad/host/executor.hpp>
#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1 {

struct optimizer_access {
  template <class Optimizer, class Network, class Scalar>
  static void apply(Optimizer& optimizer, const host& executor, Network& network, std::span<const Scalar> gradient,
                    double scale) {
    optimizer.apply(executor, network, gradient, scale);
  }
};

/// Base of the optimizers: the private step.
template <class Optimizer, class Network>
class optimizer_steps {
 public:
  /// One update with gradient / divisor. Only a noised gradient fits.
  template <executor Executor>
  void step(const Executor& executor, Network& network, const private_gradient<Network>& gradient,
            expected_batch_size divisor) {
    optimizer_access::apply(static_cast<Optimizer&>(*this), detail::crew_of(executor), network, gradient.values(),
                            1 / divisor.value());
  }
  template <executor Executor, class Gradient>
  void step(const Executor& /*executor*/, Network& /*network*/, const Gradient& /*gradient*/,
            expected_batch_size /*divisor*/) {
    if constexpr (!detail::is_explained<Gradient>) {
      static_cast<void>(error::private_step_needs_a_noised_sum<Gradient>{});
    }
  }
  template <executor Executor, class Gradient, class Number>
  requires std::is_arithmetic_v<Number>
  void step(const Executor& /*executor*/, Network& /*network*/, const Gradient& /*gradient*/, Number /*divisor*/) {
    static_cast<void>(error::plain_number<error::function::step, expected_batch_size, Number>{});
  }

 protected:
  optimizer_steps() = default;

  /// Calls f(first, count) for stretches of all parameters, on all threads.
  template <class Function>
  static void for_each_stretch(const host& executor, Function&& f) {
    constexpr std::size_t chunk = std::size_t{1} << 14U;
    constexpr std::size_t count = Network::parameter_count;
    executor.parallel((count + chunk - 1) / chunk,
                      [&](std::size_t task, std::size_t) { f(task * chunk, std::min(count - task * chunk, chunk)); });
  }
  /// Calls f(index) for every parameter, in stretches on all threads.
  template <class Function>
  static void for_each_parameter(const host& executor, Function&& f) {
    for_each_stretch(executor, [&](std::size_t first, std::size_t count) {
      for (std::size_t i = first; i < first + count; ++i) f(i);
    });
  }
};

namespace unprotected {

/// One update with scale * gradient, for ordinary training: no privacy.
template <class Optimizer, executor Executor, class Network>
void step(Optimizer& optimizer, const Executor& executor, Network& network, const gradient<Network>& gradient,
          double scale = 1) {
  if constexpr (!detail::is_explained<Network>) {
    optimizer_access::apply(optimizer, detail::crew_of(executor), network, gradient.values(), scale);
  }
}

}  // namespace unprotected
}  // namespace pergrad::inline v0_1
