// SPDX-License-Identifier: Apache-2.0
// pergrad/host/plan/program.hpp - a network as the host runs it: nodes, places and factor leaves, all known at compile
// time
//
// The types say what to compute; this file turns them into tables: where every value of a sample lies in a worker's
// workspace, which node reads and writes what, and one leaf per parameter block. Kernels take these numbers at run
// time, so a hundred layers cost a hundred table rows and not a hundred instantiations.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <type_traits>

#include <pergrad/concepts.hpp>
#include <pergrad/gradients/factors.hpp>
#include <pergrad/graph/gate.hpp>
#include <pergrad/graph/graph.hpp>
#include <pergrad/graph/layout.hpp>
#include <pergrad/graph/plan.hpp>
#include <pergrad/host/plan/arrangements.hpp>
#include <pergrad/host/plan/input_place.hpp>
#include <pergrad/host/plan/kept_places.hpp>
#include <pergrad/host/plan/leaf_tables.hpp>
#include <pergrad/host/plan/lifetimes.hpp>
#include <pergrad/host/plan/tables.hpp>
#include <pergrad/host/plan/tiles.hpp>
#include <pergrad/host/plan/windows.hpp>
#include <pergrad/host/plan/winograd_extents.hpp>

namespace pergrad::inline v0_1::on_host {

/// The tables of a network. `Scalar` only decides what fits into a cache.
template <class Network>
struct program {
  using structure = typename Network::structure;
  using scalar = typename Network::scalar;
  static constexpr std::size_t size = structure::size;
  using plan = detail::network_plan<structure>;

  /// Slots 0 .. size are the network's; slot size + 1 + i is the copy that node i makes of its input, if it is staged.
  static constexpr std::size_t slot_count = 2 * size + 1;

  struct tables {
    std::array<slot, slot_count> slots{};
    std::array<std::size_t, slot_count> storage{};  ///< slot -> the slot whose storage it shares
    std::array<node_row, size> nodes{};
    std::array<outer_leaf, plan::most_outer> outer{};
    std::array<elementwise_leaf, plan::most_elementwise> elementwise{};
    std::size_t outer_count = 0;  // loops say != to these counts, not <: nvcc warns of < 0
    std::size_t elementwise_count = 0;
    std::array<sparse_leaf, plan::most_sparse> sparse{};
    std::size_t sparse_count = 0;
    index sparse_integers = 0;  ///< a sample's, for the segments of all tables
    index sparse_scalars = 0;
    index sparse_positions = 0;    ///< the most of any table
    index sparse_slots = 0;        ///< of a worker's hash table
    index sparse_size = 0;         ///< parameters of all tables
    std::size_t layer_groups = 0;  ///< nodes with parameters
    std::array<std::size_t, size> layer_group{};
    index native_size = 0;
    index accumulator_size = 0;  ///< of it, what accumulators sum: all but the deferred leaves
    std::size_t deferred_count = 0;
    index deferred_x = 0;      ///< what a sample leaves of all deferred leaves: x
    index deferred_delta = 0;  ///< and delta
    std::size_t split = 0;     ///< nodes before it take `cache_tile` samples at a time through the network
    index cache_tile = 1;
    index kept_size = 0;    ///< of it, what the plan instantiates
    bool has_late = false;  ///< are gradients of some leaf formed late?
    index scaled_size = 0;  ///< the largest delta of a sample
    index panel_size = 0;
    bool reads_weights = false;  ///< does any node read its weights where the parameters lie?
    /// Are samples of all threads added to one sum, where it is wanted? There are no accumulators then.
    bool shares_sums = false;
    index sample_size = 0;  ///< elements of one sample's slots and plain copies
    index tile = 1;
    index least_tile = 1;         ///< tiled layers may want more samples together than stay in the cache
    index workspace = 0;          ///< elements of one worker's slots
    place scratch;                ///< what a tiled layer has for the time of one call
    bool input_in_place = false;  ///< the batch's values are read where they lie, slot 0 has no room: input_place.hpp
    bool any_in_pairs = false;
    place winograd;  ///< a worker's space for the convolutions that are filtered; 0 elements: there are none
    place plain_output, plain_output_gradient;
    /// Are the last node's logits formed a stretch of classes at a time, wherever they are read (streamed_logits.hpp)?
    /// They have the last place of the workspace then, which is not touched unless somebody wants all of them.
    bool streams = false;
    index touched = 0;            ///< of the workspace, what comes before
    index classes_together = 0;   ///< of a stretch
    index lookups = 0;            ///< positions that look rows of the same matrix up
    bool output_in_slot = false;  ///< they are the slot itself, which is stored in PyTorch's order
    /// The first node with parameters, the last one that a backward pass meets; `size` if there is none.
    [[nodiscard]] constexpr std::size_t first_with_parameters() const noexcept {
      std::size_t node = 0;
      while (node < size && nodes[node].parameter_count == 0) ++node;
      return node;
    }
  };

