// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/kernels/tables.hpp - the rows that tell kernels what to do: views, nodes, factor leaves, windows
//
// Plain numbers, copied to the device once. A sample's values lie in one stretch of memory, its workspace, in PyTorch's
// order; sample b's begins at b times the stretch. A *place* says where in it: an offset, or with a negative number
// somewhere in the sample's input, which lies in the data set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <pergrad/cuda/device/kernel.hpp>
#include <pergrad/gradients/plan.hpp>
#include <pergrad/graph/plan.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1::on_device {

/// The three axes of an image are depth, height and width.
inline constexpr int axes = 3;

/// Element `offset` of the workspace, or of the input.
[[nodiscard]] constexpr int in_input(int offset) noexcept { return -1 - offset; }

/// Division of 0 <= n < 2^31 by a fixed number, as a product and a shift (Granlund and Montgomery 1994, fig. 4.1).
class divisor {
 public:
  divisor() = default;
  /// Precondition: by >= 1.
  constexpr explicit divisor(int by) noexcept : by_{static_cast<std::uint32_t>(by)} {
    while ((std::uint64_t{1} << shift_) < by_) ++shift_;
    const std::uint64_t power = std::uint64_t{1} << 32U;
    factor_ = static_cast<std::uint32_t>(power * ((std::uint64_t{1} << shift_) - by_) / by_ + 1);
  }

  [[nodiscard]] PERGRAD_HD constexpr int quotient(int n) const noexcept {
    const auto number = static_cast<std::uint32_t>(n);
    const auto high = static_cast<std::uint32_t>((std::uint64_t{number} * factor_) >> 32U);
    return static_cast<int>((high + number) >> shift_);
  }
  /// Replaces n by its quotient and returns the remainder.
  [[nodiscard]] PERGRAD_HD constexpr int divide(int& n) const noexcept {
    const int whole = quotient(n);
    const int rest = n - whole * static_cast<int>(by_);
    n = whole;
    return rest;
  }
  [[nodiscard]] PERGRAD_HD constexpr int value() const noexcept { return static_cast<int>(by_); }

 private:
  std::uint32_t by_ = 1;
  std::uint32_t factor_ = 1;
  std::uint32_t shift_ = 0;
};

/// y_t = W view_t(x): which element of x position t sees at tap k of channel c, and where y_t's outputs lie.
struct affine_view {
  int groups = 1;
  int channels = 1;  ///< of x, a group
  int outputs = 1;   ///< a group
  int kernel[axes] = {1, 1, 1};
  int stride[axes] = {1, 1, 1};
  int padding[axes] = {0, 0, 0};
  int dilation[axes] = {1, 1, 1};
  int in[axes] = {1, 1, 1};
  int out[axes] = {1, 1, 1};
  int x_group = 0;
  int x_channel = 0;
  int x_step[axes] = {0, 0, 0};  ///< from pixel to pixel along an axis
  int y_group = 0;
  int y_output = 0;
  int y_step[axes] = {0, 0, 0};

  [[nodiscard]] PERGRAD_HD constexpr int taps() const noexcept { return kernel[0] * kernel[1] * kernel[2]; }
  [[nodiscard]] PERGRAD_HD constexpr int positions() const noexcept { return out[0] * out[1] * out[2]; }
  [[nodiscard]] PERGRAD_HD constexpr int pixels() const noexcept { return in[0] * in[1] * in[2]; }
  [[nodiscard]] PERGRAD_HD constexpr int view_width() const noexcept { return channels * taps(); }
  /// Weights, in PyTorch's order `[group][output][channel][tap]`.
  [[nodiscard]] PERGRAD_HD constexpr int size() const noexcept { return groups * outputs * view_width(); }
};

