// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/run/launches.hpp - the launches of one physical batch: samples to their norms and weights, then sums
//
// Fused networks: one launch and one launch. Layered ones: a product for every affine layer, forward and back, one for
// every norm that is found from the gradient's elements, and one for every sum, or one for some of its samples and a
// kernel that adds them up; between them nodes of many elements one by one, several blocks a sample, and the sample
// kernel for all others. Of networks that are small enough, a block holds a sample on its way forward and back.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include <pergrad/batch.hpp>
#include <pergrad/cuda/kernels/functions.hpp>
#include <pergrad/cuda/kernels/pointwise.hpp>
#include <pergrad/cuda/kernels/random.hpp>
#include <pergrad/cuda/kernels/samples.hpp>
#include <pergrad/cuda/kernels/sums.hpp>
#include <pergrad/cuda/layers/attention.hpp>
#include <pergrad/cuda/layers/held_samples.hpp>
#include <pergrad/cuda/plan/gemm_door.hpp>
#include <pergrad/cuda/run/memory.hpp>

namespace pergrad::inline v0_1::on_device {

/// What is asked of the samples of one physical batch.
template <class Scalar>
struct sample_launch {
  clip_rule rule{};
  method_choice method{};
  const random_stream* layers = nullptr;  ///< of the bits inside layers; nullptr: none
  bool backward = true;
  bool norms = true;
  bool gradients = false;  ///< as sums are formed
  bool clears = false;     ///< sets sums of integers to zero where they begin: sum_of_integers() follows
  Scalar* outputs = nullptr;
  int samples = 0;  ///< the most that there may be
};
/// One sum.
template <class Scalar>
struct sum_launch {
  method_choice method{};
  const Scalar* weights = nullptr;  ///< [layer][sample]; nullptr: all are 1
  bool per_layer = false;
  bool squares = false;
  bool gradients = false;  ///< formed of every sample's gradient, not as one product
  bool has_norms = false;  ///< they are these samples', found by the same method
  int grid_steps = -1;     ///< not negative: a sum of integers, of which a unit has 2^grid_steps steps
  int samples = 0;
};

/// Launch the kernels with a network's functions: the sample kernel in as many blocks as are given, losses of as many
/// samples where they have kernels of their own, a layered network's node kernel, products that nodes are joined to,
/// and samples that blocks hold. Null: nobody asks for it.
template <class Device, class Scalar, class Target>
struct sample_launcher {
  void (*samples)(Device& device, const sample_work<Scalar, Target>& work, int blocks) = nullptr;
  void (*losses)(Device& device, const sample_work<Scalar, Target>& work, int samples) = nullptr;
  void (*node)(Device& device, const node_work<Scalar, Target>& work) = nullptr;
  void (*product)(Device& device, gemm_product product, gemm_way way, const affine_operands<Scalar>& on,
                  const joined_node& joined) = nullptr;
  void (*held)(Device& device, const sample_work<Scalar, Target>& work, const held_memory& memory,
               int blocks) = nullptr;
};
/// Does a block hold a sample on its way forward and back, whose values are rounded or not? Where tensor cores form
/// products, they do that for the whole batch.
template <needed_products Needed, class Scalar, class Device>
[[nodiscard]] bool may_hold([[maybe_unused]] const Device& device, const network_facts& net, bool rounds, int samples) {
  if constexpr (requires { Device::most_shared_bytes(); }) {
    const std::size_t streamed = static_cast<std::size_t>(net.held_streamed) * sizeof(Scalar) *
                                 static_cast<std::size_t>(blocks_for(samples, net.held_together));
    return net.held_products > 0 && !(Needed.tensor_cores && rounds) && streamed <= most_streamed_bytes_of_launch &&
           held_bytes(net, net.input_size, sizeof(Scalar)) <= device.most_shared_bytes();
  }
  return false;
}
template <class Device, class Kernel>
void launch_held_kernel(Device& device, const typename Kernel::work_type& work, const held_memory& memory, int blocks) {
  device.launch(Kernel{work, memory}, blocks);
}
template <class Device, class Kernel>
void launch_sample_kernel(Device& device, const typename Kernel::work_type& work, int blocks) {
  device.launch(Kernel{work}, blocks);
}
template <class Device, class Kernel>
void launch_node_kernel(Device& device, const typename Kernel::work_type& work) {
  launch(device, Kernel{work});
}
/// Do threads share a loss?
template <class Network, class Loss>
inline constexpr bool losses_by_threads = takes_threads_by_position<Loss> ||
                                          (takes_threads_by_class<Loss> &&
                                           Network::output_shape.size() > most_outputs_of_thread);
template <class Device, class Network, class Loss, class Scalar = typename Network::scalar>
void launch_losses(Device& device, const sample_work<Scalar, typename Loss::template target<Scalar>>& work,
                   int samples) {
  if constexpr (losses_by_threads<Network, Loss>) {
    constexpr bool over_positions = takes_threads_by_position<Loss>;
    constexpr std::size_t classes = over_positions ? Network::output_shape.e1 : Network::output_shape.size();
    using kernel = position_loss_kernel<Scalar, Loss, classes <= 256>;
    device.launch(kernel{work},
                  blocks_for(std::int64_t{samples} * work.samples.target_count, kernel::positions_of_block));
    if constexpr (over_positions) {
      device.launch(loss_of_positions_kernel<Scalar, typename Loss::template target<Scalar>>{work}, samples);
    }
  } else {
    device.launch(loss_kernel<Scalar, Loss>{work}, blocks_for(samples, warp_size));
  }
}
/// Those of a network and a loss. Two networks with the same functions and blocks of the same size share them.
template <class Device, class Network, class Loss>
inline constexpr auto sample_launcher_of = [] {
  using scalar = typename Network::scalar;
  using target = typename Loss::template target<scalar>;
  using functions = typename program<Network>::functions;
  constexpr bool layered = products_of<Network>.any;
  static_assert(!takes_threads_by_position<Loss> ||
                Loss::target_count(Network::output_shape) == Network::output_shape.e0);
  constexpr bool losses_alone =
      layered && (losses_by_threads<Network, Loss> || Network::output_shape.size() <= most_outputs_of_thread);
  sample_launcher<Device, scalar, target> kernels;
  if constexpr (losses_alone) kernels.losses = &launch_losses<Device, Network, Loss>;
  if constexpr (!losses_alone || needs_sample_kernel<Network>) {
    kernels.samples =
        &launch_sample_kernel<Device, sample_kernel<scalar, Loss, functions, sample_threads<Network>, layered ? 1 : 0>>;
  }
  if constexpr (layered) kernels.node = &launch_node_kernel<Device, node_kernel<scalar, target, functions>>;
  if constexpr (products_of<Network>.joins || products_of<Network>.joins_positions) {
    kernels.product = &launch_product<joined_part(products_of<Network>, true), functions, Device, scalar>;
  }
  if constexpr (program<Network>::table.held_products > 0 && !takes_threads_by_position<Loss>) {
    constexpr int together = program<Network>::table.held_together;
    kernels.held = &launch_held_kernel<Device, held_sample_kernel<scalar, Loss, functions, together>>;
  }
  return kernels;
}();

/// `Needed`: the network's products.
template <class Device, class Scalar, class Target, needed_products Needed>
class launcher {
 public:
  using memory_type = network_memory<Scalar, Device>;
  using view_type = batch_view<Scalar, Target>;
  using launch_type = sample_launcher<Device, Scalar, Target>;

