// SPDX-License-Identifier: Apache-2.0
// bench/cuda/made_up_images.cpp - images for the training tests where Fashion-MNIST is not installed
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include "../../examples/common/fashion_mnist_data.hpp"

namespace example {

/// Ten kinds of stripes with speckles, scaled as the real images are; neither argument is looked at.
labelled_images load_fashion_mnist(const std::string& /*directory*/, const std::string& /*prefix*/) {
  constexpr std::size_t count = 512;
  constexpr std::size_t side = fashion_mnist_constants::side;
  labelled_images made;
  std::uint64_t state = 20240229;
  const auto draw = [&state] {
    state = state * 6364136223846793005U + 1442695040888963407U;
    return static_cast<double>(state >> 40U) * 0x1p-24;
  };
  for (std::size_t image = 0; image < count; ++image) {
    const auto label = static_cast<std::int32_t>(10 * draw());
    made.labels.push_back(label);
    for (std::size_t i = 0; i < side * side; ++i) {
      const double along = label % 2 == 0 ? static_cast<double>(i % side) : static_cast<double>(i / side);
      const double pixel = 0.4 + 0.3 * std::sin(along * (1 + label) * 0.2) + 0.3 * draw();
      made.images.push_back(
          static_cast<float>((pixel - fashion_mnist_constants::pixel_mean) / fashion_mnist_constants::pixel_deviation));
    }
  }
  return made;
}

}  // namespace example
