// SPDX-License-Identifier: Apache-2.0
// examples/common/edges.hpp - features of images: how much of an edge in which direction is where
//
// Under differential privacy a network learns little from what it sees, so good features are worth more than they are
// otherwise (Tramer & Boneh 2021, arXiv:2011.11660). These come from filters that are fixed beforehand and know nothing
// of any data set: each image is looked at alone, so they cost no privacy.
#pragma once

#include <cstddef>
#include <vector>

namespace example {

/// What `edges_of` makes of an image: values `[direction][row][column]`.
struct edge_constants {
  static constexpr std::size_t directions = 16;
  static constexpr std::size_t side = 7;  ///< cells of 4 x 4 pixels
};

/// Of images of 28 x 28 values each: filters of 5 x 5 in 16 directions, of which positive values count, bent by tanh,
/// averaged over cells and brought to mean 0 and variance 1 in each image.
[[nodiscard]] std::vector<float> edges_of(const std::vector<float>& images, std::size_t threads);

}  // namespace example
