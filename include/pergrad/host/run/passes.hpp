// SPDX-License-Identifier: Apache-2.0
// pergrad/host/run/passes.hpp - forward and backward through a worker's workspace, node by node
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <pergrad/concepts.hpp>
#include <pergrad/graph/graph.hpp>
#include <pergrad/graph/layout.hpp>
#include <pergrad/host/conv/affine.hpp>
#include <pergrad/host/conv/kernels.hpp>
#include <pergrad/host/conv/pairs.hpp>
#include <pergrad/host/conv/winograd.hpp>
#include <pergrad/host/plan/program.hpp>
#include <pergrad/host/plan/tables.hpp>
#include <pergrad/host/run/tile_values.hpp>
#include <pergrad/host/team/team.hpp>
#include <pergrad/simd/elements.hpp>

namespace pergrad::inline v0_1::on_host {

/// What a backward pass calls with a node and a range of samples. Refers to a function, which must outlive it.
class completion_call {
 public:
  template <class Function>
  completion_call(const Function& f)  // NOLINT(google-explicit-constructor): an argument as any other
      : context_{&f}, call_{[](const void* context, std::size_t node, index begin, index end) {
          (*static_cast<const Function*>(context))(node, begin, end);
        }} {}
  void operator()(std::size_t node, index begin, index end) const { call_(context_, node, begin, end); }

 private:
  const void* context_;
  void (*call_)(const void*, std::size_t, index, index);
};

/// Samples begin .. end - 1 of a tile through all nodes. Holds pointers only.
template <class Network>
class passes : public tile_values<Network> {
  using base = tile_values<Network>;

 public:
  using scalar = typename Network::scalar;
  using program = typename base::program;
  using base::size;
  using base::table;

  /// `rows`: the rows of the tile's samples (deferred_way.hpp). `streams`: the last node is somebody else's
  /// (streamed_logits.hpp).
  passes(const Network& network, const scalar* panels, scalar* workspace, deferred_rows<scalar> rows,
         layer_randomness randomness = {}, bool streams = false)
      : base{network, workspace}, panels_{panels}, rows_{rows}, randomness_{randomness}, streams_{streams} {}

  /// Nodes first .. last - 1.
  void forward(std::size_t first, std::size_t last, index begin, index end) {
    for (std::size_t i = first; i < last; ++i) {
      if (is_streamed(i)) continue;
      forward_step(i, begin, end);
      trim(i + 1, begin, end, false);
    }
    if (last < size || table.output_in_slot) return;
    const slot& out = table.slots[size];
    for (index b = begin; b < end; ++b) gather_plain(out.value_layout, at(out.value, b), at(table.plain_output, b));
  }

  /// From the last node to the first that has a parameter at or before it. `when_complete` is called once the gradient
  /// of a node's output is complete and before its input's is formed.
  void backward(index begin, index end, completion_call when_complete) { backward(0, size, begin, end, when_complete); }
  /// Of nodes first .. last - 1.
  void backward(std::size_t first, std::size_t last, index begin, index end, completion_call when_complete) {
    for (std::size_t i = last; i-- > first;) {
      const node_row& row = table.nodes[i];
      if (!row.backward) continue;
      if (is_streamed(i)) {
        if (row.parameter_count > 0) when_complete(i, begin, end);
        continue;
      }
      if constexpr (recomputes) {
        const std::size_t block = program::plan::nodes[i].recomputed;
        if (block > 0 && program::plan::recomputed[block].last == i) forward_again(block, begin, end);
      }
      trim(i + 1, begin, end, true);
      if (row.kind == node_kind::general || row.kind == node_kind::tiled) {
        backward_step(i, row, begin, end);  // may write the saved values that the node's factors read
        when_complete(i, begin, end);
      } else {
        if (row.parameter_count > 0) when_complete(i, begin, end);
        backward_step(i, row, begin, end);
      }
    }
  }
  /// Makes all of a recomputed block that its factors read: from its input and the gradient of its output, which the
  /// passes have left. Its input gets no gradient, as it has it.
  void run_again(std::size_t block, index begin, index end) {
    if constexpr (recomputes) {
      forward_again(block, begin, end);
      const auto nodes = program::plan::recomputed[block];
      for (std::size_t i = nodes.last + 1; i-- > nodes.first;) {
        node_row row = table.nodes[i];
        const auto comes_in = [&](std::size_t which) {
          const std::size_t stored = table.storage[which];  // by node `stored` - 1, or by it as a copy of its own
          return (stored <= size ? stored : stored - size) <= nodes.first;
        };
        row.input_gradient = row.input_gradient && !comes_in(row.staged ? row.staged_from : row.in);
        row.input2_gradient = row.input2_gradient && !comes_in(row.in2);
        if (!row.input_gradient && !row.input2_gradient && row.parameter_count == 0) continue;
        trim(i + 1, begin, end, true);
        backward_step(i, row, begin, end);
      }
    }
  }

