// SPDX-License-Identifier: Apache-2.0
// bench/compile_time/gpt2.hpp - GPT-2 with 24 blocks of the single header's layers: pergrad/models.hpp is not in it
#pragma once

#include <cstddef>
#include <ratio>

#include "training_step.hpp"

namespace compile_time {

template <std::size_t Width, std::size_t Vocabulary>
using gpt2 = pergrad::network<
    pergrad::token_ids(1024, Vocabulary), pergrad::tied<0, pergrad::embedding<Width>>, pergrad::learned_positions,
    pergrad::repeat<24, pergrad::sequential<
                            pergrad::residual<pergrad::layer_norm<>, pergrad::multihead_attention<16, pergrad::causal>>,
                            pergrad::residual<pergrad::layer_norm<>, pergrad::linear<4 * Width>, pergrad::gelu_tanh,
                                              pergrad::linear<Width>>>>,
    pergrad::layer_norm<>, pergrad::tied<0, pergrad::linear<Vocabulary, pergrad::no_bias>>>;

}  // namespace compile_time
