// SPDX-License-Identifier: Apache-2.0
// tests/host/large_network_test.cpp - networks that are large, which do without copies of their weights, beside the
// same networks that are not
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <type_traits>
#include <vector>

#include <pergrad/models.hpp>
#include <pergrad/pergrad.hpp>

#include "comparing.hpp"
#include "told.hpp"

namespace large_network {

namespace pg = pergrad;

template <class Scalar, class... More>
using language_model =
    pg::basic_network<Scalar, pg::token_ids(19, 70), pg::tied<0, pg::embedding<24>>, pg::learned_positions,
                      pg::repeat<2, pg::models::detail::gpt2_block<24, 3, pg::models::everything>>, pg::layer_norm<>,
                      More..., pg::tied<0, pg::linear<70, pg::no_bias>>>;
// Its table is a table alone: samples leave the rows that they use.
template <class Scalar, class... More>
using text_network =
    pg::basic_network<Scalar, pg::token_ids(19, 300), pg::embedding<24>, pg::learned_positions,
                      pg::repeat<2, pg::models::detail::gpt2_block<24, 3, pg::models::everything>>, pg::layer_norm<>,
                      pg::select_last, More..., pg::linear<40>, pg::tanh, pg::linear<2>>;
template <class Scalar, class... More>
using image_network = pg::basic_network<Scalar, pg::shape{5, 7, 6}, pg::conv2d<9, 1>, pg::relu,
                                        pg::residual<pg::conv2d<9, 1>, pg::tanh>, pg::conv2d<4, 3, pg::padding<1>>,
                                        pg::conv2d<6, 1, pg::stride<2>>, pg::flatten, pg::linear<11>, More...>;
template <class Scalar, class... More>
using sequence_network =
    pg::basic_network<Scalar, pg::variable(pg::shape{17, 20}), pg::transformer_encoder_layer<2, 30>,
                      pg::frozen<pg::linear<17>>, pg::linear<17>, pg::mean_over_positions, pg::linear<3>, More...>;

// Weights that two layers share, of which no table is made.
template <class Scalar, class... More>
using tied_network = pg::basic_network<Scalar, pg::shape{20}, pg::tied<0, pg::linear<20>>, pg::tanh,
                                       pg::tied<0, pg::linear<20>>, pg::tanh, More..., pg::linear<3>>;

// Tuned by adapters, with more frozen blocks in front; dropout, and projections that are tuned next to some that are
// not.
template <class Scalar, std::size_t Frozen, class... More>
using tuned_model = pg::basic_network<
    Scalar, pg::token_ids(19, 70), pg::frozen<pg::embedding<24>>, pg::frozen<pg::learned_positions>,
    pg::frozen<pg::repeat<Frozen, pg::models::detail::gpt2_block<24, 3, pg::models::everything>>>,
    pg::repeat<2, pg::models::detail::gpt2_block<24, 3, pg::models::lora_on<2, "c_attn", "c_fc">>, pg::dropout<0.25>>,
    pg::frozen<pg::layer_norm<>>, More..., pg::frozen<pg::linear<70, pg::no_bias>>>;
// Of numbers, which may be infinite.
template <class Scalar, class... More>
using tuned_sequences =
    pg::basic_network<Scalar, pg::shape{17, 24}, pg::frozen<pg::linear<24>>,
                      pg::models::detail::llama_block_of<
                          pg::models::llama_size{.features = 24, .heads = 6, .key_value_heads = 2, .feed_forward = 20},
                          pg::models::lora_on<2, "q_proj", "gate_proj", "down_proj">>,
                      pg::mean_over_positions, pg::linear<3>, More...>;

// One channel, and positions: the order of what is flattened stays, and with it the image.
template <class... More>
using flat_image =
    pg::basic_network<double, pg::shape{1, 8, 12}, pg::flatten, pg::linear<20>, pg::tanh, More..., pg::linear<3>>;
template <class... More>
using flat_sequence = pg::basic_network<double, pg::shape{32, 3}, pg::linear<2>, pg::tanh, pg::flatten, pg::linear<40>,
                                        More..., pg::linear<3>>;
// The convolution reads zeros around its output's gradient.
template <class... More>
using flat_map = pg::basic_network<double, pg::shape{1, 8, 12}, pg::conv2d<2, 3>, pg::conv2d<1, 3, pg::padding<1>>,
                                   pg::flatten, pg::linear<20>, pg::linear<5>, More..., pg::linear<3>>;

// Both uses of the table leave what their ids' rows have in common, wider than there are ids, to the end.
template <class... More>
using bags =
    pg::basic_network<double, pg::token_ids(7, 3),
                      pg::parallel<pg::sequential<pg::tied<0, pg::embedding_bag<64>>, pg::linear<8>, pg::tanh,
                                                  pg::linear<40>, pg::tanh, pg::linear<40>, pg::tanh, pg::linear<5>>,
                                   pg::tied<0, pg::embedding_bag<64>>>,
                      pg::tanh, More..., pg::linear<3>>;

using large = told_results::twin<0>;
/// Its samples' values share places by the times when they are needed.
using timed = told_results::twin<1>;

}  // namespace large_network

