// SPDX-License-Identifier: Apache-2.0
// examples/common/own_folder.hpp - a folder for files of one run
#pragma once

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace example {

/// A new folder among the system's temporary ones, which goes with what is in it when this object does. So a program
/// that is run in somebody's folder replaces nothing there.
class own_folder {
 public:
  /// Throws std::system_error.
  own_folder() : path_{(std::filesystem::temp_directory_path() / "pergrad-XXXXXX").string()} {
    if (::mkdtemp(path_.data()) == nullptr) {
      throw std::system_error(errno, std::generic_category(), "cannot make a folder " + path_);
    }
  }
  own_folder(const own_folder&) = delete;
  own_folder& operator=(const own_folder&) = delete;
  ~own_folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace example
