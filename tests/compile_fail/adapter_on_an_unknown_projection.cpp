// expect-error: no_such_projection<.*lora_on<2
// expect-error: lora_on: no projection of this network has one of these names
// SPDX-License-Identifier: Apache-2.0
#include <pergrad/models.hpp>
#include <pergrad/pergrad.hpp>

namespace models = pergrad::models;

#ifdef COMPILE_FAIL_FIXED
using net_type = models::gpt2<8, 2, 8, 2, 10, models::lora_on<2, "c_attn">>;
#else
using net_type = models::gpt2<8, 2, 8, 2, 10, models::lora_on<2, "q_proj">>;
#endif

static_assert(net_type::parameter_count > 0);
