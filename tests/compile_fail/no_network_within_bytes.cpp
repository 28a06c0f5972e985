// expect-error: no_network_within<.*count<1000
// SPDX-License-Identifier: Apache-2.0
#include <pergrad/models.hpp>
#include <pergrad/pergrad.hpp>

namespace models = pergrad::models;

#ifdef COMPILE_FAIL_FIXED
constexpr std::size_t limit = 1'000'000;
#else
constexpr std::size_t limit = 1'000;
#endif
using net_type = pergrad::first_within<limit, models::gpt2<8, 2, 8, 2, 10>,
                                       models::gpt2<8, 2, 8, 2, 10, models::recomputed_blocks<>>>;

static_assert(net_type::parameter_count > 0);
