// SPDX-License-Identifier: Apache-2.0
// pergrad/optim/adam.hpp - Adam (Kingma & Ba 2015, arXiv:1412.6980); on a noised gradient it is DP-Adam
//
//   m <- b1 m + (1 - b1) g;  v <- b2 v + (1 - b2) g²;  w <- w - rate (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) +
//   stability)
//
// With weight decay it is AdamW: w <- (1 - rate * decay) w before the step (Loshchilov & Hutter 2019,
// arXiv:1711.05101).
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
};

namespace detail {

inline void require_adam_options(const adam_options& options) {
  const auto fraction = [](double beta) { return beta >= 0 && beta < 1; };
  if (!fraction(options.beta1) || !fraction(options.beta2) || !(options.stability > 0)) {
    throw std::invalid_argument("pergrad: adam: betas must be in [0, 1) and stability above 0");
  }
  require_weight_decay(options.weight_decay);
}

}  // namespace detail

/// `torch.optim.Adam` without weight decay; with it, `torch.optim.AdamW`.
template <class Network>
class adam : public optimizer_steps<adam<Network>, Network> {
 public:
  using scalar = typename Network::scalar;
  /// Throws std::invalid_argument unless 0 <= beta < 1, stability > 0 and weight_decay >= 0.
  explicit adam(learning_rate rate, adam_options options = {})
      : rate_{rate.value()},
        options_{options},
        first_{Network::parameter_count, "an optimizer's first moment"},
        second_{Network::parameter_count, "an optimizer's second moment"} {
    detail::require_adam_options(options);
  }

  /// Of all steps from now on: for schedules. A rate must not be computed from records.
  void set_learning_rate(learning_rate rate) noexcept { rate_ = rate.value(); }

 private:
  friend struct optimizer_access;
  // For files: what the optimizer is, and what it remembers between steps: arrays of `parameter_count` values or none,
  // their names, and a count of steps or null.
  friend struct detail::checkpoint_access;
  static constexpr std::array<const char*, 2> state_names{"exp_avg", "exp_avg_sq"};  // PyTorch's
  [[nodiscard]] const char* kind() const noexcept { return "adam"; }
  [[nodiscard]] std::array<std::span<scalar>, 2> state() noexcept { return {first_.span(), second_.span()}; }
  [[nodiscard]] std::uint64_t* count() noexcept { return &steps_; }
  [[nodiscard]] auto begin(Network& network, double scale) {
    ++steps_;
    const rules::adam_bias bias = rules::adam_bias_at(steps_, rate_, options_.beta1, options_.beta2);
    return detail::update_by(rules::make_adam<scalar>(bias.rate, bias.correction, options_.beta1, options_.beta2,
                                                      options_.stability, scale, 1 - rate_ * options_.weight_decay),
                             network.parameters().data(), first_.data(), second_.data());
  }

  double rate_;
  adam_options options_;
  detail::aligned_buffer<scalar> first_;
  detail::aligned_buffer<scalar> second_;
  std::uint64_t steps_ = 0;
};

}  // namespace pergrad::inline v0_1
