// SPDX-License-Identifier: Apache-2.0
// examples/common/fashion_mnist_data.hpp - loads the images and labels of Fashion-MNIST and checks all of it
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

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

/// Loads one half of the data set; `prefix` is "train" or "t10k". Throws std::runtime_error saying which file is
/// missing, from which Debian package it comes, or what is wrong in it.
[[nodiscard]] labelled_images load_fashion_mnist(const std::string& directory, const std::string& prefix);

}  // namespace example