namespace pergrad::inline v0_1::on_host {
template <>
inline constexpr std::size_t large_from<large_network::language_model<float, large_network::large>> = 0;
template <>
inline constexpr std::size_t large_from<large_network::text_network<float, large_network::large>> = 0;
template <>
inline constexpr std::size_t large_from<large_network::image_network<float, large_network::large>> = 0;
template <>
inline constexpr std::size_t large_from<large_network::sequence_network<double, large_network::large>> = 0;
template <>
inline constexpr std::size_t large_from<large_network::tied_network<float, large_network::large>> = 0;
template <>
inline constexpr std::size_t large_from<large_network::flat_image<large_network::large>> = 0;
template <>
inline constexpr std::size_t large_from<large_network::flat_sequence<large_network::large>> = 0;
template <>
inline constexpr std::size_t large_from<large_network::flat_map<large_network::large>> = 0;
// What is trained of these is less than that.
template <>
inline constexpr std::size_t large_from<large_network::tuned_model<float, 0, large_network::large>> = 6000;
template <>
inline constexpr std::size_t large_from<large_network::tuned_model<float, 1, large_network::large>> = 6000;
template <>
inline constexpr std::size_t large_from<large_network::tuned_model<float, 6, large_network::large>> = 6000;
template <>
inline constexpr std::size_t large_from<large_network::tuned_sequences<float, large_network::large>> = 6000;
template <>
inline constexpr index places_by_times_from<large_network::text_network<float, large_network::timed>> = 0;
template <>
inline constexpr index places_by_times_from<large_network::image_network<float, large_network::timed>> = 0;
template <>
inline constexpr index places_by_times_from<large_network::sequence_network<double, large_network::timed>> = 0;
template <>
inline constexpr index places_by_times_from<large_network::bags<large_network::timed>> = 0;
}  // namespace pergrad::inline v0_1::on_host

BOOST_AUTO_TEST_SUITE(large_networks)

