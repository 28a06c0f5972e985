// SPDX-License-Identifier: Apache-2.0
// pergrad/detail/file.hpp - an open file of C's streams: <fstream> costs every program that includes the library more
// to compile than the readers themselves
#pragma once

#include <cstdio>
#include <memory>
#include <string>

namespace pergrad::inline v0_1::detail {

struct file_closer {
  void operator()(std::FILE* stream) const noexcept { static_cast<void>(std::fclose(stream)); }
};
/// An open file, or none.
using file = std::unique_ptr<std::FILE, file_closer>;

/// None if it cannot be opened; errno says why.
[[nodiscard]] inline file open_file(const std::string& path, const char* mode) noexcept {
  return file{std::fopen(path.c_str(), mode)};
}

}  // namespace pergrad::inline v0_1::detail
