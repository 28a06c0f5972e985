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
        pack_forward(row.map, parameters + row.parameters, panels + row.forward_panel, first, last);
        if (backward && row.input_gradient) {
          pack_backward(row, parameters + row.parameters, panels + row.backward_panel, first, last);
        }
        return;
      }
    });
  }

  void load(const void* context, const scalar* (*input)(const void*, std::size_t), std::size_t first, index samples) {
    const slot& to = table.slots[0];
    constexpr layout plain = lay_out(arrange(Network::input_shape), {});
    for (index b = 0; b < samples; ++b) {
      const scalar* from = input(context, first + static_cast<std::size_t>(b));
      scalar* values = at(to.value, b);
      const arrangement& image = plain.values;
      if (image.plain()) {
        transfer(plain, from, to.value_layout, values, false);
        continue;
      }
      for (index c = 0; c < image.channels; ++c) {
        for (index i = 0; i < image.height; ++i) {
          scalar* row = values + to.value_layout.start + i * to.value_layout.row + c;
          for (index j = 0; j < image.width; ++j) row[j * to.value_layout.column] = *from++;
        }
      }
    }
  }

  void forward(index begin, index end) {
    [&]<std::size_t... Index>(std::index_sequence<Index...>) {
      static constexpr std::array<step_function, size> steps{&passes::template forward_step<Index>...};
      for (const step_function step : steps) (this->*step)(begin, end);
    }
    (std::make_index_sequence<size>{});
    const slot& out = table.slots[table.storage[size]];
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
    const slot& out = table.slots[table.storage[size]];
    if (!table.nodes[size - 1].backward) return;
    scatter_plain(out.gradient_layout, at(table.plain_output_gradient, b), at(out.gradient, b), output_size, false);
  }

  /// Sets everything that the node's factors read of a sample to zero, so that the sample's share of any sum is exactly
  /// zero.
  void erase(std::size_t node, index b) {
    const node_row& row = table.nodes[node];
    const slot& in = table.slots[table.storage[row.in]];
    const slot& out = table.slots[table.storage[row.out]];
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
  [[nodiscard]] static const slot& slot_of(std::size_t which) { return table.slots[table.storage[which]]; }

  static constexpr index outputs_per_task(const node_row& row) {
    return std::max(line, (index{1} << 14) / static_cast<index>(row.map.view_width()) / line * line);
  }
  static constexpr index pack_tasks(const node_row& row) {
    return row.kind == node_kind::affine
               ? (static_cast<index>(row.map.out_channels) + outputs_per_task(row) - 1) / outputs_per_task(row)
               : 0;
  }

  static void gather_plain(const layout& from, const scalar* values, scalar* plain, index count) {
    for (index i = 0; i < count; ++i) plain[i] = values[from.position(i)];
  }
  static void scatter_plain(const layout& to, const scalar* plain, scalar* values, index count, bool accumulate) {
    for (index i = 0; i < count; ++i) {
      scalar& value = values[to.position(i)];
      value = accumulate ? value + plain[i] : plain[i];
    }
  }

  template <std::size_t Index>
  void forward_step(index begin, index end) {
    using layer = typename program::template layer_at<Index>;
    static constexpr node_row row = table.nodes[Index];
    const slot& in = slot_of(row.in);
    const slot& out = slot_of(row.out);
    if constexpr (row.kind == node_kind::affine) {
      affine_forward(row, begin, end);
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
      if (row.input_gradient) affine_backward(row, begin, end);
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

  /// y = view(x) W + b: rows are samples and positions, the reduction runs over the view.
  void affine_forward(const node_row& row, index begin, index end) const {
    const affine_map& map = row.map;
    const slot& in = slot_of(row.in);
    const slot& out = slot_of(row.out);
    const layout& x = in.value_layout;
    const layout& y = out.value_layout;
    const auto number = [](std::size_t value) { return static_cast<index>(value); };
    const index channels = number(map.in_channels / map.groups);
    const index outputs = number(map.group_outputs());
    const index width = number(map.kernel.width);
    const product_shape shape =
        coalesce({{{end - begin, in.value.sample, out.value.sample},
                   {number(map.out_size.height), number(map.stride.height) * x.row, y.row},
                   {number(map.out_size.width), number(map.stride.width) * x.column, y.column}},
                  {{number(map.kernel.height), number(map.dilation.height) * x.row, width * channels * outputs},
                   {width, number(map.dilation.width) * x.column, channels * outputs},
                   {channels, 1, outputs}},
                  outputs});
    const scalar* from =
        at(in.value, begin) + x.start - number(map.padding.height) * x.row - number(map.padding.width) * x.column;
    scalar* to = at(out.value, begin) + y.start;
    const scalar* panel = panels_ + row.forward_panel;
    const scalar* bias = parameters_ + row.parameters + number(map.weight_count());
    const index panel_step = number(map.view_width()) * outputs;
    for (index g = 0; g < number(map.groups); ++g) {
      if (map.bias) {
        product(shape, from + g * channels, panel + g * panel_step, to + g * outputs,
                epilogue::store_bias<scalar>{bias + g * outputs});
      } else {
        product(shape, from + g * channels, panel + g * panel_step, to + g * outputs, epilogue::store{});
      }
    }
  }

  /// The view's adjoint of delta W^T: one product a stride phase, over delta read through its halo.
  void affine_backward(const node_row& row, index begin, index end) const {
    const affine_map& map = row.map;
    const slot& in = slot_of(row.in);
    const slot& out = slot_of(row.out);
    const layout& dx = in.gradient_layout;
    const layout& dy = out.gradient_layout;
    const auto number = [](std::size_t value) { return static_cast<index>(value); };
    const index channels = number(map.in_channels / map.groups);
    const index outputs = number(map.group_outputs());
    const index samples = end - begin;
    const scalar* delta = at(out.gradient, begin) + dy.start;
    scalar* to = at(in.gradient, begin) + dx.start;
    const scalar* panel = panels_ + row.backward_panel;
    if (row.whole_view) {
      const index row_values = dx.values.width * dx.values.channels;
      const index whole = dx.values.size();
      const index lines = dx.dense() ? 1 : dx.values.height;
      for (index r = 0; r < lines; ++r) {
        const product_shape shape = coalesce({{{}, {}, {samples, out.gradient.sample, in.gradient.sample}},
                                              {{}, {}, {outputs, 1, whole}},
                                              dx.dense() ? whole : row_values});
        write(shape, delta, panel + r * row_values, to + r * dx.row, row.accumulate);
      }
      return;
    }
    for (index g = 0; g < number(map.groups); ++g) {
      for_each_phase(map, [&](const phase& rows, const phase& columns) {
        const scalar* here = panel;
        panel += rows.taps * columns.taps * outputs * channels;
        if (rows.inputs == 0 || columns.inputs == 0) return;
        scalar* first = to + rows.first_input * dx.row + columns.first_input * dx.column + g * channels;
        const index row_step = number(map.stride.height) * dx.row;
        const index column_step = number(map.stride.width) * dx.column;
        if (rows.taps == 0 || columns.taps == 0) {  // no window reaches these inputs
          for (index b = 0; b < samples && !row.accumulate; ++b) {
            for (index i = 0; i < rows.inputs; ++i) {
              for (index j = 0; j < columns.inputs; ++j) {
                std::fill_n(first + b * in.gradient.sample + i * row_step + j * column_step, channels, scalar{0});
              }
            }
          }
          return;
        }
        const product_shape shape = coalesce({{{samples, out.gradient.sample, in.gradient.sample},
                                               {rows.inputs, dy.row, row_step},
                                               {columns.inputs, dy.column, column_step}},
                                              {{rows.taps, rows.delta_step * dy.row, columns.taps * outputs * channels},
                                               {columns.taps, columns.delta_step * dy.column, outputs * channels},
                                               {outputs, 1, channels}},
                                              channels});
        const scalar* from = delta + (rows.first_delta - (rows.taps - 1) * rows.delta_step) * dy.row +
                             (columns.first_delta - (columns.taps - 1) * columns.delta_step) * dy.column + g * outputs;
        write(shape, from, here, first, row.accumulate);
      });
    }
  }
  static void write(const product_shape& shape, const scalar* left, const scalar* right, scalar* out, bool accumulate) {
    if (accumulate) {
      product(shape, left, right, out, epilogue::add{});
    } else {
      product(shape, left, right, out, epilogue::store{});
    }
  }

  const scalar* parameters_;
  const scalar* panels_;
  scalar* workspace_;
};

}  // namespace pergrad::inline v0_1::on_host
