// SPDX-License-Identifier: Apache-2.0
// examples/common/dictionaries.hpp - two dictionaries that Debian packages, as lines "word: definition": GCIDE, which
// is Webster's of 1913 (package dict-gcide, GPL 2 or later), and WordNet's nouns (wordnet-base, WordNet's free licence)
#pragma once

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "gzip.hpp"

namespace example {

namespace dictionary {

[[nodiscard]] inline bool is_digit(char c) { return c >= '0' && c <= '9'; }
[[nodiscard]] inline bool is_capital(char c) { return c >= 'A' && c <= 'Z'; }
inline void decapitalise(char& c) { c = static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

/// Printable ASCII with single blanks, without what stands in square brackets.
[[nodiscard]] inline std::string plain(std::string_view text) {
  std::string out;
  int depth = 0;
  for (const char c : text) {
    depth += c == '[' ? 1 : 0;
    const bool is_letter = c > ' ' && c <= '~' && c != '{' && c != '}' && c != ']';
    if (depth == 0 && is_letter) out += c;
    if (c <= ' ' && !out.empty() && out.back() != ' ') out += ' ';
    depth -= c == ']' && depth > 0 ? 1 : 0;
  }
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

/// "word: definition" up to the definition's first stop, or nothing. `sense` may begin with a number and a field:
/// "2. (Hort.) The process of ...".
[[nodiscard]] inline std::string entry(const std::string& word, std::string sense) {
  std::size_t first = 0;
  while (first < sense.size() && is_digit(sense[first])) ++first;
  if (first > 0) sense.erase(0, std::min(first + 2, sense.size()));
  if (sense.starts_with('(') && sense.find(") ") != std::string::npos) sense.erase(0, sense.find(") ") + 2);
  sense.erase(std::min(sense.size(), sense.find_first_of(".;")));
  if (word.empty() || sense.size() < 8 || sense.starts_with("Syn:") || sense.starts_with("--")) return {};
  decapitalise(sense.front());
  return word + ": " + sense;
}

}  // namespace dictionary

/// GCIDE's senses, but for those that it has from WordNet. Throws as `read_file` and `gunzip`.
[[nodiscard]] inline std::vector<std::string> gcide(const std::string& path) {
  const bytes content = gunzip(read_file(path), path, std::size_t{1} << 28U);
  const std::string_view text{reinterpret_cast<const char*>(content.data()), content.size()};
  std::vector<std::string> entries;
  std::string word, sense;
  for (std::size_t from = 0, end = 0; from < text.size(); from = end + 1) {
    end = std::min(text.find('\n', from), text.size());
    const std::string_view line = text.substr(from, end - from);
    const std::size_t bar = line.find(" \\");
    const bool begins = !line.empty() && line.front() != ' ';
    if (line.empty() || begins) {  // `Abjurer \Ab*jur"er\, n.`, and behind it the senses
      if (sense.find("[WordNet") == std::string::npos) {
        std::string made = dictionary::entry(word, dictionary::plain(sense));
        if (!made.empty()) entries.push_back(std::move(made));
      }
      sense.clear();
      if (begins) word = bar == std::string_view::npos ? "" : dictionary::plain(line.substr(0, bar));
      std::ranges::for_each(word, dictionary::decapitalise);
    } else if (line.size() > 3) {  // what goes on from the head's line is no sense
      const bool starts = dictionary::is_capital(line[3]) || dictionary::is_digit(line[3]);
      if (starts || !sense.empty()) sense.append(line.substr(2));
    }
  }
  return entries;
}

/// WordNet's nouns, each with its gloss without examples. Throws as `read_file`.
[[nodiscard]] inline std::vector<std::string> wordnet_nouns(const std::string& path) {
  const bytes content = read_file(path);
  const std::string_view text{reinterpret_cast<const char*>(content.data()), content.size()};
  std::vector<std::string> entries;
  for (std::size_t from = 0, end = 0; from < text.size(); from = end + 1) {
    end = std::min(text.find('\n', from), text.size());
    const std::string_view line = text.substr(from, end - from);
    const std::size_t bar = line.find(" | ");
    if (line.starts_with(' ') || bar == std::string_view::npos) continue;  // the licence
    std::size_t word = 0;  // the fifth field: number, file, part of speech, how many words
    for (int field = 0; field < 4; ++field) word = line.find(' ', word) + 1;
    std::string name{line.substr(word, line.find(' ', word) - word)};
    std::ranges::replace(name, '_', ' ');
    std::ranges::for_each(name, dictionary::decapitalise);
    std::string made = dictionary::entry(name, dictionary::plain(line.substr(bar + 3)));
    if (!made.empty()) entries.push_back(std::move(made));
  }
  return entries;
}

}  // namespace example
