// SPDX-License-Identifier: Apache-2.0
// pergrad/gradients/noise.hpp - Gaussian noise on a bounded sum: the only thing that a private optimizer accepts
//
// standard deviation = noise_multiplier * sensitivity. The sensitivity comes from the clipped sum itself, so it can
// neither be forgotten nor mistyped. Noise is a function of (key, step, parameter index): one step of the generator an
// evaluation, whatever the batch, the chunks and the threads. It is drawn for an empty batch as well.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>

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
  explicit bounded_total(const Executor& /*executor*/) : values_{Network::parameter_count, "a clipped sum"} {}

  /// Back to the empty sum.
  void clear() noexcept {
    std::fill_n(values_.data(), values_.size(), scalar{0});
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
  detail::aligned_buffer<scalar> values_;
  double sensitivity_ = 0;
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
  template <class Network>
  [[nodiscard]] static std::span<const typename Network::scalar> values(const bounded_total<Network>& total) noexcept {
    return total.values_.span();
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

/// values = sum + noise, all threads sharing the elements; the bits of the noise depend on (key, step, element) only.
/// `sum` may be `values`. Precondition: as many.
template <class Scalar>
void add_noise(const host& executor, const chacha_key& key, std::uint64_t step, double standard_deviation,
               std::span<const std::type_identity_t<Scalar>> sum, std::span<Scalar> values) {
  constexpr std::size_t chunk = 1U << 13U;
  executor.parallel((values.size() + chunk - 1) / chunk, [&](std::size_t task, std::size_t) {
    const std::size_t first = task * chunk;
    const std::span<Scalar> to = values.subspan(first, std::min(chunk, values.size() - first));
    if (sum.data() != values.data()) std::copy_n(sum.data() + first, to.size(), to.data());
    add_gaussian<Scalar>(key, random_purpose::gradient_noise, step, first, standard_deviation, to);
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
  /// Draws the noise: one step of the generator.
  void finish(const host& executor, std::span<scalar> out) const {
    const std::uint64_t step = noise_.generator->next_step();
    detail::add_noise(executor, noise_.generator->key(), step, standard_deviation(), out, out);
    if (divisor_ != 1) {
      for (scalar& value : out) value = static_cast<scalar>(static_cast<double>(value) / divisor_);
    }
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
