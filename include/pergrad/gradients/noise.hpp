// SPDX-License-Identifier: Apache-2.0
// pergrad/gradients/noise.hpp - Gaussian noise on a bounded sum: the only thing that a private optimizer accepts
//
// standard deviation = noise_multiplier * sensitivity. The sensitivity comes from the clipped sum itself, so it can
// neither be forgotten nor mistyped. Noise is a function of (key, step, parameter index): one step of the generator an
// evaluation, whatever the batch, the chunks and the threads. It is drawn for an empty batch as well.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include <pergrad/detail/aligned_buffer.hpp>
#include <pergrad/errors.hpp>
#include <pergrad/gradients/sums.hpp>
#include <pergrad/host/executor.hpp>
#include <pergrad/privacy/generator.hpp>
#include <pergrad/privacy/noise.hpp>
#include <pergrad/privacy/purpose.hpp>
#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1 {

/// A noised, hence releasable gradient: parameter_count values in PyTorch's order. Only `evaluate_into` can fill it.
template <class Network>
class private_gradient {
 public:
  using scalar = typename Network::scalar;
  template <class Executor>
  explicit private_gradient(const Executor& /*executor*/) : values_{Network::parameter_count, "a private gradient"} {}

  /// Released: anybody may see these.
  [[nodiscard]] std::span<const scalar> values() const noexcept { return values_.span(); }

 private:
  friend struct gradient_access;
  detail::aligned_buffer<scalar> values_;
};

namespace unprotected {

/// A gradient without noise: parameter_count values in PyTorch's order. Not for release.
template <class Network>
class gradient {
 public:
  using scalar = typename Network::scalar;
  template <class Executor>
  explicit gradient(const Executor& /*executor*/) : values_{Network::parameter_count, "a gradient"} {}
  [[nodiscard]] std::span<scalar> values() noexcept { return values_.span(); }
  [[nodiscard]] std::span<const scalar> values() const noexcept { return values_.span(); }

 private:
  detail::aligned_buffer<scalar> values_;
};

}  // namespace unprotected

/// A clipped sum that grows chunk by chunk: for logical batches larger than the tape. Every sample may be in one chunk
/// only.
template <class Network>
class bounded_total : public detail::expression_tag {
 public:
  using scalar = typename Network::scalar;
  template <class Executor>
  explicit bounded_total(const Executor& /*executor*/)
      : values_{Network::parameter_count, "a clipped sum", detail::uninitialised} {}

  /// Back to the empty sum. Touches no number: the first chunk is assigned, and noise goes on zeros until then.
  void clear() noexcept {
    is_empty_ = true;
    sensitivity_ = 0;
  }
  /// The empty sum of chunks that will have this sensitivity: so that a batch without any chunk is noised all the same.
  void clear(double sensitivity) noexcept {
    clear();
    sensitivity_ = sensitivity;
  }
  /// Of every chunk added so far; 0 before the first.
  [[nodiscard]] double sensitivity() const noexcept { return sensitivity_; }

 private:
  friend struct gradient_access;
  bounded_total() = default;
  detail::aligned_buffer<scalar> values_;
  double sensitivity_ = 0;
  bool is_empty_ = true;  ///< whatever `values_` holds then stands for zeros
};

/// The library's own way to the numbers behind the types.
struct gradient_access {
  template <class Network>
  [[nodiscard]] static std::span<typename Network::scalar> values(private_gradient<Network>& gradient) noexcept {
    return gradient.values_.span();
  }
  template <class Network>
  [[nodiscard]] static std::span<typename Network::scalar> values(bounded_total<Network>& total) noexcept {
    return total.values_.span();
  }
  /// The numbers of a total; null if it is empty.
  template <class Network>
  [[nodiscard]] static const typename Network::scalar* sum_of(const bounded_total<Network>& total) noexcept {
    return total.is_empty_ ? nullptr : total.values_.data();
  }
  /// A chunk is about to be written. Returns whether it is to be added to what is there.
  template <class Network>
  [[nodiscard]] static bool begin_chunk(bounded_total<Network>& total) noexcept {
    return !std::exchange(total.is_empty_, false);
  }
  /// The first chunk was not finished: its numbers do not count.
  template <class Network>
  static void forget_chunk(bounded_total<Network>& total) noexcept {
    total.is_empty_ = true;
  }
  /// A total without memory of its own, for `exchange_memory`.
  template <class Network>
  [[nodiscard]] static bounded_total<Network> total_without_memory() noexcept {
    return {};
  }
  /// Each gets the other's memory. The numbers of an empty total are never shown, so a released gradient may become a
  /// sum at any time; a sum may become a released gradient only when every one of its numbers was noised in place or
  /// overwritten.
  template <class Network>
  static void exchange_memory(bounded_total<Network>& total, private_gradient<Network>& gradient) noexcept {
    std::swap(total.values_, gradient.values_);
    total.is_empty_ = true;
  }
  /// Notes a chunk's sensitivity. Throws std::logic_error if it differs from that of the chunks before.
  template <class Network>
  static void admit(bounded_total<Network>& total, double sensitivity) {
    if (total.sensitivity_ != 0 && total.sensitivity_ != sensitivity) {
      throw std::logic_error("pergrad: chunks of one sum must be clipped alike: sensitivities " +
                             std::to_string(total.sensitivity_) + " and " + std::to_string(sensitivity));
    }
    total.sensitivity_ = sensitivity;
  }
};

