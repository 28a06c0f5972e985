// SPDX-License-Identifier: Apache-2.0
// pergrad/host/plan/leaf_tables.hpp - the factor leaves of a network: a row for each use of each block of parameters
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>

#include <pergrad/concepts.hpp>
#include <pergrad/gradients/factors.hpp>
#include <pergrad/gradients/plan.hpp>
#include <pergrad/graph/layout.hpp>
#include <pergrad/graph/plan.hpp>
#include <pergrad/host/plan/segment_sizes.hpp>
#include <pergrad/host/plan/tables.hpp>
#include <pergrad/host/plan/tiles.hpp>

namespace pergrad::inline v0_1::on_host {

/// Fills the leaves into the tables of a `program`.
template <class Program>
struct leaf_tables {
  using structure = typename Program::structure;
  using tables = typename Program::tables;
  using plan = typename Program::plan;

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
           row.parameter_count > 0 && !plan::nodes[node].use.shared();
  }

  /// Sizes and parameter order of every leaf; places follow once the tile is known.
  static constexpr void list(tables& t, bool by_times) {
    for (const detail::plan_factor& each : plan::factors) {
      const node_row& row = t.nodes[each.node];
      const factor& what = each.what;
      if (what.sparse) {
        auto leaf = leaf_of<sparse_leaf>(each);
        leaf.slot = row.in;
        leaf.positions = static_cast<index>(what.positions);
        leaf.delta_step = static_cast<index>(what.delta.position_stride);
        leaf.delta_stride = static_cast<index>(what.delta.stride);
        leaf.width = static_cast<index>(what.columns);
        leaf.vocabulary = static_cast<index>(what.rows);
        leaf.skipped = what.skipped_id < what.rows ? static_cast<index>(what.skipped_id) : -1;
        add_leaf(t, each, leaf);
      } else if (what.outer) {
        auto leaf = leaf_of<outer_leaf>(each);
        leaf.outputs = static_cast<index>(what.rows);
        leaf.parameter_output = static_cast<index>(what.columns);
        if (row.kind == node_kind::affine) {
          const affine_map& map = row.map;
          const auto taps = static_cast<index>(map.kernel.size());
          leaf.groups = static_cast<index>(map.groups);
          leaf.view_plane = {static_cast<index>(map.kernel.depth), 0,
                             static_cast<index>(map.kernel.height * map.kernel.width)};
          leaf.view[0] = {static_cast<index>(map.kernel.height), 0, static_cast<index>(map.kernel.width)};
          leaf.view[1] = {static_cast<index>(map.kernel.width), 0, 1};
          leaf.view[2] = {static_cast<index>(map.in_channels / map.groups), 1, taps};
          set_positions(leaf, map.out_size);
          leaf.parameter_group = leaf.outputs * leaf.parameter_output;
          leaf.in_pairs = row.in_pairs && !leaf.use.shared();
        } else {
          leaf.view[2] = {static_cast<index>(what.columns), static_cast<index>(what.other.stride), 1};
          leaf.delta_stride = static_cast<index>(what.delta.stride);
          leaf.by_ids = what.by_ids;
          set_steps(leaf, what);
        }
        if (t.shares_sums && !t.nodes[leaf.node].deferred) turn(leaf);
        leaf.streams = t.streams && leaf.node == structure::size - 1;
        leaf.recomputed = t.nodes[leaf.node].deferred || leaf.streams ? 0 : plan::nodes[leaf.node].recomputed;
        add_leaf(t, each, leaf);
      } else {
        auto leaf = leaf_of<elementwise_leaf>(each);
        leaf.count = static_cast<index>(what.rows);
        if (row.kind == node_kind::affine) {
          set_positions(leaf, row.map.adjoint ? row.map.in_size : row.map.out_size);
        } else {
          leaf.ones = what.other.from == source::ones;
          leaf.delta_stride = static_cast<index>(what.delta.stride);
          leaf.other_stride = static_cast<index>(what.other.stride);
          set_steps(leaf, what);
        }
        add_leaf(t, each, leaf);
      }
    }
    choose_for_uses(t);
    choose_at_once(t, by_times);
    arrange_segments(t);
    arrange_deferred(t);
    if (t.shares_sums) order_as_parameters(t);
  }

  /// Are samples of all threads added to one sum, in PyTorch's order (outer_way.hpp)? Where accumulators would be
  /// large; not if there are windows.
  static constexpr bool shares_sums(const tables& t, std::size_t large) {
    std::size_t bytes = 0;
    for (const detail::plan_factor& each : plan::factors) {
      const node_row& row = t.nodes[each.node];
      if (!each.what.outer || row.deferred) continue;
      if (row.kind == node_kind::affine ? !row.reads_weights
                                        : each.what.delta.stride != 1 || each.what.other.stride != 1) {
        return false;
      }
      if (plan::nodes[each.node].use.first) bytes += each.what.size() * sizeof(typename Program::scalar);
    }
    return bytes >= large;
  }

