// expect-error: query_has_vectors_of_unlike_sizes
// SPDX-License-Identifier: Apache-2.0
#include <pergrad/pergrad.hpp>
#include <pergrad/query.hpp>

namespace pg = pergrad;

constexpr pg::field<"age"> age;
constexpr pg::field<"height"> height;
#ifdef COMPILE_FAIL_FIXED
constexpr auto query = dot(vector(age, height), vector(height, 2));
#else
constexpr auto query = dot(vector(age, height), vector(height, 2, age));
#endif

int main() { return query.size(); }
