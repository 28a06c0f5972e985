// expect-error: query_error<.*(unbounded_in_the_box|2), .*(1 / \(height - 2\)|49, 32, 47, 32, 40, 104)
// SPDX-License-Identifier: Apache-2.0
#include <pergrad/pergrad.hpp>
#include <pergrad/query.hpp>

namespace pg = pergrad;

constexpr pg::field<"age"> age;
constexpr pg::field<"height"> height;
constexpr pg::field<"weight"> weight;
constexpr auto box = pg::box{age.in(18, 100), height.in(1.4, 2.1)};
#ifdef COMPILE_FAIL_FIXED
constexpr auto query = age / (height - 1);
#else
constexpr auto query = age / (height - 2);
#endif

int main() { return static_cast<int>(pg::supremum_of<query, box>.upper + weight.in(0, 1).lower); }
