// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/run/kernel_list.hpp - what a private step launches on a device, and how long each kernel is likely to
// take
//
// The launches are the trainer's own: a device that only writes them down is told to do a step. The time of a kernel is
// the longer one of two, and what a launch takes: its multiply-adds, rows and columns that fill up blocks included, at
// the share of the device's peak that main loops have by their machine code (docs/cuda.md), by as many multiprocessors
// as its blocks keep busy; and its operands and results at the full bandwidth. Branches of the graph may run side by
// side, and bench/cuda/model.py knows more: instructions, chains, shared memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <pergrad/cuda/device/device.hpp>
#include <pergrad/cuda/kernels/pointwise.hpp>
#include <pergrad/cuda/kernels/release.hpp>
#include <pergrad/cuda/plan/gemm_door.hpp>
#include <pergrad/cuda/plan/program.hpp>
#include <pergrad/cuda/run/executor.hpp>
#include <pergrad/cuda/run/launches.hpp>
#include <pergrad/cuda/run/memory.hpp>

namespace pergrad::inline v0_1 {

/// One launch of a step.
struct kernel_description {
  std::string kernel;       ///< what it does
  int blocks = 0;           ///< of cuBLAS' kernels 0: it chooses them
  double predicted_us = 0;  ///< 0: the device does not say how fast it is
};

namespace on_device {

/// What a launch does, as far as its time is concerned.
struct listed_kernel {
  std::string what;
  int blocks = 0;
  double multiply_adds = 0;
  double bytes = 0;  ///< that go through memory
  bool on_tensor_cores = false;
  bool has_few_rows = false;  ///< a product, by blocks of 32 rows at most: each element read joins few products
};

/// f(view) for a sample's products with the weights of node `row`: of its view, or of those that a layer on tiles has,
/// one for each of its factors.
template <class Function>
void each_weight_view(const network_facts& net, const op_row& row, const Function& f) {
  if (row.kind == detail::node_kind::affine) return f(row.view);
  for (int k = row.first_outer; k < row.last_outer; ++k) {
    const outer_leaf& leaf = net.outer[static_cast<std::size_t>(k)];
    if (leaf.by_ids == 0) f(leaf.view);
  }
}
[[nodiscard]] inline double multiply_adds_of(const affine_view& view) noexcept {
  return static_cast<double>(view.size()) * view.positions();
}
[[nodiscard]] inline double multiply_adds_of(const network_facts& net, const op_row& row) {
  double all = 0;
  each_weight_view(net, row, [&](const affine_view& view) { all += multiply_adds_of(view); });
  return all;
}
/// Of attention: how many products of the size that follows.
inline constexpr double attention_forward = 2;
inline constexpr double attention_back = 5;
/// Pairs of positions that see each other, times the width of what they multiply.
[[nodiscard]] inline double attention_products(const attention_row& at) {
  const double positions = at.positions;
  return (at.causal != 0 ? positions * (positions + 1) / 2 : positions * positions) *
         (at.heads > 0 ? at.features() : at.by_layer);
}

/// In the place of an `Of`: takes launches of a network's step down, and does nothing. Its memory is not to be touched.
template <class Of>
class kernel_list_device {
 public:
  static constexpr bool is_only_listed = true;
  using tensor_format = typename tensor_format_of<Of>::type;
  struct graph {};
  struct mailbox {
    mailbox(kernel_list_device& /*device*/, std::size_t /*bytes*/) {}
    void post(const void* /*from*/, std::size_t /*bytes*/) {}
    [[nodiscard]] const void* wait() const noexcept { return nullptr; }
  };
  [[nodiscard]] void* allocate(std::size_t /*bytes*/) noexcept {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): an address, of memory that there need not be
    return reinterpret_cast<void*>(std::uintptr_t{1} << 40U);
  }
  void release(void* /*memory*/) noexcept {}
  void upload(void* /*to*/, const void* /*from*/, std::size_t /*bytes*/) {}
  void download(void* /*to*/, const void* /*from*/, std::size_t /*bytes*/) {}
  [[nodiscard]] std::shared_ptr<const std::byte> view(const void* /*memory*/, std::size_t /*bytes*/, bool /*streams*/) {
    return nullptr;
  }
  void fill_zero(void* /*to*/, std::size_t /*bytes*/) {}
  template <class Function>
  void beside(Function&& f) {
    f();
  }
  void join() {}
  template <class Function>
  [[nodiscard]] graph capture(Function&& /*f*/) {
    return {};
  }
  void replay(graph& /*recorded*/) {}
  [[nodiscard]] static std::size_t node_count(const graph& /*recorded*/) noexcept { return 0; }
  void synchronise() {}
  [[nodiscard]] static std::size_t most_shared_bytes() requires requires { Of::most_shared_bytes(); }
  { return Of::most_shared_bytes(); }
  void library_gemm(const gemm_call& call) requires has_library_gemm<Of> {
    const double m = call.m, n = call.n * static_cast<double>(call.count), k = call.k;
    add({"cuBLAS, " + sizes_of(call.m, call.k), 0, m * n * k, 4 * (m * k + k * n + m * n), call.tf32});
  }
  template <kernel Kernel>
  void launch(const Kernel& kernel, int blocks) {
    if (blocks <= 0) return;
    listed_kernel to = describe(kernel);
    to.blocks = blocks;
    add(std::move(to));
  }
  void add(listed_kernel kernel) { list.push_back(std::move(kernel)); }

