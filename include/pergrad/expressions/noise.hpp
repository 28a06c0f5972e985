// SPDX-License-Identifier: Apache-2.0
// pergrad/expressions/noise.hpp - noise on a bounded sum: what a private optimizer accepts
//
// standard deviation = noise_multiplier * sensitivity. The sensitivity comes from the clipped sum itself, so it can
// neither be forgotten nor mistyped. Noise is a function of (key, step, parameter index): one step of the generator a
// release, whatever the batch, the chunks and the threads. It is drawn for an empty batch as well.
//
// What ties noise to sampling and to a ledger is `private_loop` (train/private_loop.hpp). Noise by hand is a promise
// of the program, and its name says so: `unaccounted::gaussian_noise`.
#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include <pergrad/detail/error_text.hpp>
#include <pergrad/detail/executors.hpp>
#include <pergrad/detail/float_environment.hpp>
#include <pergrad/detail/thread_pool.hpp>
#include <pergrad/errors.hpp>
#include <pergrad/expressions/sums.hpp>
#include <pergrad/expressions/totals.hpp>
#include <pergrad/privacy/generator.hpp>
#include <pergrad/privacy/release.hpp>
#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1 {

namespace detail {

/// Noise that waits for a bounded sum.
template <random_generator Generator>
struct noise_of {
  noise_multiplier multiplier{0};
  Generator* generator = nullptr;
  noise_filter* filter = nullptr;  ///< of a run whose steps have correlated noise
};

/// Released values that nobody uses on the way.
struct unused {
  struct nothing {};
  [[nodiscard]] nothing operator()() const noexcept { return {}; }
};

template <class Scalar, class Use>
[[nodiscard]] element_update<Scalar> as_update(Use& use) noexcept {
  element_update<Scalar> update{};
  if constexpr (!std::is_same_v<Use, unused::nothing>) {
    update.context = &use;
    update.apply = [](void* context, std::size_t first, Scalar* values, std::size_t count) {
      (*static_cast<Use*>(context))(first, values, count);
    };
    if constexpr (requires { use.beside; }) update.beside = use.beside;
  }
  return update;
}

}  // namespace detail

template <class Optimizer, class Network>
class optimizer_steps;
template <class Sum, class Generator>
class noised_sum;
template <class Network, class Generator>
struct noised_total;

namespace detail {

/// The only way of a sum to the gate.
struct total_release {
  /// A total, or a sum that is evaluated first, with noise into a released gradient; `begin` as below. Throws what the
  /// total and the gate throw.
  template <executor Executor, class Network, bool IsPrivate, class Generator, class Begin = unused>
  static void into(const Executor& executor, released_gradient<Network, IsPrivate>& update,
                   const noised_total<Network, Generator>& noised, const Begin& begin = {});
  template <executor Executor, class Network, bool IsPrivate, class Sum, class Generator, class Begin = unused>
  static void into(const Executor& executor, released_gradient<Network, IsPrivate>& update,
                   const noised_sum<Sum, Generator>& noised, const Begin& begin = {});

 private:
  template <class Noised, class Network, bool IsPrivate, class Begin>
  friend class release_of_sum;
  template <class Optimizer, class Network>
  friend class pergrad::optimizer_steps;
  template <class Network, class Loss, executor Executor, step_gradients Gradients>
  friend class step_by_verbs;
  template <class Network, class Loss, executor Executor>
  friend class step_on_ranks;

  /// Releases a total: its noised values, divided by a public constant, go to `out` (which may be the total's own
  /// memory, or null), and to what `begin` returns, use(first, values, count), in short stretches and from several
  /// threads. `begin` is called once nothing can fail any more. Throws what the gate throws.
  template <class Network, class Generator, class Begin>
  static void of_total(const thread_pool& pool, const bounded_total<Network>& total, const noise_of<Generator>& noise,
                       double divisor, typename Network::scalar* out, const Begin& begin) {
    const total_state& state = total_access::state(total);
    if (total_access::floating(total).size() != Network::parameter_count) {
      throw_invalid_argument({"pergrad: a bounded_total that was moved from has no sum to release"});
    }
    of_stretches(pool, state, total_access::sum_of(total), 0, ~std::size_t{0}, noise, divisor, out, begin);
  }
  /// The same of the stretches from `first` to before `last`, if there are so many, of a sum that is the total's, or
  /// that several processes have added up in its place.
  template <class Scalar, class Generator, class Begin>
  static void of_stretches(const thread_pool& pool, const total_state& state, const unreleased_sum<Scalar>& sum,
                           std::size_t first, std::size_t last, const noise_of<Generator>& noise, double divisor,
                           Scalar* out, const Begin& begin) {
    using gate_type = release_gate<Scalar>;
    const float_environment proven;
    pool.require_outside();
    if (noise.filter != nullptr) noise.filter->require_threads(pool.thread_count());
    gate_type gate{typename gate_type::of_any_generator{},
                   state.grid(),
                   state.sensitivity(),
                   noise.multiplier,
                   divisor,
                   *noise.generator,
                   noise.filter};
    auto use = begin();
    gate.begin_filter();
    const element_update<Scalar> update = as_update<Scalar>(use);
    pool.parallel(std::min(last, gate.stretches()) - first, [&](std::size_t number, std::size_t thread) {
      gate.release(first + number, sum, out, update, thread);
    });
  }
};

}  // namespace detail

