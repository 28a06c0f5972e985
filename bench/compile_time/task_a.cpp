// SPDX-License-Identifier: Apache-2.0
// bench/compile_time/task_a.cpp - what a program with one real network costs to compile: the 26,010-parameter CNN.
#include "training_step.hpp"

namespace pg = pergrad;

using net =
    pg::network<pg::shape{1, 28, 28},                                                                          //
                pg::conv2d<16, 8, pg::stride<2>, pg::padding<3>>, pg::relu, pg::max_pool2d<2, pg::stride<1>>,  //
                pg::conv2d<32, 4, pg::stride<2>>, pg::relu, pg::max_pool2d<2, pg::stride<1>>,                  //
                pg::flatten, pg::linear<32>, pg::relu, pg::linear<10>>;
static_assert(net::parameter_count == 26'010);

int main() { return compile_time::take_a_step<net>(); }
