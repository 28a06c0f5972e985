// SPDX-License-Identifier: Apache-2.0
// pergrad/optim/held.hpp - parameters that no step moves: the rows of padding ids
//
// The row of a `padding_idx` has no gradient, whatever the data, so a step owes it no noise: like PyTorch's it stays
// what it was. Noise is drawn for it all the same, because an element's bits depend on its place.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <type_traits>

#include <pergrad/expressions/noise.hpp>
#include <pergrad/gradients/factors.hpp>
#include <pergrad/graph/plan.hpp>

namespace pergrad::inline v0_1::detail {

struct parameter_range {
  std::size_t first = 0;
  std::size_t end = 0;
};

/// Calls visit(range) for the rows of padding ids among the trained parameters.
template <class Network, class Visitor>
constexpr void for_each_held(Visitor&& visit) {
  using plan = network_plan<typename Network::structure>;
  for (const plan_factor& each : plan::factors) {
    const factor& table = each.what;
    if (!table.sparse || table.skipped_id >= table.rows || !plan::nodes[each.node].use.first) continue;
    const std::size_t row = each.parameters + table.skipped_id * table.columns;
    visit(parameter_range{row, row + table.columns});
  }
}

/// In the order of the parameters.
template <class Network>
[[nodiscard]] constexpr auto list_held() {
  if constexpr (Network::input_shape.ids == 0) {
    return std::array<parameter_range, 0>{};
  } else {
    constexpr std::size_t count = [] {
      std::size_t found = 0;
      for_each_held<Network>([&](const parameter_range& /*range*/) { ++found; });
      return found;
    }();
    std::array<parameter_range, count> ranges{};
    std::size_t next = 0;
    for_each_held<Network>([&](const parameter_range& range) { ranges[next++] = range; });
    std::sort(ranges.begin(), ranges.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    return ranges;
  }
}
template <class Network>
inline constexpr auto held_parameters = list_held<Network>();

/// An optimizer's update, f(first parameter, values, how many), without the parameters that are held.
template <class Network, class Update>
[[nodiscard]] auto hold_parameters(const Update& update) {
  if constexpr (held_parameters<Network>.empty()) {
    return update;
  } else {
    return [update](std::size_t first, auto* values, std::size_t count) {
      const std::size_t end = first + count;
      for (const parameter_range& held : held_parameters<Network>) {
        if (held.end <= first || held.first >= end) continue;
        if (held.first > first) update(first, values, held.first - first);
        const std::size_t next = std::min(held.end, end);
        values += next - first;
        first = next;
      }
      if (first < end) update(first, values, end - first);
    };
  }
}

}  // namespace pergrad::inline v0_1::detail
