// SPDX-License-Identifier: Apache-2.0
// tests/network/random_networks.hpp - what is asked of networks that random_networks.py draws
#pragma once

#define BOOST_TEST_MODULE random_networks
#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <ratio>
#include <string>

#include <pergrad/pergrad.hpp>
#include <pergrad/testing/layer_laws.hpp>
#include <pergrad/testing/length_law.hpp>

#include "comparing.hpp"
#include "cuda/device_fixture.hpp"
#include "host/told.hpp"

namespace random_networks {

namespace pg = pergrad;

template <class Report>
void expect_none(const Report& report) {
  BOOST_TEST(report.comparisons() > 0U);
  for (const auto& broken : report) BOOST_ERROR(broken.text());
}
template <class Doubles, class Floats, class Loss>
void laws() {
  expect_none(pg::testing::check_network<Doubles, Loss>({.samples = 19, .differences = 200, .negligible = 1e-18}));
  expect_none(pg::testing::check_network<Floats, Loss>({.samples = 19}));
}
template <class Network, class Loss>
void lengths() {
  expect_none(pg::testing::check_lengths<Network, Loss>());
}

/// Losses, norms, rows, every kind of sum, and what steps of a trainer make of the parameters.
template <class Loss, class Network, class... Twins>
void plans() {
  const told_results::told<Network, Loss> wanted{2};
  std::size_t number = 1;  // of the twin, which has as many threads
  const auto compare = [&](const auto& found) {
    const auto agree = [&](const auto& these, const auto& those, double allowed, const char* what) {
      comparing::check_close(these, those, allowed, what + (" of twin " + std::to_string(number)));
    };
    agree(found.losses, wanted.losses, 1e-12, "losses");
    agree(found.norms, wanted.norms, 1e-11, "norms");
    agree(found.rows, wanted.rows, 1e-11, "rows");
    agree(found.sum, wanted.sum, 1e-11, "sum");
    agree(found.clipped, wanted.clipped, 1e-11, "clipped sum");
    agree(found.formed, wanted.formed, 1e-11, "sum of gradients that are formed");
    agree(found.ghost, wanted.ghost, 1e-11, "clipped sum by ghost");
    agree(found.means, wanted.means, 1e-11, "mean");
    agree(found.dots, wanted.dots, 1e-10, "projections");
    agree(found.trained[0], wanted.trained[0], 1e-6, "parameters behind steps");
    agree(found.trained[1], wanted.trained[1], 1e-6, "parameters behind steps of a capacity");
    ++number;
  };
  (compare(told_results::told<Twins, Loss>{number}), ...);
}
template <class Network, class Loss>
void devices() {
  device_fixture::compare_gradients<Network, Loss>("gradients");
  device_fixture::compare_strategies<Network, Loss>("strategies");
}

}  // namespace random_networks

/// Twin 1 has places that values share, 2 is large, 3 large from its 12th parameter on, 4 layered on a device.
#define PERGRAD_RANDOM_PLANS(net)                                                                           \
  namespace pergrad::inline v0_1 {                                                                          \
  template <>                                                                                               \
  inline constexpr on_host::index on_host::places_by_times_from<net<double, 1>> = 0;                        \
  template <>                                                                                               \
  inline constexpr std::size_t on_host::large_from<net<double, 2>> = 0;                                     \
  template <>                                                                                               \
  inline constexpr std::size_t on_host::large_from<net<double, 3>> = 12 * sizeof(double);                   \
  template <>                                                                                               \
  inline constexpr on_device::plan_kind on_device::plan_of<net<double, 4>> = on_device::plan_kind::layered; \
  }
