// SPDX-License-Identifier: Apache-2.0
// tests/certify/several_uses_test.cpp - blocks that several nodes use, values that overflow in the middle of a network,
// records at the end of the numbers, sequences of which nothing is left: no gradient is above K
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <ratio>
#include <span>
#include <stdexcept>
#include <vector>

#include <pergrad/certify.hpp>
#include <pergrad/models.hpp>
#include <pergrad/pergrad.hpp>

BOOST_AUTO_TEST_SUITE(certify_several_uses)

namespace {

namespace pg = pergrad;

const pg::host exec{pg::threads{1}};

template <class Network, class Loss>
struct one_record {
  std::vector<typename Network::input_value> input;
  std::vector<pg::target_of<Loss, typename Network::scalar>> targets;
  std::vector<std::uint32_t> lengths = {};

  [[nodiscard]] double norm(const Network& net) const {
    const pg::dataset<typename Network::input_value, pg::target_of<Loss, typename Network::scalar>> records{
        input, targets, Network::input_shape, Loss::target_count(Network::output_shape), lengths};
    const std::vector<std::uint32_t> drawn{0};
    const pg::batch<Network, Loss> all{records, std::span<const std::uint32_t>{drawn}};
    pg::tape<Network> tape{exec, pg::max_batch{1}};
    return pg::unprotected::evaluate(exec, l2_norms(per_sample_gradients(net, Loss{}, all, tape)))[0];
  }
};

/// A network whose first `ones` parameters are 1, all others `rest`.
template <class Network>
Network network_of(std::size_t ones, float rest) {
  Network net{exec, pg::kaiming_uniform{1}};
  std::ranges::fill(net.all_parameters(), rest);
  std::ranges::fill(net.all_parameters().first(ones), 1.0F);
  return net;
}

/// A table as a linear layer in the middle of a network: long rows are no bound of its norm as a matrix.
using tied_in_the_middle = pg::network<pg::token_ids(1, 64), pg::tied<0, pg::embedding<4>>,
                                       pg::tied<0, pg::linear<64, pg::no_bias>>, pg::linear<2, pg::no_bias>>;
/// A convolution of one pixel and of 64.
using at_two_sizes =
    pg::network<pg::shape{1, 1, 1}, pg::into_ball<100.0>, pg::tied<0, pg::conv2d<1, 3, pg::padding<1>, pg::no_bias>>,
                pg::tanh, pg::upsample<pg::extent{8, 8}>, pg::tied<0, pg::conv2d<1, 3, pg::padding<1>, pg::no_bias>>,
                pg::flatten, pg::linear<2, pg::no_bias>>;

}  // namespace

BOOST_AUTO_TEST_CASE(each_use_of_a_block_has_its_own_norm) {
  const auto table = network_of<tied_in_the_middle>(64 * 4, 0);
  const double long_one = one_record<tied_in_the_middle, pg::token_cross_entropy<>>{{3}, {1}}.norm(table);
  BOOST_TEST(long_one > 20);
  BOOST_TEST(long_one <= pg::certify(table, pg::token_cross_entropy<>{}).bound);
  // Within the limits of both uses: as a matrix its norm is 1.
  auto within = network_of<tied_in_the_middle>(0, 0);
  for (std::size_t row = 0; row < 64; ++row) within.all_parameters()[4 * row] = 0.125F;
  BOOST_TEST((one_record<tied_in_the_middle, pg::token_cross_entropy<>>{{3}, {1}}.norm(within)) <=
             pg::describe_sensitivity<tied_in_the_middle>(pg::token_cross_entropy<>{}).bound);

  const auto images = network_of<at_two_sizes>(9, 0);
  const double large = one_record<at_two_sizes, pg::cross_entropy>{{100.0F}, {0}}.norm(images);
  BOOST_TEST(large > 30);
  BOOST_TEST(large <= pg::certify(images, pg::cross_entropy{}).bound);
}

