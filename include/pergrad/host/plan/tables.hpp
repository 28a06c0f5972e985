// SPDX-License-Identifier: Apache-2.0
// pergrad/host/plan/tables.hpp - the rows of a program's tables: slots, nodes and factor leaves
#pragma once

#include <array>
#include <cstddef>
#include <utility>

#include <pergrad/gradients/factors.hpp>
#include <pergrad/gradients/plan.hpp>
#include <pergrad/graph/layout.hpp>
#include <pergrad/graph/plan.hpp>
#include <pergrad/host/gemm/product_shape.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1::on_host {

/// Bytes of parameters from which on a network is *large*: another copy of them is memory that users miss. Tests have
/// small networks that are large.
template <class Network>
inline constexpr std::size_t large_from = std::size_t{1} << 27U;

/// Bytes of a sample's values from which on they share places by the times when they are needed (lifetimes.hpp): no
/// cache holds all of them, and what has just been used may be in one.
template <class Network>
inline constexpr index places_by_times_from = index{8} << 20;

/// Bytes of a sample's logits and their gradient from which on a large network keeps neither (streamed_logits.hpp),
/// whether it says `recomputed` or not: every thread would have so much for each sample that it works on.
template <class Network>
inline constexpr index logits_streamed_from = index{256} << 20;

/// Where something of a tile lies in a worker's workspace: its first element for sample 0, and the step to the next
/// sample.
struct place {
  index offset = 0;
  index sample = 0;
  [[nodiscard]] constexpr place at(index elements) const noexcept { return {offset + elements, sample}; }
};

/// One value of the tape: the same storage serves a node's output, its in-place successor and its reshaped twin.
struct slot {
  layout value_layout;
  layout gradient_layout;
  place value;
  place gradient;
  index elements = 0;       ///< of both, a sample
  bool value_lasts = true;  ///< is it there when sums are formed? Else its place may be another's then.
  bool gradient_lasts = true;
};

/// Values of the samples of a tile, from the first one on.
template <class Value>
struct images {
  const layout& of;
  Value* first;
  index sample;
};

/// Columns of a packed operand that lie together: [block][reduction][column]. A product that takes a block at a time
/// reads it from front to back; whole rows of a wide operand would lie so far apart that they push each other out of
/// the cache.
inline constexpr index panel_block = 64;
[[nodiscard]] constexpr index columns_of_block(index columns, index first) noexcept {
  return columns - first < panel_block ? columns - first : panel_block;
}

using detail::node_kind;
using detail::tied_use;

inline constexpr std::size_t most_matrices = 4;

struct node_row {
  node_kind kind = node_kind::general;
  std::size_t in = 0;  ///< slots; of a staged input the node's own copy
  std::size_t in2 = 0;
  std::size_t out = 0;
  shape in_shape;  ///< logical shapes
  shape in2_shape;
  shape out_shape;
  bool in_place = false;        ///< the output overwrites the input
  bool again = false;           ///< of a recomputed block: runs forward again before the block runs backwards
  bool staged = false;          ///< the input is stored in another order than the node reads it in, and copied first
  std::size_t staged_from = 0;  ///< staged: the slot that the input comes from
  bool backward = false;        ///< anything before or in this node has parameters
  bool input_gradient = false;
  bool input2_gradient = false;
  bool accumulate = false;  ///< a later consumer of the input has written its gradient already
  bool accumulate2 = false;
  bool staged_accumulate = false;  ///< staged: `accumulate` of the slot that the input comes from
  index parameters = 0;
  index parameter_count = 0;  ///< of those that are trained: 0 for a frozen layer
  index weight_count = 0;     ///< of all
  affine_map map;             ///< affine: in the stored image's terms
  index forward_panel = 0;    ///< affine: offset of its packed weights
  index backward_panel = 0;
  bool whole_view = false;  ///< affine: one position that sees every input once
  bool deferred = false;    ///< affine: its sum is formed a chunk at a time, deferred_way.hpp
  index row_x = 0;          ///< deferred: columns of x of such nodes before it
  index winograd_rows = 0;  ///< affine: rows of patches that are filtered together; 0: direct products
  index winograd_dx_rows = 0;
  bool reads_weights = false;  ///< affine, tiled: reads its weights where the parameters lie, nothing is packed
  bool in_pairs = false;       ///< affine: forward and gradients of the weights are filtered in pairs, conv/pairs.hpp
  place plain_x, plain_y, plain_dy, plain_dx, saved;  ///< general, tiled: values in PyTorch's order
  place plain_x2, plain_dx2;                          ///< tiled: of the second input
  index saved_count = 0;
  /// general, tiled: are x, the second x, y, dy there when sums are formed, and how many of the saved values?
  bool x_lasts = true, x2_lasts = true, y_lasts = true, dy_lasts = true;
  index saved_lasts = 0;
  index scratch_count = 0;  ///< tiled: elements a sample that are its own for the time of one call
  index matrix_count = 0;   ///< tiled: matrices whose transposes it is offered
  std::array<matrix, most_matrices> matrices{};
  std::array<index, most_matrices> panel_offsets{};
  bool copies_in2 = false;
  bool direct_dx = false;  ///< tiled: dx is written where it belongs, without a copy
  bool direct_dx2 = false;
  bool copies_in = false;  ///< general: the slots are not stored in PyTorch's order, so values are copied
  bool copies_out = false;
};

