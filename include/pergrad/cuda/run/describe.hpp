// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/run/describe.hpp - a network as a table of what a device does with it: who forms which product, how
// norms are found, what memory that takes, and how long the device needs at the least
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
#include <pergrad/cuda/run/kernel_list.hpp>
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
  /// cuBLAS, or for a layer on tiles products of the whole batch and the sample kernel; `held sample kernel` where a
  /// block holds a sample and the weights of convolutions in shared memory; `-` where nothing is to do.
  std::string_view forward = "-";
  std::string_view backward = "-";  ///< the same for the gradient of x
  std::string_view norm = "-";      ///< how the norm of the block is found; `frozen` blocks have none
  std::string_view sum = "-";       ///< who forms the weighted sum: `sum kernel` or a blocked kernel
  /// Microseconds that forward, backward, norm and sum of a batch take at the least: each its multiply-adds at the
  /// device's peak, of tensor cores where the executor may use them, or its operands and results at the full bandwidth,
  /// whichever is longer (Williams et al. 2009, the roofline). What kernels really take comes on top: docs/cuda.md has
  /// it modelled from their code. 0: the device does not say how fast it is.
  double least_us = 0;
};

namespace on_device {

/// Does a block of the executor's device hold a sample of the network?
template <class Network, class Device>
[[nodiscard]] bool holds_samples_of(const basic_device_executor<Device>& executor, max_batch batch) {
  return may_hold<products_of<Network>, typename Network::scalar>(executor.device(), facts_of<Network>,
                                                                  takes_bf16<Device> || executor.options().tf32,
                                                                  static_cast<int>(batch.count));
}
/// What the executor's device says of its speed, multiply-adds by tensor cores where the network has them; emulated
/// ones say nothing.
template <class Network, class Device>
[[nodiscard]] device_speed speed_of(const basic_device_executor<Device>& executor) {
  device_speed speed;
  if constexpr (requires { Device::speed(); }) {
    speed = Device::speed();
    const double on_tensors = !program<Network>::layered ? 0
                              : takes_bf16<Device>       ? 2 * speed.tensor_multiply_adds
                              : executor.options().tf32  ? speed.tensor_multiply_adds
                                                         : 0;
    speed.multiply_adds = larger_of(speed.multiply_adds, on_tensors);
  }
  return speed;
}

/// Microseconds of node `row`'s passes over a batch at the least: products of its view, or of those that a layer on
/// tiles has, one for each of its factors. Where values do not go `through_memory`, as a block of threads takes a
/// sample through the whole network, only multiply-adds count.
[[nodiscard]] inline double least_us_of(const network_facts& net, const op_row& row, bool has_gradient, bool is_trained,
                                        device_speed speed, double samples, std::size_t bytes_each,
                                        bool through_memory) {
  if (speed.multiply_adds <= 0 || speed.bytes <= 0) return 0;
  double seconds = 0;
  // Multiply-adds and values of a sample, and what is read or written once.
  const auto pass = [&](double multiply_adds, double values, double once) {
    const double moved = through_memory ? (samples * values + once) * static_cast<double>(bytes_each) : 0;
    seconds += larger_of(samples * multiply_adds / speed.multiply_adds, moved / speed.bytes);
  };
  const double values = row.in_size + row.in2_size + row.out_size;
  const double multiply_adds = multiply_adds_of(net, row);
  double weights = 0;
  each_weight_view(net, row, [&](const affine_view& view) { weights += view.size(); });
  pass((attention_forward + (has_gradient ? attention_back : 0)) * attention_products(row.attention), 0, 0);
  pass(multiply_adds, values, weights);
  if (has_gradient) pass(multiply_adds, values, weights);
  for (int k = row.first_outer; k < row.last_outer && is_trained; ++k) {
    const outer_leaf& leaf = net.outer[static_cast<std::size_t>(k)];
    const affine_view& view = leaf.view;
    const double positions = view.positions();
    const double read = double(view.groups) * view.channels * view.pixels() + view.groups * view.outputs * positions;
    const double formed = leaf.by_ids != 0 ? 0 : multiply_adds_of(view);
    const double dots = positions * (positions + 1) / 2 * view.groups * (view.view_width() + view.outputs);
    const double kept = leaf.partials < 0 ? 0 : double(leaf.chunks) * view.size();
    pass(leaf.method == norm_method::gram      ? dots
         : leaf.method == norm_method::product ? 0
                                               : formed,
         read + 2 * kept, 0);
    if (kept > 0) {
      pass(kept, kept, view.size());
    } else if (leaf.method != norm_method::instantiate) {
      pass(formed, read, view.size());
    }
  }
  return 1e6 * seconds;
}

}  // namespace on_device

