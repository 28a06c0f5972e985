// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/gated.hpp - products of two branches, element by element, and the gated unit of LLaMA
//
//     elementwise_product  y = a (.) b;    da = dy (.) b,  db = dy (.) a
//     swiglu               y = silu(W x) (.) (V x)                      (Shazeer 2020, arXiv:2002.05202)
// No parameters of their own: the branches' linear layers state their gradients.
#pragma once

#include <cstddef>

#include <pergrad/detail/host_device.hpp>
#include <pergrad/graph/mistakes.hpp>
#include <pergrad/graph/sequential.hpp>
#include <pergrad/layers/activations.hpp>
#include <pergrad/layers/linear.hpp>
#include <pergrad/shape.hpp>
#include <pergrad/team.hpp>

namespace pergrad::inline v0_1 {

/// Two inputs of one shape, multiplied element by element: `merge<elementwise_product, sequential<...>,
/// sequential<...>>`; of any length each. PyTorch: `a(x) * b(x)`.
struct elementwise_product {
  static constexpr const char* name = "elementwise_product";
  static constexpr bool by_position = true;
  static constexpr bool on_tiles = true;
  static constexpr bool on_device = true;
  static constexpr bool joins_positions = true;

  [[nodiscard]] static constexpr shape output_shape(shape in, shape /*second*/) noexcept { return in; }
  [[nodiscard]] static constexpr detail::mistake check(shape in, shape second) noexcept {
    return in == second ? detail::mistake::none : detail::mistake::branches_do_not_fit;
  }

  [[nodiscard]] static constexpr std::size_t part_count(shape in) noexcept { return count_parts(in.size()); }

  template <class Team>
  PERGRAD_HD static void forward(const Team& team) {
    for (std::ptrdiff_t b = 0; b < team.samples; ++b) multiply(team, team.x(b), team.x2(b), team.y(b));
  }
  template <class Team>
  PERGRAD_HD static void backward(const Team& team) {
    for (std::ptrdiff_t b = 0; b < team.samples; ++b) {
      if (team.wants_dx) multiply(team, team.dy(b), team.x2(b), team.dx(b));
      if (team.wants_dx2) multiply(team, team.dy(b), team.x(b), team.dx2(b));
    }
  }

 private:
  template <class Team, class Scalar>
  PERGRAD_HD static void multiply(const Team& team, const Scalar* left, const Scalar* right, Scalar* out) {
    const auto [first, count] = range_of_part(team, static_cast<std::ptrdiff_t>(team.in.size()));
    left += first;
    right += first;
    out += first;
    team.map(count, [&](const auto& at) { at.put(out, at(left) * at(right)); });
  }
};

/// `swiglu<Width>` on `{features}`, or position by position; gives `Width` features. Option: `no_bias`, of both linear
/// layers, as LLaMA has them. Parameters: those of W, then of V, `gate_proj` and `up_proj` in files.
template <std::size_t Width, class... Options>
struct swiglu {
  using unfolds_to =
      merge<elementwise_product, sequential<linear<Width, Options...>, silu>, sequential<linear<Width, Options...>>>;
  [[nodiscard]] static const char* part_name(std::size_t number) noexcept {
    return number == 0 ? "gate_proj.*" : "up_proj.*";
  }
};

}  // namespace pergrad::inline v0_1
