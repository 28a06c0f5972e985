// SPDX-License-Identifier: Apache-2.0
// pergrad/optim/sgd.hpp - stochastic gradient descent  v <- momentum v + g;  w <- w - rate v      (torch.optim.SGD)
//
// Weight decay is decoupled, w <- (1 - rate * decay) w before the step (Loshchilov & Hutter 2019, arXiv:1711.05101).
// Without momentum that is torch.optim.SGD's `weight_decay`; with momentum it is SGDW.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <pergrad/detail/aligned_buffer.hpp>
#include <pergrad/detail/error_text.hpp>
#include <pergrad/optim/optimizer.hpp>
#include <pergrad/optim/rules.hpp>
#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1 {

namespace detail {

inline void require_momentum(double momentum) {
  if (momentum >= 0 && momentum < 1) return;
  throw_invalid_argument({"pergrad: sgd: momentum must be in [0, 1), got ", momentum});
}

}  // namespace detail

/// Plain or heavy-ball SGD; with momentum 0 it keeps no state.
template <class Network>
class sgd : public optimizer_steps<sgd<Network>, Network> {
 public:
  using scalar = typename Network::scalar;
  /// Throws std::invalid_argument unless 0 <= momentum < 1 and 0 <= weight_decay, and for numbers that the network's
  /// scalar takes for 0 or infinity.
  explicit sgd(learning_rate rate, double momentum = 0, double weight_decay = 0)
      : rate_{rate.value()}, momentum_{momentum}, decay_{weight_decay} {
    detail::require_momentum(momentum);
    detail::require_weight_decay(weight_decay);
    detail::require_rate_that_counts<scalar>("sgd", rate_, decay_);
    if (momentum > 0) velocity_ = {Network::parameter_count, "an optimizer's velocity"};
  }

  /// Of all steps from now on: for schedules. A rate must not be computed from records. Throws as the constructor does.
  void set_learning_rate(learning_rate rate) {
    detail::require_rate_that_counts<scalar>("sgd", rate.value(), decay_);
    rate_ = rate.value();
  }

 private:
  friend struct optimizer_access;
  // For files: what the optimizer is, and what it remembers between steps: arrays of `parameter_count` values or none,
  // their names, and a count of steps or null.
  friend struct detail::checkpoint_access;
  static constexpr std::array<const char*, 1> state_names{"momentum_buffer"};  // PyTorch's
  [[nodiscard]] const char* kind() const noexcept { return momentum_ > 0 ? "sgd with momentum" : "sgd"; }
  [[nodiscard]] bool has_memory() const noexcept {
    return momentum_ == 0 || velocity_.size() == Network::parameter_count;
  }
  [[nodiscard]] std::array<std::span<scalar>, 1> state() noexcept { return {velocity_.span()}; }
  [[nodiscard]] std::uint64_t* count() noexcept { return nullptr; }
  [[nodiscard]] auto begin(Network& network, double scale) {
    scalar* const w = network.parameters().data();
    const auto keep = static_cast<scalar>(1 - rate_ * decay_);
    const rules::sgd_rule<scalar> plain{static_cast<scalar>(rate_ * scale), keep};
    const rules::momentum_rule<scalar> heavy{static_cast<scalar>(scale), static_cast<scalar>(rate_),
                                             static_cast<scalar>(momentum_), keep};
    return [with = detail::update_by(heavy, w, velocity_.data()), without = detail::update_by(plain, w),
            is_heavy = momentum_ > 0](std::size_t first, const scalar* gradient, std::size_t size) {
      is_heavy ? with(first, gradient, size) : without(first, gradient, size);
    };
  }

  double rate_;
  double momentum_;
  double decay_;
  detail::aligned_buffer<scalar> velocity_;
};

}  // namespace pergrad::inline v0_1
