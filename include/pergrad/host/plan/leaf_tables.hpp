// SPDX-License-Identifier: Apache-2.0
// pergrad/host/plan/leaf_tables.hpp - the factor leaves of a network: a row for each use of each block of parameters
#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include <pergrad/concepts.hpp>
#include <pergrad/gradients/factors.hpp>
#include <pergrad/gradients/plan.hpp>
#include <pergrad/graph/graph.hpp>
#include <pergrad/graph/layout.hpp>
#include <pergrad/host/plan/segment_sizes.hpp>
#include <pergrad/host/plan/tables.hpp>
#include <pergrad/host/plan/tiles.hpp>

namespace pergrad::inline v0_1::on_host {

/// Fills the leaves into the tables of a `program`.
template <class Program>
struct leaf_tables {
  using structure = typename Program::structure;
  using tables = typename Program::tables;

  /// Is the sum of this affine node's weights formed a chunk at a time? That of a large block is, and those of all
  /// behind it that have one position, whatever their size: they go through whole tiles anyway.
  static constexpr bool defers(const tables& t, std::size_t node) {
    if (!may_be_deferred(t.nodes[node], node)) return false;
    for (std::size_t i = 0; i <= node; ++i) {
      const affine_map& map = t.nodes[i].map;
      if (may_be_deferred(t.nodes[i], i) &&
          pays_to_defer({1, map.view_width(), map.out_channels, map.groups}, sizeof(typename Program::scalar))) {
        return true;
      }
    }
    return false;
  }
  /// Of shared weights it is not.
  static constexpr bool may_be_deferred(const node_row& row, std::size_t node) {
    return row.kind == node_kind::affine && row.whole_view && !row.map.adjoint && row.map.groups == 1 &&
           row.parameter_count > 0 && !use_of(node).shared();
  }

