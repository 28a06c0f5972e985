// SPDX-License-Identifier: Apache-2.0
// pergrad/host/run/tile_state.hpp - a tile as the ways see it that find its samples' norms and form its sums
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <span>

#include <pergrad/gradients/plan.hpp>
#include <pergrad/graph/layout.hpp>
#include <pergrad/host/norms/request.hpp>
#include <pergrad/host/plan/program.hpp>
#include <pergrad/host/plan/tables.hpp>
#include <pergrad/host/run/passes.hpp>
#include <pergrad/host/run/working_memory.hpp>
#include <pergrad/privacy/clip.hpp>
#include <pergrad/simd/elements.hpp>

namespace pergrad::inline v0_1::on_host {

/// One thread's tile. Samples count from its first one.
template <class Network>
struct tile_state {
  using scalar = typename Network::scalar;
  static constexpr const auto& table = program<Network>::table;
  static constexpr auto most = static_cast<std::size_t>(table.tile);
  static constexpr std::size_t groups = std::max<std::size_t>(1, table.layer_groups);

  const Network& network;
  working_memory<Network>& tape;
  const run_request<scalar>& request;
  const other_norms<scalar>* others;  ///< null: the plan's methods alone
  std::size_t thread = 0;
  std::size_t first = 0;  ///< sample of the batch
  index in_chunk = 0;     ///< samples of the chunk before it
  index samples = 0;
  const sample_source<scalar>* streamed = nullptr;  ///< not null: logits are never all there (streamed_logits.hpp)
  scalar* workspace = tape.workspaces.data() + static_cast<index>(thread) * tape.workspace_stride;
  scalar* kept = tape.kept.data() + static_cast<index>(thread) * tape.kept_stride;
  scalar* room = tape.rooms.data() + static_cast<index>(thread) * tape.room_stride;
  norm_bound* parts = tape.parts.data() + static_cast<index>(thread) * tape.parts_stride;
  passes<Network> pass{
      network, tape.panels.data(), workspace, tape.deferred().from(in_chunk), request.randomness, streamed != nullptr};
  std::array<double, most> losses{};
  std::array<double, most> projections{};
  bool facts_wanted = request.needs_facts();
  bool every_gradient = request.needs_every_gradient();
  /// Where nobody reads norms, as of proven sums, only gradients that are kept are formed.
  bool norms_wanted = request.norms || every_gradient;
  /// Does each sample's gradient of a late leaf take the place of the one before?
  bool as_turns_are = facts_wanted && !every_gradient && request.strategy == strategy_kind::book_keeping;
  bool takes_turns = table.has_late && as_turns_are;
  /// Does nobody ask for more gradients than the plan forms, nor for other methods? Then samples keep what the plan
  /// says where it says (kept_places.hpp), else all of a sample's gradients lie side by side in the native order.
  bool as_planned = request.method == norm_method::automatic && !every_gradient && (takes_turns || !table.has_late);
  index every =
      forms_deferred(request) ? table.native_size : table.accumulator_size;  ///< elements of a sample's gradients

  /// Must the gradients of deferred leaves be formed and kept, sample by sample, too?
  [[nodiscard]] static bool forms_deferred(const run_request<scalar>& request) {
    const bool every = request.needs_every_gradient();
    for (std::size_t k = 0; k != table.outer_count; ++k) {
      const outer_leaf& leaf = table.outer[k];
      if (leaf.deferred && method_of(request, leaf, every) == norm_method::instantiate) return true;
    }
    return false;
  }

  /// The first recomputed block is in its room when the backward pass is through, of all samples.
  std::size_t in_room = 1;
  /// Makes what a recomputed block has computed of some samples be in their rooms.
  void bring(std::size_t block, index begin, index end) {
    if (block > 0 && block != in_room) pass.run_again(in_room = block, begin, end);
  }

  [[nodiscard]] norm_bound& part(index sample, std::size_t node) {
    return parts[sample * static_cast<index>(table.layer_groups) + static_cast<index>(table.layer_group[node])];
  }
  /// Where a sample's gradient of a leaf is kept.
  template <class Leaf>
  [[nodiscard]] scalar* gradient(index sample, const Leaf& leaf) const noexcept {
    if (!as_planned) return kept + sample * every + leaf.native;  // there is room for all of these tiles (engine.hpp)
    const index number = leaf.kept.for_tile ? sample : sample % table.cache_tile;
    return (leaf.kept.in_workspace ? workspace : kept) + leaf.kept.first + number * leaf.kept.step;
  }
  template <class Leaf>
  void project(index sample, const Leaf& leaf) {
    if (request.direction == nullptr) return;
    projections[static_cast<std::size_t>(sample)] +=
        dot(static_cast<const scalar*>(gradient(sample, leaf)),
            static_cast<const scalar*>(tape.direction.data() + leaf.native), leaf.size());
  }

