// SPDX-License-Identifier: Apache-2.0
// tests/cuda/nvcc/link.hpp - what the two halves of link_device.cu and link_host.cpp share
#pragma once

#include <cstddef>
#include <ratio>

#include <pergrad.hpp>

using linked_net = pergrad::network<pergrad::shape{4}, pergrad::linear<3>, pergrad::tanh,
                                    pergrad::scale<std::ratio<2, 3>>, pergrad::slice<0, 2>, pergrad::linear<2>>;

std::size_t host_tape_bytes();
std::size_t host_network_bytes();
/// The first sample's norm by the host executor.
double host_norm(linked_net& net);
