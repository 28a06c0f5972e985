// SPDX-License-Identifier: Apache-2.0
// pergrad/describe.hpp - a network as a table: what the compiler inferred and what the plan chose
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <pergrad/gradients/plan.hpp>
#include <pergrad/host/program.hpp>
#include <pergrad/host/sparse.hpp>
#include <pergrad/network.hpp>
#include <pergrad/tape.hpp>

namespace pergrad::inline v0_1 {

/// One entry of a network's unfolded list.
struct description {
  std::string layer;  ///< its name, as it would be written in a network where that is possible
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
  /// How its sum is formed: in the `lane` that a tile belongs to, tile after tile, or once a `chunk` of samples,
  /// written straight into the result (large blocks with one position, and tables); `-` if it has none of its own.
  std::string_view sum = "-";
  /// `F(2x2, 3x3)` where the host forms the convolution or its input gradient by minimal filtering
  /// (host/winograd.hpp), `F(2x2, 2x2)` where it does so with the convolution and its weights' gradient
  /// (host/pairs.hpp), else empty.
  // NOLINTNEXTLINE(readability-redundant-string-init): printed as text with a 0 behind it
  std::string_view filtered = "";
};

namespace detail {

/// A type's name as the compiler writes it, without this library's namespaces.
template <class Type>
[[nodiscard]] std::string type_name() {
#if defined(__clang__) || defined(__GNUC__)
  std::string_view name = __PRETTY_FUNCTION__;
  const std::size_t begin = name.find("Type = ") + 7;
  name = name.substr(begin, name.find_first_of(";]", begin) - begin);
#else
  std::string_view name = "layer";
#endif
  std::string result{name};
  for (const std::string_view noise : {"pergrad::v0_1::", "pergrad::", "v0_1::", "detail::"}) {
    for (std::size_t at = result.find(noise); at != std::string::npos; at = result.find(noise))
      result.erase(at, noise.size());
  }
  for (std::size_t at = result.find(" >"); at != std::string::npos; at = result.find(" >")) result.erase(at, 1);
  return result;
}

/// The parts between commas, of "a, b<c, d>" two.
[[nodiscard]] inline std::vector<std::string> split_list(std::string_view list) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (const char each : list) {
    depth += each == '<' || each == '{' ? 1 : each == '>' || each == '}' ? -1 : 0;
    if (each == ',' && depth == 0) {
      parts.emplace_back();
    } else if (each != ' ' || !parts.back().empty()) {
      parts.back() += each;
    }
  }
  return parts;
}

/// "{1, 8, 8}" is a window's depth, height and width; of {lengths, extents, ids} a shape. What says nothing is left
/// out.
[[nodiscard]] inline std::string readable_numbers(std::string_view list, bool two_axes) {
  std::vector<std::string> numbers = split_list(list);
  std::string kind;
  if (numbers.size() == 6) {
    kind = "shape";
    numbers.pop_back();
    numbers.erase(numbers.begin());
    while (numbers.size() > 1 && numbers.back() == "0") numbers.pop_back();
  } else if (numbers.size() == 3) {
    kind = "extent";
    if (two_axes) numbers.erase(numbers.begin());
  }
  std::string text = kind + "{";
  for (std::size_t i = 0; i < numbers.size(); ++i) text += (i > 0 ? ", " : "") + numbers[i];
  return text + "}";
}

/// A recurrent layer of one direction, by the name and options that it was written with.
[[nodiscard]] inline std::string readable_recurrent(const std::string& name) {
  const std::size_t begin = name.find('<') + 1;
  const std::vector<std::string> part = split_list(std::string_view{name}.substr(begin, name.size() - begin - 1));
  const std::size_t cell = part[0].find("_cell");
  if (part.size() < 6 || cell == std::string::npos) return name;
  std::string text = part[0].substr(0, cell) + "<" + part[1];
  if (part[0].find("true") != std::string::npos) text += ", relu_cell";
  if (part[2] != "2") text += part[2] == "1" ? ", one_bias" : ", no_bias";
  if (part[4] == "true") text += ", last_output";
  text += ">";
  if (part[3] == "true") text += " backwards";
  if (part[5] == "true") text += " with state";
  return text;
}

/// A layer's name as users know it.
[[nodiscard]] inline std::string readable_name(const std::string& name) {
  if (name.starts_with("recurrent_core<")) return readable_recurrent(name);
  const bool two_axes = name.substr(0, name.find('<')).ends_with("2d");
  std::string text;
  for (std::size_t at = 0; at < name.size(); ++at) {
    const std::size_t end = name[at] == '{' ? name.find('}', at) : std::string::npos;
    if (end == std::string::npos) {
      text += name[at];
      continue;
    }
    for (const std::string_view kind : {"extent", "shape"}) {
      if (text.ends_with(kind)) text.erase(text.size() - kind.size());  // some compilers write it, some do not
    }
    text += readable_numbers(std::string_view{name}.substr(at + 1, end - at - 1), two_axes);
    at = end;
  }
  return text;
}

/// A layer's name for the table. Parts of larger layers that nobody writes down say what they are.
template <class Layer>
[[nodiscard]] std::string layer_name() {
  if constexpr (requires { Layer::described_as; }) {
    return Layer::described_as;
  } else {
    return readable_name(type_name<Layer>());
  }
}

[[nodiscard]] inline std::string to_text(shape of) {
  std::string text = "{";
  for (std::size_t axis = 0; axis < of.rank(); ++axis) text += (axis > 0 ? ", " : "") + std::to_string(of[axis]);
  return text + "}";
}

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
    const on_host::slot& slot = table.slots[which];
    return bytes * static_cast<std::size_t>(slot.value.sample + slot.gradient.sample);
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
    if (!used_before && Structure::trained_counts[i] > 0) row.sum = is_table || in_chunks ? "chunk" : "lane";
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
        [&](auto index) { rows[index].layer = detail::layer_name<typename structure::template layer_at<index>>(); });
    return rows;
  }
}

