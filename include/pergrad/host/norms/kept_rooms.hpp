// SPDX-License-Identifier: Apache-2.0
// pergrad/host/norms/kept_rooms.hpp - where gradients lie that a tile keeps until its samples' weights are known
//
// Where the plan alone decides, a sample keeps what the plan instantiates, side by side; all blocks have their places
// only where somebody asks for every gradient. The layers in front of a deferred one take a tile's samples in parts,
// and samples of different parts share the space for these layers' gradients, as they go through them one after the
// other; the layers behind it are through with all samples before, so there each has a space of its own. Gradients that
// come late (leaf_tables.hpp) are formed when the backward pass is through and gone before the next tile comes: they
// lie over what nobody reads in between, buffers for the time of one call and values and gradients of layers, so that a
// private step takes no memory of its own for them.
#pragma once

#include <array>
#include <cstddef>

#include <pergrad/gradients/plan.hpp>
#include <pergrad/graph/layout.hpp>
#include <pergrad/host/norms/request.hpp>
#include <pergrad/host/plan/program.hpp>
#include <pergrad/host/plan/tables.hpp>

namespace pergrad::inline v0_1::on_host {

/// One thread's space for kept gradients.
template <class Network>
struct kept_rooms {
  using scalar = typename Network::scalar;
  static constexpr const auto& table = program<Network>::table;

  scalar* workspace;
  scalar* room;
  bool as_planned;  ///< nobody asks for more gradients than the plan forms, nor for other methods
  index every;      ///< from a sample's gradients to the next one's where not: each in the native order

  /// `takes_turns`: late gradients have one space for all samples.
  kept_rooms(const run_request<scalar>& request, bool takes_turns, index of_every, scalar* of_workspace,
             scalar* of_room)
      : workspace{of_workspace},
        room{of_room},
        as_planned{request.method == norm_method::automatic && !request.needs_every_gradient() &&
                   (takes_turns || !table.has_late)},
        every{of_every} {}

  /// All of a sample of a tile that is not cut into parts, where somebody asks for every gradient.
  [[nodiscard]] scalar* of_sample(index number) const noexcept { return room + number * every; }
  template <class Leaf>
  [[nodiscard]] scalar* gradient(index number, const Leaf& leaf) const noexcept {
    const index place = leaf.kept_for_tile ? number : number % table.cache_tile;
    if (!as_planned) return room + place * every + leaf.native;
    return room + leaf.kept +
           (leaf.kept_for_tile ? table.cache_tile * table.kept_part + place * table.kept_tile
                               : place * table.kept_part);
  }
  /// Of a late leaf, whichever sample's turn it is.
  [[nodiscard]] scalar* late_gradient(const outer_leaf& leaf) const noexcept {
    if (!as_planned) return room + leaf.native;
    return (leaf.in_workspace ? workspace : room) + leaf.kept;
  }
};

}  // namespace pergrad::inline v0_1::on_host
