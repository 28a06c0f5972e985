// SPDX-License-Identifier: Apache-2.0
// pergrad/host/run/tile_values.hpp - the values of a tile in a worker's workspace: how they come in, lie there and go
// out
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
#include <pergrad/host/conv/kernels.hpp>
#include <pergrad/host/norms/request.hpp>
#include <pergrad/host/plan/program.hpp>
#include <pergrad/host/plan/tables.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1::on_host {

/// Everything of a tile's samples that lies in one worker's workspace, slot by slot. Holds pointers only.
template <class Network>
class tile_values {
 public:
  using scalar = typename Network::scalar;
  using program = on_host::program<Network>;
  static constexpr const auto& table = program::table;
  static constexpr std::size_t size = program::size;

  tile_values(const Network& network, scalar* workspace)
      : parameters_{network.parameters().data()}, workspace_{workspace} {}

  /// Of samples whose values are in the workspace: what else is known of them.
  void recall(const sample_source<scalar>& source, std::size_t first, index samples) {
    for (index b = 0; b < samples; ++b) {
      const std::size_t sample = first + static_cast<std::size_t>(b);
      records_[static_cast<std::size_t>(b)] = source.record(source.context, sample);
      if constexpr (table.input_in_place) {
        inputs_[static_cast<std::size_t>(b)] = static_cast<const scalar*>(source.input(source.context, sample));
      }
      if constexpr (varies) {
        lengths_[0][static_cast<std::size_t>(b)] = source.length(source.context, sample);
        for (std::size_t i = 0; i < size; ++i) {
          lengths_[i + 1][static_cast<std::size_t>(b)] = static_cast<std::uint32_t>(length_functions[i](
              table.nodes[i].in_shape, lengths_[structure::inputs[i]][static_cast<std::size_t>(b)]));
        }
      }
    }
  }
  /// Those of a tile from `begin` on: where the others' inputs were, their values may lie.
  void load(const sample_source<scalar>& source, std::size_t first, index begin, index end) {
    recall(source, first, end);
    if constexpr (table.input_in_place) return;
    const slot& to = table.slots[0];
    constexpr layout plain = plain_twin(table.slots[0].value_layout);
    for (index b = begin; b < end; ++b) {
      const std::size_t sample = first + static_cast<std::size_t>(b);
      scalar* values = at(to.value, b);
      if constexpr (Network::input_shape.ids != 0) {
        const auto* from = static_cast<const std::int32_t*>(source.input(source.context, sample));
        auto* ids = static_cast<std::int32_t*>(static_cast<void*>(values));
        std::copy_n(from, Network::input_shape.size(), ids);
        if constexpr (varies)
          std::fill(ids + lengths_[0][static_cast<std::size_t>(b)], ids + Network::input_shape.size(), 0);
      } else {
        const auto* from = static_cast<const scalar*>(source.input(source.context, sample));
        transfer(plain, from, to.value_layout, values, false);
      }
    }
    trim(0, begin, end, false);
  }

