// expect-error: fewer_blocks_than_trained<.*last_blocks<3>, .*blocks<2>
// expect-error: last_blocks: this network has fewer blocks than are to be trained
// SPDX-License-Identifier: Apache-2.0
#include <pergrad/models.hpp>
#include <pergrad/pergrad.hpp>

namespace models = pergrad::models;

#ifdef COMPILE_FAIL_FIXED
using net_type = models::gpt2<8, 2, 8, 2, 10, models::last_blocks<2>>;
#else
using net_type = models::gpt2<8, 2, 8, 2, 10, models::last_blocks<3>>;
#endif

static_assert(net_type::parameter_count > 0);
