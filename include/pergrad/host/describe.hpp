// SPDX-License-Identifier: Apache-2.0
// pergrad/host/describe.hpp - a network as a table: what the compiler inferred and what the plan chose
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>

#include <pergrad/concepts.hpp>
#include <pergrad/errors.hpp>
#include <pergrad/gradients/plan.hpp>
#include <pergrad/graph/shape_text.hpp>
#include <pergrad/host/norms/sparse.hpp>
#include <pergrad/host/plan/program.hpp>
#include <pergrad/host/run/working_memory.hpp>
#include <pergrad/network.hpp>

namespace pergrad::inline v0_1 {

/// One entry of a network's unfolded list.
struct description {
  std::string layer;  ///< its `name`; `layer` of a layer without one
  shape in;
  shape out;
  std::size_t parameters = 0;  ///< trained or frozen; 0 for another use of a tied block, which is counted once
  std::size_t tape_bytes = 0;  ///< a sample's values and gradients that this entry adds to the tape
  norm_method method = norm_method::elementwise;  ///< of its outer-product block; `elementwise` if it has none
  std::size_t positions = 0;                      ///< T of that block, 0 without one
  double modelled_cost = 0;  ///< multiply-adds a sample for norm and weighted sum, as the plan counts them
  /// Where the norm comes from: a method, or `row sum` of a table; `frozen` blocks have none, `tied` ones have theirs
  /// where they are first used; `-` without parameters.
  std::string_view norm = "-";
  /// How its sum is formed: `tile` after tile in an accumulator; once a `chunk` of samples, written straight into the
  /// result (large blocks with one position, and tables); once a `round` of as many tiles as there are threads, added
  /// to the result (large networks); `-` if it has none of its own.
  std::string_view sum = "-";
  /// `F(2x2, 3x3)` where the host forms the convolution or its input gradient by minimal filtering
  /// (host/conv/winograd.hpp), else empty.
  // NOLINTNEXTLINE(readability-redundant-string-init): printed as text with a 0 behind it
  std::string_view filtered = "";
};

namespace detail {

/// What the tables say of entry i. They come as arguments: looked at as constants, they crash g++ 12 under
/// -fsanitize=undefined.
template <class Structure, class Tables>
[[nodiscard]] description describe_entry(const Tables& table, std::size_t i, std::size_t bytes) {
  description row;
  row.in = Structure::shapes[Structure::inputs[i]];
  row.out = Structure::shapes[i + 1];
  const bool has_parameters = Structure::parameter_counts[i] > 0;
  const bool used_before = Structure::owners[i] != i;
  row.parameters = used_before ? 0 : Structure::parameter_counts[i];
  const auto slot_bytes = [&](std::size_t which) {
    return bytes * static_cast<std::size_t>(table.slots[which].elements);
  };
  if (i == 0) row.tape_bytes += slot_bytes(0);
  if (table.storage[i + 1] == i + 1) row.tape_bytes += slot_bytes(i + 1);
  if (table.nodes[i].staged) row.tape_bytes += slot_bytes(table.nodes[i].in);
  if (table.nodes[i].winograd_rows > 0 || table.nodes[i].winograd_dx_rows > 0) row.filtered = "F(2x2, 3x3)";
  if (table.nodes[i].in_pairs) row.filtered = "F(2x2, 2x2)";
  bool in_chunks = false;
  for (std::size_t k = 0; k != table.outer_count; ++k) {
    const on_host::outer_leaf& leaf = table.outer[k];
    if (leaf.node != i) continue;
    row.method = leaf.method;
    row.positions = static_cast<std::size_t>(leaf.positions());
    row.modelled_cost += modelled_cost(leaf.method, leaf.block(), bytes);
    in_chunks = in_chunks || leaf.deferred;
    if (leaf.deferred) row.tape_bytes += bytes * static_cast<std::size_t>(leaf.view_width() + leaf.outputs);
    if (leaf.method == norm_method::instantiate) row.tape_bytes += bytes * static_cast<std::size_t>(leaf.size());
  }
  for (std::size_t k = 0; k != table.elementwise_count; ++k) {
    const on_host::elementwise_leaf& leaf = table.elementwise[k];
    if (leaf.node != i) continue;
    row.tape_bytes += bytes * static_cast<std::size_t>(leaf.count);
    row.modelled_cost += static_cast<double>(leaf.count * (leaf.positions() + 2));
  }
  bool is_table = false;
  // A table's rows are instantiated: those that a sample uses, at most one a position.
  for (std::size_t k = 0; k != table.sparse_count; ++k) {
    const on_host::sparse_leaf& leaf = table.sparse[k];
    if (leaf.node != i) continue;
    is_table = true;
    row.method = norm_method::instantiate;
    row.positions = static_cast<std::size_t>(leaf.positions);
    row.modelled_cost += static_cast<double>(2 * leaf.positions * leaf.width);
    if (!leaf.use.first) continue;
    row.tape_bytes += sizeof(std::int32_t) * static_cast<std::size_t>(on_host::segment_integers(leaf));
    row.tape_bytes += bytes * static_cast<std::size_t>(leaf.width * (leaf.counted ? 1 : leaf.all_positions));
  }
  if (has_parameters) {
    row.norm = used_before                         ? "tied"
               : Structure::trained_counts[i] == 0 ? "frozen"
               : is_table                          ? "row sum"
                                                   : name_of(row.method);
    if (!used_before && Structure::trained_counts[i] > 0) {
      row.sum = is_table || in_chunks ? "chunk" : table.shares_sums ? "round" : "tile";
    }
  }
  return row;
}

}  // namespace detail

/// The rows of `describe`, in the order of the unfolded list: entry i is what `with_method<Method, i>` and
/// `layer_parameters(i)` speak of.
template <class Network>
[[nodiscard]] auto describe_rows() {
  if constexpr (std::is_base_of_v<error::explained, Network>) {
    return std::array<description, 0>{};
  } else {
    using structure = typename Network::structure;
    std::array<description, structure::size> rows;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      rows[i] =
          detail::describe_entry<structure>(on_host::program<Network>::table, i, sizeof(typename Network::scalar));
    }
    detail::for_each_index<structure::size>(
        [&](auto index) { rows[index].layer = detail::name_of_layer<typename structure::template layer_at<index>>(); });
    return rows;
  }
}

