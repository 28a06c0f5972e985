// SPDX-License-Identifier: Apache-2.0
// pergrad/optim/adam.hpp - Adam (Kingma & Ba 2015, arXiv:1412.6980); on a noised gradient it is DP-Adam
//
//   m <- b1 m + (1 - b1) g;  v <- b2 v + (1 - b2) g²;  w <- w - rate (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) +
//   stability)
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>

#include <pergrad/detail/aligned_buffer.hpp>
#include <pergrad/optim/optimizer.hpp>
#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1 {

/// Adam's constants, with PyTorch's defaults.
struct adam_options {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double stability = 1e-8;
};

/// `torch.optim.Adam` without weight decay.
template <class Network>
class adam : public optimizer_steps<adam<Network>, Network> {
 public:
  using scalar = typename Network::scalar;
  /// Throws std::invalid_argument unless 0 <= beta < 1 and stability > 0.
  explicit adam(learning_rate rate, adam_options options = {})
      : rate_{rate.value()},
        options_{options},
        first_{Network::parameter_count, "an optimizer's first moment"},
        second_{Network::parameter_count, "an optimizer's second moment"} {
    const auto fraction = [](double beta) { return beta >= 0 && beta < 1; };
    if (!fraction(options.beta1) || !fraction(options.beta2) || !(options.stability > 0)) {
      throw std::invalid_argument("pergrad: adam: betas must be in [0, 1) and stability above 0");
    }
  }

 private:
  friend struct optimizer_access;
  void apply(const host& executor, Network& network, std::span<const scalar> gradient, double scale) {
    ++steps_;
    const auto count = static_cast<double>(steps_);
    const auto beta1 = static_cast<scalar>(options_.beta1);
    const auto beta2 = static_cast<scalar>(options_.beta2);
    const auto rest1 = static_cast<scalar>(1 - options_.beta1);  // in double: 1 - 0.999F is off by 1e-5
    const auto rest2 = static_cast<scalar>(1 - options_.beta2);
    const auto rate = static_cast<scalar>(rate_ / (1 - std::pow(options_.beta1, count)));
    const auto correction = static_cast<scalar>(1 / std::sqrt(1 - std::pow(options_.beta2, count)));
    const auto stability = static_cast<scalar>(options_.stability);
    const auto factor = static_cast<scalar>(scale);
    scalar* parameters = network.parameters().data();
    scalar* first = first_.data();
    scalar* second = second_.data();
    this->for_each_parameter(executor, [&](std::size_t i) {
      const scalar value = factor * gradient[i];
      first[i] = beta1 * first[i] + rest1 * value;
      second[i] = beta2 * second[i] + rest2 * value * value;
      parameters[i] -= rate * first[i] / (std::sqrt(second[i]) * correction + stability);
    });
  }

  double rate_;
  adam_options options_;
  detail::aligned_buffer<scalar> first_;
  detail::aligned_buffer<scalar> second_;
  std::uint64_t steps_ = 0;
};

}  // namespace pergrad::inline v0_1
