// SPDX-License-Identifier: Apache-2.0
// examples/common/word_lists.hpp - words of several languages from Debian's dictionary packages, spelled in small ids
//
// A package such as wamerican puts one word a line into /usr/share/dict. From the lists a data set is made that is the
// same on every machine with the same lists: words in lower case, each in one language only, as many of each language,
// in the order of a hash of the word; that hash also says whether a word is for training or for testing, so a word
// does not change sides when languages are added.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

#include <pergrad/data/sequences.hpp>

#include "utf8.hpp"

namespace example {

enum class encoding { utf8, latin1 };

struct word_list {
  std::string language;
  std::string package;  ///< the Debian package that has the list
  std::string file;     ///< its name in /usr/share/dict
  encoding text = encoding::utf8;
};

/// Lists of languages in Latin letters whose packages are in Debian 12.
[[nodiscard]] inline std::vector<word_list> debian_word_lists() {
  return {{"English", "wamerican", "american-english"},
          {"German", "wngerman", "ngerman"},
          {"French", "wfrench", "french"},
          {"Spanish", "wspanish", "spanish"},
          {"Italian", "witalian", "italian"},
          {"Dutch", "wdutch", "dutch"},
          {"Portuguese", "wportuguese", "portuguese"},
          {"Danish", "wdanish", "danish"},
          {"Swedish", "wswedish", "swedish", encoding::latin1},
          {"Polish", "wpolish", "polish"}};
}

/// Ids of letters: 0 is padding, then a ... z, then the accented letters of the languages above, then one id for
/// everything else (apostrophes, hyphens, digits, other scripts).
struct letter_ids {
  static constexpr std::u32string_view accented =
      U"\u00e0\u00e1\u00e2\u00e3\u00e4\u00e5\u00e6\u00e7\u00e8\u00e9\u00ea\u00eb"
      U"\u00ec\u00ed\u00ee\u00ef\u00f1\u00f2\u00f3\u00f4\u00f5\u00f6\u00f8\u00f9"
      U"\u00fa\u00fb\u00fc\u00df\u0153\u0105\u0107\u0119\u0142\u0144\u015b\u017a"
      U"\u017c";
  static constexpr std::int32_t padding = 0;
  static constexpr std::int32_t other = 1 + 26 + static_cast<std::int32_t>(accented.size());
  static constexpr std::size_t count = other + 1;  ///< the vocabulary of `token_ids`

