// SPDX-License-Identifier: Apache-2.0
// bench/rochette/rochette_bench.cpp - <alexnet|vgg16>/<dp|non_private>/<batch>/<threads>: steps of large networks
//
// Rochette, Manoel, Tramel 2019 (arXiv:1912.06015), Table 1: AlexNet at batch 16 and VGG16 at batch 8 on images of
// 256 x 256. Without dropout, as the peers are measured. Counters: support/step_benchmark.hpp.
#include "support/step_benchmark.hpp"

namespace {

namespace pg = pergrad;

using head = pg::sequential<pg::linear<4096>, pg::relu, pg::linear<1000>>;

using alexnet = pg::network<pg::shape{3, 256, 256}, pg::conv2d<64, 11, pg::stride<4>, pg::padding<2>>, pg::relu,
                            pg::max_pool2d<3, pg::stride<2>>, pg::conv2d<192, 5, pg::padding<2>>, pg::relu,
                            pg::max_pool2d<3, pg::stride<2>>, pg::conv2d<384, 3, pg::padding<1>>, pg::relu,
                            pg::conv2d<256, 3, pg::padding<1>>, pg::relu, pg::conv2d<256, 3, pg::padding<1>>, pg::relu,
                            pg::max_pool2d<3, pg::stride<2>>, pg::adaptive_avg_pool2d<6>, pg::flatten, pg::linear<4096>,
                            pg::relu, head>;
static_assert(alexnet::parameter_count == 61'100'840);

template <std::size_t Channels>
using conv = pg::sequential<pg::conv2d<Channels, 3, pg::padding<1>>, pg::relu>;
template <std::size_t Channels>
using twice = pg::sequential<conv<Channels>, conv<Channels>, pg::max_pool2d<2>>;
template <std::size_t Channels>
using thrice = pg::sequential<conv<Channels>, conv<Channels>, conv<Channels>, pg::max_pool2d<2>>;

using vgg16 = pg::network<pg::shape{3, 256, 256}, twice<64>, twice<128>, thrice<256>, thrice<512>, thrice<512>,
                          pg::adaptive_avg_pool2d<7>, pg::flatten, pg::linear<4096>, pg::relu, head>;
static_assert(vgg16::parameter_count == 138'357'544);

const bool registered =
    bench::register_steps<bench::training>("alexnet", bench::kept_records<alexnet, pg::cross_entropy, 16>, {16},
                                           {1, 2}) &&
    bench::register_steps<bench::training>("vgg16", bench::kept_records<vgg16, pg::cross_entropy, 8>, {8}, {1, 2});

}  // namespace
