// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/plan/layout.hpp - all memory of one network on a device: one allocation, every offset a constant
// expression
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include <pergrad/cuda/kernels/sums.hpp>
#include <pergrad/cuda/kernels/tables.hpp>
#include <pergrad/cuda/plan/gemm_door.hpp>
#include <pergrad/cuda/plan/program.hpp>
#include <pergrad/network.hpp>
#include <pergrad/privacy/clip.hpp>
#include <pergrad/privacy/noise/rounded_gaussian.hpp>

namespace pergrad::inline v0_1::on_device {

/// Accumulators of a network's sums in floating point: as many as keep a device busy with a small network and cost
/// little memory with a large one. A constant of the network, so that no bit depends on the device or on the batch.
[[nodiscard]] constexpr int accumulator_count(const network_facts& net) noexcept {
  constexpr std::size_t most = std::size_t{1} << 22U;  // elements of all accumulators
  int accumulators = 32;
  while (accumulators > 1 && static_cast<std::size_t>(accumulators) * net.parameters > most) accumulators /= 2;
  return std::max(accumulators, 2);
}

/// Threads of the block that takes a sample through the network.
template <class Network>
inline constexpr int sample_threads = [] {
  int most = 0;
  int parts = 1;
  bool holds = false;
  for (const op_row& row : facts_of<Network>.ops) {
    most = std::max({most, row.out_size, row.in_size});
    parts = std::max(parts, row.parts);
    holds = holds || row.held_rows > 0;
  }
  for (const outer_leaf& leaf : facts_of<Network>.outer) most = std::max(most, leaf.size());
  // Parts: more blocks, with more registers a thread. But of one that holds a matrix a multiprocessor has one or few.
  return most <= 256 ? 64 : most <= 2048 || (parts > 1 && !holds) ? 128 : 256;
}();
inline constexpr int sum_threads = 128;

/// Blocks that hold the work on every leaf, or on every one whose sum no product forms.
[[nodiscard]] constexpr int leaf_blocks(const network_facts& net, bool by_products = false) noexcept {
  int blocks = 0;
  const auto count = [&](const auto& leaf) { blocks += blocks_for(work_of(leaf), sum_threads); };
  for (const outer_leaf& leaf : net.outer) {
    if (!by_products || !is_one_product(leaf)) count(leaf);
  }
  for (const elementwise_leaf& leaf : net.elementwise) count(leaf);
  for (const row_leaf& leaf : net.rows) count(leaf);
  return blocks;
}

/// Samples of the largest batch: what kernels count of it (positions, pixels, blocks of products) are ints.
template <class Network>
inline constexpr std::size_t most_batch = [] {
  constexpr const auto& table = program<Network>::table;
  std::int64_t each = 1;  // of a sample
  const auto count = [&](std::int64_t number) { each = std::max(each, number); };
  count(static_cast<std::int64_t>(table.ops.size()));  // weights of layers
  const auto blocks = [](const affine_view& view, int rows, int columns) {
    return std::int64_t{view.groups} * blocks_for(rows, tiny_block::rows) * blocks_for(columns, tiny_block::columns);
  };
  for (const op_row& row : table.ops) {
    count(row.view.positions());
    count(row.view.pixels());
    count(blocks(row.view, row.view.outputs, row.view.positions()));
    count(blocks(row.view, row.view.channels, row.view.pixels()));
  }
  for (int k = 0; k < table.outer_count; ++k) count(table.outer[static_cast<std::size_t>(k)].square_count);
  constexpr std::int64_t margin = 1 << 16;  // counts are rounded up to whole blocks and slices
  return static_cast<std::size_t>((std::numeric_limits<int>::max() - margin) / each);
}();

/// Where everything lies, in bytes from the beginning.
struct arena_layout {
  std::size_t state = 0;  ///< a step_state, and behind it the record numbers: one upload
  std::size_t records = 0;
  std::size_t numbers = 0;  ///< of samples that come from the host, in its data set
  std::size_t lengths = 0;
  std::size_t ops = 0;
  std::size_t outer = 0;
  std::size_t elementwise = 0;
  std::size_t row_leaves = 0;
  std::size_t integers = 0;
  std::size_t scalars = 0;
  std::size_t products = 0;  ///< of samples that blocks hold
  std::size_t groups = 0;    ///< clipping group of each layer
  std::size_t bounds = 0;    ///< clip bound of each group, or of each layer
  std::size_t parameters = 0;
  std::size_t workspaces = 0;
  std::size_t kept = 0;
  std::size_t losses = 0;
  std::size_t position_losses = 0;  ///< layered: [sample][position]
  std::size_t norms = 0;
  std::size_t squares = 0;  ///< layered: parts of norms
  std::size_t weights = 0;  ///< [layer][sample]
  std::size_t projections = 0;
  std::size_t partials = 0;       ///< layered: gradients of some samples
  std::size_t kept_partials = 0;  ///< layered: a leaf's of all samples, leaf after leaf
  std::size_t sums = 0;           ///< accumulators
  std::size_t released = 0;
  std::size_t bytes = 0;
};

/// Materialised gradients that are formed at a time.
[[nodiscard]] constexpr std::size_t rows_at_a_time(const network_facts& net, std::size_t max_batch) noexcept {
  constexpr std::size_t most = std::size_t{1} << 20U;  // elements
  return std::min(max_batch, std::max<std::size_t>(1, most / std::max<std::size_t>(1, net.parameters)));
}
inline constexpr std::size_t arena_line = 256;  ///< bytes of which places are multiples
/// Where the next `bytes` lie behind `end` others, which grow by them.
constexpr std::size_t place_behind(std::size_t& end, std::size_t bytes) noexcept {
  return std::exchange(end, end + (bytes + arena_line - 1) / arena_line * arena_line);
}

/// `gradients`: whether there is room for them and for sums; outputs and losses need none.
[[nodiscard]] constexpr arena_layout lay_out(const network_facts& net, std::size_t scalar_bytes, std::size_t max_batch,
                                             bool gradients = true) noexcept {
  constexpr auto count = [](auto number) { return static_cast<std::size_t>(number); };
  const std::size_t layers = std::max<std::size_t>(1, net.layers());
  const std::size_t most_workspaces = net.layered && has_gemm_library
                                          ? count(library_capacity(static_cast<int>(max_batch), samples_of_calls(net)))
                                          : max_batch;
  arena_layout a;
  const auto place = [&](std::size_t& where, std::size_t bytes) { where = place_behind(a.bytes, bytes); };
  place(a.state, sizeof(step_state) + max_batch * sizeof(std::uint32_t));
  a.records = a.state + sizeof(step_state);
  place(a.numbers, net.draws ? max_batch * sizeof(std::uint32_t) : 0);
  place(a.lengths, net.input_positions > 0 ? max_batch * sizeof(std::uint32_t) : 0);
  place(a.ops, net.ops.size_bytes());
  place(a.outer, net.outer.size_bytes());
  place(a.elementwise, net.elementwise.size_bytes());
  place(a.row_leaves, net.rows.size_bytes());
  place(a.integers, count(net.integers) * sizeof(int));
  place(a.scalars, count(net.scalars) * scalar_bytes);
  place(a.products, count(net.held_products) * sizeof(held_product));
  place(a.groups, layers * sizeof(int));
  place(a.bounds, net.bounds() * sizeof(double));
  place(a.parameters, (net.parameters + net.frozen) * scalar_bytes);
  place(a.workspaces, most_workspaces * count(net.workspace) * scalar_bytes);
  place(a.losses, max_batch * sizeof(double));
  place(a.position_losses, net.layered ? max_batch * net.output_positions * sizeof(double) : 0);
  if (!gradients) return a;
  place(a.kept, max_batch * count(net.kept) * scalar_bytes);
  place(a.norms, max_batch * layers * sizeof(norm_bound));
  place(a.squares, max_batch * count(net.squares) * sizeof(double));
  place(a.weights, max_batch * layers * scalar_bytes);
  place(a.projections, max_batch * sizeof(double));
  std::size_t most_partials = 0;
  for (const outer_leaf& leaf : net.outer) {
    if (!net.layered || !is_one_product(leaf) || leaf.view.positions() == 1 || leaf.partials >= 0) continue;
    most_partials =
        std::max(most_partials, count(samples_together(leaf, max_batch)) * count(leaf.chunks * leaf.size()));
  }
  place(a.partials, most_partials * scalar_bytes);
  place(a.kept_partials, max_batch * count(net.partials) * scalar_bytes);
  // One of integers, or some of scalars.
  place(a.sums, std::max(sizeof(std::int64_t), count(accumulator_count(net)) * scalar_bytes) * net.parameters);
  place(a.released, net.parameters * scalar_bytes);
  return a;
}

/// Byte offsets of a batch's samples that come from the host, as evaluations' do, and of the outputs that they ask for.
struct sample_places {
  std::size_t inputs = 0;
  std::size_t targets = 0;
  std::size_t outputs = 0;
  std::size_t bytes = 0;
};
/// `target_bytes`: a sample's. `outputs`: whether anybody asks for them.
[[nodiscard]] constexpr sample_places place_samples(const network_facts& net, std::size_t scalar_bytes,
                                                    std::size_t max_batch, std::size_t target_bytes,
                                                    bool outputs) noexcept {
  sample_places s;
  s.inputs = place_behind(s.bytes, max_batch * net.input_size * scalar_bytes);
  s.targets = place_behind(s.bytes, max_batch * target_bytes);
  s.outputs = place_behind(s.bytes, outputs ? max_batch * net.output_size * scalar_bytes : 0);
  return s;
}

/// Samples that are evaluated at a time: as many as take 1 GiB of values, but no more than `most`, and one at
/// least.
[[nodiscard]] constexpr std::size_t evaluated_together(const network_facts& net, std::size_t scalar_bytes,
                                                       std::size_t most) noexcept {
  const std::size_t each = (static_cast<std::size_t>(net.workspace) + net.input_size + net.output_size) * scalar_bytes;
  return std::clamp<std::size_t>((std::size_t{1} << 30U) / std::max<std::size_t>(1, each), 1, most);
}

}  // namespace pergrad::inline v0_1::on_device

namespace pergrad::inline v0_1::detail {

/// `static_network::device_bytes` asks this.
template <class Network>
struct device_memory {
  template <std::size_t MaxBatch>
  static constexpr std::size_t bytes =
      on_device::lay_out(on_device::facts_of<Network>, sizeof(typename Network::scalar), MaxBatch).bytes;
};

}  // namespace pergrad::inline v0_1::detail
