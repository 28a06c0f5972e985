// SPDX-License-Identifier: Apache-2.0
// tests/expressions/rows_and_sums_test.cpp - a clipped sum is the sum of the clipped rows, of records whose gradients
// have very different sizes: where a sum read another record's numbers, nothing would bound it
//
// More records than a worker takes at a time, in networks whose layers go different ways: sums that all workers share,
// weights whose sums are formed later, layers behind those.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <type_traits>
#include <vector>

#include "fixture.hpp"

namespace {

using namespace fixture;

using shared_with_a_head =
    pg::network<pg::shape{17, 20}, pg::linear<24>, pg::tanh, pg::mean_over_positions, pg::linear<1400>, pg::linear<3>>;
using shared_norms = pg::network<pg::shape{17, 20}, pg::layer_norm<>, pg::linear<24>, pg::channel_affine, pg::tanh,
                                 pg::mean_over_positions, pg::linear<1400>, pg::tanh, pg::layer_norm<>, pg::linear<3>>;
using deferred_before_positions = pg::network<pg::shape{64}, pg::linear<512>, pg::tanh, pg::reshape<pg::shape{4, 128}>,
                                              pg::linear<64>, pg::flatten, pg::linear<3>>;
using positions_before_deferred = pg::network<pg::shape{9, 12}, pg::linear<16>, pg::tanh, pg::layer_norm<>,
                                              pg::linear<24>, pg::flatten, pg::linear<256>, pg::tanh, pg::linear<3>>;
using to_one_position = pg::network<pg::shape{4, 16},
                                    pg::cross_attention<2, pg::queries<>,
                                                        pg::memory<pg::transpose, pg::conv1d<16, 3, pg::padding<1>>,
                                                                   pg::adaptive_avg_pool1d<1>, pg::transpose>>,
                                    pg::flatten, pg::linear<3>>;
using from_one_position = pg::network<
    pg::shape{4, 16},
    pg::cross_attention<
        2, pg::queries<pg::transpose, pg::conv1d<16, 3, pg::padding<1>>, pg::adaptive_avg_pool1d<1>, pg::transpose>,
        pg::memory<>>,
    pg::flatten, pg::linear<3>>;

using tied_words = pg::network<pg::token_ids(12, 50), pg::tied<0, pg::embedding<16>>, pg::learned_positions,
                               pg::residual<pg::layer_norm<>, pg::linear<16>, pg::tanh>, pg::layer_norm<>,
                               pg::tied<0, pg::linear<50, pg::no_bias>>, pg::mean_over_positions, pg::linear<3>>;
template <class... Last>
using tied_with_a_head =
    pg::network<pg::token_ids(12, 50), pg::tied<0, pg::embedding<16>>, pg::learned_positions,
                pg::residual<pg::layer_norm<>, pg::linear<16>, pg::tanh>, pg::tied<0, pg::linear<50, pg::no_bias>>,
                pg::flatten, pg::linear<128>, pg::tanh, pg::linear<3>, Last...>;
template <class... Last>
using encoder_with_a_head = pg::network<pg::token_ids(12, 50), pg::embedding<16>, pg::transformer_encoder_layer<2, 32>,
                                        pg::flatten, pg::linear<300>, pg::tanh, pg::linear<3>, Last...>;
template <class... Last>
using recurrent_with_a_head = pg::network<pg::shape{12, 10}, pg::lstm<16>, pg::gru<12>, pg::flatten, pg::linear<400>,
                                          pg::tanh, pg::linear<3>, Last...>;
template <class... Last>
using recomputed_with_a_head =
    pg::network<pg::shape{17, 20}, pg::recomputed<pg::linear<24>, pg::tanh, pg::layer_norm<>>,
                pg::recomputed<pg::linear<24>, pg::tanh>, pg::mean_over_positions, pg::linear<1400>, pg::linear<3>,
                Last...>;
template <class... Last>
using images_with_a_head =
    pg::network<pg::shape{2, 12, 12}, pg::conv2d<6, 3, pg::padding<1>>, pg::group_norm<2>, pg::relu,
                pg::residual<pg::conv2d<6, 3, pg::padding<1>>, pg::tanh>, pg::max_pool2d<2>, pg::flatten,
                pg::linear<300>, pg::tanh, pg::linear<3>, Last...>;
/// Its first layer needs no input later, so that other values lie there.
using constants_with_heads = pg::network<pg::shape{32, 300}, pg::sinusoidal_positions, pg::linear<256>, pg::tanh,
                                         pg::linear<64>, pg::flatten, pg::linear<512>, pg::tanh, pg::linear<3>>;
/// Two tables, one of them used twice.
using two_tables =
    pg::network<pg::token_ids(12, 3000),
                pg::parallel<pg::sequential<pg::tied<0, pg::embedding<4>>>,
                             pg::sequential<pg::tied<0, pg::embedding<4>>, pg::tanh>, pg::sequential<pg::embedding<3>>>,
                pg::flatten, pg::linear<3>>;
/// One weight for an image and for a vector.
using two_orders = pg::basic_network<double, pg::shape{2, 4, 4}, pg::flatten, pg::tied<0, pg::linear<32>>, pg::tanh,
                                     pg::tied<0, pg::linear<32>>, pg::tanh, pg::linear<3>>;
/// The same networks with sums that all workers share: as types of their own.
using shared_tied = tied_with_a_head<pg::added_bias>;
using shared_encoder = encoder_with_a_head<pg::added_bias>;
using shared_recurrent = recurrent_with_a_head<pg::added_bias>;
using shared_recomputed = recomputed_with_a_head<pg::added_bias>;
using shared_images = images_with_a_head<pg::added_bias>;

}  // namespace

