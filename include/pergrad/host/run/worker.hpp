// SPDX-License-Identifier: Apache-2.0
// pergrad/host/run/worker.hpp - one thread's part of a pass: tiles through forward, loss, backward, facts and sums
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <span>

#include <pergrad/gradients/plan.hpp>
#include <pergrad/graph/layout.hpp>
#include <pergrad/host/norms/elementwise_leaves.hpp>
#include <pergrad/host/norms/kept_rooms.hpp>
#include <pergrad/host/norms/leaf_sums.hpp>
#include <pergrad/host/norms/leaves.hpp>
#include <pergrad/host/norms/other_ways.hpp>
#include <pergrad/host/norms/request.hpp>
#include <pergrad/host/norms/sparse.hpp>
#include <pergrad/host/plan/program.hpp>
#include <pergrad/host/run/chunk_segments.hpp>
#include <pergrad/host/run/deferred.hpp>
#include <pergrad/host/run/passes.hpp>
#include <pergrad/host/run/working_memory.hpp>
#include <pergrad/simd/elements.hpp>

namespace pergrad::inline v0_1::on_host {

/// One thread's view of a run.
template <class Network>
struct worker {
  using scalar = typename Network::scalar;
  using program = on_host::program<Network>;
  using tape_type = working_memory<Network>;
  static constexpr const auto& table = program::table;

  const Network& network;
  tape_type& tape;
  const sample_source<scalar>& source;
  const run_request<scalar>& request;
  const other_ways<Network>* others = nullptr;  ///< null: method and strategy are what they are by default
  std::size_t number = 0;
  std::size_t chunk_first = 0;  ///< the first sample of the chunk whose segments are kept
  scalar* workspace = tape_access::workspace(tape) + static_cast<index>(number) * tape_type::workspace_stride;
  scalar* room = tape_access::room(tape) + static_cast<index>(number) * tape_type::room_stride;
  norm_bound* parts = tape_access::parts(tape) + static_cast<index>(number) * tape_type::parts_stride;
  std::array<double, static_cast<std::size_t>(table.tile)> losses{};
  std::array<double, static_cast<std::size_t>(table.tile)> projections{};
  bool facts_wanted = request.needs_facts();
  bool every_gradient = request.needs_every_gradient();
  /// Does each sample's gradient of a late leaf take the space of the one before?
  bool takes_turns =
      table.has_late && facts_wanted && !every_gradient && request.strategy == strategy_kind::book_keeping;
  kept_rooms<Network> kept{request, takes_turns, forms_deferred(request) ? table.native_size : table.lane_size,
                           workspace, tape_access::kept(tape) + static_cast<index>(number) * tape_type::kept_stride};
  leaf_sums<Network> leaves{request, workspace, kept, room};
  chunk_segments<Network> sparse{tape, number, chunk_first, workspace};

  /// Must the gradients of deferred leaves be formed and kept, sample by sample, too?
  [[nodiscard]] static bool forms_deferred(const run_request<scalar>& request) {
    const bool every = request.needs_every_gradient();
    for (std::size_t k = 0; k != table.outer_count; ++k) {
      const outer_leaf& leaf = table.outer[k];
      if (leaf.deferred && method_of(request, leaf, every) == norm_method::instantiate) return true;
    }
    return false;
  }

  /// One tile: forward, loss, backward, facts, sums.
  void process(std::size_t first, index samples, bool one_by_one, scalar* sums) {
    passes<Network> pass{network, tape_access::panels(tape), workspace, rows_of(first), request.randomness};
    pass.load(source, first, samples);
    if (one_by_one && facts_wanted) {
      others->one_by_one(*this, pass, first, samples);
      conclude(pass, first, 0, samples, sums);
      return;
    }
    for_each_part(samples, [&](index begin, index end) { pass.forward(0, table.split, begin, end); });
    pass.forward(table.split, program::size, 0, samples);
    evaluate_loss(pass, first, 0, samples);
    if (!request.backward) {
      observe(pass, first, 0, samples);
      return;
    }
    if (facts_wanted) clear_parts(samples);
    const auto when_complete = [&](std::size_t node, index begin, index end) {
      if (facts_wanted) {
        collect(pass, first, node, begin, end);
      } else {
        keep_deltas(first, node, begin, end);
        leaves.add_unit_sums(node, begin, end, sums);
        sparse.keep_unit(pass, first, node, begin, end, request.sum_count);
      }
    };
    pass.backward(table.split, program::size, 0, samples, when_complete);
    for_each_part(samples, [&](index begin, index end) {
      pass.backward(0, table.split, begin, end, when_complete);
      conclude(pass, first, begin, end, sums);
    });
  }
  /// Calls f(begin, end) for parts of a tile that stay in the cache.
  template <class Function>
  static void for_each_part(index samples, Function&& f) {
    for (index begin = 0; begin < samples; begin += table.cache_tile) {
      f(begin, std::min(samples, begin + table.cache_tile));
    }
  }
  /// What is left to do once the gradients of some samples are complete.
  void conclude(passes<Network>& pass, std::size_t first, index begin, index end, scalar* sums) {
    if (!request.backward) return;
    if constexpr (table.has_late) {
      for (index b = begin; takes_turns && b < end; ++b) {
        for (std::size_t k = 0; k != table.outer_count; ++k) {
          if (table.outer[k].late) collect_outer(pass, table.outer[k], b, b + 1);
        }
        add_late(pass, first, b, sums);
      }
    }
    observe(pass, first, begin, end);
    if (!facts_wanted) return;
    if (request.rows != nullptr) source.write_rows(this, &pass, first, begin, end);
    form_sums(pass, first, begin, end, sums);
  }

