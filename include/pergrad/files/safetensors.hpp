// SPDX-License-Identifier: Apache-2.0
// pergrad/files/safetensors.hpp - files of named tensors, which Python's safetensors reads and writes as well
//
// Format (https://huggingface.co/docs/safetensors, "Format"), all numbers little-endian:
//
//   offset 0  8 bytes  N, the size of the header
//   then      N bytes  JSON: {"__metadata__": {"KEY": "TEXT", ...}, "NAME": {"dtype": "F32", "shape": [2, 3],
//                      "data_offsets": [BEGIN, END]}, ...}, padded with blanks
//   then      the tensors' bytes, each from BEGIN to END, without a gap and without an overlap
//
// What this library writes has two entries more among the metadata: `pergrad`, what the file is, and `checksum`. Each
// step of the checksum is a bijection of its state and of the eight bytes that it takes, so damage within eight bytes
// of one tensor is found for certain, and any other but for one case in 2^64 (FNV-1a on words, Fowler, Noll & Vo 1991,
// with a shift that carries high bits down). It protects from accidents, not from somebody who recomputes it. A
// `checksum` of others, without `pergrad` and not of 16 hexadecimal digits, is not looked at.
//
// All is in one template, although Text is std::string: a program that has no files compiles none of it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <pergrad/detail/file.hpp>

namespace pergrad::inline v0_1::detail {

template <class Text>
struct basic_safetensors {
  /// A tensor of a file, or of an array in memory.
  struct tensor {
    Text name;
    Text type;  ///< "F32", "F64", "U64", ...
    std::vector<std::size_t> shape;
    std::size_t begin = 0;  ///< its first byte
    std::size_t size = 0;   ///< bytes
  };
  using metadata_list = std::vector<std::pair<Text, Text>>;
  using view = std::basic_string_view<typename Text::value_type>;

  class checksum {
   public:
    /// A stretch that is no whole number of words counts as if zeros followed.
    void add(byte_stretch bytes) noexcept {
      std::uint64_t word = 0;
      for (; bytes.size() >= sizeof word; bytes = bytes.subspan(sizeof word)) {
        std::memcpy(&word, bytes.data(), sizeof word);
        step(word);
      }
      if (bytes.empty()) return;
      word = 0;
      std::memcpy(&word, bytes.data(), bytes.size());
      step(word);
    }
    /// 16 digits.
    [[nodiscard]] Text text() const {
      char digits[17];
      std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(state_));
      return digits;
    }

   private:
    void step(std::uint64_t word) noexcept {
      state_ = (state_ ^ word) * 0x9E3779B97F4A7C15U;
      state_ ^= state_ >> 32U;
    }
    std::uint64_t state_ = 0xCBF29CE484222325U;
  };

