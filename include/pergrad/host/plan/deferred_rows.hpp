// SPDX-License-Identifier: Apache-2.0
// pergrad/host/plan/deferred_rows.hpp - where a chunk of samples leaves what the sums of large blocks are formed from
//
// x in panels of columns, [block][panel][sample][column], so that the sum reads one panel from front to back for every
// few outputs; samples' whole rows would lie a page apart (docs/internals/tricks.md). Deltas in rows, [sample][all
// outputs of all blocks].
#pragma once

#include <algorithm>

#include <pergrad/graph/layout.hpp>
#include <pergrad/host/plan/tables.hpp>

namespace pergrad::inline v0_1::on_host {

/// The space for the samples of a chunk, or for those from one of them on.
template <class Scalar>
struct deferred_rows {
  Scalar* x_first = nullptr;
  Scalar* delta_first = nullptr;
  index samples = 0;     ///< that there is room for
  index delta_step = 0;  ///< from a sample to the next one
  index first = 0;       ///< the sample that is counted as 0

  /// Columns of a panel. A sum over few samples takes longer to begin a panel than to read whole rows.
  [[nodiscard]] index panel() const noexcept {
    constexpr index few = 32;
    return samples <= few ? index{1} << 40 : panel_block;
  }
  /// Those of the panel that begins with `column` of `width`.
  [[nodiscard]] index columns(index width, index column) const noexcept { return std::min(panel(), width - column); }
  /// The panel that begins with `column` of one block's x, whose samples are x_step() apart. The block has `width`
  /// columns, and blocks before it have `row_x`.
  [[nodiscard]] Scalar* x(index row_x, index width, index column, index sample) const noexcept {
    return x_first + samples * (row_x + column) + (first + sample) * x_step(width, column);
  }
  [[nodiscard]] index x_step(index width, index column) const noexcept { return round_up(columns(width, column)); }
  [[nodiscard]] Scalar* delta(index row_delta, index sample) const noexcept {
    return delta_first + (first + sample) * delta_step + row_delta;
  }
  [[nodiscard]] deferred_rows from(index sample) const noexcept {
    return {x_first, delta_first, samples, delta_step, first + sample};
  }
};

}  // namespace pergrad::inline v0_1::on_host