namespace pergrad::inline v0_1::on_host {

template <>
inline constexpr std::size_t large_from<shared_with_a_head> = 0;
template <>
inline constexpr std::size_t large_from<shared_norms> = 0;
template <>
inline constexpr std::size_t large_from<constants_with_heads> = 0;
template <>
inline constexpr std::size_t large_from<shared_tied> = 0;
template <>
inline constexpr std::size_t large_from<shared_encoder> = 0;
template <>
inline constexpr std::size_t large_from<shared_recurrent> = 0;
template <>
inline constexpr std::size_t large_from<shared_recomputed> = 0;
template <>
inline constexpr std::size_t large_from<shared_images> = 0;

}  // namespace pergrad::inline v0_1::on_host

namespace {

constexpr std::size_t records = 70;

template <class Network>
struct uneven {
  pg::host exec{pg::threads{2}};
  Network net{exec, pg::kaiming_uniform{5}};
  using value = typename Network::input_value;
  std::vector<value> inputs = std::vector<value>(records * Network::input_shape.size());
  std::vector<float> targets = std::vector<float>(records * Network::output_shape.size());
  pg::tape<Network> tape{exec, pg::max_batch{records}, pg::max_sums{4}};
  pg::batch<Network, pg::mean_squared_error> batch{inputs, targets};

