// expect-error: query_error<.*(field_without_bounds|1), .*(\"weight\"|119, 101, 105, 103, 104, 116)
// SPDX-License-Identifier: Apache-2.0
#include <pergrad/pergrad.hpp>
#include <pergrad/query.hpp>

namespace pg = pergrad;

constexpr pg::field<"age"> age;
constexpr pg::field<"height"> height;
constexpr pg::field<"weight"> weight;
constexpr auto box = pg::box{age.in(18, 100), height.in(1.4, 2.1)};
#ifdef COMPILE_FAIL_FIXED
constexpr auto query = age * height;
#else
constexpr auto query = age * weight;
#endif

int main() { return static_cast<int>(pg::supremum_of<query, box>.upper + weight.in(0, 1).lower); }