  /// Where the gradients that a tile keeps take much of the cache, the largest of them come late, until the others take
  /// little. Samples take turns in the space of those: all other norms are known by then, so one sample's are formed
  /// and added up before the next one's. Two samples in turns cost time as long as both would stay
  /// (docs/internals/tricks.md).
  static constexpr void choose_late(tables& t) {
    constexpr auto bytes = static_cast<index>(sizeof(typename Program::scalar));
    const index most = t.tile > 2 ? tile_bytes / 8 : tile_bytes;
    for (index kept = t.kept_size; t.tile * kept * bytes > most;) {
      outer_leaf* largest = nullptr;
      for (std::size_t k = 0; k != t.outer_count; ++k) {
        outer_leaf& leaf = t.outer[k];
        if (leaf.method != norm_method::instantiate || leaf.use.shared() || leaf.at_once || leaf.late ||
            leaf.behind_others) {
          continue;
        }
        // Of several samples, more than the cache holds, only what the backward pass meets last.
        if (t.deferred_count > 0 && t.tile > 1 && leaf.node != t.first_with_parameters()) continue;
        if (largest == nullptr || leaf.size() > largest->size()) largest = &leaf;
      }
      if (largest == nullptr) return;
      // With those that read the same delta. Those of a recomputed block cannot wait; their bits are as if they did.
      for (std::size_t k = 0; k != t.outer_count; ++k) {
        outer_leaf& leaf = t.outer[k];
        if (leaf.node != largest->node || leaf.method != norm_method::instantiate || leaf.at_once) continue;
        const bool waits = plan::nodes[leaf.node].recomputed == 0;
        (waits ? leaf.late : leaf.behind_others) = true;
        t.has_late = t.has_late || waits;
        kept -= round_up(leaf.size());
      }
    }
  }

  /// Places of what the factors read, once the tile and the workspace are laid out.
  static constexpr void resolve(tables& t) {
    std::size_t outer = 0;
    std::size_t elementwise = 0;
    std::size_t sparse = 0;
    for (const detail::plan_factor& each : plan::factors) {
      const node_row& row = t.nodes[each.node];
      const factor& what = each.what;
      if (what.sparse) {
        sparse_leaf& leaf = t.sparse[sparse++];
        leaf.ids = place_of(row, what.other);
        leaf.delta = place_of(row, what.delta);
      } else if (what.outer) {
        outer_leaf& leaf = t.outer[outer++];
        if (leaf.turned) turn(leaf);  // and back, as its places are set as those of others
        if (row.kind == node_kind::affine) {
          look_at_images(t, row, leaf);
        } else {
          leaf.x = place_of(row, what.other);
          leaf.delta = place_of(row, what.delta);
        }
        if (t.shares_sums && !leaf.deferred) turn(leaf);
        leaf.find_one_sample();
      } else {
        elementwise_leaf& leaf = t.elementwise[elementwise++];
        if (row.kind == node_kind::affine) {
          const slot& out = t.slots[row.out];
          leaf.delta = out.gradient.at(out.gradient_layout.start);
          leaf.step_plane.delta = out.gradient_layout.plane;
          leaf.step[0].delta = out.gradient_layout.row;
          leaf.step[1].delta = out.gradient_layout.column;
        } else {
          leaf.delta = place_of(row, what.delta);
          leaf.other = place_of(row, what.other);
        }
      }
    }
  }

