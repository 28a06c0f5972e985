// SPDX-License-Identifier: Apache-2.0
// pergrad/host/decode/decoder.hpp - a causal network's output behind a text that grows, from kept keys and values
//
// New positions go through the network node by node, as rows; attention finds keys and values of the positions in front
// where the calls before left them. A step reads every weight once, where the parameters lie, so threads share out the
// outputs of a product and no weight is copied: of one row as y^T = W x^T. Each number is the chain of operations that
// it is in a pass over all positions, so the logits are the same, bit for bit, unless there convolutions are filtered.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <pergrad/concepts.hpp>
#include <pergrad/detail/aligned_buffer.hpp>
#include <pergrad/detail/thread_pool.hpp>
#include <pergrad/graph/graph.hpp>
#include <pergrad/graph/layout.hpp>
#include <pergrad/graph/plan.hpp>
#include <pergrad/host/conv/kernels.hpp>
#include <pergrad/host/gemm/product.hpp>
#include <pergrad/host/plan/tables.hpp>
#include <pergrad/host/plan/windows.hpp>
#include <pergrad/host/team/team.hpp>
#include <pergrad/shape.hpp>
#include <pergrad/team.hpp>

namespace pergrad::inline v0_1::on_host {

/// y = x W^T + b for `rows` rows; W `[outputs][inputs]` lies where the parameters are, `bias` may be null.
template <class Scalar>
struct row_product {
  index rows = 0;
  index inputs = 0;
  index outputs = 0;
  const Scalar* x = nullptr;
  index x_step = 0;
  const Scalar* weights = nullptr;
  const Scalar* bias = nullptr;
  Scalar* y = nullptr;
  index y_step = 0;
};
template <class Scalar>
void multiply_rows(const detail::thread_pool& pool, const row_product<Scalar>& of) {
  constexpr index least = index{1} << 16;  // multiply-adds that are worth a task
  const index blocks = (of.outputs + panel_block - 1) / panel_block;
  const index worth = std::max<index>(1, of.rows * of.inputs * of.outputs / least);
  const index tasks = std::min({blocks, worth, 4 * static_cast<index>(pool.thread_count())});
  pool.parallel(static_cast<std::size_t>(tasks), [&](std::size_t task, std::size_t /*worker*/) {
    const auto begin_of = [&](index number) { return std::min(of.outputs, blocks * number / tasks * panel_block); };
    const index first = begin_of(static_cast<index>(task));
    const index count = begin_of(static_cast<index>(task) + 1) - first;
    const Scalar* const weights = of.weights + first * of.inputs;
    const Scalar* const bias = of.bias == nullptr ? nullptr : of.bias + first;
    if (of.rows == 1) {
      Scalar* const y = of.y + first;
      product({{{}, {}, {count, of.inputs, 1}}, {{}, {}, {of.inputs, 1, 1}}, 1}, weights, of.x, y, epilogue::store{});
      for (index n = 0; bias != nullptr && n < count; ++n) y[n] += bias[n];
      return;
    }
    product_shape shape = coalesce({{{}, {}, {of.rows, of.x_step, of.y_step}}, {{}, {}, {of.inputs, 1, 1}}, count});
    shape.right_column = of.inputs;
    write_product(shape, of.x, weights, of.y + first, bias, false);
  });
}

/// A thread with one text, and others that help with its products.
template <class Scalar>
struct decode_team : tile_team<Scalar> {
  const detail::thread_pool* pool = nullptr;
  shape whole;
  index first = 0;
  Scalar* kept = nullptr;

  void multiply(const product_sizes& sizes, const Scalar* left, const matrix_view<Scalar>& right, Scalar* to) const {
    if (!by_rows(sizes, left, right, to, nullptr)) tile_team<Scalar>::multiply(sizes, left, right, to);
  }
  void multiply_bias(const product_sizes& sizes, const Scalar* left, const matrix_view<Scalar>& right, Scalar* to,
                     const Scalar* bias) const {
    if (!by_rows(sizes, left, right, to, bias)) tile_team<Scalar>::multiply_bias(sizes, left, right, to, bias);
  }