BOOST_AUTO_TEST_CASE(training_keeps_every_use_within_its_limit) {
  const auto check = []<class Network, class Loss>(Network net, Loss loss, const auto& record, double most) {
    pg::dp_sgd_options options;
    options.clipping = pg::clipping_kind::certified;
    options.certified = pg::certified_training_of<Network>(loss, pg::l2_clip_norm{most});
    options.noise = pg::noise_multiplier{1.0};
    options.sampling = pg::poisson_sampling{pg::sampling_probability{0.5}};
    options.divisor = pg::expected_batch_size{1};
    options.learning_rate = pg::learning_rate{1e-6};  // weights stay where they are brought
    options.max_batch = pg::max_batch{2};
    pg::dp_sgd trainer{exec, net, loss, options, pg::seeded_generator{3}};
    const pg::dataset<typename Network::input_value, pg::target_of<Loss, float>> records{
        record.input, record.targets, Network::input_shape, Loss::target_count(Network::output_shape)};
    for (int step = 0; step < 5; ++step) {
      trainer.step(records);
      BOOST_TEST(pg::certify(net, loss).bound <= most);
      BOOST_TEST(record.norm(net) <= most);
    }
  };
  check(network_of<tied_in_the_middle>(64 * 4, 0), pg::token_cross_entropy<>{},
        one_record<tied_in_the_middle, pg::token_cross_entropy<>>{{3}, {1}}, 2);
  check(network_of<at_two_sizes>(9, 0), pg::cross_entropy{}, one_record<at_two_sizes, pg::cross_entropy>{{100.0F}, {0}},
        2);
}

BOOST_AUTO_TEST_CASE(a_value_that_overflows_has_no_bound_whatever_is_behind_it) {
  using net_type = pg::network<pg::shape{2}, pg::into_ball<1.0>, pg::linear<2, pg::no_bias>, pg::gelu,
                               pg::into_ball<1.0>, pg::linear<2, pg::no_bias>>;
  auto net = network_of<net_type>(8, 0);
  for (std::size_t i = 0; i < 4; ++i) net.parameters()[i] = i % 2 == 0 ? 3e38F : -3e38F;
  const double norm = one_record<net_type, pg::cross_entropy>{{9, -9}, {0}}.norm(net);
  BOOST_TEST(!std::isfinite(norm));
  BOOST_TEST(std::isinf(pg::certify(net, pg::cross_entropy{}).bound));
  BOOST_CHECK_THROW((pg::certified_bound{net, pg::cross_entropy{}}), std::invalid_argument);
  // In front of all that is trained nothing is differentiated.
  using frozen = pg::network<pg::shape{2}, pg::into_ball<1.0>, pg::frozen<pg::linear<2, pg::no_bias>>,
                             pg::into_ball<1.0>, pg::linear<2, pg::no_bias>>;
  auto behind = network_of<frozen>(8, 0);
  for (float& each : behind.frozen_parameters()) each = 3e38F;
  const double bound = pg::certify(behind, pg::cross_entropy{}).bound;
  BOOST_TEST(std::isfinite(bound));
  BOOST_TEST((one_record<frozen, pg::cross_entropy>{{9, -9}, {0}}.norm(behind)) <= bound);
}