 private:
  /// Exchanges what PyTorch numbers outside and inside. Of ids, x and delta stay: sums say what is stored where.
  static constexpr void turn(outer_leaf& leaf) {
    leaf.in_order = true;
    if (leaf.by_ids) return;
    leaf.turned = !leaf.turned;
    std::swap(leaf.x, leaf.delta);
    for (step_axis* axis : {&leaf.step[0], &leaf.step[1], &leaf.step_plane}) std::swap(axis->x, axis->delta);
    std::swap(leaf.view[2].extent, leaf.outputs);
    std::swap(leaf.view[2].parameter, leaf.parameter_output);
  }
  /// Gradients lie as parameters do.
  static constexpr void order_as_parameters(tables& t) {
    const auto place = [](auto& leaves, std::size_t count) {
      for (std::size_t k = 0; k != count; ++k) leaves[k].native = leaves[k].parameters;
    };
    place(t.outer, t.outer_count);
    place(t.elementwise, t.elementwise_count);
    // No less than all leaves with whole lines each: what samples keep lies like that.
    t.native_size = t.accumulator_size =
        std::max(t.native_size, round_up(static_cast<index>(structure::found.trained)));
  }
  template <class Leaf>
  static constexpr Leaf leaf_of(const detail::plan_factor& each) {
    Leaf leaf;
    leaf.node = each.node;
    leaf.parameters = static_cast<index>(each.parameters);
    leaf.use = plan::nodes[each.node].use;
    return leaf;
  }
  static constexpr void set_positions(auto& leaf, extent positions) {
    leaf.step_plane.extent = static_cast<index>(positions.depth);
    leaf.step[0].extent = static_cast<index>(positions.height);
    leaf.step[1].extent = static_cast<index>(positions.width);
  }
  static constexpr void set_steps(auto& leaf, const factor& what) {
    leaf.step[1] = {static_cast<index>(what.positions), static_cast<index>(what.other.position_stride),
                    static_cast<index>(what.delta.position_stride)};
  }
  /// Places and steps of what an affine map sees.
  static constexpr void look_at_images(const tables& t, const node_row& row, outer_leaf& leaf) {
    const slot& in = t.slots[row.in];
    const slot& out = t.slots[row.out];
    const affine_map& map = row.map;
    // Of an adjoint map the input gradient's windows lie over the output gradient, and the input takes delta's place.
    const layout& x = map.adjoint ? out.gradient_layout : in.value_layout;
    const layout& delta = map.adjoint ? in.value_layout : out.gradient_layout;
    leaf.x = (map.adjoint ? out.gradient : in.value)
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
  static constexpr void add_leaf(tables& t, const detail::plan_factor& each, sparse_leaf leaf) {
    leaf.owner = each.first_use;
    t.sparse[t.sparse_count++] = leaf;
  }
  /// How the norms of tables are found that are multiplied with as well. All uses agree on it.
  static constexpr void choose_for_uses(tables& t) {
    for (std::size_t k = 0; k != t.outer_count; ++k) {
      const outer_leaf first = t.outer[k];
      if (!first.use.first || !first.use.shared()) continue;
      bool by_ids = false;
      double formed = 0;
      double from_factors = 0;
      index lookups = 0;
      const auto for_each_use = [&](auto&& f) {
        for (std::size_t other = k; other != t.outer_count; ++other) {
          if (t.outer[other].native == first.native) f(t.outer[other]);
        }
      };
      for_each_use([&](const outer_leaf& use) {
        by_ids = by_ids || use.by_ids;
        if (use.by_ids) return;
        formed += modelled_cost(norm_method::instantiate, use.block(), sizeof(typename Program::scalar));
        from_factors += modelled_cost(norm_method::gram, use.block(), sizeof(typename Program::scalar));
      });
      if (!by_ids) continue;
      const bool by_gram = from_factors < formed || t.shares_sums;
      for_each_use([&](outer_leaf& use) {
        use.of_uses = true;
        use.first_node = first.node;
        use.gram_in_blocks = t.shares_sums && !use.by_ids;
        if (use.by_ids) {
          use.lookups = lookups;
          lookups += use.positions();
        }
        if (by_gram) use.method = norm_method::gram;
      });
      if (by_gram) t.kept_size -= round_up(first.size());
      for_each_use([&](const outer_leaf& use) {
        if (use.streams) t.lookups = lookups;
      });
    }
  }
  /// Where values share places by times, gradients that take less than what they are made of, an adapter's say: who
  /// keeps them need not keep that. Those of shared weights are gathered as the uses run backwards, whoever asks.
  static constexpr void choose_at_once(tables& t, bool by_times) {
    for (std::size_t k = 0; k != t.outer_count; ++k) {
      outer_leaf& leaf = t.outer[k];
      if (leaf.method != norm_method::instantiate || leaf.deferred || leaf.of_uses) continue;
      const bool takes_less = leaf.size() <= leaf.positions() * (leaf.outputs + leaf.view[2].extent);
      leaf.at_once = leaf.use.shared() || (by_times && !t.shares_sums && takes_less);
      if (leaf.at_once) leaf.recomputed = 0;
    }
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
    t.accumulator_size = t.native_size;
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
  static constexpr void add_leaf(tables& t, const detail::plan_factor& each, outer_leaf leaf) {
    leaf.deferred = t.nodes[leaf.node].deferred;
    if (leaf.deferred) {
      leaf.method = norm_method::product;
    } else {
      const bool automatic = leaf.delta_stride == 1 && !leaf.use.shared();
      leaf.method =
          automatic ? cheapest_method(leaf.block(), sizeof(typename Program::scalar)) : norm_method::instantiate;
      if (automatic && t.shares_sums && leaf.method != norm_method::product) {  // none is kept
        leaf.gram_in_blocks = leaf.streams || gram_in_blocks_pays(leaf.block());
        leaf.method = leaf.gram_in_blocks ? norm_method::gram : norm_method::direct;
      }
      t.scaled_size = std::max(t.scaled_size, leaf.positions() * leaf.groups * leaf.outputs);
      if (leaf.use.first && leaf.method == norm_method::instantiate) t.kept_size += round_up(leaf.size());
      place_native(t, t.outer[each.first_use], leaf);
    }
    t.outer[t.outer_count++] = leaf;
  }
  static constexpr void add_leaf(tables& t, const detail::plan_factor& each, elementwise_leaf leaf) {
    place_native(t, t.elementwise[each.first_use], leaf);
    t.elementwise[t.elementwise_count++] = leaf;
  }
  /// All uses of a block have one place in the native order.
  template <class Leaf>
  static constexpr void place_native(tables& t, const Leaf& first_use, Leaf& leaf) {
    leaf.native = leaf.use.first ? t.native_size : first_use.native;
    if (leaf.use.first) t.native_size += round_up(leaf.size());
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
