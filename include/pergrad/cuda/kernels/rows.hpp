// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/kernels/rows.hpp - the gradient of a table of which a sample uses few rows
//
//   G_b[id] = sum over t with id_{b,t} = id of delta_{b,t}
//
// Positions that hold the same id must be added up before the norm is taken. So every sample has a list of *links*: the
// first position that holds an id leads to the next one that does, and so on; a row is the chain of additions along it,
// the same bits for whoever asks. A table that is used at several places has one list for the positions of all of them.
//
// Nothing here is sorted: links take positions² comparisons a sample, by all threads of a block, and in a sum every
// thread, which owns a column of a bucket of rows, looks at all positions of all samples. With a radix sort of a
// batch's (id, sample, position), CUB's for example, links would be neighbours and a row's thread would see its own
// positions only. That pays for long texts and wide tables; what is released would be the same integers.
#pragma once

#include <cstddef>
#include <cstdint>

#include <pergrad/cuda/device/kernel.hpp>
#include <pergrad/cuda/kernels/sample_values.hpp>
#include <pergrad/cuda/kernels/tables.hpp>

namespace pergrad::inline v0_1::on_device {

/// The table of a leaf, the first use of it, for one sample.
template <class Scalar>
class table_rows {
 public:
  PERGRAD_HD table_rows(const row_leaf& leaf, const sample_values<Scalar>& values) noexcept
      : leaf_{&leaf}, values_{values}, links_{values.integers_at(leaf.links)} {}

  /// Positions of all uses, one behind the other.
  [[nodiscard]] PERGRAD_HD int positions() const noexcept { return leaf_->all_positions; }
  /// The id that a position holds; -1 where there is none, or one without a gradient.
  [[nodiscard]] PERGRAD_HD int id_at(int position) const noexcept {
    const row_leaf& use = use_of(position);
    if (position >= values_.positions(use.lengths, use.positions)) return -1;
    const int id = values_.integers_at(use.ids)[position];
    return id == use.skipped ? -1 : id;
  }

  /// Writes the link of a position: the next one that holds its id, or `positions()`; negated in bits where it is not
  /// the first one or holds no id.
  PERGRAD_HD void link(int position) const noexcept {
    const int id = id_at(position);
    int next = position + 1;
    bool is_first = id >= 0;
    if (is_first) {
      while (next < positions() && id_at(next) != id) ++next;
      PERGRAD_ROLLED
      for (int before = 0; is_first && before < position; ++before) is_first = id_at(before) != id;
    } else {
      next = positions();
    }
    values_.integers_to(leaf_->links)[position] = is_first ? next : ~next;
  }
  /// Behind a barrier: is this the first position that holds its id?
  [[nodiscard]] PERGRAD_HD bool begins_row(int position) const noexcept { return links_[position] >= 0; }
  /// A column of the row that begins at a position.
  [[nodiscard]] PERGRAD_HD Scalar row_element(int position, int column) const noexcept {
    Scalar sum = 0;
    while (position < positions()) {
      int at = position;
      const row_leaf& use = use_of(at);
      sum += values_.at(use.delta)[at * use.delta_step + column * use.delta_stride];
      const int link = links_[position];
      position = link < 0 ? ~link : link;
    }
    return sum;
  }
  /// Calls f(id, the row's element) for those of all rows that are element e of the leaf's work, whoever else has ids
  /// of their buckets: for sums that several threads may add to.
  template <class Function>
  PERGRAD_HD void for_each_share(int e, Function&& f) const {
    const int column = e % leaf_->width;
    PERGRAD_ROLLED
    for (int position = e / leaf_->width; position < positions(); position += leaf_->buckets) {
      if (begins_row(position)) f(id_at(position), row_element(position, column));
    }
  }
  /// Calls f(id, the row's element) for the rows of the bucket and column that are element e of the leaf's work.
  template <class Function>
  PERGRAD_HD void for_each_row(int e, Function&& f) const {
    const int bucket = e / leaf_->width;
    const int column = e % leaf_->width;
    PERGRAD_ROLLED
    for (int position = 0; position < positions(); ++position) {
      if (!begins_row(position)) continue;
      const int id = id_at(position);
      if (id % leaf_->buckets == bucket) f(id, row_element(position, column));
    }
  }

 private:
  /// The use that a position belongs to; the position is counted from its beginning then.
  [[nodiscard]] PERGRAD_HD const row_leaf& use_of(int& position) const noexcept {
    const row_leaf* use = leaf_;
    while (position >= use->positions) {
      position -= use->positions;
      use += use->next;
    }
    return *use;
  }

  const row_leaf* leaf_;
  sample_values<Scalar> values_;
  const int* links_;
};

/// Sets what element e of the leaf's work owns of a table to zero.
template <class Value>
PERGRAD_HD void clear_rows(const row_leaf& leaf, int e, Value* table) noexcept {
  const int column = e % leaf.width;
  for (int id = e / leaf.width; id < leaf.vocabulary; id += leaf.buckets) table[id * leaf.width + column] = 0;
}

}  // namespace pergrad::inline v0_1::on_device