 private:
  using step_function = void (passes::*)(const node_row&, index, index);
  /// The code of a node whose layer's type matters; others go by their rows alone.
  struct layer_steps {
    step_function forward = nullptr;
    step_function backward = nullptr;
  };
  using base::at;
  using base::bias_of;
  using base::branch_backward;
  using base::branch_forward;
  using base::gather_plain;
  using base::in2_size;
  using base::in_size;
  using base::input_of;
  using base::lengths;
  using base::output_of;
  using base::saved_of;
  using base::scatter_plain;
  using base::slot_of;
  using base::stage_values;
  using base::trim;
  using base::unstage_gradients;
  using base::varies;
  using base::weights;

  void view(const node_row& row, index begin, index end, bool reads_images, bool backward,
            tile_team<scalar>& team) const {
    const slot& in = slot_of(row.in);
    const slot& out = slot_of(row.out);
    const bool second = row.in2_shape.size() > 0;
    const auto arrays = [&](place where) { return sample_arrays<scalar>{at(where, begin), where.sample}; };
    const auto constant = [&](place where) { return sample_arrays<const scalar>{at(where, begin), where.sample}; };
    team.samples = end - begin;
    team.in = row.in_shape;
    team.in2 = row.in2_shape;
    team.out = row.out_shape;
    team.x = constant(row.plain_x);
    team.y = arrays(row.plain_y);
    if (second) team.x2 = constant(row.plain_x2);
    team.saved = arrays(row.saved);
    team.scratch = arrays(table.scratch);
    if (backward) {
      team.dy = constant(row.plain_dy);
      team.wants_factors = row.parameter_count > 0;
      team.wants_dx = row.input_gradient;
      team.wants_dx2 = row.input2_gradient;
      if (row.input_gradient) team.dx = arrays(row.plain_dx);
      if (row.input2_gradient) team.dx2 = arrays(row.plain_dx2);
    }
    if (reads_images) {
      team.x_layout = in.value_layout;
      team.y_layout = out.value_layout;
      team.dx_layout = row.direct_dx ? in.gradient_layout : lay_out(in.gradient_layout.values, {});
      team.dy_layout = out.gradient_layout;
    }
    team.parameters = weights(row).data();
    team.panels = row.reads_weights ? nullptr : panels_;
    team.panel_offsets = row.panel_offsets.data();
    if (varies && row.in_shape.varying_axis() != 0)
      team.lengths = lengths(row.staged ? row.staged_from : row.in, begin);
    if (varies && second && row.in2_shape.varying_axis() != 0) team.lengths2 = lengths(row.in2, begin);
    team.randomness = randomness_;
    team.records = base::records(begin);
    team.layer_number = static_cast<std::uint32_t>(row.out - 1);
  }

  static constexpr bool recomputes = program::plan::recomputed_count > 0;
  /// Values of a recomputed block that its backward pass reads.
  void forward_again(std::size_t block, index begin, index end) {
    const auto [first, last] = program::plan::recomputed[block];
    for (std::size_t i = first; i <= last; ++i) {
      if (!table.nodes[i].again) continue;
      forward_step(i, begin, end);
      trim(i + 1, begin, end, false);
    }
  }