  launcher(memory_type& memory, const view_type& view, launch_type launch)
      : memory_{&memory}, net_{&memory.net()}, view_{view}, launch_{launch} {}

  void samples(const sample_launch<Scalar>& wanted) const {
    sample_work<Scalar, Target> work = make_work(wanted);
    if constexpr (!Needed.any) {
      work.stages = wanted.backward ? stage::fused : stage::forward | stage::loss;
      work.held_room = held_room(0, node_count());
      launch_.samples(device(), work, wanted.samples);
      if (wanted.clears) clear_sums(wanted.samples, false);
    } else {
      if (wanted.samples == 0) return;
      const auto run = [&](int first, int last, int stages) {
        work.first = first;
        work.last = last;
        work.stages = stages;
        if (stages == stage::loss) return launch_.losses(device(), without_key(work), wanted.samples);
        const bool by_parts = (stages & (stage::trim | stage::part | stage::finish)) != 0;
        work.layer_parts = by_parts ? net_->ops[static_cast<std::size_t>(first)].parts : 1;
        work.held_room = by_parts ? 0 : held_room(first, last);
        launch_.samples(device(), work, wanted.samples * work.layer_parts);
        work.layer_parts = 1;
      };
      const bool held =
          launch_.held != nullptr && may_hold<Needed, Scalar>(device(), *net_, memory_->rounds(), wanted.samples);
      if (!held) forward(wanted, run);
      if (wanted.backward && wanted.clears) device().beside([&] { clear_sums(wanted.samples, true); });
      if (held) {
        work.stages = stage::forward | stage::loss | (wanted.backward ? stage::backward : 0);
        launch_.held(device(), without_key(work), held_memory_of(), blocks_for(wanted.samples, net_->held_together));
      }
      if (!wanted.backward) return;
      if (!held) backward(wanted, run);
      if (wanted.norms) {
        const method_choice method = method_of(wanted);
        each_product_leaf([&](const outer_leaf& leaf) { return forms_gradients(leaf, method); },
                          [&](const outer_leaf& leaf) { square(wanted, leaf); });
      }
      elementwise(wanted.samples);
      device().join();
      work.stages = stage::layered_leaves | stage::weigh;
      device().launch(norm_kernel<Scalar, Target, Needed.norms_by_blocks>{without_key(work)}, wanted.samples);
    }
  }

  /// Forms the accumulators of one sum, of integers if it has a grid.
  void sum(const sum_launch<Scalar>& wanted) const {
    wanted.grid_steps < 0 ? form_sum<Scalar>(wanted) : form_sum<std::int64_t>(wanted);
  }
  /// The same where it has one: no other is compiled.
  /// Behind samples() that cleared it and found norms by the plan's methods: gradients that these leave are there.
  void sum_of_integers(const sum_launch<Scalar>& wanted) const { form_sum<std::int64_t, true>(wanted); }

