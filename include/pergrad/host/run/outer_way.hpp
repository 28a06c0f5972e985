// SPDX-License-Identifier: Apache-2.0
// pergrad/host/run/outer_way.hpp - outer-product blocks: their gradients are kept and added with their weights, or
// their norms are found without, and x and weighted deltas make the sum
//
// Late blocks (leaf_tables.hpp) wait until the backward pass is through. All other norms are known by then, so samples
// take turns: one's gradients are formed and added up before the next one's take their place (`take_turns`).
#pragma once

#include <algorithm>
#include <cstddef>

#include <pergrad/gradients/plan.hpp>
#include <pergrad/graph/layout.hpp>
#include <pergrad/host/conv/pairs.hpp>
#include <pergrad/host/norms/leaves.hpp>
#include <pergrad/host/norms/request.hpp>
#include <pergrad/host/norms/uses.hpp>
#include <pergrad/host/plan/program.hpp>
#include <pergrad/host/plan/tables.hpp>
#include <pergrad/host/run/streamed_logits.hpp>
#include <pergrad/host/run/tile_state.hpp>
#include <pergrad/privacy/clip.hpp>
#include <pergrad/simd/elements.hpp>

namespace pergrad::inline v0_1::on_host {

/// See worker.hpp.
template <class Network>
struct outer_way {
  using scalar = typename Network::scalar;
  using state = tile_state<Network>;
  using kernel_type = leaf_kernel<scalar>;
  static constexpr const auto& table = program<Network>::table;
  static constexpr bool exists = table.outer_count > 0;
  /// Has the network such a block?
  static constexpr bool any(auto wanted) {
    for (std::size_t k = 0; k != table.outer_count; ++k) {
      if (wanted(table.outer[k])) return true;
    }
    return false;
  }
  /// Gradients of weights that several nodes share are gathered as these run backwards, whoever asks; those of tables
  /// need not be.
  [[nodiscard]] static constexpr bool gathers(const outer_leaf& leaf) { return leaf.use.shared() && !leaf.of_uses; }
  static constexpr bool keeps = any(gathers);

  static void collect(state& tile, std::size_t node, index begin, index end) {
    const auto [first, last] = leaves_of(table.outer, table.outer_count, node);
    for (std::size_t k = first; k < last; ++k) {
      const outer_leaf& leaf = table.outer[k];
      if (!tile.facts_wanted && !gathers(leaf)) continue;
      const bool now = !(tile.takes_turns && leaf.late) && !(tile.as_turns_are && leaf.behind_others);
      if (!leaf.deferred && now) collect_block(tile, leaf, begin, end);
    }
  }
  /// What comes in the order of turns, but takes none.
  static void collect_behind(state& tile, std::size_t node, index begin, index end) {
    if constexpr (any([](const outer_leaf& leaf) { return leaf.behind_others; })) {
      const auto [first, last] = leaves_of(table.outer, table.outer_count, node);
      for (std::size_t k = first; k < last; ++k) {
        if (tile.as_turns_are && table.outer[k].behind_others) collect_block(tile, table.outer[k], begin, end);
      }
    }
  }

  /// The ordinary gradient: one product a block, nothing kept.
  static void add_unit(state& tile, std::size_t node, index begin, index end, scalar* sums) {
    const auto [first, last] = leaves_of(table.outer, table.outer_count, node);
    for (std::size_t s = 0; s < tile.request.sum_count; ++s, sums += table.accumulator_size) {
      for (std::size_t k = first; k < last; ++k) {
        if (table.outer[k].deferred) continue;
        const kernel_type kernel{table.outer[k], tile.workspace, begin};
        add_unweighted(tile, kernel, end - begin, sums + table.outer[k].native);
      }
    }
  }

  static void add_weighted(state& tile, std::size_t sum, const typename state::weights& weights, index begin, index end,
                           scalar* to) {
    for (std::size_t k = 0; k != table.outer_count; ++k) {
      const outer_leaf& leaf = table.outer[k];
      if (!leaf.use.first || leaf.deferred || (tile.takes_turns && leaf.late && is_kept(tile, sum, leaf))) continue;
      if (!is_kept(tile, sum, leaf)) tile.bring(leaf.recomputed, begin, end);
      add_block(tile, sum, leaf, weights.of(leaf.node), begin, end, to);
    }
  }

