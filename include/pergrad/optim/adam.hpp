// SPDX-License-Identifier: Apache-2.0
// pergrad/optim/adam.hpp - Adam (Kingma & Ba 2015, arXiv:1412.6980); on a noised gradient it is DP-Adam
//
//   m <- b1 m + (1 - b1) g;  v <- b2 v + (1 - b2) g²;  w <- w - rate (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) +
//   stability)
//
// With weight decay it is AdamW: w <- (1 - rate * decay) w before the step (Loshchilov & Hutter 2019,
// arXiv:1711.05101).
//
// Noise of variance phi in every element of g adds phi to the expectation of v / (1 - b2^t), and where it is most of
// that, Adam is SGD of a small rate. DP-AdamBC (Tang, Shpilevskiy & Lecuyer 2024, arXiv:2312.14334) takes it off again:
//   w <- w - rate (m / (1 - b1^t)) / sqrt(max(v / (1 - b2^t) - noise, floor)),  noise = u / (1 - b2^t)
//   u <- b2 u + (1 - b2) phi
// With phi = (sigma D / divisor)² in every step, noise is phi; with schedules of sigma or C it is what is in v. D is
// what a release's noise is a multiple of, up to 2 % above C (privacy/sensitivity.hpp). All of it is public.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>

#include <pergrad/detail/aligned_buffer.hpp>
#include <pergrad/optim/optimizer.hpp>
#include <pergrad/optim/rules.hpp>
#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1 {

/// Adam's constants, with PyTorch's defaults.
struct adam_options {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double stability = 1e-8;
  double weight_decay = 0;  ///< decoupled: above 0 it is `torch.optim.AdamW`, whose default is 0.01
  /// Above 0 it is DP-AdamBC: the noise's variance is taken off the second moment, which is at least this then; it
  /// stands in the place of `stability`. In the units of a squared gradient: 5e-8, say.
  double noise_floor = 0;
};

namespace detail {

inline void require_adam_options(const adam_options& options) {
  const auto fraction = [](double beta) { return beta >= 0 && beta < 1; };
  if (!fraction(options.beta1) || !fraction(options.beta2) || !(options.stability > 0)) {
    throw_invalid_argument({"pergrad: adam: betas must be in [0, 1) and stability above 0, got ", options.beta1, ", ",
                            options.beta2, " and ", options.stability});
  }
  if (!(options.noise_floor >= 0 && options.noise_floor <= largest_double)) {
    throw_invalid_argument({"pergrad: adam: noise_floor must be finite and not negative, got ", options.noise_floor});
  }
  require_weight_decay(options.weight_decay);
}

/// Of scale-then-privatise, whose scales are at most 1 / stability.
template <class Scalar>
[[gnu::cold]] void require_scale_stability(double stability) {
  if (!(stability > 0 && stability <= largest_double)) {
    throw_invalid_argument({"pergrad: scaled adam: stability must be finite and above 0, got ", stability});
  }
  require_number_that_counts<Scalar>("scaled adam", "stability", stability);
  require_number_that_counts<Scalar>("scaled adam", "1 / stability", 1 / stability);
}

}  // namespace detail

/// `torch.optim.Adam` without weight decay; with it, `torch.optim.AdamW`; with a noise floor, DP-AdamBC.
template <class Network>
class adam : public optimizer_steps<adam<Network>, Network> {
 public:
  using scalar = typename Network::scalar;
  /// Throws std::invalid_argument unless 0 <= beta < 1, stability > 0 and weight_decay >= 0, for numbers that the
  /// network's scalar takes for 0 or infinity, and for a noise floor.
  explicit adam(learning_rate rate, adam_options options = {}) : adam{rate, options, 0} {
    if (options.noise_floor > 0) {
      throw std::invalid_argument(
          "pergrad: adam: a noise_floor needs the noise: adam{rate, options, noise_multiplier, l2_clip_norm}");
    }
  }
  /// DP-AdamBC, for gradients with noise of deviation noise * clip: of a release, `clip` is D of the head of this file.
  /// Throws std::invalid_argument as above, and without a noise floor.
  adam(learning_rate rate, adam_options options, noise_multiplier noise, l2_clip_norm clip)
      : adam{rate, options, noise.value() * clip.value()} {
    if (!(options.noise_floor > 0)) {
      throw std::invalid_argument("pergrad: adam: the noise is told for a noise_floor above 0 only");
    }
  }

