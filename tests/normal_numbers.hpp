// SPDX-License-Identifier: Apache-2.0
// tests/normal_numbers.hpp - numbers to compute with: normally distributed, the same in every run
#pragma once

#include <cstdint>
#include <random>
#include <span>

template <class Scalar>
void fill_normal(std::span<Scalar> values, std::uint64_t salt) {
  std::mt19937_64 random{salt * 0x9e3779b97f4a7c15U + 5};
  std::normal_distribution<double> normal;
  for (Scalar& value : values) value = static_cast<Scalar>(normal(random));
}
