// SPDX-License-Identifier: Apache-2.0
// tests/host/recomputed_test.cpp - networks with recomputed blocks beside the same networks without: every bit is the
// same, and memory is less
#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <tuple>
#include <type_traits>
#include <vector>

#include <pergrad/models.hpp>
#include <pergrad/pergrad.hpp>
#include <pergrad/testing/layer_laws.hpp>

#include "comparing.hpp"
#include "told.hpp"

namespace recomputed_networks {

namespace pg = pergrad;

template <class... Layers>
using kept = pg::sequential<Layers...>;
template <class... Layers>
using again = pg::recomputed<Layers...>;
using told_results::twin;

/// x + b and a gain, one of each an element, by a user's layer, which the host hands copies.
struct gain_and_bias {
  [[nodiscard]] static constexpr pg::shape output_shape(pg::shape in) { return in; }
  [[nodiscard]] static constexpr std::size_t parameter_count(pg::shape in) { return 2 * in.size(); }
  template <class Scalar>
  static void forward(pg::shape /*in*/, std::span<const Scalar> w, std::span<const Scalar> x, std::span<Scalar> y) {
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = w[i] * x[i] + w[x.size() + i];
  }
  template <class Scalar>
  static void backward(pg::shape /*in*/, std::span<const Scalar> w, std::span<const Scalar> /*x*/,
                       std::span<const Scalar> backprop, std::span<Scalar> dx) {
    for (std::size_t i = 0; i < dx.size(); ++i) dx[i] = w[i] * backprop[i];
  }
  [[nodiscard]] static constexpr auto factors(pg::shape in) {
    return pg::list_factors(
        pg::elementwise_sum(1, in.size(), {pg::source::backprop}, pg::operand{pg::source::activation}),
        pg::elementwise_sum(1, in.size(), {pg::source::backprop}));
  }
};

/// GPT-2, with dropout.
template <class Scalar, std::size_t Blocks, std::size_t Number, template <class...> class Block>
using language_model = pg::basic_network<
    Scalar, pg::token_ids(19, 70), twin<Number>, pg::tied<0, pg::embedding<24>>, pg::learned_positions,
    pg::repeat<Blocks, Block<pg::models::detail::gpt2_block<24, 3, pg::models::everything>, pg::dropout<0.25>>>,
    pg::layer_norm<>, pg::tied<0, pg::linear<70, pg::no_bias>>>;
/// Adapters, behind frozen blocks.
template <class Scalar, template <class...> class Block>
using tuned_model = pg::basic_network<
    Scalar, pg::token_ids(19, 70), pg::frozen<pg::embedding<24>>, pg::frozen<pg::learned_positions>,
    pg::frozen<pg::repeat<2, Block<pg::models::detail::gpt2_block<24, 3, pg::models::everything>>>>,
    pg::repeat<
        2, Block<pg::models::detail::gpt2_block<24, 3, pg::models::lora_on<2, "c_attn", "c_fc">>, pg::dropout<0.25>>>,
    pg::frozen<pg::layer_norm<>>, pg::frozen<pg::linear<70, pg::no_bias>>>;
/// Lengths; shared parameters; a first block and a last one; one inside another, one in a branch; no norm of which a
/// gradient is formed, if it is large.
template <class Scalar, std::size_t Number, template <class...> class Block>
using sequences =
    pg::basic_network<Scalar, pg::variable(pg::shape{17, 20}), twin<Number>, Block<pg::linear<20>, pg::tanh>,
                      Block<pg::transformer_encoder_layer<2, 30>, Block<pg::lstm<20>>>,
                      pg::tied<1, Block<pg::residual<pg::layer_norm<>, pg::linear<20>, pg::tanh>>>,
                      pg::tied<1, Block<pg::residual<pg::layer_norm<>, pg::linear<20>, pg::tanh>>>,
                      pg::residual<Block<pg::frozen<pg::linear<20>>, pg::relu, pg::linear<20>>>,
                      Block<pg::mean_over_positions, pg::linear<3>>>;
/// Halos, gradients that come late without blocks, a user's layer, outputs that would be overwritten at a block's ends.
template <class Scalar, template <class...> class Block>
using images = pg::basic_network<Scalar, pg::shape{16, 6, 6}, pg::conv2d<96, 3, pg::padding<1>>,
                                 Block<pg::relu, gain_and_bias>, Block<pg::conv2d<192, 3, pg::padding<1>>, pg::tanh>,
                                 Block<pg::avg_pool2d<6>, pg::flatten>, pg::linear<3>>;
/// Sums that are formed a chunk at a time.
template <class Scalar, template <class...> class Block>
using wide = pg::basic_network<Scalar, pg::shape{3, 8, 8}, Block<pg::flatten, pg::linear<256>, pg::tanh>, pg::sigmoid,
                               Block<pg::residual<pg::linear<256>, pg::tanh>, pg::reshape<pg::shape{16, 16}>>,
                               Block<pg::transpose, pg::linear<12>, pg::relu, pg::flatten>, Block<pg::linear<3>>>;

/// The second convolution leaves out the input's last position: backwards it reads zeros behind its output's gradient,
/// for which rounding up has room.
template <template <class...> class Block>
using short_rows =
    pg::basic_network<double, pg::shape{1, 5}, pg::conv1d<2, 1>, pg::conv1d<1, 2, pg::stride<2>>, pg::flatten,
                      Block<pg::linear<8>>, pg::reshape<pg::shape{4, 2}>, pg::mean_over_positions, pg::linear<3>>;

}  // namespace recomputed_networks

