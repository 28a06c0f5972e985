// expect-error: layer_rejects_its_input<.*at_layer<0>.*layer_type<pairs>.*gets<.*of_shape<5>
// expect-error: this layer does not take an input of this shape; see docs/layers.md
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

struct pairs {
  static constexpr bool on_tiles = true;
  [[nodiscard]] static constexpr bool accepts(pg::shape in) noexcept { return in.size() % 2 == 0; }
  [[nodiscard]] static constexpr pg::shape output_shape(pg::shape in) noexcept { return in; }
  template <class Tile>
  static void forward(const Tile& tile) {
    for (std::ptrdiff_t b = 0; b < tile.samples; ++b) {
      for (std::size_t i = 0; i < tile.in.size(); ++i) tile.y(b)[i] = tile.x(b)[i];
    }
  }
  template <class Tile>
  static void backward(const Tile& tile) {
    for (std::ptrdiff_t b = 0; tile.wants_dx && b < tile.samples; ++b) {
      for (std::size_t i = 0; i < tile.in.size(); ++i) tile.dx(b)[i] = tile.dy(b)[i];
    }
  }
};

#ifdef COMPILE_FAIL_FIXED
using net_type = pg::network<pg::shape{4}, pairs, pg::linear<10>>;
#else
using net_type = pg::network<pg::shape{5}, pairs, pg::linear<10>>;
#endif

#include "whole_program.inc"