// A mean is a sum first, and a gradient is multiplied by gains before it is divided by a deviation: they overflow where
// neither what comes in nor what goes out is large.
BOOST_AUTO_TEST_CASE(what_is_formed_inside_of_a_layer_may_overflow) {
  const pg::cross_entropy loss;
  const auto expect_none = [&]<class Network>(const Network& net, const auto& record) {
    BOOST_TEST(!std::isfinite(record.norm(net)));
    BOOST_TEST(std::isinf(pg::certify(net, loss).bound));
    BOOST_CHECK_THROW((pg::certified_bound{net, loss}), std::invalid_argument);
  };
  using bag = pg::network<pg::token_ids(512, 2), pg::embedding_bag<1>, pg::frozen<pg::linear<2>>>;
  bag words{exec, pg::zeros{}};
  std::ranges::fill(words.layer_parameters(0), 8e35F);
  words.layer_parameters(1)[0] = 1e-36F;
  words.layer_parameters(1)[1] = -1e-36F;
  expect_none(words, one_record<bag, pg::cross_entropy>{std::vector<std::int32_t>(512, 1), {0}});

  using tiny = pg::scale<std::ratio<1, 1'000'000'000'000'000'000>>;
  using huge = pg::scale<std::ratio<1'000'000'000'000'000'000, 1>>;
  using pooled = pg::network<pg::shape{1, 300, 300}, pg::into_ball<1.3e18>, huge, pg::adaptive_avg_pool2d<1>,
                             pg::flatten, tiny, tiny, pg::linear<2>>;
  pooled image{exec, pg::zeros{}};
  image.layer_parameters(6)[0] = 1;
  expect_none(image, one_record<pooled, pg::cross_entropy>{std::vector<float>(90'000, 4.3e15F), {0}});

  using averaged = pg::network<pg::shape{70'000, 1}, pg::into_ball<1.3e18>, huge, pg::mean_over_positions, tiny, tiny,
                               pg::linear<2>>;
  averaged sequence{exec, pg::zeros{}};
  sequence.layer_parameters(5)[0] = 1;
  expect_none(sequence, one_record<averaged, pg::cross_entropy>{std::vector<float>(70'000, 4.9e15F), {0}});

  using eps = pg::eps<1'000'000'000'000'000'000, 1>;
  using rows = pg::network<pg::shape{2}, pg::into_ball<1.0>, pg::linear<2, pg::no_bias>, pg::layer_norm<eps>, pg::tanh,
                           pg::linear<2>>;
  rows of_rows{exec, pg::zeros{}};
  of_rows.layer_parameters(1)[0] = of_rows.layer_parameters(1)[3] = 1;
  of_rows.layer_parameters(2)[0] = of_rows.layer_parameters(2)[1] = 1e30F;
  of_rows.layer_parameters(4)[0] = of_rows.layer_parameters(4)[3] = 1e10F;
  expect_none(of_rows, one_record<rows, pg::cross_entropy>{{0.5F, 0.5F}, {0}});

  using groups = pg::network<pg::shape{4, 2, 2}, pg::into_ball<1.0>, pg::conv2d<4, 1>, pg::group_norm<2, eps>,
                             pg::flatten, pg::tanh, pg::linear<2>>;
  groups of_groups{exec, pg::zeros{}};
  for (std::size_t i = 0; i < 4; ++i) {
    of_groups.layer_parameters(1)[5 * i] = 1;
    of_groups.layer_parameters(2)[i] = 1e30F;
  }
  std::ranges::fill(of_groups.layer_parameters(5), 1e10F);
  of_groups.layer_parameters(5)[0] = -1e10F;
  expect_none(of_groups, one_record<groups, pg::cross_entropy>{std::vector<float>(16, 0.1F), {0}});
}

// Signs are the uppermost bits, which products leave where they are.
BOOST_AUTO_TEST_CASE(a_proof_ends_with_the_signs_of_weights) {
  using net_type = pg::basic_network<double, pg::shape{16}, pg::into_ball<1.0>, pg::linear<16, pg::no_bias>,
                                     pg::linear<2, pg::no_bias>>;
  net_type net{exec, pg::zeros{}};
  for (unsigned i = 0; i < 256; ++i) net.parameters()[i] = std::popcount(i / 16 & i % 16) % 2 == 0 ? 1 : -1;
  const pg::certified_bound proof{net, pg::cross_entropy{}};
  std::ranges::fill(net.parameters().first(256), 1.0);
  const std::vector<double> x(16, 0.25);
  const std::vector<std::int32_t> y{0};
  pg::tape<net_type> tape{exec, pg::max_batch{1}};
  const pg::batch<net_type, pg::cross_entropy> one{x, y};
  BOOST_CHECK_THROW(
      static_cast<void>(pg::unclipped(pg::per_sample_gradients(net, pg::cross_entropy{}, one, tape), proof)),
      std::logic_error);
  BOOST_TEST((pg::certified_bound{net, pg::cross_entropy{}}.bound().value()) > 3 * proof.bound().value());
}

BOOST_AUTO_TEST_CASE(a_ball_holds_the_longest_records) {
  const auto check = []<class Scalar>(auto layer, std::size_t count, Scalar radius) {
    const std::vector<Scalar> x(count, std::numeric_limits<Scalar>::max() * Scalar(0.98));
    std::vector<Scalar> y(count);
    decltype(layer)::template forward<Scalar>(pg::shape{count}, {}, x, y);
    double squares = 0;
    for (const Scalar each : y) squares += std::pow(static_cast<double>(each / radius), 2);
    BOOST_TEST(std::sqrt(squares) == 1, boost::test_tools::tolerance(sizeof(Scalar) == 4 ? 1e-6 : 1e-10));
  };
  check(pg::into_ball<1e-3>{}, 784, 1e-3F);
  check(pg::into_ball<1.0>{}, 3 * 224 * 224, 1.0F);
  check(pg::into_ball<1e-8>{}, 16, 1e-8);
  using net_type = pg::network<pg::shape{784}, pg::into_ball<1e-3>, pg::linear<2, pg::no_bias>>;
  auto net = network_of<net_type>(0, -1e4F);
  std::ranges::fill(net.parameters().subspan(784), 1e4F);
  BOOST_TEST((one_record<net_type, pg::cross_entropy>{std::vector<float>(784, 3.33001e38F), {0}}.norm(net)) <=
             pg::certify(net, pg::cross_entropy{}).bound);
}

// A pool leaves nothing of a sequence of one: then the last state is the one that was given.
BOOST_AUTO_TEST_CASE(a_state_may_be_handed_on) {
  const auto check = []<class Cell>(Cell /*layer*/) {
    using net_type = pg::network<pg::variable(pg::shape{4, 2}), pg::into_ball<10.0>,
                                 pg::with_state<Cell, pg::sequence<pg::transpose, pg::avg_pool1d<2>, pg::transpose>,
                                                pg::state<pg::mean_over_positions>>,
                                 pg::linear<2, pg::no_bias>>;
    auto net = network_of<net_type>(0, 0);
    const one_record<net_type, pg::cross_entropy> record{{10, 0, 0, 0, 0, 0, 0, 0}, {0}, {1}};
    const double norm = record.norm(net);
    BOOST_TEST(norm > 5);
    BOOST_TEST(norm <= pg::certify(net, pg::cross_entropy{}).bound);
  };
  check(pg::rnn<2, pg::last_output>{});
  check(pg::gru<2, pg::last_output>{});
}

// Their slopes would be NaN, which no weight of 0 takes out of a sum without clipping.
BOOST_AUTO_TEST_CASE(targets_that_are_not_numbers_are_refused) {
  using net_type = pg::network<pg::shape{3}, pg::into_ball<1.0>, pg::linear<1>>;
  net_type net{exec, pg::kaiming_uniform{1}};
  std::vector<float> targets(8, 5);
  const std::vector<float> inputs(8 * 3, 0.5F);
  pg::dp_sgd_options options;
  options.clipping = pg::clipping_kind::certified;
  options.certified = pg::certified_training_of<net_type>(pg::huber<>{}, pg::l2_clip_norm{2.0});
  options.noise = pg::noise_multiplier{1.0};
  options.sampling = pg::poisson_sampling{pg::sampling_probability{1}};
  options.divisor = pg::expected_batch_size{8};
  options.learning_rate = pg::learning_rate{0.5};
  options.max_batch = pg::max_batch{8};
  pg::dp_sgd trainer{exec, net, pg::huber<>{}, options, pg::seeded_generator{1}};
  const pg::dataset<float, float> records{inputs, targets, net_type::input_shape};
  targets[5] = std::numeric_limits<float>::quiet_NaN();
  BOOST_CHECK_THROW(trainer.step(records), std::invalid_argument);
  targets[5] = std::numeric_limits<float>::infinity();
  trainer.step(records);
  targets[5] = std::numeric_limits<float>::quiet_NaN();  // behind the look at all records: it is left out
  trainer.step(records);
  for (const float each : trainer.last_update().values()) BOOST_TEST(std::abs(each) < 100);
}

BOOST_AUTO_TEST_SUITE_END()
