// SPDX-License-Identifier: Apache-2.0
// tests/train/lanes_test.cpp - sums by lanes of record numbers: what one record can do to them, and which bits they
// have
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include <pergrad/pergrad.hpp>

BOOST_AUTO_TEST_SUITE(train_lanes)

namespace {

namespace pg = pergrad;

/// Its gradient for a target of -1/2, while the weights are 0, is the record itself.
constexpr std::size_t width = 4096;
using identity = pg::network<pg::shape{width}, pg::linear<1, pg::no_bias>>;
static_assert(identity::parameter_count == width);

constexpr double bound = 64;  // of a record; a unit of sums is 64 or 128
const pg::release_grid grid = pg::release_grid::of(bound, width);

using options_type = pg::dp_options<pg::replace_one_poisson_sampling>;
options_type options_for(const pg::record_lanes& lanes, std::size_t capacity) {
  options_type options;
  options.sampling = pg::replace_one_poisson_sampling{pg::sampling_probability{1}};
  options.noise = pg::noise_multiplier{0};  // a rehearsal, in which everybody sees the sum
  options.clip = pg::l2_clip_norm{bound};
  options.divisor = pg::expected_batch_size{1};
  options.learning_rate = pg::learning_rate{1};
  options.max_batch = pg::max_batch{4};
  options.capacity = pg::record_capacity{capacity};
  options.lanes = lanes;
  return options;
}

/// The sum of records, each of which has one number in all its elements, or nearly so, in steps of the grid.
std::vector<double> sum_of(const std::vector<float>& records, const options_type& options, float slope = 0) {
  std::vector<float> inputs;
  for (const float value : records) {
    for (std::size_t i = 0; i < width; ++i) inputs.push_back(value * (1 - slope * static_cast<float>(i)));
  }
  const std::vector<float> targets(records.size(), -0.5F);
  const pg::host exec{pg::threads{1}};
  identity net{exec, pg::zeros{}};
  pg::dp_sgd trainer{exec, net, pg::mean_squared_error{}, options, pg::seeded_generator{1}};
  trainer.step(pg::dataset<float, float>{inputs, targets, identity::input_shape, 1});
  std::vector<double> steps;
  for (const float value : net.parameters()) {
    steps.push_back(std::ldexp(-static_cast<double>(value), grid.steps - grid.unit));
  }
  return steps;
}
double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_record_that_is_replaced_rounds_its_lane_anew_and_no_other) {
  // Four records a lane, whose sums lie a little above the middle between two steps.
  constexpr pg::record_lanes lanes{16, 4};
  constexpr std::size_t capacity = 32;
  const double step = std::ldexp(1.0, grid.unit - grid.steps);
  constexpr double usual = 0x1p11 * 0.999;  // steps: width of these have a norm just below the bound
  const double whole = std::floor(usual);
  std::vector<float> records;
  for (std::size_t lane = 0; lane < lanes.count; ++lane) {
    for (const double value : {whole, whole + 0.5 + 0x1p-9, whole, whole}) {
      records.push_back(static_cast<float>(value * step));
    }
  }
  const options_type options = options_for(lanes, capacity);
  const auto all = sum_of(records, options);
  BOOST_TEST(all[0] == 64 * whole + 16 * 1);  // a half a lane is rounded up
  std::vector<float> others = records;
  others[21] = static_cast<float>((-whole - 0.5 - 0x1p-9) * step);
  const auto replaced = sum_of(others, options);
  BOOST_TEST(replaced[0] == 62 * whole + 15 * 1 - 1);
  const double moved = distance(all, replaced);
  BOOST_TEST(moved <= pg::sensitivity_in_steps(grid, pg::summation::of<float>(capacity), 2));
  // A claim that has forgotten rounding is found out.
  BOOST_TEST(moved > 2 * std::ldexp(grid.bound * 0.999, grid.steps - grid.unit));
}

BOOST_AUTO_TEST_CASE(lanes_that_are_full_go_on_in_integers) {
  // Of eight records of a lane, four are added up in floating point; their number in the lane is what counts.
  std::mt19937 random{3};
  std::uniform_real_distribution<float> uniform{-1, 1};
  std::vector<float> records(61);
  for (float& each : records) each = uniform(random);
  const double claim = pg::sensitivity_in_steps(grid, pg::summation::of<float>(4), 2);
  const options_type options = options_for({8, 8}, 4);
  constexpr float slope = 1e-6F;
  const auto all = sum_of(records, options, slope);
  options_type integers = options_for({8, 8}, 0);
  const auto exact = sum_of(records, integers, slope);
  integers.lanes.reset();
  BOOST_TEST((sum_of(records, integers, slope) == exact));  // lanes are nothing to integers
  BOOST_TEST(distance(all, exact) > 0);
  BOOST_TEST(distance(all, exact) < std::sqrt(width) * (8 + 61 / 2.0));
  for (std::size_t other = 0; other < records.size(); ++other) {
    std::vector<float> others = records;
    others[other] = other % 3 == 0 ? std::numeric_limits<float>::quiet_NaN() : -others[other];  // NaN adds nothing
    BOOST_TEST(distance(all, sum_of(others, options, slope)) <= claim);
  }
}