 private:
  /// Then weights are not packed: turning a few blocks of them for every sample costs little beside what is done with
  /// them (docs/internals/tricks.md).
  static constexpr bool is_large =
      (Network::parameter_count + Network::frozen_parameter_count) * sizeof(scalar) >= large_from<Network>;
  static constexpr std::size_t fewest_positions = 16;  ///< that make turning cheap beside the product
  static constexpr std::size_t most_turned_anyway = std::size_t{1} << 16U;  ///< weights: of classifiers
  static constexpr tables build() {
    tables t;
    std::array<bool, slot_count> trained{};       // a parameter lies before this slot
    std::array<std::size_t, size + 1> readers{};  // consumers of a slot
    std::array<arrangement, slot_count> arranged{};
    std::array<halo, slot_count> value_halo{};
    std::array<halo, slot_count> gradient_halo{};
    std::array<bool, slot_count> kept_apart{};  // it would lie in its input's place, were there no recomputed block
    std::array<arrangement, size> read_as{};    // how a node's input must be stored; no channels: any way

    detail::for_each_layer<structure>([&]<class Layer>(std::type_identity<Layer> /*type*/, std::size_t i) {
      node_row& row = t.nodes[i];
      row.scratch_count = static_cast<index>(detail::scratch_count_of<Layer>(plan::in_of(i), plan::second_of(i)));
      if constexpr (requires { Layer::samples_together; }) {
        t.least_tile = std::max<index>(t.least_tile, static_cast<index>(Layer::samples_together));
      } else if constexpr (detail::has_matrices<Layer>) {
        row.reads_weights = is_large && plan::in_of(i).e0 >= fewest_positions;
      }
      if constexpr (detail::has_matrices<Layer>) {
        for (const matrix& each : detail::matrices_of<Layer>(plan::in_of(i), plan::second_of(i))) {
          const auto number = static_cast<std::size_t>(row.matrix_count++);
          row.matrices[number] = each;
          row.panel_offsets[number] = t.panel_size;
          if (!row.reads_weights) t.panel_size += round_up(static_cast<index>(each.rows * each.columns));
        }
      }
    });
    for (std::size_t i = 0; i < size; ++i) read_as[i] = reads(plan::nodes[i], plan::in_of(i));
    const std::array<arrangement, size + 1> wished = wishes<structure>(read_as);
    arranged[0] = choose(Network::input_shape, wished[0]);

    for (std::size_t i = 0; i < size; ++i) {
      const detail::plan_node& node = plan::nodes[i];
      node_row& row = t.nodes[i];
      row.kind = node.kind;
      row.map = node.map;
      row.in = structure::inputs[i];
      row.in2 = structure::inputs2[i];
      row.out = i + 1;
      row.in_shape = structure::shapes[row.in];
      row.out_shape = structure::shapes[row.out];
      row.in2_shape = node.two_inputs ? structure::shapes[row.in2] : shape{};
      row.saved_count = static_cast<index>(node.saved_count);
      row.parameters = static_cast<index>(structure::parameter_offsets[i]);
      row.parameter_count = static_cast<index>(structure::trained_counts[i]);
      row.weight_count = static_cast<index>(structure::parameter_counts[i]);
      row.input_gradient = node.input_gradient;
      row.input2_gradient = node.input2_gradient;
      row.backward = trained[row.out] = node.backward;
      ++readers[row.in];
      if (node.two_inputs) ++readers[row.in2];
      t.layer_group[i] = node.layer;
      if (row.parameter_count > 0) t.layer_groups = std::max(t.layer_groups, node.layer + 1);

      if (node.swaps_axes) read_as[i] = column_of(row.in_shape, arranged[row.in]);
      if (read_as[i].channels != 0 && !arranged[row.in].agrees_with(read_as[i])) {
        stage(t, i);
        arranged[row.in] = read_as[i];
        trained[row.in] = row.input_gradient;
      }
      if (node.swaps_axes) {
        arranged[row.out] = read_as[i].transposed();
      } else if (keeps_arrangement(row.kind)) {
        arranged[row.out] = arranged[row.in];
      } else {
        const arrangement written = writes(node, row.out_shape);
        arranged[row.out] = written.channels != 0 ? written : choose(row.out_shape, wished[row.out]);
      }
      t.storage[row.out] = row.out;
      if (row.kind == node_kind::reshape) t.storage[row.out] = t.storage[row.in];
    }
    for (std::size_t i = 0; i < size; ++i) {
      node_row& row = t.nodes[i];
      const bool producer_forgets =
          row.in > 0 && row.in <= size &&
          (t.nodes[row.in - 1].kind == node_kind::affine || t.nodes[row.in - 1].kind == node_kind::branch_sum);
      row.in_place = row.kind == node_kind::elementwise && plan::nodes[i].derives_from_output && readers[row.in] == 1 &&
                     producer_forgets;
      const std::size_t block = plan::nodes[i].recomputed;
      const bool has_ends =  // of a recomputed block, which is computed again from what comes in there
          plan::nodes[row.in_place ? row.in - 1 : i].recomputed != block ||
          (block > 0 && plan::recomputed[block].last == i);
      kept_apart[row.out] = row.in_place && has_ends;
      row.in_place = row.in_place && !has_ends;
      if (row.in_place) t.storage[row.out] = t.storage[row.in];
      if (row.kind == node_kind::reshape) t.storage[row.out] = t.storage[row.in];
      if (row.kind == node_kind::affine && !takes_one_pixel(row.map)) {
        row.whole_view = sees_everything_once(row.map);
        choose_winograd(row);
        widen(value_halo[t.storage[row.in]], halo_of_input(row));
      }
    }
    for (std::size_t i = 0; i < size; ++i) {
      node_row& row = t.nodes[i];
      if (row.kind != node_kind::affine) continue;
      if (takes_one_pixel(row.map)) {
        const arrangement& image = arranged[row.in];
        const bool gaps = value_halo[t.storage[row.in]] != halo{};
        const bool is_image = image.channels_first && (gaps || !image.plain());
        // All uses of a weight add up their gradients in one order.
        if (is_image && !(plan::nodes[i].use.shared() && row.parameter_count > 0)) {
          row.map = on_stored_image(row.map, image);
        } else if (gaps || is_image) {
          stage(t, i);
          trained[row.in] = row.input_gradient;
          arranged[row.in] = arrange(row.in_shape);
        }
        row.whole_view = true;
      }
      widen(gradient_halo[t.storage[row.out]], halo_of_delta(row));
    }

    detail::gradient_writers<slot_count> writers{t.storage, size};
    for (std::size_t i = size; i-- > 0;) {
      node_row& row = t.nodes[i];
      if (row.in_place) continue;
      if (row.staged && row.input_gradient) row.staged_accumulate = writers.adds(row.staged_from);
      if (row.kind == node_kind::reshape) continue;
      if (row.input_gradient) row.accumulate = writers.adds(row.in);
      if (row.input2_gradient) row.accumulate2 = writers.adds(row.in2);
    }

    index& scratch = t.scratch.sample;
    for (std::size_t s = 0; s < slot_count; ++s) {
      if (t.storage[s] != s || !exists(t, s)) continue;
      t.slots[s].value_layout = lay_out(arranged[s], value_halo[s]);
      t.slots[s].gradient_layout = lay_out(arranged[s], gradient_halo[s]);
      if (kept_apart[s]) continue;  // tiles are those without recomputation, so that sums have the same bits
      t.sample_size += t.slots[s].value_layout.size + (trained[s] ? t.slots[s].gradient_layout.size : 0);
    }
    share_slots(t, arranged);
    for (std::size_t i = 0; i < size; ++i) {
      const detail::plan_node& node = plan::nodes[i];
      node_row& row = t.nodes[i];
      if (row.kind == node_kind::affine) {
        row.deferred = leaf_tables<program>::defers(t, i);
        if (row.deferred) {  // its weights are read where they lie
          scratch = std::max(scratch, round_up(static_cast<index>(row.map.view_width())) +
                                          round_up(static_cast<index>(row.map.out_channels)));
          continue;
        }
        const bool cheap = row.map.positions() >= fewest_positions || row.map.weight_count() <= most_turned_anyway;
        // What is one pixel to it may be stored as an image, whose gradient has a halo between its rows.
        const bool in_one_piece = !takes_one_pixel(row.map) || is_plain(t, row.in);
        row.reads_weights = is_large && cheap && sees_pixels(row.map) && in_one_piece && row.winograd_rows == 0 &&
                            row.winograd_dx_rows == 0;
        if (row.reads_weights) continue;
        row.forward_panel = t.panel_size;
        t.panel_size += panel_elements(row, row.winograd_rows, row.in_pairs);
        row.backward_panel = t.panel_size;
        if (row.input_gradient || row.map.adjoint) t.panel_size += panel_elements(row, row.winograd_dx_rows);
      } else if (row.kind == node_kind::general || row.kind == node_kind::tiled) {
        row.copies_in = !node.reads_images && !is_plain(t, row.in);
        row.copies_in2 = node.two_inputs && !node.reads_images && !is_plain(t, row.in2);
        row.copies_out = !node.reads_images && !is_plain(t, row.out);
        if (row.kind == node_kind::tiled) {
          row.direct_dx = row.input_gradient && !row.copies_in && !row.accumulate;
          row.direct_dx2 = row.input2_gradient && !row.copies_in2 && !row.accumulate2;
          scratch = std::max(scratch, round_up(row.scratch_count));
        }
        t.sample_size += general_size(row);
      }
    }
    for (const node_row& row : t.nodes) t.reads_weights = t.reads_weights || row.reads_weights;
    t.sample_size += scratch;
    if (Network::input_shape.ids == 0 && Network::input_shape.varying_axis() == 0) leave_input_in_place(t, size);
    t.output_in_slot = trained[size] && is_plain(t, size);
    if (!t.output_in_slot) t.sample_size += 2 * round_up(static_cast<index>(Network::output_shape.size()));
    t.shares_sums = is_large && leaf_tables<program>::shares_sums(t, large_from<Network>);
    const bool by_times =
        is_large || t.sample_size * static_cast<index>(sizeof(scalar)) >= places_by_times_from<Network>;
    t.streams = streams(t);
    if (t.streams) t.classes_together = classes_of_stretch(t.nodes[size - 1]);
    leaf_tables<program>::list(t, by_times);
    choose_tiles(t, sizeof(scalar), static_cast<index>(Network::parameter_count));
    if (!t.shares_sums) leaf_tables<program>::choose_late(t);
    t.workspace = t.winograd.sample = choose_winograd_rooms(t);  // the first thing there
    if (by_times || plan::recomputed_count > 0) {
      assign_shared_places(t, trained);
    } else {
      assign_places(t, trained);
    }
    t.touched = t.workspace += line;  // partial vectors may be read past the end
    if (t.streams) place_logits(t);
    share_slots(t, arranged);
    leaf_tables<program>::resolve(t);
    return t;
  }

