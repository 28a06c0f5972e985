// expect-error: lora_on: no projection of this network has one of these names
// SPDX-License-Identifier: Apache-2.0
#include <pergrad/models.hpp>
#include <pergrad/pergrad.hpp>

namespace models = pergrad::models;

#ifdef COMPILE_FAIL_FIXED
constexpr bool tied = false;
#else
constexpr bool tied = true;  // then it is the embedding's table
#endif
constexpr models::llama_size size{.positions = 5,
                                  .blocks = 1,
                                  .features = 8,
                                  .heads = 2,
                                  .key_value_heads = 2,
                                  .feed_forward = 6,
                                  .vocabulary = 7,
                                  .tied = tied};

using network = models::detail::llama_network<size, models::lora_on<2, "q_proj", "lm_head">>::type;  // fewer lines
static_assert(network::parameter_count > 0);