namespace {

namespace pg = pergrad;
using comparing::same_bits;
using large_network::large;
using large_network::timed;
using told_results::records;
using told_results::told;

/// How far the noise of two steps of `told` that add up in floating point may be from that of two with integers: its
/// deviation is larger by what additions may round, and by 2^-10 for roundings to the grid (privacy/sensitivity.hpp).
/// 5.5 deviations: one of a million elements is further away.
template <class Scalar>
double noise_of_roundings() {
  constexpr double step = 0.5 / 6 * 0.5 * 0.1;  // rate / divisor * multiplier * clip norm
  return 5.5 * std::sqrt(2.0) * step * (pg::summation::of<Scalar>(2048).share() + 0x1p-10);
}

template <class Network, class Twin, class Loss>
void compare_results(double tolerance) {
  const told<Network, Loss> wanted{2};
  const told<Twin, Loss> found{2};
  BOOST_TEST(same_bits(found.losses, wanted.losses));
  comparing::check_close(found.norms, wanted.norms, tolerance, "norms");
  comparing::check_close(found.sum, wanted.sum, tolerance, "sum");
  comparing::check_close(found.formed, wanted.sum, tolerance, "sum, where norms would be of formed gradients");
  comparing::check_close(found.means, wanted.means, tolerance, "means");
  comparing::check_close(found.rows, wanted.rows, tolerance, "gradients");
  comparing::check_close(found.dots, wanted.dots, 10 * tolerance, "dots");
  // Weights are as small as a bound of a norm is large, and that of dots in the scalar is what their rounding may be.
  const double weighted = static_cast<double>(std::numeric_limits<typename Network::scalar>::epsilon()) * 2048;
  comparing::check_close(found.clipped, wanted.clipped, weighted, "clipped sum");
  comparing::check_close(found.ghost, found.clipped, tolerance, "clipped sum of two passes");
  for (const int floating : {0, 1})
    comparing::check_close(found.trained[floating], wanted.trained[floating], weighted, "training");
  const double apart = comparing::largest_difference(found.trained[0], found.trained[1]);
  BOOST_TEST(apart <= noise_of_roundings<typename Network::scalar>(), "sums of integers: off by " << apart);
  for (const std::size_t threads : {1U, 3U, 5U}) {
    const told<Twin, Loss> again{threads};
    BOOST_TEST(same_bits(again.norms, found.norms));
    BOOST_TEST(same_bits(again.sum, found.sum));
    BOOST_TEST(same_bits(again.clipped, found.clipped));
    BOOST_TEST(same_bits(again.rows, found.rows));
    BOOST_TEST(same_bits(again.trained[0], found.trained[0]));
    BOOST_TEST(same_bits(again.trained[1], found.trained[1]));
  }
}

template <bool Shares, class Network, class Twin, class Loss>
void compare(double tolerance) {
  static_assert(pg::on_host::program<Twin>::table.shares_sums == Shares);
  static_assert(pg::on_host::program<Twin>::table.reads_weights);
  static_assert(!pg::on_host::program<Network>::table.reads_weights);
  static_assert(pg::on_host::program<Twin>::table.panel_size < pg::on_host::program<Network>::table.panel_size);
  compare_results<Network, Twin, Loss>(tolerance);
}

}  // namespace