  /// `0.weight F32 [9, 6]`; what is too long to be read is cut off.
  [[nodiscard]] static Text to_text(const tensor& of) {
    Text text = of.name.substr(0, 80) + " " + of.type + " [";
    for (std::size_t i = 0; i < of.shape.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(of.shape[i]);
    return text + "]";
  }
  [[nodiscard]] static const tensor* find(std::span<const tensor> list, std::string_view name) noexcept {
    for (const tensor& each : list) {
      if (each.name == name) return &each;
    }
    return nullptr;
  }
  /// The first few of them.
  [[nodiscard]] static Text to_text(const std::vector<Text>& names) {
    constexpr std::size_t most = 6;
    Text text;
    for (std::size_t i = 0; i < names.size() && i < most; ++i) text += (i > 0 ? ", " : "") + names[i];
    return names.size() > most ? text + " and " + std::to_string(names.size() - most) + " more" : text;
  }
  /// What of two lists does not fit together, on both sides; empty if everything does. Types count if `with_types`.
  [[nodiscard]] static Text differences(std::span<const tensor> left, const char* of_left,
                                        std::span<const tensor> right, const char* of_right, bool with_types) {
    std::vector<Text> only_left, only_right, other;
    for (const tensor& each : left) {
      const tensor* const twin = find(right, each.name);
      if (twin == nullptr) {
        only_left.push_back(to_text(each));
      } else if (each.shape != twin->shape || (with_types && each.type != twin->type)) {
        other.push_back(to_text(each) + " for " + to_text(*twin));
      }
    }
    for (const tensor& each : right) {
      if (find(left, each.name) == nullptr) only_right.push_back(to_text(each));
    }
    Text text;
    if (!only_left.empty()) text += Text{"; only in "} + of_left + ": " + to_text(only_left);
    if (!only_right.empty()) text += Text{"; only in "} + of_right + ": " + to_text(only_right);
    if (!other.empty()) text += Text{"; "} + of_left + " has " + to_text(other);
    return text.empty() ? text : text.substr(2);
  }

  /// Writes tensors from where they lie, `tensors[i]` at `values[i]`; those of 64 bits come first, so that the numbers
  /// of all are aligned. Memory does not grow with what they hold. `for_its_owner`: nobody else may read it.
  static void write(const Text& path, const metadata_list& metadata, std::span<const tensor> tensors,
                    std::span<const std::byte* const> values, bool for_its_owner = false) {
    Text header = "{\"__metadata__\":{";
    for (const auto& [key, text] : metadata) header.append("\"").append(key).append("\":\"").append(text).append("\",");
    header += "\"checksum\":\"";
    const std::size_t digits = header.size();
    header += "0000000000000000\"}";
    std::vector<byte_stretch> stretches(2);
    std::vector<std::size_t> order(tensors.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_partition(order.begin(), order.end(), [&](std::size_t i) { return tensors[i].type.ends_with("64"); });
    std::size_t begin = 0;
    for (const std::size_t i : order) {
      const tensor& each = tensors[i];
      header += ",\"" + each.name + "\":{\"dtype\":\"" + each.type + "\",\"shape\":[";
      for (std::size_t k = 0; k < each.shape.size(); ++k) header += (k > 0 ? "," : "") + std::to_string(each.shape[k]);
      header += "],\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(begin + each.size) + "]}";
      begin += each.size;
      stretches.push_back(bytes_of(values[i], each.size));
    }
    header += "}";
    header.append(63 - (header.size() + 7) % 64, ' ');
    const std::uint64_t size = header.size();
    stretches[0] = bytes_of(&size, 1);
    stretches[1] = bytes_of(header);
    checksum sum;
    for (const byte_stretch each : stretches) sum.add(each);
    header.replace(digits, 16, sum.text());
    write_whole_file(path, stretches, for_its_owner);
  }

  /// A file's header; every form but the format's is refused.
  class header_parser {
   public:
    header_parser(std::string_view text, const Text& path) noexcept : text_{text}, path_{path} {}
    /// Can it be a string of a header, as it stands?
    [[nodiscard]] static bool is_plain(std::string_view text) noexcept {
      const auto needs_escape = [](char each) {
        return static_cast<unsigned char>(each) < 0x20 || each == '"' || each == '\\';
      };
      return std::none_of(text.begin(), text.end(), needs_escape) && is_utf8(text);
    }

    std::vector<tensor> tensors;
    metadata_list metadata;
    std::size_t digits = 0;  ///< where the checksum's begin, 0 without one

    void parse() {
      if (!text_.starts_with('{')) fail("expected '{'");
      bool has_metadata = false;
      members([&](const Text& key) {
        if (key == "__metadata__") {
          if (std::exchange(has_metadata, true)) fail("found __metadata__ twice");
          members([&](const Text& entry) {
            metadata.emplace_back(entry, string());
            if (entry == "checksum") digits = place_ - 1 - metadata.back().second.size();
          });
        } else {
          tensors.push_back(one_tensor(key));
        }
      });
      skip_blanks();
      if (place_ != text_.size()) fail("found more behind the closing brace");
      const auto refuse_twins = [&](std::vector<view> names) {
        std::sort(names.begin(), names.end());
        const auto twin = std::adjacent_find(names.begin(), names.end());
        if (twin != names.end()) fail("found the name " + Text{twin->substr(0, 80)} + " twice");
      };
      std::vector<view> names, keys;
      for (const tensor& each : tensors) names.push_back(each.name);
      for (const auto& entry : metadata) keys.push_back(entry.first);
      refuse_twins(names);
      refuse_twins(keys);
      std::sort(tensors.begin(), tensors.end(), [](const tensor& left, const tensor& right) {
        return left.begin != right.begin ? left.begin < right.begin : left.size < right.size;
      });
      std::size_t end = 0;
      for (const tensor& each : tensors) {
        if (each.begin != end) {
          fail("the tensor " + to_text(each) + " begins at byte " + std::to_string(each.begin) +
               " of the data, expected " + std::to_string(end));
        }
        end += each.size;
      }
    }