/// One axis of what a position sees of x, and its step in the parameter block.
struct view_axis {
  index extent = 1;
  index x = 0;
  index parameter = 0;
};
/// One axis of positions.
struct step_axis {
  index extent = 1;
  index x = 0;
  index delta = 0;
};

/// Where samples keep their gradients of a block, if what is kept is what the plan says (kept_places.hpp).
struct kept_place {
  index first = 0;
  index step = 0;             ///< from sample to sample; 0: they take turns
  bool for_tile = false;      ///< the gradient, or one that joins it, is formed before the tile is cut into parts
  bool in_workspace = false;  ///< `first` counts from there, not in the memory for kept gradients
};

/// G_b = sum over positions of delta (x) x, stored natively as [group][view][output], presented as PyTorch orders it.
struct outer_leaf {
  std::size_t node = 0;
  place x;
  place delta;
  index groups = 1;
  index x_group = 0;
  index delta_group = 0;
  index parameter_group = 0;
  view_axis view[3];
  view_axis view_plane{};  ///< around `view`: the planes of a volume
  step_axis step[2];
  step_axis step_plane{};  ///< around `step`
  index outputs = 1;
  index delta_stride = 1;      ///< not 1 only for a general layer whose factors are scattered
  index parameter_output = 0;  ///< step of an output in PyTorch's order
  index parameters = 0;        ///< first parameter
  index native = 0;            ///< first element in the native order, in which deferred leaves come last
  norm_method method = norm_method::instantiate;
  tied_use use;
  bool in_pairs = false;  ///< a sample's gradient is filtered in pairs
  bool by_ids = false;    ///< `delta` are ids: delta_t is 1 at the id of position t; the block is shared
  bool of_uses = false;   ///< norm and sum may be found from the factors of all uses, one of which is by ids: uses.hpp
  std::size_t first_node = 0;   ///< of the block's first use
  std::size_t recomputed = 0;   ///< the recomputed block that must be in its room where x and delta are read; 0: none
  bool in_order = false;        ///< G is stored as PyTorch orders it, [output][view]
  bool turned = false;          ///< for that x and delta have changed places; those of ids stay
  bool gram_in_blocks = false;  ///< `gram` takes many positions together, whose dots it adds up in the scalar at first
  bool streams = false;         ///< of logits that are formed where they are read (streamed_logits.hpp)
  index lookups = 0;            ///< by_ids, of a table that such logits are formed with: positions of the uses before
  bool at_once = false;         ///< always formed when the node has run backwards: x and delta may be gone at the end
  bool behind_others = false;   ///< formed once all other gradients of its node are, as if it came late
  bool late = false;  ///< formed once the backward pass is through the network, and added up before the next sample's
  kept_place kept;
  // Where the sum is formed a chunk at a time (deferred_way.hpp):
  bool deferred = false;
  std::size_t number = 0;    ///< among such leaves
  index row_x = 0;           ///< columns of such leaves before it
  index row_delta = 0;       ///< in a sample's row of deltas
  product_shape one_sample;  ///< `gradient_shape` of one; to be set when all above is, `find_one_sample`

