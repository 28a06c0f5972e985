// SPDX-License-Identifier: Apache-2.0
// bench/mnist_cnn/images.hpp - the MNIST CNN of fast-dpsgd and of Opacus' examples, and images like MNIST's
//
// 26,010 parameters: conv 16 8x8 stride 2 pad 3, ReLU, max-pool 2x2 stride 1, conv 32 4x4 stride 2, ReLU, max-pool 2x2
// stride 1, linear 32, ReLU, linear 10 (Subramani, Vadivelu, Kamath 2021, arXiv:2010.09063; Yousefpour et al. 2021,
// arXiv:2109.12298).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>

#include <pergrad/models.hpp>

#include "support/training.hpp"

namespace mnist_cnn {

using net = pergrad::models::mnist_cnn;
using data = bench::records<net, pergrad::cross_entropy>;

/// Made-up handwriting: a blurred stroke on black, about a fifth of the pixels not 0, values in [0, 1], random labels.
inline data make_images(std::size_t count) {
  constexpr std::size_t side = 28;
  std::mt19937 bits{20240229};
  const auto uniform = [&bits](float low, float high) {
    return low + (high - low) * static_cast<float>(bits() >> 8U) * 0x1p-24F;
  };
  data result{std::vector<float>(count * side * side), std::vector<std::int32_t>(count)};
  for (std::size_t n = 0; n < count; ++n) {
    result.targets[n] = static_cast<std::int32_t>(bits() % 10);
    float* image = result.inputs.data() + n * side * side;
    float x = uniform(8, 20);
    float y = uniform(5, 10);
    float direction = uniform(0, 3);
    for (int dot = 0; dot < 30; ++dot) {
      for (std::size_t i = 0; i < side; ++i) {
        for (std::size_t j = 0; j < side; ++j) {
          const float down = static_cast<float>(i) - y;
          const float right = static_cast<float>(j) - x;
          const float ink = 1.4F - 0.5F * (down * down + right * right);
          float& pixel = image[i * side + j];
          pixel = std::min(1.0F, std::max(pixel, ink));
        }
      }
      direction += uniform(-0.3F, 0.5F);
      x = std::min(23.0F, std::max(4.0F, x + std::cos(direction)));
      y = std::min(23.0F, std::max(4.0F, y + std::sin(direction)));
    }
  }
  return result;
}

}  // namespace mnist_cnn
