// SPDX-License-Identifier: Apache-2.0
// pergrad/text/byte_level_bpe.hpp - GPT-2's tokenizer: byte pair encoding of bytes, from vocab.json and merges.txt
//
// Not part of the umbrella: needs ICU (Debian: libicu-dev, link icuuc) for Unicode's letters, numbers and spaces, and
// nlohmann/json. Text is cut into words as GPT-2's regular expression does,
//     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// and within a word the pair of tokens that stands first in merges.txt is joined, again and again (Sennrich et al.
// 2015, arXiv:1508.07909; Radford et al. 2019). Files of Hugging Face's `tokenizers` (ByteLevelBPETokenizer) are read.
#pragma once

// clang-format off
#include <pergrad/detail/beside_the_umbrella.hpp>  // before anything is defined
// clang-format on

#include <nlohmann/json.hpp>
#include <unicode/uchar.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <ios>
#include <numeric>
#include <queue>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace pergrad::inline v0_1 {

namespace detail {

/// One code point of a text, and how GPT-2's expression sees it. A byte that is no UTF-8 is a symbol of its own.
struct character {
  enum kinds { letter, number, space, other } kind = other;
  std::size_t size = 1;
};
[[nodiscard]] inline character character_at(std::string_view text, std::size_t place) {
  const auto byte = [&](std::size_t i) -> std::uint32_t {
    return place + i < text.size() ? static_cast<unsigned char>(text[place + i]) : 0U;
  };
  const std::uint32_t first = byte(0);
  const std::size_t size = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  std::uint32_t code = size == 1 ? first : first & (0x7fU >> size);
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0U) != 0x80U) return {};
    code = code << 6U | (byte(i) & 0x3fU);
  }
  constexpr std::uint32_t least[]{0, 0, 0x80, 0x800, 0x10000};
  if (first >= 0xf8 || (size > 1 && first < 0xc0) || code < least[size] || code > 0x10ffff) return {};
  const auto category = std::uint32_t{1} << u_charType(static_cast<UChar32>(code));
  const auto kind = (category & U_GC_L_MASK) != 0                      ? character::letter
                    : (category & U_GC_N_MASK) != 0                    ? character::number
                    : u_isUWhiteSpace(static_cast<UChar32>(code)) != 0 ? character::space
                                                                       : character::other;
  return {kind, size};
}

/// f(word) for each word of a text, in order; together they are the text.
template <class Function>
void for_each_word(std::string_view text, const Function& f) {
  static constexpr std::string_view contractions[]{"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"};
  const auto end_of_run = [&](std::size_t from) {
    const auto kind = character_at(text, from).kind;
    while (from < text.size()) {
      const character each = character_at(text, from);
      if (each.kind != kind) break;
      from += each.size;
    }
    return from;
  };
  for (std::size_t place = 0; place < text.size();) {
    std::size_t end = 0;
    for (const std::string_view each : contractions) {
      if (text.substr(place).starts_with(each)) {
        end = place + each.size();
        break;
      }
    }
    if (end == 0) {
      const std::size_t behind = place + (text[place] == ' ' ? 1 : 0);
      const bool is_word = behind < text.size() && character_at(text, behind).kind != character::space;
      end = end_of_run(is_word ? behind : place);
      if (!is_word && end < text.size()) {  // spaces: the last one may belong to what follows
        std::size_t last = place;
        for (std::size_t next = place; next < end; next += character_at(text, next).size) last = next;
        if (last > place) end = last;
      }
    }
    f(text.substr(place, end - place));
    place = end;
  }
}

/// The character by which GPT-2's files write each byte, in UTF-8: itself where it is printable, else one from 256 on.
[[nodiscard]] inline std::array<std::string, 256> names_of_bytes() {
  std::array<std::string, 256> names;
  unsigned next = 256;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool is_printable = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    const unsigned code = is_printable ? byte : next++;
    if (code < 128) {
      names[byte] = static_cast<char>(code);
    } else {
      names[byte] = {static_cast<char>(0xc0U | (code >> 6U)), static_cast<char>(0x80U | (code & 63U))};
    }
  }
  return names;
}

}  // namespace detail

/// Text to ids and back. Any bytes are encoded, and `decode(encode(text)) == text`. Special tokens such as
/// `<|endoftext|>` have ids and are never made of text. What is a letter, a number or a space is as this machine's ICU
/// has it: words with characters that are younger than its Unicode may be cut otherwise than by `tokenizers`.
class byte_level_bpe {
 public:
  /// Reads GPT-2's two files; lines may end in CR LF. Throws std::runtime_error that names the file and what is wrong
  /// in it: two tokens with one id, say, or merges of a file that was cut off. Those make no token for a word of the
  /// vocabulary that begins with a blank (as special tokens, which nothing makes, never do in these files), or none for
  /// more than 1024 tokens.
  byte_level_bpe(const std::string& vocabulary_path, const std::string& merges_path) {
    read_vocabulary(vocabulary_path);
    read_merges(merges_path, vocabulary_path);
  }

