// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/plan/leaves.hpp - the factor leaves of a network on a device: a row for each use of each block of
// parameters, and how the block's norm is found
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <pergrad/cuda/kernels/norms.hpp>
#include <pergrad/cuda/kernels/sums.hpp>
#include <pergrad/cuda/kernels/tables.hpp>
#include <pergrad/cuda/plan/gemm_door.hpp>
#include <pergrad/gradients/factors.hpp>
#include <pergrad/gradients/plan.hpp>
#include <pergrad/graph/plan.hpp>

namespace pergrad::inline v0_1::on_device {

/// Blocks of the product that squares a view's gradient: the most that any kernel has.
[[nodiscard]] constexpr int square_blocks_of(const affine_view& view) noexcept {
  const gemm_way way = choose_gemm(gemm_product::squares, view, false);
  const auto blocks = [&]<class Sizes>(Sizes) {
    return blocks_for(view.outputs, Sizes::rows) * blocks_for(view.view_width(), Sizes::columns);
  };
  const int on_tensor_cores = way == gemm_way::square ? blocks(tensor_blocks<tf32_format>::square{}) : 0;
  return larger_of(with_block_sizes(way, blocks), on_tensor_cores);
}

/// Elements of work that the sum over a table is shared out in: buckets of its rows, and columns. An estimate, not
/// measured.
inline constexpr int work_of_tables = 1 << 13;
/// Elements of a sample's gradient that may be kept from its norm to the sums: those of a batch should stay in the
/// device's cache.
inline constexpr int most_kept = 1 << 15;
/// Positions from which on forming a gradient twice costs more than writing and reading it: 8 bytes of traffic against
/// 2 T operations an element. An estimate from data sheets, not measured.
inline constexpr int positions_worth_keeping = 16;
/// The same where products form gradients: so many multiply-adds take an H200, an AGX Orin and a Thor about 25 to 60 of
/// them the time of those 8 bytes, at half their peaks in float.
inline constexpr int positions_worth_storing = 64;

/// How a device finds the norm of a block: exact ways only, the cheapest in multiply-adds, as on the host
/// (gradients/plan.hpp) with a device's prices. Dots are in double, which most devices are slow at; in layered networks
/// they also compete with products that run on many blocks.
[[nodiscard]] constexpr norm_method cheapest_on_device(const affine_view& view, bool layered) noexcept {
  const double positions = view.positions();
  const double width = view.view_width();
  const double outputs = view.outputs;
  if (view.positions() == 1) return norm_method::product;
  const double dot_element = layered ? 32 : 4;
  const double gram = dot_element * positions * (positions + 1) / 2 * (width + outputs) + positions * width * outputs;
  const double direct = 2 * positions * width * outputs;
  if (gram < direct) return norm_method::gram;
  return view.positions() >= positions_worth_keeping ? norm_method::instantiate : norm_method::direct;
}

template <class Program>
struct build_leaves {
  using tables = typename Program::tables;
  using plan = detail::network_plan<typename Program::structure>;

  /// Adds a leaf to the tables of a `program`, whose places are known. Leaves come node after node.
  static constexpr void list(tables& t, const detail::plan_factor& each) {
    const op_row& row = t.ops[each.node];
    const factor& what = each.what;
    const bool is_affine = row.kind == node_kind::affine;
    if (what.sparse) {
      row_leaf leaf = t.rows[static_cast<std::size_t>(t.row_count)];  // which knows the place of its links
      leaf.vocabulary = static_cast<int>(what.rows);
      leaf.width = static_cast<int>(what.columns);
      leaf.positions = static_cast<int>(what.positions);
      leaf.lengths = row.in_lengths;
      leaf.ids = row.in;
      leaf.delta = place_of(row, what.delta);
      leaf.delta_step = static_cast<int>(what.delta.position_stride);
      leaf.delta_stride = static_cast<int>(what.delta.stride);
      if (what.skipped_id < what.rows) leaf.skipped = static_cast<int>(what.skipped_id);
      leaf.buckets = std::clamp(work_of_tables / leaf.width, 1, leaf.vocabulary);
      add(t, each, leaf);
    } else if (what.outer) {
      outer_leaf leaf;
      if (is_affine) {
        leaf.view = row.view;
        leaf.x = row.adjoint != 0 ? row.dy : row.in;
        leaf.delta = row.adjoint != 0 ? row.in : row.dy;
      } else {
        leaf.view.channels = static_cast<int>(what.columns);
        leaf.view.outputs = static_cast<int>(what.rows);
        leaf.view.in[1] = leaf.view.out[1] = static_cast<int>(what.positions);
        leaf.view.x_channel = static_cast<int>(what.other.stride);
        leaf.view.x_step[1] = static_cast<int>(what.other.position_stride);
        leaf.view.y_output = static_cast<int>(what.delta.stride);
        leaf.view.y_step[1] = static_cast<int>(what.delta.position_stride);
        leaf.x = place_of(row, what.other);
        leaf.delta = place_of(row, what.delta);
        leaf.by_ids = what.by_ids ? 1 : 0;
      }
      add(t, each, leaf);
    } else {
      elementwise_leaf leaf;
      leaf.count = static_cast<int>(what.rows);
      if (is_affine) {
        const bool turned = row.adjoint != 0;
        leaf.delta = row.dy;
        leaf.delta_stride = turned ? row.view.x_channel : row.view.y_output;
        for (int axis = 0; axis < axes; ++axis) {
          leaf.out[axis] = turned ? row.view.in[axis] : row.view.out[axis];
          leaf.delta_step[axis] = turned ? row.view.x_step[axis] : row.view.y_step[axis];
        }
      } else {
        leaf.out[1] = static_cast<int>(what.positions);
        leaf.delta = place_of(row, what.delta);
        leaf.delta_step[1] = static_cast<int>(what.delta.position_stride);
        leaf.delta_stride = static_cast<int>(what.delta.stride);
        leaf.ones = what.other.from == source::ones ? 1 : 0;
        if (leaf.ones == 0) leaf.other = place_of(row, what.other);
        leaf.other_step[1] = static_cast<int>(what.other.position_stride);
        leaf.other_stride = static_cast<int>(what.other.stride);
      }
      add(t, each, leaf);
    }
  }

