// SPDX-License-Identifier: Apache-2.0
// tests/cuda/nvcc/kernels_gate.cu - the kernels of small networks, for ptxas to judge: no spills, no local memory
//
// Compiled only, for all our architectures; gates.py says with which flags.
#include <pergrad/cuda/kernels/release.hpp>
#include <pergrad/cuda/kernels/samples.hpp>
#include <pergrad/cuda/kernels/sums.hpp>
#include <pergrad/cuda/layers/attention.hpp>
#include <pergrad/cuda/layers/held_samples.hpp>
#include <pergrad/cuda/plan/gemm_door.hpp>
#include <pergrad/cuda/plan/layout.hpp>
#include <pergrad/cuda/plan/program.hpp>
#include <pergrad/pergrad.hpp>

namespace {

namespace pg = pergrad;
namespace dev = pergrad::on_device;

using cnn = pg::network<pg::shape{1, 28, 28},                                                          //
                        pg::conv2d<16, 8, pg::stride<2>, pg::padding<3>>, pg::relu,                    //
                        pg::max_pool2d<2, pg::stride<1>>,                                              //
                        pg::conv2d<32, 4, pg::stride<2>>, pg::relu, pg::max_pool2d<2, pg::stride<1>>,  //
                        pg::flatten, pg::linear<32>, pg::tanh, pg::linear<10>>;
using mlp = pg::network<pg::shape{784}, pg::linear<128>, pg::relu, pg::linear<256>, pg::gelu, pg::linear<10>>;
using words = pg::network<pg::variable(pg::token_ids(64, 1000)), pg::embedding<16>, pg::lstm<32>,
                          pg::mean_over_positions, pg::linear<2>>;
using reader = pg::network<pg::variable(pg::token_ids(64, 1000)), pg::embedding<16>, pg::sinusoidal_positions,
                           pg::transformer_encoder_layer<2, 32, pg::dropout_rate<0.1>>, pg::dropout<0.1>,
                           pg::gru<16, pg::bidirectional>, pg::mean_over_positions, pg::linear<2>>;
using gpt = pg::network<
    pg::token_ids(128, 1000), pg::embedding<192>, pg::learned_positions,
    pg::residual<pg::layer_norm<>, pg::linear<576>, pg::scaled_dot_product_attention<12, pg::causal>, pg::linear<192>>,
    pg::residual<pg::layer_norm<>, pg::linear<768>, pg::gelu_tanh, pg::linear<192>>, pg::layer_norm<>,
    pg::linear<1000>>;

}  // namespace

