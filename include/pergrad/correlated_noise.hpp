// SPDX-License-Identifier: Apache-2.0
// pergrad/correlated_noise.hpp - strategies of correlated noise for a private run, and their optimisation (DP-FTRL,
// BandMF, BLT): beside the umbrella
//
//   pg::dp_options<pg::cyclic_poisson_sampling, pg::banded_noise> options;
//   options.sampling = pg::cyclic_poisson_sampling{pg::sampling_probability{0.2}, pg::round_steps{8}};
//   options.correlation = pg::optimal_banded_noise({.steps = 1000, .momentum = 0.9}, 8);
#pragma once

// clang-format off
#include <pergrad/detail/beside_the_umbrella.hpp>  // before anything is defined
// clang-format on

#include <pergrad/privacy/correlated/optimise.hpp>
#include <pergrad/privacy/correlated/strategies.hpp>