/// G_b = sum_t delta_t (x) view_t(x).
struct outer_leaf {
  int node = 0;
  int layer = 0;  ///< which of the layers with parameters
  affine_view view;
  int x = 0;  ///< places
  int delta = 0;
  int parameters = 0;  ///< of the first weight among the parameters
  int by_ids = 0;      ///< `delta` are ids: delta_t is 1 at the id of position t; the block is shared
  int kept = -1;       ///< of the first element among a sample's kept gradients; negative: not kept
  int squares = 0;     ///< layered: of the first partial square among a sample's
  int chunks = 1;      ///< layered: of positions, whose partial sums are added up in order
  int square_count = 0;
  int partials = -1;  ///< layered: of the first partial sum among a sample's that norms leave for sums; negative: none
  norm_method method = norm_method::instantiate;
  int first = 1;  ///< 0: the block is used before, at the leaf that begins its chain
  int next = 0;   ///< the block is used again, at the leaf that comes so many after this one; 0: it is not
  [[nodiscard]] PERGRAD_HD constexpr int size() const noexcept { return view.size(); }
  /// Layered: is a sample's gradient stored before it is squared or added up?
  [[nodiscard]] constexpr bool is_stored() const noexcept { return chunks > 1 || partials >= 0; }
};

/// g_b = sum_t delta_t (.) u_t.
struct elementwise_leaf {
  int node = 0;
  int layer = 0;
  int count = 0;
  int out[axes] = {1, 1, 1};  ///< positions
  int delta = 0;
  int delta_step[axes] = {0, 0, 0};
  int delta_stride = 1;
  int ones = 1;
  int other = 0;
  int other_step[axes] = {0, 0, 0};
  int other_stride = 1;
  int delta_line = 0;  ///< not 0: position t's delta is so many times t behind the first one's, which needs no division
  int other_line = 0;
  int parameters = 0;
  int kept = -1;    ///< as of an outer leaf: only of one position it is not
  int squares = 0;  ///< layered: of the first partial square among a sample's
  int square_count = 0;
  int first = 1;  ///< as of an outer leaf
  int next = 0;
  [[nodiscard]] PERGRAD_HD constexpr int size() const noexcept { return count; }
};

/// G_b[id] = sum over the positions that hold id of delta: rows.hpp.
struct row_leaf {
  int node = 0;
  int layer = 0;
  int vocabulary = 1;
  int width = 1;  ///< of a row
  int positions = 1;
  int lengths = -1;  ///< of the ids: as of a node
  int ids = 0;       ///< places
  int delta = 0;
  int delta_step = 0;  ///< from position to position; 0: one delta for all of them
  int delta_stride = 1;
  int skipped = -1;  ///< an id whose row has no gradient, if any
  int parameters = 0;
  int first = 1;  ///< as of an outer leaf
  int next = 0;
  // Of the first use:
  int all_positions = 0;  ///< of all uses
  int links = 0;          ///< place: one a position
  int buckets = 1;        ///< of rows: a thread of a sum owns a column of one of them
  /// Elements of work: buckets, columns.
  [[nodiscard]] PERGRAD_HD constexpr int size() const noexcept { return buckets * width; }
};

/// Window number o of an axis sees first[o] .. last[o] - 1; input i is seen by windows seen_first[i] .. seen_last[i] -
/// 1. All are offsets into the table of integers.
struct window_axis {
  int in = 1;
  int out = 1;
  int first = 0;
  int last = 0;
  int seen_first = 0;
  int seen_last = 0;
  divisor of_in, of_out;
};

using pergrad::detail::node_kind;

/// Attention of a sequence to itself that kernels of its own do (cuda/layers/attention.hpp): a position's queries, keys
/// and values are one row, heads side by side.
struct attention_row {
  int heads = 0;     ///< 0: no such layer
  int width = 0;     ///< of a head
  int by_layer = 0;  ///< features, of all heads, of attention that the layer's own code does instead
  int positions = 0;
  int causal = 0;
  int projects = 0;  ///< rows come from projections and are their gradients later; else from the input
  int context = 0;   ///< offset of Y, [position][features], among the saved values
  int room = 0;      ///< offset in the scratch of what is free, behind dY
  int lengths = -1;  ///< table of lengths