  /// Of all steps from now on: for schedules. A rate must not be computed from records. Throws as the constructor does.
  void set_learning_rate(learning_rate rate) {
    detail::require_rate_that_counts<scalar>("adam", rate.value(), options_.weight_decay);
    rate_ = rate.value();
  }
  /// Of the next step's gradient, for DP-AdamBC.
  void set_noise(noise_multiplier noise, l2_clip_norm clip) noexcept { deviation_ = noise.value() * clip.value(); }

 private:
  adam(learning_rate rate, const adam_options& options, double deviation)
      : rate_{rate.value()},
        options_{options},
        deviation_{deviation},
        first_{Network::parameter_count, "an optimizer's first moment"},
        second_{Network::parameter_count, "an optimizer's second moment"} {
    detail::require_adam_options(options);
    detail::require_rate_that_counts<scalar>("adam", rate_, options.weight_decay);
    detail::require_number_that_counts<scalar>("adam", "stability", options.stability);
    detail::require_number_that_counts<scalar>("adam", "noise_floor", options.noise_floor);
  }
  friend struct optimizer_access;
  // For files: what the optimizer is, and what it remembers between steps: arrays of `parameter_count` values or none,
  // their names, and a count of steps or null.
  friend struct detail::checkpoint_access;
  static constexpr std::array<const char*, 2> state_names{"exp_avg", "exp_avg_sq"};  // PyTorch's
  [[nodiscard]] const char* kind() const noexcept { return corrects() ? "adam with noise correction" : "adam"; }
  [[nodiscard]] bool has_memory() const noexcept { return second_.size() == Network::parameter_count; }
  [[nodiscard]] std::array<std::span<scalar>, 2> state() noexcept { return {first_.span(), second_.span()}; }
  [[nodiscard]] std::uint64_t* count() noexcept { return &steps_; }
  [[nodiscard]] double* noise_share() noexcept { return corrects() ? &noise_ : nullptr; }
  [[nodiscard]] bool corrects() const noexcept { return options_.noise_floor > 0; }
  [[nodiscard]] auto begin(Network& network, double scale) {
    scalar* const w = network.parameters().data();
    ++steps_;
    const rules::adam_bias bias = rules::adam_bias_at(steps_, rate_, options_.beta1, options_.beta2);
    noise_ = rules::noise_share_behind(noise_, options_.beta2, deviation_ * scale);
    const auto rule = rules::make_adam<scalar>(bias.rate, bias.correction, options_.beta1, options_.beta2,
                                               options_.stability, scale, 1 - rate_ * options_.weight_decay);
    const double square = bias.correction * bias.correction;
    const rules::corrected_adam_rule<scalar> corrected{rule, static_cast<scalar>(square),
                                                       static_cast<scalar>(noise_ * square),
                                                       static_cast<scalar>(options_.noise_floor)};
    return [plain = detail::update_by(rule, w, first_.data(), second_.data()),
            with = detail::update_by(corrected, w, first_.data(), second_.data()),
            is_corrected = corrects()](std::size_t first, const scalar* gradient, std::size_t size) {
      is_corrected ? with(first, gradient, size) : plain(first, gradient, size);
    };
  }

  double rate_ = 0;
  adam_options options_;
  double deviation_ = 0;  ///< of the noise in each element of the gradient, before it is divided
  double noise_ = 0;      ///< u of the head of this file
  detail::aligned_buffer<scalar> first_;
  detail::aligned_buffer<scalar> second_;
  std::uint64_t steps_ = 0;
};

}  // namespace pergrad::inline v0_1
