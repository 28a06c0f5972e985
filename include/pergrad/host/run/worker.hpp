// SPDX-License-Identifier: Apache-2.0
// pergrad/host/run/worker.hpp - one thread's tile: through forward, loss, backward, facts and sums
//
// Parameter blocks have four ways to norms and sums, each a header with one struct of the same functions:
//   exists         has the network such blocks? A way that does not exist is not compiled
//   collect        norms (and, where kept, gradients) of a node's blocks, once the gradient of its output is complete
//   add_unit       the same where nobody asks for norms: all weights are 1, and samples are added to the sums at once
//   add_weighted   adds samples with their weights to an accumulator's sum, or notes the weights for `finish_chunk`
//   write_row      writes a sample's gradient times its weight, in PyTorch's order; a weight of 0 is not multiplied
//   finish_chunk   if accumulators do not add them up: the sums over a chunk of samples
//   pieces, add_piece
//                  of shared sums (engine.hpp): in how many pieces the samples of a round are added to a sum while a
//                  recomputed block is in its room (0: what needs none), and one of them
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include <pergrad/graph/layout.hpp>
#include <pergrad/host/norms/request.hpp>
#include <pergrad/host/plan/program.hpp>
#include <pergrad/host/run/deferred_way.hpp>
#include <pergrad/host/run/elementwise_way.hpp>
#include <pergrad/host/run/outer_way.hpp>
#include <pergrad/host/run/streamed_logits.hpp>
#include <pergrad/host/run/table_way.hpp>
#include <pergrad/host/run/tile_state.hpp>

namespace pergrad::inline v0_1::on_host {

/// Calls f(way) for each of a network's ways.
template <class Network, class Function>
void for_each_way(Function&& f) {
  const auto call = [&](auto way) {
    if constexpr (decltype(way)::exists) f(way);
  };
  call(table_way<Network>{});
  call(outer_way<Network>{});
  call(deferred_way<Network>{});
  call(elementwise_way<Network>{});
}

template <class Network>
struct worker {
  using scalar = typename Network::scalar;
  static constexpr const auto& table = program<Network>::table;
  static constexpr std::size_t size = program<Network>::size;

  const sample_source<scalar>& source;
  const run_request<scalar>& request;
  tile_state<Network> tile;
  scalar* sums;  ///< of an accumulator

  /// Forward, loss, backward, facts, sums. naive and multi send one sample after the other through the whole network;
  /// only what is kept differs.
  void process(bool one_by_one) {
    const index samples = tile.samples;
    tile.pass.load(source, tile.first, 0, samples);
    if (tile.facts_wanted || table.shares_sums)
      std::fill_n(tile.parts, samples * static_cast<index>(table.layer_groups), norm_bound{});
    const auto when_complete = [&](std::size_t node, index begin, index end) {
      for_each_way<Network>([&](auto way) {
        if constexpr (!table.shares_sums || !requires { &decltype(way)::add_piece; }) {
          if (!tile.facts_wanted) return way.add_unit(tile, node, begin, end, sums);
        } else if (!tile.facts_wanted && !decltype(way)::keeps) {
          return;
        }
        way.collect(tile, node, begin, end);
      });
      if (tile.facts_wanted) outer_way<Network>::collect_behind(tile, node, begin, end);
    };
    const bool together = !one_by_one || !tile.facts_wanted;
    for (index first = 0; first < samples; first += together ? samples : 1) {
      const index last = together ? samples : first + 1;
      forward(first, last);
      if constexpr (table.streams) {
        if (request.backward && tile.streamed != nullptr) streamed_logits<Network>::backward(tile, first, last);
      }
      if (request.backward) tile.pass.backward(table.split, size, first, last, when_complete);
      for_each_part(first, last, [&](index begin, index end) {
        if (request.backward) tile.pass.backward(0, table.split, begin, end, when_complete);
        if (together) conclude(begin, end);
      });
    }
    if (!together) conclude(0, samples);
  }