namespace pergrad::inline v0_1::on_host {
namespace rn = recomputed_networks;
template <>
inline constexpr std::size_t large_from<rn::language_model<float, 3, 1, rn::kept>> = 0;
template <>
inline constexpr std::size_t large_from<rn::language_model<float, 3, 1, rn::again>> = 0;
template <>
inline constexpr std::size_t large_from<rn::language_model<float, 8, 1, rn::kept>> = 0;
template <>
inline constexpr std::size_t large_from<rn::language_model<float, 8, 1, rn::again>> = 0;
template <>
inline constexpr std::size_t large_from<rn::tuned_model<float, rn::kept>> = 6000;
template <>
inline constexpr std::size_t large_from<rn::tuned_model<float, rn::again>> = 6000;
template <>
inline constexpr std::size_t large_from<rn::sequences<double, 1, rn::kept>> = 0;
template <>
inline constexpr std::size_t large_from<rn::sequences<double, 1, rn::again>> = 0;
}  // namespace pergrad::inline v0_1::on_host

BOOST_AUTO_TEST_SUITE(recomputed_blocks)

namespace {

namespace pg = pergrad;
namespace rn = recomputed_networks;
using comparing::same_bits;
using told_results::told;

template <class Network>
constexpr const auto& table_of = pg::on_host::program<Network>::table;

template <class Kept, class Again, class Loss>
void compare(std::size_t blocks) {
  static_assert(Kept::parameter_count == Again::parameter_count);
  BOOST_TEST(pg::on_host::program<Kept>::plan::recomputed_count == 0U);
  BOOST_TEST(pg::on_host::program<Again>::plan::recomputed_count == blocks);
  const told<Kept, Loss> wanted{2};
  for (const std::size_t threads : {1U, 2U, 3U}) {
    const told<Again, Loss> found{threads};
    BOOST_TEST(same_bits(found.losses, wanted.losses));
    BOOST_TEST(same_bits(found.norms, wanted.norms));
    BOOST_TEST(same_bits(found.sum, wanted.sum));
    BOOST_TEST(same_bits(found.clipped, wanted.clipped));
    BOOST_TEST(same_bits(found.formed, wanted.formed));
    BOOST_TEST(same_bits(found.ghost, wanted.ghost));
    BOOST_TEST(same_bits(found.means, wanted.means));
    BOOST_TEST(same_bits(found.rows, wanted.rows));
    BOOST_TEST(same_bits(found.dots, wanted.dots));
    BOOST_TEST(same_bits(found.trained[0], wanted.trained[0]));
    BOOST_TEST(same_bits(found.trained[1], wanted.trained[1]));
  }
}

using not_finite_networks = std::tuple<rn::sequences<double, 0, rn::again>, rn::sequences<double, 1, rn::again>>;

}  // namespace