/// Bytes of the values and gradients of all samples that a thread of the host works on at a time: what `recomputed`
/// blocks make less. Sums and parameters come on top, once.
template <class Network>
inline constexpr std::size_t bytes_at_work = [] {
  if constexpr (std::is_base_of_v<error::explained, Network>) {
    return std::size_t{0};  // what is wrong with it was said
  } else {
    return on_host::working_memory<Network>::bytes_at_work;
  }
}();

namespace detail {

template <std::size_t Bytes, class... Networks>
struct network_within {
  static constexpr std::size_t found = [] {
    const std::size_t sizes[]{bytes_at_work<Networks>...};
    const auto* const first = std::ranges::find_if(sizes, [](std::size_t size) { return size <= Bytes; });
    return static_cast<std::size_t>((first != std::end(sizes) ? first : std::ranges::min_element(sizes)) - sizes);
  }();
  using type = std::tuple_element_t<found, std::tuple<Networks...>>;
  static_assert(
      sizeof(std::conditional_t<(bytes_at_work<type> <= Bytes), std::true_type,
                                error::no_network_within<error::count<Bytes>, error::count<bytes_at_work<type>>>>) !=
      0);
};

}  // namespace detail

/// Recomputation where a limit asks for it: the first of these networks whose `bytes_at_work` are at most `Bytes`, as
/// in `first_within<400'000'000, models::gpt2<512>, models::gpt2<512, 12, 768, 12, 50257,
/// models::recomputed_blocks<>>>`. If none fits: an error that says how much the smallest one takes.
template <std::size_t Bytes, class... Networks>
using first_within = typename detail::network_within<Bytes, Networks...>::type;

/// A table of the network's entries: shapes, parameters, tape bytes a sample, the norm method that the plan chose, how
/// the sum is formed and what both are modelled to cost, with totals and the tile that goes through the network
/// together.
template <class Network>
[[nodiscard]] std::string describe() {
  if constexpr (std::is_base_of_v<error::explained, Network>) {
    return {};
  } else {
    char line[512];
    std::string text;
    const auto print = [&](const auto&... values) {
      std::snprintf(line, sizeof line, values...);
      text += line;
    };
    print("%5s  %-28s %-14s %-14s %12s %12s  %-11s %-5s %6s %12s\n", "entry", "layer", "in", "out", "parameters",
          "tape bytes", "norm", "sum", "T", "cost");
    std::size_t bytes = 0;
    double cost = 0;
    std::size_t number = 0;
    for (const description& row : describe_rows<Network>()) {
      print("%5zu  %-28.28s %-14s %-14s %12zu %12zu  %-11s %-5s %6zu %12.0f%s%s\n", number++, row.layer.c_str(),
            detail::to_text(row.in).c_str(), detail::to_text(row.out).c_str(), row.parameters, row.tape_bytes,
            std::string{row.norm}.c_str(), std::string{row.sum}.c_str(), row.positions, row.modelled_cost,
            row.filtered.empty() ? "" : "  ", row.filtered.data());
      bytes += row.tape_bytes;
      cost += row.modelled_cost;
    }
    print("total  %zu parameters", Network::parameter_count);
    if (Network::frozen_parameter_count > 0) print(" and %zu frozen", Network::frozen_parameter_count);
    print(
        ", %zu tape bytes a sample, %zu samples a tile, %zu accumulators, modelled cost %.0f multiply-adds a sample\n",
        bytes, static_cast<std::size_t>(on_host::program<Network>::table.tile),
        static_cast<std::size_t>(on_host::accumulator_count<Network>), cost);
    return text;
  }
}

}  // namespace pergrad::inline v0_1
