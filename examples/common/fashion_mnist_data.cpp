// SPDX-License-Identifier: Apache-2.0
// examples/common/fashion_mnist_data.cpp - reads the four files of Fashion-MNIST
#include "fashion_mnist_data.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>

#include <pergrad/data/idx.hpp>

#include "gzip.hpp"

namespace example {
namespace {

// Finds DIR/NAME.gz, else DIR/NAME, and returns the array it holds.
[[nodiscard]] pergrad::idx_array load(const std::string& directory, const std::string& name, std::string& path) {
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

}  // namespace

labelled_images load_fashion_mnist(const std::string& directory, const std::string& prefix) {
  using constants = fashion_mnist_constants;
  std::string image_path;
  std::string label_path;
  const auto images = load(directory, prefix + "-images-idx3-ubyte", image_path);
  const auto labels = load(directory, prefix + "-labels-idx1-ubyte", label_path);
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
