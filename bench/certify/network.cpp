// SPDX-License-Identifier: Apache-2.0
// bench/certify/network.cpp - K of a network of five convolutions whose width is a macro, for costs.py
#include <algorithm>
#include <cstdio>
#include <ctime>

#include <pergrad/certify.hpp>
#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

template <std::size_t Channels>
using conv = pg::conv2d<Channels * PERGRAD_WIDTH, 3, pg::padding<1>>;
using pool = pg::max_pool2d<2>;
using net_type = pg::network<pg::shape{3, 32, 32}, pg::into_ball<1.0>,                             //
                             conv<1>, pg::relu, pool, conv<2>, pg::relu, pool,                     //
                             conv<4>, pg::relu, pool, conv<8>, pg::relu, conv<8>, pg::relu, pool,  //
                             pg::flatten, pg::linear<10>>;

int main() {
  const pg::host exec{pg::threads{1}};
  const net_type net{exec, pg::kaiming_uniform{1}};
  double bound = 0;
  double least = 1e9;
  for (int i = 0; i < 3; ++i) {
    const std::clock_t start = std::clock();
    bound = pg::certify(net, pg::cross_entropy{}).bound;
    least = std::min(least, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }
  std::printf("{\"parameters\": %zu, \"bound\": %.6g, \"seconds\": %.4f}\n", net_type::parameter_count, bound, least);
}
