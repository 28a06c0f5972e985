// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/plan/program.hpp - a network as a device runs it: rows of nodes and leaves, and a sample's workspace
//
// Values of a sample lie in PyTorch's order; two of them share memory if the one is dead before the other is born.
// Backward of node i runs at time 2n - i, and what norms and sums read lives to the end.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include <pergrad/concepts.hpp>
#include <pergrad/cuda/kernels/functions.hpp>
#include <pergrad/cuda/kernels/pointwise.hpp>
#include <pergrad/cuda/kernels/samples.hpp>
#include <pergrad/cuda/kernels/tables.hpp>
#include <pergrad/cuda/plan/build.hpp>
#include <pergrad/expressions/clip.hpp>
#include <pergrad/gradients/plan.hpp>
#include <pergrad/graph/graph.hpp>
#include <pergrad/graph/plan.hpp>
#include <pergrad/network.hpp>

namespace pergrad::inline v0_1::on_device {

/// Rows and columns that the windows of a pooling layer see, and what their means divide by.
template <class Layer, class Scalar>
void fill_windows(shape in, const op_row& row, int* integers, Scalar* scalars) {
  constexpr bool has_planes = requires { Layer::planes(in, std::size_t{0}); };
  for (int axis = 0; axis < axes; ++axis) {
    const window_axis& windows = row.windows[axis];
    for (int o = 0; o < windows.out; ++o) {
      const auto number = static_cast<std::size_t>(o);
      window_range range{0, 1};
      if constexpr (has_planes) {
        if (axis == 0) range = Layer::planes(in, number);
      }
      if (axis == 1) range = Layer::rows(in, number);
      if (axis == 2) range = Layer::columns(in, number);
      integers[windows.first + o] = static_cast<int>(range.begin);
      integers[windows.last + o] = static_cast<int>(range.end);
    }
    for (int i = 0; i < windows.in; ++i) {
      int first = windows.out;
      int last = 0;
      for (int o = 0; o < windows.out; ++o) {
        if (integers[windows.first + o] > i || integers[windows.last + o] <= i) continue;
        first = std::min(first, o);
        last = std::max(last, o + 1);
      }
      integers[windows.seen_first + i] = first;
      integers[windows.seen_last + i] = last;
    }
  }
  int at = row.divisors;
  for (int d = 0; d < row.windows[0].out; ++d) {
    for (int i = 0; i < row.windows[1].out; ++i) {
      for (int j = 0; j < row.windows[2].out; ++j, ++at) {
        if constexpr (has_planes) {
          scalars[at] = static_cast<Scalar>(Layer::divisor(in, static_cast<std::size_t>(d), static_cast<std::size_t>(i),
                                                           static_cast<std::size_t>(j)));
        } else {
          scalars[at] =
              static_cast<Scalar>(Layer::divisor(in, static_cast<std::size_t>(i), static_cast<std::size_t>(j)));
        }
      }
    }
  }
}

/// For each length of the network's input, how many positions of each value are there.
template <class Structure>
void fill_lengths(std::span<const op_row> ops, int output_lengths, int* integers) {
  for (std::size_t length = 0; length <= Structure::shapes[0].e0; ++length) {
    std::array<std::size_t, Structure::size + 1> lengths{length};
    const auto put = [&](int table, std::size_t slot) {
      if (table >= 0) integers[static_cast<std::size_t>(table) + length] = static_cast<int>(lengths[slot]);
    };
    detail::for_each_layer<Structure>([&]<class Layer>(std::type_identity<Layer> /*type*/, std::size_t i) {
      const std::size_t in = Structure::inputs[i];
      lengths[i + 1] = detail::output_length_of<Layer>(Structure::shapes[in], lengths[in]);
      put(ops[i].in_lengths, in);
      put(ops[i].in2_lengths, Structure::inputs2[i]);
      put(ops[i].out_lengths, i + 1);
    });
    put(output_lengths, Structure::size);
  }
}

/// The tables that need a layer's functions, filled when a tape is made.
template <class Scalar>
struct function_tables {
  std::vector<int> integers;
  std::vector<Scalar> scalars;
  std::vector<held_product> products;
};

/// The tables of a network.
template <class Network>
struct program {
  using structure = typename Network::structure;
  using scalar = typename Network::scalar;
  using functions = functions_of<structure>;
  static constexpr int size = static_cast<int>(structure::size);
  static_assert(sizeof(typename explanation_of<Network>::type) != 0);
  static constexpr bool layered = plan_of<Network> == plan_kind::layered;