  void forward_step(std::size_t node, index begin, index end) {
    const node_row& row = table.nodes[node];
    if constexpr (has_staged) {
      if (row.staged) stage_values(row, begin, end);
    }
    if (row.kind == node_kind::affine) {
      affine_forward(row, begin, end);
    } else if (row.kind == node_kind::branch_sum) {
      if constexpr (has_branches) branch_forward(row, begin, end);
    } else if (steps[node].forward != nullptr) {
      (this->*steps[node].forward)(row, begin, end);
    }
  }
  [[gnu::noinline]] void backward_step(std::size_t node, const node_row& row, index begin, index end) {
    if (row.kind == node_kind::affine) {
      if (row.input_gradient) affine_backward(row, begin, end);
    } else if (row.kind == node_kind::branch_sum) {
      if constexpr (has_branches) branch_backward(row, begin, end);
    } else if (steps[node].backward != nullptr) {
      (this->*steps[node].backward)(row, begin, end);
    }
    if constexpr (has_staged) {
      if (row.staged && row.input_gradient) unstage_gradients(row, begin, end);
    }
  }

  // One copy of the code a layer type, not one a node: layers get their sizes at run time.
  template <class Layer>
  void layer_forward(const node_row& row, index begin, index end) {
    const slot& in = slot_of(row.in);
    const slot& out = slot_of(row.out);
    constexpr node_kind kind = detail::kind_of<Layer>();
    if constexpr (kind == node_kind::tiled) {
      tiled_forward(row, begin, end, detail::reads_images<Layer>,
                    [](tile_team<scalar>& team) { Layer::forward(team); });
    } else {
      for (index b = begin; b < end; ++b) {
        if constexpr (kind == node_kind::elementwise) {
          elementwise_kernel<Layer, scalar>::forward(in.value_layout, at(in.value, b), out.value_layout,
                                                     at(out.value, b));
        } else if constexpr (kind == node_kind::pooling) {
          pooling_kernel<Layer, scalar>::forward(row.in_shape, in.value_layout, at(in.value, b), out.value_layout,
                                                 at(out.value, b));
        } else {
          if (row.copies_in) gather_plain(in.value_layout, at(in.value, b), at(row.plain_x, b));
          if constexpr (detail::has_saving_forward<Layer, scalar>) {
            Layer::forward(row.in_shape, weights(row), input_of(row, b), output_of(row, b), saved_of(row, b));
          } else {
            Layer::forward(row.in_shape, weights(row), input_of(row, b), output_of(row, b));
          }
          if (row.copies_out) scatter_plain(out.value_layout, at(row.plain_y, b), at(out.value, b), false);
        }
      }
    }
  }
  template <class Layer>
  void layer_backward(const node_row& row, index begin, index end) {
    const slot& in = slot_of(row.in);
    const slot& out = slot_of(row.out);
    constexpr node_kind kind = detail::kind_of<Layer>();
    if constexpr (kind == node_kind::tiled) {
      tiled_backward(row, begin, end, detail::reads_images<Layer>,
                     [](tile_team<scalar>& team) { Layer::backward(team); });
    } else {
      for (index b = begin; b < end; ++b) {
        if constexpr (kind == node_kind::elementwise) {
          elementwise_kernel<Layer, scalar>::backward(in.value_layout, at(in.value, b), out.value_layout,
                                                      at(out.value, b), out.gradient_layout, at(out.gradient, b),
                                                      in.gradient_layout, at(in.gradient, b), row.accumulate);
        } else if constexpr (kind == node_kind::pooling) {
          if (!row.accumulate) fill_zero(in.gradient_layout, at(in.gradient, b));
          pooling_kernel<Layer, scalar>::backward(row.in_shape, in.value_layout, at(in.value, b), out.value_layout,
                                                  at(out.value, b), out.gradient_layout, at(out.gradient, b),
                                                  in.gradient_layout, at(in.gradient, b));
        } else {
          if (row.copies_out) gather_plain(out.gradient_layout, at(out.gradient, b), at(row.plain_dy, b));
          const std::span<const scalar> dy{at(row.plain_dy, b), row.out_shape.size()};
          const std::span<scalar> dx{at(row.plain_dx, b), row.in_shape.size()};
          if constexpr (detail::has_saving_backward<Layer, scalar>) {
            Layer::backward(row.in_shape, weights(row), input_of(row, b), dy, dx, saved_of(row, b));
          } else {
            Layer::backward(row.in_shape, weights(row), input_of(row, b), dy, dx);
          }
          if (row.input_gradient) {
            scatter_plain(in.gradient_layout, at(row.plain_dx, b), at(in.gradient, b), row.accumulate);
          }
        }
      }
    }
  }
  template <class Layer>
  static constexpr layer_steps steps_of() {
    constexpr node_kind kind = detail::kind_of<Layer>();
    if constexpr (kind == node_kind::affine || kind == node_kind::branch_sum || kind == node_kind::reshape) {
      return {};
    } else {
      return {&passes::template layer_forward<Layer>, &passes::template layer_backward<Layer>};
    }
  }
  static constexpr auto steps = []<class... Layers>(std::type_identity<detail::type_table<Layers...>>) {
    return std::array<layer_steps, size>{steps_of<Layers>()...};
  }(std::type_identity<typename program::structure::table>{});

