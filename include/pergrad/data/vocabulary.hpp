// SPDX-License-Identifier: Apache-2.0
// pergrad/data/vocabulary.hpp - words as ids: 0 is padding, 1 a word that is not in the list, 2 the first in it
//
// A vocabulary is a parameter of the network, and under differential privacy it has to be public like its layers: a
// list counted from private texts is a release of those texts of its own, which no noise on gradients protects.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace pergrad::inline v0_1 {

namespace detail::words {

// Lets a map of strings be searched for a view.
struct hash {
  using is_transparent = void;
  [[nodiscard]] std::size_t operator()(std::string_view word) const noexcept {
    return std::hash<std::string_view>{}(word);
  }
};

template <class Mapped>
using map = std::unordered_map<std::string, Mapped, hash, std::equal_to<>>;

}  // namespace detail::words

/// Lower-cases the ASCII letters of a text and calls `visit(std::string_view)` for every word: what lies between spaces
/// and other ASCII white space. Punctuation stays where it is, and bytes outside ASCII are not changed.
template <class Visitor>
void for_each_word(std::string_view text, Visitor&& visit) {
  constexpr std::string_view white = " \t\n\v\f\r";
  std::string lower(text);
  for (char& character : lower) {
    character = character >= 'A' && character <= 'Z' ? static_cast<char>(character - 'A' + 'a') : character;
  }
  const std::string_view rest(lower);
  for (std::size_t start = rest.find_first_not_of(white); start != std::string_view::npos;) {
    const std::size_t end = std::min(rest.find_first_of(white, start), rest.size());
    visit(rest.substr(start, end - start));
    start = rest.find_first_not_of(white, end);
  }
}

/// A list of distinct words and their ids.
class vocabulary {
 public:
  static constexpr std::int32_t padding = 0;
  static constexpr std::int32_t unknown = 1;
  static constexpr std::int32_t first_word = 2;

  /// Throws std::invalid_argument if a word is there twice or if there are too many for 32-bit ids.
  explicit vocabulary(std::vector<std::string> words) : words_{std::move(words)} {
    if (words_.size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max() - first_word)) {
      throw std::invalid_argument("pergrad: vocabulary: " + std::to_string(words_.size()) +
                                  " words are more than there are ids");
    }
    ids_.reserve(words_.size());
    for (std::size_t place = 0; place < words_.size(); ++place) {
      if (!ids_.emplace(words_[place], first_word + static_cast<std::int32_t>(place)).second) {
        throw std::invalid_argument("pergrad: vocabulary: the word " + words_[place] + " is there twice");
      }
    }
  }

  /// Number of ids, padding and unknown among them: the vocabulary of `token_ids`.
  [[nodiscard]] std::size_t size() const noexcept { return words_.size() + first_word; }
  /// The words in the order of their ids, from `first_word` on.
  [[nodiscard]] const std::vector<std::string>& words() const noexcept { return words_; }
  /// `unknown` if the word is not in the list.
  [[nodiscard]] std::int32_t id(std::string_view word) const {
    const auto found = ids_.find(word);
    return found == ids_.end() ? unknown : found->second;
  }

 private:
  std::vector<std::string> words_;
  detail::words::map<std::int32_t> ids_;
};

/// Counts words, for a vocabulary of the most frequent ones. The texts must be public: see the head of this file.
class word_counter {
 public:
  void add(std::string_view text) {
    for_each_word(text, [this](std::string_view word) {
      if (const auto found = counts_.find(word); found != counts_.end()) {
        ++found->second;
      } else {
        counts_.emplace(word, 1);
      }
    });
  }

  /// The most frequent words; equally frequent ones in the order of their bytes. `size` counts ids as
  /// `vocabulary::size` does: two of them are not words. Throws std::invalid_argument if it is less than 3.
  [[nodiscard]] vocabulary most_frequent(std::size_t size) const {
    constexpr std::size_t reserved = vocabulary::first_word;
    if (size <= reserved) {
      throw std::invalid_argument("pergrad: word_counter: a vocabulary of " + std::to_string(size) +
                                  " ids has no words; expected at least 3");
    }
    using counted = std::pair<std::string_view, std::size_t>;
    std::vector<counted> all(counts_.begin(), counts_.end());
    std::sort(all.begin(), all.end(), [](const counted& first, const counted& second) {
      return first.second != second.second ? first.second > second.second : first.first < second.first;
    });
    all.resize(std::min(all.size(), size - reserved));
    std::vector<std::string> words;
    words.reserve(all.size());
    for (const counted& one : all) {
      words.emplace_back(one.first);
    }
    return vocabulary(std::move(words));
  }

 private:
  detail::words::map<std::size_t> counts_;
};

}  // namespace pergrad::inline v0_1
