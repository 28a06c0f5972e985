// SPDX-License-Identifier: Apache-2.0
// pergrad/host/passes.hpp - forward and backward through a worker's workspace, node by node
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <utility>

#include <pergrad/concepts.hpp>
#include <pergrad/detail/graph.hpp>
#include <pergrad/host/executor.hpp>
#include <pergrad/host/kernels.hpp>
#include <pergrad/host/layout.hpp>
#include <pergrad/host/product.hpp>
#include <pergrad/host/program.hpp>
#include <pergrad/host/windows.hpp>

namespace pergrad::inline v0_1::on_host {

/// Samples begin .. end - 1 of a tile through all nodes. Holds pointers only.
template <class Network>
class passes {
 public:
  using scalar = typename Network::scalar;
  using program = on_host::program<Network>;
  static constexpr const auto& table = program::table;
  static constexpr std::size_t size = program::size;

  passes(const Network& network, const scalar* panels, scalar* workspace)
      : parameters_{network.parameters().data()}, panels_{panels}, workspace_{workspace} {}

  /// All affine weights into the order that products read them in.
  static void pack(const host& executor, const Network& network, scalar* panels, bool backward) {
    const scalar* parameters = network.parameters().data();
    index tasks = 0;
    for (const node_row& row : table.nodes) tasks += pack_tasks(row);
    executor.parallel(static_cast<std::size_t>(tasks), [&](std::size_t task_number, std::size_t) {
      auto task = static_cast<index>(task_number);
      for (const node_row& row : table.nodes) {
        if (task >= pack_tasks(row)) {
          task -= pack_tasks(row);
          continue;
        }
        const auto outputs = static_cast<index>(row.map.out_channels);
        const index first = task * outputs_per_task(row);
        const index last = std::min(outputs, first + outputs_per_task(row));
        const bool for_dx = backward && row.input_gradient;
        if (for_dx || !row.map.adjoint) {
          pack_forward(row.map, parameters + row.parameters, panels + row.forward_panel, first, last);
        }
        if (for_dx || row.map.adjoint) {
          pack_backward(row, parameters + row.parameters, panels + row.backward_panel, first, last);
        }
        return;
      }
    });
  }

  void load(const void* context, const scalar* (*input)(const void*, std::size_t), std::size_t first, index samples) {
    const slot& to = table.slots[0];
    constexpr layout plain = plain_twin(table.slots[0].value_layout);
    for (index b = 0; b < samples; ++b) {
      const scalar* from = input(context, first + static_cast<std::size_t>(b));
      transfer(plain, from, to.value_layout, at(to.value, b), false);
    }
  }

  void forward(index begin, index end) {
    [&]<std::size_t... Index>(std::index_sequence<Index...>) {
      static constexpr std::array<step_function, size> steps{&passes::template forward_step<Index>...};
      for (const step_function step : steps) (this->*step)(begin, end);
    }
    (std::make_index_sequence<size>{});
    const slot& out = table.slots[size];
    for (index b = begin; b < end; ++b)
      gather_plain(out.value_layout, at(out.value, b), at(table.plain_output, b), output_size);
  }

  /// From the last node to the first that has a parameter at or before it. `when_complete(node)` is called once the
  /// gradient of the node's output is complete and before its input's is formed.
  template <class Function>
  void backward(index begin, index end, Function&& when_complete) {
    [&]<std::size_t... Index>(std::index_sequence<Index...>) {
      static constexpr std::array<step_function, size> steps{&passes::template backward_step<Index>...};
      for (std::size_t i = size; i-- > 0;) {
        const node_row& row = table.nodes[i];
        if (!row.backward) continue;
        if (row.kind == node_kind::general) {
          (this->*steps[i])(begin, end);  // its backward may write the saved values that its factors read
          when_complete(i);
        } else {
          if (row.parameter_count > 0) when_complete(i);
          (this->*steps[i])(begin, end);
        }
      }
    }
    (std::make_index_sequence<size>{});
  }