  [[gnu::noinline]] void evaluate_loss(passes<Network>& pass, std::size_t first, index begin, index end) {
    for (index b = begin; b < end; ++b) {
      const std::span<const scalar> y = pass.output(b);
      const std::span<scalar> dy = pass.output_gradient(b);
      losses[static_cast<std::size_t>(b)] = source.loss(source.context, first + static_cast<std::size_t>(b), y, dy);
      pass.scatter_output_gradient(b);
    }
  }

  void clear_parts(index samples) {
    std::fill_n(parts, samples * static_cast<index>(table.layer_groups), norm_bound{});
    projections.fill(0);
  }
  [[nodiscard]] norm_bound& part(index sample, std::size_t node) {
    return parts[sample * static_cast<index>(table.layer_groups) + static_cast<index>(table.layer_group[node])];
  }
  /// The rows of a tile's samples; nothing without deferred leaves.
  [[nodiscard]] deferred_rows<scalar> rows_of(std::size_t first) {
    return tape_access::rows(tape).from(static_cast<index>(first - chunk_first));
  }
  void keep_deltas(std::size_t first_sample, std::size_t node, index begin, index end) {
    on_host::keep_deltas(tape, workspace, node, static_cast<index>(first_sample - chunk_first), begin, end);
  }

  /// Norms (and, where kept, gradients) of a node's blocks, once the gradient of its output is complete.
  void collect(passes<Network>& pass, std::size_t first_sample, std::size_t node, index begin, index end) {
    keep_deltas(first_sample, node, begin, end);
    if constexpr (table.sparse_count > 0) {
      sparse.for_each_table(node, [&](std::size_t k) {
        for (index b = begin; b < end; ++b) {
          const segments<scalar> here = sparse.keep(pass, first_sample, k, b);
          part(b, node).squared += squares_of(table.sparse[k], here);
          if (request.direction != nullptr) {
            projections[static_cast<std::size_t>(b)] +=
                dot_segments(table.sparse[k], here, request.direction + table.sparse[k].parameters);
          }
        }
      });
    }
    const auto [outer_first, outer_last] = leaves_of(table.outer, table.outer_count, node);
    for (std::size_t k = outer_first; k < outer_last; ++k) {
      if (!in_one_room(table.outer[k])) collect_outer(pass, table.outer[k], begin, end);
    }
    const auto [first, last] = leaves_of(table.elementwise, table.elementwise_count, node);
    for (std::size_t k = first; k < last; ++k) {
      const elementwise_leaf& leaf = table.elementwise[k];
      for (index b = begin; b < end; ++b) {
        const double squared = instantiate(leaf, workspace, b, kept.gradient(b, leaf), !leaf.use.last);
        if (!leaf.use.first) continue;
        part(b, node).squared += squared;
        if (request.direction != nullptr) project(b, leaf);
      }
    }
  }

