// SPDX-License-Identifier: Apache-2.0
// tests/cuda/uses_and_lengths_test.cpp - parameters that are used at several places, and samples with lengths of their
// own: on a device as on the host, under either plan
#include <cmath>
#include <cstddef>
#include <vector>

#include <pergrad/cuda/run/describe.hpp>

#include "device_fixture.hpp"

namespace uses_and_lengths {

using namespace device_fixture;

/// One matrix at three places, the same layer of the user's twice, a filter on images of two sizes.
template <std::size_t Side>
using tied =
    pg::basic_network<double, pg::shape{2, Side, 5}, pg::tied<0, pg::conv2d<2, 3, pg::padding<1>>>, pg::tanh,
                      pg::avg_pool2d<2>, pg::tied<0, pg::conv2d<2, 3, pg::padding<1>>>, pg::flatten, pg::linear<6>,
                      pg::tied<1, pg::linear<6>>, pg::sigmoid,
                      pg::residual<pg::tied<2, gain_and_line>, pg::tied<1, pg::linear<6>>, pg::tied<2, gain_and_line>>,
                      pg::frozen<pg::linear<6>>, pg::tied<1, pg::linear<6>>, pg::linear<3>>;
/// Positions of features that are there in part, inside a branch and on axes that change places.
template <class Scalar, std::size_t Positions>
using sequences =
    pg::basic_network<Scalar, pg::variable(pg::shape{Positions, 4}), pg::linear<5>, pg::sigmoid,
                      pg::residual<pg::tied<0, pg::linear<5>>, bent>, pg::transpose, pg::gelu, pg::transpose,
                      pg::tied<0, pg::linear<5>>, pg::frozen<pg::linear<4>>, sum_of_positions, pg::linear<3>>;

/// A loss at every position.
template <std::size_t Positions>
using tagger = pg::basic_network<double, pg::variable(pg::shape{Positions, 4}), pg::linear<5>, pg::sigmoid,
                                 pg::residual<pg::linear<5>, bent>, pg::linear<3>>;

/// Numbers at every position, for losses that know of no lengths.
template <std::size_t Positions>
using line = pg::basic_network<double, pg::variable(pg::shape{Positions, 3}), pg::linear<20>>;
/// Whose sum hands a gradient on behind a sample's length, where the function has a slope.
template <std::size_t Positions>
using summed = pg::basic_network<double, pg::variable(pg::shape{Positions, 3}), pg::linear<5>, pg::gelu,
                                 device_fixture::sum_of_positions, pg::linear<3>>;
/// Not zero at zero.
template <std::size_t Positions>
using curve = pg::basic_network<double, pg::variable(pg::shape{Positions, 3}), pg::linear<5>, pg::sigmoid>;

/// The same with more classes than a block has threads.
template <class Scalar>
using speller = pg::basic_network<Scalar, pg::variable(pg::shape{4, 3}), pg::linear<5>, pg::tanh, pg::linear<300>>;

/// A table that ids look up and that positions are multiplied with, twice and once.
template <class Scalar, std::size_t Positions>
using tied_table = pg::basic_network<Scalar, pg::variable(pg::token_ids(Positions, 7)), pg::tied<0, pg::embedding<4>>,
                                     pg::sigmoid, pg::linear<4>, bent, pg::tied<0, pg::linear<7, pg::no_bias>>,
                                     pg::tanh, pg::linear<4>, pg::tied<0, pg::linear<7, pg::no_bias>>>;

}  // namespace uses_and_lengths

namespace pergrad::inline v0_1::on_device {
template <>
inline constexpr plan_kind plan_of<uses_and_lengths::tied<6>> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<uses_and_lengths::sequences<double, 6>> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<uses_and_lengths::tied_table<double, 6>> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<uses_and_lengths::tagger<6>> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<uses_and_lengths::line<6>> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<uses_and_lengths::curve<6>> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<uses_and_lengths::summed<6>> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<uses_and_lengths::speller<double>> = plan_kind::layered;
template <>
inline constexpr plan_kind plan_of<uses_and_lengths::speller<float>> = plan_kind::layered;
}  // namespace pergrad::inline v0_1::on_device

BOOST_AUTO_TEST_SUITE(cuda_uses_and_lengths)

namespace {

using namespace uses_and_lengths;

template <class Kernel>
inline constexpr bool takes_position = false;
template <class Scalar, class Loss, bool ByWarps>
inline constexpr bool takes_position<pg::on_device::position_loss_kernel<Scalar, Loss, ByWarps>> = true;

/// An emulated device that counts the blocks which take losses of positions.
class loss_counter : public pg::on_device::emulated_device {
 public:
  int blocks = 0;

  template <pg::on_device::kernel Kernel>
  void launch(const Kernel& kernel, int count) {
    if constexpr (takes_position<Kernel>) blocks += count;
    emulated_device::launch(kernel, count);
  }
};

}  // namespace

