// expect-error: adapters_of_rank_zero<.*lora_on<0
// expect-error: lora_on: the rank is 0
// SPDX-License-Identifier: Apache-2.0
#include <pergrad/models.hpp>
#include <pergrad/pergrad.hpp>

namespace models = pergrad::models;

#ifdef COMPILE_FAIL_FIXED
using net_type = models::gpt2<8, 2, 8, 2, 10, models::lora_on<1, "c_attn">>;
#else
using net_type = models::gpt2<8, 2, 8, 2, 10, models::lora_on<0, "c_attn">>;
#endif

static_assert(net_type::parameter_count > 0);
