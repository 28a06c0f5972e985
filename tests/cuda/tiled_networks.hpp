// SPDX-License-Identifier: Apache-2.0
// tests/cuda/tiled_networks.hpp - networks that have, together, every layer on tiles with its options
#pragma once

#include <cstddef>

#include <pergrad/cuda/plan/build.hpp>
#include <pergrad/pergrad.hpp>

namespace tiled_networks {

namespace pg = pergrad;

// Embeddings and positions.
template <class Scalar, std::size_t Out = 3>
using words = pg::basic_network<Scalar, pg::variable(pg::token_ids(6, 9)), pg::embedding<4, pg::padding_idx<2>>,
                                pg::sinusoidal_positions, pg::learned_positions, pg::sequence_bias,
                                pg::mean_over_positions, pg::linear<Out>>;
template <class Scalar, std::size_t Out = 3>
using bags = pg::basic_network<Scalar, pg::variable(pg::token_ids(6, 9)),
                               pg::parallel<pg::sequential<pg::embedding_bag<5, pg::padding_idx<1>>>,
                                            pg::sequential<pg::embedding_bag<3, pg::bag_sum>>>,
                               pg::tanh, pg::linear<Out>>;
// Recurrent layers: lengths, directions, stacks, biases, states.
template <class Scalar, std::size_t Out = 3>
using lstms = pg::basic_network<Scalar, pg::variable(pg::shape{5, 4}), pg::lstm<3, pg::bidirectional>,
                                pg::lstm<4, pg::layers<2>, pg::one_bias>, pg::mean_over_positions, pg::linear<Out>>;
template <class Scalar, std::size_t Out = 3>
using grus = pg::basic_network<Scalar, pg::variable(pg::shape{5, 4}), pg::gru<3, pg::bidirectional>,
                               pg::gru<5, pg::last_output, pg::no_bias>, pg::linear<Out>>;
template <class Scalar, std::size_t Out = 3>
using wide_recurrent = pg::basic_network<Scalar, pg::variable(pg::shape{6, 4}), pg::lstm<20, pg::one_bias>, pg::gru<18>,
                                         pg::rnn<70, pg::mean_output>, pg::linear<Out>>;
template <class Scalar, std::size_t Out = 3>
using rnns = pg::basic_network<Scalar, pg::variable(pg::shape{5, 4}), pg::rnn<6, pg::relu_cell>,
                               pg::rnn<5, pg::mean_output>, pg::linear<Out>>;
template <class Scalar, std::size_t Out = 3>
using states = pg::basic_network<Scalar, pg::shape{5, 4},
                                 pg::with_state<pg::lstm<3, pg::layers<2>>, pg::sequence<pg::linear<4>>,
                                                pg::state<pg::flatten, pg::slice<1, 12>, pg::linear<12>>>,
                                 pg::take_positions<1, 3>, pg::select_last, pg::linear<Out>>;
// Attention.
template <class Scalar, std::size_t Out = 3>
using attention =
    pg::basic_network<Scalar, pg::variable(pg::shape{5, 4}), pg::multihead_attention<2, pg::kv_bias>,
                      pg::multihead_attention<1, pg::causal, pg::no_bias>,
                      pg::cross_attention<2, pg::queries<pg::linear<6>>, pg::memory<pg::linear<3>>, pg::kv_bias>,
                      pg::linear<12>, pg::scaled_dot_product_attention<2>, pg::mean_over_positions, pg::linear<Out>>;
template <class Scalar, std::size_t Out = 3>
using transformer = pg::basic_network<Scalar, pg::variable(pg::shape{5, 4}), pg::transformer_encoder_layer<2, 5>,
                                      pg::rms_norm<>, pg::mean_over_positions, pg::linear<Out>>;
// As many positions and features as a thread takes several results of a product at a time; no size is a multiple of
// four.
template <class Scalar, std::size_t Out = 3>
using long_attention = pg::basic_network<Scalar, pg::variable(pg::shape{29, 21}), pg::multihead_attention<1>,
                                         pg::residual<pg::layer_norm<>, pg::multihead_attention<1, pg::causal>>,
                                         pg::mean_over_positions, pg::linear<Out>>;
// Several tiles of positions, the last one short, and heads that are no multiple of anything; rows of projections and
// of the input; one layer that shares its input with others.
template <class Scalar, std::size_t Out = 3>
using tiles_of_attention = pg::basic_network<
    Scalar, pg::variable(pg::shape{70, 10}), pg::multihead_attention<2>,
    pg::residual<pg::multihead_attention<1, pg::causal>>, pg::linear<39>,
    pg::merge<pg::elementwise_product, pg::sequential<pg::scaled_dot_product_attention<1, pg::causal>>,
              pg::sequential<pg::linear<13>>>,
    pg::linear<12>, pg::scaled_dot_product_attention<2>, pg::mean_over_positions, pg::linear<Out>>;
// A block of LLaMA's kind, and a bias apart from its weight.
template <class Scalar, std::size_t Out = 3>
using llama_block =
    pg::basic_network<Scalar, pg::variable(pg::shape{5, 4}), pg::linear<16, pg::no_bias>,
                      pg::scaled_dot_product_attention<4, pg::causal, pg::key_value_heads<2>, pg::rotary<>>,
                      pg::rms_norm<>, pg::group_sort<4>, pg::swiglu<3>, pg::frozen<pg::linear<4, pg::no_bias>>,
                      pg::added_bias, pg::mean_over_positions, pg::linear<Out>>;
// Norms.
template <class Scalar, std::size_t Out = 3>
using image_norms = pg::basic_network<Scalar, pg::shape{4, 5, 3}, pg::conv2d<4, 3, pg::padding<1>>, pg::group_norm<2>,
                                      pg::instance_norm2d<pg::no_affine>, pg::channel_affine, pg::group_sort<>,
                                      pg::conv2d<2, 3>, pg::instance_norm2d<>, pg::flatten, pg::linear<Out>>;
template <class Scalar, std::size_t Out = 3>
using row_norms =
    pg::basic_network<Scalar, pg::shape{3, 4}, pg::residual<pg::layer_norm<>, pg::linear<4>>,
                      pg::layer_norm<pg::axes<2>, pg::no_affine>,
                      pg::parallel_channels<pg::sequential<pg::conv1d<2, 1>>, pg::sequential<pg::instance_norm1d<>>>,
                      pg::flatten, pg::group_norm<2>, pg::linear<Out>>;
// Random bits, in training.
template <class Scalar, std::size_t Out = 3>
using dropped = pg::basic_network<Scalar, pg::variable(pg::shape{5, 4}), pg::dropout<1.0 / 3>,
                                  pg::transformer_encoder_layer<2, 5, pg::dropout_rate<0.1>>,
                                  pg::multihead_attention<2, pg::attention_dropout<0.25>, pg::causal>,
                                  pg::mean_over_positions, pg::linear<20>, pg::dropout<0.1>, pg::linear<Out>>;
// So many elements that layers whose elements, rows, channels or groups know nothing of each other go by several
// blocks.
template <class Scalar, std::size_t Out = 3>
using large_images =
    pg::basic_network<Scalar, pg::shape{8, 32, 33}, pg::group_norm<4>, pg::channel_affine, pg::group_sort<>,
                      pg::instance_norm2d<>, pg::parallel<pg::sequential<>, pg::sequential<pg::tanh>>, pg::flatten,
                      pg::group_norm<3>, pg::linear<Out>>;
template <class Scalar, std::size_t Out = 3>
using large_rows =
    pg::basic_network<Scalar, pg::variable(pg::shape{70, 62}), pg::added_bias,
                      pg::merge<pg::elementwise_product, pg::sequential<pg::tanh>, pg::sequential<pg::sigmoid>>,
                      pg::parallel<pg::sequential<>, pg::sequential<pg::tanh>>, pg::take_positions<0, 68>,
                      pg::parallel<pg::sequential<pg::mean_over_positions>, pg::sequential<pg::select_last>>,
                      pg::linear<Out>>;
template <class Scalar, std::size_t Out = 3>
using moved_images = pg::basic_network<Scalar, pg::shape{3, 41, 40}, pg::augment<pg::random_flip>, pg::conv2d<3, 1>,
                                       pg::augment<pg::random_shift<3>>, pg::flatten, pg::linear<Out>>;

}  // namespace tiled_networks

// Those with four outputs are layered. Once for all tests: several may be compiled as one.
namespace pergrad::inline v0_1::on_device {
template <>
inline constexpr plan_kind plan_of<tiled_networks::words<double, 4>> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<tiled_networks::lstms<double, 4>> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<tiled_networks::wide_recurrent<double, 4>> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<tiled_networks::grus<double, 4>> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<tiled_networks::states<double, 4>> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<tiled_networks::attention<double, 4>> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<tiled_networks::attention<float, 4>> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<tiled_networks::transformer<double, 4>> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<tiled_networks::llama_block<double, 4>> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<tiled_networks::llama_block<float, 4>> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<tiled_networks::long_attention<double, 4>> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<tiled_networks::long_attention<float, 4>> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<tiled_networks::tiles_of_attention<double, 4>> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<tiled_networks::tiles_of_attention<float, 4>> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<tiled_networks::image_norms<double, 4>> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<tiled_networks::large_images<double, 4>> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<tiled_networks::large_rows<double, 4>> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<tiled_networks::moved_images<double, 4>> = plan_kind::layered;
}  // namespace pergrad::inline v0_1::on_device
