// SPDX-License-Identifier: Apache-2.0
// tests/cuda/nvcc/every_layer.hpp - networks that have, together, every layer of docs/layers.md, and one private step
// of each
#pragma once

#include <cstddef>
#include <cstdint>
#include <ratio>
#include <type_traits>
#include <vector>

#include <pergrad.hpp>

#include "training.hpp"

namespace every_layer {

namespace pg = pergrad;

template <std::size_t Out>
using images =
    pg::network<pg::shape{3, 9, 8}, pg::augment<pg::random_flip>, pg::augment<pg::random_shift<2>>,
                pg::conv2d<4, 3, pg::padding<1>>, pg::group_norm<2>, pg::leaky_relu<>,
                pg::conv2d<4, 3, pg::padding<2>, pg::dilation<2>, pg::groups<2>, pg::no_bias>, pg::instance_norm2d<>,
                pg::elu<>, pg::residual<pg::channel_affine, pg::group_sort<>, pg::projection<pg::conv2d<4, 1>>>,
                pg::max_pool2d<3, pg::stride<2>, pg::padding<1>>,
                pg::conv_transpose2d<6, 3, pg::stride<2>, pg::padding<1>, pg::output_padding<1>, pg::groups<2>>,
                pg::parallel<pg::sequential<>, pg::sequential<pg::conv2d<2, 1>, pg::sigmoid>>, pg::avg_pool2d<2>,
                pg::upsample<2>, pg::adaptive_avg_pool2d<2, 3>, pg::frozen<pg::channel_affine>,
                pg::reshape<pg::shape{6, 8}>, pg::layer_norm<pg::axes<2>, pg::no_affine>, pg::flatten,
                pg::group_norm<3>, pg::dropout<0.25>, pg::linear<Out>>;
template <std::size_t Out>
using volumes =
    pg::network<pg::shape{2, 5, 6, 7}, pg::conv3d<4, 2, pg::stride<1, 2, 2>, pg::padding<1>>, pg::softplus,
                pg::instance_norm3d<>, pg::max_pool3d<2>, pg::upsample<pg::extent{2, 1, 2}>, pg::conv3d<3, 2>, pg::silu,
                pg::avg_pool3d<pg::extent{2, 1, 1}>, pg::adaptive_avg_pool3d<1, 2, 2>, pg::flatten,
                pg::lora<2, pg::linear<6>>, pg::tanh, pg::repeat<2, pg::linear<6>, pg::gelu_tanh>,
                pg::tied<0, pg::linear<6>>, pg::gelu, pg::recomputed<pg::linear<6>, pg::relu>,
                pg::tied<0, pg::linear<6>>, pg::scale<std::ratio<1, 3>>, pg::parameter_group<1, pg::linear<Out>>>;
template <std::size_t Out>
using signals =
    pg::network<pg::shape{4, 19}, pg::conv1d<6, 3, pg::padding<1>, pg::groups<2>>, pg::instance_norm1d<>, pg::tanh,
                pg::max_pool1d<3, pg::stride<2>, pg::padding<1>>, pg::conv1d<5, 2, pg::dilation<2>, pg::no_bias>,
                pg::sigmoid, pg::upsample<2>, pg::avg_pool1d<3>,
                pg::parallel_channels<pg::sequential<>, pg::sequential<pg::conv1d<2, 1>>>, pg::adaptive_avg_pool1d<3>,
                pg::transpose, pg::take_positions<1, 2>,
                pg::with_state<pg::lstm<3, pg::layers<2>>, pg::sequence<pg::linear<4>>,
                               pg::state<pg::flatten, pg::slice<1, 12>, pg::linear<12>>>,
                pg::flatten, pg::slice<0, 5>, pg::linear<Out>>;
/// Of positions that are there in part.
template <std::size_t Out>
using sequences = pg::network<
    pg::variable(pg::shape{9, 4}),
    pg::parallel<
        pg::sequential<pg::transpose, pg::conv1d<4, 2, pg::stride<1>>, pg::max_pool1d<2, pg::stride<1>>,
                       pg::avg_pool1d<2, pg::stride<1>>, pg::transpose, pg::mean_over_positions>,
        pg::sequential<pg::rnn<3, pg::relu_cell, pg::bidirectional>, pg::gru<4, pg::layers<2>, pg::one_bias>,
                       pg::lstm<2, pg::bidirectional, pg::no_bias>,
                       pg::with_state<pg::gru<6>, pg::sequence<>, pg::state<pg::mean_over_positions, pg::linear<6>>>,
                       pg::multihead_attention<2, pg::kv_bias>,
                       pg::cross_attention<2, pg::queries<pg::linear<6>>, pg::memory<pg::linear<3>>, pg::kv_bias>,
                       pg::multihead_attention<1, pg::causal, pg::no_bias, pg::attention_dropout<0.25>>,
                       pg::merge<pg::elementwise_product, pg::sequential<pg::linear<6>>, pg::sequential<pg::sigmoid>>,
                       pg::added_bias, pg::rms_norm<>, pg::take_positions<0, 8>,
                       pg::parallel<pg::sequential<pg::select_last>, pg::sequential<pg::rnn<3, pg::mean_output>>,
                                    pg::sequential<pg::gru<3, pg::last_output, pg::bidirectional>>>>>,
    pg::linear<Out>>;
/// A language model, whose table is used at both of its ends.
template <std::size_t Words>
using texts =
    pg::network<pg::variable(pg::token_ids(6, Words)), pg::tied<0, pg::embedding<8>>, pg::sinusoidal_positions,
                pg::learned_positions, pg::dropout<0.1>,
                pg::residual<pg::rms_norm<>, pg::lora<2, pg::linear<16, pg::no_bias>>,
                             pg::scaled_dot_product_attention<4, pg::causal, pg::key_value_heads<2>, pg::rotary<>>>,
                pg::recomputed<pg::residual<pg::layer_norm<>, pg::swiglu<8>>>,
                pg::transformer_encoder_layer<2, 5, pg::pre_norm, pg::gelu_activation, pg::dropout_rate<0.1>>,
                pg::transformer_encoder_layer<2, 5>, pg::group_sort<4>, pg::tied<0, pg::linear<Words, pg::no_bias>>>;
template <std::size_t Out>
using bags =
    pg::network<pg::variable(pg::token_ids(6, 9)),
                pg::parallel<pg::sequential<pg::embedding_bag<5, pg::padding_idx<1>>>,
                             pg::sequential<pg::embedding_bag<3, pg::bag_sum>>,
                             pg::sequential<pg::embedding<4, pg::padding_idx<0>>, pg::sequence_bias, pg::select_last>>,
                pg::linear<Out>>;

/// How many outputs a network has whose samples take a block each, and one whose layers have kernels.
inline constexpr std::size_t fused = 4, layered = 5;

/// `count` records by an arithmetic rule, with lengths where they vary.
template <class Network, class Loss>
struct records_of {
  using value = typename Network::input_value;
  using target = pg::target_of<Loss, float>;
  static constexpr std::size_t positions = requires { Loss::ignores(0); }
  ? Network::output_shape.e0 : 1;
  std::vector<value> inputs;
  std::vector<target> targets;
  std::vector<std::uint32_t> lengths;