  /// Is there such a node? What no node needs is not compiled.
  template <class Predicate>
  static constexpr bool any_node(Predicate wanted) {
    for (const node_row& row : table.nodes) {
      if (wanted(row)) return true;
    }
    return false;
  }
  static constexpr bool has_staged = any_node([](const node_row& row) { return row.staged; });
  static constexpr bool has_branches = any_node([](const node_row& row) { return row.kind == node_kind::branch_sum; });
  static constexpr bool has_adjoint = any_node([](const node_row& row) { return row.map.adjoint; });

  using tile_function = void (*)(tile_team<scalar>&);
  [[gnu::noinline]] void tiled_forward(const node_row& row, index begin, index end, bool reads_images,
                                       tile_function run) const {
    const slot& in = slot_of(row.in);
    const slot& out = slot_of(row.out);
    for (index b = begin; b < end; ++b) {
      if (row.copies_in) gather_plain(in.value_layout, at(in.value, b), at(row.plain_x, b));
      if (row.copies_in2) {
        const slot& in2 = slot_of(row.in2);
        gather_plain(in2.value_layout, at(in2.value, b), at(row.plain_x2, b));
      }
    }
    tile_team<scalar> team;
    view(row, begin, end, reads_images, false, team);
    run(team);
    for (index b = begin; row.copies_out && b < end; ++b) {
      scatter_plain(out.value_layout, at(row.plain_y, b), at(out.value, b), false);
    }
  }
  [[gnu::noinline]] void tiled_backward(const node_row& row, index begin, index end, bool reads_images,
                                        tile_function run) const {
    const slot& in = slot_of(row.in);
    const slot& out = slot_of(row.out);
    for (index b = begin; row.copies_out && b < end; ++b) {
      gather_plain(out.gradient_layout, at(out.gradient, b), at(row.plain_dy, b));
    }
    tile_team<scalar> team;
    view(row, begin, end, reads_images, true, team);
    run(team);
    for (index b = begin; b < end; ++b) {
      if (row.input_gradient && !row.direct_dx && reads_images) {
        transfer(lay_out(in.gradient_layout.values, {}), at(row.plain_dx, b), in.gradient_layout, at(in.gradient, b),
                 row.accumulate);
      } else if (row.input_gradient && !row.direct_dx) {
        give_gradient(row.copies_in, in.gradient_layout, at(row.plain_dx, b), at(in.gradient, b), in_size(row),
                      row.accumulate);
      }
      if (row.input2_gradient && !row.direct_dx2) {
        const slot& in2 = slot_of(row.in2);
        give_gradient(row.copies_in2, in2.gradient_layout, at(row.plain_dx2, b), at(in2.gradient, b), in2_size(row),
                      row.accumulate2);
      }
    }
  }
  /// A slot that needs no copies is stored as PyTorch orders it, in one stretch.
  static void give_gradient(bool copies, const layout& to, const scalar* plain, scalar* values, index count,
                            bool accumulate) {
    if (copies) {
      scatter_plain(to, plain, values, accumulate);
    } else if (accumulate) {
      add_to(values, plain, count);
    } else {
      std::copy_n(plain, count, values);
    }
  }