 private:
  /// Is the right operand a matrix of the parameters, transposed?
  bool by_rows(const product_sizes& sizes, const Scalar* left, const matrix_view<Scalar>& right, Scalar* to,
               const Scalar* bias) const {
    if (right.row != 1 || right.column != sizes.depth || sizes.outer.count != 1 || sizes.left != 1) return false;
    multiply_rows<Scalar>(*pool, {sizes.rows.count, sizes.depth, sizes.columns, left, sizes.rows.left, right.first,
                                  bias, to, sizes.rows.out});
    return true;
  }
};

/// Can positions of this layer be had behind others?
template <class Layer>
[[nodiscard]] constexpr bool decodes_layer(shape in) {
  if constexpr (detail::has_affine<Layer>) {
    constexpr bool channels_first = detail::says_channels_first<Layer>;
    return !channels_first && sees_pixels(Layer::affine(in));
  } else if constexpr (detail::has_value<Layer> || detail::is_branch_sum<Layer> || detail::works_behind<Layer>) {
    return true;
  } else if constexpr (detail::works_by_position<Layer>) {
    return Layer::by_position;
  } else {
    return false;
  }
}
/// Whether every node of a network gives position t of its output by what it finds at the positions up to t, and says
/// so: embeddings, learned positions, layers that work position by position, causal attention, and sums and products of
/// their branches.
template <class Network>
inline constexpr bool decodes = [] {
  using structure = typename Network::structure;
  const shape in = Network::input_shape;
  bool all = in.varying_axis() == 0 && (in.rank() == 2 || (in.ids != 0 && in.rank() == 1)) && structure::size > 0;
  detail::for_each_layer<structure>([&]<class Layer>(std::type_identity<Layer> /*type*/, std::size_t i) {
    const shape out = structure::shapes[i + 1];
    all = all && out.rank() == 2 && out.e0 == in.e0 && decodes_layer<Layer>(structure::shapes[structure::inputs[i]]);
  });
  return all;
}();

/// The memory of one text and its way through a network. Refers to both; parameters must not change in between. One
/// call at a time.
template <class Network>
requires(decodes<Network>) class decoder {
  using structure = typename Network::structure;
  using plan = detail::network_plan<structure>;
  static constexpr std::size_t size = structure::size;
  static constexpr index positions = static_cast<index>(Network::input_shape.e0);
  static constexpr index at_once = std::min<index>(positions, 64);

 public:
  using scalar = typename Network::scalar;
  using input_value = typename Network::input_value;

  /// Reserves everything. Throws std::runtime_error if there is no memory.
  decoder(const detail::thread_pool& pool, const Network& network)
      : pool_{&pool}, parameters_{network.all_parameters().data()} {}

  /// Positions that were taken in.
  [[nodiscard]] std::size_t length() const noexcept { return static_cast<std::size_t>(length_); }
  /// The next text.
  void clear() noexcept { length_ = 0; }
  /// Takes in the positions that follow, `[count][features]` or `count` ids, and returns the network's output at the
  /// last of them. Precondition: there is at least one; `length()` and they are no more than the network's positions;
  /// ids are below the vocabulary.
  std::span<const scalar> append(std::span<const input_value> input) {
    static constexpr auto steps = steps_of(std::type_identity<typename structure::table>{});
    constexpr auto width = static_cast<std::size_t>(in_width(0));
    while (!input.empty()) {
      const std::size_t values = std::min(input.size(), static_cast<std::size_t>(at_once) * width);
      const auto count = static_cast<index>(values / width);
      if constexpr (Network::input_shape.ids != 0) {
        std::copy_n(input.data(), values, static_cast<std::int32_t*>(static_cast<void*>(slot(0))));
      } else {
        std::copy_n(input.data(), values, slot(0));
      }
      for (std::size_t i = 0; i < size; ++i) (this->*steps[i])(i, count);
      length_ += count;
      input = input.subspan(values);
      last_ = count - 1;
    }
    return {slot(size) + (ends_in_one ? 0 : last_ * in_width(size)), Network::output_shape.e1};
  }

 private:
  /// Values of a slot a position.
  [[nodiscard]] static constexpr index in_width(std::size_t which) {
    const shape of = structure::shapes[which];
    return static_cast<index>(of.size() / of.e0);
  }
  /// Where values of slots lie; a slot's room is free again behind its last reader. And of what layers keep.
  struct places {
    std::array<index, size + 1> slots{};
    std::array<index, size> kept{};
    index slot_total = 0;
    index kept_total = 0;
    index scratch = 0;
    index saved = 0;
    bool ends_in_one = true;  ///< the last node is asked for one position: nobody looks at the others
  };
  static constexpr places place = [] {
    places made;
    std::array<std::size_t, size + 1> last_reader{};
    for (std::size_t i = 0; i < size; ++i) {
      last_reader[structure::inputs[i]] = i;
      if (plan::nodes[i].two_inputs) last_reader[structure::inputs2[i]] = i;
    }
    last_reader[size] = size;
    detail::for_each_layer<structure>([&]<class Layer>(std::type_identity<Layer> /*type*/, std::size_t i) {
      const shape in = structure::shapes[structure::inputs[i]];
      made.kept[i] = made.kept_total;
      if constexpr (requires { Layer::kept_count(in); }) {
        made.kept_total += round_up(static_cast<index>(Layer::kept_count(in)));
      }
      if constexpr (requires { Layer::scratch_count_behind(in); }) {
        made.scratch = std::max(made.scratch, static_cast<index>(Layer::scratch_count_behind(in)));
      } else if constexpr (detail::is_tiled<Layer>) {
        shape some = in;
        shape second = structure::shapes[structure::inputs2[i]];
        some.e0 = second.e0 = static_cast<std::size_t>(at_once);
        made.saved = std::max(made.saved, static_cast<index>(detail::saved_count_of<Layer>(some, second)));
        made.scratch = std::max(made.scratch, static_cast<index>(detail::scratch_count_of<Layer>(some, second)));
      }
      // Ids are not as wide as other values: a last layer that reads them takes all positions.
      if (i + 1 == size) made.ends_in_one = !detail::works_behind<Layer> && structure::inputs[i] != 0;
    });
    index room = 0;
    for (std::size_t s = 0; s < size; ++s) room = std::max(room, round_up(at_once * in_width(s)));
    std::array<std::size_t, size + 1> holder{};  // of a room: the slot that has it, + 1
    for (std::size_t s = 0; s <= size; ++s) {
      std::size_t number = 0;
      // A slot is written by node s - 1: what that one reads must still be there.
      while (s < size && holder[number] != 0 && (s == 0 || last_reader[holder[number] - 1] + 1 >= s)) ++number;
      if (s == size)
        while (holder[number] != 0) ++number;
      holder[number] = s + 1;
      made.slots[s] = static_cast<index>(number) * room;
    }
    made.slot_total = made.slots[size] + round_up((made.ends_in_one ? 1 : at_once) * in_width(size));
    return made;
  }();
  static constexpr bool ends_in_one = place.ends_in_one;

  using step_function = void (decoder::*)(std::size_t, index);
  template <class... Layers>
  [[nodiscard]] static constexpr auto steps_of(std::type_identity<detail::type_table<Layers...>> /*layers*/) {
    return std::array<step_function, size>{&decoder::take<Layers>...};
  }

  [[nodiscard]] scalar* slot(std::size_t which) { return slots_.data() + place.slots[which]; }

  /// `count` positions through node i; of the last node the last of them.
  template <class Layer>
  void take(std::size_t i, index count) {
    const std::size_t in = structure::inputs[i], in2 = structure::inputs2[i];
    const index skipped = i + 1 == size && ends_in_one ? count - 1 : 0;
    count -= skipped;
    const index width = in_width(i + 1);
    const scalar* const x = slot(in) + skipped * in_width(in);
    const scalar* const x2 = slot(in2) + skipped * in_width(in2);
    const scalar* const parameters = parameters_ + structure::parameter_offsets[i];
    scalar* const y = slot(i + 1);
    if constexpr (detail::has_affine<Layer>) {
      const affine_map& map = plan::nodes[i].map;
      multiply_rows<scalar>(*pool_, {count, in_width(in), width, x, in_width(in), parameters,
                                     map.bias ? parameters + map.weight_count() : nullptr, y, width});
    } else if constexpr (detail::is_branch_sum<Layer>) {
      for (index k = 0; k < count * width; ++k) y[k] = x[k] + x2[k];
    } else if constexpr (detail::has_value<Layer>) {
      const layout all = lay_out(arrange(shape{static_cast<std::size_t>(count * width)}), {});
      elementwise_kernel<Layer, scalar>::forward(all, x, all, y);
    } else {
      const auto some = [&](std::size_t which) {
        shape of = structure::shapes[which];
        of.e0 = static_cast<std::size_t>(count);
        return of;
      };
      decode_team<scalar> team;
      team.samples = 1;
      team.in = some(in);
      if (plan::nodes[i].two_inputs) team.in2 = some(in2);
      team.out = some(i + 1);
      team.x = {x, 0};
      team.x2 = {x2, 0};
      team.y = {y, 0};
      team.saved = {saved_.data(), 0};
      team.scratch = {scratch_.data(), 0};
      team.parameters = parameters;
      team.pool = pool_;
      team.whole = structure::shapes[in];
      team.first = length_ + skipped;
      team.kept = kept_.data() + place.kept[i];
      if constexpr (detail::works_behind<Layer>) {
        Layer::forward_behind(team);
      } else {
        Layer::forward(team);
      }
    }
  }

  const detail::thread_pool* pool_;
  const scalar* parameters_;
  index length_ = 0;
  index last_ = 0;
  detail::aligned_buffer<scalar> slots_{static_cast<std::size_t>(place.slot_total + line), "a decoder's values"};
  detail::aligned_buffer<scalar> kept_{static_cast<std::size_t>(place.kept_total + line),
                                       "a decoder's keys and values"};
  detail::aligned_buffer<scalar> scratch_{static_cast<std::size_t>(place.scratch + line), "a decoder's scratch"};
  detail::aligned_buffer<scalar> saved_{static_cast<std::size_t>(place.saved + line), "a decoder's scratch"};
};

}  // namespace pergrad::inline v0_1::on_host
