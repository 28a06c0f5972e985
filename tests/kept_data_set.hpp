// SPDX-License-Identifier: Apache-2.0
// tests/kept_data_set.hpp - one data set of a fixture's arrays, which is passed to all steps
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include <pergrad/pergrad.hpp>

/// A data set of a fixture's arrays, made once for as long as they lie where they are: a copy of the fixture has its
/// own.
template <class Value>
class kept_data_set {
 public:
  [[nodiscard]] const pergrad::dataset<Value, std::int32_t>& of(std::span<const Value> inputs,
                                                                std::span<const std::int32_t> targets,
                                                                const pergrad::shape& input) const {
    const pergrad::dataset<Value, std::int32_t> now{inputs, targets, input};
    if (!made_ || !made_->same_view(now)) made_ = now;
    return *made_;
  }

 private:
  mutable std::optional<pergrad::dataset<Value, std::int32_t>> made_;
};
