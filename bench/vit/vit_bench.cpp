// SPDX-License-Identifier: Apache-2.0
// bench/vit/vit_bench.cpp - vit_tiny/<dp|non_private>/8/<threads>: a step of ViT's tiny model on images of 224 x 224,
// 1000 classes, every parameter trained
//
// 12 blocks of 192 features and 3 heads on 196 patches of 16 x 16 (Touvron et al. 2021, arXiv:2012.12877, "DeiT-Ti").
// Counters: support/step_benchmark.hpp.
#include <pergrad/models.hpp>

#include "support/step_benchmark.hpp"

namespace {

namespace pg = pergrad;

using net = pg::models::vit<pg::models::vit_size{.features = 192, .heads = 3, .feed_forward = 768}>;
static_assert(net::parameter_count == 5'717'416);
// The patches' projection has no input gradient; 12 blocks at 197 positions, the head at one.
static_assert(bench::flops_per_sample<net>() == 4.0 * 196 * 768 * 192 + 6.0 * (197 * 12 * 12 * 192 * 192 + 192 * 1000));

const bool registered =
    bench::register_steps<bench::training>("vit_tiny", bench::kept_records<net, pg::cross_entropy, 8>, {8}, {1, 2});

}  // namespace