   private:
    [[noreturn]] void fail(const Text& what) const {
      fail_with_file(path_, "byte " + std::to_string(8 + place_) + ": " + what);
    }
    void skip_blanks() noexcept {
      while (place_ < text_.size() && std::string_view{" \t\r\n"}.find(text_[place_]) != std::string_view::npos)
        ++place_;
    }
    [[nodiscard]] bool accept(char character) noexcept {
      skip_blanks();
      if (place_ == text_.size() || text_[place_] != character) return false;
      ++place_;
      return true;
    }
    void expect(char character) {
      if (!accept(character)) fail(Text{"expected '"} + character + "'");
    }
    template <class Member>
    void members(const Member& member) {
      expect('{');
      if (accept('}')) return;
      do {
        const Text key = string();
        expect(':');
        member(key);
      } while (accept(','));
      expect('}');
    }

    /// Escapes stay as they stand: no name of this library's has any.
    [[nodiscard]] Text string() {
      expect('"');
      const std::size_t start = place_;
      for (; place_ < text_.size() && text_[place_] != '"'; ++place_) {
        if (static_cast<unsigned char>(text_[place_]) < 0x20) fail("found a control character in a string");
        if (text_[place_] != '\\') continue;
        ++place_;
        if (place_ == text_.size() || std::string_view{"\"\\/bfnrtu"}.find(text_[place_]) == std::string_view::npos) {
          fail("found an escape that is none");
        }
      }
      Text found{text_.substr(start, place_ - start)};
      if (place_ == text_.size()) fail("expected '\"' at the end of a string");
      if (!is_utf8(found)) fail("found a string that is not UTF-8");
      ++place_;
      return found;
    }
    [[nodiscard]] static bool is_utf8(std::string_view text) noexcept {
      for (std::size_t i = 0; i < text.size();) {
        const auto lead = static_cast<std::uint32_t>(static_cast<unsigned char>(text[i++]));
        if (lead < 0x80) continue;
        const int more = lead < 0xC0 ? 0 : lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : lead < 0xF8 ? 3 : 0;
        std::uint32_t code = lead & (0x3FU >> static_cast<unsigned>(more));
        for (int k = 0; k < more; ++k, ++i) {
          if (i == text.size() || (static_cast<unsigned char>(text[i]) & 0xC0U) != 0x80) return false;
          code = code << 6U | (static_cast<unsigned char>(text[i]) & 0x3FU);
        }
        constexpr std::uint32_t least[]{0xFFFF'FFFF, 0x80, 0x800, 0x10000};
        if (code < least[more] || (code >= 0xD800 && code < 0xE000) || code > 0x10FFFF) return false;
      }
      return true;
    }

    [[nodiscard]] std::size_t number() {
      skip_blanks();
      const std::size_t start = place_;
      std::size_t value = 0;
      for (; place_ < text_.size() && text_[place_] >= '0' && text_[place_] <= '9'; ++place_) {
        const auto digit = static_cast<std::size_t>(text_[place_] - '0');
        if (value > (std::numeric_limits<std::size_t>::max() - digit) / 10) fail("a number does not fit 64 bits");
        value = value * 10 + digit;
      }
      if (place_ == start || (text_[start] == '0' && place_ != start + 1)) fail("expected a whole number");
      return value;
    }
    [[nodiscard]] std::vector<std::size_t> numbers(std::size_t most) {
      std::vector<std::size_t> found;
      expect('[');
      if (accept(']')) return found;
      do {
        if (found.size() == most) fail("expected at most " + std::to_string(most) + " numbers");
        found.push_back(number());
      } while (accept(','));
      expect(']');
      return found;
    }

    [[nodiscard]] tensor one_tensor(const Text& name) {
      tensor made;
      made.name = name;
      std::vector<std::size_t> offsets;
      unsigned seen = 0;
      members([&](const Text& key) {
        const unsigned which = key == "dtype" ? 1 : key == "shape" ? 2 : key == "data_offsets" ? 4 : 0;
        if (which == 0 || (seen & which) != 0) {
          fail("the tensor " + name.substr(0, 80) + ": expected dtype, shape and data_offsets, found " +
               (which != 0 ? "a second " : "") + key.substr(0, 80));
        }
        seen |= which;
        if (which == 1) made.type = string();
        if (which == 2) made.shape = numbers(16);
        if (which == 4) offsets = numbers(2);
      });
      if (seen != 7) fail("the tensor " + name.substr(0, 80) + ": one of dtype, shape and data_offsets is missing");
      std::size_t size = width_of(made.type);
      if (size == 0) fail("the tensor " + to_text(made) + ": an unknown dtype");
      bool fits = offsets.size() == 2 && offsets[0] <= offsets[1];
      for (const std::size_t extent : made.shape) {
        fits = fits && (extent == 0 || size <= std::numeric_limits<std::size_t>::max() / extent);
        size *= extent;
      }
      if (!fits || size != offsets[1] - offsets[0]) {
        fail("the tensor " + to_text(made) + ": its data_offsets are not those of so many values");
      }
      made.begin = offsets[0];
      made.size = size;
      return made;
    }
    [[nodiscard]] static std::size_t width_of(std::string_view type) noexcept {
      if (type == "BOOL" || type.starts_with("F8_")) return 1;
      if (type == "BF16") return 2;
      if (type.empty() || std::string_view{"FIU"}.find(type[0]) == std::string_view::npos) return 0;
      const std::string_view bits = type.substr(1);
      return bits == "64" ? 8 : bits == "32" ? 4 : bits == "16" ? 2 : bits == "8" && type[0] != 'F' ? 1 : 0;
    }

    std::string_view text_;
    const Text& path_;
    std::size_t place_ = 0;
  };

