// SPDX-License-Identifier: Apache-2.0
// tests/cuda/private_options_test.cpp - what a run of DP-SGD remembers from step to step, on a device as on the host
#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <stdexcept>
#include <utility>

#include "device_fixture.hpp"
#include "training_runs.hpp"

BOOST_AUTO_TEST_SUITE(cuda_private_options)

namespace {

using namespace device_fixture;
using namespace training_runs;

struct way_of_training {
  const char* what;
  std::function<void(pg::dp_sgd_options&)> set;
};

const std::vector<way_of_training> ways{
    {"per-sample adaptive clipping", [](auto& o) { o.clipping = pg::clipping_kind::per_sample_adaptive; }},
    {"DP-AdamBC",
     [](auto& o) {
       o.optimizer = pg::optimizer_kind::adam;
       o.learning_rate = pg::learning_rate{0.02};
       o.adam.noise_floor = 1e-4;
       o.adam.weight_decay = 0.1;
     }},
    {"an average", [](auto& o) { o.average_decay = 0.7; }},
    {"an average, physical batches, momentum",
     [](auto& o) {
       o.average_decay = 0.9;
       o.max_batch = pg::max_batch{7};
       o.momentum = 0.9;
     }},
    {"adaptive clipping",
     [](auto& o) { o.adaptive_clip = pg::adaptive_clip{.noise = pg::noise_multiplier{2}, .rate = 0.6}; }},
    {"schedules of noise, clip norm and rate",
     [](auto& o) {
       o.noise.reset();
       o.clip.reset();
       o.schedules.steps = 12;
       o.schedules.noise = pg::schedule::exponential(1.5, 0.7, 2);
       o.schedules.clip = pg::schedule::exponential(0.9, 0.6);
       o.learning_rate.reset();
       o.schedules.learning_rate = pg::schedule::exponential(0.3, 0.9);
     }},
    {"schedules with clipping per layer and DP-AdamBC",
     [](auto& o) {
       o.noise.reset();
       o.clip.reset();
       o.schedules.steps = 12;
       o.schedules.noise = pg::schedule::exponential(1.5, 0.7);
       o.schedules.clip = pg::schedule::exponential(0.9, 0.6, 3);
       o.clipping = pg::clipping_kind::per_layer;
       o.optimizer = pg::optimizer_kind::adam;
       o.learning_rate = pg::learning_rate{0.02};
       o.adam.noise_floor = 1e-4;
     }},
    {"individual accounting, of which most records run out", [](auto& o) {
       o.individual = pg::individual_accounting{};
       o.clip = pg::l2_clip_norm{3};
       o.sampling = pg::poisson_sampling{pg::sampling_probability{0.5}};
       o.budget = pg::privacy_budget{pg::epsilon{9}, pg::delta{1e-5}};
       o.max_batch = pg::max_batch{24};
     }}};

pg::dp_sgd_options options_of(const way_of_training& way) {
  auto options = usual_options();
  options.capacity = pg::record_capacity{0};  // integers on the host, too: noise is of the same deviation then
  way.set(options);
  return options;
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_way_of_training_is_the_hosts) {
  const pg::emulated device;
  const pg::host host{pg::threads{1}};
  const auto plain = trained(host, usual_options(), 8);
  for (const way_of_training& way : ways) {
    const auto wanted = trained(host, options_of(way), 8);
    check_close(trained(device, options_of(way), 8), wanted, 2e-5, way.what);
    // None of them is what it is without the option.
    double apart = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      apart = std::max(apart, static_cast<double>(std::abs(wanted[i] - (i < plain.size() ? plain[i] : 0))));
    }
    BOOST_TEST(apart > 1e-3, way.what);
  }
}

BOOST_AUTO_TEST_CASE(a_run_in_two_parts_goes_on_with_all_of_its_state_and_may_change_its_executor) {
  const pg::emulated device;
  const pg::emulated other;
  const pg::host host{pg::threads{1}};
  for (const way_of_training& way : ways) {
    BOOST_TEST_CONTEXT(way.what) {
      const auto options = options_of(way);
      const auto wanted = trained(device, options, 6);
      check_same(trained_in_parts(device, other, options, 6), wanted, "on a device");
      check_close(trained_in_parts(device, host, options, 6), wanted, 2e-5, "from a device to the host");
      check_close(trained_in_parts(host, device, options, 6), wanted, 2e-5, "from the host to a device");
    }
  }
}