  /// Whoever says that the last projection is to be recomputed, alone, has logits that are never all there, and so has
  /// whose logits are very many. The matrix is read where it lies, and multiplied with once; it may be looked up
  /// besides.
  static constexpr bool streams(const tables& t) {
    if constexpr (size == 0) return false;
    constexpr std::size_t node = size - 1;
    constexpr auto& left_of_block = structure::found.recomputed;
    const node_row& row = t.nodes[node];
    const index bytes = 2 * static_cast<index>(Network::output_shape.size() * sizeof(scalar));
    const bool alone = node == 0 || left_of_block[node - 1] != 2;
    if (left_of_block[node] == 0 ? bytes < logits_streamed_from<Network> : !alone) return false;
    if (row.kind != node_kind::affine || !row.reads_weights || row.map.bias || row.staged || row.in == 0 ||
        !row.backward) {
      return false;
    }
    const slot& out = t.slots[size];
    if (!t.output_in_slot || t.storage[size] != size || !may_move(out.value_layout) || !may_move(out.gradient_layout)) {
      return false;
    }
    for (std::size_t i = 0; i < node; ++i) {
      if (t.nodes[i].parameters == row.parameters && t.nodes[i].parameter_count > 0 &&
          t.nodes[i].kind == node_kind::affine && row.parameter_count > 0) {
        return false;
      }
    }
    return row.parameter_count == 0 || t.shares_sums;
  }
  /// Whole stretches of Gram dots (host/norms/leaves.hpp), about as much of the matrix as a piece of a shared sum.
  static constexpr index classes_of_stretch(const node_row& row) {
    constexpr index least = 128;
    const index inputs = static_cast<index>(row.map.in_channels);
    return std::max(least, shared_piece / inputs / least * least);
  }
  static constexpr void place_logits(tables& t) {
    slot& out = t.slots[size];
    const index elements = out.value_layout.size;
    t.plain_output = out.value = {t.workspace, 2 * elements};
    t.plain_output_gradient = out.gradient = out.value.at(elements);
    t.workspace += t.tile * 2 * elements + line;
  }

