// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/gru.hpp - gated recurrent unit (Cho et al. 2014, arXiv:1406.1078), in PyTorch's form
//
//   r = sigmoid(W_ir x_t + b_ir + q_r)    z = sigmoid(W_iz x_t + b_iz + q_z)    q = W_hh h_(t-1) + b_hh
//   n = tanh(W_in x_t + b_in + r q_n)     h_t = (1 - z) n + z h_(t-1)
// so what the input's side of n receives is not what the state's side receives:
//   dz = dh (h_(t-1) - n) z (1 - z)    dn = dh (1 - z) (1 - n²)    dr = dn q_n r (1 - r)    dq_n = dn r
//   W_ih and b_ih have (dr, dz, dn), W_hh and b_hh have (dr, dz, dq_n);  dL/dh_(t-1) = dh z + W_hh^T (dr, dz, dq_n)
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include <pergrad/layers/recurrent.hpp>
#include <pergrad/simd/elements.hpp>
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
  template <class Tile, class Scalar>
  static void prepare(const Tile& tile, std::size_t hidden, Scalar* first_record, const Scalar* bias) {
    for (std::ptrdiff_t b = 0; b < tile.samples; ++b) {
      std::copy_n(bias + 3 * hidden, hidden, first_record + b * tile.saved.step + 3 * hidden);
    }
  }

  template <class Scalar>
  static void forward(std::size_t hidden, const cell_step<Scalar>& at) {
    const auto width = static_cast<std::ptrdiff_t>(hidden);
    on_host::for_each_pack<Scalar>(width, [&](std::ptrdiff_t k, const auto& lanes) {
      using value = on_host::pack<Scalar>;
      Scalar* area_k = at.area + k;
      const value reset = math::sigmoid(value{lanes.load(area_k + width)});
      const value update = math::sigmoid(value{lanes.load(area_k + 2 * width)});
      const value candidate = math::tanh(value{lanes.load(area_k) + reset * lanes.load(area_k + 3 * width)});
      const value h = (1 - update) * candidate + update * lanes.load(at.h_before + k);
      lanes.store(area_k, candidate);
      lanes.store(area_k + width, reset);
      lanes.store(area_k + 2 * width, update);
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
      const value candidate = lanes.load(area_k);
      const value reset = lanes.load(area_k + width);
      const value update = lanes.load(area_k + 2 * width);
      const value from_state = lanes.load(area_k + 3 * width);
      value dh = lanes.load(at.dh + k);
      if (at.dy != nullptr) dh += lanes.load(at.dy + k);
      const value dn = dh * (1 - update) * (1 - candidate * candidate);
      lanes.store(area_k, dn);
      lanes.store(area_k + width, dn * from_state * reset * (1 - reset));
      lanes.store(area_k + 2 * width, dh * (lanes.load(at.h_before + k) - candidate) * update * (1 - update));
      lanes.store(area_k + 3 * width, dn * reset);
      lanes.store(at.dh + k, dh * update);
    });
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