  struct tables : network_sizes {
    std::array<op_row, structure::size> ops{};
    std::array<outer_leaf, detail::network_plan<structure>::most_outer> outer{};
    std::array<elementwise_leaf, detail::network_plan<structure>::most_elementwise> elementwise{};
    std::array<row_leaf, detail::network_plan<structure>::most_sparse> rows{};
    std::array<projection_row, std::max<std::size_t>(1, count_projections<structure>())> projections{};
    int outer_count = 0;
    int elementwise_count = 0;
    int row_count = 0;
    int projections_used = 0;
  };

  static_assert(Network::parameter_count + Network::frozen_parameter_count <= 0x7FFFFFFF,
                "pergrad: this network has more parameters than a device can number, 2^31 - 1, frozen ones included");
  static constexpr tables table = build_tables<program>::make();
  static_assert(std::ranges::all_of(table.ops, [](const op_row& row) { return geometry::fits(row.view); }),
                "pergrad: a convolution of this network is too large for a device: the widths of its image, with what "
                "its windows reach beyond, take more than 28 bits together");

  [[nodiscard]] static function_tables<scalar> of_functions() {
    function_tables<scalar> result;
    result.integers.resize(static_cast<std::size_t>(table.integers));
    result.scalars.resize(static_cast<std::size_t>(table.scalars));
    detail::for_each_layer<structure>([&]<class Layer>(std::type_identity<Layer> /*type*/, std::size_t i) {
      if constexpr (detail::has_windows<Layer>) {
        fill_windows<Layer>(structure::shapes[structure::inputs[i]], table.ops[i], result.integers.data(),
                            result.scalars.data());
      }
    });
    if constexpr (structure::shapes[0].varying_axis() != 0) {
      fill_lengths<structure>(table.ops, table.output_lengths, result.integers.data());
    }
    if constexpr (table.held_products > 0) {
      held_products products{table.held_integers, sizeof(scalar), table.held_tile, result.integers.data()};
      for (const op_row& row : table.ops) {
        result.products.push_back(products.describe(row, false));
        result.products.push_back(products.describe(row, true));
      }
    }
    return result;
  }
};

/// Is a node next to a product in the list one that the product computes with its results? Nobody else has a part in
/// the gradient between them then.
[[nodiscard]] constexpr bool joins(const op_row& product, const op_row& node, bool back) noexcept {
  if (product.kind != node_kind::affine || product.adjoint != 0 || product.out_size == 0 || product.out_lengths >= 0 ||
      node.kind != node_kind::elementwise || node.taken_along != 0 || node.out_lengths >= 0 ||
      stretches_of(node) == 0) {
    return false;
  }
  if (!back) return node.in == product.out;
  return product.input_gradient != 0 && product.accumulate == 0 && node.backward != 0 && node.input_gradient != 0 &&
         node.in >= 0 && node.out == product.in && node.dy == product.dx;
}
/// The same on a device: cuBLAS knows no nodes.
template <class Device, class Scalar>
[[nodiscard]] constexpr bool joins_on(const op_row& product, const op_row& node, bool back) noexcept {
  return joins(product, node, back) && way_on<Device, Scalar>(way_of(product, back)) != gemm_way::library;
}

/// What a network needs of products by its plan, an argument of templates: networks that need the same share them.
template <class Network>
inline constexpr needed_products products_of = [] {
  constexpr const auto& table = program<Network>::table;
  needed_products needed{};
  needed.any = program<Network>::layered;
  if (!needed.any) return needed;
  // A unit has 2^12 sqrt(d) steps, rounded up to a power of two (privacy/sensitivity.hpp).
  const auto has_at_most = [](int steps) { return Network::parameter_count <= std::size_t{1} << (2 * (steps - 12)); };
  needed.shares = has_at_most(small_shares<share_kind::shifted>::steps)     ? share_kind::shifted
                  : has_at_most(small_shares<share_kind::converted>::steps) ? share_kind::converted
                                                                            : share_kind::any;
  const auto add = [&](gemm_product product, const affine_view& view, bool x_in_workspace) {
    if (is_of_one_position(product, view)) {
      constexpr int many = 1 << 16;
      needed.one_position = true;
      needed.wide_position = needed.wide_position || view.size() >= many;
    } else {
      unsigned& ways = product == gemm_product::forward ? needed.forward
                       : stride_class::count(view) > 1  ? needed.strided
                                                        : needed.adjoint;
      ways |= bit_of(choose_gemm(product, view, x_in_workspace));
      // Few samples are held by blocks.
      if (table.held_products == 0) ways |= small_too;
    }
  };
  for (const op_row& row : table.ops) {
    if (row.kind != node_kind::affine || row.out_size == 0) continue;
    add(product_of(row, false), row.view, row.in >= 0);
    if (row.input_gradient != 0) add(product_of(row, true), row.view, true);
  }
  for (int i = 0; i < table.projections_used; ++i) {
    const projection_row& each = table.projections[static_cast<std::size_t>(i)];
    add(gemm_product::forward, each.view, each.x >= 0);
    needed.projects_kept = needed.projects_kept || !each.reads_input;
    if (each.wants_gradient) add(gemm_product::adjoint, each.view, true);
  }
  for (const op_row& row : table.ops) needed.attention = larger_of(needed.attention, row.attention.width);
  needed.norms_by_blocks = table.row_count > 0;
  needed.others_elementwise = table.row_count == 0;
  for (std::size_t i = 1; i < table.ops.size(); ++i) {
    const auto note = [&](const op_row& product, const op_row& node, bool back) {
      if (!joins(product, node, back)) return;
      (is_of_one_position(product_of(product, back), product.view) ? needed.joins : needed.joins_positions) = true;
    };
    note(table.ops[i - 1], table.ops[i], false);
    note(table.ops[i], table.ops[i - 1], true);
  }
  for (int k = 0; k < table.outer_count; ++k) {
    const outer_leaf& leaf = table.outer[static_cast<std::size_t>(k)];
    (leaf.view.positions() > 1 ? needed.gradients : needed.sums) |= bit_of(way_of(leaf, gemm_product::sums));
    needed.others_elementwise = needed.others_elementwise && is_one_product(leaf);
    needed.stored = needed.stored || leaf.is_stored();
    needed.chunks = needed.chunks || leaf.chunks > 1;
    needed.norms_by_blocks =
        needed.norms_by_blocks || (leaf.first != 0 && !is_little(leaf, method_choice{.by_products = 1}));
    if (leaf.chunks > 1) continue;
    const unsigned squared = bit_of(way_of(leaf, gemm_product::squares));
    needed.any_squares |= squared;
    if (leaf.method != norm_method::product) needed.squares |= squared;
  }
  needed.tensor_cores =
      ((needed.forward | needed.adjoint | needed.strided | needed.gradients) & ~(ways_of_few_rows | small_too)) != 0;
  return needed;
}();

/// Are there nodes of a layered network that neither products nor the node kernel take, or samples to trim?
template <class Network>
inline constexpr bool needs_sample_kernel = std::ranges::any_of(program<Network>::table.ops, [](const op_row& row) {
  const bool is_taken = row.projected == 0 && (row.kind == node_kind::affine || stretches_of(row) > 0);
  const bool is_trimmed = row.out_lengths >= 0 && row.kind == node_kind::affine;
  return row.out_size > 0 && (!is_taken || is_trimmed);
});

template <class Network>
[[nodiscard]] constexpr network_facts find_facts() {
  constexpr const auto& table = program<Network>::table;
  network_facts facts;
  static_cast<network_sizes&>(facts) = table;
  facts.ops = table.ops;
  facts.outer = std::span{table.outer}.first(static_cast<std::size_t>(table.outer_count));
  facts.elementwise = std::span{table.elementwise}.first(static_cast<std::size_t>(table.elementwise_count));
  facts.rows = std::span{table.rows}.first(static_cast<std::size_t>(table.row_count));
  facts.projections = std::span{table.projections}.first(static_cast<std::size_t>(table.projections_used));
  facts.groups = pergrad::detail::group_of_layer<Network>;
  facts.layered = program<Network>::layered;
  facts.parameters = Network::parameter_count;
  facts.frozen = Network::frozen_parameter_count;
  facts.input_size = Network::input_shape.size();
  if (Network::input_shape.varying_axis() != 0) facts.input_positions = Network::input_shape.e0;
  for (const op_row& row : table.ops) facts.draws = facts.draws || row.kind == node_kind::tiled;
  facts.output_size = Network::output_shape.size();
  if (Network::output_shape.varying_axis() == 1 ||
      (Network::output_shape.rank() == 2 && Network::output_shape.varying_axis() == 0))
    facts.output_positions = Network::output_shape.e0;
  return facts;
}
/// A network's tables as numbers.
template <class Network>
inline constexpr network_facts facts_of = find_facts<Network>();

}  // namespace pergrad::inline v0_1::on_device