  [[nodiscard]] PERGRAD_HD constexpr int features() const noexcept { return heads * width; }
  [[nodiscard]] PERGRAD_HD constexpr int row_step() const noexcept { return 3 * features(); }
  /// Does a query look at a key, where so many positions are there?
  [[nodiscard]] PERGRAD_HD constexpr bool sees(int query, int key, int length) const noexcept {
    return key < length && (causal == 0 || key <= query);
  }
  template <class Scalar>
  [[nodiscard]] PERGRAD_HD Scalar scale() const noexcept {
    return static_cast<Scalar>(1 / square_root(static_cast<double>(width)));
  }
};

/// One node: its forward and its backward.
struct op_row {
  node_kind kind = node_kind::general;
  int node = 0;
  int function = 0;  ///< of the kernel's list of functions
  int in = 0;        ///< places of values
  int in2 = 0;
  int out = 0;
  int dx = 0;  ///< places of gradients
  int dx2 = 0;
  int dy = 0;
  int saved = 0;       ///< of a pool of maxima: which input is a window's
  int written_dx = 0;  ///< general, tiled: where the layer writes dx: a place of its own if that is added to `dx`
  int written_dx2 = 0;
  int scratch = 0;       ///< tiled: what is the layer's for the time of its forward
  int back_scratch = 0;  ///< and of its backward
  int scratch_size = 0;
  int parts = 1;  ///< tiled, layered: a block takes one of these of a sample
  int in_size = 0;
  int in2_size = 0;
  int out_size = 0;
  int saved_size = 0;
  int backward = 0;
  int input_gradient = 0;
  int input2_gradient = 0;
  int handed_on = 0;    ///< another node reads the output
  int taken_along = 0;  ///< a function of single numbers that the pool behind it, its only reader, computes
  int accumulate = 0;   ///< dx has something in it already
  int accumulate2 = 0;
  int parameters = 0;
  int weights = 0;            ///< parameters of the layer
  int bias = -1;              ///< affine: of the first bias among the parameters, negative without
  int adjoint = 0;            ///< affine: y is the view's x, and x its y
  affine_view view;           ///< affine
  window_axis windows[axes];  ///< pooling
  int channels = 0;           ///< pooling
  int divisors = 0;           ///< pooling: of the first divisor among the scalars of the tables
  int held = 0;               ///< tiled: among the layer's parameters, the matrix that it reads at every position
  int held_rows = 0;          ///< 0: there is none
  int held_columns = 0;
  int wants_factors = 0;     ///< the layer's parameters are trained
  attention_row attention;   ///< tiled
  int projected = 0;         ///< tiled: its projections are products of the whole batch
  int projected_inputs = 0;  ///< bits: those whose gradients are such products
  shape in_shape;
  shape in2_shape;
  shape out_shape;
  // Of samples with lengths of their own: offsets into the table of integers, which has there, for each length that the
  // network's input may have, how many positions of the value are there; negative: all of them.
  int in_lengths = -1;
  int in2_lengths = -1;
  int out_lengths = -1;
  int first_outer = 0, last_outer = 0;  ///< leaves of the node
  int first_elementwise = 0, last_elementwise = 0;
  int first_rows = 0, last_rows = 0;

  /// From row to row of the matrix where it is held: threads next to each other that read four numbers of rows next to
  /// each other meet in no bank.
  [[nodiscard]] PERGRAD_HD constexpr int held_step() const noexcept { return 4 * ((held_columns + 3) / 4 | 1); }
  [[nodiscard]] PERGRAD_HD constexpr int held_size() const noexcept { return held_rows * held_step(); }
};

/// Outputs that are few enough for one thread to take a sample's loss.
inline constexpr std::size_t most_outputs_of_thread = 32;

/// Warps that share a sample's node; 0: it is the sample kernel's. A constant of the network, of which no bit depends.
[[nodiscard]] constexpr int stretches_of(const op_row& row) noexcept {
  constexpr int elements = 128;  // of a warp
  constexpr int least = 16;      // fewer are not worth a launch
  if (row.kind == node_kind::affine || row.kind == node_kind::general || row.kind == node_kind::tiled) return 0;
  const int size = row.in_size > row.out_size ? row.in_size : row.out_size;
  // What lies behind a sample's length is set to zero where an element is one thread's, back as well.
  const bool is_elementwise = row.kind == node_kind::elementwise || row.kind == node_kind::branch_sum;
  const bool is_trimmed = row.out_lengths >= 0 && !is_elementwise;
  return row.out_size == 0 || is_trimmed || size < least ? 0 : blocks_for(size, elements);
}