BOOST_AUTO_TEST_CASE(no_bit_depends_on_the_physical_batch_or_on_the_order_of_threads) {
  const pg::emulated forward;
  const pg::emulated shuffled{pg::on_device::emulation_order::shuffled};
  for (const way_of_training& way : ways) {
    auto options = options_of(way);
    const auto wanted = trained(forward, options, 5);
    for (const std::size_t batch : {1U, 5U, 300U}) {
      options.max_batch = pg::max_batch{batch};
      check_same(trained(shuffled, options, 5), wanted, way.what);
    }
  }
}

// The host's average of parameters follows when it is asked for, and a trainer takes over what the host has changed.
BOOST_AUTO_TEST_CASE(an_average_begins_with_the_first_step_and_is_there_behind_each) {
  const pg::emulated device;
  const records_of_noise data;
  network net{device, pg::kaiming_uniform{5}};
  auto options = usual_options();
  options.average_decay = 0.5;
  pg::dp_sgd trainer{device, net, pg::cross_entropy{}, options, pg::seeded_generator{9}};
  const auto values = [](const network& of) {
    const auto parameters = of.parameters();
    return std::vector<float>{parameters.begin(), parameters.end()};
  };
  check_same(values(trainer.average()), values(net), "before the first step");
  trainer.step(data.view());
  const auto first = values(net);
  check_same(values(trainer.average()), first, "behind the first step");
  trainer.step(data.view());
  const auto second = values(net);
  const auto average = values(trainer.average());
  for (std::size_t i = 0; i < average.size(); ++i) {  // 1/3 and 2/3
    BOOST_TEST(average[i] == first[i] + (second[i] - first[i]) * (2.0F / 3), boost::test_tools::tolerance(1e-5F));
  }
}

// Who may still be used is decided before a sample is weighed, and has to be what is charged for afterwards.
BOOST_AUTO_TEST_CASE(a_limit_admits_what_the_filter_admits_to_the_last_bit) {
  const pg::sampled_gaussian_event event{0.3, 1.1};
  constexpr std::size_t records = 40;
  for (const std::size_t levels : {std::size_t{1}, std::size_t{7}, std::size_t{64}}) {
    pg::detail::individual_charges charges{pg::privacy_budget{pg::epsilon{4}, pg::delta{1e-5}}, event, levels, records};
    const double bound = 0.7;
    charges.plan(event, pg::release_grid::of(bound, 1000));
    charges.filter().begin_step(records);
    std::mt19937 random{3};
    std::vector<std::uint32_t> drawn(records);
    for (std::uint32_t i = 0; i < records; ++i) drawn[i] = i;
    std::vector<double> limits(records), most(records);
    int refused = 0;
    int free_of_charge = 0;
    for (int step = 0; step < 60; ++step) {
      charges.filter().begin_step(records);
      charges.find_limits(drawn, limits);
      for (std::size_t i = 0; i < records; ++i) {
        const double at = limits[i] <= bound ? limits[i] : bound;
        const double near_it[] = {at, std::nextafter(at, 1.0), std::nextafter(at, 0.0), 0, bound * 0.3, bound * 0.9};
        for (const double each : near_it) {
          if (each > bound) continue;
          const std::size_t level = charges.level_of(each);
          BOOST_TEST((each <= limits[i]) == charges.filter().admits(i, level));
          refused += each <= limits[i] ? 0 : 1;
          free_of_charge += level == 0 ? 1 : 0;
        }
        most[i] = std::generate_canonical<double, 20>(random) * bound;
      }
      charges.take(most);
      charges.charge(drawn);
      charges.end_of_step();
    }
    BOOST_TEST(refused > 0);
    BOOST_TEST(free_of_charge > 0);
  }
}

