// SPDX-License-Identifier: Apache-2.0
// pergrad/host/plan/kept_places.hpp - places of kept gradients, decided at compile time
//
// Where the plan alone decides, samples keep what the plan instantiates, side by side. Gradients that come late
// (leaf_tables.hpp) are formed when the backward pass is through and gone before the next tile comes: they lie over
// what nobody reads in between, rooms for the time of one call and values and gradients of layers, so that a private
// step takes no memory of its own for them. What this saves: docs/internals/tricks.md
//
// Values and gradients of layers are not placed by their lifetimes, as on a device (cuda/plan): halos are set to zero
// once and for all, and other sums and methods than the plan's read x and delta of any block after the backward pass.
// What is dead by then is only known where the plan decides, and only late gradients are formed after it.
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
  const auto place_here = [&](place& where, const layout& of) {
    if ((lasts || !is_written_whole(of)) != lasting) return;
    where = reserve(of.size);
    here.elements += of.size;
  };
  place_here(here.value, here.value_layout);
  if (has_gradient) place_here(here.gradient, here.gradient_layout);
}

/// Places of all gradients that the plan keeps, block by block. Samples that go through the layers in front of `split`
/// in parts share these layers' places, as a part is through with all of them before the next one begins; a block whose
/// gradient, or one that is tied to it, is formed behind `split` has a place for each sample of the tile, and so has
/// every block whose sums are shared, as those are formed when the whole tile is through. A late block has one for all
/// samples, in the first `room` elements of the workspace if it is not taken there.
template <class Tables>
constexpr void place_kept_gradients(Tables& t, index room) {
  index in_workspace = t.any_in_pairs ? t.winograd.sample : 0;  // where they are filtered
  index in_memory = 0;
  const auto place = [&](auto& leaves, std::size_t count, std::size_t k, bool late) {
    kept_place& kept = leaves[k].kept;
    for (std::size_t other = 0; other != count; ++other) {
      if (leaves[other].native != leaves[k].native) continue;
      if (other < k) {  // the first use of a tied block has the place, the others have the same
        kept = leaves[other].kept;
        return;
      }
      if (t.shares_sums || leaves[other].node >= t.split) kept.for_tile = true;
    }
    const index size = round_up(leaves[k].size());
    kept.in_workspace = late && in_workspace + size <= room;
    index& next = kept.in_workspace ? in_workspace : in_memory;
    kept.first = next;
    kept.step = late ? 0 : size;
    next += size * (late ? 1 : kept.for_tile ? t.tile : t.cache_tile);
  };
  for (std::size_t k = 0; k != t.elementwise_count; ++k) place(t.elementwise, t.elementwise_count, k, false);
  for (std::size_t k = 0; k != t.outer_count; ++k) {
    if (t.outer[k].method == norm_method::instantiate) place(t.outer, t.outer_count, k, t.outer[k].late);
  }
}

}  // namespace pergrad::inline v0_1::on_host
