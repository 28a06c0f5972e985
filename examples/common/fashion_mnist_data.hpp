// SPDX-License-Identifier: Apache-2.0
// examples/common/fashion_mnist_data.hpp - loads the images and labels of Fashion-MNIST and checks all of it
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include <pergrad/data/idx.hpp>

#include "gzip.hpp"

namespace example {

/// Constants that the program treats as public knowledge: they are in the data set's publication (Xiao, Rasul, Vollgraf
/// 2017) or in every program that uses it, and are not computed from the files that are read.
struct fashion_mnist_constants {
  static constexpr std::size_t dataset_size = 60'000;  ///< divisor of the sampling probability
  static constexpr std::size_t side = 28;
  static constexpr std::size_t classes = 10;
  static constexpr std::array<const char*, classes> labels{"T-shirt", "Trouser", "Pullover", "Dress", "Coat",
                                                           "Sandal",  "Shirt",   "Sneaker",  "Bag",   "Ankle boot"};
  static constexpr double pixel_mean = 0.286;
  static constexpr double pixel_deviation = 0.353;
};

/// `images` holds size() images of 28 x 28 values (x / 255 - mean) / deviation; `labels` one class 0..9 each.
struct labelled_images {
  std::vector<float> images;
  std::vector<std::int32_t> labels;

  [[nodiscard]] std::size_t size() const noexcept { return labels.size(); }
};

namespace data {

// Finds DIR/NAME.gz, else DIR/NAME, and returns the array it holds.
[[nodiscard]] inline pergrad::idx_array load(const std::string& directory, const std::string& name, std::string& path) {
  const auto plain = std::filesystem::path(directory) / name;
  path = plain.string() + ".gz";
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored) && std::filesystem::exists(plain, ignored)) {
    path = plain.string();
  }
  bytes content;
  try {
    content = read_file(path);
  } catch (const std::system_error& error) {
    throw std::runtime_error(std::string(error.what()) +
                             "; install the Debian package dataset-fashion-mnist or name its folder with --data DIR");
  }
  constexpr std::size_t limit = std::size_t{1} << 30U;
  if (is_gzip(content)) {
    content = gunzip(content, path, limit);
    return pergrad::parse_idx(content, path + " (uncompressed)");
  }
  return pergrad::parse_idx(content, path + " (not gzipped)");
}

}  // namespace data

/// Loads one half of the data set; `prefix` is "train" or "t10k". Throws std::runtime_error saying which file is
/// missing, from which Debian package it comes, or what is wrong in it.
[[nodiscard]] inline labelled_images load_fashion_mnist(const std::string& directory, const std::string& prefix) {
  using constants = fashion_mnist_constants;
  std::string image_path;
  std::string label_path;
  const auto images = data::load(directory, prefix + "-images-idx3-ubyte", image_path);
  const auto labels = data::load(directory, prefix + "-labels-idx1-ubyte", label_path);
  const auto expect = [](bool good, const std::string& message) {
    if (!good) {
      throw std::runtime_error(message);
    }
  };
  const auto describe = [](const pergrad::idx_array& array) {
    std::string text;
    for (const std::size_t extent : array.extents) {
      text += (text.empty() ? "" : " x ") + std::to_string(extent);
    }
    return text;
  };
  expect(images.extents.size() == 3 && images.extents[1] == constants::side && images.extents[2] == constants::side,
         image_path + " is damaged: found an array of " + describe(images) + ", expected images of 28 x 28");
  expect(labels.extents.size() == 1,
         label_path + " is damaged: found an array of " + describe(labels) + ", expected one list of labels");
  const std::size_t count = images.extents[0];
  expect(count == labels.extents[0], label_path + " is damaged: found " + std::to_string(labels.extents[0]) +
                                         " labels, expected " + std::to_string(count) + " as there are images in " +
                                         image_path);
  expect(count > 0, image_path + " is damaged: found no images");

  labelled_images loaded;
  loaded.labels.reserve(count);
  for (const std::uint8_t label : labels.values) {
    expect(label < constants::classes, label_path + " is damaged: label " + std::to_string(loaded.labels.size()) +
                                           " is " + std::to_string(label) + ", expected 0 to 9");
    loaded.labels.push_back(label);
  }
  loaded.images.reserve(images.values.size());
  for (const std::uint8_t value : images.values) {
    loaded.images.push_back(static_cast<float>((value / 255.0 - constants::pixel_mean) / constants::pixel_deviation));
  }
  return loaded;
}

}  // namespace example
