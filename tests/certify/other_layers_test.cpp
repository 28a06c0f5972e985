// SPDX-License-Identifier: Apache-2.0
// tests/certify/other_layers_test.cpp - relatives of layers that the other sources have, containers, and models: none
// of their gradients is above K
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <type_traits>

#include <pergrad/models.hpp>

#include "search.hpp"

BOOST_AUTO_TEST_SUITE(certify_other_layers)

namespace {

namespace pg = pergrad;
using certify_tests::nearest;

/// What of the weights a rule reads.
enum class reads { norm, frobenius };

/// y = w x. Its rule reads ‖w‖, which `Measures` says, and `Tells` of its block.
template <bool Measures, bool Tells, reads Read = reads::norm, reads Said = Read>
struct gain {
  [[nodiscard]] static constexpr pg::shape output_shape(pg::shape in) noexcept { return in; }
  [[nodiscard]] static constexpr std::size_t parameter_count(pg::shape /*in*/) noexcept { return 1; }
  [[nodiscard]] static constexpr auto factors(pg::shape in) noexcept {
    return pg::list_factors(
        pg::elementwise_sum(in.size(), 1, {pg::source::backprop, 0, 1}, {pg::source::activation, 0, 1}));
  }
  [[nodiscard]] static pg::certified::effect bounds(const pg::certified::node_bounds& at) {
    const pg::certified::upper w = (Read == reads::norm ? at.weights.norm : at.weights.frobenius) * at.rounds.growth(8);
    pg::certified::effect result{.y = at.y(w * at.x.l2, w * at.x.largest), .dx = w};
    if (Tells) result.block = at.x.l2 * at.rounds.growth(8);
    return result;
  }
  template <class Scalar>
  requires(Measures&& std::is_floating_point_v<Scalar>) [[nodiscard]] static pg::certified::weight_bound
      measure(pg::shape /*in*/, std::span<const Scalar> w) {
    if (Said == reads::norm) return {.norm = pg::certified::l2_norm_of(w)};
    return {.frobenius = pg::certified::l2_norm_of(w)};
  }
  template <class Scalar>
  static void forward(pg::shape /*in*/, std::span<const Scalar> w, std::span<const Scalar> x, std::span<Scalar> y) {
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = w[0] * x[i];
  }
  template <class Scalar>
  static void backward(pg::shape /*in*/, std::span<const Scalar> w, std::span<const Scalar> /*x*/,
                       std::span<const Scalar> dy, std::span<Scalar> dx) {
    for (std::size_t i = 0; i < dy.size(); ++i) dx[i] = w[0] * dy[i];
  }
};

/// What is derived from a layer may compute something else: that layer's rule is not its.
struct loud_norm : pg::layer_norm<pg::eps<1, 10>> {
  static constexpr const char* name = "loud_norm";
};
struct quiet_parallel : pg::detail::concatenate {};
struct loud_pool : pg::max_pool2d<2> {
  template <class Value, class Divisor>
  static Value finish(Value best, Divisor /*divisor*/) {
    return best + best;
  }
};
template <class Layer>
concept has_a_rule = pg::certified::has_rule<Layer>;
static_assert(has_a_rule<pg::layer_norm<pg::eps<1, 10>>> && !has_a_rule<loud_norm>);
static_assert(has_a_rule<pg::group_norm<2>> && has_a_rule<pg::instance_norm2d<>> && has_a_rule<pg::rms_norm<>>);
static_assert(has_a_rule<pg::detail::concatenate> && !has_a_rule<quiet_parallel>);
static_assert(has_a_rule<pg::max_pool2d<2>> && has_a_rule<pg::upsample<2>> && !has_a_rule<loud_pool>);

}  // namespace

BOOST_AUTO_TEST_CASE(one_and_three_axes) {
  using namespace pg;
  nearest<network<shape{3, 8}, conv1d<3, 3, padding<1>>, instance_norm1d<eps<1, 10>>,
                  parallel_channels<sequential<conv1d<2, 3, padding<1>>>, sequential<pg::tanh>>, avg_pool1d<2>,
                  adaptive_avg_pool1d<2>, flatten, linear<3>>,
          cross_entropy>("instance_norm1d, parallel_channels, avg_pool1d, adaptive_avg_pool1d");
#ifdef PERGRAD_LONG_TESTS
  nearest<network<shape{2, 4, 3, 4}, conv3d<2, 2, padding<1>>, instance_norm3d<eps<1, 10>>, max_pool3d<2, stride<1>>,
                  adaptive_avg_pool3d<2>, flatten, linear<3>>,
          cross_entropy>("conv3d, instance_norm3d, max_pool3d, adaptive_avg_pool3d");
#endif
}