  /// Sizes and parameter order of every leaf; places follow once the tile is known.
  static constexpr void list(tables& t) {
    detail::for_each_layer<structure>([&]<class Layer>(std::type_identity<Layer> /*type*/, std::size_t i) {
      const node_row& row = t.nodes[i];
      index parameter = row.parameters;
      if (row.parameter_count == 0) return;
      if constexpr (detail::has_affine<Layer>) {
        const affine_map& map = row.map;
        const auto taps = static_cast<index>(map.kernel.size());
        const auto group_channels = static_cast<index>(map.in_channels / map.groups);
        outer_leaf leaf;
        leaf.node = i;
        leaf.groups = static_cast<index>(map.groups);
        leaf.outputs = static_cast<index>(map.group_outputs());
        leaf.view_plane = {static_cast<index>(map.kernel.depth), 0,
                           static_cast<index>(map.kernel.height * map.kernel.width)};
        leaf.view[0] = {static_cast<index>(map.kernel.height), 0, static_cast<index>(map.kernel.width)};
        leaf.view[1] = {static_cast<index>(map.kernel.width), 0, 1};
        leaf.view[2] = {group_channels, 1, taps};
        leaf.step_plane.extent = static_cast<index>(map.out_size.depth);
        leaf.step[0].extent = static_cast<index>(map.out_size.height);
        leaf.step[1].extent = static_cast<index>(map.out_size.width);
        leaf.parameter_output = group_channels * taps;
        leaf.parameter_group = leaf.outputs * leaf.parameter_output;
        leaf.parameters = parameter;
        add_leaf(t, leaf);
        parameter += leaf.size();
        if (map.bias) {
          elementwise_leaf bias;
          bias.node = i;
          const extent places = map.adjoint ? map.in_size : map.out_size;
          bias.count = static_cast<index>(map.bias_count());
          bias.step_plane.extent = static_cast<index>(places.depth);
          bias.step[0].extent = static_cast<index>(places.height);
          bias.step[1].extent = static_cast<index>(places.width);
          bias.parameters = parameter;
          add_leaf(t, bias);
        }
      } else if constexpr (detail::has_factors<Layer>) {
        for (const factor& each : detail::factors_of<Layer>(Program::shape_of(i), Program::second_shape_of(i))) {
          if (each.sparse) {
            sparse_leaf leaf;
            leaf.node = i;
            leaf.slot = row.in;
            leaf.positions = static_cast<index>(each.positions);
            leaf.ids_from = each.other;
            leaf.delta_from = each.delta;
            leaf.delta_step = static_cast<index>(each.delta.position_stride);
            leaf.delta_stride = static_cast<index>(each.delta.stride);
            leaf.width = static_cast<index>(each.columns);
            leaf.vocabulary = static_cast<index>(each.rows);
            leaf.skipped = each.skipped_id < each.rows ? static_cast<index>(each.skipped_id) : -1;
            leaf.parameters = parameter;
            add_leaf(t, leaf);
          } else if (each.outer) {
            outer_leaf leaf;
            leaf.node = i;
            leaf.x_from = each.other;
            leaf.delta_from = each.delta;
            leaf.outputs = static_cast<index>(each.rows);
            leaf.view[2] = {static_cast<index>(each.columns), static_cast<index>(each.other.stride), 1};
            leaf.step[1] = {static_cast<index>(each.positions), static_cast<index>(each.other.position_stride),
                            static_cast<index>(each.delta.position_stride)};
            leaf.delta_stride = static_cast<index>(each.delta.stride);
            leaf.parameter_output = static_cast<index>(each.columns);
            leaf.parameters = parameter;
            add_leaf(t, leaf);
          } else {
            elementwise_leaf leaf;
            leaf.node = i;
            leaf.other_from = each.other;
            leaf.delta_from = each.delta;
            leaf.ones = each.other.from == source::ones;
            leaf.count = static_cast<index>(each.rows);
            leaf.step[1] = {static_cast<index>(each.positions), static_cast<index>(each.other.position_stride),
                            static_cast<index>(each.delta.position_stride)};
            leaf.delta_stride = static_cast<index>(each.delta.stride);
            leaf.other_stride = static_cast<index>(each.other.stride);
            leaf.parameters = parameter;
            add_leaf(t, leaf);
          }
          parameter += static_cast<index>(each.size());
        }
      }
    });
    arrange_segments(t);
    arrange_deferred(t);
  }

  /// Where the gradients that a tile keeps take much of the cache, the largest of them come late, until the others take
  /// little. Samples take turns in the room of those: all other norms are known by then, so one sample's are formed and
  /// added up before the next one's. Two samples in turns cost time as long as both would stay
  /// (docs/internals/tricks.md).
  static constexpr void choose_late(tables& t) {
    constexpr auto bytes = static_cast<index>(sizeof(typename Program::scalar));
    const index most = t.tile > 2 ? tile_bytes / 8 : tile_bytes;
    for (index kept = t.kept_size; t.tile * kept * bytes > most;) {
      outer_leaf* largest = nullptr;
      for (std::size_t k = 0; k != t.outer_count; ++k) {
        outer_leaf& leaf = t.outer[k];
        if (leaf.method != norm_method::instantiate || leaf.use.shared() || leaf.late) continue;
        // Of several samples, more than the cache holds, only what the backward pass meets last.
        if (t.deferred_count > 0 && t.tile > 1 && leaf.node != t.first_with_parameters()) continue;
        if (largest == nullptr || leaf.size() > largest->size()) largest = &leaf;
      }
      if (largest == nullptr) return;
      // With those that read the same delta.
      for (std::size_t k = 0; k != t.outer_count; ++k) {
        outer_leaf& leaf = t.outer[k];
        if (leaf.node != largest->node || leaf.method != norm_method::instantiate) continue;
        leaf.late = t.has_late = true;
        kept -= round_up(leaf.size());
      }
    }
  }