  /// Is the block's gradient not formed before all of the sample's others?
  [[nodiscard]] bool in_one_room(const outer_leaf& leaf) const noexcept { return takes_turns && leaf.late; }
  /// Norms of one block and, where kept, gradients.
  void collect_outer(const passes<Network>& pass, const outer_leaf& leaf, index begin, index end) {
    const leaf_kernel<scalar> kernel{leaf, workspace, 0, pass.inputs_of(table.nodes[leaf.node], 0)};
    const norm_method method = method_of(request, leaf, every_gradient);
    for (index b = begin; b < end; ++b) {
      norm_bound& to = part(b, leaf.node);
      switch (method) {
        case norm_method::product:
          to += kernel.by_product(b);
          break;
        case norm_method::gram:
          to += norm_by_gram<Network>(kernel, b, others);
          break;
        case norm_method::direct:
          to += norm_by_sum<Network>(kernel, b, others);
          break;
        default: {
          scalar* gradient = in_one_room(leaf) ? kept.late_gradient(leaf) : kept.gradient(b, leaf);
          const double squared = form_gradient<Network>(kernel, b, gradient, room);
          if (leaf.use.first) to.squared += squared;
          if constexpr (table.deferred_count > 0) {
            if (leaf.deferred) to += kernel.rounding(b);  // the sum is not made of what is kept here
          }
          if (leaf.use.first && request.direction != nullptr) project(b, leaf);
          break;
        }
      }
    }
  }

  template <class Leaf>
  void project(index b, const Leaf& leaf) {
    projections[static_cast<std::size_t>(b)] +=
        dot(static_cast<const scalar*>(kept.gradient(b, leaf)),
            static_cast<const scalar*>(tape_access::direction(tape) + leaf.native), leaf.native_count());
  }
  [[nodiscard, gnu::noinline]] sample_facts<scalar> facts_of(passes<Network>& pass, std::size_t first, index b) {
    sample_facts<scalar> facts;
    facts.sample = first + static_cast<std::size_t>(b) - request.first;
    facts.loss = losses[static_cast<std::size_t>(b)];
    facts.output = pass.output(b);
    if (facts_wanted) {
      facts.layers = {parts + b * static_cast<index>(table.layer_groups), table.layer_groups};
      for (const norm_bound& each : facts.layers) facts.norm += each;
      facts.projection = projections[static_cast<std::size_t>(b)];
    }
    return facts;
  }
  [[gnu::noinline]] void observe(passes<Network>& pass, std::size_t first, index begin, index end) {
    for (index b = begin; b < end && request.observer_count > 0; ++b) {
      const sample_facts<scalar> facts = facts_of(pass, first, b);
      for (std::size_t k = 0; k < request.observer_count; ++k)
        request.observers[k].observe(request.observers[k].context, facts);
    }
  }

  /// Is the sample's gradient finite? Others are erased where their weight is 0, as 0 times infinity is not 0; a finite
  /// one must stay whole, because the next sum of the same evaluation may want it.
  [[nodiscard]] bool finite(passes<Network>& pass, std::size_t first, index b) {
    return std::isfinite(facts_of(pass, first, b).norm.squared);
  }

  [[gnu::noinline]] void weigh(passes<Network>& pass, const sum_request<scalar>& sum, std::size_t first, index b,
                               scalar* weights) {
    if (sum.is_plain) {
      std::fill_n(weights, sum.per_layer ? table.layer_groups : 1, scalar{1});
    } else {
      sum.weigh(sum.weigher, facts_of(pass, first, b), sum.unit, weights);
    }
  }

  /// The late gradients of a sample, before the next sample's take their space.
  [[gnu::noinline]] void add_late(passes<Network>& pass, std::size_t first, index b, scalar* sums) {
    std::array<scalar, std::max<std::size_t>(1, table.layer_groups)> weights{};
    for (std::size_t s = 0; s < request.sum_count; ++s) {
      const sum_request<scalar>& sum = request.sums[s];
      weigh(pass, sum, first, b, weights.data());
      for (std::size_t k = 0; k != table.outer_count; ++k) {
        const outer_leaf& leaf = table.outer[k];
        if (!leaf.late || method_of(request, leaf, every_gradient) != norm_method::instantiate) continue;
        const scalar weight = weights[sum.per_layer ? table.layer_group[leaf.node] : 0];
        if (weight == 0) continue;  // not multiplied: a non-finite gradient must contribute nothing
        leaves.add_gradient(sum, leaf, weight, kept.late_gradient(leaf),
                            sums + static_cast<index>(s) * table.lane_size);
      }
    }
  }