 private:
  static constexpr int place_of(const op_row& row, const operand& from) {
    const int place = from.from == source::activation          ? row.in
                      : from.from == source::second_activation ? row.in2
                      : from.from == source::output            ? row.out
                      : from.from == source::saved             ? row.saved
                                                               : row.dy;
    const int offset = static_cast<int>(from.offset);
    return place < 0 ? place - offset : place + offset;
  }
  /// Of positions that follow each other in one line the distance between two; 0 for others.
  static constexpr int line_of(const int (&box)[axes], const int (&step)[axes]) {
    const int line = box[2] > 1 ? step[2] : box[1] > 1 ? step[1] : step[0];
    const bool rows = box[1] == 1 || step[1] == box[2] * line;
    const bool planes = box[0] == 1 || step[0] == box[1] * box[2] * line;
    return rows && planes ? line : 0;
  }
  static constexpr void add(tables& t, const detail::plan_factor& each, outer_leaf leaf) {
    const bool has_one_use = plan::nodes[each.node].use.first && plan::nodes[each.node].use.last;
    leaf.method = has_one_use ? cheapest_on_device(leaf.view, Program::layered) : norm_method::instantiate;
    if (leaf.method == norm_method::instantiate && (Program::layered || t.kept + leaf.size() > most_kept)) {
      leaf.method = norm_method::direct;
    }
    const bool is_first = plan::nodes[each.node].use.first;
    if (leaf.method == norm_method::instantiate && is_first) {
      leaf.kept = t.kept;
      t.kept += leaf.size();
    }
    if (Program::layered && has_one_use) {
      leaf.squares = t.squares;
      leaf.chunks = leaf.view.positions() == 1 ? 1 : chunks_of(leaf.view);
      const std::int64_t partials = std::int64_t{leaf.chunks} * leaf.size();
      if (leaf.method == norm_method::direct && leaf.view.positions() >= positions_worth_storing &&
          t.partials + partials <= t.workspace) {  // no more memory than values have
        leaf.partials = t.partials;
        t.partials += static_cast<int>(partials);
      }
      leaf.square_count = leaf.chunks > 1 ? square_partials_kernel<typename Program::scalar>::parts_of(leaf.size())
                                          : leaf.view.groups * square_blocks_of(leaf.view);
      t.squares += leaf.square_count;
    }
    op_row& row = t.ops[each.node];
    put(t.outer, t.outer_count, row.first_outer, row.last_outer, each, leaf);
  }
  static constexpr void add(tables& t, const detail::plan_factor& each, elementwise_leaf leaf) {
    leaf.delta_line = line_of(leaf.out, leaf.delta_step);
    leaf.other_line = line_of(leaf.out, leaf.other_step);
    leaf.first = plan::nodes[each.node].use.first ? 1 : 0;
    // Of one position it lies there already, in deltas.
    const bool has_one_position = leaf.out[0] * leaf.out[1] * leaf.out[2] == 1 && plan::nodes[each.node].use.last;
    const bool is_read = Program::layered && has_one_position;
    if (leaf.first != 0 && !is_read) {
      leaf.kept = t.kept;
      t.kept += leaf.count;
    }
    if (Program::layered) {
      leaf.squares = t.elementwise_squares;
      leaf.square_count = elementwise_kernel<typename Program::scalar, char>::blocks_of(leaf);
      t.elementwise_squares += leaf.square_count;
    }
    op_row& row = t.ops[each.node];
    put(t.elementwise, t.elementwise_count, row.first_elementwise, row.last_elementwise, each, leaf);
  }
  static constexpr void add(tables& t, const detail::plan_factor& each, row_leaf leaf) {
    op_row& row = t.ops[each.node];
    put(t.rows, t.row_count, row.first_rows, row.last_rows, each, leaf);
    t.rows[each.first_use].all_positions += leaf.positions;
  }
  /// The next leaf of its kind. All uses of a block are a chain.
  template <class Leaves, class Leaf>
  static constexpr void put(Leaves& leaves, int& count, int& first, int& last, const detail::plan_factor& each,
                            Leaf leaf) {
    leaf.node = static_cast<int>(each.node);
    leaf.layer = static_cast<int>(plan::nodes[each.node].layer);
    leaf.parameters = static_cast<int>(each.parameters);
    const auto here = static_cast<std::size_t>(count);
    leaves[here] = leaf;
    if (each.first_use != here) {
      std::size_t before = each.first_use;
      while (leaves[before].next != 0) before += static_cast<std::size_t>(leaves[before].next);
      leaves[before].next = static_cast<int>(here - before);
      leaves[here].first = 0;
    }
    if (first == last) first = count;
    last = ++count;
  }
};

}  // namespace pergrad::inline v0_1::on_device
