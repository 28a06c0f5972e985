// SPDX-License-Identifier: Apache-2.0
// pergrad/host/plan/input_place.hpp - may the network's input stay where the batch has it?
#pragma once

#include <cstddef>

#include <pergrad/graph/layout.hpp>
#include <pergrad/host/plan/tables.hpp>

namespace pergrad::inline v0_1::on_host {

/// It may if one deferred layer alone reads it, in PyTorch's order: that layer leaves a copy of x for the chunk's sum
/// (deferred_rows.hpp), and another in the workspace would only be read once.
template <class Tables>
constexpr void leave_input_in_place(Tables& t, std::size_t size) {
  const layout& of = t.slots[0].value_layout;
  std::size_t readers = 0;
  for (std::size_t i = 0; i != size; ++i) {
    const node_row& row = t.nodes[i];
    const bool reads = t.storage[row.in] == 0 && row.kind != node_kind::reshape;
    const bool copies =
        (row.in2_shape.size() > 0 && t.storage[row.in2] == 0) || (row.staged && t.storage[row.staged_from] == 0);
    if (copies || (reads && !row.deferred)) return;
    readers += reads ? 1U : 0U;
  }
  t.input_in_place = readers == 1 && t.storage[size] != 0 && of.values.plain() && of.dense() && of.start == 0;
}

}  // namespace pergrad::inline v0_1::on_host
