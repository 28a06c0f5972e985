// expect-error: rotary_heads_of_odd_width<.*scaled_dot_product_attention<4.*rotary<
// expect-error: the width of a head .* must be even
// SPDX-License-Identifier: Apache-2.0
#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
constexpr std::size_t width = 4;
#else
constexpr std::size_t width = 3;
#endif

using net_type =
    pg::network<pg::shape{5, 12}, pg::linear<12 * width>, pg::scaled_dot_product_attention<4, pg::rotary<>>>;
static_assert(net_type::parameter_count > 0);