  [[nodiscard]] constexpr index positions() const noexcept {
    return step_plane.extent * step[0].extent * step[1].extent;
  }
  [[nodiscard]] constexpr index view_width() const noexcept {
    return view_plane.extent * view[0].extent * view[1].extent * view[2].extent;
  }
  [[nodiscard]] constexpr index size() const noexcept { return groups * view_width() * outputs; }
  /// The product that forms G natively: rows are the view, columns the outputs, the reduction runs over samples and
  /// positions; of deltas that lie `delta_sample`, `steps` and `plane` apart.
  [[nodiscard, gnu::noinline]] constexpr product_shape gradient_shape(index samples, index delta_sample,
                                                                      const step_axis (&steps)[2],
                                                                      const step_axis& plane) const noexcept {
    const index inner = view[2].extent * outputs;
    return coalesce({{{view[0].extent, view[0].x, view[1].extent * inner},
                      {view[1].extent, view[1].x, inner},
                      {view[2].extent, view[2].x, outputs}},
                     {{plane.extent, plane.x, plane.delta},
                      {steps[0].extent, steps[0].x, steps[0].delta},
                      {steps[1].extent, steps[1].x, steps[1].delta}},
                     outputs,
                     {view_plane.extent, view_plane.x, view[0].extent * view[1].extent * inner},
                     {samples, x.sample, delta_sample}});
  }
  constexpr void find_one_sample() noexcept { one_sample = gradient_shape(1, 0, step, step_plane); }
  [[nodiscard]] constexpr block_size block() const noexcept {
    return {static_cast<std::size_t>(positions()), static_cast<std::size_t>(view_width()),
            static_cast<std::size_t>(outputs), static_cast<std::size_t>(groups)};
  }
};

/// Position in PyTorch's order of a row's first output, a row being one element of the view with all outputs.
[[nodiscard, gnu::noinline]] inline index parameter_of_row(const outer_leaf& leaf, index row) noexcept {
  const index rows_count = leaf.view_width();
  const index inner = leaf.view[1].extent * leaf.view[2].extent;
  const index k = row % rows_count;
  return leaf.parameters + row / rows_count * leaf.parameter_group +
         k / inner / leaf.view[0].extent * leaf.view_plane.parameter +
         k / inner % leaf.view[0].extent * leaf.view[0].parameter +
         k % inner / leaf.view[2].extent * leaf.view[1].parameter + k % leaf.view[2].extent * leaf.view[2].parameter;
}

/// Calls f(position in PyTorch's order, native position) for the parameters of rows [first_row, last_row) of a leaf.
template <class Function>
inline void for_each_parameter(const outer_leaf& leaf, index first_row, index last_row, Function&& f) {
  for (index row = first_row; row < last_row; ++row) {
    const index native = leaf.native + row * leaf.outputs;
    const index parameter = leaf.in_order ? leaf.parameters + row * leaf.outputs : parameter_of_row(leaf, row);
    const index step = leaf.in_order ? 1 : leaf.parameter_output;
    for (index n = 0; n < leaf.outputs; ++n) f(parameter + n * step, native + n);
  }
}

