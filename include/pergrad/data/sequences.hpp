// SPDX-License-Identifier: Apache-2.0
// pergrad/data/sequences.hpp - labelled sequences of ids of different lengths, and the rectangle that a network takes
//
// In files they are text, which every tokenizer can write: a line a sequence, its label and then its ids, whole numbers
// with one space between them. examples/imdb_sequences.py makes it of IMDb reviews.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <pergrad/data/idx.hpp>

namespace pergrad::inline v0_1 {

/// Sequences of ids, one after the other. Sequence i is the ids before `ends[i]` that do not belong to an earlier one.
/// Invariant: `ends` never decreases and its last value, if there is one, is `ids.size()`.
struct id_sequences {
  std::vector<std::int32_t> ids;
  std::vector<std::size_t> ends;

  [[nodiscard]] std::size_t size() const noexcept { return ends.size(); }
  /// Precondition: `index` < size().
  [[nodiscard]] std::span<const std::int32_t> operator[](std::size_t index) const noexcept {
    const std::size_t begin = index == 0 ? 0 : ends[index - 1];
    return {ids.data() + begin, ends[index] - begin};
  }
};

/// Sequences with one label each. Invariant: `sequences.size()` is `labels.size()`.
struct labelled_sequences {
  id_sequences sequences;
  std::vector<std::int32_t> labels;

  [[nodiscard]] std::size_t size() const noexcept { return labels.size(); }
};

/// Parses sequences from text in the form at the head of this file. `name` is used in error messages only. Throws
/// std::runtime_error naming the file and the byte at which it has another form or a number of more than 31 bits.
[[nodiscard]] inline labelled_sequences parse_sequences(std::span<const std::uint8_t> text, std::string_view name) {
  labelled_sequences set;
  bool is_label = true;  // the next number
  for (std::size_t place = 0; place < text.size() || !is_label;) {
    const std::size_t start = place;
    std::int64_t number = 0;
    for (; place < text.size() && text[place] >= '0' && text[place] <= '9'; ++place) {
      number = number * 10 + (text[place] - '0');
      if (number > std::numeric_limits<std::int32_t>::max()) {
        detail::idx::throw_error(name, start, "expected a number of at most 31 bits");
      }
    }
    if (place == start || place == text.size() || (text[place] != ' ' && text[place] != '\n')) {
      detail::idx::throw_error(name, place, "expected a label and ids, one space between them and a line a sequence");
    }
    (is_label ? set.labels : set.sequences.ids).push_back(static_cast<std::int32_t>(number));
    is_label = text[place++] == '\n';
    if (is_label) set.sequences.ends.push_back(set.sequences.ids.size());
  }
  return set;
}

/// Reads a file of sequences. Throws std::runtime_error as parse_sequences, or if it cannot be opened or read.
[[nodiscard]] inline labelled_sequences read_sequences(const std::string& path) {
  return parse_sequences(detail::idx::read_bytes(path), path);
}

/// Sequences padded or cut to one length, as a network over `token_ids` takes them.
/// Invariant: `ids.size()` is `positions * labels.size()`, and `lengths.size()` is `labels.size()`.
struct labelled_ids {
  std::vector<std::int32_t> ids;       ///< [sequences][positions]
  std::vector<std::uint32_t> lengths;  ///< ids of a sequence that are not padding, at most `positions`; may be 0
  std::vector<std::int32_t> labels;
  std::size_t positions = 0;

  [[nodiscard]] std::size_t size() const noexcept { return labels.size(); }
};

/// An end of a sequence.
enum class sequence_end { front, back };

/// Cuts every sequence to `positions` ids, dropping from the end `cut`, and fills shorter ones with `padding` at the
/// end `fill`. The defaults are those of Keras' pad_sequences. A network over sequences of variable length takes the
/// padding at the back: `pad_sequences(set, positions, sequence_end::back)`, and `lengths` with it; a data set refuses
/// the length 0 of an empty sequence.
/// Throws std::invalid_argument if `positions` is zero or does not fit 32 bits or if labels and sequences differ in
/// number.
[[nodiscard]] inline labelled_ids pad_sequences(const labelled_sequences& set, std::size_t positions,
                                                sequence_end fill = sequence_end::front,
                                                sequence_end cut = sequence_end::front, std::int32_t padding = 0) {
  if (positions == 0 || positions > std::numeric_limits<std::uint32_t>::max()) {
    throw std::invalid_argument("pergrad: pad_sequences: cannot pad to " + std::to_string(positions) + " positions");
  }
  if (set.sequences.size() != set.labels.size()) {
    throw std::invalid_argument("pergrad: pad_sequences: got " + std::to_string(set.sequences.size()) +
                                " sequences and " + std::to_string(set.labels.size()) + " labels");
  }
  if (set.size() > std::numeric_limits<std::size_t>::max() / sizeof(std::int32_t) / positions) {
    throw std::invalid_argument("pergrad: pad_sequences: " + std::to_string(set.size()) + " sequences of " +
                                std::to_string(positions) + " positions do not fit the address space");
  }
  labelled_ids padded{.ids = std::vector<std::int32_t>(set.size() * positions, padding),
                      .lengths = {},
                      .labels = set.labels,
                      .positions = positions};
  padded.lengths.reserve(set.size());
  for (std::size_t index = 0; index < set.size(); ++index) {
    const auto whole = set.sequences[index];
    const std::size_t length = std::min(whole.size(), positions);
    const auto kept = cut == sequence_end::front ? whole.last(length) : whole.first(length);
    const std::size_t before = fill == sequence_end::front ? positions - length : 0;
    std::copy(kept.begin(), kept.end(), padded.ids.begin() + static_cast<std::ptrdiff_t>(index * positions + before));
    padded.lengths.push_back(static_cast<std::uint32_t>(length));
  }
  return padded;
}

}  // namespace pergrad::inline v0_1