  [[nodiscard, gnu::noinline]] sample_facts<scalar> facts_of(index b) {
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
  /// Is the sample's gradient finite? Others are erased where their weight is 0, as 0 times infinity is not 0; a finite
  /// one must stay whole, because the next sum of the same evaluation may want it.
  [[nodiscard]] bool finite(index b) { return std::isfinite(facts_of(b).norm.squared); }

  /// The weights of the samples in one sum.
  struct weights {
    bool per_layer = false;
    std::array<scalar, groups * most> values{};  ///< [node with parameters, or all of them][sample]
    /// Of a node's parameters, one a sample of the tile.
    [[nodiscard]] const scalar* of(std::size_t node) const noexcept {
      return values.data() + (per_layer ? table.layer_group[node] : 0) * most;
    }
  };
  [[nodiscard, gnu::noinline]] weights weights_of(const sum_request<scalar>& sum, index begin, index end) {
    weights result{sum.per_layer};
    std::array<scalar, groups> mine{};
    mine.fill(scalar{1});
    for (auto b = static_cast<std::size_t>(begin); b < static_cast<std::size_t>(end); ++b) {
      if (!sum.is_plain) sum.weigh(sum.weigher, facts_of(static_cast<index>(b)), sum.unit, mine.data());
      for (std::size_t group = 0; group != (sum.per_layer ? groups : 1); ++group) {
        result.values[group * most + b] = mine[group];
      }
    }
    return result;
  }

  /// Of shared sums (engine.hpp): the weights of samples begin .. end - 1 stay until all of the round are known.
  void note(std::size_t sum, const weights& of, index begin, index end) {
    for (std::size_t group = 0; group != groups; ++group) {
      const scalar* const from = of.values.data() + (of.per_layer ? group : 0) * most;
      std::copy(from + begin, from + end, noted(sum, group) + begin);
    }
  }
  [[nodiscard]] scalar* noted(std::size_t sum, std::size_t group) const noexcept {
    return tape.noted.data() + ((thread * tape.max_sums + sum) * groups + group) * most;
  }

  /// Adds the gradients of a leaf that samples keep to a sum, or what is left of them on the grid. A weight of 0 is not
  /// multiplied: a non-finite gradient must contribute nothing. A stretch of the sum stays in the first cache while all
  /// samples are added to it, a few in one pass, one after the other (docs/internals/tricks.md).
  template <class Leaf>
  [[gnu::noinline]] void add_kept(const sum_request<scalar>& sum, const Leaf& leaf, const scalar* weight, index begin,
                                  index end, scalar* to) {
    std::array<scaled_stretch<scalar>, most> terms;
    std::size_t term_count = 0;
    for (index b = begin; b < end; ++b) {
      if (weight[b] != 0) terms[term_count++] = {weight[b], gradient(b, leaf)};
    }
    const auto all = std::span{terms}.first(term_count);
    constexpr index stretch = index{1} << 12;
    for (index from = 0; from < leaf.size(); from += stretch) {
      const index count = std::min(stretch, leaf.size() - from);
      scalar* const here = to + leaf.native + from;
      if (sum.integers == nullptr && !sum.squares) {
        add_all_scaled_to<scalar>(here, all, from, count);
        continue;
      }
      for (const scaled_stretch<scalar>& term : all) {
        if (sum.integers != nullptr) {
          add_rounded(sum, term.weight, term.from + from, count, here);
        } else {
          add_scaled_squares_to(here, term.weight, term.from + from, count);
        }
      }
    }
  }
  /// Adds a stretch of a sample's gradient of a leaf, which lies in `from`, to a shared sum.
  template <class Leaf>
  void add_to_shared(std::size_t number, const Leaf& leaf, index b, const scalar* from, index begin,
                     index count) const {
    const sum_request<scalar>& sum = request.sums[number];
    const scalar weight = sum.is_plain ? scalar{1} : noted(number, table.layer_group[leaf.node])[b];
    if (weight == 0) return;  // not multiplied: a non-finite gradient must contribute nothing
    const index place = leaf.native + begin;
    const scalar factor = static_cast<scalar>(sum.scale) * weight;  // of a clipped sum the weight itself
    if (sum.integers != nullptr) {
      add_rounded_to(sum.integers + place, static_cast<double>(weight) * sum.steps(), from, count);
    } else if (sum.squares) {
      add_scaled_squares_to(sum.out + place, factor, from, count);
    } else {
      add_scaled_to(sum.out + place, factor, from, count);
    }
  }
  /// What is left on the grid of a stretch of a sample's gradient.
  static void add_rounded(const sum_request<scalar>& sum, scalar weight, const scalar* gradient, index count,
                          scalar* to) {
    add_rounded_to(reinterpret_cast<integer_of<scalar>*>(to), static_cast<double>(weight) * sum.steps(), gradient,
                   count);
  }
};

}  // namespace pergrad::inline v0_1::on_host