  /// As `sample_source::write_rows` is called.
  static void write_rows(void* of_worker, index begin, index end) {
    worker& self = *static_cast<worker*>(of_worker);
    const run_request<scalar>& request = self.request;
    const sum_request<scalar> unit;
    const auto weights = self.tile.weights_of(request.row_weights == nullptr ? unit : *request.row_weights, begin, end);
    for (index b = begin; b < end; ++b) {
      scalar* const row = request.rows + (static_cast<index>(self.tile.first - request.first) + b) *
                                             static_cast<index>(Network::parameter_count);
      for_each_way<Network>([&](auto way) { way.write_row(self.tile, b, weights, row); });
    }
  }

 private:
  /// Calls f(begin, end) for parts of a tile that stay in the cache.
  static void for_each_part(index begin, index end, auto&& f) {
    for (; begin < end; begin += table.cache_tile) f(begin, std::min(end, begin + table.cache_tile));
  }
  void forward(index begin, index end) {
    for_each_part(begin, end, [&](index first, index last) { tile.pass.forward(0, table.split, first, last); });
    tile.pass.forward(table.split, size, begin, end);
    evaluate_loss(begin, end);
  }
  [[gnu::noinline]] void evaluate_loss(index begin, index end) {
    if constexpr (table.streams) {
      if (tile.streamed != nullptr) return streamed_logits<Network>::evaluate(tile, begin, end);
    }
    for (index b = begin; b < end; ++b) {
      const std::span<const scalar> y = tile.pass.output(b);
      const std::span<scalar> dy = tile.pass.output_gradient(b);
      tile.losses[static_cast<std::size_t>(b)] = source.loss(source.context, tile.first + static_cast<std::size_t>(b),
                                                             y, dy, tile.pass.positions_there(size, b));
      tile.pass.scatter_output_gradient(b);
    }
  }
  [[gnu::noinline]] void observe(index begin, index end) {
    for (index b = begin; b < end && request.observer_count > 0; ++b) {
      const sample_facts<scalar> facts = tile.facts_of(b);
      for (std::size_t k = 0; k < request.observer_count; ++k)
        request.observers[k].observe(request.observers[k].context, facts);
    }
  }
  /// What is left to do once the gradients of some samples are complete.
  void conclude(index begin, index end) {
    tile.in_room = 1;
    outer_way<Network>::take_turns(tile, begin, end, sums);
    observe(begin, end);
    if (!tile.facts_wanted) return;
    if (request.rows != nullptr) source.write_rows(this, begin, end);
    // Plain sums first: a sample that a weighted sum leaves out may have its factors erased. Ghost's sums last: each
    // runs the passes anew, and erases what it likes.
    for (const int turn : {0, 1, 2}) {
      for (std::size_t s = 0; s < request.sum_count; ++s) {
        const sum_request<scalar>& sum = request.sums[s];
        if (turn != (sum.is_plain ? 0 : needs_a_second_pass(sum) ? 2 : 1)) continue;
        if (turn == 2) {
          tile.pass.load(source, tile.first, begin, end);  // what the sum before has erased
          forward(begin, end);
          tile.pass.backward(begin, end, [](std::size_t, index, index) {});
          tile.in_room = 1;
        }
        const auto weights = tile.weights_of(sum, begin, end);
        if constexpr (table.shares_sums) tile.note(s, weights, begin, end);
        for_each_way<Network>([&](auto way) {
          if constexpr (table.shares_sums && requires { &decltype(way)::add_piece; }) return;
          way.add_weighted(tile, s, weights, begin, end, sums + static_cast<index>(s) * table.accumulator_size);
        });
      }
    }
  }
  /// Ghost clipping forms a sum with one weight a sample by a second pass. It is the first one again, bit by bit; the
  /// weights meet the factors, not the losses as in the papers: a loss times w makes a backward pass that rounds in its
  /// own way, and the clip bound would only hold about.
  [[nodiscard]] bool needs_a_second_pass(const sum_request<scalar>& sum) const noexcept {
    return request.strategy == strategy_kind::ghost && !sum.is_plain && !sum.per_layer && sum.integers == nullptr;
  }
};

}  // namespace pergrad::inline v0_1::on_host