/// Parts of a release by hand. Nothing here knows how records were drawn, or enters anything in a ledger: what the
/// noise protects, and for how much, is for the program to say.
namespace unaccounted {

/// Gaussian noise with standard deviation multiplier * sensitivity of the sum it is added to. The generator is referred
/// to.
template <random_generator Generator>
[[nodiscard]] pergrad::detail::noise_of<Generator> gaussian_noise(noise_multiplier multiplier, Generator& generator) {
  return {multiplier, &generator};
}
template <random_generator Generator>
[[nodiscard]] error::explained gaussian_noise(noise_multiplier /*multiplier*/, const Generator&& /*generator*/) {
  static_cast<void>(error::temporary_operand<Generator>{});
  return {};
}
template <class Number, class Generator>
requires std::is_arithmetic_v<Number>
[[nodiscard]] error::explained gaussian_noise(Number /*multiplier*/, Generator&& /*generator*/) {
  static_cast<void>(error::plain_number<error::function::gaussian_noise, noise_multiplier, Number>{});
  return {};
}

}  // namespace unaccounted

/// A bounded sum with noise, times a public factor.
template <class Sum, class Generator>
class noised_sum final : public detail::expression_tag {
 public:
  using scalar = typename Sum::scalar;
  using value_type = scalar;
  using generator_type = Generator;
  noised_sum(const Sum& sum, detail::noise_of<Generator> noise) : sum_{sum}, noise_{noise} {}
  [[nodiscard]] auto leaf() const noexcept { return sum_.leaf(); }
  [[nodiscard]] const Sum& sum() const noexcept { return sum_; }
  [[nodiscard]] const detail::noise_of<Generator>& noise() const noexcept { return noise_; }
  [[nodiscard]] double divisor() const noexcept { return divisor_; }
  [[nodiscard]] static constexpr std::size_t value_count(const auto& leaf) { return Sum::value_count(leaf); }
  /// The same divided by a public constant.
  [[nodiscard]] noised_sum operator/(expected_batch_size divisor) const {
    const detail::float_environment proven;
    noised_sum result = *this;
    result.divisor_ *= divisor.value();
    return result;
  }

 private:
  Sum sum_;
  detail::noise_of<Generator> noise_;
  double divisor_ = 1;
};

/// A total of chunks with noise. Refers to the total.
template <class Network, class Generator>
struct noised_total {
  using network_type = Network;
  using generator_type = Generator;
  const bounded_total<Network>* total = nullptr;
  detail::noise_of<Generator> noise;
};

/// Noise on a bounded sum; on anything else it is an error that says why.
template <class Leaf, class Rule, neighbouring Relation, class Generator>
[[nodiscard]] auto operator+(const bounded_sum<Leaf, Rule, Relation>& sum, detail::noise_of<Generator> noise) {
  return noised_sum<bounded_sum<Leaf, Rule, Relation>, Generator>{sum, noise};
}
template <class Network, class Generator>
requires(!detail::is_explained<Network>) [[nodiscard]] auto operator+(const bounded_total<Network>& total,
                                                                      detail::noise_of<Generator> noise) {
  return noised_total<Network, Generator>{&total, noise};
}
template <class Other, class Generator>
[[nodiscard]] auto operator+(const Other& /*other*/, detail::noise_of<Generator> /*noise*/) {
  if constexpr (!detail::is_explained<Other>) static_cast<void>(error::noise_on_an_unclipped_sum<Other>{});
  return error::explained{};
}

}  // namespace pergrad::inline v0_1
