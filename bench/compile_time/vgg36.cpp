// SPDX-License-Identifier: Apache-2.0
// bench/compile_time/vgg36.cpp - what depth and width cost to compile: VGG16 on 3x224x224, 37 layers, never run.
#include "training_step.hpp"

namespace pg = pergrad;

template <auto Channels>
using conv = pg::conv2d<Channels, 3, pg::padding<1>>;
using pool = pg::max_pool2d<2, pg::stride<2>>;

using net = pg::network<pg::shape{3, 224, 224},                                               //
                        conv<64>, pg::relu, conv<64>, pg::relu, pool,                         //
                        conv<128>, pg::relu, conv<128>, pg::relu, pool,                       //
                        conv<256>, pg::relu, conv<256>, pg::relu, conv<256>, pg::relu, pool,  //
                        conv<512>, pg::relu, conv<512>, pg::relu, conv<512>, pg::relu, pool,  //
                        conv<512>, pg::relu, conv<512>, pg::relu, conv<512>, pg::relu, pool,  //
                        pg::flatten, pg::linear<4096>, pg::relu, pg::linear<4096>, pg::relu, pg::linear<1000>>;
static_assert(net::parameter_count == 138'357'544);

int main() { return compile_time::take_a_step<net>(); }