  /// Samples of the tile from `begin` on in a slot, to be read (`const scalar`) or written.
  template <class Value>
  [[nodiscard]] images<Value> values(std::size_t which, index begin) const {
    const slot& here = slot_of(which);
    return {here.value_layout, at(here.value, begin), here.value.sample};
  }
  template <class Value>
  [[nodiscard]] images<Value> gradients(std::size_t which, index begin) const {
    const slot& here = slot_of(which);
    return {here.gradient_layout, at(here.gradient, begin), here.gradient.sample};
  }
  // Of a transposed convolution, the adjoint of an affine map, the two directions change places.
  void affine_forward(const node_row& row, index begin, index end) const {
    const auto x = values<const scalar>(row.in, begin);
    const auto y = values<scalar>(row.out, begin);
    if constexpr (has_adjoint) {
      if (row.map.adjoint) {
        through_adjoint(row, panels_, end - begin, x, y, bias_of(row), false);
        return;
      }
    }
    if constexpr (table.deferred_count > 0) {
      if (row.deferred) {
        through_weights(row, weights(row).data(), end - begin, x, y, bias_of(row), rows_.from(begin),
                        at(table.scratch, 0), base::inputs_of(row, begin));
        return;
      }
    }
    if constexpr (table.reads_weights) {
      if (row.reads_weights) {
        through_pixels(row.map, weights(row).data(), end - begin, x, y, bias_of(row), false, false);
        return;
      }
    }
    if constexpr (table.any_in_pairs) {
      if (row.in_pairs) {
        filter_in_pairs(row, panels_, end - begin, x, y, bias_of(row), at(table.winograd, 0));
        return;
      }
    }
    if constexpr (table.winograd.sample > 0) {
      if (row.winograd_rows > 0) {
        filter_windows(row, panels_, end - begin, x, y, bias_of(row), at(table.winograd, 0));
        return;
      }
    }
    through_windows(row, panels_, end - begin, x, y, bias_of(row), false);
  }
  void affine_backward(const node_row& row, index begin, index end) const {
    const auto dy = gradients<const scalar>(row.out, begin);
    const auto dx = gradients<scalar>(row.in, begin);
    if constexpr (has_adjoint) {
      if (row.map.adjoint) {
        through_windows(row, panels_, end - begin, dy, dx, nullptr, row.accumulate);
        return;
      }
    }
    if constexpr (table.deferred_count > 0) {
      if (row.deferred) {
        through_weights_adjoint(row, weights(row).data(), end - begin, dy, dx, row.accumulate, at(table.scratch, 0));
        return;
      }
    }
    if constexpr (table.reads_weights) {
      if (row.reads_weights) {
        through_pixels(row.map, weights(row).data(), end - begin, dy, dx, nullptr, true, row.accumulate);
        return;
      }
    }
    if constexpr (table.winograd.sample > 0) {
      if (row.winograd_dx_rows > 0) {
        filter_adjoint(row, panels_, end - begin, dy, dx, row.accumulate, at(table.winograd, 0));
        return;
      }
    }
    through_adjoint(row, panels_, end - begin, dy, dx, nullptr, row.accumulate);
  }

  [[nodiscard]] bool is_streamed(std::size_t node) const noexcept {
    return table.streams && streams_ && node + 1 == size;
  }

  const scalar* panels_;
  deferred_rows<scalar> rows_;
  layer_randomness randomness_;
  bool streams_;
};

}  // namespace pergrad::inline v0_1::on_host
