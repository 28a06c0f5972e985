// SPDX-License-Identifier: Apache-2.0
// tests/cuda/device_laws.hpp - the laws that layers keep on the host, kept on a device: finite differences, norms by
// every method, isolation bit for bit, the clip bound from denormal to huge; and the same bits in any order of threads
// and blocks
#pragma once

#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <string>
#include <vector>

#include <pergrad/cuda/run/trainer.hpp>
#include <pergrad/pergrad.hpp>
#include <pergrad/testing/layer_laws.hpp>

/// The same bits in any order of threads and blocks: backwards and a shuffle, in the long tier 16.
template <>
struct pergrad::testing::executors_to_compare<pergrad::emulated> {
  using emulation_order = pergrad::on_device::emulation_order;
  static constexpr emulation_order usual = emulation_order::forward;
  inline static const std::vector<emulation_order> others = [] {
    std::vector<emulation_order> orders{emulation_order::reversed};
    const std::uint32_t shuffles = std::getenv("PERGRAD_LONG_TESTS") == nullptr ? 1 : 16;
    for (std::uint32_t i = 0; i < shuffles; ++i) orders.push_back(pergrad::on_device::shuffled_order(i));
    return orders;
  }();
  static constexpr std::size_t configuration_count = std::size(pergrad::testing::configurations);
  [[nodiscard]] static std::string name(emulation_order which) {
    return which == emulation_order::reversed ? "reversed" : "shuffled " + std::to_string(static_cast<int>(which));
  }
};

namespace device_laws {

inline const pergrad::testing::law_options few{
    .samples = 5, .differences = std::getenv("PERGRAD_LONG_TESTS") == nullptr ? 40U : 120U};

template <class Network, class Loss>
void expect_laws(const char* what, std::size_t least_comparisons) {
  const auto report = pergrad::testing::check_network<Network, Loss, pergrad::emulated>(few);
  BOOST_TEST_MESSAGE(what << ": " << report.text());
  BOOST_TEST(report.comparisons() > least_comparisons);
  for (const auto& broken : report) BOOST_ERROR(broken.text());
}

}  // namespace device_laws