  static constexpr void stage(tables& t, std::size_t node) {
    node_row& row = t.nodes[node];
    row.staged = true;
    row.staged_from = row.in;
    row.in = size + 1 + node;
    t.storage[row.in] = row.in;
  }
  static constexpr bool exists(const tables& t, std::size_t which) {
    return which <= size ? which > 0 || !t.input_in_place : t.nodes[which - size - 1].staged;
  }
  /// Slots that share a storage differ in how PyTorch numbers their values.
  static constexpr void share_slots(tables& t, const std::array<arrangement, slot_count>& arranged) {
    for (std::size_t s = 0; s <= size; ++s) {
      if (t.storage[s] == s) continue;
      t.slots[s] = t.slots[t.storage[s]];
      t.slots[s].value_layout.values = arranged[s];
      t.slots[s].gradient_layout.values = arranged[s];
    }
  }

  static constexpr bool is_plain(const tables& t, std::size_t which) {
    const slot& s = t.slots[which];
    return s.value_layout.values.plain() && s.value_layout.dense() && s.value_layout.start == 0 &&
           s.gradient_layout.dense() && s.gradient_layout.start == 0;
  }
  /// Elements of a sample's plain copies. dx is always a copy: the layer must be free to write it whole.
  static constexpr index general_size(const node_row& row) {
    const index in = round_up(static_cast<index>(row.in_shape.size()));
    const index in2 = round_up(static_cast<index>(row.in2_shape.size()));
    const index out = round_up(static_cast<index>(row.out_shape.size()));
    return (copies_dx(row) ? in : 0) + (row.copies_in ? in : 0) + (copies_dx2(row) ? in2 : 0) +
           (row.copies_in2 ? in2 : 0) + (row.copies_out ? 2 * out : 0) + round_up(row.saved_count);
  }
  static constexpr bool copies_dx(const node_row& row) {
    return row.kind == node_kind::general || (row.input_gradient && !row.direct_dx);
  }
  static constexpr bool copies_dx2(const node_row& row) { return row.input2_gradient && !row.direct_dx2; }
  static constexpr void assign_places(tables& t, const std::array<bool, slot_count>& trained) {
    const auto reserve = [&](index elements) {
      const place here{t.workspace, elements};
      t.workspace += t.tile * elements;
      return here;
    };
    const auto lasts = slots_that_last<slot_count>(t, size);
    const auto reserve_slots = [&](bool lasting) {
      for (std::size_t s = 0; s < slot_count; ++s) {
        if (t.storage[s] == s && exists(t, s)) reserve_values(t.slots[s], trained[s], lasts[s], lasting, reserve);
      }
    };
    t.scratch = reserve(t.scratch.sample);
    reserve_slots(false);
    place_kept_gradients(t, t.workspace);
    reserve_slots(true);
    for (node_row& row : t.nodes) {
      if (row.kind != node_kind::general && row.kind != node_kind::tiled) continue;
      for_each_copy(row, [&](place& where, index elements, bool /*backward*/) { where = reserve(elements); });
      row.saved = reserve(round_up(row.saved_count));
      row.saved_lasts = row.saved_count;
      look_into_slots(t, row);
    }
    const slot& last = t.slots[t.storage[size]];
    const index output = round_up(static_cast<index>(Network::output_shape.size()));
    t.plain_output = t.output_in_slot ? last.value : reserve(output);
    t.plain_output_gradient = t.output_in_slot ? last.gradient : reserve(output);
  }
  /// Calls f(place, elements, whether it is written on the way back) for what a general or tiled node has in PyTorch's
  /// order beside the slots.
  static constexpr void for_each_copy(node_row& row, auto&& f) {
    const auto elements = [](shape of) { return round_up(static_cast<index>(of.size())); };
    if (copies_dx(row)) f(row.plain_dx, elements(row.in_shape), true);
    if (row.copies_in) f(row.plain_x, elements(row.in_shape), false);
    if (copies_dx2(row)) f(row.plain_dx2, elements(row.in2_shape), true);
    if (row.copies_in2) f(row.plain_x2, elements(row.in2_shape), false);
    if (row.copies_out) f(row.plain_y, elements(row.out_shape), false);
    if (row.copies_out) f(row.plain_dy, elements(row.out_shape), true);
  }
  /// What is not copied lies where its slot does.
  static constexpr void look_into_slots(const tables& t, node_row& row) {
    const slot& in = t.slots[t.storage[row.in]];
    const slot& in2 = t.slots[t.storage[row.in2]];
    const slot& out = t.slots[t.storage[row.out]];
    if (!copies_dx(row)) row.plain_dx = in.gradient;
    if (!row.copies_in) row.plain_x = in.value;
    if (!row.copies_in) row.x_lasts = in.value_lasts;
    if (row.in2_shape.size() > 0 && !copies_dx2(row)) row.plain_dx2 = in2.gradient;
    if (row.in2_shape.size() > 0 && !row.copies_in2) {
      row.plain_x2 = in2.value;
      row.x2_lasts = in2.value_lasts;
    }
    if (row.copies_out) return;
    row.plain_y = out.value;
    row.plain_dy = out.gradient;
    row.y_lasts = out.value_lasts;
    row.dy_lasts = out.gradient_lasts;
  }

