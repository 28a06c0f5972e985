// expect-error: llama: biases_only would train nothing
// SPDX-License-Identifier: Apache-2.0
#include <pergrad/models.hpp>
#include <pergrad/pergrad.hpp>

namespace models = pergrad::models;

#ifdef COMPILE_FAIL_FIXED
using net_type = models::llama<models::llama_size{
    .positions = 4, .blocks = 1, .features = 8, .heads = 2, .key_value_heads = 1, .feed_forward = 8, .vocabulary = 9}>;
#else
using net_type = models::llama<models::llama_size{.positions = 4,
                                                  .blocks = 1,
                                                  .features = 8,
                                                  .heads = 2,
                                                  .key_value_heads = 1,
                                                  .feed_forward = 8,
                                                  .vocabulary = 9},
                               models::biases_only>;
#endif