BOOST_AUTO_TEST_CASE(of_a_large_language_model) {
  using again = rn::language_model<float, 3, 1, rn::again>;
  static_assert(table_of<again>.shares_sums);
  compare<rn::language_model<float, 3, 1, rn::kept>, again, pg::token_cross_entropy<>>(3);
}
BOOST_AUTO_TEST_CASE(of_adapters) {
  compare<rn::tuned_model<float, rn::kept>, rn::tuned_model<float, rn::again>, pg::token_cross_entropy<>>(2);
}
BOOST_AUTO_TEST_CASE(zeros_behind_a_gradient_stay) {
  using loss = pg::mean_squared_error;
  BOOST_TEST(same_bits(told_results::rows_of<rn::short_rows<rn::again>, loss>(),
                       told_results::rows_of<rn::short_rows<rn::kept>, loss>()));
}
// What a further block takes of a sample's memory is its input and the gradient of its output.
BOOST_AUTO_TEST_CASE(keep_two_values_each) {
  constexpr auto of = []<class Network>(std::type_identity<Network>) {
    return table_of<Network>.slots[0].value.sample;  // a sample's stretch
  };
  constexpr auto three = of(std::type_identity<rn::language_model<float, 3, 1, rn::again>>{});
  constexpr auto eight = of(std::type_identity<rn::language_model<float, 8, 1, rn::again>>{});
  constexpr auto three_kept = of(std::type_identity<rn::language_model<float, 3, 1, rn::kept>>{});
  constexpr auto eight_kept = of(std::type_identity<rn::language_model<float, 8, 1, rn::kept>>{});
  constexpr pg::on_host::index value = pg::on_host::round_up(19 * 24);
  BOOST_TEST(eight - three == 5 * 2 * value);
  BOOST_TEST(eight_kept - three_kept > 5 * 16 * value);
  const pg::host exec{pg::threads{1}};
  const pg::tape<rn::language_model<float, 8, 1, rn::again>> less{exec, pg::max_batch{2}};
  const pg::tape<rn::language_model<float, 8, 1, rn::kept>> more{exec, pg::max_batch{2}};
  const auto tile = static_cast<std::size_t>(table_of<rn::language_model<float, 8, 1, rn::again>>.tile);
  BOOST_TEST(more.bytes() - less.bytes() == tile * sizeof(float) * static_cast<std::size_t>(eight_kept - eight));
}
BOOST_AUTO_TEST_CASE(where_a_limit_asks_for_it) {
  using kept = rn::language_model<float, 8, 1, rn::kept>;
  using again = rn::language_model<float, 8, 1, rn::again>;
  constexpr std::size_t more = pg::bytes_at_work<kept>;
  constexpr std::size_t less = pg::bytes_at_work<again>;
  static_assert(less < more);
  BOOST_TEST((std::is_same_v<pg::first_within<more, kept, again>, kept>));
  BOOST_TEST((std::is_same_v<pg::first_within<more - 1, kept, again>, again>));
  BOOST_TEST((std::is_same_v<pg::first_within<less, kept, again>, again>));
  const pg::host exec{pg::threads{1}};
  const pg::tape<again> of_one{exec, pg::max_batch{2}};
  const pg::tape<again> of_two{pg::host{pg::threads{2}}, pg::max_batch{2}};
  BOOST_TEST(of_one.bytes() >= less);
  BOOST_TEST(of_two.bytes() - of_one.bytes() >= less);
}
BOOST_AUTO_TEST_CASE(a_table_that_is_used_twice_is_kept) {
  using net = pg::network<pg::token_ids(5, 7), pg::recomputed<pg::tied<1, pg::embedding<4>>, pg::tanh>,
                          pg::recomputed<pg::linear<4>, pg::tied<1, pg::linear<7, pg::no_bias>>>>;
  BOOST_TEST(pg::on_host::program<net>::plan::recomputed_count == 0U);
}

