// SPDX-License-Identifier: Apache-2.0
// pergrad/optim/sgd.hpp - stochastic gradient descent  v <- momentum v + g;  w <- w - rate v      (torch.optim.SGD)
#pragma once

#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <string>

#include <pergrad/detail/aligned_buffer.hpp>
#include <pergrad/detail/elements.hpp>
#include <pergrad/detail/multiply_add.hpp>
#include <pergrad/optim/optimizer.hpp>
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
  [[nodiscard]] auto begin(Network& network, double scale) {
    using on_host::index;
    return [parameters = network.parameters().data(), velocity = velocity_.data(),
            step = static_cast<scalar>(rate_ * scale), momentum = static_cast<scalar>(momentum_),
            rate = static_cast<scalar>(rate_),
            factor = static_cast<scalar>(scale)](std::size_t first, const scalar* gradient, std::size_t count) {
      using vector = on_host::vector<scalar>;
      scalar* const w = parameters + first;
      if (velocity == nullptr) {
        on_host::for_each_vector<scalar>(static_cast<index>(count), [&](index i, const auto& lanes) {
          lanes.store(
              w + i, on_host::multiply_add<scalar>(on_host::splat(-step), lanes.load(gradient + i), lanes.load(w + i)));
        });
        return;
      }
      scalar* const v = velocity + first;
      on_host::for_each_vector<scalar>(static_cast<index>(count), [&](index i, const auto& lanes) {
        const vector changed = on_host::multiply_add<scalar>(on_host::splat(momentum), lanes.load(v + i),
                                                             on_host::splat(factor) * lanes.load(gradient + i));
        lanes.store(v + i, changed);
        lanes.store(w + i, on_host::multiply_add<scalar>(on_host::splat(-rate), changed, lanes.load(w + i)));
      });
    };
  }

  double rate_;
  double momentum_;
  detail::aligned_buffer<scalar> velocity_;
};

}  // namespace pergrad::inline v0_1
