// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/run/describe.hpp - a network as a table of what a device does with it: who forms which product, how
// norms are found, and what memory that takes
#pragma once

#include <array>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

#include <pergrad/concepts.hpp>
#include <pergrad/cuda/plan/build.hpp>
#include <pergrad/cuda/plan/gemm_door.hpp>
#include <pergrad/cuda/plan/layout.hpp>
#include <pergrad/cuda/plan/program.hpp>
#include <pergrad/cuda/run/executor.hpp>
#include <pergrad/errors.hpp>
#include <pergrad/graph/shape_text.hpp>

namespace pergrad::inline v0_1 {

/// One entry of a network's unfolded list, as a device runs it.
struct device_description {
  std::string layer;
  shape in;
  shape out;
  std::size_t parameters = 0;
  /// Who forms y: `sample kernel`, `node kernel` where blocks share a sample, a blocked kernel for the whole batch, or
  /// cuBLAS, or for a layer on tiles products of the whole batch and the sample kernel; `-` where nothing is to do.
  std::string_view forward = "-";
  std::string_view backward = "-";  ///< the same for the gradient of x
  std::string_view norm = "-";      ///< how the norm of the block is found; `frozen` blocks have none
  std::string_view sum = "-";       ///< who forms the weighted sum: `sum kernel` or a blocked kernel
};

/// The rows of `describe<Network>(executor)`.
template <class Network, on_device::device Device>
[[nodiscard]] auto describe_rows(const basic_device_executor<Device>& /*executor*/) {
  using program = on_device::program<Network>;
  using structure = typename Network::structure;
  using detail::node_kind;
  constexpr const auto& table = program::table;
  using on_device::gemm_product;
  const auto way = [](const auto& of, auto which) {
    const on_device::gemm_way planned = on_device::way_of(of, which);
    return std::string_view{on_device::name_of(on_device::way_on<Device, typename Network::scalar>(planned))};
  };
  std::array<device_description, structure::size> rows;
  detail::for_each_layer<structure>([&]<class Layer>(std::type_identity<Layer> /*type*/, std::size_t i) {
    device_description& to = rows[i];
    const on_device::op_row& row = table.ops[i];
    to.layer = detail::name_of_layer<Layer>();
    to.in = structure::shapes[structure::inputs[i]];
    to.out = structure::shapes[i + 1];
    to.parameters = structure::parameter_counts[i];
    if (row.out_size > 0) {
      const bool is_product = program::layered && row.kind == node_kind::affine;
      const bool has_gradient = row.input_gradient != 0 || row.input2_gradient != 0 ||
                                ((row.kind == node_kind::general || row.kind == node_kind::tiled) && row.backward != 0);
      const bool spreads = program::layered && on_device::stretches_of(row) > 0;
      const std::string_view by_sample = row.projected != 0 ? "products and sample kernel"
                                         : spreads          ? "node kernel"
                                                            : "sample kernel";
      to.forward = is_product ? way(row, false) : by_sample;
      if (has_gradient) to.backward = is_product ? way(row, true) : by_sample;
    }
    if (to.parameters == 0) return;
    if (structure::trained_counts[i] == 0 || structure::owners[i] != i) {
      to.norm = structure::owners[i] != i ? "tied" : "frozen";
      return;
    }
    to.norm = row.first_rows < row.last_rows ? "row sum" : name_of(norm_method::elementwise);
    to.sum = "sum kernel";
    for (int k = row.first_outer; k < row.last_outer; ++k) {
      const on_device::outer_leaf& leaf = table.outer[static_cast<std::size_t>(k)];
      to.norm = name_of(leaf.method);
      if (program::layered && on_device::is_one_product(leaf)) to.sum = way(leaf, gemm_product::sums);
    }
  });
  return rows;
}

/// A table of the network's entries on a device: who forms which product, how norms are found, who adds up; with the
/// plan, the accumulators of the sums and the bytes that a tape for batches of `batch` takes there, all in one
/// allocation.
template <class Network, on_device::device Device>
[[nodiscard]] std::string describe(const basic_device_executor<Device>& executor, max_batch batch = {256}) {
  char line[512];
  std::string text;
  const auto print = [&](const auto&... values) {
    std::snprintf(line, sizeof line, values...);
    text += line;
  };
  constexpr const char* format = "%5s  %-28.28s %-14s %-14s %10s  %-30s %-30s %-11s %s\n";
  print(format, "entry", "layer", "in", "out", "parameters", "forward", "backward", "norm", "sum");
  std::size_t number = 0;
  for (const device_description& row : describe_rows<Network>(executor)) {
    print(format, std::to_string(number++).c_str(), row.layer.c_str(), detail::to_text(row.in).c_str(),
          detail::to_text(row.out).c_str(), std::to_string(row.parameters).c_str(), std::string{row.forward}.c_str(),
          std::string{row.backward}.c_str(), std::string{row.norm}.c_str(), std::string{row.sum}.c_str());
  }
  using program = on_device::program<Network>;
  constexpr bool layered = program::layered;
  print("plan   %s\n", layered ? "layered: products of the whole batch, and between them a block a sample"
                               : "fused: a block takes a sample through everything, in one launch");
  print(
      "total  %zu parameters, %d accumulators, %s, %zu bytes a sample's workspace, %zu bytes on the device for batches "
      "of up "
      "to %zu\n",
      Network::parameter_count, on_device::accumulator_count(on_device::facts_of<Network>),
      executor.options().tf32 ? "TF32" : "no TF32",
      static_cast<std::size_t>(program::table.workspace) * sizeof(typename Network::scalar),
      on_device::lay_out(on_device::facts_of<Network>, sizeof(typename Network::scalar), batch.count).bytes,
      batch.count);
  return text;
}

}  // namespace pergrad::inline v0_1
