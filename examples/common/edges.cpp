// SPDX-License-Identifier: Apache-2.0
// examples/common/edges.cpp - filters for edges, as a network that is not trained
#include "edges.hpp"

#include <cmath>
#include <cstddef>
#include <numbers>
#include <span>
#include <vector>

#include <pergrad.hpp>

namespace example {
namespace {

namespace pg = pergrad;

constexpr std::size_t width = 5;
using filters = pg::network<pg::shape{1, 28, 28},                                                        //
                            pg::conv2d<edge_constants::directions, width, pg::padding<2>, pg::no_bias>,  //
                            pg::relu, pg::tanh, pg::avg_pool2d<28 / edge_constants::side>, pg::group_norm<1>>;
static_assert(filters::output_shape ==
              pg::shape{edge_constants::directions, edge_constants::side, edge_constants::side});

// A wave across the direction of the edge under a bell (Gabor), of length `strength`: an edge of full contrast is far
// into what tanh bends, a faint one is not.
void fill(std::span<float> filter, double direction) {
  constexpr double bell = 1.2, wave = 1.2, strength = 6;  // pixels, radians a pixel
  double squares = 0;
  for (std::size_t i = 0; i < filter.size(); ++i) {
    const std::size_t row = i / width, column = i % width;
    const double y = static_cast<double>(row) - 2, x = static_cast<double>(column) - 2;
    const double across = x * std::cos(direction) + y * std::sin(direction);
    const double value = std::exp(-(x * x + y * y) / (2 * bell * bell)) * std::sin(wave * across);
    filter[i] = static_cast<float>(value);
    squares += value * value;
  }
  for (float& each : filter) each = static_cast<float>(strength * static_cast<double>(each) / std::sqrt(squares));
}

}  // namespace

std::vector<float> edges_of(const std::vector<float>& images, std::size_t threads) {
  const pg::host exec{pg::threads{threads}};
  filters net{exec, pg::layer_default{}};  // of group_norm: gains 1, shifts 0
  for (std::size_t k = 0; k < edge_constants::directions; ++k) {
    fill(net.parameters().subspan(k * width * width, width * width),
         2 * std::numbers::pi * static_cast<double>(k) / edge_constants::directions);
  }
  return pg::unprotected::predict(exec, net, std::span<const float>{images});
}

}  // namespace example
