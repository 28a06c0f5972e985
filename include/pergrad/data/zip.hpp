// SPDX-License-Identifier: Apache-2.0
// pergrad/data/zip.hpp - members of a ZIP archive; needs zlib, so it is not part of pergrad.hpp (link with -lz)
//
// Format (PKWARE, APPNOTE.TXT 6.3.10, https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT; integers
// little-endian): the archive ends with an end-of-directory record of 22 bytes and a comment; before it lies the
// directory, whose entries have the names, sizes and checksums of the members and the places of their local headers.
// Read are members that are stored or deflated (RFC 1951). Encryption, several disks and ZIP64 archives are refused.
//
// Everything in the archive is a claim: offsets and sizes are compared with the bytes that are there before they are
// used, and content is allocated as it is inflated, not as it is announced.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
#include <zlib.h>

#include <pergrad/data/idx.hpp>

namespace pergrad::inline v0_1::detail::zip {

/// The unsigned little-endian integer in `bytes`, eight of them at most.
[[nodiscard]] constexpr std::uint64_t little_endian(std::span<const std::uint8_t> bytes) noexcept {
  std::uint64_t value = 0;
  for (std::size_t place = bytes.size(); place > 0; --place) {
    value = (value << 8U) | bytes[place - 1];
  }
  return value;
}

struct entry {
  std::string name;
  std::uint64_t flags = 0;
  std::uint64_t method = 0;
  std::uint64_t checksum = 0;     ///< CRC-32 of the content
  std::uint64_t packed_size = 0;  ///< bytes in the archive
  std::uint64_t size = 0;         ///< bytes of content
  std::uint64_t header = 0;       ///< offset of the local header
};

/// A view of an archive whose directory has been read and checked. The caller keeps the bytes alive.
class archive {
 public:
  /// Throws std::runtime_error naming the archive and the offset of what is wrong with its directory.
  archive(std::span<const std::uint8_t> bytes, std::string name) : bytes_{bytes}, name_{std::move(name)} {
    const std::size_t end = find_end();
    const std::uint64_t disks = number(end + 4, 2) | number(end + 6, 2);
    const std::uint64_t count = number(end + 10, 2);
    const std::uint64_t size = number(end + 12, 4);
    const std::uint64_t start = number(end + 16, 4);
    if (count == 0xffffU || size == 0xffffffffU || start == 0xffffffffU) {
      fail(end, "found a ZIP64 archive, expected one without 64-bit sizes");
    }
    if (disks != 0 || number(end + 8, 2) != count) {
      fail(end + 4, "found an archive of several disks, expected one");
    }
    if (start + size != end) {
      fail(end + 12, "the directory is said to be bytes " + std::to_string(start) + " to " +
                         std::to_string(start + size) + ", expected its end at " + std::to_string(end));
    }
    std::size_t offset = static_cast<std::size_t>(start);
    directory_ = offset;
    for (std::uint64_t index = 0; index < count; ++index) {
      offset = read_entry(offset, end);
    }
    if (offset != end) {
      fail(offset, "found more after the last of " + std::to_string(count) + " directory entries");
    }
  }

  /// The content of a member. Throws std::runtime_error if there is no such member, if it is damaged or cannot be read,
  /// or if it is larger than `limit` bytes.
  [[nodiscard]] std::vector<std::uint8_t> extract(std::string_view member, std::size_t limit) const {
    const auto found =
        std::find_if(entries_.begin(), entries_.end(), [member](const entry& one) { return one.name == member; });
    if (found == entries_.end()) {
      fail(directory_, "there is no member " + std::string(member) + " among " + std::to_string(entries_.size()));
    }
    const auto packed = content_of(*found);
    const std::size_t at = static_cast<std::size_t>(found->header);
    if (found->size > limit) {
      fail(at, "member " + found->name + " is said to have " + std::to_string(found->size) +
                   " bytes, expected at most " + std::to_string(limit));
    }
    auto content = found->method == 0 ? std::vector<std::uint8_t>(packed.begin(), packed.end())
                                      : inflated(packed, static_cast<std::size_t>(found->size), *found);
    if (content.size() != found->size) {
      fail(at, "member " + found->name + " has " + std::to_string(content.size()) + " bytes, expected " +
                   std::to_string(found->size));
    }
    if (crc32_z(0, content.data(), content.size()) != found->checksum) {
      fail(at, "member " + found->name + " is damaged: its checksum is not the one in the directory");
    }
    return content;
  }

 private:
  [[noreturn]] void fail(std::size_t offset, const std::string& what) const { idx::throw_error(name_, offset, what); }

  // Precondition: the bytes are there.
  [[nodiscard]] std::uint64_t number(std::size_t offset, std::size_t count) const noexcept {
    return little_endian(bytes_.subspan(offset, count));
  }