BOOST_AUTO_TEST_CASE(tables_that_nobody_multiplies_with) {
  static_assert(pg::on_host::program<large_network::text_network<float, large>>::table.sparse_count > 0);
  compare<true, large_network::text_network<float>, large_network::text_network<float, large>, pg::cross_entropy>(1e-5);
}
BOOST_AUTO_TEST_CASE(places_by_times) {
  const auto compare_places = []<class Network, class Twin>(std::type_identity<Network> /*network*/,
                                                            std::type_identity<Twin> /*twin*/, auto loss,
                                                            double tolerance) {
    static_assert(pg::on_host::program<Twin>::table.workspace < pg::on_host::program<Network>::table.workspace);
    static_assert(pg::on_host::program<Twin>::table.panel_size == pg::on_host::program<Network>::table.panel_size);
    compare_results<Network, Twin, decltype(loss)>(tolerance);
  };
  compare_places(std::type_identity<large_network::text_network<float>>{},
                 std::type_identity<large_network::text_network<float, timed>>{}, pg::cross_entropy{}, 1e-5);
  compare_places(std::type_identity<large_network::image_network<float>>{},
                 std::type_identity<large_network::image_network<float, timed>>{}, pg::mean_squared_error{}, 1e-5);
  compare_places(std::type_identity<large_network::sequence_network<double>>{},
                 std::type_identity<large_network::sequence_network<double, timed>>{}, pg::mean_squared_error{}, 1e-13);
}
BOOST_AUTO_TEST_CASE(a_row_that_is_wider_than_its_table_is_long) {
  comparing::check_close(told_results::rows_of<large_network::bags<timed>, pg::cross_entropy>(),
                         told_results::rows_of<large_network::bags<>, pg::cross_entropy>(), 1e-13, "rows");
}
BOOST_AUTO_TEST_CASE(language_models) {
  compare<true, large_network::language_model<float>, large_network::language_model<float, large>,
          pg::token_cross_entropy<>>(1e-5);
}
BOOST_AUTO_TEST_CASE(weights_of_two_layers) {
  compare<true, large_network::tied_network<float>, large_network::tied_network<float, large>, pg::mean_squared_error>(
      1e-5);
}
BOOST_AUTO_TEST_CASE(images) {
  compare<false, large_network::image_network<float>, large_network::image_network<float, large>,
          pg::mean_squared_error>(1e-5);
}
BOOST_AUTO_TEST_CASE(what_is_flattened) {
  const auto compare_rows = []<class Network, class Twin>(std::type_identity<Network> /*network*/,
                                                          std::type_identity<Twin> /*twin*/) {
    static_assert(pg::on_host::program<Twin>::table.reads_weights);
    comparing::check_close(told_results::rows_of<Twin, pg::cross_entropy>(),
                           told_results::rows_of<Network, pg::cross_entropy>(), 1e-13, "rows");
  };
  compare_rows(std::type_identity<large_network::flat_image<>>{},
               std::type_identity<large_network::flat_image<large>>{});
  compare_rows(std::type_identity<large_network::flat_sequence<>>{},
               std::type_identity<large_network::flat_sequence<large>>{});
  compare_rows(std::type_identity<large_network::flat_map<>>{}, std::type_identity<large_network::flat_map<large>>{});
}
BOOST_AUTO_TEST_CASE(sequences_with_lengths) {
  compare<true, large_network::sequence_network<double>, large_network::sequence_network<double, large>,
          pg::mean_squared_error>(1e-13);
}
BOOST_AUTO_TEST_CASE(adapters) {
  compare<false, large_network::tuned_model<float, 1>, large_network::tuned_model<float, 1, large>,
          pg::token_cross_entropy<>>(1e-5);
  compare<false, large_network::tuned_sequences<float>, large_network::tuned_sequences<float, large>,
          pg::mean_squared_error>(1e-5);
}
BOOST_AUTO_TEST_CASE(frozen_layers_in_front_keep_nothing) {
  constexpr auto workspace = []<std::size_t Frozen>(std::integral_constant<std::size_t, Frozen>) {
    return pg::on_host::program<large_network::tuned_model<float, Frozen, large>>::table.workspace;
  };
  constexpr auto none = workspace(std::integral_constant<std::size_t, 0>{});
  constexpr auto one = workspace(std::integral_constant<std::size_t, 1>{});
  static_assert(100 * one < 102 * none);  // gaps lie elsewhere
  static_assert(workspace(std::integral_constant<std::size_t, 6>{}) == one);
  static_assert(3 * none < 2 * pg::on_host::program<large_network::tuned_model<float, 0>>::table.workspace);
}
BOOST_AUTO_TEST_CASE(a_sample_that_is_not_finite_adds_nothing) {
  using net = large_network::tuned_sequences<float, large>;
  using loss = pg::mean_squared_error;
  const pg::host exec{pg::threads{2}};
  const net network{exec, pg::normal{.seed = 3, .standard_deviation = 0.3}};
  std::mt19937 random{7};
  std::vector<float> inputs(records * net::input_shape.size()), targets(records * 3);
  for (float& each : inputs) each = std::uniform_real_distribution<float>{-1, 1}(random);
  for (float& each : targets) each = std::uniform_real_distribution<float>{-1, 1}(random);
  const auto clipped_sum = [&](std::size_t count) {
    const pg::batch<net, loss> samples{std::span<const float>{inputs}.first(count * net::input_shape.size()),
                                       std::span<const float>{targets}.first(count * 3)};
    pg::tape<net> tape{exec, pg::max_batch{records}};
    std::vector<float> sum(net::parameter_count);
    const auto g = pg::per_sample_gradients(network, loss{}, samples, tape);
    pg::unprotected::evaluate_into(exec, pg::assign(std::span{sum}, pg::sum(pg::clip(g, pg::l2_clip_norm{0.1}))));
    return sum;
  };
  const std::vector<float> wanted = clipped_sum(records - 1);
  inputs.back() = std::numeric_limits<float>::infinity();
  const std::vector<float> found = clipped_sum(records);
  comparing::check_close(found, wanted, 1e-6, "without the last one");
}

BOOST_AUTO_TEST_SUITE_END()
