// expect-error: not_on_tiles<.*at_layer<0>.*half_done
// expect-error: a layer with on_tiles needs: template <class Tile> static void forward
// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

struct half_done {
  static constexpr bool on_tiles = true;
  [[nodiscard]] static constexpr pg::shape output_shape(pg::shape in) noexcept { return in; }
  template <class Tile>
  static void forward(const Tile& tile) {
    for (std::ptrdiff_t b = 0; b < tile.samples; ++b) {
      for (std::size_t i = 0; i < tile.in.size(); ++i) tile.y(b)[i] = tile.x(b)[i];
    }
  }
};
struct whole : half_done {
  template <class Tile>
  static void backward(const Tile& tile) {
    for (std::ptrdiff_t b = 0; tile.wants_dx && b < tile.samples; ++b) {
      for (std::size_t i = 0; i < tile.in.size(); ++i) tile.dx(b)[i] = tile.dy(b)[i];
    }
  }
};

#ifdef COMPILE_FAIL_FIXED
using net_type = pg::network<pg::shape{4}, whole, pg::linear<10>>;
#else
using net_type = pg::network<pg::shape{4}, half_done, pg::linear<10>>;
#endif

#include "whole_program.inc"