 private:
  [[nodiscard]] Device& device() const { return memory_->device(); }

  [[nodiscard]] sample_work<Scalar, Target> make_work(const sample_launch<Scalar>& wanted) const {
    const arena_layout& places = memory_->places();
    const bool random = wanted.layers != nullptr && net_->draws;
    return {.state = memory_->state(),
            .tables = memory_->tables(),
            .samples = view_,
            .parameters = memory_->parameters(),
            .results = {.losses = memory_->template at<double>(places.losses),
                        .position_losses = memory_->template at<double>(places.position_losses),
                        .norms = memory_->template at<norm_bound>(places.norms),
                        .squares = memory_->template at<double>(places.squares),
                        .weights = memory_->template at<Scalar>(places.weights),
                        .layer_stride = wanted.rule.per_layer() ? static_cast<int>(memory_->max_batch()) : 0,
                        .square_stride = net_->squares,
                        .outputs = wanted.outputs},
            .rule = wanted.rule,
            .method = method_of(wanted),
            .layers = random ? *wanted.layers : random_stream{},
            .random = random ? 1 : 0,
            .output = net_->output,
            .output_gradient = net_->output_gradient,
            .output_size = static_cast<int>(net_->output_size),
            .output_lengths = net_->output_lengths,
            .output_positions = static_cast<int>(net_->output_positions),
            .norms = wanted.norms ? 1 : 0,
            .format = memory_->format(),
            .stages = stage::fused,
            .first = 0,
            .last = node_count()};
  }
  /// For a kernel that draws no bits inside layers.
  [[nodiscard]] static sample_work<Scalar, Target> without_key(sample_work<Scalar, Target> work) {
    work.layers = {};
    work.random = 0;
    return work;
  }
  [[nodiscard]] int node_count() const noexcept { return static_cast<int>(net_->ops.size()); }
  [[nodiscard]] held_memory held_memory_of() const {
    return {memory_->template at<const held_product>(memory_->places().products), net_->held_weights, net_->held_copies,
            net_->held_tile};
  }
  /// Products form sums, and tensor cores gradients, unless sums are formed of every sample's own.
  template <class Wanted>
  [[nodiscard]] method_choice method_of(const Wanted& wanted) const {
    method_choice method = wanted.method;
    method.by_products = Needed.any && !wanted.gradients ? 1 : 0;
    method.on_tensor_cores = Needed.tensor_cores && memory_->rounds() && !wanted.gradients ? 1 : 0;
    return method;
  }
  [[nodiscard]] stored_format format_of(const method_choice& method) const {
    return method.on_tensor_cores != 0 ? memory_->format() : stored_format::exact;
  }

  [[nodiscard]] affine_operands<Scalar> operands(const affine_view& view, int x, int y, int samples) const {
    return {.map = geometry{view},
            .values = {.workspace = view_.workspaces,
                       .stretch = view_.workspace,
                       .inputs = view_.inputs,
                       .ids = view_.records,
                       .input_size = view_.input_size},
            .state = memory_->state(),
            .x = x,
            .y = y,
            .most_samples = samples};
  }
  /// Of a node, with `in` and `out` its values or its gradients: an adjoint's input is the view's y.
  [[nodiscard]] affine_operands<Scalar> operands(const op_row& row, int in, int out, int samples) const {
    return row.adjoint != 0 ? operands(row.view, out, in, samples) : operands(row.view, in, out, samples);
  }
  [[nodiscard]] static constexpr bool is_product(const op_row& row) {
    return row.kind == node_kind::affine && row.out_size > 0;
  }

