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

#include <pergrad/detail/host_device.hpp>
#include <pergrad/layers/recurrent.hpp>
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

  template <class Value>
  struct values {
    Value in, forget, candidate, out, cell, squashed, h;
  };
  /// From the pre-activations of the gates and the cell before.
  template <class Value>
  [[nodiscard]] PERGRAD_HD static values<Value> forward(Value in, Value forget, Value candidate, Value out,
                                                        Value cell_before) noexcept {
    in = math::sigmoid(in);
    forget = math::sigmoid(forget);
    candidate = math::tanh(candidate);
    out = math::sigmoid(out);
    const Value cell = forget * cell_before + in * candidate;
    const Value squashed = math::tanh(cell);
    return {in, forget, candidate, out, cell, squashed, out * squashed};
  }
  template <class Value>
  struct gradients {
    Value in, forget, candidate, out, cell_before;
  };
  /// From what the gates were, the cell before, and dh and dc; of h before the product with W_hh says it.
  template <class Value>
  [[nodiscard]] PERGRAD_HD static gradients<Value> backward(Value in, Value forget, Value candidate, Value out,
                                                            Value squashed, Value cell_before, Value dh,
                                                            Value dc) noexcept {
    dc = dc + dh * out * (1 - squashed * squashed);
    return {dc * candidate * in * (1 - in), dc * cell_before * forget * (1 - forget),
            dc * in * (1 - candidate * candidate), dh * squashed * out * (1 - out), dc * forget};
  }

  template <class At, class Scalar>
  PERGRAD_HD static void forward_at(const At& at, std::ptrdiff_t width, const cell_step<Scalar>& of) {
    Scalar* area = of.area;
    const auto now = forward(at(area), at(area + width), at(area + 2 * width), at(area + 3 * width), at(of.c_before));
    at.put(area, now.in);
    at.put(area + width, now.forget);
    at.put(area + 2 * width, now.candidate);
    at.put(area + 3 * width, now.out);
    at.put(of.c, now.cell);
    at.put(of.tanh_c, now.squashed);
    of.put_h(at, now.h);
  }
  template <class At, class Scalar>
  PERGRAD_HD static void backward_at(const At& at, std::ptrdiff_t width, const cell_step<Scalar>& of) {
    Scalar* area = of.area;
    const auto now = backward(at(area), at(area + width), at(area + 2 * width), at(area + 3 * width), at(of.tanh_c),
                              at(of.c_before), of.gradient_of_h(at), at(of.dc));
    at.put(area, now.in);
    at.put(area + width, now.forget);
    at.put(area + 2 * width, now.candidate);
    at.put(area + 3 * width, now.out);
    at.put(of.dc, now.cell_before);
    at.put(of.dh, at.zero());
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