  [[nodiscard]] std::size_t find_end() const {
    constexpr std::size_t record = 22;
    constexpr std::size_t longest_comment = 0xffff;
    for (std::size_t comment = 0; comment <= longest_comment && record + comment <= bytes_.size(); ++comment) {
      const std::size_t offset = bytes_.size() - record - comment;
      if (number(offset, 4) == 0x06054b50U && number(offset + 20, 2) == comment) {
        return offset;
      }
    }
    fail(bytes_.size(), "found no end-of-directory record, expected a whole ZIP archive");
  }

  [[nodiscard]] std::size_t read_entry(std::size_t offset, std::size_t end) {
    constexpr std::size_t fixed = 46;
    if (end - offset < fixed || number(offset, 4) != 0x02014b50U) {
      fail(offset, "expected a directory entry");
    }
    const std::uint64_t name_size = number(offset + 28, 2);
    const std::uint64_t variable = name_size + number(offset + 30, 2) + number(offset + 32, 2);
    if (end - offset - fixed < variable) {
      fail(offset, "the directory ends inside an entry, expected " + std::to_string(fixed + variable) + " bytes");
    }
    const auto name = bytes_.subspan(offset + fixed, static_cast<std::size_t>(name_size));
    entries_.push_back({.name = std::string(name.begin(), name.end()),
                        .flags = number(offset + 8, 2),
                        .method = number(offset + 10, 2),
                        .checksum = number(offset + 16, 4),
                        .packed_size = number(offset + 20, 4),
                        .size = number(offset + 24, 4),
                        .header = number(offset + 42, 4)});
    return offset + fixed + static_cast<std::size_t>(variable);
  }

  // The bytes of a member as they lie in the archive, before the directory.
  [[nodiscard]] std::span<const std::uint8_t> content_of(const entry& one) const {
    constexpr std::uint64_t fixed = 30;
    const std::size_t at = static_cast<std::size_t>(one.header);
    if (one.header > directory_ || directory_ - one.header < fixed || number(at, 4) != 0x04034b50U) {
      fail(at, "expected the local header of member " + one.name);
    }
    if ((one.flags & 1U) != 0) {
      fail(at, "member " + one.name + " is encrypted");
    }
    if (one.method != 0 && one.method != 8) {
      fail(at, "member " + one.name + " has compression method " + std::to_string(one.method) +
                   ", expected 0 (stored) or 8 (deflated)");
    }
    if (one.method == 0 && one.packed_size != one.size) {
      fail(at, "member " + one.name + " is stored in " + std::to_string(one.packed_size) + " bytes, expected " +
                   std::to_string(one.size));
    }
    const std::uint64_t start = one.header + fixed + number(at + 26, 2) + number(at + 28, 2);
    if (start > directory_ || directory_ - start < one.packed_size) {
      fail(at, "member " + one.name + " is said to have " + std::to_string(one.packed_size) +
                   " packed bytes, which reach into the directory");
    }
    return bytes_.subspan(static_cast<std::size_t>(start), static_cast<std::size_t>(one.packed_size));
  }

  [[nodiscard]] std::vector<std::uint8_t> inflated(std::span<const std::uint8_t> packed, std::size_t size,
                                                   const entry& one) const {
    static_assert(std::numeric_limits<uInt>::digits >= 32, "a packed size of 32 bits fits");
    const std::size_t at = static_cast<std::size_t>(one.header);
    z_stream stream{};
    if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) {
      fail(at, "zlib cannot start");
    }
    const std::unique_ptr<z_stream, int (*)(z_stream*)> guard(&stream, inflateEnd);
    stream.next_in = const_cast<Bytef*>(packed.data());  // zlib does not write to its input
    stream.avail_in = static_cast<uInt>(packed.size());
    std::vector<std::uint8_t> content;
    std::vector<std::uint8_t> chunk(std::size_t{1} << 16U);
    for (int status = Z_OK; status != Z_STREAM_END;) {
      stream.next_out = chunk.data();
      stream.avail_out = static_cast<uInt>(chunk.size());
      status = inflate(&stream, Z_NO_FLUSH);
      const std::size_t produced = chunk.size() - stream.avail_out;
      if ((status != Z_OK && status != Z_STREAM_END) || produced > size - content.size()) {
        fail(at, "member " + one.name + " is damaged after " + std::to_string(content.size()) + " bytes of content: " +
                     (status == Z_BUF_ERROR   ? "the compressed data end early"
                      : stream.msg != nullptr ? stream.msg
                                              : "more content than its directory entry says"));
      }
      content.insert(content.end(), chunk.begin(), chunk.begin() + static_cast<std::ptrdiff_t>(produced));
    }
    if (stream.avail_in != 0) {
      fail(at, "member " + one.name + " has " + std::to_string(stream.avail_in) +
                   " bytes after its compressed data, expected none");
    }
    return content;
  }

  std::span<const std::uint8_t> bytes_;
  std::string name_;
  std::vector<entry> entries_;
  std::size_t directory_ = 0;
};

}  // namespace pergrad::inline v0_1::detail::zip