// A record above its limit adds nothing, and leaves what it would have added.
BOOST_AUTO_TEST_CASE(a_sample_above_its_limit_has_no_weight) {
  namespace dev = pg::on_device;
  const double bound = 0.5;
  const pg::norm_bound norms[]{{.squared = 0.04}};
  const double most = pg::clipped_norm_bound<float>(norms[0], 10, bound, 0);
  BOOST_TEST(most > 0.2);
  const auto weigh = [&](double limit) {
    double limits[]{-1, -1, limit};
    float weights[]{7, 7, 7};
    const dev::clip_rule rule{.kind = dev::clip_rule::kind_type::flat, .bound = bound, .limits = limits};
    dev::weigh(rule, norms, 1, 10, 2, weights, 0);
    BOOST_TEST(limits[2] == most);
    BOOST_TEST(limits[1] == -1);
    BOOST_TEST(weights[1] == 7);
    return weights[2];
  };
  BOOST_TEST(weigh(most) == 1);
  BOOST_TEST(weigh(std::nextafter(most, 0.0)) == 0);
  BOOST_TEST(weigh(0) == 0);
  BOOST_TEST(weigh(1e300) == 1);
}

// Where a device fails behind a release, what its records added is not known: they have paid for the most.
BOOST_AUTO_TEST_CASE(records_of_a_step_that_fails_have_paid_for_it) {
  const records_of_noise data;
  auto options = usual_options();
  options.private_metrics = true;  // for which a step asks behind its release
  options.individual = pg::individual_accounting{};
  options.budget = pg::privacy_budget{pg::epsilon{9}, pg::delta{1e-5}};
  options.sampling = pg::poisson_sampling{pg::sampling_probability{0.5}};
  options.max_batch = pg::max_batch{300};
  int failed = 0;
  const auto spent = [&](std::size_t fails_after) {
    const pg::emulated device;
    network net{device, pg::kaiming_uniform{5}};
    pg::dp_sgd trainer{device, net, pg::cross_entropy{}, options, pg::seeded_generator{9}};
    trainer.step(data.view());
    const auto before = pg::unprotected::individual_epsilons(trainer, pg::delta{1e-5});
    device.device().fail_after(fails_after);
    bool has_failed = false;
    try {
      trainer.step(data.view());
    } catch (const std::exception&) {
      has_failed = true;
    }
    device.device().fail_after(0);
    failed += has_failed ? 1 : 0;
    const auto parameters = net.parameters();
    const auto after = pg::unprotected::individual_epsilons(trainer, pg::delta{1e-5});
    double least = 1;
    for (std::size_t i = 0; i < after.size(); ++i) least = std::min(least, after[i] - before[i]);
    return std::pair{least, std::vector<float>{parameters.begin(), parameters.end()}};
  };
  const auto wanted = spent(0);
  BOOST_TEST(wanted.first > 0);
  int released = 0;
  for (std::size_t after = 1; after < 10; ++after) {
    const int before = failed;
    const auto found = spent(after);
    if (failed == before || found.second != wanted.second) continue;
    ++released;
    BOOST_TEST(found.first >= wanted.first);
  }
  BOOST_TEST(failed > 3);
  BOOST_TEST(released > 2);
}

// The average is of all steps that were released, also where the trainer has thrown behind one.
BOOST_AUTO_TEST_CASE(a_step_that_fails_behind_its_release_counts_in_the_average) {
  const records_of_noise data;
  auto options = usual_options();
  options.average_decay = 0.6;
  options.private_metrics = true;
  const auto averaged = [&](std::size_t fails_after) {
    const pg::emulated device;
    network net{device, pg::kaiming_uniform{5}};
    pg::dp_sgd trainer{device, net, pg::cross_entropy{}, options, pg::seeded_generator{9}};
    trainer.step(data.view());
    device.device().fail_after(fails_after);
    try {
      trainer.step(data.view());
    } catch (const std::exception&) {
    }
    device.device().fail_after(0);
    const auto second = net.parameters();
    std::vector<float> all{second.begin(), second.end()};
    trainer.step(data.view());
    const auto average = trainer.average().parameters();
    all.insert(all.end(), average.begin(), average.end());
    return all;
  };
  const auto wanted = averaged(0);
  int released = 0;
  for (std::size_t after = 1; after < 8; ++after) {
    const auto found = averaged(after);
    if (!std::equal(found.begin(), found.begin() + network::parameter_count, wanted.begin())) continue;
    ++released;
    BOOST_TEST((found == wanted));
  }
  BOOST_TEST(released > 1);
}

