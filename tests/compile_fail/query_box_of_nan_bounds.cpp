// expect-error: bounds_are_no_interval
// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include <pergrad/pergrad.hpp>
#include <pergrad/query.hpp>

namespace pg = pergrad;

constexpr pg::field<"age"> age;
#ifdef COMPILE_FAIL_FIXED
constexpr auto box = pg::box{age.in(18, 100)};
#else
constexpr auto box = pg::box{age.in(18, std::numeric_limits<double>::quiet_NaN())};
#endif

int main() { return static_cast<int>(box.of(age).lower); }