BOOST_AUTO_TEST_CASE(containers) {
  using namespace pg;
  nearest<network<shape{2, 5, 5}, augment<random_shift<1>>, repeat<2, conv2d<2, 3, padding<1>>, pg::tanh>,
                  recomputed<conv2d<3, 2>, relu>, flatten, linear<3>>,
          cross_entropy>("random_shift, repeat, recomputed");
#ifdef PERGRAD_LONG_TESTS
  nearest<
      network<shape{2, 4, 4}, residual<conv2d<3, 3, stride<2>, padding<1>>, relu, projection<conv2d<3, 1, stride<2>>>>,
              reshape<shape{12}>, merge<elementwise_product, sequential<linear<4>>, sequential<linear<4>, sigmoid>>,
              linear<2>>,
      huber<>>("residual with projection, reshape, merge");
  nearest<network<shape{2, 6}, with_state<gru<3, last_output>, sequence<>, state<flatten, slice<1, 3>>>,
                  parameter_group<1, linear<4>, relu>, linear<2>>,
          cross_entropy>("parameter_group");
#endif
}

BOOST_AUTO_TEST_CASE(ids) {
  using namespace pg;
  nearest<network<token_ids(5, 7), embedding_bag<4, padding_idx<2>>, linear<3>>, cross_entropy>(
      "embedding_bag, mean, padding_idx");
  nearest<network<token_ids(4, 6), tied<0, embedding<4>>, linear<4>, tied<0, linear<6, no_bias>>>,
          token_cross_entropy<>>("a table that is tied to a linear layer");
#ifdef PERGRAD_LONG_TESTS
  nearest<network<token_ids(4, 6), embedding<4, padding_idx<0>>, linear<3>>, token_cross_entropy<>>(
      "embedding, padding_idx");
  nearest<network<variable(token_ids(5, 7)), embedding<4>, linear<4>, relu, mean_over_positions, linear<3>>,
          cross_entropy>("ids of varying length");
  nearest<network<variable(shape{4, 3}), linear<4>, relu, select_last, linear<3>>, cross_entropy>("varying length");
  nearest<basic_network<double, shape{6}, linear<8>, pg::tanh, linear<4>>, cross_entropy>("double");
#endif
}

#ifdef PERGRAD_LONG_TESTS
BOOST_AUTO_TEST_CASE(models_of_language) {
  using namespace pg;
  nearest<models::gpt2<4, 1, 4, 2, 6>, token_cross_entropy<>>("gpt2");
  nearest<models::llama<models::llama_size{.positions = 4,
                                           .blocks = 1,
                                           .features = 4,
                                           .heads = 2,
                                           .key_value_heads = 1,
                                           .feed_forward = 6,
                                           .vocabulary = 6}>,
          token_cross_entropy<>>("llama");
}
#endif

// Of a layer of one's own what its rule reads of the weights must be measured, and its parameters' gradient bounded.
BOOST_AUTO_TEST_CASE(a_rule_that_leaves_something_out_proves_nothing) {
  const auto bound_with = []<class Layer>(Layer) {
    using net_type = pg::network<pg::shape{4}, pg::into_ball<2.0>, pg::linear<4>, Layer, pg::linear<3>>;
    const pg::host exec{pg::threads{1}};
    net_type net{exec, pg::kaiming_uniform{1}};
    net.all_parameters()[20] = 30;  // the gain
    return pg::certify(net, pg::cross_entropy{}).bound;
  };
  BOOST_TEST(std::isinf(bound_with(gain<false, true>{})));
  BOOST_TEST(std::isinf(bound_with(gain<true, false>{})));
  BOOST_TEST(std::isinf(bound_with(gain<true, true, reads::frobenius, reads::norm>{})));
  BOOST_TEST(std::isinf(bound_with(gain<true, true, reads::norm, reads::frobenius>{})));
  const double whole = bound_with(gain<true, true>{});
  BOOST_TEST(bound_with(gain<true, true, reads::frobenius>{}) == whole);
  BOOST_TEST(whole > 285);  // a record with this norm is known
  BOOST_TEST(whole < 2000);
  const auto trained_with = []<class Layer>(Layer) {
    using net_type = pg::network<pg::shape{4}, pg::into_ball<2.0>, pg::linear<4>, Layer, pg::linear<3>>;
    const pg::host exec{pg::threads{1}};
    net_type net{exec, pg::kaiming_uniform{1}};
    return pg::detail::proof_maker::prove(
        pg::certified_training_of<net_type>(pg::cross_entropy{}, pg::l2_clip_norm{200.0}), net);
  };
  BOOST_TEST(trained_with(gain<true, true>{}) <= 200);
  const double by_frobenius = trained_with(gain<true, true, reads::frobenius>{});
  BOOST_TEST(by_frobenius <= 200);
  BOOST_TEST(by_frobenius == trained_with(gain<true, true>{}));
  const auto described_with = []<class Layer>(Layer) {
    using net_type = pg::network<pg::shape{4}, pg::into_ball<2.0>, pg::linear<4>, Layer, pg::linear<3>>;
    return pg::describe_sensitivity<net_type>(pg::cross_entropy{}).bound;
  };
  BOOST_TEST(described_with(gain<true, true, reads::frobenius>{}) == described_with(gain<true, true>{}));
  BOOST_TEST(std::isinf(described_with(gain<true, true, reads::frobenius, reads::norm>{})));
  BOOST_CHECK_THROW(static_cast<void>(trained_with(gain<true, true, reads::frobenius, reads::norm>{})),
                    std::invalid_argument);
  BOOST_CHECK_THROW(static_cast<void>(trained_with(gain<false, true>{})), std::invalid_argument);
}

BOOST_AUTO_TEST_SUITE_END()