/// Calls f(t, offset in x, offset in delta) for the first `count` positions.
template <class Function>
void for_each_position(const outer_leaf& leaf, index count, Function&& f) {
  index i = 0;
  index j = 0;
  index x_row = 0;
  index delta_row = 0;
  for (index t = 0; t < count; ++t) {
    f(t, x_row + j * leaf.step[1].x, delta_row + j * leaf.step[1].delta);
    if (++j < leaf.step[1].extent) continue;
    j = 0;
    ++i;
    const index plane = i / leaf.step[0].extent;
    const index row = i % leaf.step[0].extent;
    x_row = plane * leaf.step_plane.x + row * leaf.step[0].x;
    delta_row = plane * leaf.step_plane.delta + row * leaf.step[0].delta;
  }
}

/// Elements of a shared sum that one task adds to.
inline constexpr index shared_piece = index{1} << 16;

/// Outputs of a deferred leaf that one task sums up, at most and of this leaf: tasks enough to share out evenly.
inline constexpr index deferred_stretch = 96;
[[nodiscard]] constexpr index stretch_of(const outer_leaf& leaf) noexcept {
  return leaf.outputs >= 8 * deferred_stretch ? deferred_stretch : 64;
}

/// g_b = sum over positions of delta (.) u.
struct elementwise_leaf {
  std::size_t node = 0;
  place delta;
  place other;
  bool ones = true;
  step_axis step[2];       ///< `x` is the step in u
  step_axis step_plane{};  ///< around `step`
  index count = 0;
  index delta_stride = 1;
  index other_stride = 1;
  index parameters = 0;
  index native = 0;
  kept_place kept;
  tied_use use;

  [[nodiscard]] constexpr index size() const noexcept { return count; }
  [[nodiscard]] constexpr index positions() const noexcept {
    return step_plane.extent * step[0].extent * step[1].extent;
  }
};

/// G_b[id] = sum over the positions that hold id of delta: a table of `vocabulary` rows, of which a sample uses few.
/// Nothing that grows with the table exists a sample or an accumulator: a sample's used rows are its *segments*
/// (sparse.hpp).
struct sparse_leaf {
  std::size_t node = 0;
  std::size_t slot = 0;  ///< of the ids: it knows the samples' lengths
  place ids;
  place delta;
  index positions = 1;
  index delta_step = 0;  ///< from position to position; 0: one delta for all of them
  index delta_stride = 1;
  index width = 1;  ///< of a row
  index vocabulary = 1;
  index skipped = -1;    ///< an id whose row has no gradient, if any
  index parameters = 0;  ///< row 0, in PyTorch's order
  tied_use use;
  std::size_t owner = 0;  ///< the leaf that is the first use of the same table: it keeps the segments of all uses
  // Of an owner:
  index all_positions = 0;  ///< over all uses: the most segments that a sample can have
  bool counted = false;     ///< a segment is a multiple of the sample's one delta: only the count is kept
  index integers = 0;       ///< where a sample's segments lie among its integers
  index rows = 0;           ///< and among its scalars

  [[nodiscard]] constexpr index size() const noexcept { return vocabulary * width; }
};

/// Work on leaves or nodes that is shared out in pieces: how many pieces there are, `pieces(row)` of each row.
template <class Rows>
[[nodiscard]] constexpr index count_pieces(const Rows& rows, std::size_t count, auto pieces) noexcept {
  index sum = 0;
  for (std::size_t k = 0; k != count; ++k) sum += pieces(rows[k]);
  return sum;
}
/// The row that one of the pieces belongs to, and the piece's number there.
template <class Rows>
[[nodiscard]] constexpr std::pair<std::size_t, index> find_piece(const Rows& rows, index piece, auto pieces) noexcept {
  std::size_t k = 0;
  for (; piece >= pieces(rows[k]); ++k) piece -= pieces(rows[k]);
  return {k, piece};
}

/// The first leaf of a node and the one behind its last.
template <class Leaves>
[[nodiscard, gnu::noinline]] constexpr std::array<std::size_t, 2> leaves_of(const Leaves& leaves, std::size_t count,
                                                                            std::size_t node) {
  std::size_t first = 0;
  while (first < count && leaves[first].node < node) ++first;
  std::size_t last = first;
  while (last < count && leaves[last].node == node) ++last;
  return {first, last};
}

}  // namespace pergrad::inline v0_1::on_host
