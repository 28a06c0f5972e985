// SPDX-License-Identifier: Apache-2.0
// pergrad/data/idx.hpp - reads IDX files, the format of MNIST and Fashion-MNIST, and believes nothing in them unchecked
//
// Format (Y. LeCun, C. Cortes, C. Burges, "The MNIST database of handwritten digits"; all integers big-endian):
//
//   offset 0        2 bytes   zero
//   offset 2        1 byte    element type; 0x08 = unsigned byte, the only one read here
//   offset 3        1 byte    number of dimensions d, at least one
//   offset 4        4 d bytes extents e_1 ... e_d, the slowest-varying first
//   offset 4 + 4 d  e_1 * ... * e_d bytes, nothing after them
//
// The extents are claims of the file. They are multiplied with an overflow check and compared with the bytes that are
// there before anything of that size is allocated.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <pergrad/detail/file.hpp>

namespace pergrad::inline v0_1 {

/// An array of bytes as an IDX file holds it. Invariant: `values.size()` is the product of `extents`.
struct idx_array {
  std::vector<std::size_t> extents;  ///< slowest-varying dimension first; for images: count, height, width
  std::vector<std::uint8_t> values;  ///< row-major
};

namespace detail::idx {

[[noreturn]] inline void throw_error(std::string_view name, std::size_t offset, const std::string& what) {
  throw std::runtime_error("pergrad: " + std::string(name) + ", byte " + std::to_string(offset) + ": " + what);
}

[[nodiscard]] inline std::string hex_byte(std::uint8_t value) {
  constexpr std::string_view digits = "0123456789abcdef";
  return {'0', 'x', digits[value >> 4U], digits[value & 15U]};
}

[[nodiscard]] inline std::string list_extents(const std::vector<std::size_t>& extents) {
  std::string text;
  for (const std::size_t extent : extents) {
    text += (text.empty() ? "" : " x ") + std::to_string(extent);
  }
  return text;
}

/// Reads a whole file of any kind (a pipe too: its size is not asked for). Throws std::runtime_error; if the file is
/// missing and `source` says where one gets it, the message repeats that and where to put it.
[[nodiscard]] inline std::vector<std::uint8_t> read_bytes(const std::string& path, std::string_view source = {}) {
  const auto fail = [&path](const char* verb) {
    throw std::runtime_error("pergrad: cannot " + std::string(verb) + " " + path + ": " +
                             std::generic_category().message(errno));
  };
  const file stream = open_file(path, "rb");
  if (!stream && errno == ENOENT && !source.empty()) {
    throw std::runtime_error("pergrad: cannot find " + path + "; get it from " + std::string(source) +
                             " and save it as " + path);
  }
  if (!stream) {
    fail("open");
  }
  constexpr std::size_t chunk = std::size_t{1} << 16U;
  std::vector<std::uint8_t> bytes;
  std::size_t used = 0;
  for (std::size_t got = chunk; got == chunk; used += got) {
    bytes.resize(used + chunk);
    got = std::fread(bytes.data() + used, 1, chunk, stream.get());
  }
  if (std::ferror(stream.get()) != 0) {
    fail("read");
  }
  bytes.resize(used);
  return bytes;
}

}  // namespace detail::idx

/// Parses the bytes of one IDX file of unsigned bytes. `name` is used in error messages only.
/// Throws std::runtime_error naming the file, the byte offset, what was found there and what was expected: for a
/// truncated header, a wrong magic number or element type, no dimensions, extents whose product overflows, and a
/// payload that is shorter or longer than the extents say.
[[nodiscard]] inline idx_array parse_idx(std::span<const std::uint8_t> bytes, std::string_view name) {
  constexpr std::size_t magic_size = 4;
  constexpr std::size_t extent_size = 4;
  constexpr std::uint8_t unsigned_byte = 0x08;
  const auto fail = [name](std::size_t offset, const std::string& what) {
    detail::idx::throw_error(name, offset, what);
  };

  if (bytes.size() < magic_size) {
    fail(bytes.size(), "the file ends inside the IDX magic number; expected " + std::to_string(magic_size) + " bytes");
  }
  for (std::size_t offset = 0; offset < 2; ++offset) {
    if (bytes[offset] != 0) {
      fail(offset, "found " + detail::idx::hex_byte(bytes[offset]) + ", expected the zero that starts every IDX file");
    }
  }
  if (bytes[2] != unsigned_byte) {
    fail(2, "found element type " + detail::idx::hex_byte(bytes[2]) + ", expected 0x08 (unsigned byte)");
  }
  const std::size_t dimensions = bytes[3];
  if (dimensions == 0) {
    fail(3, "found 0 dimensions, expected at least 1");
  }
  const std::size_t header_size = magic_size + extent_size * dimensions;
  if (bytes.size() < header_size) {
    fail(bytes.size(), "the file ends inside the IDX header; expected " + std::to_string(header_size) + " bytes for " +
                           std::to_string(dimensions) + " dimensions");
  }

  idx_array array;
  array.extents.reserve(dimensions);
  bool empty = false;
  for (std::size_t offset = magic_size; offset < header_size; offset += extent_size) {
    std::uint32_t extent = 0;
    for (std::size_t i = 0; i < extent_size; ++i) extent = (extent << 8U) | bytes[offset + i];
    array.extents.push_back(extent);
    empty = empty || extent == 0;
  }
  std::size_t count = empty ? 0 : 1;
  for (std::size_t axis = 0; axis < dimensions && !empty; ++axis) {
    if (array.extents[axis] > std::numeric_limits<std::size_t>::max() / count) {
      fail(magic_size + extent_size * axis, "the product of the extents " + detail::idx::list_extents(array.extents) +
                                                " overflows, expected at most the bytes of the file");
    }
    count *= array.extents[axis];
  }

  const std::size_t payload = bytes.size() - header_size;
  if (payload < count) {
    fail(bytes.size(), "the file ends after " + std::to_string(payload) + " values, expected " + std::to_string(count) +
                           " (" + detail::idx::list_extents(array.extents) + ")");
  }
  if (payload > count) {
    fail(header_size + count, "found " + std::to_string(payload - count) + " bytes after the last value, expected " +
                                  std::to_string(count) + " values (" + detail::idx::list_extents(array.extents) +
                                  ") and then the end of the file");
  }
  array.values.assign(bytes.data() + header_size, bytes.data() + bytes.size());
  return array;
}

/// Reads one uncompressed IDX file. Throws std::runtime_error as parse_idx, or if the file cannot be opened or read; if
/// it is missing, the message says where the data sets in this format come from and where to put them.
[[nodiscard]] inline idx_array read_idx(const std::string& path) {
  constexpr std::string_view source =
      "the Debian package dataset-fashion-mnist (Fashion-MNIST) or from http://yann.lecun.com/exdb/mnist/ (MNIST), "
      "unpack it with gzip -d";
  return parse_idx(detail::idx::read_bytes(path, source), path);
}

}  // namespace pergrad::inline v0_1
