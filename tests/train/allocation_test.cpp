// SPDX-License-Identifier: Apache-2.0
// tests/train/allocation_test.cpp - a training step takes nothing from the heap, and a file not what it holds.
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <type_traits>
#include <unistd.h>
#include <vector>

#include <pergrad/correlated_noise.hpp>

#include "counted_allocations.hpp"
#include "fixture.hpp"

BOOST_AUTO_TEST_SUITE(train_allocation)

namespace {

using namespace fixture;

/// Allocations of ten steps, the first included.
template <class Options>
std::size_t count_in_steps(const Options& options, std::size_t threads) {
  const clouds data{300};
  const pg::host exec{pg::threads{threads}};
  classifier net{exec, pg::kaiming_uniform{8}};
  const std::size_t before_construction = allocations;
  pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options};
  BOOST_TEST(allocations > before_construction + 5);  // the counter counts, and all is reserved here
  const std::size_t before = allocations;
  for (int step = 0; step < 10 && trainer.within_budget(); ++step) trainer.step(data.records());
  const std::size_t after = allocations;
  BOOST_TEST(trainer.steps() == 10U);
  return after - before;
}

}  // namespace

BOOST_AUTO_TEST_CASE(steps_allocate_nothing) {
  for (const std::size_t threads : {1U, 3U}) {
    auto options = usual_options();
    BOOST_TEST(count_in_steps(options, threads) == 0U);
    options.momentum = 0.9;
    options.private_metrics = true;
    options.budget = pg::privacy_budget{pg::epsilon{50}, pg::delta{1e-5}};
    BOOST_TEST(count_in_steps(options, threads) == 0U);
    options.clipping = pg::clipping_kind::per_layer;
    options.optimizer = pg::optimizer_kind::adam;
    options.momentum = 0;
    BOOST_TEST(count_in_steps(options, threads) == 0U);
    options.clipping = pg::clipping_kind::automatic;
    options.sampling = pg::poisson_sampling{pg::sampling_probability{0}};
    BOOST_TEST(count_in_steps(options, threads) == 0U);
    options = usual_options();
    options.average_decay = 0.9;
    options.adaptive_clip = pg::adaptive_clip{.noise = pg::noise_multiplier{5}};
    BOOST_TEST(count_in_steps(options, threads) == 0U);
    options = usual_options();
    options.statistic = pg::step_statistic{pg::noise_multiplier{5}, pg::bin_edges::evenly(0, 1, 30)};
    BOOST_TEST(count_in_steps(options, threads) == 0U);
    for (const bool has_budget : {false, true}) {
      options = usual_options();
      if (has_budget) options.budget = pg::privacy_budget{pg::epsilon{50}, pg::delta{1e-5}};
      options.noise.reset();
      options.clip.reset();
      options.schedules.steps = 10;
      options.schedules.noise = pg::schedule::exponential(1.5, 0.9);
      options.schedules.clip = pg::schedule::exponential(0.5, 0.8, 3);
      BOOST_TEST(count_in_steps(options, threads) == 0U);
    }
  }
}

BOOST_AUTO_TEST_CASE(nor_do_those_with_correlated_noise) {
  for (const std::size_t threads : {1U, 3U}) {
    pg::dp_options<pg::cyclic_poisson_sampling, pg::banded_noise> options{usual_options(), {}, {}};
    options.sampling = pg::cyclic_poisson_sampling{pg::sampling_probability{0.2}, pg::round_steps{3}};
    options.correlation = pg::banded_noise{10, {0.5, 0.4}};
    BOOST_TEST(count_in_steps(options, threads) == 0U);
    options.correlation = options.correlation->regenerated();
    BOOST_TEST(count_in_steps(options, threads) == 0U);
  }
}

BOOST_AUTO_TEST_CASE(nor_do_those_of_other_samplers) {
  const auto count = [](const auto& sampling) {
    pg::dp_options<std::decay_t<decltype(sampling)>> options;
    static_cast<pg::training_choices&>(options) = usual_options();
    options.sampling = sampling;
    options.budget = pg::privacy_budget{pg::epsilon{500}, pg::delta{1e-5}};
    return count_in_steps(options, 3);
  };
  const pg::sampling_probability q{0.2};
  const pg::public_record_count all{300};
  BOOST_TEST(count(pg::replace_one_poisson_sampling{q}) == 0U);
  BOOST_TEST(count(pg::truncated_poisson_sampling{q, pg::batch_capacity{50}, all}) == 0U);
  BOOST_TEST(count(pg::fixed_size_sampling{pg::batch_size{50}, all}) == 0U);
  BOOST_TEST(count(pg::shuffled_batches{pg::batch_size{70}, all}) == 0U);
  BOOST_TEST(count(pg::random_allocation{pg::round_steps{4}, pg::participations{2}}) == 0U);
  BOOST_TEST(count(pg::cyclic_poisson_sampling{q, pg::round_steps{3}}) == 0U);
  BOOST_TEST(count(pg::min_separation_sampling{q, pg::round_steps{3}}) == 0U);
  BOOST_TEST(count(pg::with_views{pg::poisson_sampling{q}, pg::view_count{2}}) == 0U);
  const std::vector<std::uint32_t> owners = [] {
    std::vector<std::uint32_t> made(300);
    for (std::size_t i = 0; i < made.size(); ++i) made[i] = static_cast<std::uint32_t>(i % 40);
    return made;
  }();
  BOOST_TEST(count(pg::of_owners{pg::poisson_sampling{q}, owners}) == 0U);
}