  /// Of shared sums: a few hundred kilobytes of a block's gradient, which stay in a cache while they are formed and
  /// added sample after sample.
  [[nodiscard]] static constexpr index pieces(std::size_t block) {
    return count_pieces(table.outer, table.outer_count, pieces_in(block));
  }
  /// Are any of a block's formed of x and delta?
  [[nodiscard]] static bool reads_factors(const state& tile, std::size_t block) {
    for (std::size_t k = 0; k != table.outer_count; ++k) {
      for (std::size_t s = 0; table.outer[k].recomputed == block && s < tile.request.sum_count; ++s) {
        if (!tile.facts_wanted || !is_kept(tile, s, table.outer[k])) return true;
      }
    }
    return false;
  }
  static void add_piece(const state& tile, std::size_t sum, std::size_t block, index number, std::size_t thread) {
    const auto [k, piece] = find_piece(table.outer, number, pieces_in(block));
    const outer_leaf& leaf = table.outer[k];
    const index width = leaf.by_ids ? leaf.view[2].extent : leaf.outputs;
    const index first = piece * rows_of_piece(leaf);
    const index rows = std::min(rows_of_piece(leaf), leaf.size() / width - first);
    scalar* const room = tile.tape.rooms.data() + static_cast<index>(thread) * tile.tape.room_stride;
    for (index b = 0; b < tile.samples; ++b) {
      const scalar* from = room;
      if (gathers(leaf) || (tile.facts_wanted && is_kept(tile, sum, leaf))) {  // nobody else has asked for gradients
        from = tile.gradient(b, leaf) + first * width;
      } else {
        form_rows(tile, leaf, b, first, rows, room, thread);
      }
      tile.add_to_shared(sum, leaf, b, from, first * width, rows * width);
    }
  }

  static void write_row(state& tile, index b, const typename state::weights& weights, scalar* row) {
    for (std::size_t k = 0; k != table.outer_count; ++k) {
      const outer_leaf& leaf = table.outer[k];
      if (!leaf.use.first) continue;
      const scalar weight = weights.of(leaf.node)[b];
      const scalar* const gradient = tile.gradient(b, leaf);
      for_each_parameter(leaf, 0, leaf.groups * leaf.view_width(), [&](index p, index n) {
        row[p] = weight == 0 ? scalar{0} : weight * gradient[n - leaf.native];
      });
    }
  }

  /// The late blocks of some samples, one sample after the other.
  static void take_turns(state& tile, index begin, index end, scalar* sums) {
    if constexpr (table.has_late) {
      for (index b = begin; tile.takes_turns && b < end; ++b) {
        for (std::size_t k = 0; k != table.outer_count; ++k) {
          if (table.outer[k].late) collect_block(tile, table.outer[k], b, b + 1);
        }
        for (std::size_t s = 0; s < tile.request.sum_count; ++s) {
          const auto weights = tile.weights_of(tile.request.sums[s], b, b + 1);
          for (std::size_t k = 0; k != table.outer_count; ++k) {
            const outer_leaf& leaf = table.outer[k];
            if (!leaf.late || !is_kept(tile, s, leaf)) continue;
            add_block(tile, s, leaf, weights.of(leaf.node), b, b + 1,
                      sums + static_cast<index>(s) * table.accumulator_size);
          }
        }
      }
    }
  }

  /// Norms of one block and, where kept, gradients.
  static void collect_block(state& tile, const outer_leaf& leaf, index begin, index end) {
    const kernel_type kernel{leaf, tile.workspace, 0, tile.pass.inputs_of(table.nodes[leaf.node], 0),
                             streamed_of(tile, leaf)};
    const norm_method method = method_of(tile.request, leaf, tile.every_gradient);
    if (!tile.norms_wanted && method != norm_method::instantiate) return;
    if constexpr (any_by_ids) {
      if (leaf.of_uses && method != norm_method::instantiate) {
        for (index b = begin; leaf.use.first && b < end; ++b) tile.part(b, leaf.node) += norm_of_uses(tile, leaf, b);
        return;
      }
    }
    for (index b = begin; b < end; ++b) {
      norm_bound& to = tile.part(b, leaf.node);
      switch (method) {
        case norm_method::product:
          to += kernel.by_product(b);
          break;
        case norm_method::gram:
          if constexpr (any([](const outer_leaf& each) { return each.method == norm_method::gram; })) {
            to += kernel.gram(b);
          } else {
            to += tile.others->gram(kernel, b);
          }
          break;
        case norm_method::direct:
          if constexpr (any([](const outer_leaf& each) { return each.method == norm_method::direct; })) {
            to += kernel.direct(b);
          } else {
            to += tile.others->direct(kernel, b);
          }
          break;
        default: {
          const double squared = form(tile, kernel, b, tile.gradient(b, leaf));
          if (leaf.use.first) to.squared += squared;
          if constexpr (table.deferred_count > 0) {
            if (leaf.deferred) to += kernel.rounding(b);  // the sum is not made of what is kept here
          }
          if (leaf.use.first) tile.project(b, leaf);
          break;
        }
      }
    }
  }