BOOST_AUTO_TEST_CASE(blocks_that_are_used_at_several_places_are_the_hosts) {
  compare_layers<tied<4>, pg::cross_entropy>("tied");
  compare<tied<6>, pg::cross_entropy>("tied, layered");
}
BOOST_AUTO_TEST_CASE(samples_with_lengths_of_their_own_are_the_hosts) {
  compare_layers<sequences<double, 5>, pg::cross_entropy>("sequences");
  compare<sequences<double, 6>, pg::cross_entropy>("sequences, layered");
}
// A mean is of what is there: behind a length are other numbers and targets.
BOOST_AUTO_TEST_CASE(losses_that_know_of_no_lengths_are_the_hosts) {
  compare<line<5>, pg::mean_squared_error>("line");
  compare<curve<6>, pg::mean_squared_error>("curve, layered");
  compare<summed<6>, pg::cross_entropy>("sum, layered");
#ifdef PERGRAD_LONG_TESTS
  compare<line<6>, pg::huber<0.1>>("line, layered");
#endif
}
BOOST_AUTO_TEST_CASE(predictions_behind_a_samples_length_are_zeros) {
  const pg::host host{pg::threads{1}};
  const curve<6> net{host, pg::kaiming_uniform{3}};
  const std::vector<double> inputs(3 * 6 * 3, 0.7);
  const std::vector<std::uint32_t> lengths{6, 1, 4};
  const auto found = pg::predict(pg::emulated{}, net, pg::public_records{inputs}, lengths);
  check_close(found, pg::predict(host, net, pg::public_records{inputs}, lengths), 1e-13, "predictions");
  for (std::size_t i = 0; i < found.size(); ++i) {
    BOOST_TEST((found[i] == 0) == (i / 5 % 6 >= lengths[i / 30]));
  }
}
// Positions may come second in what a network predicts.
BOOST_AUTO_TEST_CASE(predictions_of_positions_along_the_second_axis_are_the_hosts) {
  using network = pg::basic_network<double, pg::variable(pg::shape{10, 4}), pg::linear<2>, pg::transpose>;
  std::vector<double> inputs(3 * 40);
  for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i] = static_cast<double>(i % 11) - 5;
  const std::vector<std::uint32_t> lengths{10, 7, 1};
  const pg::host host{pg::threads{1}};
  const network net{host, pg::uniform{3, -0.5, 0.5}};
  const auto wanted = pg::unprotected::predict(host, net, inputs, lengths);
  BOOST_TEST(wanted[9] != 0);
  BOOST_TEST(wanted[20 + 7] == 0);
  const auto found = pg::unprotected::predict(pg::emulated{}, net, inputs, lengths);
  check_close(found, wanted, 1e-13, "predictions");
}
BOOST_AUTO_TEST_CASE(a_table_that_is_a_matrix_as_well_is_the_hosts) {
  compare<tied_table<double, 5>, pg::token_cross_entropy<>>("tied table");
  compare_layers<tied_table<double, 6>, pg::token_cross_entropy<>>("tied table, layered");
  compare_strategies<tied_table<double, 5>, pg::token_cross_entropy<>>("tied table");
}
// Targets that are 0, and what lies behind a sample's length, do not count; samples have 1 to 6 positions.
BOOST_AUTO_TEST_CASE(a_loss_at_every_position_is_the_hosts) {
  compare_layers<tagger<5>, pg::token_cross_entropy<pg::ignore_index<0>>>("a loss a position");
  compare<tagger<6>, pg::token_cross_entropy<pg::ignore_index<0>>>("a loss a position, layered");
  compare_layers<tagger<5>, pg::token_cross_entropy<pg::sum_over_positions>>("a sum over positions");
  compare_layers<speller<double>, pg::token_cross_entropy<>>("many classes");
  compare<speller<double>, pg::token_cross_entropy<pg::ignore_index<0>, pg::sum_over_positions>>("a sum, many classes");
}
// Of a layered network a block takes a position, or, where there are few classes, eight of them: few samples of many
// positions are many blocks.
template <class Network>
void expect_loss_blocks(std::size_t samples, int blocks) {
  both<Network, pg::token_cross_entropy<>> it{samples};
  const pg::basic_device_executor<loss_counter> executor;
  pg::tape<Network> tape{executor, pg::max_batch{samples}};
  const auto losses = pg::losses(pg::per_sample_gradients(it.net, pg::token_cross_entropy<>{}, it.batch, tape));
  check_same(pg::unprotected::evaluate(executor, losses), it.evaluate(pg::losses(it.on_device())), "losses");
  BOOST_TEST(executor.device().blocks == blocks);
}
BOOST_AUTO_TEST_CASE(positions_of_a_loss_are_blocks_of_their_own) {
  expect_loss_blocks<speller<double>>(3, 3 * 4);
  expect_loss_blocks<tagger<6>>(3, 3);  // 18 positions by as many warps
}
// Rows are products of rounded gradients; norms come from these as well.
BOOST_AUTO_TEST_CASE(gradients_of_a_loss_a_position_are_rounded_to_tf32) {
  using net = speller<float>;
  both<net, pg::token_cross_entropy<>> it{7, emulation_order::forward, 3, pg::device_options{.tf32 = true}};
  const auto rows = it.evaluate(pg::materialise(it.on_device()));
  const auto exact = pg::unprotected::evaluate(it.host, pg::materialise(it.on_host()));
  check_close(rows, exact, 2e-3, "rows");
  BOOST_TEST((rows != exact));
  std::vector<double> norms(7);
  for (std::size_t b = 0; b < norms.size(); ++b) {
    double sum = 0;
    for (std::size_t i = 0; i < net::parameter_count; ++i) {
      const double each = rows[b * net::parameter_count + i];
      sum += each * each;
    }
    norms[b] = std::sqrt(sum);
  }
  check_close(it.evaluate(pg::l2_norms(it.on_device())), norms, 1e-6, "norms");
  constexpr std::size_t biases = net::parameter_count - 300;  // sums of positions' gradients
  std::size_t unrounded = 0;
  for (std::size_t i = 0; i < 300; ++i) {  // of the first sample, which has one position
    const float each = rows[biases + i];
    unrounded += each == pg::on_device::round_to_tf32(each) ? 0U : 1U;
  }
  BOOST_TEST(unrounded == 0U);
}

