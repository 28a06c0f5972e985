// SPDX-License-Identifier: Apache-2.0
// pergrad/detail/no_fast_math.hpp - refuses flags under which a NaN is not seen and a bound does not hold
#pragma once

#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__ + 0 != 0)
#error \
    "pergrad: -ffast-math, -Ofast and -ffinite-math-only break the clip bound, the noise and the search for non-finite gradients: compile without them; see docs/privacy.md"
#endif