  std::vector<listed_kernel> list;
  double samples = 0;
  double rest_of_sums = 0;  ///< bytes of a sample's gradients that no product adds up
  double of_rest = 0;       ///< and of what they are formed of

 private:
  [[nodiscard]] static std::string sizes_of(int rows, int columns) {
    return std::to_string(rows) + " x " + std::to_string(columns);
  }
  template <class Scalar, class Problem, class Sizes>
  [[nodiscard]] static listed_kernel describe(const gemm_kernel<Scalar, Problem, Sizes>& kernel) {
    const auto& problem = kernel.problem;
    const affine_view& view = problem.on.map.view;
    const double all = problem.on.most_samples;
    const auto filled = [](int count, int of_block) { return double(blocks_for(count, of_block)) * of_block / count; };
    listed_kernel to;
    to.what = name_of(problem) + (", " + sizes_of(view.outputs, view.view_width())) +
              (view.positions() > 1 ? ", " + std::to_string(view.positions()) + " positions" : "");
    to.multiply_adds =
        all * multiply_adds_of(view) * filled(problem.rows(), Sizes::rows) * filled(problem.columns(), Sizes::columns);
    const double values =
        double(view.groups) * (double(view.channels) * view.pixels() + double(view.outputs) * view.positions());
    to.bytes = (all * values + view.size()) * sizeof(Scalar);
    to.on_tensor_cores = Sizes::on_tensor_cores;
    to.has_few_rows = Sizes::rows <= 32;
    return to;
  }
  template <class Scalar, bool OnePosition, class Functions>
  [[nodiscard]] static bool is_forward(const affine_forward<Scalar, OnePosition, Functions>& /*of*/) {
    return true;
  }
  template <class Problem>
  [[nodiscard]] static bool is_forward(const Problem& /*of*/) {
    return false;
  }
  template <class Problem>
  [[nodiscard]] static std::string name_of(const Problem& problem) {
    if constexpr (Problem::squares) {
      return "norms by products";
    } else if constexpr (requires { problem.partials; }) {
      return "gradients";
    } else if constexpr (sums_samples<Problem> || adds_shares<Problem>) {
      return "sum";
    } else {
      return is_forward(problem) ? "product" : "product back";
    }
  }
  template <class Kernel>
  [[nodiscard]] listed_kernel describe(const Kernel& kernel) const {
    if constexpr (requires { kernel.gradients.chunks; }) {
      const auto& of = kernel.gradients;
      const double elements = double(of.size) * of.chunks * of.most_samples;
      return {"kept gradients", 0, elements, elements * sizeof(*of.partials)};
    } else if constexpr (requires { kernel.at.heads; }) {
      constexpr bool is_back = requires { Kernel::gradients_of; };
      const double values = double(kernel.at.positions) * kernel.at.features();
      const double products = attention_products(kernel.at) * (is_back ? 3 : 2);
      listed_kernel to{"attention", 0, samples * products, samples * values * 4 * 4};
      if constexpr (requires { typename Kernel::sizes; }) to.on_tensor_cores = Kernel::sizes::on_tensor_cores;
      return to;
    } else if constexpr (requires { kernel.by_products; }) {
      return {"other sums", 0, 0, samples * rest_of_sums};
    } else if constexpr (std::is_same_v<Kernel, clear_kernel>) {
      return {"sums set to zero", 0, 0, double(kernel.count) * sizeof(*kernel.sums)};
    } else if constexpr (requires { kernel.rule.bound; }) {
      return {"norms and weights", 0, 0, samples * kernel.results.square_stride * sizeof(double)};
    } else if constexpr (requires { kernel.at.lines; }) {
      const char* const name = requires { kernel.format; }
      ? "rounding" : "biases before a product";
      return {name, 0, 0, samples * kernel.at.lines * kernel.at.count * 8};
    } else {
      return {"gradients of biases and the like", 0, 0, samples * of_rest};
    }
  }
};

/// Who takes samples through nodes.
enum class node_taker : int {
  nodes,  ///< of a layered network, what is no product
  fused,  ///< a block takes a sample through everything
  held    ///< the same, and values stay in shared memory, but for what norms and sums read
};
/// What a kernel does that takes samples through nodes.
template <node_taker By>
[[nodiscard]] listed_kernel list_nodes(const network_facts& net, int first, int last, int stages, double samples,
                                       std::size_t bytes_each) {
  listed_kernel to;
  const bool goes_forward = (stages & stage::forward) != 0;
  const bool goes_back = (stages & stage::backward) != 0;
  const double passes = (goes_forward ? 1 : 0) + (goes_back ? 1 : 0);
  const double attended = (goes_forward ? attention_forward : 0) + (goes_back ? attention_back : 0);
  for (int i = first; i < last; ++i) {
    const op_row& row = net.ops[static_cast<std::size_t>(i)];
    const bool is_product = row.kind == detail::node_kind::affine;
    if (row.out_size == 0 || (is_product && By == node_taker::nodes)) continue;
    double products = multiply_adds_of(net, row);
    for (const projection_row& each : net.projections) {
      if (each.node == row.node) products -= multiply_adds_of(each.view);  // a kernel of its own
    }
    to.multiply_adds += samples * (passes * products + attended * attention_products(row.attention));
    const double values = double(row.in_size) + row.in2_size + row.out_size;
    const double moved = By != node_taker::held ? passes * values : is_product ? values : 0;
    to.bytes += samples * moved * static_cast<double>(bytes_each);
  }
  to.what = first + 1 == last ? "entry " + std::to_string(first)
                              : "entries " + std::to_string(first) + " to " + std::to_string(last - 1);
  to.what += goes_forward ? ", forward" : "";
  to.what += goes_back ? ", back" : "";
  return to;
}

template <class Network, node_taker By, class ListDevice>
void take_nodes(ListDevice& to, int first, int last, int stages, int blocks) {
  listed_kernel kernel =
      list_nodes<By>(facts_of<Network>, first, last, stages, to.samples, sizeof(typename Network::scalar));
  if constexpr (By == node_taker::held) kernel.what += ", in shared memory";
  kernel.blocks = blocks;
  to.add(std::move(kernel));
}

/// The launches of a private step of a network, in order, with plain SGD.
template <class Network, class Device>
[[nodiscard]] std::vector<listed_kernel> list_kernels(const basic_device_executor<Device>& executor, max_batch batch) {
  using scalar = typename Network::scalar;
  using list_device = kernel_list_device<Device>;
  using target = std::int32_t;
  using work_type = sample_work<scalar, target>;
  constexpr needed_products needed = products_of<Network>;
  constexpr const network_facts& net = facts_of<Network>;
  const auto device = std::make_shared<list_device>();
  device->samples = static_cast<double>(batch.count);
  for (const elementwise_leaf& leaf : net.elementwise) {
    const double positions = double(leaf.out[0]) * leaf.out[1] * leaf.out[2];
    device->rest_of_sums += double(leaf.count) * sizeof(scalar);
    device->of_rest += leaf.count * ((leaf.ones != 0 ? 1 : 2) * positions + 1) * sizeof(scalar);
  }
  network_memory<scalar, list_device> memory{
      device, batch.count, executor.options(), net, program<Network>::of_functions(), true};
  sample_launcher<list_device, scalar, target> kernels;
  kernels.samples = [](list_device& to, const work_type& work, int blocks) {
    take_nodes<Network, products_of<Network>.any ? node_taker::nodes : node_taker::fused>(to, work.first, work.last,
                                                                                          work.stages, blocks);
  };
  kernels.losses = [](list_device& to, const work_type& work, int samples) {
    to.add({"losses", blocks_for(samples, warp_size), 0, 2.0 * samples * work.output_size * sizeof(scalar)});
  };
  kernels.node = [](list_device& to, const node_work<scalar, target>& work) {
    const int stages = work.backward != 0 ? stage::backward : stage::forward;
    const int blocks = node_kernel<scalar, target, function_list<>>{work}.blocks();
    take_nodes<Network, node_taker::nodes>(to, work.row.node, work.row.node + 1, stages, blocks);
  };
  if constexpr (needed.joins || needed.joins_positions) {
    kernels.product =
        &launch_product<joined_part(needed, true), typename program<Network>::functions, list_device, scalar>;
  }
  if constexpr (net.held_products > 0) {
    kernels.held = [](list_device& to, const work_type& work, const held_memory& /*memory*/, int blocks) {
      take_nodes<Network, node_taker::held>(to, work.first, work.last, work.stages, blocks);
    };
  }
  const auto samples = memory.template samples<target>(nullptr, nullptr, 1, nullptr, nullptr);
  const launcher<list_device, scalar, target, needed> launch_step{memory, samples, kernels};
  const auto most = static_cast<int>(batch.count);
  launch_step.samples({.rule = {.kind = clip_rule::kind_type::flat, .bound = 1}, .clears = true, .samples = most});
  launch_step.sum_of_integers(
      {.weights = memory.template at<const scalar>(memory.places().weights), .grid_steps = 0, .samples = most});
  // A sum and parameters are read, parameters and what is released are written.
  device->add({"noise and update", blocks_for(static_cast<std::int64_t>(net.parameters), release_elements), 0,
               static_cast<double>(net.parameters) * (sizeof(std::int64_t) + 3 * sizeof(scalar))});
  return std::move(device->list);
}

/// Microseconds; 0: the device does not say how fast it is.
[[nodiscard]] inline double predicted_us(const listed_kernel& kernel, const device_speed& speed, bool is_bf16) {
  if (speed.multiply_adds <= 0 || speed.bytes <= 0) return 0;
  constexpr double of_launch = 1;  // from the end of a kernel to the next one's beginning, in a graph
  // Shares of a peak that main loops reach by their machine code (docs/cuda.md).
  const double of_floats = kernel.has_few_rows ? 0.7 : 0.8;
  const double of_tensors = kernel.has_few_rows ? 0.33 : 0.65;
  const double at_once = kernel.blocks > 0 ? speed.multiprocessors : 0;
  const double filled =
      at_once > 0 ? kernel.blocks / (at_once * static_cast<double>(blocks_for(kernel.blocks, speed.multiprocessors)))
                  : 1;
  const double peak = kernel.on_tensor_cores && speed.tensor_multiply_adds > 0
                          ? of_tensors * (is_bf16 ? 2 : 1) * speed.tensor_multiply_adds
                          : of_floats * speed.multiply_adds;
  return of_launch + 1e6 * larger_of(kernel.multiply_adds / (peak * filled), kernel.bytes / speed.bytes);
}

}  // namespace on_device

/// The kernels of a private step with `batch` samples, in the order in which they are launched: flat clipping, plain
/// SGD, and a loss of which threads take a sample each. A network's `describe` has them as a table.
template <class Network, on_device::device Device>
[[nodiscard]] std::vector<kernel_description> describe_kernels(const basic_device_executor<Device>& executor,
                                                               max_batch batch = {256}) {
  on_device::device_speed speed;
  if constexpr (requires { Device::speed(); }) speed = Device::speed();
  std::vector<kernel_description> rows;
  for (on_device::listed_kernel& each : on_device::list_kernels<Network>(executor, batch)) {
    const double us = on_device::predicted_us(each, speed, on_device::takes_bf16<Device>);
    rows.push_back({std::move(each.what), each.blocks, us});
  }
  return rows;
}

}  // namespace pergrad::inline v0_1