#ifdef PERGRAD_LONG_TESTS  // they take a minute to compile
BOOST_AUTO_TEST_CASE(of_a_language_model) {
  using again = rn::language_model<float, 3, 0, rn::again>;
  static_assert(!table_of<again>.shares_sums);
  compare<rn::language_model<float, 3, 0, rn::kept>, again, pg::token_cross_entropy<>>(3);
}
BOOST_AUTO_TEST_CASE(of_sequences_with_lengths) {
  compare<rn::sequences<double, 0, rn::kept>, rn::sequences<double, 0, rn::again>, pg::mean_squared_error>(6);
}
BOOST_AUTO_TEST_CASE(of_large_networks_on_sequences) {
  static_assert(table_of<rn::sequences<double, 1, rn::again>>.shares_sums);
  compare<rn::sequences<double, 1, rn::kept>, rn::sequences<double, 1, rn::again>, pg::mean_squared_error>(6);
}
// Shared weights that no table is: each use adds to one gradient, also where nobody asks for norms.
BOOST_AUTO_TEST_CASE(a_large_network_has_the_sums_of_a_small_one) {
  const told<rn::sequences<double, 0, rn::kept>, pg::mean_squared_error> wanted{2};
  const told<rn::sequences<double, 1, rn::kept>, pg::mean_squared_error> found{2};
  comparing::check_close(found.sum, wanted.sum, 1e-13, "sum");
  comparing::check_close(found.means, wanted.means, 1e-13, "means");
}
BOOST_AUTO_TEST_CASE(of_images) {
  static_assert(table_of<rn::images<float, rn::kept>>.has_late && !table_of<rn::images<float, rn::again>>.has_late);
  compare<rn::images<float, rn::kept>, rn::images<float, rn::again>, pg::mean_squared_error>(3);
}
BOOST_AUTO_TEST_CASE(of_deferred_sums) {
  static_assert(table_of<rn::wide<float, rn::again>>.deferred_count > 0);
  compare<rn::wide<float, rn::kept>, rn::wide<float, rn::again>, pg::mean_squared_error>(4);
}
BOOST_AUTO_TEST_CASE(keep_the_laws) {
  const auto report = pg::testing::check_network<rn::sequences<double, 0, rn::again>>();
  BOOST_TEST(report.comparisons() > 10'000U);
  for (const auto& broken : report) BOOST_ERROR(broken.text());
}
BOOST_AUTO_TEST_CASE_TEMPLATE(a_sample_that_is_not_finite_adds_nothing, net, not_finite_networks) {
  using loss = pg::mean_squared_error;
  const pg::host exec{pg::threads{2}};
  const net network{exec, pg::layer_default{3}};
  constexpr std::size_t count = 5;
  std::mt19937 random{7};
  std::vector<double> inputs(count * net::input_shape.size()), targets(count * 3);
  for (double& each : inputs) each = std::uniform_real_distribution<double>{-1, 1}(random);
  for (double& each : targets) each = std::uniform_real_distribution<double>{-1, 1}(random);
  const std::vector<std::uint32_t> lengths(count, 17);
  const auto clipped_sum = [&](std::size_t samples) {
    const pg::batch<net, loss> batch{std::span<const double>{inputs}.first(samples * net::input_shape.size()),
                                     std::span<const double>{targets}.first(samples * 3),
                                     std::span<const std::uint32_t>{lengths}.first(samples)};
    pg::tape<net> tape{exec, pg::max_batch{count}};
    std::vector<double> sum(net::parameter_count);
    const auto g = pg::per_sample_gradients(network, loss{}, batch, tape);
    pg::unprotected::evaluate_into(exec, pg::assign(std::span{sum}, pg::sum(pg::clip(g, pg::l2_clip_norm{0.1}))));
    return sum;
  };
  const std::vector<double> wanted = clipped_sum(count - 1);
  inputs.back() = std::numeric_limits<double>::infinity();
  comparing::check_close(clipped_sum(count), wanted, 1e-14, "without the last one");
}
#endif

BOOST_AUTO_TEST_SUITE_END()
