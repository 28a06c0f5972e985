// SPDX-License-Identifier: Apache-2.0
// pergrad/optim/sgd.hpp - stochastic gradient descent  v <- momentum v + g;  w <- w - rate v      (torch.optim.SGD)
#pragma once

#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>

#include <pergrad/detail/aligned_buffer.hpp>
#include <pergrad/optim/optimizer.hpp>
#include <pergrad/optim/rules.hpp>
#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1 {

/// Plain or heavy-ball SGD; with momentum 0 it keeps no state.
template <class Network>
class sgd : public optimizer_steps<sgd<Network>, Network> {
 public:
  using scalar = typename Network::scalar;
  /// Throws std::invalid_argument unless 0 <= momentum < 1.
  explicit sgd(learning_rate rate, double momentum = 0) : rate_{rate.value()}, momentum_{momentum} {
    if (!(momentum >= 0 && momentum < 1)) {
      throw std::invalid_argument("pergrad: sgd: momentum must be in [0, 1), got " + std::to_string(momentum));
    }
    if (momentum > 0) velocity_ = {Network::parameter_count, "an optimizer's velocity"};
  }

 private:
  friend struct optimizer_access;
  void apply(const host& executor, Network& network, std::span<const scalar> gradient, double scale) {
    scalar* parameters = network.parameters().data();
    const scalar* values = gradient.data();
    if (velocity_.size() == 0) {
      const rules::sgd_rule<scalar> rule{static_cast<scalar>(rate_ * scale)};
      this->for_each_parameter(executor, [&](std::size_t i) { rule(values[i], parameters[i]); });
      return;
    }
    scalar* velocity = velocity_.data();
    const rules::momentum_rule<scalar> rule{static_cast<scalar>(scale), static_cast<scalar>(rate_),
                                            static_cast<scalar>(momentum_)};
    this->for_each_parameter(executor, [&](std::size_t i) { rule(values[i], parameters[i], velocity[i]); });
  }

  double rate_;
  double momentum_;
  detail::aligned_buffer<scalar> velocity_;
};

}  // namespace pergrad::inline v0_1
