// expect-error: bounds_are_no_interval
// SPDX-License-Identifier: Apache-2.0
#include <pergrad/pergrad.hpp>
#include <pergrad/query.hpp>

namespace pg = pergrad;

constexpr pg::field<"age"> age;
constexpr pg::field<"height"> height;
#ifdef COMPILE_FAIL_FIXED
constexpr auto box = pg::box{age.in(18, 100), height.in(1.4, 2.1)};
#else
constexpr auto box = pg::box{age.in(100, 18), height.in(1.4, 2.1)};
#endif

int main() { return static_cast<int>(box.of(age).lower); }
