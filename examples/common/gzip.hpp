// SPDX-License-Identifier: Apache-2.0
// examples/common/gzip.hpp - the content of a file that may be gzipped (RFC 1952), every checksum verified
//
// zlib's gzread passes a file with a damaged first byte through as if it were plain and ignores what follows the last
// member; here the stream is inflated by hand so that both are errors.
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>
#include <zlib.h>

namespace example {

using bytes = std::vector<std::uint8_t>;

[[nodiscard]] inline bytes read_file(const std::string& path) {
  errno = 0;
  std::ifstream stream(path, std::ios::binary);
  if (!stream) {
    throw std::system_error(errno, std::generic_category(), "cannot open " + path);
  }
  bytes content;
  std::array<char, 1U << 16U> chunk{};
  while (stream.read(chunk.data(), chunk.size()), stream.gcount() > 0) {
    content.insert(content.end(), chunk.begin(), chunk.begin() + stream.gcount());
  }
  if (stream.bad()) {
    throw std::system_error(errno, std::generic_category(), "cannot read " + path);
  }
  return content;
}

[[nodiscard]] inline bool is_gzip(std::span<const std::uint8_t> content) {
  return content.size() >= 2 && content[0] == 0x1f && content[1] == 0x8b;
}

/// Inflates all members of a gzip stream. Throws std::runtime_error, naming the file and the offset in it, for damage,
/// an early end, anything after the last member, and more than `limit` bytes of content.
[[nodiscard]] inline bytes gunzip(std::span<const std::uint8_t> packed, const std::string& name, std::size_t limit) {
  z_stream stream{};
  constexpr int gzip_only = 16;
  if (inflateInit2(&stream, MAX_WBITS + gzip_only) != Z_OK) {
    throw std::runtime_error("zlib cannot start");
  }
  const std::unique_ptr<z_stream, int (*)(z_stream*)> guard(&stream, inflateEnd);
  const auto fail = [&](const std::string& what) {
    const auto offset = packed.size() - stream.avail_in;
    throw std::runtime_error(name + " is damaged at byte " + std::to_string(offset) + " of its gzip stream: " + what);
  };
  if (packed.size() > std::numeric_limits<uInt>::max()) {
    fail("too large");
  }
  stream.next_in = const_cast<Bytef*>(packed.data());  // zlib does not write to its input
  stream.avail_in = static_cast<uInt>(packed.size());
  bytes content;
  bytes chunk(std::size_t{1} << 18U);
  while (stream.avail_in > 0) {
    if (!is_gzip(packed.last(stream.avail_in))) {
      fail("found " + std::to_string(stream.avail_in) + " bytes after the end of the compressed data");
    }
    int status = Z_OK;
    while (status != Z_STREAM_END) {
      stream.next_out = chunk.data();
      stream.avail_out = static_cast<uInt>(chunk.size());
      status = inflate(&stream, Z_NO_FLUSH);
      if (status == Z_BUF_ERROR) {
        fail("the file ends early, expected more compressed data");
      }
      if (status != Z_OK && status != Z_STREAM_END) {
        fail(stream.msg != nullptr ? stream.msg : "not a sound gzip stream");
      }
      const std::size_t produced = chunk.size() - stream.avail_out;
      if (content.size() + produced > limit) {
        fail("expected at most " + std::to_string(limit) + " bytes of content");
      }
      content.insert(content.end(), chunk.begin(), chunk.begin() + static_cast<std::ptrdiff_t>(produced));
    }
    inflateReset(&stream);
  }
  return content;
}

}  // namespace example
