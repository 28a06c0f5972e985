// SPDX-License-Identifier: Apache-2.0
// pergrad/host/kept_rooms.hpp - where gradients lie that a tile keeps until its samples' weights are known
//
// Where the plan alone decides, a sample keeps what the plan instantiates, side by side; all blocks have their places
// only where somebody asks for every gradient. Gradients that come late (leaf_tables.hpp) are formed when the backward
// pass is through and gone before the next tile comes: they lie over what nobody reads in between, rooms for the time
// of one call and values and gradients of layers, so that a private step takes no memory of its own for them.
#pragma once

#include <array>
#include <cstddef>

#include <pergrad/detail/layout.hpp>
#include <pergrad/gradients/plan.hpp>
#include <pergrad/host/program.hpp>
#include <pergrad/host/request.hpp>
#include <pergrad/host/tables.hpp>

namespace pergrad::inline v0_1::on_host {

/// One thread's room for kept gradients.
template <class Network>
struct kept_rooms {
  using scalar = typename Network::scalar;
  static constexpr const auto& table = program<Network>::table;

  scalar* workspace;
  scalar* room;
  bool as_planned;  ///< nobody asks for more gradients than the plan forms, nor for other methods
  index sample;     ///< from a sample's gradients to the next one's

  /// `takes_turns`: late gradients have one room for all samples. `every`: of a sample, in the native order.
  kept_rooms(const run_request<scalar>& request, bool takes_turns, index every, scalar* of_workspace, scalar* of_room)
      : workspace{of_workspace},
        room{of_room},
        as_planned{request.method == norm_method::automatic && !request.needs_every_gradient() &&
                   (takes_turns || !table.has_late)},
        sample{as_planned ? table.kept_sample : every} {}

  /// All of a sample, for a block of `node`. Samples of different parts share the room for gradients of the nodes that
  /// they go through one after the other.
  [[nodiscard]] scalar* of_sample(index number, std::size_t node) const noexcept {
    return room + (node + 1 <= table.split ? number % table.cache_tile : number) * sample;
  }
  template <class Leaf>
  [[nodiscard]] scalar* gradient(index number, const Leaf& leaf) const noexcept {
    return of_sample(number, leaf.node) + (as_planned ? leaf.kept : leaf.native);
  }
  /// Of a late leaf, whichever sample's turn it is.
  [[nodiscard]] scalar* late_gradient(const outer_leaf& leaf) const noexcept {
    if (!as_planned) return room + leaf.native;
    return (leaf.in_workspace ? workspace : room) + leaf.kept;
  }
};

}  // namespace pergrad::inline v0_1::on_host