namespace pergrad::inline v0_1::on_device {

#define GATE(...) template __global__ void run_kernel<__VA_ARGS__>(const __grid_constant__ __VA_ARGS__)
using tf32_blocks = tensor_blocks<tf32_format>;
using bf16_blocks = tensor_blocks<bf16_format>;
#define GATE_OF_TENSOR_BLOCKS(block, ...)                    \
  GATE(gemm_kernel<float, __VA_ARGS__, tf32_blocks::block>); \
  GATE(gemm_kernel<float, __VA_ARGS__, bf16_blocks::block>)
#define GATE_OF_ALL_BLOCKS(problem)                      \
  GATE(gemm_kernel<float, problem, slim_block>);         \
  GATE(gemm_kernel<float, problem, narrow_block>);       \
  GATE(gemm_kernel<float, problem, square_block>);       \
  GATE(gemm_kernel<float, problem, small_block>);        \
  GATE_OF_TENSOR_BLOCKS(narrow, problem);                \
  GATE_OF_TENSOR_BLOCKS(square, problem);                \
  GATE_OF_TENSOR_BLOCKS(large, problem);                 \
  GATE_OF_TENSOR_BLOCKS(wide, problem);                  \
  GATE(gemm_kernel<float, problem, tf32_blocks::broad>); \
  GATE_OF_TENSOR_BLOCKS(vast, problem)
GATE(sample_kernel<float, cross_entropy, program<cnn>::functions, 256, 0>);
GATE(sample_kernel<float, mean_squared_error, program<mlp>::functions, 128, 1>);
GATE(sample_kernel<float, cross_entropy, program<words>::functions, 256, 0>);
GATE(sample_kernel<float, cross_entropy, program<reader>::functions, 128, 1>);
GATE(sample_kernel<float, token_cross_entropy<>, program<gpt>::functions, sample_threads<gpt>, 1>);
#define GATE_OF_ATTENTION(...)                                      \
  GATE(attention_kernel<float, std::int32_t, __VA_ARGS__>);         \
  GATE(attention_queries_kernel<float, std::int32_t, __VA_ARGS__>); \
  GATE(attention_keys_kernel<float, std::int32_t, __VA_ARGS__>)
GATE_OF_ATTENTION(attention_sizes<float, 4, false>);
GATE_OF_ATTENTION(attention_sizes<float, 1, false>);
GATE_OF_ATTENTION(attention_sizes<float, 2, false>);
GATE_OF_ATTENTION(attention_sizes<float, 3, false>);
GATE_OF_ATTENTION(attention_sizes<float, 1, true>);
GATE_OF_ATTENTION(attention_sizes<float, 3, true>);
GATE(move_queries_kernel<float, std::int32_t>);
GATE(held_sample_kernel<float, cross_entropy, program<cnn>::functions, 1>);
GATE(held_sample_kernel<float, cross_entropy, program<mlp>::functions, 4>);
GATE(loss_kernel<float, cross_entropy>);
GATE(position_loss_kernel<float, token_cross_entropy<>, true>);
GATE(position_loss_kernel<float, token_cross_entropy<>, false>);
GATE(position_loss_kernel<float, cross_entropy, true>);
GATE(position_loss_kernel<float, cross_entropy, false>);
GATE(loss_of_positions_kernel<float, std::int32_t>);
GATE(norm_kernel<float, std::int32_t, false>);
GATE(norm_kernel<float, std::int32_t, true>);
GATE(node_kernel<float, std::int32_t, program<cnn>::functions>);
GATE(elementwise_kernel<float, std::int32_t>);
using functions = program<mlp>::functions;  // of nodes that products compute along
using joined_forward = affine_forward<float, false, functions>;
using joined_adjoint = affine_adjoint<float, false, functions>;
using joined_strided_adjoint = affine_strided_adjoint<float, functions>;
GATE_OF_ALL_BLOCKS(joined_forward);
GATE(gemm_kernel<float, affine_forward<float, true, functions>, square_block>);
GATE(gemm_kernel<float, affine_forward<float, true, functions>, small_block>);
GATE_OF_ALL_BLOCKS(joined_adjoint);
GATE(gemm_kernel<float, affine_adjoint<float, true, functions>, square_block>);
GATE(gemm_kernel<float, affine_adjoint<float, true, functions>, small_block>);
GATE_OF_ALL_BLOCKS(joined_strided_adjoint);
GATE(gemm_kernel<float, affine_forward<float, true, functions>, tiny_block>);
GATE(gemm_kernel<float, affine_adjoint<float, true, functions>, tiny_block>);
GATE(gemm_kernel<float, affine_squares<float>, strip_block>);
GATE(gemm_kernel<float, affine_squares<float>, slim_block>);
GATE(gemm_kernel<float, affine_squares<float>, narrow_block>);
GATE(gemm_kernel<float, affine_squares<float>, square_block>);
GATE_OF_TENSOR_BLOCKS(strip, affine_squares<float>);
GATE_OF_TENSOR_BLOCKS(narrow, affine_squares<float>);
GATE_OF_TENSOR_BLOCKS(square, affine_squares<float>);
GATE_OF_TENSOR_BLOCKS(wide, affine_squares<float>);
GATE_OF_TENSOR_BLOCKS(large, affine_squares<float>);
GATE(gemm_kernel<float, affine_sums<float, float>, slim_block>);
GATE(gemm_kernel<float, affine_sums<float, float>, narrow_block>);
GATE(gemm_kernel<float, affine_sums<float, float>, square_block>);
GATE(gemm_kernel<float, affine_sums<float, std::int64_t>, slim_block>);
GATE(gemm_kernel<float, affine_sums<float, std::int64_t>, narrow_block>);
GATE(gemm_kernel<float, affine_sums<float, std::int64_t>, double_block>);
GATE(gemm_kernel<float, affine_partials<float>, slim_block>);
GATE(gemm_kernel<float, affine_partials<float>, narrow_block>);
GATE(gemm_kernel<float, affine_partials<float>, square_block>);
GATE_OF_TENSOR_BLOCKS(strip, affine_partials<float>);
GATE_OF_TENSOR_BLOCKS(narrow, affine_partials<float>);
GATE_OF_TENSOR_BLOCKS(square, affine_partials<float>);
GATE_OF_TENSOR_BLOCKS(wide, affine_partials<float>);
GATE_OF_TENSOR_BLOCKS(large, affine_partials<float>);
#define GATE_OF_SMALL_SHARES(kind)                                                            \
  GATE(gemm_kernel<float, affine_sums<float, std::int64_t, share_kind::kind>, slim_block>);   \
  GATE(gemm_kernel<float, affine_sums<float, std::int64_t, share_kind::kind>, narrow_block>); \
  GATE(gemm_kernel<float, affine_sums<float, std::int64_t, share_kind::kind>, square_block>); \
  GATE(gemm_kernel<float, affine_shares<float, share_kind::kind>, strip_block>);              \
  GATE(gemm_kernel<float, affine_shares<float, share_kind::kind>, slim_block>);               \
  GATE(gemm_kernel<float, affine_shares<float, share_kind::kind>, narrow_block>);             \
  GATE(gemm_kernel<float, affine_shares<float, share_kind::kind>, square_block>);             \
  GATE_OF_TENSOR_BLOCKS(strip, affine_shares<float, share_kind::kind>);                       \
  GATE_OF_TENSOR_BLOCKS(narrow_of_shares, affine_shares<float, share_kind::kind>);            \
  GATE_OF_TENSOR_BLOCKS(square_of_shares, affine_shares<float, share_kind::kind>);            \
  GATE_OF_TENSOR_BLOCKS(wide_of_shares, affine_shares<float, share_kind::kind>);              \
  GATE_OF_TENSOR_BLOCKS(large, affine_shares<float, share_kind::kind>)
GATE_OF_SMALL_SHARES(converted);  // of more than a million parameters
GATE_OF_SMALL_SHARES(shifted);
GATE(gemm_kernel<float, affine_shares<float>, slim_block>);
GATE(gemm_kernel<float, affine_shares<float>, narrow_block>);
GATE(gemm_kernel<float, affine_shares<float>, double_block>);
GATE_OF_TENSOR_BLOCKS(strip, affine_shares<float>);
GATE_OF_TENSOR_BLOCKS(narrow_of_shares, affine_shares<float>);
GATE_OF_TENSOR_BLOCKS(square_of_shares, affine_shares<float>);
GATE(bias_kernel<float, 128>);
GATE(rounding_kernel<float, 128>);
GATE(gather_kernel<float, std::int32_t, 128>);
GATE(sum_kernel<float, std::int32_t, float, 256>);
GATE(sum_kernel<float, std::int32_t, std::int64_t, 256>);
GATE(row_kernel<float, std::int32_t, 256>);
GATE(projection_kernel<float, std::int32_t, 256>);
GATE(fold_kernel<float>);
GATE(clear_kernel);
GATE(square_partials_kernel<float>);
GATE(fold_partials_kernel<float, float>);
GATE(fold_partials_kernel<float, std::int64_t>);

}  // namespace pergrad::inline v0_1::on_device