 private:
  static constexpr bool any_by_ids = any([](const outer_leaf& leaf) { return leaf.by_ids; });
  static streamed_deltas<scalar> streamed_of([[maybe_unused]] const state& tile, const outer_leaf& leaf) {
    if constexpr (table.streams) {
      if (leaf.streams && tile.streamed != nullptr) return streamed_logits<Network>::deltas_of(tile);
    }
    return {};
  }
  /// Calls f(kernel) for all uses of a block, of which `leaf` is one.
  static auto uses_of(const state& tile, const outer_leaf& leaf) {
    return [&tile, native = leaf.native](auto&& f) {
      for (std::size_t k = 0; k != table.outer_count; ++k) {
        const outer_leaf& use = table.outer[k];
        if (use.of_uses && use.native == native) {
          f(kernel_type{use, tile.workspace, 0, nullptr, streamed_of(tile, use)});
        }
      }
    };
  }
  /// Rows of a block in PyTorch's order. Of logits that are formed where they are read, and of ids that look up rows of
  /// their matrix, those that were formed together before: a stretch of them has the same bits every time.
  [[nodiscard]] static constexpr index rows_of_piece(const outer_leaf& leaf) {
    if (streams(leaf)) return table.classes_together;
    return std::max<index>(1, shared_piece / (leaf.by_ids ? leaf.view[2].extent : leaf.outputs));
  }
  /// Pieces of leaves whose x and delta are read while this block is in its room.
  [[nodiscard]] static constexpr auto pieces_in(std::size_t block) {
    return [block](const outer_leaf& leaf) { return leaf.recomputed == block ? pieces_of(leaf) : 0; };
  }
  [[nodiscard, gnu::noinline]] static constexpr index pieces_of(const outer_leaf& leaf) {
    if (!leaf.use.first || !leaf.in_order) return 0;
    const index width = leaf.by_ids ? leaf.view[2].extent : leaf.outputs;
    return (leaf.size() / width + rows_of_piece(leaf) - 1) / rows_of_piece(leaf);
  }
  /// Some rows of a sample's gradient, of all uses of the block.
  static void form_rows(const state& tile, const outer_leaf& leaf, index b, index first, index rows, scalar* to,
                        [[maybe_unused]] std::size_t thread) {
    bool onto = false;
    const auto form = [&](const kernel_type& use) {
      if constexpr (any_by_ids) {
        if (use.leaf.by_ids) {
          if (!onto) std::fill_n(to, rows * use.leaf.view[2].extent, scalar{0});
          use.add_rows_by_ids(b, to, first, rows);
          onto = true;
          return;
        }
      }
      outer_leaf part = use.leaf;
      part.view[2].extent = rows;
      if constexpr (table.streams) {
        if (use.streamed.dots != nullptr) {
          const scalar* const delta = streamed_logits<Network>::form_gradient(tile, b, first, rows, thread);
          part.step[1].x = rows;
          part.step[0].x = rows * part.step[1].extent;
          write_product<scalar>(part.gradient_shape(1, 0, part.step, part.step_plane), delta, use.delta(b, 0), to,
                                nullptr, onto);
          onto = true;
          return;
        }
      }
      write_product<scalar>(part.gradient_shape(1, 0, part.step, part.step_plane), use.x(b, 0) + first * part.view[2].x,
                            use.delta(b, 0), to, nullptr, onto);
      onto = true;
    };
    if (leaf.of_uses) {
      uses_of(tile, leaf)(form);
    } else {
      form(kernel_type{leaf, tile.workspace, 0, nullptr, streamed_of(tile, leaf)});
    }
  }
  /// Is there a stretch of classes at a time of this block, or of another use of it?
  [[nodiscard]] static constexpr bool streams(const outer_leaf& leaf) {
    if constexpr (table.streams) {
      for (std::size_t k = 0; k != table.outer_count; ++k) {
        if (table.outer[k].streams && table.outer[k].native == leaf.native) return true;
      }
    }
    return false;
  }
  static norm_bound norm_of_uses(const state& tile, const outer_leaf& leaf, index b) {
    const auto for_each_use = uses_of(tile, leaf);
    gram_of_uses<scalar> gram{b};
    for_each_use([&](const kernel_type& use) {
      gram.add(use);
      for_each_use([&](const kernel_type& other) {
        if (other.leaf.node < use.leaf.node) gram.add(use, other);
      });
    });
    return gram.result();
  }
  /// Each sample's gradient is a sum by itself before it is added, as its bound is that of the numbers that are added.
  static void add_uses(const state& tile, const sum_request<scalar>& asked, const outer_leaf& leaf,
                       const scalar* weight, index begin, index end, scalar* to) {
    for (index b = begin; b < end; ++b) {
      if (weight[b] == 0) continue;  // not multiplied: a non-finite gradient must contribute nothing
      for_each_stretch_of_uses(leaf, b, uses_of(tile, leaf), tile.room,
                               [&](index place, const scalar* from, index count) {
                                 if (asked.integers != nullptr) {
                                   tile.add_rounded(asked, weight[b], from, count, to + place);
                                 } else {
                                   add_scaled_to(to + place, weight[b], from, count);
                                 }
                               });
    }
  }
  /// Forms a block's gradient; that of shared parameters is added to that of later uses. Returns its squared norm.
  static double form(const state& tile, const kernel_type& kernel, index sample, scalar* gradient) {
    if constexpr (any_by_ids) {
      if (kernel.leaf.by_ids) {
        if (kernel.leaf.use.last) std::fill_n(gradient, kernel.leaf.size(), scalar{0});
        if (kernel.leaf.in_order) {
          kernel.add_rows_by_ids(sample, gradient, 0, kernel.leaf.outputs);
        } else {
          kernel.add_by_ids(sample, gradient);
        }
        return kernel.leaf.use.first ? squares(static_cast<const scalar*>(gradient), kernel.leaf.size()) : 0;
      }
    }
    if constexpr (any([](const outer_leaf& leaf) { return leaf.use.shared(); })) {
      if (!kernel.leaf.use.last) return kernel.instantiate_onto(sample, gradient, tile.room);
    }
    if constexpr (table.any_in_pairs) {
      if (kernel.leaf.in_pairs) {
        form_in_pairs(tile, kernel, sample, gradient, false);
        return squares(static_cast<const scalar*>(gradient), kernel.leaf.size());
      }
    }
    return kernel.instantiate(sample, gradient);
  }
  static void form_in_pairs(const state& tile, const kernel_type& kernel, index sample, scalar* to, bool onto) {
    gradient_in_pairs(kernel.leaf, kernel.x(sample, 0), kernel.delta(sample, 0), to, onto,
                      tile.workspace + table.winograd.offset);
  }
  /// Adds the gradients of a few samples, from the kernel's first one on.
  static void add_unweighted(const state& tile, const kernel_type& kernel, index samples, scalar* to) {
    if constexpr (any_by_ids) {
      if (kernel.leaf.by_ids) {
        for (index b = 0; b < samples; ++b) kernel.add_by_ids(b, to);
        return;
      }
    }
    if constexpr (table.any_in_pairs) {
      if (kernel.leaf.in_pairs) {
        for (index b = 0; b < samples; ++b) form_in_pairs(tile, kernel, b, to, true);
        return;
      }
    }
    kernel.add_sum(samples, to, tile.room);
  }

