// SPDX-License-Identifier: Apache-2.0
// pergrad/certify.hpp - proven bounds of a network's gradients, and training without clipping: beside the umbrella
//
//   using net_type = pg::network<pg::shape{784}, pg::into_ball<10.0>, pg::linear<64>, pg::tanh, pg::linear<10>>;
//   const pg::certificate proven = pg::certify(net, pg::cross_entropy{});    // proven.bound >= every record's gradient
//   std::puts(describe(proven).c_str());                                      // what limits it
#pragma once

// clang-format off
#include <pergrad/detail/beside_the_umbrella.hpp>  // before anything is defined
// clang-format on

// A program's globals may be called as our parameters are.
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#endif

#include <pergrad/certify/certificate.hpp>
#include <pergrad/certify/certify.hpp>
#include <pergrad/certify/into_ball.hpp>
#include <pergrad/certify/training.hpp>

#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif
