// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/lstm.hpp - long short-term memory (Hochreiter & Schmidhuber 1997; with the forget gate of Gers,
// Schmidhuber & Cummins 2000)
//
//   (i, f, g, o) = W_ih x_t + b_ih + W_hh h_(t-1) + b_hh
//   c_t = sigmoid(f) c_(t-1) + sigmoid(i) tanh(g)      h_t = sigmoid(o) tanh(c_t)
// Backwards, with dh = dL/dh_t and dc = dL/dc_t from t + 1 plus dh sigmoid(o) (1 - tanh² c_t), and the gates' values
// named as the gates:
//   di = dc g i (1 - i)    df = dc c_(t-1) f (1 - f)    dg = dc i (1 - g²)    do = dh tanh(c_t) o (1 - o)
//   dL/dc_(t-1) = dc f     dL/dh_(t-1) = W_hh^T (di, df, dg, do)
#pragma once

#include <array>
#include <cstddef>

#include <pergrad/layers/recurrent.hpp>
#include <pergrad/simd/elements.hpp>
#include <pergrad/simd/math.hpp>

namespace pergrad::inline v0_1 {

namespace detail {

struct lstm_cell : usual_cell {
  static constexpr const char* name = "lstm";
  static constexpr const char* name_reversed = "lstm_reversed";
  static constexpr std::size_t gates = 4;
  static constexpr std::size_t area = 4;  ///< i, f, g, o
  static constexpr std::size_t states = 2;
  static constexpr std::array<gate_block, 1> input_blocks{{{0, 0, 4}}};

  template <class Scalar>
  static void forward(std::size_t hidden, const cell_step<Scalar>& at) {
    const auto width = static_cast<std::ptrdiff_t>(hidden);
    on_host::for_each_pack<Scalar>(width, [&](std::ptrdiff_t k, const auto& lanes) {
      using value = on_host::pack<Scalar>;
      Scalar* area_k = at.area + k;
      const value in = math::sigmoid(value{lanes.load(area_k)});
      const value forget = math::sigmoid(value{lanes.load(area_k + width)});
      const value candidate = math::tanh(value{lanes.load(area_k + 2 * width)});
      const value out = math::sigmoid(value{lanes.load(area_k + 3 * width)});
      const value cell = forget * lanes.load(at.c_before + k) + in * candidate;
      const value squashed = math::tanh(cell);
      const value h = out * squashed;
      lanes.store(area_k, in);
      lanes.store(area_k + width, forget);
      lanes.store(area_k + 2 * width, candidate);
      lanes.store(area_k + 3 * width, out);
      lanes.store(at.c + k, cell);
      lanes.store(at.tanh_c + k, squashed);
      lanes.store(at.h + k, h);
      if (at.y != nullptr) lanes.store(at.y + k, h);
    });
  }

  template <class Scalar>
  static void backward(std::size_t hidden, const cell_step<Scalar>& at) {
    const auto width = static_cast<std::ptrdiff_t>(hidden);
    on_host::for_each_pack<Scalar>(width, [&](std::ptrdiff_t k, const auto& lanes) {
      using value = on_host::pack<Scalar>;
      Scalar* area_k = at.area + k;
      const value in = lanes.load(area_k);
      const value forget = lanes.load(area_k + width);
      const value candidate = lanes.load(area_k + 2 * width);
      const value out = lanes.load(area_k + 3 * width);
      const value squashed = lanes.load(at.tanh_c + k);
      value dh = lanes.load(at.dh + k);
      if (at.dy != nullptr) dh += lanes.load(at.dy + k);
      const value dc = lanes.load(at.dc + k) + dh * out * (1 - squashed * squashed);
      lanes.store(area_k, dc * candidate * in * (1 - in));
      lanes.store(area_k + width, dc * lanes.load(at.c_before + k) * forget * (1 - forget));
      lanes.store(area_k + 2 * width, dc * in * (1 - candidate * candidate));
      lanes.store(area_k + 3 * width, dh * squashed * out * (1 - out));
      lanes.store(at.dc + k, dc * forget);
      lanes.store(at.dh + k, value{});
    });
  }
};

}  // namespace detail

/// `lstm<Hidden, options...>` on `{positions, features}`: `{positions, Hidden}` (twice that if bidirectional), or
/// `{Hidden}` with `last_output` or `mean_output`. Options: `layers<Count>`, `bidirectional`, `one_bias`, `no_bias`,
/// `last_output`, `mean_output`. The initial state is zero; `with_state` gives one. PyTorch:
/// `nn.LSTM(batch_first=True)`; parameters: weight_ih `[4 Hidden, features]` (i, f, g, o), weight_hh `[4 Hidden,
/// Hidden]`, bias_ih, bias_hh, layer by layer and direction by direction. Samples with lengths of their own end where
/// they end.
template <std::size_t Hidden, class... Options>
struct lstm : detail::recurrent<detail::lstm_cell, Hidden, Options...> {};

}  // namespace pergrad::inline v0_1