/// Noise that waits for a bounded sum.
template <random_generator Generator>
struct gaussian_noise_of {
  noise_multiplier multiplier{0};
  Generator* generator = nullptr;
};

/// Gaussian noise with standard deviation multiplier * sensitivity of the sum it is added to. The generator is referred
/// to.
template <random_generator Generator>
[[nodiscard]] gaussian_noise_of<Generator> gaussian_noise(noise_multiplier multiplier, Generator& generator) {
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

namespace detail {

/// What uses noised values, and the arrays that it reads beside them, element by element; null stands for none.
template <class Use, class Scalar>
struct use_with_arrays : Use {
  std::array<const Scalar*, tile_arrays::most - 1> arrays{};
};
template <class Use, class Scalar>
[[nodiscard]] use_with_arrays<Use, Scalar> with_arrays(const Use& use, const Scalar* first, const Scalar* second,
                                                       const Scalar* third) {
  return {use, {first, second, third}};
}

/// What becomes of noised values if nobody uses them on the way: nothing.
struct unused {
  [[nodiscard]] auto operator()() const noexcept {
    return [](std::size_t, auto*, std::size_t) {};
  }
};

/// out[i] = sum[i] + noise for `count` values, in one sweep that all threads share; the bits of the noise depend on
/// (key, step, element) only. `sum` may be `out`; null stands for zeros. `out` may be null: then nothing is stored.
/// Once nothing can fail any more, `begin` is called; what it returns gets each short stretch as soon as it is noised
/// and may change it: use(first, values, count), from several threads. Throws std::invalid_argument if the standard
/// deviation is none, std::out_of_range beyond `gaussians_per_step` values.
template <class Scalar, class Begin = unused>
void add_noise(const host& executor, const chacha_key& key, std::uint64_t step, double standard_deviation,
               const Scalar* sum, Scalar* out, std::size_t count, const Begin& begin = {}) {
  require_standard_deviation(standard_deviation);
  require_gaussians(0, count);
  const auto scale = rounded_up<Scalar>(standard_deviation);
  const auto use = begin();
  constexpr std::size_t share = 4 * gaussian_tile;
  executor.parallel((count + share - 1) / share, [&](std::size_t task, std::size_t) {
    const std::size_t first = task * share;
    for_each_gaussian_piece<native_lanes>(
        key, random_purpose::gradient_noise, step, first, std::min(share, count - first),
        [&](std::size_t at, const float* z, std::size_t size) {
          alignas(64) Scalar passing[gaussian_tile];
          Scalar* const to = out == nullptr ? passing : out + first + at;
          const Scalar* const from = sum == nullptr ? to : sum + first + at;
          if (sum == nullptr) std::fill_n(to, size, Scalar{0});
          add_scaled_gaussians<native_lanes>(scale, z, from, to, size);
          use(first + at, to, size);
        },
        [&](std::size_t at, tile_arrays& wanted) {
          if (sum != nullptr) wanted.add(sum + first + at);
          if constexpr (requires { use.arrays; }) {
            for (const Scalar* each : use.arrays) {
              if (each != nullptr) wanted.add(each + first + at);
            }
          }
        });
  });
}

}  // namespace detail

/// A bounded sum with noise, times a public factor.
template <class Sum, class Generator>
class noised_sum : public detail::expression_tag {
 public:
  using scalar = typename Sum::scalar;
  using value_type = scalar;
  noised_sum(Sum sum, gaussian_noise_of<Generator> noise) : sum_{sum}, noise_{noise} {}
  [[nodiscard]] auto leaf() const noexcept { return sum_.leaf(); }
  [[nodiscard]] static constexpr std::size_t value_count(const auto& leaf) { return Sum::value_count(leaf); }
  [[nodiscard]] double standard_deviation() const noexcept { return noise_.multiplier.value() * sum_.sensitivity(); }

  void attach(on_host::run_request<scalar>& request, std::span<scalar> out, bool accumulate) const {
    if (accumulate)
      throw std::invalid_argument("pergrad: noise goes on a finished sum: accumulate into a bounded_total first");
    sum_.attach(request, out, false);
  }
  /// Draws the noise: one step of the generator. `begin` as in detail::add_noise.
  template <class Begin = detail::unused>
  void finish(const host& executor, std::span<scalar> out, const Begin& begin = {}) const {
    const std::uint64_t step = noise_.generator->next_step();
    const auto then = [&] {
      const auto use = begin();
      const auto divide = [use, divisor = divisor_](std::size_t first, scalar* values, std::size_t count) {
        for (std::size_t i = 0; divisor != 1 && i < count; ++i) {
          values[i] = static_cast<scalar>(static_cast<double>(values[i]) / divisor);
        }
        use(first, values, count);
      };
      if constexpr (requires { use.arrays; }) {
        return detail::with_arrays(divide, use.arrays[0], use.arrays[1], use.arrays[2]);
      } else {
        return divide;
      }
    };
    detail::add_noise<scalar>(executor, noise_.generator->key(), step, standard_deviation(), out.data(), out.data(),
                              out.size(), then);
  }
  /// The same divided by a public constant.
  [[nodiscard]] noised_sum operator/(expected_batch_size divisor) const {
    noised_sum result = *this;
    result.divisor_ *= divisor.value();
    return result;
  }

 private:
  Sum sum_;
  gaussian_noise_of<Generator> noise_;
  double divisor_ = 1;
};

namespace detail {

/// A noised sum whose values are used while they are released: with `begin` as in add_noise.
template <class Noised, class Begin>
class used_on_the_way : public Noised {
 public:
  used_on_the_way(const Noised& noised, const Begin& begin) : Noised{noised}, begin_{begin} {}
  void finish(const host& executor, std::span<typename Noised::scalar> out) const {
    Noised::finish(executor, out, begin_);
  }

 private:
  Begin begin_;
};

}  // namespace detail

/// A finished total of chunks as a sum that noise can be added to.
template <class Network>
class total_reference {
 public:
  using scalar = typename Network::scalar;
  explicit total_reference(const bounded_total<Network>& total) : total_{&total} {}
  [[nodiscard]] double sensitivity() const {
    if (!(total_->sensitivity() > 0)) {
      throw std::logic_error(
          "pergrad: noise on a bounded_total that knows no sensitivity: add a clipped sum to it first, or " +
          std::string{"clear(sensitivity) it"});
    }
    return total_->sensitivity();
  }
  [[nodiscard]] const bounded_total<Network>& total() const noexcept { return *total_; }

 private:
  const bounded_total<Network>* total_;
};

template <class Network, class Generator>
struct noised_total {
  total_reference<Network> total;
  gaussian_noise_of<Generator> noise;

  /// Draws the noise: one step of the generator. `out` and `begin` as in detail::add_noise.
  template <class Begin = detail::unused>
  void release(const host& executor, typename Network::scalar* out, const Begin& begin = {}) const {
    const double deviation = noise.multiplier.value() * total.sensitivity();
    const std::uint64_t step = noise.generator->next_step();
    detail::add_noise(executor, noise.generator->key(), step, deviation, gradient_access::sum_of(total.total()), out,
                      Network::parameter_count, begin);
  }
};

/// Noise on a bounded sum; on anything else it is an error that says why.
template <class Leaf, class Rule, class Generator>
[[nodiscard]] auto operator+(const bounded_sum<Leaf, Rule>& sum, gaussian_noise_of<Generator> noise) {
  return noised_sum<bounded_sum<Leaf, Rule>, Generator>{sum, noise};
}
template <class Network, class Generator>
requires(!detail::is_explained<Network>) [[nodiscard]] auto operator+(const bounded_total<Network>& total,
                                                                      gaussian_noise_of<Generator> noise) {
  return noised_total<Network, Generator>{total_reference<Network>{total}, noise};
}
template <class Other, class Generator>
[[nodiscard]] auto operator+(const Other& /*other*/, gaussian_noise_of<Generator> /*noise*/) {
  if constexpr (!detail::is_explained<Other>) static_cast<void>(error::noise_on_an_unclipped_sum<Other>{});
  return error::explained{};
}

}  // namespace pergrad::inline v0_1
