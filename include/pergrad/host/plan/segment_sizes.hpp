// SPDX-License-Identifier: Apache-2.0
// pergrad/host/plan/segment_sizes.hpp - how large the segments of a table's gradient are (host/norms/sparse.hpp)
#pragma once

#include <cstddef>
#include <cstdint>

#include <pergrad/graph/layout.hpp>
#include <pergrad/host/plan/tables.hpp>

namespace pergrad::inline v0_1::on_host {

/// Parts of a table that are summed up independently.
inline constexpr index sparse_buckets = 16;

/// Neighbouring rows in one bucket: so many that two threads seldom write to one cache line. Buckets take turns, as
/// vocabularies are often sorted by frequency.
[[nodiscard]] constexpr int bucket_shift(const sparse_leaf& leaf) noexcept {
  int shift = 0;
  while ((leaf.width << shift) < 4 * line) ++shift;
  return shift;
}
[[nodiscard]] constexpr std::size_t bucket_of(std::int32_t id, int shift) noexcept {
  return (static_cast<std::uint32_t>(id) >> shift) % static_cast<std::uint32_t>(sparse_buckets);
}

/// Integers that a sample's segments take: where buckets begin, ids, counts.
[[nodiscard]] constexpr index segment_integers(const sparse_leaf& leaf) noexcept {
  return round_up(sparse_buckets + 1 + (leaf.counted ? 2 : 1) * leaf.all_positions);
}

/// Slots of the hash table: one an id where that is not much, else four a position.
[[nodiscard]] constexpr index hash_slots(const sparse_leaf& leaf) noexcept {
  index slots = 64;
  const index wanted =
      leaf.vocabulary <= 64 * leaf.all_positions || leaf.vocabulary <= 4096 ? leaf.vocabulary : 4 * leaf.all_positions;
  while (slots < wanted) slots *= 2;
  return slots;
}

}  // namespace pergrad::inline v0_1::on_host