  [[nodiscard]] static constexpr std::int32_t id(char32_t letter) noexcept {
    if (letter >= U'a' && letter <= U'z') {
      return 1 + static_cast<std::int32_t>(letter - U'a');
    }
    const std::size_t place = accented.find(letter);
    return place == std::u32string_view::npos ? other : 27 + static_cast<std::int32_t>(place);
  }
};

struct word_options {
  std::size_t shortest = 3;       ///< letters
  std::size_t longest = 16;       ///< letters: the positions of the network's input
  std::size_t per_language = 0;   ///< words of each language, both halves together; 0: as many as the rarest has
  std::size_t test_percent = 20;  ///< about this share of the words is for testing
};

/// Words as ids (padded at the back, with lengths), labels that count the languages, and the words themselves in UTF-8.
struct labelled_words {
  pergrad::labelled_ids ids;
  std::vector<std::string> words;
};

struct language_words {
  std::vector<std::string> languages;  ///< by label
  labelled_words train, test;
};

namespace words {

/// Code points of one line. Throws std::runtime_error, naming the file and the line, for bytes that are not UTF-8.
[[nodiscard]] inline std::u32string decode(std::string_view line, encoding text, const std::string& file,
                                           std::size_t number) {
  std::u32string points;
  for (std::size_t place = 0; place < line.size();) {
    if (text == encoding::latin1) {
      points += static_cast<char32_t>(static_cast<std::uint8_t>(line[place++]));
      continue;
    }
    const std::optional<code_point> next = first_code_point(line.substr(place));
    if (!next) {
      throw std::runtime_error(file + ", line " + std::to_string(number) + ": byte " + std::to_string(place) +
                               " does not start a UTF-8 character");
    }
    points += next->code;
    place += next->size;
  }
  return points;
}

[[nodiscard]] inline std::string encode(std::u32string_view points) {
  std::string line;
  const auto continued = [&line](char32_t bits) { line += static_cast<char>(0x80U | (bits & 0x3fU)); };
  for (const char32_t point : points) {
    if (point < 0x80) {
      line += static_cast<char>(point);
    } else if (point < 0x800) {
      line += static_cast<char>(0xc0U | (point >> 6U));
      continued(point);
    } else {
      line += static_cast<char>(point < 0x10000 ? 0xe0U | (point >> 12U) : 0xf0U | (point >> 18U));
      if (point >= 0x10000) {
        continued(point >> 12U);
      }
      continued(point >> 6U);
      continued(point);
    }
  }
  return line;
}

/// Lower case in ASCII, Latin-1 Supplement and Latin Extended-A, where most capitals lie next to their small letters.
[[nodiscard]] constexpr char32_t lower(char32_t point) noexcept {
  if ((point >= U'A' && point <= U'Z') || (point >= 0xc0 && point <= 0xde && point != 0xd7)) {
    return point + 0x20;
  }
  if (point == 0x178) {
    return 0xff;
  }
  const bool even_is_capital =
      (point >= 0x100 && point <= 0x137 && point != 0x130) || (point >= 0x14a && point <= 0x177);
  const bool odd_is_capital = (point >= 0x139 && point <= 0x148) || (point >= 0x179 && point <= 0x17e);
  return (even_is_capital && point % 2 == 0) || (odd_is_capital && point % 2 == 1) ? point + 1 : point;
}

/// FNV-1a, mixed once more (the finaliser of SplitMix64): the same everywhere, unlike std::hash.
[[nodiscard]] inline std::uint64_t hash(std::string_view word) noexcept {
  std::uint64_t mixed = 0xcbf29ce484222325U;
  for (const char character : word) {
    mixed = (mixed ^ static_cast<std::uint8_t>(character)) * 0x100000001b3U;
  }
  mixed = (mixed ^ (mixed >> 30U)) * 0xbf58476d1ce4e5b9U;
  mixed = (mixed ^ (mixed >> 27U)) * 0x94d049bb133111ebU;
  return mixed ^ (mixed >> 31U);
}

/// Throws std::runtime_error if lists are missing: one line with the first of them and the packages of all.
inline void require_all(const std::string& directory, std::span<const word_list> lists) {
  std::vector<std::string> packages;
  std::string first;
  for (const word_list& list : lists) {
    const auto path = std::filesystem::path(directory) / list.file;
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) {
      first = packages.empty() ? path.string() + ", the word list for " + list.language : first;
      packages.push_back(list.package);
    }
  }
  if (!packages.empty()) {
    std::string message = "cannot open " + first + "; install the Debian package" + (packages.size() > 1 ? "s" : "");
    for (const std::string& package : packages) {
      message += " " + package;
    }
    throw std::runtime_error(message);
  }
}

/// Calls `visit(std::u32string_view)` for every word of a list that has a length in range, in lower case, without the
/// possessive 's. Throws std::runtime_error if the list cannot be read.
template <class Visitor>
void for_each_in_list(const std::string& directory, const word_list& list, const word_options& options,
                      Visitor&& visit) {
  const std::string path = (std::filesystem::path(directory) / list.file).string();
  std::ifstream stream(path, std::ios::binary);
  if (!stream) {
    throw std::runtime_error("cannot open " + path + ", the word list for " + list.language +
                             "; install the Debian package " + list.package);
  }
  std::string line;
  for (std::size_t number = 1; std::getline(stream, line); ++number) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) {
      line.pop_back();
    }
    std::u32string word = decode(line, list.text, path, number);
    std::transform(word.begin(), word.end(), word.begin(), lower);
    if (word.ends_with(U"'s") || word.ends_with(U"\u2019s")) {
      word.resize(word.size() - 2);
    }
    if (word.size() >= options.shortest && word.size() <= options.longest) {
      visit(std::u32string_view(word));
    }
  }
  if (stream.bad()) {
    throw std::runtime_error("cannot read " + path);
  }
}

