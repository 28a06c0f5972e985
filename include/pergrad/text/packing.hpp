// SPDX-License-Identifier: Apache-2.0
// pergrad/text/packing.hpp - texts as sequences of one length for a language model, none of two owners
//
// Not part of the umbrella. What a sequence holds is protected as one: where the privacy unit is an owner, texts of two
// must not meet in one, and where it is a text, each text is an owner.
#pragma once

// clang-format off
#include <pergrad/detail/beside_the_umbrella.hpp>  // before anything is defined
// clang-format on

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace pergrad::inline v0_1 {

/// Sequences for a network on `token_ids(positions, vocabulary)` with `token_cross_entropy<>`.
struct packed_texts {
  std::vector<std::int32_t> ids;      ///< [sequences][positions]
  std::vector<std::int32_t> targets;  ///< the next id of each position; -100 behind the end
  std::vector<std::uint32_t> owners;  ///< of each sequence: `pg::of_owners` takes it
};

/// Puts texts, each with a `separator` in front, one behind the other, owner by owner in the order of their numbers,
/// and cuts what an owner has into sequences; the last one is filled up with separators that do not count. `owners` has
/// one number a text. A sequence begins with the id that the one in front of it ended before, so that every id but the
/// first separator is a target once. Throws std::invalid_argument for other numbers of owners than of texts, and for no
/// positions.
[[nodiscard]] inline packed_texts pack(std::span<const std::vector<std::int32_t>> texts,
                                       std::span<const std::uint32_t> owners, std::size_t positions,
                                       std::int32_t separator) {
  constexpr std::int32_t ignored = -100;
  if (owners.size() != texts.size()) {
    throw std::invalid_argument("pergrad: pack: " + std::to_string(owners.size()) + " owners of " +
                                std::to_string(texts.size()) + " texts: one a text is needed");
  }
  if (positions == 0) throw std::invalid_argument("pergrad: pack: a sequence needs positions");
  std::vector<std::size_t> order(texts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t text) { return owners[text]; });
  packed_texts packed;
  std::vector<std::int32_t> all;
  for (std::size_t i = 0; i < order.size(); ++i) {
    all.push_back(separator);
    all.insert(all.end(), texts[order[i]].begin(), texts[order[i]].end());
    const std::uint32_t owner = owners[order[i]];
    if (i + 1 < order.size() && owners[order[i + 1]] == owner) continue;
    all.push_back(separator);  // the end is learned, too
    for (std::size_t first = 0; first + 1 < all.size(); first += positions) {
      for (std::size_t t = first; t < first + positions; ++t) {
        packed.ids.push_back(t + 1 < all.size() ? all[t] : separator);
        packed.targets.push_back(t + 1 < all.size() ? all[t + 1] : ignored);
      }
      packed.owners.push_back(owner);
    }
    all.clear();
  }
  return packed;
}

}  // namespace pergrad::inline v0_1