  /// The tile's samples from `first` on in the batch, if the node's input is read there; else null.
  [[nodiscard]] const scalar* const* inputs_of(const node_row& row, index first) const noexcept {
    return table.input_in_place && table.storage[row.in] == 0 ? inputs_.data() + first : nullptr;
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

  [[nodiscard]] std::span<const scalar> output(index b) const {
    return {at(table.plain_output, b), static_cast<std::size_t>(output_size)};
  }
  [[nodiscard]] std::span<scalar> output_gradient(index b) {
    return {at(table.plain_output_gradient, b), static_cast<std::size_t>(output_size)};
  }
  void scatter_output_gradient(index b) {
    const slot& out = table.slots[size];
    if (table.output_in_slot || !table.nodes[size - 1].backward) return;
    scatter_plain(out.gradient_layout, at(table.plain_output_gradient, b), at(out.gradient, b), false);
  }

  /// Sets everything that the node's factors read of a sample to zero, so that the sample's share of any sum is exactly
  /// zero.
  void erase(std::size_t node, index b) {
    const node_row& row = table.nodes[node];
    const slot& in = table.slots[row.in];
    const slot& in2 = table.slots[row.in2];
    const slot& out = table.slots[row.out];
    const auto clear_value = [&](const slot& of) {
      if (of.value_lasts) fill_zero(of.value_layout, at(of.value, b));
    };
    const auto clear_gradient = [&](const slot& of) {
      if (of.gradient_lasts) fill_zero(of.gradient_layout, at(of.gradient, b));
    };
    const auto clear_copy = [&](place of, bool lasts, shape elements) {
      if (lasts) std::fill_n(at(of, b), elements.size(), scalar{0});
    };
    if (row.kind == node_kind::affine) {
      if (inputs_of(row, 0) == nullptr) clear_value(in);
      clear_gradient(out);
      return;
    }
    // Of two inputs one may be copied, and the other read where it lies.
    if (row.kind == node_kind::tiled && !row.copies_in) {
      clear_value(in);
    } else {
      clear_copy(row.plain_x, row.x_lasts, row.in_shape);
    }
    if (row.copies_in2) {
      clear_copy(row.plain_x2, row.x2_lasts, row.in2_shape);
    } else if (row.in2_shape.size() > 0) {
      clear_value(in2);
    }
    if (row.kind == node_kind::tiled && !row.copies_out) {
      clear_value(out);
      clear_gradient(out);
    } else {
      clear_copy(row.plain_y, row.y_lasts, row.out_shape);
      clear_copy(row.plain_dy, row.dy_lasts, row.out_shape);
    }
    std::fill_n(at(row.saved, b), row.saved_lasts, scalar{0});
  }

 protected:
  using structure = typename program::structure;
  static constexpr index output_size = static_cast<index>(Network::output_shape.size());
  /// Do samples have lengths of their own?
  static constexpr bool varies = Network::input_shape.varying_axis() != 0;

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

  [[nodiscard]] scalar* at(place where, index sample) const {
    return workspace_ + where.offset + sample * where.sample;
  }
  [[nodiscard]] static const slot& slot_of(std::size_t which) { return table.slots[which]; }

  static void gather_plain(const layout& from, const scalar* values, scalar* plain) {
    transfer(from, values, plain_twin(from), plain, false);
  }
  static void scatter_plain(const layout& to, const scalar* plain, scalar* values, bool accumulate) {
    transfer(plain_twin(to), plain, to, values, accumulate);
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

  /// Two slots' sum into a third, and its gradient to both.
  void branch_forward(const node_row& row, index begin, index end) const {
    const slot& in = slot_of(row.in);
    const slot& in2 = slot_of(row.in2);
    const slot& out = slot_of(row.out);
    for (index b = begin; b < end; ++b) {
      transfer(in.value_layout, at(in.value, b), out.value_layout, at(out.value, b), false);
      transfer(in2.value_layout, at(in2.value, b), out.value_layout, at(out.value, b), true);
    }
  }
  void branch_backward(const node_row& row, index begin, index end) const {
    const slot& in = slot_of(row.in);
    const slot& in2 = slot_of(row.in2);
    const slot& out = slot_of(row.out);
    for (index b = begin; b < end; ++b) {
      if (row.input_gradient) {
        transfer(out.gradient_layout, at(out.gradient, b), in.gradient_layout, at(in.gradient, b), row.accumulate);
      }
      if (row.input2_gradient) {
        transfer(out.gradient_layout, at(out.gradient, b), in2.gradient_layout, at(in2.gradient, b), row.accumulate2);
      }
    }
  }

  [[nodiscard]] static constexpr index in_size(const node_row& row) { return static_cast<index>(row.in_shape.size()); }
  [[nodiscard]] static constexpr index in2_size(const node_row& row) {
    return static_cast<index>(row.in2_shape.size());
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

  [[nodiscard]] const scalar* bias_of(const node_row& row) const {
    return row.map.bias ? parameters_ + row.parameters + row.map.weight_count() : nullptr;
  }
  /// From sample `first` of the tile on: numbers in the data set, and lengths in a slot.
  [[nodiscard]] const std::uint32_t* records(index first) const { return records_.data() + first; }
  [[nodiscard]] const std::uint32_t* lengths(std::size_t which, index first) const {
    return lengths_[which].data() + first;
  }

 private:
  using length_function = std::size_t (*)(shape, std::size_t);
  static constexpr auto length_functions = []<class... Layers>(std::type_identity<detail::type_table<Layers...>>) {
    return std::array<length_function, size>{&detail::output_length_of<Layers>...};
  }(std::type_identity<typename structure::table>{});

  const scalar* parameters_;
  scalar* workspace_;
  std::array<const scalar*, table.input_in_place ? static_cast<std::size_t>(table.tile) : 1> inputs_{};
  std::array<std::uint32_t, static_cast<std::size_t>(table.tile)> records_{};
  std::array<std::array<std::uint32_t, static_cast<std::size_t>(table.tile)>, varies ? size + 1 : 1> lengths_{};
};

}  // namespace pergrad::inline v0_1::on_host