/// A node of a function of single numbers that its neighbour computes along with its own: a product, behind it forward
/// or before it back, or the pool behind it.
struct joined_node {
  int function = -1;  ///< of the kernel's list; negative: there is none
  int x = 0;          ///< places of its values
  int y = 0;
  int dx = 0;  ///< back: of its gradient
  int accumulate = 0;
  stored_format format{};  ///< of its result
};

/// A product over all positions of a layer on tiles, which runs for the whole batch: `gradients/factors.hpp`.
struct projection_row {
  int node = 0;
  bool reads_input = true;  ///< before the layer, its gradient behind the layer's backward
  affine_view view;
  int x = 0;  ///< places
  int y = 0;
  int dx = 0;
  int dy = 0;
  int weights = 0;
  int bias = -1;
  bool wants_gradient = true;
  int accumulate = 0;
};

/// A product of an affine node's way forward or back for one sample that a block holds in shared memory
/// (layers/held_samples.hpp). Rows are outputs forward, channels back; columns are positions or pixels. `steps` and all
/// other tables are places among the integers.
struct held_product {
  /// Columns whose terms lie in the same places seen from their bases: pixels of a stride_class
  /// (kernels/gemm_affine.hpp).
  struct pixel_class {
    int first_column = 0;
    int columns = 0;
    int first_step = 0;  ///< a multiple of 4
    int depth = 0;
  };
  static constexpr int most_classes = 8;
  static constexpr int threads = 256;
  static constexpr int patch_rows = 4;  ///< of results that a thread takes
  [[nodiscard]] PERGRAD_HD static constexpr int padded(int width) noexcept { return 4 * ((width + 3) / 4 | 1); }

  int back = 0;
  int groups = 1;
  int rows = 0;         ///< of a group; back through a fully connected layer all inputs
  int all_outputs = 0;  ///< of the view
  int weights = 0;      ///< of the first one among the parameters
  int held = -1;        ///< of the first one in shared memory; negative: they pass by in tiles
  int held_step = 0;    ///< from output to output there
  divisor width;        ///< of the view
  // Of weights that pass by in tiles, a few numbers at a time:
  int together = 1;
  int rows_of_tile = 0;
  int depth_of_tile = 0;
  int step_of_tile = 0;  ///< from row to row forward, from output to output back
  divisor pieces;        ///< of a row, or of an output
  // Of weights that are held:
  int class_count = 0;
  pixel_class classes[most_classes];
  int steps = 0;         ///< of the operand, class after class, in bytes
  int weight_steps = 0;  ///< back, likewise
  int weight_group = 0;  ///< from group to group
  int weight_step = 0;   ///< from row to row
  int bases = 0;         ///< of each column in the operand
  int operand_group = 0;
  int results = 0;  ///< of each column in the result
  int result_group = 0;
  int result_step = 0;
  int copies = 0;    ///< the operand is copied, with zeros where windows see nothing
  divisor copy;      ///< numbers of a channel's copy
  int sources = 0;   ///< where they come from, negative: nowhere
  int channels = 0;  ///< of the operand
  int channel_step = 0;

  /// Of a fully connected layer's product.
  [[nodiscard]] PERGRAD_HD constexpr int depth() const noexcept { return back != 0 ? all_outputs : width.value(); }
  /// And columns: a wide patch reads less for each result; back, where weights are read one by one, that is more.
  [[nodiscard]] PERGRAD_HD static constexpr int patch_columns(bool goes_back) noexcept { return goes_back ? 4 : 2; }
  [[nodiscard]] PERGRAD_HD constexpr int column_patches() const noexcept {
    int count = 0;
    for (int i = 0; i < class_count; ++i) count += blocks_for(classes[i].columns, patch_columns(back != 0));
    return count;
  }
  [[nodiscard]] PERGRAD_HD constexpr int patches() const noexcept {
    return groups * blocks_for(rows, patch_rows) * column_patches();
  }
};

