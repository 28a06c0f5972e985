// SPDX-License-Identifier: Apache-2.0
// pergrad/optim/adam.hpp - Adam (Kingma & Ba 2015, arXiv:1412.6980); on a noised gradient it is DP-Adam
//
//   m <- b1 m + (1 - b1) g;  v <- b2 v + (1 - b2) g²;  w <- w - rate (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) +
//   stability)
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include <pergrad/detail/aligned_buffer.hpp>
#include <pergrad/detail/elements.hpp>
#include <pergrad/detail/multiply_add.hpp>
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
  [[nodiscard]] auto begin(Network& network, double scale) {
    using on_host::index;
    using on_host::splat;
    ++steps_;
    const auto count = static_cast<double>(steps_);
    return [parameters = network.parameters().data(), first_moments = first_.data(), second_moments = second_.data(),
            beta1 = static_cast<scalar>(options_.beta1), beta2 = static_cast<scalar>(options_.beta2),
            rest1 = static_cast<scalar>(1 - options_.beta1),  // in double: 1 - 0.999F is off by 1e-5
            rest2 = static_cast<scalar>(1 - options_.beta2),
            rate = static_cast<scalar>(rate_ / (1 - std::pow(options_.beta1, count))),
            correction = static_cast<scalar>(1 / std::sqrt(1 - std::pow(options_.beta2, count))),
            stability = static_cast<scalar>(options_.stability),
            factor = static_cast<scalar>(scale)](std::size_t at, const scalar* gradient, std::size_t size) {
      using vector = on_host::vector<scalar>;
      scalar* const w = parameters + at;
      scalar* const m = first_moments + at;
      scalar* const v = second_moments + at;
      on_host::for_each_vector<scalar>(static_cast<index>(size), [&](index i, const auto& lanes) {
        const vector g = splat(factor) * lanes.load(gradient + i);
        const vector first = on_host::multiply_add<scalar>(splat(beta1), lanes.load(m + i), splat(rest1) * g);
        const vector second = on_host::multiply_add<scalar>(splat(beta2), lanes.load(v + i), splat(rest2) * g * g);
        lanes.store(m + i, first);
        lanes.store(v + i, second);
        const vector divisor =
            on_host::multiply_add<scalar>(on_host::square_root<scalar>(second), splat(correction), splat(stability));
        lanes.store(w + i, lanes.load(w + i) - splat(rate) * first / divisor);
      });
    };
  }

  double rate_;
  adam_options options_;
  detail::aligned_buffer<scalar> first_;
  detail::aligned_buffer<scalar> second_;
  std::uint64_t steps_ = 0;
};

}  // namespace pergrad::inline v0_1
