// SPDX-License-Identifier: Apache-2.0
// tests/host/convolution_fixture.hpp - convolutions of one tile, for kernels that are compared with the direct products
#pragma once

#include <string>
#include <vector>

#include <pergrad/graph/layout.hpp>
#include <pergrad/host/plan/tables.hpp>

#include "kernel_fixture.hpp"

namespace kernel_fixture {

/// A convolution and the samples of a tile.
struct convolution {
  position channels;
  position outputs;
  position height;
  position width;
  position kernel_height;
  position kernel_width;
  position padding;
  position samples;

  [[nodiscard]] std::size_t weight_count() const { return number(outputs * channels * kernel_height * kernel_width); }
};

[[nodiscard]] inline std::string to_text(const convolution& of) {
  return std::to_string(of.channels) + " to " + std::to_string(of.outputs) + ", " + std::to_string(of.height) + " x " +
         std::to_string(of.width) + ", kernel " + std::to_string(of.kernel_height) + " x " +
         std::to_string(of.kernel_width) + ", padding " + std::to_string(of.padding) + ", " +
         std::to_string(of.samples) + " samples";
}

[[nodiscard]] inline on_host::node_row row_of(const convolution& of) {
  const auto extent_of = [](position rows, position columns) {
    return pergrad::extent{1, number(rows), number(columns)};
  };
  on_host::node_row row;
  row.map = {.in_channels = number(of.channels),
             .in_size = extent_of(of.height, of.width),
             .out_channels = number(of.outputs),
             .out_size = extent_of(of.height + 2 * of.padding - of.kernel_height + 1,
                                   of.width + 2 * of.padding - of.kernel_width + 1),
             .kernel = extent_of(of.kernel_height, of.kernel_width),
             .padding = {0, number(of.padding), number(of.padding)}};
  row.input_gradient = true;
  return row;
}

[[nodiscard]] inline on_host::layout layout_of(std::size_t channels, pergrad::extent size, on_host::halo around) {
  return on_host::lay_out(
      {static_cast<position>(channels), static_cast<position>(size.height), static_cast<position>(size.width), true, 1},
      around);
}

/// The halo of values that nobody pads.
inline constexpr on_host::halo uneven_halo{1, 2, 0, 1};

/// Samples one behind the other, and `around` wherever no value lies: in the halo, and so often behind the last.
template <class Scalar>
[[nodiscard]] std::vector<Scalar> values_in(const on_host::layout& where, position samples, numbers& random,
                                            Scalar around, position behind = 0) {
  std::vector<Scalar> values(number(samples * where.size + behind), around);
  for (position b = 0; b < samples; ++b) {
    for (position i = 0; i < where.values.size(); ++i) {
      values[number(b * where.size + where.position(i))] = random.next<Scalar>();
    }
  }
  return values;
}

}  // namespace kernel_fixture