  template <class Run>
  void forward(const sample_launch<Scalar>& wanted, const Run& run) const {
    int waiting = 0;  // nodes from here on have not been launched
    const auto catch_up = [&](int end) {
      if (does_something(waiting, end)) run(waiting, end, stage::forward);
      waiting = end;
    };
    for (int i = 0; i < node_count(); ++i) {
      const op_row& row = net_->ops[static_cast<std::size_t>(i)];
      if (row.projected != 0) {
        catch_up(i);
        project(row, true, wanted.samples);
        if (!has_projections_behind(row)) {
          if (in_parts(row, wanted.samples)) waiting = forward_in_parts(i, run, wanted.samples);
          if (held_room(i, i + 1) > 0) catch_up(i + 1);  // others would have few blocks on a multiprocessor
          continue;
        }
        if (attends(row)) {
          attend(row, wanted.samples);
          waiting = i + 1;
        } else if (in_parts(row, wanted.samples)) {
          run(i, i + 1, stage::forward | stage::part);
          waiting = i + 1;
        } else {
          catch_up(i + 1);
        }
        project(row, false, wanted.samples);
        if (row.out_lengths >= 0) run(i, i + 1, stage::forward | stage::trim);
        continue;
      }
      if (attends(row) || in_parts(row, wanted.samples)) {
        catch_up(i);
        waiting = forward_in_parts(i, run, wanted.samples);
        continue;
      }
      if (stretches_of(row) > 0) {
        catch_up(i);
        if (row.taken_along == 0) run_node(row, false, wanted.samples);
        waiting = i + 1;
        continue;
      }
      if (!is_product(row)) continue;
      catch_up(i);
      auto on = operands(row, row.in, row.out, wanted.samples);
      on.weights = memory_->parameters() + row.parameters;
      on.format = memory_->format();
      on.result_format = row.handed_on != 0 ? on.format : stored_format::exact;
      on.bias = row.bias < 0 ? nullptr : memory_->parameters() + row.bias;
      const op_row* const next = i + 1 < node_count() ? &row + 1 : nullptr;
      const bool joined = next != nullptr && joins_on<Device, Scalar>(row, *next, false);
      multiply(product_of(row, false), way_of(row, false), on,
               joined ? joined_with(*next, next->handed_on != 0 ? on.format : stored_format::exact) : joined_node{});
      if (joined) ++i;
      waiting = row.out_lengths < 0 ? i + 1 : i;
    }
    if (launch_.losses == nullptr) return run(waiting, node_count(), stage::forward | stage::loss);
    catch_up(node_count());
    run(0, 0, stage::loss);
  }
  template <class Run>
  void backward(const sample_launch<Scalar>& wanted, const Run& run) const {
    int waiting = node_count();
    const auto catch_up = [&](int begin) {
      if (does_something(begin, waiting)) run(begin, waiting, stage::backward);
      waiting = begin;
    };
    for (int i = node_count(); i-- > 0;) {
      const op_row& row = net_->ops[static_cast<std::size_t>(i)];
      if (row.projected != 0 && row.backward != 0) {
        if (has_projections_behind(row)) {
          catch_up(i + 1);
          if (row.out_lengths >= 0) run(i, i + 1, stage::backward | stage::trim);
          project_back(row, false, wanted.samples);
        }
        if (attends(row) || in_parts(row, wanted.samples)) {
          catch_up(i + 1);
          waiting = backward_in_parts(i, run, wanted.samples);
        } else {
          if (held_room(i, i + 1) > 0) catch_up(i + 1);
          catch_up(i);
        }
        project_back(row, true, wanted.samples);
        continue;
      }
      if (attends(row) || in_parts(row, wanted.samples)) {
        catch_up(i + 1);
        waiting = row.backward != 0 ? backward_in_parts(i, run, wanted.samples) : i;
        continue;
      }
      if (stretches_of(row) > 0) {
        catch_up(i + 1);
        if (row.backward != 0 && row.taken_along == 0) run_node(row, true, wanted.samples);
        waiting = i;
        continue;
      }
      if (!is_product(row)) continue;
      catch_up(row.out_lengths < 0 ? i + 1 : i);
      waiting = i;
      if (row.input_gradient == 0) continue;
      auto on = operands(row, row.dx, row.dy, wanted.samples);
      on.weights = memory_->parameters() + row.parameters;
      on.accumulate = row.accumulate;
      on.format = on.result_format = memory_->format();
      const op_row* const before = i > 0 ? &row - 1 : nullptr;
      const bool joined = before != nullptr && joins_on<Device, Scalar>(row, *before, true);
      multiply(product_of(row, true), way_of(row, true), on, joined ? joined_with(*before, on.format) : joined_node{});
      if (joined) waiting = --i;
    }
    catch_up(0);
  }
  /// Does a layer go by its parts? Where samples alone keep a device busy, launches that take several nodes are better.
  [[nodiscard]] static bool in_parts(const op_row& row, int samples) {
    constexpr int most = 256;
    return row.parts > 1 && samples <= most;
  }
  /// A layer in parts, a block for each of a sample's, and what its threads do behind them; up to where nodes have run.
  template <class Run>
  [[nodiscard]] int forward_in_parts(int i, const Run& run, int samples) const {
    const op_row& row = net_->ops[static_cast<std::size_t>(i)];
    if (attends(row)) {
      attend(row, samples);
    } else {
      run(i, i + 1, stage::forward | stage::part);
    }
    if (row.out_lengths >= 0 || (memory_->rounds() && row.handed_on != 0)) run(i, i + 1, stage::forward | stage::trim);
    return i + 1;
  }
  template <class Run>
  [[nodiscard]] int backward_in_parts(int i, const Run& run, int samples) const {
    const op_row& row = net_->ops[static_cast<std::size_t>(i)];
    if (row.out_lengths >= 0 && !has_projections_behind(row)) run(i, i + 1, stage::backward | stage::trim);
    if (attends(row)) {
      attend_backward(row, samples);
    } else {
      run(i, i + 1, stage::backward | stage::part);
    }
    if (memory_->rounds() || row.accumulate != 0 || row.accumulate2 != 0)
      run(i, i + 1, stage::backward | stage::finish);
    return i;
  }
  /// Has a layer kernels of its own? Where its projections are not products of the batch, or a block has not so much
  /// shared memory, its own code runs.
  [[nodiscard]] bool attends([[maybe_unused]] const op_row& row) const {
    if constexpr (Needed.attention > 0 && requires { Device::most_shared_bytes(); }) {
      bool has_room = false;
      with_attention_sizes([&]<class Sizes>(Sizes) {
        has_room = sizeof(typename Sizes::shared_type) + Sizes::bytes(row.attention.width, 2, 2) <=
                   device().most_shared_bytes();
      });
      return row.attention.heads > 0 && row.attention.projects == row.projected && has_room;
    }
    return false;
  }
  /// f(the sizes of attention's tiles): on tensor cores where values are rounded for them.
  template <class Function>
  void with_attention_sizes(Function&& f) const {
    constexpr int columns = blocks_for(Needed.attention, attention_sizes<Scalar, 1, false>::across);
    if constexpr (std::is_same_v<Scalar, float>) {
      if (memory_->rounds()) return f(attention_sizes<Scalar, columns, true>{});
    }
    f(attention_sizes<Scalar, columns, false>{});
  }
  using attention_type = attention_work<Scalar, Target>;
  [[nodiscard]] attention_type attention_of(const op_row& row, int samples) const {
    attention_type work{.state = memory_->state(), .samples = view_, .at = row.attention, .most_samples = samples};
    work.at.lengths = row.in_lengths;
    work.context = row.saved + row.attention.context;
    return work;
  }
  void attend([[maybe_unused]] const op_row& row, [[maybe_unused]] int samples) const {
    if constexpr (Needed.attention > 0) {
      attention_type work = attention_of(row, samples);
      work.from = row.projected != 0 ? row.saved : row.in;
      if (row.projected == 0) {
        work.copy_to = row.saved;
        work.also_to = row.out;
      }
      with_attention_sizes(
          [&]<class Sizes>(Sizes) { launch(device(), attention_kernel<Scalar, Target, Sizes>{work}); });
    }
  }
  void attend_backward([[maybe_unused]] const op_row& row, [[maybe_unused]] int samples) const {
    if constexpr (Needed.attention > 0) {
      if (row.projected == 0 && row.input_gradient == 0) return;
      attention_type work = attention_of(row, samples);
      const int free = row.back_scratch + row.attention.room;
      work.from = row.saved;
      work.dy = row.projected != 0 ? row.back_scratch : row.dy;
      work.gradients_to = row.projected != 0 ? row.saved : row.written_dx;
      work.queries_to = row.projected != 0 ? free : row.written_dx;
      work.queries_step = row.projected != 0 ? row.attention.features() : row.attention.row_step();
      work.notes = free + row.attention.positions * row.attention.features();
      with_attention_sizes([&]<class Sizes>(Sizes) {
        launch(device(), attention_queries_kernel<Scalar, Target, Sizes>{work});
        launch(device(), attention_keys_kernel<Scalar, Target, Sizes>{work});
      });
      if (row.projected != 0) launch(device(), move_queries_kernel<Scalar, Target>{work});
    }
  }
  [[nodiscard]] static joined_node joined_with(const op_row& node, stored_format format) {
    return {node.function, node.in, node.out, node.dx, node.accumulate, format};
  }
  void multiply(gemm_product product, gemm_way way, const affine_operands<Scalar>& on,
                const joined_node& joined = {}) const {
    const bool knows_nodes = is_of_one_position(product, on.map.view) ? Needed.joins : Needed.joins_positions;
    if (knows_nodes && !is_by_library<Device>(product, way, on)) {
      return launch_.product(device(), product, way, on, joined);
    }
    launch_product<joined_part(Needed, false)>(device(), product, way, on);
  }
  void run_node(const op_row& row, bool back, int samples) const {
    joined_node joined;
    if (row.node > 0 && (&row - 1)->taken_along != 0) {
      const op_row& before = *(&row - 1);
      joined = joined_with(before, before.handed_on != 0 ? memory_->format() : stored_format::exact);
    }
    launch_.node(device(), {.state = memory_->state(),
                            .samples = view_,
                            .divisors = memory_->tables().scalars,
                            .row = row,
                            .joined = joined,
                            .backward = back ? 1 : 0,
                            .format = memory_->format(),
                            .stretches = stretches_of(row),
                            .most_samples = samples});
  }
  void elementwise(int samples) const {
    if (net_->elementwise_squares == 0) return;
    launch(device(),
           elementwise_kernel<Scalar, Target>{.state = memory_->state(),
                                              .tables = memory_->tables(),
                                              .samples = view_,
                                              .squares = memory_->template at<double>(memory_->places().squares),
                                              .stride = net_->squares,
                                              .blocks_of_sample = net_->elementwise_squares,
                                              .most_samples = samples});
  }
  [[nodiscard]] bool has_projections_behind(const op_row& row) const {
    return std::ranges::any_of(net_->projections,
                               [&](const projection_row& each) { return each.node == row.node && !each.reads_input; });
  }
  /// Those of a layer on tiles that read its input, or its saved values.
  void project(const op_row& row, bool reads_input, int samples) const {
    for (const projection_row& each : net_->projections) {
      if (each.node != row.node || each.reads_input != reads_input) continue;
      auto on = operands(each.view, each.x, each.y, samples);
      on.weights = memory_->parameters() + each.weights;
      on.bias = each.bias < 0 ? nullptr : memory_->parameters() + each.bias;
      on.format = on.result_format = memory_->format();
      if constexpr (Needed.projects_kept) {  // nobody else has rounded that
        if (on.format != stored_format::exact && !reads_input) {
          const lines_of_samples x{on.x, each.view.channels, each.view.positions(), each.view.x_step[1]};
          launch(device(), rounding_kernel<Scalar, 128>{{on.values, on.state, on.most_samples, x}, on.format});
        }
      }
      multiply(gemm_product::forward, choose_gemm(gemm_product::forward, each.view, each.x >= 0), on);
    }
  }
  void project_back(const op_row& row, bool reads_input, int samples) const {
    for (const projection_row& each : net_->projections) {
      if (each.node != row.node || each.reads_input != reads_input || !each.wants_gradient) continue;
      auto on = operands(each.view, each.dx, each.dy, samples);
      on.weights = memory_->parameters() + each.weights;
      on.accumulate = each.accumulate;
      on.format = on.result_format = memory_->format();
      multiply(gemm_product::adjoint, choose_gemm(gemm_product::adjoint, each.view, true), on);
    }
  }
  /// Scalars of shared memory for the largest matrix that one of these nodes reads at every position, if there is room
  /// for it: where it is not held it is read from caches.
  [[nodiscard]] int held_room(int first, int last) const {
    if constexpr (!requires { Device::most_shared_bytes(); }) return 0;
    constexpr std::size_t others = 4096;  // at most, of the kernel's own
    int room = 0;
    for (int i = first; i < last; ++i) {
      const int size = net_->ops[static_cast<std::size_t>(i)].held_size();
      if (size > room && static_cast<std::size_t>(size) * sizeof(Scalar) + others <= device().most_shared_bytes()) {
        room = size;
      }
    }
    return room;
  }
  [[nodiscard]] bool does_something(int first, int last) const {
    for (int i = first; i < last; ++i) {
      if (net_->ops[static_cast<std::size_t>(i)].out_size > 0) return true;
    }
    return false;
  }
  /// f(leaf) of every leaf that is wanted and whose sum products form, each beside all others and what comes next; but
  /// leaves in chunks that are not kept share memory for their gradients and come one after the other. Of one position
  /// first: they have few blocks, which would wait for room behind those that fill a device.
  template <class Wanted, class Function>
  void each_product_leaf(const Wanted& is_wanted, const Function& f) const {
    const auto each = [&](bool shares_memory, bool has_one_position, const auto& use) {
      for (const outer_leaf& leaf : net_->outer) {
        if (!is_one_product(leaf) || !is_wanted(leaf)) continue;
        const bool is_meant = shares_memory == (leaf.is_stored() && leaf.partials < 0) &&
                              has_one_position == (leaf.view.positions() == 1);
        if (is_meant) use(leaf);
      }
    };
    for (const bool has_one_position : {true, false}) {
      each(false, has_one_position, [&](const outer_leaf& leaf) { device().beside([&] { f(leaf); }); });
    }
    if constexpr (Needed.chunks) device().beside([&] { each(true, false, f); });
  }
  /// Do norms form the gradients of a leaf?
  [[nodiscard]] static bool forms_gradients(const outer_leaf& leaf, const method_choice& method) {
    const norm_method chosen = method.of(leaf);
    return chosen != norm_method::product && chosen != norm_method::gram && !method.adds_without_chunks(leaf);
  }
  void square(const sample_launch<Scalar>& wanted, const outer_leaf& leaf) const {
    const method_choice method = method_of(wanted);
    double* const to = memory_->template at<double>(memory_->places().squares) + leaf.squares;
    if constexpr (Needed.chunks) {
      if (leaf.chunks > 1) {
        return for_each_partial(leaf, wanted.samples, format_of(method), false,
                                [&](const partial_gradients<Scalar>& gradients) {
                                  launch(device(), square_partials_kernel<Scalar>{gradients, to, net_->squares});
                                });
      }
    }
    affine_squares<Scalar> problem;
    problem.on = operands(leaf.view, leaf.x, leaf.delta, wanted.samples);
    problem.on.format = leaf.view.positions() > 1 ? format_of(method) : stored_format::exact;
    problem.partial = to;
    problem.partial_stride = net_->squares;
    problem.blocks = leaf.square_count / leaf.view.groups;
    if (Needed.stored && leaf.partials >= 0) problem.gradients = kept_gradients(leaf);
    launch_gemm<Scalar, Needed.squares, Needed.tensor_cores>(device(), way_of(leaf, gemm_product::squares), problem);
  }
  template <class Sum, bool Follows = false>
  void form_sum(const sum_launch<Scalar>& wanted) const {
    const arena_layout& places = memory_->places();
    const auto to_grid = static_cast<Scalar>(std::ldexp(1.0, std::max(0, wanted.grid_steps)));
    constexpr bool is_integral = std::is_integral_v<Sum>;
    if (is_integral && has_small_shares && wanted.grid_steps > shares_type::steps) {
      throw std::logic_error(
          "pergrad: cuda: a sum has more steps of its grid in a unit than its network's shares allow");
    }
    const bool by_products = Needed.any && !wanted.squares && !wanted.gradients;
    if constexpr (is_integral && !Follows) clear_sums(wanted.samples, by_products);
    constexpr bool of_elementwise = Follows && Needed.any && Needed.others_elementwise;
    sum_kernel<Scalar, Target, Sum, sum_threads, of_elementwise> kernel{
        .state = memory_->state(),
        .tables = memory_->tables(),
        .samples = view_,
        .method = method_of(wanted),
        .weights = wanted.weights,
        .layer_stride = wanted.per_layer ? static_cast<int>(memory_->max_batch()) : 0,
        .squares = wanted.squares ? 1 : 0,
        .accumulators = accumulator_count(*net_),
        .by_products = by_products ? 1 : 0,
        .to_grid = to_grid,
        .sums = memory_->template at<Sum>(places.sums)};
    const int blocks = leaf_blocks(*net_, by_products);
    if (is_integral) kernel.accumulators = parts_for(blocks, wanted.samples / 4);
    if constexpr (Needed.any) {
      if (by_products) {
        each_product_leaf([](const outer_leaf& /*leaf*/) { return true; },
                          [&](const outer_leaf& leaf) { sum_of_leaf<Sum, Follows>(wanted, leaf, to_grid); });
      }
    }
    device().launch(kernel, blocks * kernel.accumulators);
    device().join();
  }
  template <class Sum, bool Follows>
  void sum_of_leaf(const sum_launch<Scalar>& wanted, const outer_leaf& leaf, Scalar to_grid) const {
    if (leaf.view.positions() == 1) {
      if constexpr (Needed.sums != 0) sum_of_products<Sum>(wanted, leaf, to_grid);
      return;
    }
    if constexpr (std::is_integral_v<Sum>) {
      if (!leaf.is_stored()) return sum_of_shares(wanted, leaf, to_grid);
    }
    if constexpr (!std::is_integral_v<Sum> || Needed.stored) sum_of_partials<Sum, Follows>(wanted, leaf, to_grid);
  }
  /// Parts of the samples that add to a sum of integers side by side, with so many blocks each: no more than a large
  /// device holds at once, as a few that wait for the others to end cost as much as all.
  [[nodiscard]] static int parts_for(int blocks, int most) noexcept {
    constexpr int blocks_of_launch = 512;
    return larger_of(1, smaller_of(blocks_of_launch / larger_of(1, blocks), most));
  }
  /// Of this network's sums of integers.
  static constexpr share_kind kind_of_shares = std::is_same_v<Scalar, float> ? Needed.shares : share_kind::any;
  using shares_type = small_shares<kind_of_shares>;
  static constexpr bool has_small_shares = kind_of_shares != share_kind::any;
  /// Parts of the samples, and no more samples each than small shares allow.
  [[nodiscard]] static int parts_of_integers(int blocks, int most, int samples) noexcept {
    const int parts = parts_for(blocks, most);
    return has_small_shares ? larger_of(parts, blocks_for(samples, shares_type::most)) : parts;
  }
  /// Parts of the samples that add to a leaf's sum of integers over one position: 32 each, or 64 where they would be
  /// many.
  [[nodiscard]] static int parts_of_products(const outer_leaf& leaf, int samples) noexcept {
    const int most = larger_of(smaller_of(samples / 32, 16), samples / 64);
    return parts_of_integers(gradient_blocks(leaf.view), most, samples);
  }
  /// Is it one part of so many integers that it is written where the logical batch begins, and not set to zero before?
  [[nodiscard]] static bool begins_sum(const outer_leaf& leaf, int samples) noexcept {
    constexpr int least_size = 1 << 20;
    return Needed.sums != 0 && is_one_product(leaf) && leaf.view.positions() == 1 && leaf.size() >= least_size &&
           parts_of_products(leaf, samples) == 1;
  }
  /// Sets the others to zero where the logical batch begins.
  void clear_sums(int samples, bool by_products) const {
    auto* const sums = memory_->template at<std::int64_t>(memory_->places().sums);
    std::vector<const outer_leaf*> written;
    for (const outer_leaf& leaf : net_->outer) {
      if (by_products && begins_sum(leaf, samples)) written.push_back(&leaf);
    }
    std::ranges::sort(written, {}, &outer_leaf::parameters);
    std::int64_t begin = 0;
    const auto clear = [&](std::int64_t end) {
      if (begin < end) launch(device(), clear_kernel{memory_->state(), sums + begin, end - begin});
    };
    for (const outer_leaf* leaf : written) {
      clear(leaf->parameters);
      begin = std::int64_t{leaf->parameters} + leaf->size();
    }
    clear(static_cast<std::int64_t>(net_->parameters));
  }
  void sum_of_shares(const sum_launch<Scalar>& wanted, const outer_leaf& leaf, Scalar to_grid) const {
    affine_shares<Scalar, kind_of_shares> problem;
    problem.on = operands(leaf.view, leaf.x, leaf.delta, wanted.samples);
    problem.on.format = format_of(method_of(wanted));
    problem.factors = weights_of(wanted, leaf);
    problem.to_grid = to_grid;
    if constexpr (has_small_shares) problem.shares = shares_type{to_grid};
    problem.sums = memory_->template at<std::int64_t>(memory_->places().sums) + leaf.parameters;
    if constexpr (Needed.gradients != 0)
      launch_gemm<Scalar, Needed.gradients, Needed.tensor_cores>(device(), way_of(leaf, gemm_product::sums), problem);
  }
  [[nodiscard]] const Scalar* weights_of(const sum_launch<Scalar>& wanted, const outer_leaf& leaf) const {
    if (wanted.weights == nullptr) return nullptr;
    return wanted.weights + (wanted.per_layer ? static_cast<std::size_t>(leaf.layer) * memory_->max_batch() : 0);
  }
  template <class Sum>
  void sum_of_products(const sum_launch<Scalar>& wanted, const outer_leaf& leaf, Scalar to_grid) const {
    constexpr bool is_integral = std::is_integral_v<Sum>;
    affine_sums<Scalar, Sum, is_integral ? kind_of_shares : share_kind::any> problem;
    problem.on = operands(leaf.view, leaf.x, leaf.delta, wanted.samples);
    problem.factors = weights_of(wanted, leaf);
    problem.to_grid = to_grid;
    if constexpr (is_integral && has_small_shares) problem.shares = shares_type{to_grid};
    problem.accumulators = memory_->template at<Sum>(memory_->places().sums) + leaf.parameters;
    problem.accumulator_stride = static_cast<std::int64_t>(net_->parameters);
    problem.accumulator_count = is_integral ? parts_of_products(leaf, wanted.samples) : accumulator_count(*net_);
    problem.begins = is_integral && begins_sum(leaf, wanted.samples) ? 1 : 0;
    launch_gemm<Scalar, Needed.sums>(device(), way_of(leaf, gemm_product::sums), problem);
  }
  /// Forms the gradients of a leaf of several positions, for some samples at a time, or for all if they are kept, and
  /// calls f(them) for each time. `are_there`: those that are kept have been formed.
  template <class Function>
  void for_each_partial(const outer_leaf& leaf, int samples, stored_format format, bool are_there,
                        const Function& f) const {
    const arena_layout& places = memory_->places();
    auto* partials = memory_->template at<Scalar>(places.partials);
    int together = samples_together(leaf, memory_->max_batch());
    if (leaf.partials >= 0) {
      partials = kept_gradients(leaf);
      together = larger_of(1, samples);
      if (are_there) return f(gradients_at(leaf, partials, 0, samples));
    }
    for (int first = 0; first == 0 || first < samples; first += together) {
      const int count = smaller_of(together, samples - first);
      affine_partials<Scalar> problem;
      problem.on = operands(leaf.view, leaf.x, leaf.delta, count);
      problem.on.format = format;
      problem.partials = partials;
      problem.first_sample = first;
      problem.chunks = divisor{leaf.chunks};
      problem.chunk = blocks_for(leaf.view.positions(), leaf.chunks);
      if constexpr (Needed.gradients != 0) {
        launch_gemm<Scalar, Needed.gradients, Needed.tensor_cores>(device(), way_of(leaf, gemm_product::sums), problem);
      }
      f(gradients_at(leaf, partials, first, count));
    }
  }
  [[nodiscard]] Scalar* kept_gradients(const outer_leaf& leaf) const {
    return memory_->template at<Scalar>(memory_->places().kept_partials) +
           static_cast<std::size_t>(leaf.partials) * memory_->max_batch();
  }
  [[nodiscard]] partial_gradients<Scalar> gradients_at(const outer_leaf& leaf, const Scalar* partials, int first,
                                                       int count) const {
    return {memory_->state(), partials, first, count, leaf.chunks, leaf.size()};
  }
  template <class Sum, bool Follows>
  void sum_of_partials(const sum_launch<Scalar>& wanted, const outer_leaf& leaf, Scalar to_grid) const {
    const auto fold = [&](const partial_gradients<Scalar>& gradients) {
      launch(device(), fold_partials_kernel<Scalar, Sum>{
                           .gradients = gradients,
                           .factors = weights_of(wanted, leaf),
                           .to_grid = to_grid,
                           .accumulators = memory_->template at<Sum>(memory_->places().sums) + leaf.parameters,
                           .accumulator_stride = static_cast<std::int64_t>(net_->parameters),
                           .accumulator_count = accumulator_count(*net_)});
    };
    if constexpr (Follows && !Needed.chunks) {  // no kernel that forms them is compiled
      fold(gradients_at(leaf, kept_gradients(leaf), 0, wanted.samples));
    } else {
      const method_choice method = method_of(wanted);
      const bool are_there = Follows || (wanted.has_norms && forms_gradients(leaf, method));
      for_each_partial(leaf, wanted.samples, format_of(method), are_there, fold);
    }
  }

  memory_type* memory_;
  const network_facts* net_;
  view_type view_;
  launch_type launch_;
};

}  // namespace pergrad::inline v0_1::on_device