  /// Places of what the factors read, once the tile and the workspace are laid out.
  static constexpr void resolve(tables& t) {
    for (std::size_t k = 0; k != t.outer_count; ++k) {
      outer_leaf& leaf = t.outer[k];
      const node_row& row = t.nodes[leaf.node];
      if (row.kind != node_kind::affine) {
        leaf.x = place_of(row, leaf.x_from);
        leaf.delta = place_of(row, leaf.delta_from);
        continue;
      }
      const slot& in = t.slots[row.in];
      const slot& out = t.slots[row.out];
      const affine_map& map = row.map;
      // Of an adjoint map the input gradient's windows lie over the output gradient, and the input takes delta's place.
      const layout& x = map.adjoint ? out.gradient_layout : in.value_layout;
      const layout& delta = map.adjoint ? in.value_layout : out.gradient_layout;
      leaf.x =
          (map.adjoint ? out.gradient : in.value)
              .at(x.start - static_cast<index>(map.padding.depth) * x.plane -
                  static_cast<index>(map.padding.height) * x.row - static_cast<index>(map.padding.width) * x.column);
      leaf.delta = (map.adjoint ? in.value : out.gradient).at(delta.start);
      leaf.x_group = leaf.view[2].extent;
      leaf.delta_group = leaf.outputs;
      leaf.view_plane.x = static_cast<index>(map.dilation.depth) * x.plane;
      leaf.view[0].x = static_cast<index>(map.dilation.height) * x.row;
      leaf.view[1].x = static_cast<index>(map.dilation.width) * x.column;
      leaf.step_plane = {leaf.step_plane.extent, static_cast<index>(map.stride.depth) * x.plane, delta.plane};
      leaf.step[0] = {leaf.step[0].extent, static_cast<index>(map.stride.height) * x.row, delta.row};
      leaf.step[1] = {leaf.step[1].extent, static_cast<index>(map.stride.width) * x.column, delta.column};
    }
    for (std::size_t k = 0; k != t.elementwise_count; ++k) {
      elementwise_leaf& leaf = t.elementwise[k];
      const node_row& row = t.nodes[leaf.node];
      if (row.kind != node_kind::affine) {
        leaf.other = place_of(row, leaf.other_from);
        leaf.delta = place_of(row, leaf.delta_from);
        continue;
      }
      const slot& out = t.slots[row.out];
      leaf.delta = out.gradient.at(out.gradient_layout.start);
      leaf.step_plane.delta = out.gradient_layout.plane;
      leaf.step[0].delta = out.gradient_layout.row;
      leaf.step[1].delta = out.gradient_layout.column;
    }
    for (std::size_t k = 0; k != t.sparse_count; ++k) {
      sparse_leaf& leaf = t.sparse[k];
      leaf.ids = place_of(t.nodes[leaf.node], leaf.ids_from);
      leaf.delta = place_of(t.nodes[leaf.node], leaf.delta_from);
    }
    for (std::size_t k = 0; k != t.outer_count; ++k) t.outer[k].find_one_sample();
  }