  /// Places that are free again when nobody reads what lies there (lifetimes.hpp).
  static constexpr void assign_shared_places(tables& t, const std::array<bool, slot_count>& trained) {
    const lifetimes<program> until{t};
    t.scratch = {t.workspace, t.scratch.sample};
    t.workspace += t.tile * t.scratch.sample;
    place_kept_gradients(t, t.workspace);
    const index stretch = place_by_times<size>(t, trained, until, 0, t.workspace);
    index room = 0;
    if constexpr (plan::recomputed_count > 0) {
      constexpr std::size_t longest = [] {
        std::size_t most = 0;
        for (std::size_t k = 1; k <= plan::recomputed_count; ++k) {
          most = std::max(most, plan::recomputed[k].last - plan::recomputed[k].first + 1);
        }
        return most;
      }();
      for (std::size_t k = 1; k <= plan::recomputed_count; ++k) {
        room = std::max(room, place_by_times<longest>(t, trained, until, k, t.workspace + stretch));
      }
      for (std::size_t i = 0; i < size; ++i) t.nodes[i].again = until.again[i];
    }
    const index step = stretch + room;
    for (slot& each : t.slots) each.value.sample = each.gradient.sample = step;
    for (node_row& row : t.nodes) {
      if (row.kind != node_kind::general && row.kind != node_kind::tiled) continue;
      for_each_copy(row, [&](place& where, index /*elements*/, bool /*backward*/) { where.sample = step; });
      row.saved.sample = step;
      look_into_slots(t, row);
    }
    t.plain_output.sample = t.plain_output_gradient.sample = step;
    if (t.output_in_slot) t.plain_output = t.slots[t.storage[size]].value;
    if (t.output_in_slot) t.plain_output_gradient = t.slots[t.storage[size]].gradient;
    t.workspace += t.tile * step;
  }

