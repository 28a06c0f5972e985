// SPDX-License-Identifier: Apache-2.0
// tests/damaged.hpp - a file with every one of its bits flipped in turn, and cut off behind every one of its bytes
#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>

namespace test {

/// Calls look() for every damage, then once for the file as it was. In place: file systems make a truncated file that
/// is written anew wait for the disk.
template <class Look>
void damage_everywhere(const std::string& path, const Look& look) {
  std::string good(std::filesystem::file_size(path), '\0');
  std::ifstream{path, std::ios::binary}.read(good.data(), static_cast<std::streamsize>(good.size()));
  std::fstream file{path, std::ios::binary | std::ios::in | std::ios::out};
  const auto put = [&](std::size_t place, unsigned bits) {
    file.seekp(static_cast<std::streamoff>(place));
    file.put(static_cast<char>(static_cast<unsigned char>(good[place]) ^ bits)).flush();
  };
  for (std::size_t place = 0; place < good.size(); ++place) {
    for (unsigned bit = 0; bit < 8; ++bit) {
      put(place, 1U << bit);
      look();
    }
    put(place, 0);
  }
  for (std::size_t size = good.size(); size > 0; --size) {
    std::filesystem::resize_file(path, size - 1);
    look();
  }
  file.seekp(0);
  file.write(good.data(), static_cast<std::streamsize>(good.size())).flush();
  look();
}

}  // namespace test