  [[nodiscard]] std::span<const scalar> output(index b) const {
    return {at(table.plain_output, b), static_cast<std::size_t>(output_size)};
  }
  [[nodiscard]] std::span<scalar> output_gradient(index b) {
    return {at(table.plain_output_gradient, b), static_cast<std::size_t>(output_size)};
  }
  void scatter_output_gradient(index b) {
    const slot& out = table.slots[size];
    if (!table.nodes[size - 1].backward) return;
    scatter_plain(out.gradient_layout, at(table.plain_output_gradient, b), at(out.gradient, b), output_size, false);
  }

  /// Sets everything that the node's factors read of a sample to zero, so that the sample's share of any sum is exactly
  /// zero.
  void erase(std::size_t node, index b) {
    const node_row& row = table.nodes[node];
    const slot& in = table.slots[row.in];
    const slot& out = table.slots[row.out];
    if (row.kind == node_kind::affine) {
      fill_zero(in.value_layout, at(in.value, b));
      fill_zero(out.gradient_layout, at(out.gradient, b));
      return;
    }
    std::fill_n(at(row.plain_x, b), row.in_shape.size(), scalar{0});
    std::fill_n(at(row.plain_y, b), row.out_shape.size(), scalar{0});
    std::fill_n(at(row.plain_dy, b), row.out_shape.size(), scalar{0});
    std::fill_n(at(row.saved, b), row.saved_count, scalar{0});
  }

 private:
  using step_function = void (passes::*)(index, index);
  static constexpr index output_size = static_cast<index>(Network::output_shape.size());

  [[nodiscard]] scalar* at(place where, index sample) const {
    return workspace_ + where.offset + sample * where.sample;
  }
  [[nodiscard]] static const slot& slot_of(std::size_t which) { return table.slots[which]; }

  static constexpr index outputs_per_task(const node_row& row) {
    return std::max(line, (index{1} << 14) / static_cast<index>(row.map.view_width()) / line * line);
  }
  static constexpr index pack_tasks(const node_row& row) {
    return row.kind == node_kind::affine
               ? (static_cast<index>(row.map.out_channels) + outputs_per_task(row) - 1) / outputs_per_task(row)
               : 0;
  }

  static void gather_plain(const layout& from, const scalar* values, scalar* plain, index /*count*/) {
    transfer(from, values, plain_twin(from), plain, false);
  }
  static void scatter_plain(const layout& to, const scalar* plain, scalar* values, index /*count*/, bool accumulate) {
    transfer(plain_twin(to), plain, to, values, accumulate);
  }

  template <std::size_t Index>
  void forward_step(index begin, index end) {
    using layer = typename program::template layer_at<Index>;
    static constexpr node_row row = table.nodes[Index];
    const slot& in = slot_of(row.in);
    const slot& out = slot_of(row.out);
    if constexpr (row.staged) stage_values(row, begin, end);
    if constexpr (row.kind == node_kind::affine) {
      if constexpr (row.map.adjoint) {
        adjoint_forward(row, begin, end);
      } else {
        affine_forward(row, begin, end);
      }
    } else if constexpr (row.kind == node_kind::elementwise) {
      for (index b = begin; b < end; ++b) {
        elementwise_kernel<layer, scalar>::forward(in.value_layout, at(in.value, b), out.value_layout,
                                                   at(out.value, b));
      }
    } else if constexpr (row.kind == node_kind::pooling) {
      for (index b = begin; b < end; ++b) {
        pooling_kernel<layer, scalar>::forward(row.in_shape, in.value_layout, at(in.value, b), out.value_layout,
                                               at(out.value, b));
      }
    } else if constexpr (row.kind == node_kind::branch_sum) {
      const slot& in2 = slot_of(row.in2);
      for (index b = begin; b < end; ++b) {
        transfer(in.value_layout, at(in.value, b), out.value_layout, at(out.value, b), false);
        transfer(in2.value_layout, at(in2.value, b), out.value_layout, at(out.value, b), true);
      }
    } else if constexpr (row.kind == node_kind::general) {
      for (index b = begin; b < end; ++b) {
        if (row.copies_in) gather_plain(in.value_layout, at(in.value, b), at(row.plain_x, b), in_size(row));
        if constexpr (detail::has_saving_forward<layer, scalar>) {
          layer::forward(row.in_shape, weights(row), input_of(row, b), output_of(row, b), saved_of(row, b));
        } else {
          layer::forward(row.in_shape, weights(row), input_of(row, b), output_of(row, b));
        }
        if (row.copies_out) scatter_plain(out.value_layout, at(row.plain_y, b), at(out.value, b), out_size(row), false);
      }
    }
  }

