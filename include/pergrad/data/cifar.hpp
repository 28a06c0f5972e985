// SPDX-License-Identifier: Apache-2.0
// pergrad/data/cifar.hpp - reads CIFAR-10, the binary version, and refuses files that are not exactly that
//
// Format (A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009, and the data set's page,
// https://www.cs.toronto.edu/~kriz/cifar.html): a file is a row of records without any header. A record is
//
//   offset 0       1 byte      label, 0 ... 9
//   offset 1       1024 bytes  red, row by row, 32 x 32
//   offset 1025    1024 bytes  green
//   offset 2049    1024 bytes  blue
//
// which is (channels, height, width) order already. data_batch_1.bin ... data_batch_5.bin are the training images,
// test_batch.bin the test images, 10,000 records each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <pergrad/data/idx.hpp>
#include <pergrad/detail/file.hpp>

namespace pergrad::inline v0_1 {

/// The halves that published data sets come in. Only `train` is what differential privacy protects in a training run.
enum class data_part { train, test };

/// Images of CIFAR-10 with their labels, ready for `dataset{set.images, set.labels, shape{3, 32, 32}}`.
/// Invariant: `images.size()` is 3 * 32 * 32 * `labels.size()`.
struct cifar10_images {
  static constexpr std::size_t channels = 3;
  static constexpr std::size_t side = 32;
  static constexpr std::size_t classes = 10;
  static constexpr std::size_t image_size = channels * side * side;

  std::vector<float> images;         ///< byte / 255, in [0, 1], [images][channels][rows][columns]
  std::vector<std::int32_t> labels;  ///< 0 ... 9: airplane, automobile, bird, cat, deer, dog, frog, horse, ship, truck

  [[nodiscard]] std::size_t size() const noexcept { return labels.size(); }
};

namespace detail::cifar {

inline constexpr std::size_t record_size = 1 + cifar10_images::image_size;
inline constexpr std::size_t records_per_file = 10'000;

inline void append(std::span<const std::uint8_t> bytes, std::string_view name, cifar10_images& to) {
  if (bytes.empty()) {
    idx::throw_error(name, 0, "the file is empty, expected records of " + std::to_string(record_size) + " bytes");
  }
  if (const std::size_t rest = bytes.size() % record_size; rest != 0) {
    idx::throw_error(name, bytes.size(),
                     "the file ends after " + std::to_string(rest) + " bytes of record " +
                         std::to_string(bytes.size() / record_size) + ", expected whole records of " +
                         std::to_string(record_size) + " bytes");
  }
  const std::size_t count = bytes.size() / record_size;
  to.images.reserve(to.images.size() + count * cifar10_images::image_size);
  to.labels.reserve(to.labels.size() + count);
  for (std::size_t record = 0; record < count; ++record) {
    const auto these = bytes.subspan(record * record_size, record_size);
    if (these[0] >= cifar10_images::classes) {
      idx::throw_error(
          name, record * record_size,
          "found label " + std::to_string(these[0]) + " in record " + std::to_string(record) + ", expected 0 to 9");
    }
    to.labels.push_back(these[0]);
    for (const std::uint8_t value : these.subspan(1)) {
      to.images.push_back(static_cast<float>(value) / 255.0F);
    }
  }
}

// <filesystem> would cost every program that includes the library a fifth of its compile time.
[[nodiscard]] inline bool exists(const std::string& path) { return open_file(path, "rb") != nullptr; }

[[noreturn]] inline void throw_missing(const std::string& directory, const std::string& file) {
  const bool other_version = exists(directory + "/data_batch_1");
  throw std::runtime_error(
      "pergrad: cannot find " + directory + "/" + file +
      (other_version ? "; this folder holds the Python version of CIFAR-10, the binary version is needed" : "") +
      "; get the binary version of CIFAR-10 (cifar-10-binary.tar.gz) from https://www.cs.toronto.edu/~kriz/cifar.html "
      "and unpack it in " +
      directory);
}

}  // namespace detail::cifar

/// Parses the bytes of one file of any number of records, at least one. `name` is used in error messages only.
/// Throws std::runtime_error naming the file, the byte offset, what was found there and what was expected: for an empty
/// file, an incomplete last record and a label above 9.
[[nodiscard]] inline cifar10_images parse_cifar10(std::span<const std::uint8_t> bytes, std::string_view name) {
  cifar10_images set;
  detail::cifar::append(bytes, name, set);
  return set;
}

/// Reads files of any number of records, one after the other. Throws std::runtime_error as parse_cifar10, or if a file
/// cannot be opened or read.
[[nodiscard]] inline cifar10_images read_cifar10(std::span<const std::string> paths) {
  cifar10_images set;
  for (const std::string& path : paths) {
    detail::cifar::append(detail::idx::read_bytes(path), path, set);
  }
  return set;
}

/// Reads the published training images (50,000, in the order of the five files) or test images (10,000) from
/// `directory` or from the folder cifar-10-batches-bin in it, which is what the archive unpacks to.
/// Throws std::runtime_error as above, for a file that has not exactly 10,000 records, and for a file that is missing:
/// the message says where the data set comes from and where to put it.
[[nodiscard]] inline cifar10_images read_cifar10(const std::string& directory, data_part part) {
  const std::vector<std::string> files =
      part == data_part::train ? std::vector<std::string>{"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                                          "data_batch_4.bin", "data_batch_5.bin"}
                               : std::vector<std::string>{"test_batch.bin"};
  std::string folder = directory;
  if (const std::string unpacked = directory + "/cifar-10-batches-bin";
      !detail::cifar::exists(directory + "/" + files.front()) && detail::cifar::exists(unpacked)) {
    folder = unpacked;
  }
  cifar10_images set;
  set.labels.reserve(files.size() * detail::cifar::records_per_file);
  set.images.reserve(files.size() * detail::cifar::records_per_file * cifar10_images::image_size);
  for (const std::string& file : files) {
    std::string path = folder;
    path.append("/").append(file);
    if (!detail::cifar::exists(path)) {
      detail::cifar::throw_missing(folder, file);
    }
    const auto bytes = detail::idx::read_bytes(path);
    constexpr std::size_t expected = detail::cifar::records_per_file * detail::cifar::record_size;
    if (bytes.size() != expected) {
      detail::idx::throw_error(path, bytes.size(),
                               "found " + std::to_string(bytes.size()) + " bytes, expected " +
                                   std::to_string(expected) + " (10000 records of 3073)");
    }
    detail::cifar::append(bytes, path, set);
  }
  return set;
}

}  // namespace pergrad::inline v0_1
