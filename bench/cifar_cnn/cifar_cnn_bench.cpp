// SPDX-License-Identifier: Apache-2.0
// bench/cifar_cnn/cifar_cnn_bench.cpp - cifar_cnn/<dp|non_private>/<batch>/<threads>: a training step of the CIFAR CNN
//
// fast-dpsgd's CIFAR-10 network (Subramani, Vadivelu, Kamath 2021, arXiv:2010.09063). Counters:
// support/step_benchmark.hpp.
#include <pergrad/models.hpp>

#include "support/step_benchmark.hpp"

namespace {

namespace pg = pergrad;
using net = pg::models::cifar_cnn;

static_assert(net::parameter_count == 605'226);

const bool registered =
    bench::register_steps<bench::training>("cifar_cnn", bench::kept_records<net, pg::cross_entropy, 2048>,
                                           {16, 256, 2048}, {1, 2}) &&
    bench::register_integers<bench::training>("cifar_cnn", bench::kept_records<net, pg::cross_entropy, 2048>, 256, 2);

}  // namespace
