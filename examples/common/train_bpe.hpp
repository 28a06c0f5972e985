// SPDX-License-Identifier: Apache-2.0
// examples/common/train_bpe.hpp - learns merges of byte pairs from public text, and writes GPT-2's two files
#pragma once

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <pergrad/text/byte_level_bpe.hpp>

#include "report.hpp"

namespace example {

/// Byte pair encoding of `vocabulary` tokens, the most frequent pair first (Sennrich et al. 2015, arXiv:1508.07909).
/// The text decides what the tokens are, so it has to be public.
inline void train_bpe(const std::vector<std::string>& texts, std::size_t vocabulary, const std::string& vocabulary_path,
                      const std::string& merges_path) {
  std::map<std::string, std::int64_t, std::less<>> counts_of_words;
  for (const std::string& text : texts) {
    pergrad::detail::for_each_word(text, [&](std::string_view word) { ++counts_of_words[std::string{word}]; });
  }
  std::vector<std::pair<std::vector<std::size_t>, std::int64_t>> words;
  for (const auto& [word, count] : counts_of_words) {
    words.emplace_back(std::vector<std::size_t>{}, count);
    for (const char byte : word) words.back().first.push_back(static_cast<unsigned char>(byte));
  }
  std::vector<std::int64_t> counts(vocabulary * vocabulary);  // of pairs
  const auto count_pairs = [&](const std::vector<std::size_t>& tokens, std::int64_t by) {
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i) counts[tokens[i] * vocabulary + tokens[i + 1]] += by;
  };
  for (const auto& [tokens, count] : words) count_pairs(tokens, count);

  const auto names_of_bytes = pergrad::detail::names_of_bytes();
  std::vector<std::string> names{names_of_bytes.begin(), names_of_bytes.end()};
  std::string merges = "#version: 0.2\n";
  while (names.size() < vocabulary) {
    const auto best = static_cast<std::size_t>(std::ranges::max_element(counts) - counts.begin());
    const std::size_t left = best / vocabulary, right = best % vocabulary;
    if (counts[best] < 2) break;
    merges += names[left] + " " + names[right] + "\n";
    for (auto& word : words) {
      std::vector<std::size_t>& tokens = word.first;
      const auto is_pair = [&](std::size_t i) {
        return i + 1 < tokens.size() && tokens[i] == left && tokens[i + 1] == right;
      };
      std::size_t first = 0;
      while (first < tokens.size() && !is_pair(first)) ++first;
      if (first == tokens.size()) continue;
      count_pairs(tokens, -word.second);
      std::size_t to = first;
      for (std::size_t from = first; from < tokens.size(); ++to) {
        const bool joins = is_pair(from);
        tokens[to] = joins ? names.size() : tokens[from];
        from += joins ? 2 : 1;
      }
      tokens.resize(to);
      count_pairs(tokens, word.second);
    }
    names.push_back(names[left] + names[right]);
  }
  nlohmann::json ids;
  for (std::size_t id = 0; id < names.size(); ++id) ids[names[id]] = id;
  write_file(vocabulary_path, ids.dump());
  write_file(merges_path, merges);
}

}  // namespace example