  explicit records_of(std::size_t count) {
    std::uint32_t state = 1;
    const auto below = [&](std::size_t bound) {
      state = state * 1664525U + 1013904223U;  // Numerical Recipes
      return static_cast<std::size_t>(state >> 8U) % bound;
    };
    const auto fill = [&](auto& values, std::size_t size, std::size_t bound, float least) {
      using element = typename std::remove_reference_t<decltype(values)>::value_type;
      for (std::size_t i = 0; i < size; ++i) {
        values.push_back(std::is_integral_v<element>
                             ? static_cast<element>(below(bound))
                             : static_cast<element>(least + (1 - least) * static_cast<float>(below(1000)) / 1000));
      }
    };
    fill(inputs, count * Network::input_shape.size(), Network::input_shape.ids, -1);
    fill(targets, count * Loss::target_count(Network::output_shape), Network::output_shape.size() / positions, 0);
    lengths.resize(Network::input_shape.varying_axis() == 0 ? 0 : count);
    for (std::uint32_t& each : lengths) each = static_cast<std::uint32_t>(1 + below(Network::input_shape.e0));
  }
};

/// After a private step with half of 24 records.
template <class Network, class Loss, class Executor>
[[nodiscard]] device_training::outcome train(const Executor& executor, std::size_t max_batch) {
  const records_of<Network, Loss> records{24};
  pg::dp_sgd_options options = device_training::make_options({});
  options.sampling = pg::poisson_sampling{pg::sampling_probability{0.5}};
  options.divisor = pg::expected_batch_size{12};
  options.max_batch = pg::max_batch{max_batch};
  Network net{executor, pg::kaiming_uniform{1}};
  device_training::outcome result;
  const auto parameters = [&net] { return std::vector<float>(net.parameters().begin(), net.parameters().end()); };
  result.before = parameters();
  pg::dp_sgd trainer{executor, net, Loss{}, options, pg::seeded_generator{7}};
  trainer.step(pg::dataset<typename Network::input_value, pg::target_of<Loss, float>>{
      records.inputs, records.targets, Network::input_shape, Loss::target_count(Network::output_shape),
      records.lengths});
  result.after = parameters();
  return result;
}

/// Networks of both plans, and all losses but cross entropy, which other tests have.
#define EVERY_NETWORK(do_with)                                    \
  do_with(images<layered>, pg::binary_cross_entropy_with_logits); \
  do_with(volumes<layered>, pg::focal<>);                         \
  do_with(signals<fused>, pg::huber<>);                           \
  do_with(sequences<fused>, pg::mean_squared_error);              \
  do_with(texts<10>, pg::token_cross_entropy<>);                  \
  do_with(bags<fused>, pg::binary_focal_with_logits<>);           \
  do_with(bags<layered>, pg::cross_entropy_with_label_smoothing<0.1>)

}  // namespace every_layer

namespace pergrad::inline v0_1::on_device {
template <>
inline constexpr plan_kind plan_of<every_layer::images<every_layer::layered>> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<every_layer::volumes<every_layer::layered>> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<every_layer::texts<10>> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<every_layer::bags<every_layer::layered>> = plan_kind::layered;
}  // namespace pergrad::inline v0_1::on_device