 private:
  static constexpr void add_leaf(tables& t, sparse_leaf leaf) {
    leaf.use = use_of(leaf.node);
    leaf.owner = t.sparse_count;
    for (std::size_t k = 0; k < t.sparse_count && !leaf.use.first; ++k) {
      if (t.sparse[k].parameters == leaf.parameters && t.sparse[k].use.first) leaf.owner = k;
    }
    t.sparse[t.sparse_count++] = leaf;
  }
  /// Where the segments of a sample lie.
  static constexpr void arrange_segments(tables& t) {
    for (std::size_t k = 0; k < t.sparse_count; ++k) t.sparse[t.sparse[k].owner].all_positions += t.sparse[k].positions;
    for (std::size_t k = 0; k < t.sparse_count; ++k) {
      sparse_leaf& leaf = t.sparse[k];
      if (leaf.owner != k) continue;
      leaf.counted = leaf.delta_step == 0 && leaf.delta_stride == 1 && !leaf.use.shared();
      leaf.integers = t.sparse_integers;
      leaf.rows = t.sparse_scalars;
      t.sparse_integers += segment_integers(leaf);
      t.sparse_scalars += round_up(leaf.width * (leaf.counted ? 1 : leaf.all_positions));
      t.sparse_positions = std::max(t.sparse_positions, leaf.all_positions);
      t.sparse_slots = std::max(t.sparse_slots, hash_slots(leaf));
      t.sparse_size += leaf.size();
    }
  }
  /// Deferred leaves behind all others in the native order, and where a sample leaves what they are made of.
  static constexpr void arrange_deferred(tables& t) {
    t.lane_size = t.native_size;
    for (std::size_t k = 0; k != t.outer_count; ++k) {
      outer_leaf& leaf = t.outer[k];
      if (!leaf.deferred) continue;
      leaf.native = t.native_size;
      t.native_size += round_up(leaf.size());
      leaf.number = t.deferred_count++;
      leaf.row_x = t.nodes[leaf.node].row_x = t.deferred_x;
      leaf.row_delta = t.deferred_delta;
      t.deferred_x += round_up(leaf.view_width());
      t.deferred_delta += round_up(leaf.outputs);
    }
    // An odd number of lines, lest the rows of a chunk push each other out of the cache.
    if (t.deferred_count > 0 && t.deferred_delta / line % 2 == 0) t.deferred_delta += line;
  }
  static constexpr void add_leaf(tables& t, outer_leaf leaf) {
    leaf.use = use_of(leaf.node);
    leaf.deferred = t.nodes[leaf.node].deferred;
    if (leaf.deferred) {
      leaf.method = norm_method::product;
      t.outer[t.outer_count++] = leaf;
      return;
    }
    const bool automatic = leaf.delta_stride == 1 && !leaf.use.shared();
    leaf.method =
        automatic ? cheapest_method(leaf.block(), sizeof(typename Program::scalar)) : norm_method::instantiate;
    t.scaled_size = std::max(t.scaled_size, leaf.positions() * leaf.groups * leaf.outputs);
    if (leaf.use.first) {
      if (leaf.method == norm_method::instantiate) t.kept_size += round_up(leaf.size());
      leaf.native = t.native_size;
      t.native_size += round_up(leaf.size());
    } else {
      leaf.native = native_of_first_use(t.outer, t.outer_count, leaf);
    }
    t.outer[t.outer_count++] = leaf;
  }
  static constexpr void add_leaf(tables& t, elementwise_leaf leaf) {
    leaf.use = use_of(leaf.node);
    if (leaf.use.first) {
      leaf.native = t.native_size;
      t.native_size += round_up(leaf.count);
    } else {
      leaf.native = native_of_first_use(t.elementwise, t.elementwise_count, leaf);
    }
    t.elementwise[t.elementwise_count++] = leaf;
  }
  static constexpr bool has_ties = [] {
    for (std::size_t i = 0; i < Program::size; ++i) {
      if (structure::owners[i] != i) return true;
    }
    return false;
  }();
  static constexpr tied_use use_of(std::size_t node) {
    tied_use use{structure::owners[node] == node, true};
    if constexpr (has_ties) {  // a walk for each of hundreds of nodes takes its time
      for (std::size_t later = node + 1; later < Program::size; ++later) {
        if (structure::owners[later] == structure::owners[node]) use.last = false;
      }
    }
    return use;
  }
  template <class Leaves>
  static constexpr index native_of_first_use(const Leaves& leaves, std::size_t count, const auto& leaf) {
    for (std::size_t k = 0; k < count; ++k) {
      if (leaves[k].node == structure::owners[leaf.node] && leaves[k].parameters == leaf.parameters) {
        return leaves[k].native;
      }
    }
    return 0;  // not reached: the first use is listed before
  }

  static constexpr place place_of(const node_row& row, operand from) {
    const auto offset = static_cast<index>(from.offset);
    switch (from.from) {
      case source::activation:
        return row.plain_x.at(offset);
      case source::second_activation:
        return row.plain_x2.at(offset);
      case source::output:
        return row.plain_y.at(offset);
      case source::saved:
        return row.saved.at(offset);
      default:
        return row.plain_dy.at(offset);
    }
  }
};

}  // namespace pergrad::inline v0_1::on_host