/// A table of the network's entries: shapes, parameters, tape bytes a sample, the norm method that the plan chose, how
/// the sum is formed and what both are modelled to cost, with totals and the tile that goes through the network
/// together.
template <class Network>
[[nodiscard]] std::string describe() {
  if constexpr (std::is_base_of_v<error::explained, Network>) {
    return {};
  } else {
    constexpr std::size_t name_width = 56;
    char line[512];
    std::string text;
    const auto print = [&](const auto&... values) {
      std::snprintf(line, sizeof line, values...);
      text += line;
    };
    print("%5s  %-56s %-14s %-14s %12s %12s  %-11s %-5s %6s %12s\n", "entry", "layer", "in", "out", "parameters",
          "tape bytes", "norm", "sum", "T", "cost");
    std::size_t bytes = 0;
    double cost = 0;
    std::size_t number = 0;
    for (const description& row : describe_rows<Network>()) {
      print("%5zu  %-56s %-14s %-14s %12zu %12zu  %-11s %-5s %6zu %12.0f%s%s\n", number++,
            row.layer.substr(0, name_width).c_str(), detail::to_text(row.in).c_str(), detail::to_text(row.out).c_str(),
            row.parameters, row.tape_bytes, std::string{row.norm}.c_str(), std::string{row.sum}.c_str(), row.positions,
            row.modelled_cost, row.filtered.empty() ? "" : "  ", row.filtered.data());
      for (std::size_t at = name_width; at < row.layer.size(); at += name_width) {
        print("%5s  %s\n", "", row.layer.substr(at, name_width).c_str());
      }
      bytes += row.tape_bytes;
      cost += row.modelled_cost;
    }
    print("total  %zu parameters", Network::parameter_count);
    if (Network::frozen_parameter_count > 0) print(" and %zu frozen", Network::frozen_parameter_count);
    print(", %zu tape bytes a sample, %zu samples a tile, %zu lanes, modelled cost %.0f multiply-adds a sample\n",
          bytes, static_cast<std::size_t>(on_host::program<Network>::table.tile),
          static_cast<std::size_t>(on_host::lane_count<Network>), cost);
    return text;
  }
}

}  // namespace pergrad::inline v0_1