/// The rows of `describe<Network>(executor, batch)`.
template <class Network, on_device::device Device>
[[nodiscard]] auto describe_rows(const basic_device_executor<Device>& executor, max_batch batch = {256}) {
  using program = on_device::program<Network>;
  using structure = typename Network::structure;
  using detail::node_kind;
  constexpr const auto& table = program::table;
  using on_device::gemm_product;
  const auto way = [](const auto& of, auto which) {
    const on_device::gemm_way planned = on_device::way_of(of, which);
    return std::string_view{on_device::name_of(on_device::way_on<Device, typename Network::scalar>(planned))};
  };
  const on_device::device_speed speed = on_device::speed_of<Network>(executor);
  const bool holds = on_device::holds_samples_of<Network>(executor, batch);
  std::array<device_description, structure::size> rows;
  detail::for_each_layer<structure>([&]<class Layer>(std::type_identity<Layer> /*type*/, std::size_t i) {
    device_description& to = rows[i];
    const on_device::op_row& row = table.ops[i];
    to.layer = detail::name_of_layer<Layer>();
    to.in = structure::shapes[structure::inputs[i]];
    to.out = structure::shapes[i + 1];
    to.parameters = structure::parameter_counts[i];
    const bool is_trained = structure::trained_counts[i] > 0;
    if (row.out_size > 0) {
      const bool is_product = program::layered && !holds && row.kind == node_kind::affine;
      const bool has_gradient = row.input_gradient != 0 || row.input2_gradient != 0 ||
                                ((row.kind == node_kind::general || row.kind == node_kind::tiled) && row.backward != 0);
      const bool spreads = program::layered && on_device::stretches_of(row) > 0;
      const bool attends = program::layered && row.attention.heads > 0 && row.attention.projects == row.projected;
      const std::string_view by_sample = holds && row.taken_along == 0   ? "held sample kernel"
                                         : row.projected != 0 && attends ? "products and attention kernels"
                                         : attends                       ? "attention kernels"
                                         : row.projected != 0            ? "products and sample kernel"
                                         : row.taken_along != 0          ? "with the pool"
                                         : spreads                       ? "node kernel"
                                                                         : "sample kernel";
      const auto is_joined = [&](std::size_t product, bool back) {
        return program::layered && !holds && product < table.ops.size() &&
               on_device::joins_on<Device, typename Network::scalar>(table.ops[product], row, back);
      };
      to.forward = is_product ? way(row, false) : is_joined(i - 1, false) ? "with the product" : by_sample;
      if (has_gradient)
        to.backward = is_product ? way(row, true) : is_joined(i + 1, true) ? "with the product" : by_sample;
      to.least_us =
          on_device::least_us_of(on_device::facts_of<Network>, row, has_gradient, is_trained, speed,
                                 static_cast<double>(batch.count), sizeof(typename Network::scalar), program::layered);
    }
    if (to.parameters == 0) return;
    if (!is_trained || structure::owners[i] != i) {
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

/// A table of the network's entries on a device: who forms which product, how norms are found, who adds up, and how
/// long the device needs for a batch of `batch` at the least; with the plan, the accumulators of the sums and the bytes
/// that a tape for such batches takes there, all in one allocation. Then the kernels of a private step, with the time
/// that is predicted of each (see `describe_kernels`).
template <class Network, on_device::device Device>
[[nodiscard]] std::string describe(const basic_device_executor<Device>& executor, max_batch batch = {256}) {
  char line[512];
  std::string text;
  const auto print = [&](const auto&... values) {
    std::snprintf(line, sizeof line, values...);
    text += line;
  };
  constexpr const char* format = "%5s  %-28.28s %-14s %-14s %10s  %-30s %-30s %-11s %-30s %s\n";
  print(format, "entry", "layer", "in", "out", "parameters", "forward", "backward", "norm", "sum", "at least, us");
  std::size_t number = 0;
  double least_us = 0;
  for (const device_description& row : describe_rows<Network>(executor, batch)) {
    char least[32] = "-";
    if (row.least_us > 0) std::snprintf(least, sizeof least, "%.1f", row.least_us);
    least_us += row.least_us;
    print(format, std::to_string(number++).c_str(), row.layer.c_str(), detail::to_text(row.in).c_str(),
          detail::to_text(row.out).c_str(), std::to_string(row.parameters).c_str(), std::string{row.forward}.c_str(),
          std::string{row.backward}.c_str(), std::string{row.norm}.c_str(), std::string{row.sum}.c_str(), least);
  }
  using program = on_device::program<Network>;
  constexpr bool layered = program::layered;
  print("plan   %s\n", on_device::holds_samples_of<Network>(executor, batch)
                           ? "layered: a block holds a sample on its way forward and back; products form norms and sums"
                       : layered ? "layered: products of the whole batch, and between them a block a sample"
                                 : "fused: a block takes a sample through everything, in one launch");
  if (least_us > 0) {
    const on_device::device_speed speed = on_device::speed_of<Network>(executor);
    print("least  %.1f us for %zu samples, without noise and update: %.3g multiply-adds and %.3g bytes a second\n",
          least_us, batch.count, speed.multiply_adds, speed.bytes);
  }
  print(
      "total  %zu parameters, %d accumulators, %s, %zu bytes a sample's workspace, %zu bytes on the device for batches "
      "of up "
      "to %zu\n",
      Network::parameter_count, on_device::accumulator_count(on_device::facts_of<Network>),
      on_device::takes_bf16<Device> ? "BF16"
      : executor.options().tf32     ? "TF32"
                                    : "no TF32",
      static_cast<std::size_t>(program::table.workspace) * sizeof(typename Network::scalar),
      on_device::lay_out(on_device::facts_of<Network>, sizeof(typename Network::scalar), batch.count).bytes,
      batch.count);
  print("\n%8s %14s  %s\n", "blocks", "predicted, us", "kernels of a private step, one after the other");
  double step_us = 0;
  for (const kernel_description& each : describe_kernels<Network>(executor, batch)) {
    char predicted[32] = "-";
    if (each.predicted_us > 0) std::snprintf(predicted, sizeof predicted, "%.1f", each.predicted_us);
    step_us += each.predicted_us;
    print("%8d %14s  %s\n", each.blocks, predicted, each.kernel.c_str());
  }
  if (step_us > 0)
    print("step     %.1f us predicted for %zu samples, noise and update included\n", step_us, batch.count);
  return text;
}

}  // namespace pergrad::inline v0_1
