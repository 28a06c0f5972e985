// SPDX-License-Identifier: Apache-2.0
// pergrad/host/plan/kept_places.hpp - places of kept gradients, decided at compile time (kept_rooms.hpp), and what
// they save: docs/internals/tricks.md
#pragma once

#include <array>
#include <cstddef>

#include <pergrad/gradients/plan.hpp>
#include <pergrad/graph/layout.hpp>
#include <pergrad/host/plan/tables.hpp>

namespace pergrad::inline v0_1::on_host {

/// Has the layout neither a halo, which is set to zero once and for all, nor gaps?
[[nodiscard]] constexpr bool is_written_whole(const layout& of) noexcept {
  return of.size == of.values.size() && of.start == 0;
}

/// The slots that are read after the backward pass, before the next tile comes: by late leaves, by sums that are
/// formed from x and delta, by whoever asks for the network's output. All of them where nothing comes late, or where
/// the samples of a tile go through the network in parts, one of which may be through long before the others.
template <std::size_t Slots, class Tables>
constexpr std::array<bool, Slots> slots_that_last(const Tables& t, std::size_t output) {
  std::array<bool, Slots> lasts{};
  for (bool& each : lasts) each = !t.has_late || (t.deferred_count > 0 && t.tile > 1);
  const auto mark = [&](std::size_t node) {
    const node_row& row = t.nodes[node];
    for (const std::size_t which : {row.in, row.in2, row.out}) lasts[t.storage[which]] = true;
  };
  for (std::size_t k = 0; k != t.outer_count; ++k) {
    if (t.outer[k].late || t.outer[k].method != norm_method::instantiate) mark(t.outer[k].node);
  }
  for (std::size_t k = 0; k != t.sparse_count; ++k) mark(t.sparse[k].node);
  lasts[t.storage[output]] = true;
  return lasts;
}

/// Reserves those of a slot's places that last, or those that do not. `lasts`: the slot is marked.
constexpr void reserve_values(slot& here, bool has_gradient, bool lasts, bool lasting, const auto& reserve) {
  const auto goes_here = [&](const layout& of) { return (lasts || !is_written_whole(of)) == lasting; };
  if (goes_here(here.value_layout)) here.value = reserve(here.value_layout.size);
  if (has_gradient && goes_here(here.gradient_layout)) here.gradient = reserve(here.gradient_layout.size);
}

/// Marks the leaves whose gradients are there before the last samples of their tile begin with the layers in front of
/// `split`: those of the layers behind it, and of a tied block all if one is.
template <class Leaves>
constexpr void mark_kept_for_tile(Leaves& leaves, std::size_t count, std::size_t split) {
  for (std::size_t k = 0; k != count; ++k) {
    for (std::size_t other = 0; other != count; ++other) {
      if (leaves[other].native == leaves[k].native && leaves[other].node >= split) leaves[k].kept_for_tile = true;
    }
  }
}

/// The first use of a tied block has the place, the others have the same.
template <class Leaves>
constexpr void place_kept(Leaves& leaves, std::size_t count, index& part, index& tile, const auto& is_kept) {
  for (std::size_t k = 0; k != count; ++k) {
    auto& leaf = leaves[k];
    if (!is_kept(leaf)) continue;
    if (leaf.use.first) {
      index& next = leaf.kept_for_tile ? tile : part;
      leaf.kept = next;
      next += round_up(leaf.native_count());
      continue;
    }
    for (std::size_t first = 0; first != k; ++first) {
      if (leaves[first].use.first && leaves[first].native == leaf.native) leaf.kept = leaves[first].kept;
    }
  }
}

/// Places of all gradients that the plan keeps: side by side, those of a part's samples, then those of a tile's. Late
/// ones lie in the first `room` elements of the workspace as far as they have room there.
template <class Tables>
constexpr void place_kept_gradients(Tables& t, index room) {
  mark_kept_for_tile(t.elementwise, t.elementwise_count, t.split);
  mark_kept_for_tile(t.outer, t.outer_count, t.split);
  place_kept(t.elementwise, t.elementwise_count, t.kept_part, t.kept_tile,
             [](const elementwise_leaf&) { return true; });
  place_kept(t.outer, t.outer_count, t.kept_part, t.kept_tile,
             [](const outer_leaf& leaf) { return leaf.method == norm_method::instantiate && !leaf.late; });
  index in_workspace = 0;
  index in_room = t.cache_tile * t.kept_part + t.tile * t.kept_tile;
  for (std::size_t k = 0; k != t.outer_count; ++k) {
    outer_leaf& leaf = t.outer[k];
    if (!leaf.late) continue;
    leaf.in_workspace = in_workspace + round_up(leaf.size()) <= room;
    index& next = leaf.in_workspace ? in_workspace : in_room;
    leaf.kept = next;
    next += round_up(leaf.size());
  }
}

}  // namespace pergrad::inline v0_1::on_host