  template <std::size_t Index>
  void backward_step(index begin, index end) {
    using layer = typename program::template layer_at<Index>;
    static constexpr node_row row = table.nodes[Index];
    const slot& in = slot_of(row.in);
    const slot& out = slot_of(row.out);
    if constexpr (row.kind == node_kind::affine) {
      if constexpr (row.input_gradient && row.map.adjoint) {
        adjoint_backward(row, begin, end);
      } else if constexpr (row.input_gradient) {
        affine_backward(row, begin, end);
      }
    } else if constexpr (row.kind == node_kind::elementwise) {
      for (index b = begin; b < end; ++b) {
        elementwise_kernel<layer, scalar>::backward(in.value_layout, at(in.value, b), out.value_layout,
                                                    at(out.value, b), out.gradient_layout, at(out.gradient, b),
                                                    in.gradient_layout, at(in.gradient, b), row.accumulate);
      }
    } else if constexpr (row.kind == node_kind::pooling) {
      for (index b = begin; b < end; ++b) {
        if (!row.accumulate) fill_zero(in.gradient_layout, at(in.gradient, b));
        pooling_kernel<layer, scalar>::backward(row.in_shape, in.value_layout, at(in.value, b), out.value_layout,
                                                at(out.value, b), out.gradient_layout, at(out.gradient, b),
                                                in.gradient_layout, at(in.gradient, b));
      }
    } else if constexpr (row.kind == node_kind::branch_sum) {
      const slot& in2 = slot_of(row.in2);
      for (index b = begin; b < end; ++b) {
        if (row.input_gradient) {
          transfer(out.gradient_layout, at(out.gradient, b), in.gradient_layout, at(in.gradient, b), row.accumulate);
        }
        if (row.input2_gradient) {
          transfer(out.gradient_layout, at(out.gradient, b), in2.gradient_layout, at(in2.gradient, b), row.accumulate2);
        }
      }
    } else if constexpr (row.kind == node_kind::general) {
      for (index b = begin; b < end; ++b) {
        if (row.copies_out) gather_plain(out.gradient_layout, at(out.gradient, b), at(row.plain_dy, b), out_size(row));
        const std::span<const scalar> dy{at(row.plain_dy, b), row.out_shape.size()};
        const std::span<scalar> dx{at(row.plain_dx, b), row.in_shape.size()};
        if constexpr (detail::has_saving_backward<layer, scalar>) {
          layer::backward(row.in_shape, weights(row), input_of(row, b), dy, dx, saved_of(row, b));
        } else {
          layer::backward(row.in_shape, weights(row), input_of(row, b), dy, dx);
        }
        if (row.input_gradient) {
          scatter_plain(in.gradient_layout, at(row.plain_dx, b), at(in.gradient, b), in_size(row), row.accumulate);
        }
      }
    }
    if constexpr (row.staged && row.input_gradient) unstage_gradients(row, begin, end);
  }

  /// The node's own copy of its input, stored as the node reads it.
  void stage_values(const node_row& row, index begin, index end) const {
    const slot& from = slot_of(row.staged_from);
    const slot& to = slot_of(row.in);
    for (index b = begin; b < end; ++b) {
      transfer(from.value_layout, at(from.value, b), to.value_layout, at(to.value, b), false);
    }
  }
  void unstage_gradients(const node_row& row, index begin, index end) const {
    const slot& from = slot_of(row.in);
    const slot& to = slot_of(row.staged_from);
    for (index b = begin; b < end; ++b) {
      transfer(from.gradient_layout, at(from.gradient, b), to.gradient_layout, at(to.gradient, b),
               row.staged_accumulate);
    }
  }