// Without record 0 the first record of each lane would be in the lane before, and sums would round anew in steps in
// which record 0 is not drawn: they would tell of it at full price.
BOOST_AUTO_TEST_CASE(there_are_none_where_records_are_added_or_removed) {
  const auto refused = [](const auto& sampling) {
    pg::dp_options<std::remove_cvref_t<decltype(sampling)>> options;
    static_cast<pg::training_choices&>(options) = options_for({4, 13}, 8);
    options.sampling = sampling;
    const pg::host exec{pg::threads{1}};
    identity net{exec, pg::zeros{}};
    const auto says_why = [](const std::invalid_argument& thrown) {
      return std::string{thrown.what()}.find("replacing one record") != std::string::npos;
    };
    BOOST_CHECK_EXCEPTION((pg::dp_sgd{exec, net, pg::mean_squared_error{}, options, pg::seeded_generator{1}}),
                          std::invalid_argument, says_why);
    BOOST_CHECK_EXCEPTION((pg::private_loop{exec, net, pg::mean_squared_error{}, options, pg::seeded_generator{1}}),
                          std::invalid_argument, says_why);
  };
  refused(pg::poisson_sampling{pg::sampling_probability{0.5}});
  refused(pg::poisson_sampling{pg::sampling_probability{1}});
  refused(pg::random_allocation{pg::round_steps{3}});
}

BOOST_AUTO_TEST_CASE(a_loop_by_hand_has_the_same_lanes) {
  std::mt19937 random{4};
  std::normal_distribution<float> normal;
  std::vector<float> inputs(50 * width);
  for (float& each : inputs) each = normal(random) / 100;
  const std::vector<float> targets(50, 1.0F);
  const pg::dataset<float, float> records{inputs, targets, identity::input_shape, 1};
  options_type options = options_for({4, 13}, 8);
  options.clip = pg::l2_clip_norm{0.3};
  options.sampling = pg::replace_one_poisson_sampling{pg::sampling_probability{0.7}};
  options.noise = pg::noise_multiplier{1};
  const pg::host exec;
  identity trained{exec, pg::kaiming_uniform{1}};
  identity by_hand{exec, pg::kaiming_uniform{1}};
  pg::dp_sgd trainer{exec, trained, pg::mean_squared_error{}, options, pg::seeded_generator{1}};
  pg::private_loop loop{exec, by_hand, pg::mean_squared_error{}, options, pg::seeded_generator{1}};
  pg::sgd<identity> optimizer{*options.learning_rate};
  for (int i = 0; i < 3; ++i) {
    trainer.step(records);
    auto step = loop.begin(records);
    while (step.next()) {
      pg::evaluate_into(exec, pg::accumulate(step, pg::sum(pg::clip(step.gradients(), *options.clip))));
    }
    optimizer.step(exec, by_hand, std::move(step));
  }
  const auto equal = [&] { return std::ranges::equal(trained.parameters(), by_hand.parameters()); };
  BOOST_TEST(equal());
}

BOOST_AUTO_TEST_CASE(lanes_that_cannot_be_are_refused) {
  const auto message = [](const options_type& options, std::size_t count = 4) -> std::string {
    try {
      static_cast<void>(sum_of(std::vector<float>(count, 0.1F), options));
    } catch (const std::invalid_argument& thrown) {
      return thrown.what();
    }
    return {};
  };
  BOOST_TEST(message(options_for({0, 4}, 8)).find("the option lanes must have 1 to 16") != std::string::npos);
  BOOST_TEST(message(options_for({17, 4}, 8)).find("got 17") != std::string::npos);
  BOOST_TEST(message(options_for({4, 0}, 8)).find("records a lane") != std::string::npos);
  BOOST_TEST(message(options_for({2, 3}, 8), 6) == "");
  BOOST_TEST(message(options_for({2, 3}, 8), 7).find("room for 2 times 3 records, and there are 7") !=
             std::string::npos);
  const std::vector<std::uint32_t> owners(4, 0);
  pg::dp_options<pg::of_owners<pg::poisson_sampling>> of_owners;
  static_cast<pg::training_choices&>(of_owners) = options_for({2, 3}, 8);
  of_owners.sampling = pg::of_owners{pg::poisson_sampling{pg::sampling_probability{1}}, owners};
  const pg::host exec;
  identity net{exec, pg::zeros{}};
  BOOST_CHECK_EXCEPTION((pg::dp_sgd{exec, net, pg::mean_squared_error{}, of_owners, pg::seeded_generator{1}}),
                        std::invalid_argument, [](const std::invalid_argument& thrown) {
                          return std::string{thrown.what()}.find("owners") != std::string::npos;
                        });
}

BOOST_AUTO_TEST_SUITE_END()
