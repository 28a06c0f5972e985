// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/rnn.hpp - recurrent layer  h_t = f(W_ih x_t + b_ih + W_hh h_(t-1) + b_hh),  f = tanh or relu (Elman
// 1990)
//
// Backwards: delta_t = dh_t f'(h_t) with tanh' = 1 - h², relu' = [h > 0];  dL/dh_(t-1) = W_hh^T delta_t.
#pragma once

#include <array>
#include <cstddef>

#include <pergrad/detail/host_device.hpp>
#include <pergrad/layers/recurrent.hpp>
#include <pergrad/simd/math.hpp>

namespace pergrad::inline v0_1 {

namespace detail {

template <bool Relu>
struct rnn_cell : usual_cell {
  static constexpr const char* name = "rnn";
  static constexpr const char* name_reversed = "rnn_reversed";
  static constexpr int setting = Relu ? 1 : 0;  ///< for a file's hash of the structure
  static constexpr std::size_t gates = 1;
  static constexpr std::size_t area = 1;
  static constexpr std::array<gate_block, 1> input_blocks{{{0, 0, 1}}};
  static constexpr bool may_be_relu = true;

  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value forward(Value sum) noexcept {
    return Relu ? math::max(sum, Value{}) : math::tanh(sum);
  }
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value backward(Value h, Value dh) noexcept {
    return dh * (Relu ? math::select(h > Value{}, math::splat<Value>(1), Value{}) : 1 - h * h);
  }

  template <class At, class Scalar>
  PERGRAD_HD static void forward_at(const At& at, std::ptrdiff_t /*width*/, const cell_step<Scalar>& of) {
    const auto h = forward(at(of.area));
    of.put_h(at, h);
  }
  template <class At, class Scalar>
  PERGRAD_HD static void backward_at(const At& at, std::ptrdiff_t /*width*/, const cell_step<Scalar>& of) {
    at.put(of.area, backward(at(of.h), of.gradient_of_h(at)));
    at.put(of.dh, at.zero());
  }
};

template <class... Options>
using rnn_cell_of = rnn_cell<gather<recurrent_options, Options...>().relu>;

}  // namespace detail

/// `rnn<Hidden, options...>` on `{positions, features}`: `{positions, Hidden}` (twice that if bidirectional), or
/// `{Hidden}` with `last_output` or `mean_output`. Options: `relu_cell` (instead of tanh), `layers<Count>`,
/// `bidirectional`, `one_bias`, `no_bias`, `last_output`, `mean_output`. The initial state is zero; `with_state` gives
/// one. PyTorch: `nn.RNN(batch_first=True)`; parameters: weight_ih `[Hidden, features]`, weight_hh `[Hidden, Hidden]`,
/// bias_ih, bias_hh, layer by layer and direction by direction. Samples with lengths of their own end where they end.
template <std::size_t Hidden, class... Options>
struct rnn : detail::recurrent<detail::rnn_cell_of<Options...>, Hidden, Options...> {};

}  // namespace pergrad::inline v0_1
