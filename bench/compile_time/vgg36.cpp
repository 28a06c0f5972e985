// SPDX-License-Identifier: Apache-2.0
// bench/compile_time/vgg36.cpp - what depth and width cost to compile: a VGG16-shaped network of 36 layers.
#include <pergrad.hpp>

namespace pg = pergrad;

template <auto Channels>
using conv = pg::conv2d<Channels, 3, pg::padding<1>>;
using pool = pg::max_pool2d<2, pg::stride<2>>;

using net = pg::network<pg::shape{3, 32, 32},                                                 //
                        conv<64>, pg::relu, conv<64>, pg::relu, pool,                         //
                        conv<128>, pg::relu, conv<128>, pg::relu, pool,                       //
                        conv<256>, pg::relu, conv<256>, pg::relu, conv<256>, pg::relu, pool,  //
                        conv<512>, pg::relu, conv<512>, pg::relu, conv<512>, pg::relu, pool,  //
                        conv<512>, pg::relu, conv<512>, pg::relu, conv<512>, pg::relu, pool,  //
                        pg::flatten, pg::linear<512>, pg::relu, pg::linear<10>>;

int main() {
  pg::host exec;
  net model{exec, pg::kaiming_uniform{1}};
  net::tape tape{exec, pg::max_batch{16}};
}
