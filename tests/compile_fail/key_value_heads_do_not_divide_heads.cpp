// expect-error: key_value_heads_do_not_divide_heads<.*scaled_dot_product_attention<4.*key_value_heads<3
// expect-error: the number of key-value heads must divide the number of attention heads
// SPDX-License-Identifier: Apache-2.0
#include <pergrad/pergrad.hpp>

namespace pg = pergrad;

#ifdef COMPILE_FAIL_FIXED
constexpr std::size_t count = 2;
#else
constexpr std::size_t count = 3;
#endif

using net_type = pg::network<pg::shape{5, 12}, pg::linear<(4 + 2 * count) * 2>,
                             pg::scaled_dot_product_attention<4, pg::key_value_heads<count>>>;
static_assert(net_type::parameter_count > 0);
