// SPDX-License-Identifier: Apache-2.0
// pergrad/host/passes.hpp - forward and backward through a worker's workspace, node by node
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include <pergrad/concepts.hpp>
#include <pergrad/detail/graph.hpp>
#include <pergrad/host/executor.hpp>
#include <pergrad/host/kernels.hpp>
#include <pergrad/host/layout.hpp>
#include <pergrad/host/product.hpp>
#include <pergrad/host/program.hpp>
#include <pergrad/host/request.hpp>
#include <pergrad/host/tile_view.hpp>
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

  passes(const Network& network, const scalar* panels, scalar* workspace, layer_randomness randomness = {})
      : parameters_{network.parameters().data()}, panels_{panels}, workspace_{workspace}, randomness_{randomness} {}

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
        if (row.kind == node_kind::tiled) {
          pack_matrices(row, parameters + row.parameters, panels);
          return;
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

  void load(const sample_source<scalar>& source, std::size_t first, index samples) {
    const slot& to = table.slots[0];
    constexpr layout plain = plain_twin(table.slots[0].value_layout);
    for (index b = 0; b < samples; ++b) {
      const std::size_t sample = first + static_cast<std::size_t>(b);
      records_[static_cast<std::size_t>(b)] = source.record(source.context, sample);
      scalar* values = at(to.value, b);
      if constexpr (varies) {
        lengths_[0][static_cast<std::size_t>(b)] = source.length(source.context, sample);
        for (std::size_t i = 0; i < size; ++i) {
          lengths_[i + 1][static_cast<std::size_t>(b)] =
              length_functions[i](table.nodes[i].in_shape,
                                  lengths_[structure::inputs[i]][static_cast<std::size_t>(b)]);
        }
      }
      if constexpr (Network::input_shape.ids != 0) {
        const auto* from = static_cast<const std::int32_t*>(source.input(source.context, sample));
        auto* ids = static_cast<std::int32_t*>(static_cast<void*>(values));
        std::copy_n(from, Network::input_shape.size(), ids);
        if constexpr (varies) std::fill(ids + lengths_[0][static_cast<std::size_t>(b)], ids + Network::input_shape.size(), 0);
      } else {
        const auto* from = static_cast<const scalar*>(source.input(source.context, sample));
        transfer(plain, from, to.value_layout, values, false);
      }
    }
    trim(0, 0, samples, false);
  }

  /// Positions of slot `which` that are there, of a sample of the tile.
  [[nodiscard]] index length_of(std::size_t which, index b) const noexcept {
    return static_cast<index>(lengths_[varies ? which : 0][static_cast<std::size_t>(b)]);
  }

  /// The same where samples may all have all positions.
  [[nodiscard]] index positions_there(std::size_t which, index b) const noexcept {
    const shape of = structure::shapes[which];
    return of.varying_axis() == 0 ? static_cast<index>(of.e0) : length_of(which, b);
  }
  /// A sample's ids.
  [[nodiscard]] const std::int32_t* ids(place where, index b) const noexcept {
    return static_cast<const std::int32_t*>(static_cast<const void*>(at(where, b)));
  }

  void forward(index begin, index end) {
    [&]<std::size_t... Index>(std::index_sequence<Index...>) {
      static constexpr std::array<step_function, size> steps{&passes::template forward_step<Index>...};
      for (std::size_t i = 0; i < size; ++i) {
        (this->*steps[i])(begin, end);
        trim(i + 1, begin, end, false);
      }
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
        trim(i + 1, begin, end, true);
        if (row.kind == node_kind::general || row.kind == node_kind::tiled) {
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
    const bool in_slots = row.kind == node_kind::tiled && !row.copies_in;
    if (in_slots) {
      fill_zero(in.value_layout, at(in.value, b));
      if (row.in2_shape.size() > 0) fill_zero(slot_of(row.in2).value_layout, at(slot_of(row.in2).value, b));
    } else {
      std::fill_n(at(row.plain_x, b), row.in_shape.size(), scalar{0});
      if (row.copies_in2) std::fill_n(at(row.plain_x2, b), row.in2_shape.size(), scalar{0});
    }
    if (row.kind == node_kind::tiled && !row.copies_out) {
      fill_zero(out.value_layout, at(out.value, b));
      fill_zero(out.gradient_layout, at(out.gradient, b));
    } else {
      std::fill_n(at(row.plain_y, b), row.out_shape.size(), scalar{0});
      std::fill_n(at(row.plain_dy, b), row.out_shape.size(), scalar{0});
    }
    std::fill_n(at(row.saved, b), row.saved_count, scalar{0});
  }

 private:
  using step_function = void (passes::*)(index, index);
  static constexpr index output_size = static_cast<index>(Network::output_shape.size());
  using structure = typename program::structure;
  /// Do samples have lengths of their own?
  static constexpr bool varies = Network::input_shape.varying_axis() != 0;
  using length_function = std::uint32_t (*)(shape, std::uint32_t);
  template <class Layer>
  static std::uint32_t length_after(shape in, std::uint32_t length) {
    if constexpr (detail::has_output_length<Layer>) {
      return static_cast<std::uint32_t>(Layer::output_length(in, length));
    } else {
      return length;
    }
  }
  static constexpr auto length_functions = []<std::size_t... Index>(std::index_sequence<Index...>) {
    return std::array<length_function, size>{&passes::length_after<typename program::template layer_at<Index>>...};
  }(std::make_index_sequence<size>{});

  /// Sets what lies beyond the samples' lengths to zero: values as soon as they are written, gradients before they are
  /// read.
  void trim([[maybe_unused]] std::size_t which, [[maybe_unused]] index begin, [[maybe_unused]] index end,
            [[maybe_unused]] bool gradient) const {
    if constexpr (varies) {
      const shape of = structure::shapes[which];
      if (of.varying_axis() == 0 || of.ids != 0) return;
      const slot& here = slot_of(which);
      const layout& values = gradient ? here.gradient_layout : here.value_layout;
      const bool by_pixel = values.values.channels_first == (of.varying_axis() == 2);
      for (index b = begin; b < end; ++b) {
        const index length = length_of(which, b);
        scalar* first = at(gradient ? here.gradient : here.value, b) + values.start;
        for (index i = by_pixel ? length : 0; i < values.values.height; ++i) {
          const index from = by_pixel ? 0 : length;
          std::fill(first + i * values.row + from, first + i * values.row + values.values.channels, scalar{0});
        }
      }
    }
  }

  static void pack_matrices(const node_row& row, const scalar* weights, scalar* panels) {
    for (index k = 0; k < row.matrix_count; ++k) {
      const matrix& from = row.matrices[static_cast<std::size_t>(k)];
      pack_forward(affine_map{.in_channels = from.columns, .in_size = {1}, .out_channels = from.rows, .out_size = {1}},
                   weights + from.offset, panels + row.panel_offsets[static_cast<std::size_t>(k)], 0,
                   static_cast<index>(from.rows));
    }
  }

  template <class Layer>
  void view(const node_row& row, index begin, index end, std::uint32_t number, bool backward,
            tile_view<scalar>& tile) const {
    const slot& in = slot_of(row.in);
    const slot& out = slot_of(row.out);
    const bool second = row.in2_shape.size() > 0;
    const auto arrays = [&](place where) { return sample_arrays<scalar>{at(where, begin), where.sample}; };
    const auto constant = [&](place where) { return sample_arrays<const scalar>{at(where, begin), where.sample}; };
    tile.samples = end - begin;
    tile.in = row.in_shape;
    tile.in2 = row.in2_shape;
    tile.out = row.out_shape;
    tile.x = constant(row.plain_x);
    tile.y = arrays(row.plain_y);
    if (second) tile.x2 = constant(row.plain_x2);
    tile.saved = arrays(row.saved);
    tile.scratch = arrays(table.scratch);
    if (backward) {
      tile.dy = constant(row.plain_dy);
      tile.wants_factors = row.parameter_count > 0;
      tile.wants_dx = row.input_gradient;
      tile.wants_dx2 = row.input2_gradient;
      if (row.input_gradient) tile.dx = arrays(row.plain_dx);
      if (row.input2_gradient) tile.dx2 = arrays(row.plain_dx2);
    }
    if constexpr (detail::reads_images<Layer>) {
      tile.x_layout = in.value_layout;
      tile.y_layout = out.value_layout;
      tile.dx_layout = row.direct_dx ? in.gradient_layout : lay_out(in.gradient_layout.values, {});
      tile.dy_layout = out.gradient_layout;
    }
    tile.parameters = parameters_ + row.parameters;
    tile.panels = panels_;
    tile.panel_offsets = row.panel_offsets.data();
    if (varies && row.in_shape.varying_axis() != 0) tile.lengths = lengths_[row.staged ? row.staged_from : row.in].data() + begin;
    if (varies && second && row.in2_shape.varying_axis() != 0) tile.lengths2 = lengths_[row.in2].data() + begin;
    tile.randomness = randomness_;
    tile.records = records_.data() + begin;
    tile.layer_number = number;
  }

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
           : row.matrix_count > 0 ? 1
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
    } else if constexpr (row.kind == node_kind::tiled) {
      tiled_forward<layer>(row, static_cast<std::uint32_t>(Index), begin, end);
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
    } else if constexpr (row.kind == node_kind::tiled) {
      tiled_backward<layer>(row, static_cast<std::uint32_t>(Index), begin, end);
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

  // One copy of the code a layer type, not one a node: these layers get their sizes at run time.
  template <class Layer>
  [[gnu::noinline]] void tiled_forward(const node_row& row, std::uint32_t number, index begin, index end) {
    const slot& in = slot_of(row.in);
    const slot& out = slot_of(row.out);
    for (index b = begin; b < end; ++b) {
      if (row.copies_in) gather_plain(in.value_layout, at(in.value, b), at(row.plain_x, b), in_size(row));
      if (row.copies_in2) {
        const slot& in2 = slot_of(row.in2);
        gather_plain(in2.value_layout, at(in2.value, b), at(row.plain_x2, b), in2_size(row));
      }
    }
    tile_view<scalar> tile;
    view<Layer>(row, begin, end, number, false, tile);
    Layer::forward(tile);
    for (index b = begin; row.copies_out && b < end; ++b) {
      scatter_plain(out.value_layout, at(row.plain_y, b), at(out.value, b), out_size(row), false);
    }
  }
  template <class Layer>
  [[gnu::noinline]] void tiled_backward(const node_row& row, std::uint32_t number, index begin, index end) {
    const slot& in = slot_of(row.in);
    const slot& out = slot_of(row.out);
    for (index b = begin; row.copies_out && b < end; ++b) {
      gather_plain(out.gradient_layout, at(out.gradient, b), at(row.plain_dy, b), out_size(row));
    }
    tile_view<scalar> tile;
    view<Layer>(row, begin, end, number, true, tile);
    Layer::backward(tile);
    for (index b = begin; b < end; ++b) {
      if (row.input_gradient && !row.direct_dx && detail::reads_images<Layer>) {
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
      scatter_plain(to, plain, values, count, accumulate);
    } else if (accumulate) {
      add_to(values, plain, count);
    } else {
      std::copy_n(plain, count, values);
    }
  }

  [[nodiscard]] static constexpr index in_size(const node_row& row) { return static_cast<index>(row.in_shape.size()); }
  [[nodiscard]] static constexpr index in2_size(const node_row& row) {
    return static_cast<index>(row.in2_shape.size());
  }
  [[nodiscard]] static constexpr index out_size(const node_row& row) {
    return static_cast<index>(row.out_shape.size());
  }
  [[nodiscard]] std::span<const scalar> weights(const node_row& row) const {
    return {parameters_ + row.parameters, static_cast<std::size_t>(row.weight_count)};
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
  layer_randomness randomness_;
  std::array<std::uint32_t, 16> records_{};
  std::array<std::array<std::uint32_t, 16>, varies ? size + 1 : 1> lengths_{};
};

}  // namespace pergrad::inline v0_1::on_host