// Groups may have any number, and those without layers have bounds as well.
BOOST_AUTO_TEST_CASE(bounds_of_many_groups_have_room) {
  namespace dev = pg::on_device;
  using grouped = pg::network<pg::shape{6}, pg::parameter_group<40, pg::linear<9>>, pg::tanh, pg::linear<3>>;
  constexpr dev::arena_layout places = dev::lay_out(dev::facts_of<grouped>, sizeof(float), 8);
  static_assert(places.bounds + 41 * sizeof(double) <= places.parameters);
  auto options = usual_options();
  options.clip.reset();
  options.clipping = pg::clipping_kind::per_group;
  options.group_bounds.assign(41, pg::l2_clip_norm{0.2});
  options.group_bounds.back() = pg::l2_clip_norm{0.01};
  options.capacity = pg::record_capacity{0};
  const std::vector<float> inputs(60 * 6, 0.7F);
  const std::vector<std::int32_t> targets(60, 1);
  const auto parameters_after = [&](const auto& exec) {
    grouped net{exec, pg::kaiming_uniform{5}};
    net.parameters()[16] = net.parameters()[17] = 3;
    pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options, pg::seeded_generator{9}};
    for (int step = 0; step < 3; ++step) trainer.step({inputs, targets, grouped::input_shape});
    const auto parameters = net.parameters();
    return std::vector<float>{parameters.begin(), parameters.end()};
  };
  check_close(parameters_after(pg::emulated{}), parameters_after(pg::host{pg::threads{1}}), 1e-5, "41 groups");
}

// When the trainer is made, and again in the step whose noise is another one.
BOOST_AUTO_TEST_CASE(a_trainer_on_a_device_that_makes_other_noise_releases_nothing) {
  using small = pg::network<pg::shape{6}, pg::linear<3>>;
  const std::vector<float> inputs(60 * 6, 0.7F);
  const std::vector<std::int32_t> targets(60, 1);
  const pg::dataset<float, std::int32_t> records{inputs, targets, small::input_shape};
  const pg::basic_device_executor<wrong_device> exec;
  small net{exec, pg::kaiming_uniform{5}};
  auto options = usual_options();
  options.noise.reset();
  options.schedules.steps = 4;
  options.schedules.noise = pg::schedule::exponential(1.5, 0.7, 2);  // of the third step on
  const auto is_refused = [](const std::runtime_error& error) {
    return std::string{error.what()}.find("does not make the host's noise, and releases nothing") != std::string::npos;
  };
  exec.device().is_wrong = true;
  BOOST_CHECK_EXCEPTION((pg::dp_sgd{exec, net, pg::cross_entropy{}, options}), std::runtime_error, is_refused);
  exec.device().is_wrong = false;
  pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options};
  for (int step = 0; step < 2; ++step) trainer.step(records);
  const std::vector<float> before(net.parameters().begin(), net.parameters().end());
  exec.device().is_wrong = true;
  BOOST_CHECK_EXCEPTION(trainer.step(records), std::runtime_error, is_refused);
  exec.device().is_wrong = false;
  BOOST_TEST(net.parameters() == before, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(what_devices_lack_is_refused) {
  const pg::emulated device;
  network net{device, pg::zeros{}};
  pg::dp_options<pg::replace_one_poisson_sampling> options;
  options.clip = pg::l2_clip_norm{0.7};
  options.noise = pg::noise_multiplier{0.8};
  options.sampling = pg::replace_one_poisson_sampling{pg::sampling_probability{0.1}};
  options.divisor = pg::expected_batch_size{30};
  options.learning_rate = pg::learning_rate{0.3};
  BOOST_CHECK_NO_THROW((pg::dp_sgd{device, net, pg::cross_entropy{}, options}));
  options.lanes = pg::record_lanes{2, 10};
  options.capacity = pg::record_capacity{100};
  BOOST_CHECK_EXCEPTION((pg::dp_sgd{device, net, pg::cross_entropy{}, options}), std::invalid_argument,
                        [](const std::exception& error) {
                          return std::string{error.what()}.find("lanes is for the host") != std::string::npos;
                        });
}

BOOST_AUTO_TEST_SUITE_END()