  /// An open file whose header was read. Nothing is taken from it before `read_values` has looked at everything.
  class reader {
   public:
    /// Throws std::runtime_error that says what is wrong, and where.
    explicit reader(const Text& path) : path_{path}, stream_{open_regular_file(path)} {
      struct stat facts {};
      if (::fstat(::fileno(stream_.get()), &facts) != 0) fail("cannot be opened");
      std::uint64_t rest = static_cast<std::uint64_t>(facts.st_size);
      std::uint64_t size = 0;
      if (rest < sizeof size) fail("ends within the size of its header");
      read(&size, sizeof size);
      rest -= sizeof size;
      constexpr std::uint64_t most = 100'000'000;  // what others allow
      if (size > most) fail("not a safetensors file: by its first 8 bytes its header is larger than 100 MB");
      if (size > rest) fail("ends within its header of " + std::to_string(size) + " bytes");
      header_.resize(size);
      read(header_.data(), size);
      rest -= size;
      header_parser parsed{header_, path_};
      parsed.parse();
      tensors_ = std::move(parsed.tensors);
      metadata_ = std::move(parsed.metadata);
      digits_ = parsed.digits;
      if (!tensors_.empty()) data_size_ = tensors_.back().begin + tensors_.back().size;
      if (rest != data_size_) {
        fail("has " + std::to_string(rest) + " bytes behind its header, expected " + std::to_string(data_size_));
      }
      const Text* const sum = metadata("checksum");
      // Others' files may have a checksum of their own, which is not looked at.
      if (metadata("pergrad") == nullptr && sum != nullptr && !looks_like_ours(*sum)) digits_ = 0;
      const bool is_ours = metadata("pergrad") != nullptr;
      if (is_ours != (digits_ != 0)) fail("only one of its metadata pergrad and checksum is there");
    }

    [[noreturn]] void fail(const Text& what) const { fail_with_file(path_, what); }
    [[nodiscard]] std::span<const tensor> tensors() const noexcept { return tensors_; }
    /// Null without such an entry.
    [[nodiscard]] const Text* metadata(std::string_view key) const noexcept {
      for (const auto& entry : metadata_) {
        if (entry.first == key) return &entry.second;
      }
      return nullptr;
    }
    /// All tensors' bytes. Throws std::runtime_error if the checksum, of a file that has one, is not that of the file.
    [[nodiscard]] std::vector<std::byte> read_values() {
      std::vector<std::byte> values(data_size_);
      read(values.data(), data_size_);
      const Text* const found = metadata("checksum");
      if (digits_ == 0 || found == nullptr) return values;
      checksum sum;
      const std::uint64_t size = header_.size();
      sum.add(bytes_of(&size, 1));
      if (found->size() == 16) header_.replace(digits_, 16, 16, '0');
      sum.add(bytes_of(header_));
      for (const tensor& each : tensors_) sum.add(bytes_of(values.data() + each.begin, each.size));
      if (*found != sum.text()) fail("damaged: its checksum is " + sum.text() + ", it says " + found->substr(0, 80));
      return values;
    }

   private:
    [[nodiscard]] static bool looks_like_ours(const Text& sum) noexcept {
      return sum.size() == 16 && sum.find_first_not_of("0123456789abcdef") == Text::npos;
    }
    void read(void* to, std::size_t count) {
      if (std::fread(to, 1, count, stream_.get()) != count) fail("cannot be read");
    }

    Text path_;
    file stream_;
    Text header_;
    std::vector<tensor> tensors_;  ///< in the order of their bytes
    metadata_list metadata_;
    std::size_t digits_ = 0;
    std::size_t data_size_ = 0;
  };
};
using safetensors = basic_safetensors<std::string>;

}  // namespace pergrad::inline v0_1::detail