  static bool is_kept(const state& tile, std::size_t sum, const outer_leaf& leaf) {
    return tile.request.sums[sum].squares ||
           method_of(tile.request, leaf, tile.every_gradient) == norm_method::instantiate;
  }
  /// Adds some samples' gradients of one block to a sum.
  static void add_block(state& tile, std::size_t sum, const outer_leaf& leaf, const scalar* weight, index begin,
                        index end, scalar* to) {
    const sum_request<scalar>& asked = tile.request.sums[sum];
    const kernel_type kernel{leaf, tile.workspace, begin};
    if (is_kept(tile, sum, leaf)) {
      tile.add_kept(asked, leaf, weight, begin, end, to);
      return;
    }
    if constexpr (any_by_ids) {
      if (leaf.of_uses) {
        add_uses(tile, asked, leaf, weight, begin, end, to);
        return;
      }
    }
    if (asked.integers != nullptr) {
      for (index b = begin; b < end; ++b) {
        if (weight[b] == 0) continue;
        kernel.instantiate(b - begin, tile.room);
        tile.add_rounded(asked, weight[b], tile.room, leaf.size(), to + leaf.native);
      }
    } else if (asked.is_plain) {
      add_unweighted(tile, kernel, end - begin, to + leaf.native);
    } else {
      for (index b = begin; b < end; ++b) {
        if (weight[b] == 0 && !tile.finite(b)) tile.pass.erase(leaf.node, b);
      }
      kernel.add_weighted_sum(end - begin, weight + begin, to + leaf.native, tile.room);
    }
  }
};

}  // namespace pergrad::inline v0_1::on_host
