// SPDX-License-Identifier: Apache-2.0
// tests/data/files.hpp - a folder that goes when the test ends, and what an error message must say
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace test {

using bytes = std::vector<std::uint8_t>;

template <std::size_t Size>
[[nodiscard]] bytes bytes_of(const char (&literal)[Size]) {
  return {literal, literal + Size - 1};  // without the zero at its end
}

class temporary_folder {
 public:
  temporary_folder()
      : path_{std::filesystem::temp_directory_path() / ("pergrad-data-" + std::to_string(std::random_device{}()))} {
    std::filesystem::create_directories(path_);
  }
  temporary_folder(const temporary_folder&) = delete;
  temporary_folder& operator=(const temporary_folder&) = delete;
  ~temporary_folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  [[nodiscard]] std::string path(std::string_view name = "") const {
    return name.empty() ? path_.string() : (path_ / name).string();
  }
  void write(std::string_view name, std::span<const std::uint8_t> content) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream stream(path_ / name, std::ios::binary);
    stream.write(reinterpret_cast<const char*>(content.data()), static_cast<std::streamsize>(content.size()));
    if (!stream.flush()) {
      throw std::runtime_error("cannot write a test file");
    }
  }
  void write(std::string_view name, std::string_view content) const {
    write(name, bytes(content.begin(), content.end()));
  }

 private:
  std::filesystem::path path_;
};

/// Empty if `action` throws a Thrown whose message begins with "pergrad: " and contains all parts; else what it did.
template <class Thrown = std::runtime_error, class Action>
[[nodiscard]] std::string misses(Action&& action, std::initializer_list<std::string> parts) {
  try {
    static_cast<void>(action());
  } catch (const Thrown& error) {
    const std::string message = error.what();
    bool good = message.starts_with("pergrad: ");
    for (const std::string& part : parts) {
      good = good && message.find(part) != std::string::npos;
    }
    return good ? "" : message;
  }
  return "nothing was thrown";
}

}  // namespace test