BOOST_AUTO_TEST_CASE(a_description_says_which_blocks_are_tied) {
  const auto rows = pg::describe_rows<tied<6>>(pg::emulated{});
  BOOST_TEST(rows[0].norm == "direct");  // of all uses, whose elements the sum forms again
  BOOST_TEST(rows[0].sum == "sum kernel");
  BOOST_TEST(rows[3].norm == "tied");
  BOOST_TEST(rows[3].sum == "-");
  BOOST_TEST(rows[5].norm == "product");
  BOOST_TEST(rows[5].sum == "own kernel, 16 x 64 blocks");
}

// Behind its length a sample has what lies there in memory.
BOOST_AUTO_TEST_CASE(what_lies_behind_a_samples_length_moves_no_bit) {
  const auto check = [](auto& it, const char* what) {
    const auto all = [&] {
      auto found = it.evaluate(pg::materialise(it.on_device()));
      const auto sum = it.evaluate(pg::sum(pg::clip(it.on_device(), pg::l2_clip_norm{0.3})));
      found.insert(found.end(), sum.begin(), sum.end());
      return found;
    };
    const auto wanted = all();
    const std::size_t positions = std::remove_reference_t<decltype(it.net)>::input_shape.e0;
    for (std::size_t i = 0; i < it.inputs.size(); ++i) {
      const std::size_t position = i / 4 % positions;
      if (position >= it.lengths[i / 4 / positions]) it.inputs[i] = std::numeric_limits<double>::quiet_NaN();
    }
    check_same(all(), wanted, what);
  };
  both<sequences<double, 5>, pg::cross_entropy> fused{11, emulation_order::reversed};
  check(fused, "fused");
  both<sequences<double, 6>, pg::cross_entropy> layered{11, emulation_order::shuffled};
  check(layered, "layered");
}

// Records are copied to the device with their lengths, and copied again if other lengths are given for the same memory.
BOOST_AUTO_TEST_CASE(training_on_samples_of_varying_length_is_the_hosts) {
  using network = sequences<float, 5>;
  std::vector<float> inputs(40 * network::input_shape.size());
  std::vector<std::int32_t> targets(40);
  std::vector<std::uint32_t> lengths(40);
  std::vector<std::uint32_t> others(40);
  std::mt19937 random{1};
  std::uniform_real_distribution<float> uniform{-1, 1};
  for (float& value : inputs) value = uniform(random);
  for (std::size_t i = 0; i < 40; ++i) {
    targets[i] = static_cast<std::int32_t>(random() % 3);
    lengths[i] = static_cast<std::uint32_t>(1 + random() % 5);
    others[i] = static_cast<std::uint32_t>(1 + random() % 5);
  }
  pg::dp_sgd_options options;
  options.clip = pg::l2_clip_norm{0.7};
  options.noise = pg::noise_multiplier{0.8};
  options.sampling = pg::poisson_sampling{pg::sampling_probability{0.4}};
  options.divisor = pg::expected_batch_size{16};
  options.learning_rate = pg::learning_rate{0.3};
  const auto trained = [&](const auto& executor, std::size_t max_batch, bool changes) {
    options.max_batch = pg::max_batch{max_batch};
    network net{executor, pg::kaiming_uniform{5}};
    pg::dp_sgd trainer{executor, net, pg::cross_entropy{}, options, pg::seeded_generator{9}};
    for (int step = 0; step < 3; ++step) {
      trainer.step(pg::dataset<float, std::int32_t>{inputs, targets, network::input_shape, 1,
                                                    changes && step > 0 ? others : lengths});
    }
    return std::vector<float>(net.parameters().begin(), net.parameters().end());
  };
  const auto wanted = trained(pg::emulated{}, 40, true);
  check_close(wanted, trained(pg::host{pg::threads{1}}, 16, true), 1e-5, "host");
  check_same(trained(pg::emulated{emulation_order::shuffled}, 3, true), wanted, "physical batches of 3");
  BOOST_TEST((trained(pg::emulated{}, 40, false) != wanted));
}

BOOST_AUTO_TEST_SUITE_END()