  /// Places of what lies in one room, or, of block 0, outside: from `base` on, so many elements a sample. `Most`:
  /// nodes.
  template <std::size_t Most>
  static constexpr index place_by_times(tables& t, const std::array<bool, slot_count>& trained,
                                        const lifetimes<program>& until, std::size_t block, index base) {
    constexpr pass_times all{size};
    const auto [first_node, last_node] = plan::recomputed[block];
    const block_times times{all, first_node, last_node};
    place_finder<12 * Most + 2, 2 * Most + 4> finder;
    const auto put = [&](place& where, index elements, int birth, int death, index lasting = 0) {
      where.offset = base + finder.place(elements, times(birth), times(death), lasting, times(all.end()));
    };
    const auto put_value = [&](std::size_t s, int birth) {
      slot& here = t.slots[s];
      if (t.streams && s == size) return;
      if (t.storage[s] != s || until.room[s] != block || !exists(t, s) || (birth > 0 && !may_move(here.value_layout))) {
        return;
      }
      const bool moves = may_move(here.value_layout);
      here.elements += here.value_layout.size;
      here.value_lasts = !moves || until.value[s] == all.end();
      put(here.value, here.value_layout.size, birth, moves ? until.value[s] : all.end());
    };
    const auto put_gradient = [&](std::size_t which, int birth) {
      const std::size_t s = t.storage[which];
      slot& here = t.slots[s];
      if (!trained[s] || until.room[s] != block || !exists(t, s) || (t.streams && s == size)) return;
      const bool stays = until.gradient_birth[s] == 0 || !may_move(here.gradient_layout);
      if (birth != (stays ? 0 : until.gradient_birth[s])) return;
      here.elements += here.gradient_layout.size;
      here.gradient_lasts = stays || until.gradient[s] == all.end();
      put(here.gradient, here.gradient_layout.size, birth, stays ? all.end() : until.gradient[s]);
    };
    const auto is_here = [&](std::size_t node) { return plan::nodes[node].recomputed == block; };
    for (std::size_t s = 0; s < slot_count; ++s) {  // what has a halo, or zeros that nobody overwrites, stays
      if (t.storage[s] != s || !exists(t, s)) continue;
      if (s == 0 || !may_move(t.slots[s].value_layout)) put_value(s, 0);
      put_gradient(s, 0);
    }
    for (std::size_t i = first_node; i <= last_node; ++i) {
      node_row& row = t.nodes[i];
      const int now = all.forward(i);
      if (row.staged) put_value(row.in, now);
      put_value(row.out, now);
      if ((row.kind != node_kind::general && row.kind != node_kind::tiled) || !is_here(i)) continue;
      for_each_copy(row, [&](place& where, index elements, bool backward) {
        if (!backward) put(where, elements, now, &where == &row.plain_y ? until.plain_y[i] : until.plain_x[i]);
      });
      row.x_lasts = row.x2_lasts = until.plain_x[i] == all.end();
      row.y_lasts = until.plain_y[i] == all.end();
      row.dy_lasts = until.plain_dy[i] == all.end();
      row.saved_lasts = std::min(until.lasting_saved[i], round_up(row.saved_count));
      put(row.saved, round_up(row.saved_count), now, until.saved[i], row.saved_lasts);
    }
    if (block == 0) {
      const index output = round_up(static_cast<index>(Network::output_shape.size()));
      if (!t.output_in_slot) put(t.plain_output, output, all.forward(size - 1), all.end());
      if (!t.output_in_slot) put(t.plain_output_gradient, output, all.loss(), all.loss());
      put_gradient(size, all.loss());
    }
    for (std::size_t i = last_node + 1; i-- > first_node;) {
      node_row& row = t.nodes[i];
      const int now = all.backward(i);
      if ((row.kind == node_kind::general || row.kind == node_kind::tiled) && is_here(i)) {
        for_each_copy(row, [&](place& where, index elements, bool backward) {
          if (backward) put(where, elements, now, &where == &row.plain_dy ? until.plain_dy[i] : now);
        });
      }
      if (row.staged) put_gradient(row.staged_from, now);
      put_gradient(row.in, now);
      if (row.in2_shape.size() > 0) put_gradient(row.in2, now);
    }
    return finder.total();
  }

 public:
  static constexpr tables table = build();
};

}  // namespace pergrad::inline v0_1::on_host