inline void append(labelled_words& half, std::string_view word, std::int32_t label, std::size_t positions) {
  const std::u32string letters = decode(word, encoding::utf8, "a word", 1);
  half.ids.positions = positions;
  for (std::size_t place = 0; place < positions; ++place) {
    half.ids.ids.push_back(place < letters.size() ? letter_ids::id(letters[place]) : letter_ids::padding);
  }
  half.ids.lengths.push_back(static_cast<std::uint32_t>(letters.size()));
  half.ids.labels.push_back(label);
  half.words.emplace_back(word);
}

}  // namespace words

/// Makes the data set of `lists` in the folder `directory`. Throws std::runtime_error, naming the list and the Debian
/// package it comes from, if one is missing, is not in its encoding or has no word that is in no other list, and
/// std::invalid_argument for options that make no sense.
[[nodiscard]] inline language_words load_words(const std::string& directory, std::span<const word_list> lists,
                                               const word_options& options = {}) {
  if (lists.size() < 2 || lists.size() > 1000 || options.shortest < 1 || options.longest < options.shortest ||
      options.longest > 1000 || options.test_percent > 100) {
    throw std::invalid_argument("word lists: expected 2 to 1000 languages, 1 to 1000 letters and 0 to 100 percent");
  }
  words::require_all(directory, lists);
  constexpr std::int32_t several = -1;
  std::unordered_map<std::string, std::int32_t> language_of;
  for (std::size_t label = 0; label < lists.size(); ++label) {
    const auto here = static_cast<std::int32_t>(label);
    words::for_each_in_list(directory, lists[label], options, [&](std::u32string_view word) {
      const auto [place, is_new] = language_of.emplace(words::encode(word), here);
      if (!is_new && place->second != here) {
        place->second = several;
      }
    });
  }

  using hashed = std::pair<std::uint64_t, std::string_view>;
  std::vector<std::vector<hashed>> words_of(lists.size());
  for (const auto& [word, label] : language_of) {
    if (label != several) {
      words_of[static_cast<std::size_t>(label)].emplace_back(words::hash(word), word);
    }
  }
  std::size_t each = options.per_language == 0 ? std::numeric_limits<std::size_t>::max() : options.per_language;
  language_words made;
  for (std::size_t label = 0; label < lists.size(); ++label) {
    if (words_of[label].empty() || words_of[label].size() < options.per_language) {
      throw std::runtime_error((std::filesystem::path(directory) / lists[label].file).string() + ": found " +
                               std::to_string(words_of[label].size()) + " words that are only " +
                               lists[label].language + ", expected at least " +
                               std::to_string(std::max<std::size_t>(options.per_language, 1)));
    }
    each = std::min(each, words_of[label].size());
    made.languages.push_back(lists[label].language);
  }

  // Of every language the words with the smallest hashes, then all of them in the order of the hashes' low halves,
  // which do not depend on how small a hash had to be in that language.
  std::vector<std::pair<hashed, std::int32_t>> chosen;
  for (std::size_t label = 0; label < lists.size(); ++label) {
    auto& these = words_of[label];
    std::sort(these.begin(), these.end());
    for (const auto& [hash, word] : std::span(these).first(each)) {
      chosen.emplace_back(hashed{std::rotl(hash, 32), word}, static_cast<std::int32_t>(label));
    }
  }
  std::sort(chosen.begin(), chosen.end());
  made.train.ids.positions = made.test.ids.positions = options.longest;
  for (const auto& [word, label] : chosen) {
    const bool tests = words::hash(word.second) % 100 < options.test_percent;
    words::append(tests ? made.test : made.train, word.second, label, options.longest);
  }
  return made;
}

}  // namespace example
