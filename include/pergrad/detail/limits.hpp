// SPDX-License-Identifier: Apache-2.0
// pergrad/detail/limits.hpp - std::numeric_limits as values: device code may read a constant, but not call the function
#pragma once

#include <limits>

namespace pergrad::inline v0_1::limits {

/// Distance from 1 to the next larger number.
template <class Scalar>
inline constexpr Scalar epsilon = std::numeric_limits<Scalar>::epsilon();
/// The largest finite number.
template <class Scalar>
inline constexpr Scalar largest = std::numeric_limits<Scalar>::max();
/// The smallest number above 0, subnormal.
template <class Scalar>
inline constexpr Scalar least_subnormal = std::numeric_limits<Scalar>::denorm_min();

}  // namespace pergrad::inline v0_1::limits