  void form_sums(passes<Network>& pass, std::size_t first, index begin, index end, scalar* sums) {
    // Plain sums first: a sample that a weighted sum leaves out may have its factors erased. Ghost's sums last: each
    // runs the passes anew, and erases what it likes.
    for (const int turn : {0, 1, 2}) {
      for (std::size_t s = 0; s < request.sum_count; ++s) {
        const sum_request<scalar>& sum = request.sums[s];
        if (turn != (sum.is_plain ? 0 : needs_a_second_pass(sum) ? 2 : 1)) continue;
        note_weights(pass, s, first, begin, end);
        form_sum(pass, sum, first, begin, end, sums + static_cast<index>(s) * table.lane_size);
      }
    }
  }
  /// The sums over tables and of deferred leaves are formed when the chunk is complete.
  void note_weights(passes<Network>& pass, std::size_t sum, std::size_t first, index begin, index end) {
    if constexpr (table.sparse_count > 0 || table.deferred_count > 0) {
      const sum_request<scalar>& asked = request.sums[sum];
      std::array<scalar, std::max<std::size_t>(1, table.layer_groups)> weights{};
      const auto weight_of = [&](std::size_t node) { return weights[asked.per_layer ? table.layer_group[node] : 0]; };
      for (index b = begin; b < end; ++b) {
        weigh(pass, asked, first, b, weights.data());
        for (std::size_t k = 0; k != table.sparse_count; ++k) {
          sparse.weight(sum, k, first, b) = weight_of(table.sparse[k].node);
        }
        for (std::size_t k = 0; k != table.outer_count && table.deferred_count > 0; ++k) {
          if (!table.outer[k].deferred) continue;
          deferred_weights(tape, sum, table.outer[k].number)[static_cast<index>(first - chunk_first) + b] =
              weight_of(table.outer[k].node);
        }
      }
    }
  }
  /// Ghost clipping forms a sum with one weight a sample by a second pass.
  [[nodiscard]] bool needs_a_second_pass(const sum_request<scalar>& sum) const noexcept {
    return request.strategy == strategy_kind::ghost && !sum.is_plain && !sum.per_layer && sum.integers == nullptr;
  }

  void form_sum(passes<Network>& pass, const sum_request<scalar>& request_sum, std::size_t first, index begin,
                index end, scalar* sum) {
    if (needs_a_second_pass(request_sum)) {
      others->second_pass(*this, pass, request_sum, first, begin, end, sum);
      return;
    }
    constexpr std::size_t groups = std::max<std::size_t>(1, table.layer_groups);
    std::array<scalar, groups* static_cast<std::size_t>(table.tile)> weights{};
    for (index b = begin; b < end; ++b) {
      scalar* mine = weights.data() + b * static_cast<index>(groups);
      weigh(pass, request_sum, first, b, mine);
      if (!request_sum.per_layer) std::fill_n(mine + 1, groups - 1, mine[0]);
    }
    const auto weights_of = [&](std::size_t node) {
      typename leaf_sums<Network>::weight_table of_node{};
      for (auto b = static_cast<std::size_t>(begin); b < static_cast<std::size_t>(end); ++b) {
        of_node[b] = weights[b * groups + table.layer_group[node]];
      }
      return of_node;
    };
    const auto add = [&](const outer_leaf& leaf) {
      if (!leaf.use.first || leaf.deferred) return;
      const typename leaf_sums<Network>::weight_table leaf_weights = weights_of(leaf.node);
      const leaf_kernel<scalar> kernel{leaf, workspace, begin};
      if (request_sum.squares || method_of(request, leaf, every_gradient) == norm_method::instantiate) {
        if (in_one_room(leaf)) return;
        leaves.add_kept(request_sum, leaf, begin, end, leaf_weights, sum);
      } else if (request_sum.integers != nullptr) {
        for (index b = begin; b < end; ++b) {
          if (leaf_weights[static_cast<std::size_t>(b)] == 0) continue;
          kernel.instantiate(b - begin, room);
          leaves.add_gradient(request_sum, leaf, leaf_weights[static_cast<std::size_t>(b)], room, sum);
        }
      } else if (request_sum.is_plain) {
        kernel.add_sum(end - begin, sum + leaf.native, room);
      } else {
        for (index b = begin; b < end; ++b) {
          if (leaf_weights[static_cast<std::size_t>(b)] == 0 && !finite(pass, first, b)) pass.erase(leaf.node, b);
        }
        kernel.add_weighted_sum(end - begin, leaf_weights.data() + begin, sum + leaf.native, room);
      }
    };
    for (std::size_t k = 0; k != table.outer_count; ++k) add(table.outer[k]);
    for (std::size_t k = 0; k != table.elementwise_count; ++k) {
      const elementwise_leaf& leaf = table.elementwise[k];
      if (!leaf.use.first) continue;
      const typename leaf_sums<Network>::weight_table leaf_weights = weights_of(leaf.node);
      leaves.add_kept(request_sum, leaf, begin, end, leaf_weights, sum);
    }
  }
};

}  // namespace pergrad::inline v0_1::on_host