  [[nodiscard]] static constexpr index in_size(const node_row& row) { return static_cast<index>(row.in_shape.size()); }
  [[nodiscard]] static constexpr index out_size(const node_row& row) {
    return static_cast<index>(row.out_shape.size());
  }
  [[nodiscard]] std::span<const scalar> weights(const node_row& row) const {
    return {parameters_ + row.parameters, static_cast<std::size_t>(row.parameter_count)};
  }
  [[nodiscard]] std::span<const scalar> input_of(const node_row& row, index b) const {
    return {at(row.plain_x, b), row.in_shape.size()};
  }
  [[nodiscard]] std::span<scalar> output_of(const node_row& row, index b) const {
    return {at(row.plain_y, b), row.out_shape.size()};
  }
  [[nodiscard]] std::span<scalar> saved_of(const node_row& row, index b) const {
    return {at(row.saved, b), static_cast<std::size_t>(row.saved_count)};
  }

  void affine_forward(const node_row& row, index begin, index end) const {
    const slot& in = slot_of(row.in);
    const slot& out = slot_of(row.out);
    const scalar* bias = row.map.bias ? parameters_ + row.parameters + row.map.weight_count() : nullptr;
    through_windows(row, end - begin, {in.value_layout, at(in.value, begin), in.value.sample},
                    {out.value_layout, at(out.value, begin), out.value.sample}, bias, false);
  }
  void affine_backward(const node_row& row, index begin, index end) const {
    const slot& in = slot_of(row.in);
    const slot& out = slot_of(row.out);
    through_adjoint(row, end - begin, {out.gradient_layout, at(out.gradient, begin), out.gradient.sample},
                    {in.gradient_layout, at(in.gradient, begin), in.gradient.sample}, nullptr, row.accumulate);
  }
  /// A transposed convolution: the two directions change places.
  void adjoint_forward(const node_row& row, index begin, index end) const {
    const slot& in = slot_of(row.in);
    const slot& out = slot_of(row.out);
    const scalar* bias = row.map.bias ? parameters_ + row.parameters + row.map.weight_count() : nullptr;
    through_adjoint(row, end - begin, {in.value_layout, at(in.value, begin), in.value.sample},
                    {out.value_layout, at(out.value, begin), out.value.sample}, bias, false);
  }
  void adjoint_backward(const node_row& row, index begin, index end) const {
    const slot& in = slot_of(row.in);
    const slot& out = slot_of(row.out);
    through_windows(row, end - begin, {out.gradient_layout, at(out.gradient, begin), out.gradient.sample},
                    {in.gradient_layout, at(in.gradient, begin), in.gradient.sample}, nullptr, row.accumulate);
  }

  /// Values of the samples of a tile, from the first one on.
  template <class Value>
  struct images {
    const layout& of;
    Value* first;
    index sample;
  };

  /// y (=|+=) view(x) W + b: rows are samples and positions, the reduction runs over the view.
  void through_windows(const node_row& row, index samples, images<const scalar> in, images<scalar> out,
                       const scalar* bias, bool accumulate) const {
    const affine_map& map = row.map;
    const layout& x = in.of;
    const layout& y = out.of;
    const auto number = [](std::size_t value) { return static_cast<index>(value); };
    const index channels = number(map.in_channels / map.groups);
    const index outputs = number(map.group_outputs());
    const index width = number(map.kernel.width);
    const index area = number(map.kernel.height) * width;
    const product_shape shape =
        coalesce({{{number(map.out_size.depth), number(map.stride.depth) * x.plane, y.plane},
                   {number(map.out_size.height), number(map.stride.height) * x.row, y.row},
                   {number(map.out_size.width), number(map.stride.width) * x.column, y.column}},
                  {{number(map.kernel.height), number(map.dilation.height) * x.row, width * channels * outputs},
                   {width, number(map.dilation.width) * x.column, channels * outputs},
                   {channels, 1, outputs}},
                  outputs,
                  {samples, in.sample, out.sample},
                  {number(map.kernel.depth), number(map.dilation.depth) * x.plane, area * channels * outputs}});
    const scalar* from = in.first + x.start - number(map.padding.depth) * x.plane - number(map.padding.height) * x.row -
                         number(map.padding.width) * x.column;
    scalar* to = out.first + y.start;
    const scalar* panel = panels_ + row.forward_panel;
    const index panel_step = number(map.view_width()) * outputs;
    for (index g = 0; g < number(map.groups); ++g) {
      write(shape, from + g * channels, panel + g * panel_step, to + g * outputs,
            bias == nullptr ? nullptr : bias + g * outputs, accumulate);
    }
  }

