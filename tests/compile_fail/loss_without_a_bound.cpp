// expect-error: loss_without_a_bound<.*mean_squared_error
// expect-error: take huber in the place of mean_squared_error
// SPDX-License-Identifier: Apache-2.0
#include <pergrad/certify.hpp>
#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

using net_type = pg::network<pg::shape{4}, pg::into_ball<1.0>, pg::linear<2>>;
#ifdef COMPILE_FAIL_FIXED
using loss_type = pg::huber<1.0>;
#else
using loss_type = pg::mean_squared_error;
#endif

int main() { return static_cast<int>(pg::describe_sensitivity<net_type>(loss_type{}).bound); }
