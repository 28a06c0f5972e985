// SPDX-License-Identifier: Apache-2.0
// pergrad/host/conv/panels.hpp - weights in the order that products read them in
#pragma once

#include <algorithm>
#include <cstddef>

#include <pergrad/detail/thread_pool.hpp>
#include <pergrad/gradients/factors.hpp>
#include <pergrad/graph/layout.hpp>
#include <pergrad/host/conv/pairs.hpp>
#include <pergrad/host/conv/winograd.hpp>
#include <pergrad/host/gemm/transpose.hpp>
#include <pergrad/host/plan/program.hpp>
#include <pergrad/host/plan/tables.hpp>
#include <pergrad/host/plan/windows.hpp>

namespace pergrad::inline v0_1::on_host {

/// Weights of outputs [first, last) from PyTorch's order into the forward panel
/// `[group][block of outputs][kd][kh][kw][channel][output]`, with blocks of `block` outputs.
template <class Scalar>
inline void pack_forward(const affine_map& map, const Scalar* weights, Scalar* panel, index first, index last,
                         index block) {
  const auto taps = static_cast<index>(map.kernel.size());
  const auto channels = static_cast<index>(map.in_channels / map.groups);
  const auto outputs = static_cast<index>(map.group_outputs());
  const index width = channels * taps;
  for (index n = first; n < last;) {
    // A cache line of outputs at a time: every line of the panel is written once and whole.
    const index output = n % outputs;
    const index together = std::min({line - output % line, outputs - output, last - n});
    const index first_of_block = output / block * block;
    const index step = std::min(block, outputs - first_of_block);
    const Scalar* from = weights + n * width;
    Scalar* to = panel + n / outputs * width * outputs + first_of_block * width + output - first_of_block;
    if (taps == 1) {
      transpose(from, width, together, width, to, step);
      n += together;
      continue;
    }
    for (index c = 0; c < channels; ++c) {
      for (index tap = 0; tap < taps; ++tap) {
        Scalar* out = to + (tap * channels + c) * step;
        const Scalar* in = from + c * taps + tap;
        if (together == line) {
          for (index j = 0; j < line; ++j) out[j] = in[j * width];
        } else {
          for (index j = 0; j < together; ++j) out[j] = in[j * width];
        }
      }
    }
    n += together;
  }
}

/// Weights of outputs [first, last) into the backward panel: per group and phase `[block of channels][tap plane][tap
/// row][tap column][output][channel]` with the taps turned round, or `[output][kd][kh][kw][channel]` for a view that
/// sees everything once.
template <class Scalar>
inline void pack_backward(const node_row& row, const Scalar* weights, Scalar* panel, index first, index last) {
  const affine_map& map = row.map;
  const auto taps = static_cast<index>(map.kernel.size());
  const auto kernel_width = static_cast<index>(map.kernel.width);
  const auto kernel_area = static_cast<index>(map.kernel.height) * kernel_width;
  const auto channels = static_cast<index>(map.in_channels / map.groups);
  const auto outputs = static_cast<index>(map.group_outputs());
  for (index n = first; n < last; ++n) {
    const Scalar* from = weights + n * channels * taps;
    if (row.whole_view) {
      for (index c = 0; c < channels; ++c) {
        for (index tap = 0; tap < taps; ++tap) panel[(n * taps + tap) * channels + c] = from[c * taps + tap];
      }
      continue;
    }
    const index group = n / outputs;
    Scalar* to = panel + group * taps * outputs * channels;
    for_each_phase(map, [&](const phase& planes, const phase& rows, const phase& columns) {
      const auto turned = [](const phase& axis, index tap) {
        return axis.first_tap + (axis.taps - 1 - tap) * axis.tap_step;
      };
      const index phase_taps = planes.taps * rows.taps * columns.taps;
      for (index i = 0; i < planes.taps; ++i) {
        for (index j = 0; j < rows.taps; ++j) {
          const index tap_row = turned(planes, i) * kernel_area + turned(rows, j) * kernel_width;
          for (index k = 0; k < columns.taps; ++k) {
            const index tap = tap_row + turned(columns, k);
            const index number = ((i * rows.taps + j) * columns.taps + k) * outputs + n % outputs;
            for (index block = 0; block < channels; block += panel_block) {
              const index block_width = columns_of_block(channels, block);
              Scalar* line_out = to + block * phase_taps * outputs + number * block_width;
              for (index c = 0; c < block_width; ++c) line_out[c] = from[(block + c) * taps + tap];
            }
          }
        }
      }
      to += phase_taps * outputs * channels;
    });
  }
}

/// The matrices of a tiled layer, each transposed.
template <class Scalar>
inline void pack_matrices(const node_row& row, const Scalar* weights, Scalar* panels) {
  for (index k = 0; k < row.matrix_count; ++k) {
    const matrix& from = row.matrices[static_cast<std::size_t>(k)];
    pack_forward(affine_map{.in_channels = from.columns, .in_size = {1}, .out_channels = from.rows, .out_size = {1}},
                 weights + from.offset, panels + row.panel_offsets[static_cast<std::size_t>(k)], 0,
                 static_cast<index>(from.rows), static_cast<index>(from.rows));
  }
}

/// Outputs of an affine layer that one task packs: whole cache lines of its panel.
[[nodiscard]] constexpr index outputs_per_task(const node_row& row) {
  return std::max(line, (index{1} << 14) / static_cast<index>(row.map.view_width()) / line * line);
}
[[nodiscard]] constexpr index pack_tasks(const node_row& row) {
  if (row.deferred || row.reads_weights) return 0;
  return row.kind == node_kind::affine
             ? (static_cast<index>(row.map.out_channels) + outputs_per_task(row) - 1) / outputs_per_task(row)
         : row.matrix_count > 0 ? 1
                                : 0;
}

/// The same where a direction is filtered.
template <class Scalar>
inline void pack_filtered(const node_row& row, const Scalar* weights, Scalar* panels, index first, index last,
                          bool for_dx) {
  if (row.in_pairs) {
    pack_pairs(row.map, weights, panels + row.forward_panel, first, last);
  } else if (row.winograd_rows > 0) {
    pack_winograd_forward(row.map, weights, panels + row.forward_panel, first, last);
  } else {
    pack_forward(row.map, weights, panels + row.forward_panel, first, last, panel_block);
  }
  if (for_dx && row.winograd_dx_rows > 0) {
    pack_winograd_backward(row.map, weights, panels + row.backward_panel, first, last);
  } else if (for_dx) {
    pack_backward(row, weights, panels + row.backward_panel, first, last);
  }
}

/// All affine weights into the order that products read them in.
template <class Network>
void pack_panels(const detail::thread_pool& pool, const Network& network, typename Network::scalar* panels,
                 bool backward) {
  constexpr const auto& table = program<Network>::table;
  const auto* parameters = network.parameters().data();
  const index tasks = count_pieces(table.nodes, table.nodes.size(), pack_tasks);
  pool.parallel(static_cast<std::size_t>(tasks), [&](std::size_t number, std::size_t) {
    const auto [node, task] = find_piece(table.nodes, static_cast<index>(number), pack_tasks);
    const node_row& row = table.nodes[node];
    if (row.kind == node_kind::tiled) {
      pack_matrices(row, parameters + row.parameters, panels);
      return;
    }
    const auto outputs = static_cast<index>(row.map.out_channels);
    const index first = task * outputs_per_task(row);
    const index last = std::min(outputs, first + outputs_per_task(row));
    const bool for_dx = backward && row.input_gradient;
    if constexpr (table.winograd.sample > 0) {
      if (row.winograd_rows > 0 || row.winograd_dx_rows > 0 || row.in_pairs) {
        pack_filtered(row, parameters + row.parameters, panels, first, last, for_dx);
        return;
      }
    }
    if (for_dx || !row.map.adjoint) {
      pack_forward(row.map, parameters + row.parameters, panels + row.forward_panel, first, last, panel_block);
    }
    if (for_dx || row.map.adjoint) {
      pack_backward(row, parameters + row.parameters, panels + row.backward_panel, first, last);
    }
  });
}

}  // namespace pergrad::inline v0_1::on_host