  /// x (=|+=) sum over the windows of view^T(W^T delta) + b, the adjoint of `through_windows`: one product a stride
  /// phase, over delta read through its halo.
  void through_adjoint(const node_row& row, index samples, images<const scalar> in, images<scalar> out,
                       const scalar* bias, bool accumulate) const {
    const affine_map& map = row.map;
    const layout& dx = out.of;
    const layout& dy = in.of;
    const auto number = [](std::size_t value) { return static_cast<index>(value); };
    const index channels = number(map.in_channels / map.groups);
    const index outputs = number(map.group_outputs());
    const scalar* delta = in.first + dy.start;
    const scalar* panel = panels_ + row.backward_panel;
    if (row.whole_view) {
      const index row_values = dx.line_pixels() * dx.values.channels;
      for (index r = 0; r < dx.lines(); ++r) {
        const product_shape shape = coalesce(
            {{{}, {}, {samples, in.sample, out.sample}}, {{}, {}, {outputs, 1, dx.values.size()}}, row_values});
        write(shape, delta, panel + r * row_values, out.first + dx.line_start(r), nullptr, accumulate);
      }
      return;
    }
    for (index g = 0; g < number(map.groups); ++g) {
      const scalar* group_bias = bias == nullptr ? nullptr : bias + g * channels;
      for_each_phase(map, [&](const phase& planes, const phase& rows, const phase& columns) {
        const index taps = planes.taps * rows.taps * columns.taps;
        const scalar* here = panel;
        panel += taps * outputs * channels;
        if (planes.inputs == 0 || rows.inputs == 0 || columns.inputs == 0) return;
        scalar* first = out.first + dx.start + planes.first_input * dx.plane + rows.first_input * dx.row +
                        columns.first_input * dx.column + g * channels;
        // Where taps are missing no window reaches these inputs: their sums are empty.
        const product_shape shape =
            coalesce({{{planes.inputs, dy.plane, number(map.stride.depth) * dx.plane},
                       {rows.inputs, dy.row, number(map.stride.height) * dx.row},
                       {columns.inputs, dy.column, number(map.stride.width) * dx.column}},
                      {{rows.taps, rows.delta_step * dy.row, columns.taps * outputs * channels},
                       {columns.taps, columns.delta_step * dy.column, outputs * channels},
                       {outputs, 1, channels}},
                      channels,
                      {samples, in.sample, out.sample},
                      {planes.taps, planes.delta_step * dy.plane, rows.taps * columns.taps * outputs * channels}});
        const auto first_tap = [](const phase& axis) { return axis.first_delta - (axis.taps - 1) * axis.delta_step; };
        const scalar* from = delta;
        if (taps > 0) {
          from +=
              first_tap(planes) * dy.plane + first_tap(rows) * dy.row + first_tap(columns) * dy.column + g * outputs;
        }
        write(shape, from, here, first, group_bias, accumulate);
      });
    }
  }
  static void write(const product_shape& shape, const scalar* left, const scalar* right, scalar* out,
                    const scalar* bias, bool accumulate) {
    if (accumulate) {
      product(shape, left, right, out, epilogue::add{});
    } else if (bias != nullptr) {
      product(shape, left, right, out, epilogue::store_bias<scalar>{bias});
    } else {
      product(shape, left, right, out, epilogue::store{});
    }
  }

  const scalar* parameters_;
  const scalar* panels_;
  scalar* workspace_;
};

}  // namespace pergrad::inline v0_1::on_host