BOOST_AUTO_TEST_CASE(nor_do_predictions_of_one_record) {
  const clouds data{1};
  const pg::host exec{pg::threads{2}};
  const classifier net{exec, pg::kaiming_uniform{8}};
  pg::predictor predict_one{exec, net};
  const std::size_t before = allocations;
  float sum = 0;
  for (int i = 0; i < 10; ++i) sum += predict_one(pg::public_records{data.inputs})[0];
  BOOST_TEST(allocations == before);
  BOOST_TEST(std::isfinite(sum));
}

BOOST_AUTO_TEST_CASE(nor_do_those_of_a_loop_by_hand) {
  const clouds data{300};
  const pg::host exec{pg::threads{2}};
  classifier net{exec, pg::kaiming_uniform{8}};
  auto options = usual_options();
  options.budget = pg::privacy_budget{pg::epsilon{50}, pg::delta{1e-5}};
  const std::size_t before_construction = allocations;
  pg::private_loop<classifier, pg::cross_entropy> loop{exec, net, pg::cross_entropy{}, options};
  pg::sgd<classifier> optimizer{*options.learning_rate, 0.9};
  BOOST_TEST(allocations > before_construction + 5);
  const std::size_t before = allocations;
  for (int i = 0; i < 10; ++i) {
    auto step = loop.begin(data.records());
    while (step.next()) {
      const auto g = step.gradients();
      pg::evaluate_into(exec, pg::accumulate(step, pg::sum(pg::clip(g, *options.clip))));
    }
    optimizer.step(exec, net, std::move(step));
  }
  const std::size_t after = allocations;
  BOOST_TEST(loop.steps() == 10U);
  BOOST_TEST(after - before == 0U);
}

// How many steps the budget allows was found when the trainer was made: no step asks an accountant, which allocates.
BOOST_AUTO_TEST_CASE(nor_do_the_last_steps_of_a_budget) {
  pg::pld_accountant accountant;
  accountant.record(usual_options().sampling->event(*usual_options().noise), 10);
  auto options = usual_options();
  options.budget = pg::privacy_budget{pg::epsilon{accountant.epsilon(pg::delta{1e-5}) * 1.000001}, pg::delta{1e-5}};
  BOOST_TEST(count_in_steps(options, 2) == 0U);
}

// Files are written from where the numbers lie: what that takes is the same for parameters and moments of 13 kB and of
// 4 MB. Only the names of sizes in headers differ in length.
BOOST_AUTO_TEST_CASE(a_file_takes_no_memory_for_its_numbers) {
  using small = pg::network<pg::shape{32}, pg::linear<32>>;
  using large = pg::network<pg::shape{600}, pg::linear<600>>;
  const std::string path =
      (std::filesystem::temp_directory_path() / ("pergrad_allocation_" + std::to_string(::getpid()))).string();
  const auto bytes = [&]<class Network>(std::type_identity<Network>) {
    const pg::host exec{pg::threads{1}};
    Network net{exec, pg::kaiming_uniform{1}};
    auto options = usual_options();
    options.optimizer = pg::optimizer_kind::adam;
    const pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options};
    const std::size_t before = allocated_bytes;
    pg::save_parameters(net, path);
    const std::size_t parameters_only = allocated_bytes;
    pg::save_checkpoint(trainer, path);
    const std::size_t after = allocated_bytes;
    BOOST_TEST(std::filesystem::file_size(path) > 3 * net.parameters().size_bytes());
    std::filesystem::remove(path);
    return std::array{parameters_only - before, after - parameters_only};
  };
  const auto few = bytes(std::type_identity<small>{}), many = bytes(std::type_identity<large>{});
  for (const std::size_t i : {0U, 1U}) {
    BOOST_TEST(few[i] > 0U);
    BOOST_TEST(many[i] < few[i] + 1000);
  }
}

BOOST_AUTO_TEST_SUITE_END()
