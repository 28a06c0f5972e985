// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/gru.hpp - gated recurrent unit (Cho et al. 2014, arXiv:1406.1078), in PyTorch's form
//
//   r = sigmoid(W_ir x_t + b_ir + q_r)    z = sigmoid(W_iz x_t + b_iz + q_z)    q = W_hh h_(t-1) + b_hh
//   n = tanh(W_in x_t + b_in + r q_n)     h_t = (1 - z) n + z h_(t-1)
// so what the input's side of n receives is not what the state's side receives:
//   dz = dh (h_(t-1) - n) z (1 - z)    dn = dh (1 - z) (1 - n²)    dr = dn q_n r (1 - r)    dq_n = dn r
//   W_ih and b_ih have (dr, dz, dn), W_hh and b_hh have (dr, dz, dq_n);  dL/dh_(t-1) = dh z + W_hh^T (dr, dz, dq_n)
#pragma once

#include <array>
#include <cstddef>

#include <pergrad/detail/host_device.hpp>
#include <pergrad/layers/recurrent.hpp>
#include <pergrad/simd/math.hpp>

namespace pergrad::inline v0_1 {

namespace detail {

struct gru_cell : usual_cell {
  static constexpr const char* name = "gru";
  static constexpr const char* name_reversed = "gru_reversed";
  static constexpr std::size_t gates = 3;
  static constexpr std::size_t area = 4;  ///< n, r, z, q_n: the last three are what meets the state
  static constexpr std::size_t first_recurrent = 1;
  static constexpr std::array<gate_block, 2> input_blocks{{{1, 0, 2}, {0, 2, 1}}};

  /// q_n starts from its bias.
  template <class Team, class Scalar>
  PERGRAD_HD static void prepare(const Team& team, std::ptrdiff_t hidden, Scalar* first_record, const Scalar* bias) {
    for (std::ptrdiff_t b = 0; b < team.samples; ++b) {
      team.copy(hidden, bias + 3 * hidden, first_record + b * team.saved.step + 3 * hidden);
    }
  }

  template <class Value>
  struct values {
    Value candidate, reset, update, h;
  };
  /// From the pre-activations and the state before.
  template <class Value>
  [[nodiscard]] PERGRAD_HD static values<Value> forward(Value candidate, Value reset, Value update, Value from_state,
                                                        Value h_before) noexcept {
    reset = math::sigmoid(reset);
    update = math::sigmoid(update);
    candidate = math::tanh(Value{candidate + reset * from_state});
    return {candidate, reset, update, (1 - update) * candidate + update * h_before};
  }
  template <class Value>
  struct gradients {
    Value candidate, reset, update, from_state, h_before;
  };
  template <class Value>
  [[nodiscard]] PERGRAD_HD static gradients<Value> backward(Value candidate, Value reset, Value update,
                                                            Value from_state, Value h_before, Value dh) noexcept {
    const Value dn = dh * (1 - update) * (1 - candidate * candidate);
    return {dn, dn * from_state * reset * (1 - reset), dh * (h_before - candidate) * update * (1 - update), dn * reset,
            dh * update};
  }

  template <class At, class Scalar>
  PERGRAD_HD static void forward_at(const At& at, std::ptrdiff_t width, const cell_step<Scalar>& of) {
    Scalar* area = of.area;
    const auto now = forward(at(area), at(area + width), at(area + 2 * width), at(area + 3 * width), at(of.h_before));
    at.put(area, now.candidate);
    at.put(area + width, now.reset);
    at.put(area + 2 * width, now.update);
    of.put_h(at, now.h);
  }
  template <class At, class Scalar>
  PERGRAD_HD static void backward_at(const At& at, std::ptrdiff_t width, const cell_step<Scalar>& of) {
    Scalar* area = of.area;
    const auto now = backward(at(area), at(area + width), at(area + 2 * width), at(area + 3 * width), at(of.h_before),
                              of.gradient_of_h(at));
    at.put(area, now.candidate);
    at.put(area + width, now.reset);
    at.put(area + 2 * width, now.update);
    at.put(area + 3 * width, now.from_state);
    at.put(of.dh, now.h_before);
  }
};

}  // namespace detail

/// `gru<Hidden, options...>` on `{positions, features}`: `{positions, Hidden}` (twice that if bidirectional), or
/// `{Hidden}` with `last_output` or `mean_output`. Options: `layers<Count>`, `bidirectional`, `one_bias`, `no_bias`,
/// `last_output`, `mean_output`. The initial state is zero; `with_state` gives one. PyTorch:
/// `nn.GRU(batch_first=True)`; parameters: weight_ih `[3 Hidden, features]` (r, z, n), weight_hh `[3 Hidden, Hidden]`,
/// bias_ih, bias_hh, layer by layer and direction by direction. Samples with lengths of their own end where they end.
template <std::size_t Hidden, class... Options>
struct gru : detail::recurrent<detail::gru_cell, Hidden, Options...> {};

}  // namespace pergrad::inline v0_1
