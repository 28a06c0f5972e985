// SPDX-License-Identifier: Apache-2.0
// bench/compile_time/resnet34.cpp - what branches and normalisation cost to compile: ResNet-34 with group normalisation
// on 3x224x224, 139 entries after unfolding, never run.
#include "training_step.hpp"

namespace pg = pergrad;

using norm = pg::group_norm<32>;
template <std::size_t Channels>
using same = pg::sequential<pg::residual<pg::conv2d<Channels, 3, pg::padding<1>, pg::no_bias>, norm, pg::relu,
                                         pg::conv2d<Channels, 3, pg::padding<1>, pg::no_bias>, norm>,
                            pg::relu>;
template <std::size_t Channels>
using next = pg::sequential<pg::residual<pg::conv2d<Channels, 3, pg::stride<2>, pg::padding<1>, pg::no_bias>, norm,
                                         pg::relu, pg::conv2d<Channels, 3, pg::padding<1>, pg::no_bias>, norm,
                                         pg::projection<pg::conv2d<Channels, 1, pg::stride<2>, pg::no_bias>, norm>>,
                            pg::relu>;

using net = pg::network<pg::shape{3, 224, 224}, pg::conv2d<64, 7, pg::stride<2>, pg::padding<3>, pg::no_bias>, norm,
                        pg::relu, pg::max_pool2d<3, pg::stride<2>, pg::padding<1>>,  //
                        pg::repeat<3, same<64>>, next<128>, pg::repeat<3, same<128>>, next<256>,
                        pg::repeat<5, same<256>>, next<512>, pg::repeat<2, same<512>>,  //
                        pg::adaptive_avg_pool2d<1>, pg::flatten, pg::linear<1000>>;
static_assert(net::parameter_count == 21'797'672);

int main() { return compile_time::take_a_step<net>(); }