/// Sizes and the tables' places on the device.
template <class Scalar>
struct table_view {
  const op_row* ops = nullptr;
  const outer_leaf* outer = nullptr;
  const elementwise_leaf* elementwise = nullptr;
  const row_leaf* rows = nullptr;
  const int* integers = nullptr;
  const Scalar* scalars = nullptr;
  int outer_count = 0;
  int elementwise_count = 0;
  int row_count = 0;
  int layers = 0;           ///< with parameters
  int parameter_count = 0;  ///< trained
};

/// How much a network takes, and where its output lies.
struct network_sizes {
  int integers = 0;   ///< of the windows' table
  int scalars = 0;    ///< divisors
  int workspace = 0;  ///< elements a sample
  int kept = 0;       ///< elements of a sample's kept gradients
  int squares = 0;    ///< layered: partial squares of a sample's norms, those of elementwise leaves last
  int elementwise_squares = 0;
  int partials = 0;  ///< layered: partial sums of a sample's gradient that norms leave for sums
  int output = 0;    ///< places of the network's output and its gradient
  int output_gradient = 0;
  int output_lengths = -1;  ///< table of its lengths; none if all samples have one
  int held_integers = 0;    ///< of a network whose samples a block may hold: of the first one of its tables
  int held_weights = 0;     ///< scalars of shared memory
  int held_copies = 0;
  int held_tile = 0;
  int held_streamed = 0;  ///< weights that a block reads on its way
  int held_together = 1;  ///< samples of a block
  int held_products = 0;  ///< 0: no such network
};

/// A network as numbers, for everything that is compiled once for all networks. Refers to constants of its type.
struct network_facts : network_sizes {
  std::span<const op_row> ops;
  std::span<const outer_leaf> outer;
  std::span<const elementwise_leaf> elementwise;
  std::span<const row_leaf> rows;
  std::span<const projection_row> projections;  ///< layered, node after node
  std::span<const std::size_t> groups;          ///< clipping group of each layer with parameters
  bool layered = false;
  std::size_t parameters = 0;  ///< trained
  std::size_t frozen = 0;
  std::size_t input_size = 0;
  std::size_t input_positions = 0;   ///< of samples with lengths of their own; 0: all are whole
  std::size_t output_positions = 0;  ///< where there may be a loss a position
  bool draws = false;                ///< layers may ask for random bits
  std::size_t output_size = 0;

  [[nodiscard]] constexpr std::size_t layers() const noexcept { return groups.size(); }
  /// Bounds that clipping has at most: one a layer, or one a group, of which some may have no layer.
  [[nodiscard]] constexpr std::size_t bounds() const noexcept {
    std::size_t most = layers();
    for (const std::size_t group : groups) most = group < most ? most : group + 1;
    return most;
  }
};

/// What differs from one physical batch to the next: the host uploads it, kernels read it.
struct step_state {
  std::uint64_t position = 0;      ///< of the first sample here within the logical batch
  std::uint32_t count = 0;         ///< samples here
  std::uint32_t first = 1;         ///< the logical batch begins here: sums start from zero
  std::uint32_t last = 1;          ///< it ends here: noise and update
  std::uint32_t first_record = 0;  ///< number of record 0 in the data set of all ranks
  std::uint64_t noise_step = 0;    ///< of the generator
  std::uint64_t layer_step = 0;    ///< the same, of the bits inside layers
  double rate = 0;                 ///< Adam: rate / (1 - beta1^t); else the learning rate
  double correction = 1;           ///< Adam: 1 / sqrt(1 - beta2^t)
  double keep = 1;                 ///< of a parameter: 1 - learning rate * weight decay
  double square = 1;               ///< DP-AdamBC: 1 / (1 - beta2^t)
  double noise = 0;                ///< the same: noise's share of the second moment over 1 - beta2^t
  double way = 1;                  ///< that an average of parameters goes towards them; 1: it becomes what they are
};

}  // namespace pergrad::inline v0_1::on_device