  /// One more than the largest id.
  [[nodiscard]] std::size_t vocabulary_size() const noexcept { return bytes_of_.size(); }
  /// The id of a token as the files write it, such as `<|endoftext|>`. Throws std::out_of_range if there is none.
  [[nodiscard]] std::int32_t id_of(const std::string& token) const {
    const auto found = ids_.find(token);
    if (found == ids_.end()) throw std::out_of_range("pergrad: the vocabulary has no token " + token);
    return found->second;
  }

  /// Thread-safe.
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text) const {
    std::vector<std::int32_t> ids;
    detail::for_each_word(text, [&](std::string_view word) {
      const std::size_t first = ids.size();
      for (const char byte : word) ids.push_back(of_byte_[static_cast<unsigned char>(byte)]);
      join(ids, first);
    });
    return ids;
  }
  /// The bytes of tokens, special ones as they are written. Throws std::out_of_range for an id that is none.
  [[nodiscard]] std::string decode(std::span<const std::int32_t> ids) const {
    std::string text;
    for (const std::int32_t id : ids) {
      if (id < 0 || static_cast<std::size_t>(id) >= bytes_of_.size() || !is_id_[static_cast<std::size_t>(id)]) {
        throw std::out_of_range("pergrad: " + std::to_string(id) + " is no id of a vocabulary of " +
                                std::to_string(ids_.size()));
      }
      text += bytes_of_[static_cast<std::size_t>(id)];
    }
    return text;
  }

 private:
  [[noreturn]] static void throw_refusal(const std::string& path, const std::string& what, std::size_t line = 0) {
    const std::string place = line == 0 ? path : path + ", line " + std::to_string(line);
    throw std::runtime_error("pergrad: " + place + ": " + what);
  }
  [[nodiscard]] static std::string contents_of(const std::string& path) {
    std::ifstream stream{path, std::ios::binary};
    if (!stream) throw std::runtime_error("pergrad: cannot open " + path);
    std::string contents;
    for (std::array<char, 4096> part{}; stream;) {
      stream.read(part.data(), static_cast<std::streamsize>(part.size()));
      contents.append(part.data(), static_cast<std::size_t>(stream.gcount()));
    }
    if (stream.bad()) throw std::runtime_error("pergrad: cannot read " + path);
    return contents;
  }
  struct merge {
    std::size_t rank = 0;  ///< its line
    std::int32_t id = 0;
  };
  [[nodiscard]] static std::uint64_t pair_of(std::int32_t left, std::int32_t right) noexcept {
    return std::uint64_t{static_cast<std::uint32_t>(left)} << 32U | static_cast<std::uint32_t>(right);
  }

  /// Joins pairs of one word, whose tokens begin at `first`: of all that can be joined the one that stands first in the
  /// file, and of those the leftmost, so that a word takes time in proportion to its length and the logarithm of that.
  void join(std::vector<std::int32_t>& ids, std::size_t first) const {
    struct found_pair {
      std::size_t rank, left;
      std::int32_t id;
      [[nodiscard]] bool operator<(const found_pair& other) const noexcept {
        return rank != other.rank ? rank > other.rank : left > other.left;  // the queue's top is its largest
      }
    };
    const std::size_t size = ids.size() - first;
    const std::span<std::int32_t> token = std::span{ids}.subspan(first);
    constexpr std::int32_t joined = -1;  // to its left neighbour
    std::vector<std::size_t> next(size), previous(size);
    std::iota(next.begin(), next.end(), std::size_t{1});
    std::iota(previous.begin(), previous.end(), ~std::size_t{0});
    std::priority_queue<found_pair> queue;
    const auto merge_at = [&](std::size_t left) {
      return next[left] < size ? merges_.find(pair_of(token[left], token[next[left]])) : merges_.end();
    };
    const auto look_at = [&](std::size_t left) {
      const auto found = merge_at(left);
      if (found != merges_.end()) queue.push({found->second.rank, left, found->second.id});
    };
    for (std::size_t i = 0; i < size; ++i) look_at(i);
    while (!queue.empty()) {
      const found_pair best = queue.top();
      queue.pop();
      if (token[best.left] == joined) continue;
      const auto found = merge_at(best.left);  // are they still there? `tokenizers` asks only what they would make
      if (found == merges_.end() || found->second.id != best.id) continue;
      const std::size_t right = next[best.left];
      token[best.left] = best.id;
      token[right] = joined;
      next[best.left] = next[right];
      if (next[right] < size) previous[next[right]] = best.left;
      if (best.left > 0) look_at(previous[best.left]);
      look_at(best.left);
    }
    ids.erase(std::remove(ids.begin() + static_cast<std::ptrdiff_t>(first), ids.end(), joined), ids.end());
  }

  void read_vocabulary(const std::string& path) {
    nlohmann::json file;
    std::unordered_set<std::string> tokens;
    // Of two ids of one token the parser would keep the last one, and the other would be none.
    const auto once = [&](int depth, nlohmann::json::parse_event_t event, const nlohmann::json& parsed) {
      const bool is_token = depth == 1 && event == nlohmann::json::parse_event_t::key;
      if (is_token && !tokens.insert(parsed.get<std::string>()).second) {
        throw_refusal(path, "has the token " + parsed.get<std::string>() + " twice");
      }
      return true;
    };
    try {
      file = nlohmann::json::parse(contents_of(path), once);
    } catch (const nlohmann::json::exception& error) {
      throw_refusal(path, std::string{"is no JSON object of tokens: "} + error.what());
    }
    if (!file.is_object()) throw_refusal(path, "is no JSON object of tokens");
    std::unordered_map<std::string, char> byte_of;
    const auto names = detail::names_of_bytes();
    for (std::size_t byte = 0; byte < 256; ++byte) byte_of[names[byte]] = static_cast<char>(byte);
    constexpr std::int64_t most = std::int64_t{1} << 24U;
    for (const auto& [token, id] : file.items()) {
      if (!id.is_number_integer() || id.get<std::int64_t>() < 0 || id.get<std::int64_t>() > most) {
        // Not an array's text, which is written by recursion: one in another, many times, would overflow the stack.
        std::string refusal = "the id of " + token + " is ";
        refusal += id.is_structured() ? std::string{"an "} + id.type_name() : id.dump();
        throw_refusal(path, refusal + ", no integer from 0 to " + std::to_string(most));
      }
      const auto number = static_cast<std::size_t>(id.get<std::int64_t>());
      ids_[token] = static_cast<std::int32_t>(number);
      if (bytes_of_.size() <= number) {
        bytes_of_.resize(number + 1);
        is_id_.resize(number + 1);
      }
      if (is_id_[number]) {
        std::string what = token;
        for (const auto& [other, taken] : ids_) {
          if (taken == static_cast<std::int32_t>(number) && other != token) what.append(" and ").append(other);
        }
        throw_refusal(path, what.append(" have one id, ").append(std::to_string(number)));
      }
      is_id_[number] = true;
      std::string bytes;
      for (std::size_t place = 0; place < token.size();) {
        const std::size_t size = static_cast<unsigned char>(token[place]) < 128 ? 1 : 2;
        const auto found = byte_of.find(token.substr(place, size));
        if (found == byte_of.end()) {
          bytes = token;  // a special token, not written in bytes
          break;
        }
        bytes += found->second;
        place += size;
      }
      bytes_of_[number] = bytes;
    }
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const auto found = ids_.find(names[byte]);
      if (found == ids_.end()) {
        throw std::runtime_error("pergrad: " + path + " has no token for the byte " + std::to_string(byte));
      }
      of_byte_[byte] = found->second;
    }
  }
  void read_merges(const std::string& path, const std::string& vocabulary_path) {
    std::istringstream stream{contents_of(path)};
    std::vector<bool> is_made(bytes_of_.size());
    std::string line;
    for (std::size_t number = 1; std::getline(stream, line); ++number) {
      if (line.ends_with('\r')) line.pop_back();
      if (line.empty() || line.starts_with("#version")) continue;
      const std::size_t blank = line.find(' ');
      if (blank == std::string::npos || line.find(' ', blank + 1) != std::string::npos) {
        throw_refusal(path, "not two tokens", number);
      }
      const auto left = ids_.find(line.substr(0, blank)), right = ids_.find(line.substr(blank + 1));
      const auto both = ids_.find(std::string{line}.erase(blank, 1));
      if (left == ids_.end() || right == ids_.end() || both == ids_.end()) {
        throw_refusal(path, "a token that is not in " + vocabulary_path, number);
      }
      merges_[pair_of(left->second, right->second)] = {number, both->second};  // said twice, the last one counts
      is_made[static_cast<std::size_t>(both->second)] = true;
    }
    const auto made = static_cast<std::size_t>(std::ranges::count(is_made, true));
    constexpr std::size_t most_special = 1024;
    if (ids_.size() > of_byte_.size() + made + most_special) {
      throw_refusal(path, "its merges make " + std::to_string(made) + " of the " + std::to_string(ids_.size()) +
                              " tokens of " + vocabulary_path + ": is it whole?");
    }
    // What is neither a byte nor made by a merge is special, also if it is written in letters that name bytes.
    for (const auto& [token, id] : ids_) {
      if (!is_made[static_cast<std::size_t>(id)] && std::ranges::count(of_byte_, id) == 0) {
        bytes_of_[static_cast<std::size_t>(id)] = token;
      }
    }
    // Special tokens are written as they are. So what begins with the name of a blank is made of bytes, by a merge.
    const std::string blank_name = detail::names_of_bytes()[' '];
    const auto unmade = std::ranges::find_if(ids_, [&](const auto& each) {
      return each.first != blank_name && each.first.starts_with(blank_name) &&
             !is_made[static_cast<std::size_t>(each.second)];
    });
    if (unmade != ids_.end()) {
      throw_refusal(path, "no merge makes " + unmade->first + " of " + vocabulary_path + ": is it whole?");
    }
  }

  std::unordered_map<std::string, std::int32_t> ids_;
  std::vector<std::string> bytes_of_;
  std::vector<bool> is_id_;  ///< ids may have gaps
  std::array<std::int32_t, 256> of_byte_{};
  std::unordered_map<std::uint64_t, merge> merges_;
};

}  // namespace pergrad::inline v0_1