  explicit uneven(std::size_t run) {
    std::mt19937 random{7};
    std::uniform_real_distribution<float> uniform{-1, 1};
    for (value& each : inputs) {
      if constexpr (std::is_integral_v<value>) {
        each = static_cast<value>(random() % Network::input_shape.ids);
      } else {
        each = uniform(random);
      }
    }
    for (std::size_t i = 0; i < targets.size(); ++i) {
      targets[i] = uniform(random) * (i / Network::output_shape.size() / run % 2 == 0 ? 1e-3F : 1e6F);
    }
  }
  [[nodiscard]] auto gradients() { return pg::per_sample_gradients(net, pg::mean_squared_error{}, batch, tape); }
};

template <class Network>
void compare(const char* name) {
  for (const std::size_t run : {std::size_t{1}, std::size_t{2}, std::size_t{16}}) {
    uneven<Network> it{run};
    const auto gradients = it.gradients();
    const pg::l2_clip_norm clip{10};
    const auto rows = pg::unprotected::evaluate(it.exec, pg::materialise(pg::clip(gradients, clip)));
    std::vector<double> wanted(Network::parameter_count);
    for (std::size_t i = 0; i < rows.size(); ++i) wanted[i % wanted.size()] += static_cast<double>(rows[i]);
    const auto check = [&](const char* how, const char* beside, const std::vector<float>& sum) {
      const double worst = comparing::largest_difference(sum, wanted);
      BOOST_TEST(worst < 1e-3, name << ", " << how << ", beside " << beside << ", runs of " << run << ": " << worst);
    };
    const auto ways = [&](const auto& of, const char* how) {
      check(how, "nothing", pg::unprotected::evaluate(it.exec, pg::sum(pg::clip(of, clip))));
      std::vector<float> sum(Network::parameter_count);
      std::vector<float> moment(Network::parameter_count);
      pg::unprotected::evaluate_into(it.exec, pg::assign(sum, pg::sum(pg::clip(of, clip))),
                                     pg::assign(moment, pg::second_moment(of)));
      check(how, "a second moment", sum);
    };
    for_each_exact_way(gradients, ways);
    ways(pg::with_strategy<pg::strategy::multi>(gradients), "multi");
  }
}

/// One infinite record adds nothing, and changes nothing of others.
template <class Network>
void leave_one_out(const char* name) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    uneven<Network> it{records};
    it.inputs[3 * Network::input_shape.size() + 5] = bad;
    const auto gradients = it.gradients();
    for_each_exact_way(gradients, [&](const auto& of, const char* how) {
      std::size_t wrong = 0;
      for (const float each : pg::unprotected::evaluate(it.exec, pg::sum(pg::clip(of, pg::l2_clip_norm{1})))) {
        wrong += std::isfinite(each) ? 0U : 1U;
      }
      BOOST_TEST(wrong == 0U, name << ", " << how << ", " << bad);
    });
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(rows_and_sums)

BOOST_AUTO_TEST_CASE(a_clipped_sum_is_that_of_the_clipped_rows) {
  compare<shared_with_a_head>("shared sums, a head");
  compare<deferred_before_positions>("positions behind a deferred layer");
  compare<constants_with_heads>("constants, heads");
#ifdef PERGRAD_LONG_TESTS
  compare<shared_norms>("shared sums, norms");
  compare<positions_before_deferred>("positions before a deferred layer");
  compare<to_one_position>("attention to one position");
  compare<from_one_position>("attention from one position");
  compare<tied_words>("tied words");
  compare<tied_with_a_head<>>("tied words, a head");
  compare<encoder_with_a_head<>>("encoder, a head");
  compare<recurrent_with_a_head<>>("recurrent, a head");
  compare<recomputed_with_a_head<>>("recomputed, a head");
  compare<images_with_a_head<>>("images, a head");
  compare<shared_tied>("shared sums, tied words, a head");
  compare<shared_encoder>("shared sums, encoder, a head");
  compare<shared_recurrent>("shared sums, recurrent, a head");
  compare<shared_recomputed>("shared sums, recomputed, a head");
  compare<shared_images>("shared sums, images, a head");
#endif
}
// Whoever was there before. Few of many ids, so that each record's are found at places of their own.
BOOST_AUTO_TEST_CASE(a_record_has_the_row_that_it_has_alone) {
  uneven<two_tables> it{1};
  for (auto& each : it.inputs) each %= 30;
  for (const std::size_t threads : {std::size_t{1}, std::size_t{3}}) {
    const pg::host exec{pg::threads{threads}};
    pg::tape<two_tables> tape{exec, pg::max_batch{records}};
    const auto gradients = pg::per_sample_gradients(it.net, pg::mean_squared_error{}, it.batch, tape);
    for (int again = 0; again < 2; ++again) {
      const auto rows = pg::unprotected::evaluate(exec, pg::materialise(gradients));
      for (std::size_t b = 0; b < records; ++b) {
        pg::tape<two_tables> fresh{exec, pg::max_batch{1}};
        const pg::batch<two_tables, pg::mean_squared_error> one{
            std::span<const std::int32_t>{it.inputs}.subspan(b * 12, 12),
            std::span<const float>{it.targets}.subspan(b * 3, 3)};
        const auto alone = pg::per_sample_gradients(it.net, pg::mean_squared_error{}, one, fresh);
        const auto row = pg::unprotected::evaluate(exec, pg::materialise(alone));
        const auto here = std::span{rows}.subspan(b * row.size(), row.size());
        BOOST_TEST(std::ranges::equal(here, row), "record " << b << ", " << threads << " threads");
      }
    }
  }
}
BOOST_AUTO_TEST_CASE(all_uses_of_a_weight_are_of_one_order) {
  const pg::host exec{pg::threads{1}};
  two_orders net{exec, pg::kaiming_uniform{5}};
  pg::tape<two_orders> tape{exec, pg::max_batch{1}};
  std::mt19937 random{7};
  std::uniform_real_distribution<double> uniform{-1, 1};
  std::vector<double> x(32);
  std::vector<double> y(3);
  for (double& each : x) each = uniform(random);
  for (double& each : y) each = uniform(random);
  const pg::batch<two_orders, pg::mean_squared_error> batch{x, y};
  const auto gradients = pg::per_sample_gradients(net, pg::mean_squared_error{}, batch, tape);
  const auto sum = pg::unprotected::evaluate(exec, pg::sum(gradients));
  const auto loss_at = [&](std::size_t i, double moved) {
    const double before = net.parameters()[i];
    net.parameters()[i] = before + moved;
    const double loss = pg::unprotected::evaluate(exec, pg::losses(gradients))[0];
    net.parameters()[i] = before;
    return loss;
  };
  std::vector<double> differences(sum.size());
  for (std::size_t i = 0; i < sum.size(); ++i) differences[i] = (loss_at(i, 1e-5) - loss_at(i, -1e-5)) / 2e-5;
  BOOST_TEST(comparing::largest_difference(sum, differences) < 1e-8);
}
BOOST_AUTO_TEST_CASE(an_infinite_record_changes_no_other) {
  leave_one_out<to_one_position>("attention to one position");
#ifdef PERGRAD_LONG_TESTS
  leave_one_out<from_one_position>("attention from one position");
  leave_one_out<shared_norms>("shared sums, norms");
  leave_one_out<positions_before_deferred>("positions before a deferred layer");
#endif
}

BOOST_AUTO_TEST_SUITE_END()
