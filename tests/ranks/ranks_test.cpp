// SPDX-License-Identifier: Apache-2.0
// tests/ranks/ranks_test.cpp - several ranks end where one process ends, bit for bit, and fail together
#include <boost/test/unit_test.hpp>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <unistd.h>
#include <vector>

#include <pergrad/correlated_noise.hpp>
#include <pergrad/pergrad.hpp>
#include <pergrad/ranks.hpp>

#include "rank_tests.hpp"

BOOST_AUTO_TEST_SUITE(ranks)

namespace {

namespace pg = pergrad;

using cnn =
    pg::network<pg::shape{1, 6, 6}, pg::conv2d<4, 3>, pg::tanh, pg::max_pool2d<2>, pg::flatten, pg::dropout<0.25>,
                pg::parameter_group<1, pg::linear<40>>, pg::relu, pg::linear<80>, pg::relu, pg::linear<3>>;
static_assert(cnn::parameter_count > 2 * 2048);  // more than one stretch of a release

using data = rank_tests::random_data<cnn>;

pg::dp_sgd_options usual() {
  pg::dp_sgd_options options;
  options.sampling = pg::poisson_sampling{pg::sampling_probability{0.15}};
  options.noise = pg::noise_multiplier{0.8};
  options.clip = pg::l2_clip_norm{0.5};
  options.divisor = pg::expected_batch_size{30};
  options.learning_rate = pg::learning_rate{0.3};
  options.momentum = 0.5;
  options.max_batch = pg::max_batch{16};
  return options;
}

/// The same records are drawn, and neighbours differ by replacing one: what lanes are for.
pg::dp_options<pg::replace_one_poisson_sampling> replacing(const pg::dp_sgd_options& options) {
  pg::dp_options<pg::replace_one_poisson_sampling> same;
  static_cast<pg::training_choices&>(same) = options;
  same.sampling = pg::replace_one_poisson_sampling{options.sampling->probability()};
  return same;
}

using rank_tests::parameters_of, rank_tests::values;

template <class Options>
values in_one_process(const data& all, Options options, int steps, std::size_t threads = 1) {
  const pg::host exec{pg::threads{threads}};
  cnn net{exec, pg::kaiming_uniform{1}};
  if (!options.lanes) options.capacity = pg::record_capacity{0};
  pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options, pg::seeded_generator{3}};
  const auto records = all.part(0, all.targets.size());
  for (int step = 0; step < steps; ++step) trainer.step(records);
  return parameters_of(net);
}

using rank_tests::on_threads;

/// Throws a number on a thread that is told to.
struct throwing_a_number : pg::cross_entropy {
  static inline thread_local bool is_told = false;
  template <class Scalar>
  [[nodiscard]] static double evaluate(std::span<const Scalar> y, std::span<const std::int32_t> targets,
                                       std::span<Scalar> dy) {
    if (is_told) throw 1;
    return pg::cross_entropy::evaluate<Scalar>(y, targets, dy);
  }
};

/// Shares that are no multiples of anything; with many ranks some are empty.
std::size_t cut(std::size_t total, std::size_t ranks, std::size_t rank) {
  if (rank == 0) return 0;
  if (rank == ranks) return total;
  return std::min(total, total * rank * rank / (ranks * ranks) + 3);
}
template <class Options>
std::size_t cut(const Options& options, std::size_t total, std::size_t ranks, std::size_t rank) {
  const std::size_t anywhere = cut(total, ranks, rank);
  return options.lanes && rank != ranks ? anywhere / options.lanes->records * options.lanes->records : anywhere;
}

template <class Options>
std::vector<values> on_ranks(const data& all, const Options& options, int steps, std::size_t ranks,
                             std::size_t threads) {
  std::vector<values> found(ranks);
  const auto thrown = on_threads<pg::thread_ranks::member>(ranks, [&](const pg::thread_ranks::member& me) {
    const pg::host exec{pg::threads{threads}};
    cnn net{exec, pg::kaiming_uniform{1 + me.rank()}};  // rank 0's count
    pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options, me, pg::seeded_generator{3}};
    const std::size_t first = cut(options, all.targets.size(), ranks, me.rank());
    const std::size_t last = cut(options, all.targets.size(), ranks, me.rank() + 1);
    const pg::shard mine{all.part(first, last - first), first};
    for (int step = 0; step < steps; ++step) trainer.step(mine);
    found[me.rank()] = parameters_of(net);
  });
  for (const std::string& each : thrown) BOOST_TEST(each == "");
  return found;
}

template <class Options>
void check(const char* what, const Options& options, std::size_t records = 200, int steps = 4) {
  const data all{records};
  const values wanted = in_one_process(all, options, steps);
  BOOST_TEST((in_one_process(all, options, steps, 2) == wanted), what);
  for (const std::size_t ranks : {1U, 2U, 3U, 4U, 7U}) {
    for (const std::size_t threads : {1U, 2U}) {
      for (const values& each : on_ranks(all, options, steps, ranks, threads)) {
        BOOST_TEST((each == wanted), what << " on " << ranks << " ranks of " << threads << " threads");
      }
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_kind_of_clipping_has_the_bits_of_one_process) {
  check("flat", usual());
  auto options = usual();
  options.clipping = pg::clipping_kind::per_layer;
  check("per layer", options);
  options.clipping = pg::clipping_kind::automatic;
  check("automatic", options);
  options.clipping = pg::clipping_kind::per_sample_adaptive;
  check("per sample", options);
  options.clipping = pg::clipping_kind::per_group;
  options.group_bounds = {*options.clip, pg::l2_clip_norm{0.2}};
  options.clip.reset();
  check("per group", options);
  options = usual();
  options.adaptive_clip = pg::adaptive_clip{pg::noise_multiplier{3}};
  check("adaptive", options);
}

BOOST_AUTO_TEST_CASE(so_have_other_optimizers_and_samplers) {
  auto options = usual();
  options.momentum = 0;
  options.optimizer = pg::optimizer_kind::adam;
  options.average_decay = 0.9;
  check("adam", options);
  options.adam.noise_floor = 1e-7;
  check("adam with noise correction", options);
  pg::dp_options<pg::fixed_size_sampling> fixed;
  static_cast<pg::training_choices&>(fixed) = usual();
  fixed.sampling = pg::fixed_size_sampling{pg::batch_size{30}, pg::public_record_count{200}};
  check("fixed size", fixed);
}

BOOST_AUTO_TEST_CASE(so_have_sums_in_floating_point_by_lanes) {
  const auto in_lanes = [](const auto& given, std::size_t count, std::size_t records, std::size_t capacity = 32) {
    auto options = [&] {
      if constexpr (std::is_same_v<std::remove_cvref_t<decltype(given)>, pg::dp_sgd_options>)
        return replacing(given);
      else
        return given;
    }();
    options.lanes = pg::record_lanes{count, records};
    options.capacity = pg::record_capacity{capacity};
    return options;
  };
  const data all{200};
  BOOST_TEST((in_one_process(all, in_lanes(usual(), 8, 25), 2) != in_one_process(all, in_lanes(usual(), 8, 25, 0), 2)));
  check("flat", in_lanes(usual(), 8, 25));
  check("another last lane", in_lanes(usual(), 7, 32));
  check("a lane", in_lanes(usual(), 1, 300));
  check("few", in_lanes(usual(), 16, 2), 29);
  check("lanes that are full", in_lanes(usual(), 3, 80, 16));
  auto options = usual();
  options.clipping = pg::clipping_kind::per_layer;
  options.max_batch = pg::max_batch{5};
  check("per layer", in_lanes(options, 4, 50));
  options.clipping = pg::clipping_kind::automatic;
  check("automatic", in_lanes(options, 4, 50));
  options.clipping = pg::clipping_kind::per_sample_adaptive;
  check("per sample", in_lanes(options, 4, 50));
  options.clipping = pg::clipping_kind::per_group;
  options.group_bounds = {*options.clip, pg::l2_clip_norm{0.2}};
  options.clip.reset();
  check("per group", in_lanes(options, 4, 50));
  options = usual();
  options.adaptive_clip = pg::adaptive_clip{pg::noise_multiplier{3}};
  check("adaptive", in_lanes(options, 16, 13));
  pg::dp_options<pg::fixed_size_sampling> fixed;
  static_cast<pg::training_choices&>(fixed) = usual();
  fixed.sampling = pg::fixed_size_sampling{pg::batch_size{30}, pg::public_record_count{200}};
  check("fixed size", in_lanes(fixed, 8, 25));
#ifdef PERGRAD_LONG_TESTS
  options.sampling = pg::poisson_sampling{pg::sampling_probability{3e-4}};
  check("large", in_lanes(options, 15, 9'777), 140'001, 2);
#endif
}

/// With noise that is correlated over steps.
template <class Noise>
auto correlated(const Noise& noise) {
  pg::dp_options<pg::cyclic_poisson_sampling, Noise> options;
  static_cast<pg::training_choices&>(options) = usual();
  options.sampling = pg::cyclic_poisson_sampling{pg::sampling_probability{0.5}, pg::round_steps{4}};
  options.correlation = noise;
  return options;
}

BOOST_AUTO_TEST_CASE(so_has_correlated_noise) {
  constexpr int steps = 5;
  const pg::banded_noise banded{steps, {0.6, 0.5, 0.4}};
  check("banded", correlated(banded), 200, steps);
  check("banded, drawn again", correlated(banded.regenerated()), 200, steps);
  check("banded, no records", correlated(banded), 0, steps);
  check("buffered", correlated(pg::buffered_noise{steps, {0.95, 0.5}, {0.2, 0.4}}), 200, steps);
  // Steps are not independent: else the test would say nothing.
  const data all{200};
  const auto with = [&](const pg::banded_noise& noise) { return in_one_process(all, correlated(noise), 2); };
  BOOST_TEST((with(banded) != with(pg::banded_noise{steps, {0.0, 0.0, 0.0}})));
}

BOOST_AUTO_TEST_CASE(correlated_noise_goes_on_with_other_ranks) {
  // What a rank has of earlier noise is that of its own stretches; of a seed, new owners draw it again.
  const data all{200};
  const auto options = correlated(pg::banded_noise{5, {0.6, 0.5, 0.4}});
  const values wanted = in_one_process(all, options, 5);
  const std::string path =
      (std::filesystem::temp_directory_path() / ("pergrad_ranks_correlated_" + std::to_string(::getpid()))).string();
  int taken = 0;
  for (const std::size_t ranks : {3U, 2U, 4U, 1U}) {
    const int steps = taken == 0 ? 2 : 1;
    const auto thrown = on_threads<pg::thread_ranks::member>(ranks, [&](const pg::thread_ranks::member& me) {
      const pg::host exec{pg::threads{1}};
      cnn net{exec, pg::kaiming_uniform{1}};
      pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options, me, pg::seeded_generator{3}};
      if (taken > 0) pg::load_checkpoint(trainer, path);
      const std::size_t first = cut(200, ranks, me.rank());
      const pg::shard mine{all.part(first, cut(200, ranks, me.rank() + 1) - first), first};
      for (int step = 0; step < steps; ++step) trainer.step(mine);
      pg::save_checkpoint(trainer, path);
      if (taken + steps == 5 && parameters_of(net) != wanted) throw std::runtime_error("other bits");
    });
    for (const std::string& each : thrown) BOOST_TEST(each == "");
    taken += steps;
  }
  BOOST_TEST(taken == 5);
  std::filesystem::remove(path);
}

BOOST_AUTO_TEST_CASE(one_that_nobody_helps_is_a_rank_too) {
  const data all{200};
  const pg::host exec{pg::threads{1}};
  const pg::alone world;
  cnn net{exec, pg::kaiming_uniform{1}};
  pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, usual(), world, pg::seeded_generator{3}};
  for (int step = 0; step < 4; ++step) trainer.step(pg::shard{all.part(0, 200), 0});
  BOOST_TEST((parameters_of(net) == in_one_process(all, usual(), 4)));
}

BOOST_AUTO_TEST_CASE(ranks_that_are_told_different_rates_take_no_step) {
  const data all{40};
  const auto thrown = on_threads<pg::thread_ranks::member>(2, [&](const pg::thread_ranks::member& me) {
    const pg::host exec{pg::threads{1}};
    cnn net{exec, pg::kaiming_uniform{1}};
    pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, usual(), me, pg::seeded_generator{3}};
    const pg::shard mine{all.part(20 * me.rank(), 20), 20 * me.rank()};
    trainer.step(mine);
    if (me.rank() == 1) trainer.set_learning_rate(pg::learning_rate{0.0625});
    trainer.step(mine);
  });
  for (const std::string& each : thrown) {
    BOOST_TEST(each.find("rank 1 has the learning rate 0.062500, rank 0 ") != std::string::npos, each);
  }
}

BOOST_AUTO_TEST_CASE(a_round_begins_anew_on_all_ranks_or_on_none) {
  // One rank's records have changed: the round of an allocation ends for all, and all pay for a new one.
  const data all{60};
  pg::dp_options<pg::random_allocation> options;
  static_cast<pg::training_choices&>(options) = usual();
  options.sampling = pg::random_allocation{pg::round_steps{4}, pg::participations{1}};
  std::vector<double> spent(3);
  std::vector<std::uint64_t> paid(3);
  const auto run = [&](bool is_told, bool is_refused) {
    const auto thrown = on_threads<pg::thread_ranks::member>(3, [&](const pg::thread_ranks::member& me) {
      const pg::host exec{pg::threads{1}};
      cnn net{exec, pg::kaiming_uniform{1}};
      pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options, me, pg::seeded_generator{3}};
      data own = all;
      const std::size_t first = 20 * me.rank();
      const pg::shard mine{own.part(first, 20), first};
      for (int step = 0; step < 3; ++step) trainer.step(mine);
      if (me.rank() == 1 && is_told) trainer.records_changed();
      if (is_refused) {  // another rank's records do not fit, and then are what they were
        data bad = all;
        if (me.rank() == 2) bad.targets[45] = 77;
        try {
          trainer.step(me.rank() == 2 ? pg::shard{bad.part(first, 20), first} : mine);
        } catch (const std::exception&) {
        }
      }
      trainer.step(mine);
      spent[me.rank()] = trainer.epsilon(pg::delta{1e-5});
      paid[me.rank()] = trainer.accountant().steps();
    });
    for (const std::string& each : thrown) BOOST_TEST(each == "");
    for (const double each : spent) BOOST_TEST(each == spent[0]);
    for (const std::uint64_t each : paid) BOOST_TEST(each == paid[0]);
    return paid[0];
  };
  BOOST_TEST(run(false, false) == 1U);
  BOOST_TEST(run(true, false) == 2U);
  BOOST_TEST(run(false, true) == 1U);  // those that are refused cost none
  BOOST_TEST(run(true, true) == 2U);
}

BOOST_AUTO_TEST_CASE(so_have_few_records_and_none) {
  check("five records", usual(), 5);
  auto options = usual();
  options.sampling = pg::poisson_sampling{pg::sampling_probability{1e-9}};
  check("empty batches", options);
  check("no records at all", usual(), 0);
}

BOOST_AUTO_TEST_CASE(large_data_sets_are_cut_anywhere) {
  // Shares that begin inside a window of draws.
  auto options = usual();
  options.sampling = pg::poisson_sampling{pg::sampling_probability{3e-4}};
  check("large", options, 140'001, 2);
}

BOOST_AUTO_TEST_CASE(a_checkpoint_goes_on_with_other_ranks) {
  const data all{200};
  auto options = usual();
  options.adaptive_clip = pg::adaptive_clip{pg::noise_multiplier{3}};
  const values wanted = in_one_process(all, options, 5);
  const std::string path =
      (std::filesystem::temp_directory_path() / ("pergrad_ranks_" + std::to_string(::getpid()))).string();
  const auto part = [&](std::size_t ranks, bool loads, int steps, bool saves) {
    std::vector<values> found(ranks);
    const auto thrown = on_threads<pg::thread_ranks::member>(ranks, [&](const pg::thread_ranks::member& me) {
      const pg::host exec{pg::threads{1}};
      cnn net{exec, pg::kaiming_uniform{1}};
      pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options, me, pg::seeded_generator{3}};
      if (loads) pg::load_checkpoint(trainer, path);
      const std::size_t first = cut(200, ranks, me.rank());
      const pg::shard mine{all.part(first, cut(200, ranks, me.rank() + 1) - first), first};
      for (int step = 0; step < steps; ++step) trainer.step(mine);
      if (saves) pg::save_checkpoint(trainer, path);
      found[me.rank()] = parameters_of(net);
    });
    for (const std::string& each : thrown) BOOST_TEST(each == "");
    return found;
  };
  static_cast<void>(part(3, false, 2, true));
  static_cast<void>(part(2, true, 1, true));
  for (const values& each : part(4, true, 2, false)) BOOST_TEST((each == wanted));
  // A file that cannot be written ends all ranks.
  const auto thrown = on_threads<pg::thread_ranks::member>(2, [&](const pg::thread_ranks::member& me) {
    const pg::host exec{pg::threads{1}};
    cnn net{exec, pg::kaiming_uniform{1}};
    pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options, me, pg::seeded_generator{3}};
    pg::save_checkpoint(trainer, "/nowhere/at/all");
  });
  for (const std::string& each : thrown) {
    BOOST_TEST(each.find("rank 0 of 2 failed") != std::string::npos, each);
    BOOST_TEST(each.find("/nowhere/at/all") != std::string::npos, each);
  }
  std::filesystem::remove(path);
}

// One at a time: what differs is named, though more may come of it.
BOOST_AUTO_TEST_CASE(ranks_that_are_told_different_things_end_with_one_message) {
  using change = std::function<void(pg::dp_sgd_options&)>;
  const auto thrown_with = [](const change& all, const change& differ, const pg::seeded_generator& generator) {
    return on_threads<pg::thread_ranks::member>(3, [&](const pg::thread_ranks::member& me) {
      const pg::host exec{pg::threads{1}};
      cnn net{exec, pg::kaiming_uniform{1}};
      auto options = usual();
      options.sampling = pg::poisson_sampling{pg::sampling_probability{1}};  // costs that are soon known
      if (all) all(options);
      if (me.rank() == 2 && differ) differ(options);
      const pg::dp_sgd trainer{exec,    net, pg::cross_entropy{},
                               options, me,  me.rank() == 2 ? generator : pg::seeded_generator{3}};
    });
  };
  const auto require = [&](const char* what, const change& differ, const change& all = {},
                           const pg::seeded_generator& generator = pg::seeded_generator{3}) {
    const auto thrown = thrown_with(all, differ, generator);
    for (const std::string& each : thrown) {
      BOOST_TEST(each == thrown[0]);
      BOOST_TEST(each.find(what) != std::string::npos, each);
      BOOST_TEST(each.find("rank 2 has") != std::string::npos, each);
    }
  };
  require("the option noise", [](auto& options) { options.noise = pg::noise_multiplier{0.9}; });
  require("the option clip", [](auto& options) { options.clip = pg::l2_clip_norm{0.6}; });
  require("the option divisor", [](auto& options) { options.divisor = pg::expected_batch_size{31}; });
  require("the option learning_rate", [](auto& options) { options.learning_rate = pg::learning_rate{0.2}; });
  require("the option clipping", [](auto& options) { options.clipping = pg::clipping_kind::per_layer; });
  require("the option momentum", [](auto& options) { options.momentum = 0.6; });
  require("the option weight_decay", [](auto& options) { options.weight_decay = 0.1; });
  require("the option average_decay", [](auto& options) { options.average_decay = 0.9; });
  require("the first event's hash",
          [](auto& options) { options.sampling = pg::poisson_sampling{pg::sampling_probability{0.2}}; });
  require("the seed", {}, {}, pg::seeded_generator{4});
  require("steps given out", {}, {}, pg::seeded_generator{3, 1});

  const change grouped = [](auto& options) {
    options.clip.reset();
    options.clipping = pg::clipping_kind::per_group;
    options.group_bounds = {pg::l2_clip_norm{0.3}, pg::l2_clip_norm{0.4}};
  };
  require(
      "the hash of the option group_bounds",
      [](auto& options) { std::swap(options.group_bounds[0], options.group_bounds[1]); }, grouped);
  require(
      "the option optimizer", [](auto& options) { options.optimizer = pg::optimizer_kind::adam; },
      [](auto& options) { options.momentum = 0; });
  const change adam = [](auto& options) {
    options.momentum = 0;
    options.optimizer = pg::optimizer_kind::adam;
  };
  for (const change& differ : std::initializer_list<change>{
           [](auto& options) { options.adam.beta1 = 0.8; }, [](auto& options) { options.adam.beta2 = 0.9; },
           [](auto& options) { options.adam.stability = 1e-3; }, [](auto& options) { options.adam.weight_decay = 0.1; },
           [](auto& options) { options.adam.noise_floor = 1e-3; }}) {
    require("the hash of the option adam", differ, adam);
  }

  const change limited = [](auto& options) { options.budget = pg::privacy_budget{pg::epsilon{9}, pg::delta{1e-5}}; };
  require("the option budget's epsilon", limited);
  require(
      "the option budget's delta",
      [](auto& options) {
        options.budget = pg::privacy_budget{pg::epsilon{9}, pg::delta{2e-5}};
      },
      limited);
  require(
      "the option plan", [](auto& options) { options.plan = pg::run_plan::on_the_way; }, limited);

  const change scheduled = [](auto& options) {
    options.noise.reset();
    options.clip.reset();
    options.sampling.reset();
    options.learning_rate.reset();
    options.schedules.steps = 2;
    options.schedules.noise = options.schedules.clip = options.schedules.sampling = options.schedules.learning_rate =
        pg::schedule::exponential(1, 0.9);
  };
  for (const auto of : {&pg::step_schedules::noise, &pg::step_schedules::clip, &pg::step_schedules::sampling,
                        &pg::step_schedules::learning_rate}) {
    require(
        "the hash of the option schedules",
        [of](auto& options) { options.schedules.*of = pg::schedule::exponential(1, 0.8); }, scheduled);
  }
  const change counting = [](auto& options) {
    options.statistic = pg::step_statistic{pg::noise_multiplier{20}, pg::bin_edges{{0.5, 1}}};
  };
  const char* const counted = "the hash of what is counted in a step";
  require(
      counted,
      [](auto& options) {
        options.statistic->edges = pg::bin_edges{{0.5, 2}};
      },
      counting);
  require(
      counted, [](auto& options) { options.statistic->of = pg::step_value::loss; }, counting);
  const change adaptive = [](auto& options) { options.adaptive_clip = pg::adaptive_clip{pg::noise_multiplier{3}}; };
  require(
      counted, [](auto& options) { options.adaptive_clip->quantile = 0.6; }, adaptive);
  require(
      counted, [](auto& options) { options.adaptive_clip->rate = 0.3; }, adaptive);
  for (const change& all : {change{}, grouped, adam, limited, scheduled, counting, adaptive}) {
    for (const std::string& each : thrown_with(all, {}, pg::seeded_generator{3})) BOOST_TEST(each == "");
  }
}

/// What a trainer with these options throws on three ranks, of which the last one's are changed before.
template <class Options>
std::vector<std::string> thrown_where_one_differs(const Options& options, const std::function<void(Options&)>& differ) {
  return on_threads<pg::thread_ranks::member>(3, [&](const pg::thread_ranks::member& me) {
    const pg::host exec{pg::threads{1}};
    cnn net{exec, pg::kaiming_uniform{1}};
    Options mine = options;
    if (me.rank() == 2) differ(mine);
    const pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, mine, me, pg::seeded_generator{3}};
  });
}
template <class Sampling, class Noise = pg::independent_noise>
pg::dp_options<Sampling, Noise> usual_of(Sampling sampling) {
  pg::dp_options<Sampling, Noise> options;
  static_cast<pg::training_choices&>(options) = usual();
  options.sampling = sampling;
  return options;
}

// Each rank draws among its own records. Samplers whose events are the same may draw them more or less often: then the
// ledger that rank 0 tells and saves would not be that of the other ranks' records.
BOOST_AUTO_TEST_CASE(ranks_draw_alike_and_have_one_strategy) {
  const auto require = [](const char* what, const auto& options, const auto& other) {
    using chosen = std::remove_cvref_t<decltype(options)>;
    for (const std::string& each : thrown_where_one_differs<chosen>(options, [&](chosen& mine) { mine = other; })) {
      BOOST_TEST(each.find(what) != std::string::npos, each);
      BOOST_TEST(each.find("rank 2 has") != std::string::npos, each);
    }
    for (const std::string& each : thrown_where_one_differs<chosen>(options, [](chosen&) {})) BOOST_TEST(each == "");
  };
  const pg::sampling_probability q{0.5};
  require("the steps that an event pays", usual_of(pg::cyclic_poisson_sampling{q, pg::round_steps{8}}),
          usual_of(pg::cyclic_poisson_sampling{q, pg::round_steps{2}}));
  require("the least separation", usual_of(pg::min_separation_sampling{q, pg::round_steps{4}}),
          usual_of(pg::min_separation_sampling{q, pg::round_steps{2}}));
  const auto shuffled = [](std::uint32_t size) {
    return usual_of(pg::shuffled_batches{pg::batch_size{size}, pg::public_record_count{60}});
  };
  require("the steps that an event pays", shuffled(5), shuffled(20));
  require("the sampler's batch size", shuffled(31), shuffled(40));
  const auto banded = [&](std::uint32_t groups, double coefficient, std::uint64_t steps) {
    auto options = usual_of<pg::cyclic_poisson_sampling, pg::banded_noise>({q, pg::round_steps{groups}});
    options.correlation.emplace(steps, std::initializer_list<double>{coefficient});
    return options;
  };
  require("the steps that an event pays", banded(8, 0.5, 16), banded(2, 0.5, 16));
  require("the hash of the noise's strategy", banded(8, 0.5, 16), banded(8, -0.5, 16));
  require("the steps of the noise's strategy", banded(8, 0.5, 16), banded(8, 0.5, 17));
  const auto apart = [](double p) {  // one event of the whole run, which p does not change
    auto options = usual_of<pg::min_separation_sampling, pg::banded_noise>(
        pg::min_separation_sampling{pg::sampling_probability{p}, pg::round_steps{4}});
    options.correlation.emplace(16, std::initializer_list<double>{0.5});
    return options;
  };
  require("the sampler's probability", apart(0.25), apart(0.5));
  auto all_records = usual();
  all_records.sampling = pg::poisson_sampling{pg::sampling_probability{1}};  // costs that are soon known
  auto in_lanes = replacing(all_records);
  in_lanes.lanes = pg::record_lanes{2, 30};
  require("the number of the option lanes", replacing(all_records), in_lanes);
  const auto changed = [&](const auto& change) {
    auto other = in_lanes;
    change(other);
    return other;
  };
  require("the records of the option lanes", in_lanes, changed([](auto& other) { other.lanes->records = 31; }));
  require("the option max_batch", in_lanes, changed([](auto& other) { other.max_batch = pg::max_batch{15}; }));
  require("the option capacity", in_lanes, changed([](auto& other) { other.capacity = pg::record_capacity{40}; }));
}

// Each rank reads its own machine's file.
BOOST_AUTO_TEST_CASE(all_ranks_go_on_from_the_same_file_or_none_does) {
  const data all{60};
  auto options = usual();
  options.adaptive_clip = pg::adaptive_clip{pg::noise_multiplier{3}};
  options.average_decay = 0.9;
  const std::string path =
      (std::filesystem::temp_directory_path() / ("pergrad_rank_files_" + std::to_string(::getpid()))).string();
  const auto file = [&](int number) { return path + "_" + std::to_string(number); };
  const auto run = [&](const std::function<void(
                           std::size_t rank, pg::shard<float, std::int32_t> mine,
                           pg::dp_sgd<cnn, pg::cross_entropy, pg::seeded_generator,
                                      pg::detail::on_ranks<pg::host, pg::thread_ranks::member>, pg::dp_sgd_options> &
                               trainer)>& f) {
    return on_threads<pg::thread_ranks::member>(2, [&](const pg::thread_ranks::member& me) {
      const pg::host exec{pg::threads{1}};
      cnn net{exec, pg::kaiming_uniform{1}};
      pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options, me, pg::seeded_generator{3}};
      f(me.rank(), pg::shard{all.part(30 * me.rank(), 30), 30 * me.rank()}, trainer);
    });
  };
  for (const std::string& each : run([&](std::size_t, auto mine, auto&trainer) {
         for (const int steps : {1, 4}) {
           for (int i = 0; i < steps; ++i) trainer.step(mine);
           pg::unprotected::save_checkpoint(trainer, file(steps));
         }
       })) {
    BOOST_TEST(each == "");
  }
  const auto require = [&](const char* what, int of_rank_1) {
    std::vector<double> clips(2);
    for (const std::string& each : run([&](std::size_t rank, auto mine, auto&trainer) {
           const double before = trainer.epsilon(pg::delta{1e-5});
           std::string thrown;
           try {
             pg::load_checkpoint(trainer, rank == 0 ? file(4) : file(of_rank_1));
           } catch (const std::exception& error) {
             thrown = error.what();
           }
           if (thrown.find(what) == std::string::npos) throw std::runtime_error("it said: " + thrown);
           if (trainer.steps() != 0 || trainer.epsilon(pg::delta{1e-5}) != before) throw std::runtime_error("changed");
           trainer.step(mine);  // anew, all alike
           clips[rank] = trainer.options().clip->value();
         })) {
      BOOST_TEST(each == "");
    }
    BOOST_TEST(clips[0] == clips[1]);
  };
  require("a checkpoint with hash", 1);
  require("cannot be opened", 2);
  for (const std::string& each : run([&](std::size_t, auto mine, auto&trainer) {
         pg::load_checkpoint(trainer, file(4));
         if (trainer.steps() != 5) throw std::runtime_error("other steps");
         trainer.step(mine);
       })) {
    BOOST_TEST(each == "");
  }
  for (const int number : {1, 4}) std::filesystem::remove(file(number));
}

BOOST_AUTO_TEST_CASE(a_rank_that_fails_or_is_gone_ends_all) {
  const data all{60};
  const auto run = [&](const std::function<void(std::size_t rank, int step, pg::shard<float, std::int32_t>&)>& change,
                       std::chrono::milliseconds patience) {
    return on_threads<pg::thread_ranks::member>(
        3,
        [&](const pg::thread_ranks::member& me) {
          const pg::host exec{pg::threads{1}};
          cnn net{exec, pg::kaiming_uniform{1}};
          pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, usual(), me, pg::seeded_generator{3}};
          pg::shard<float, std::int32_t> mine{all.part(20 * me.rank(), 20), 20 * me.rank()};
          for (int step = 0; step < 3; ++step) {
            change(me.rank(), step, mine);
            trainer.step(mine);
          }
        },
        patience);
  };
  const std::chrono::milliseconds long_enough = std::chrono::minutes{2};
  // a record that the loss does not take
  data wrong{20};
  wrong.targets[7] = 3;
  for (const std::string& each : run(
           [&](std::size_t rank, int step, auto&mine) {
             if (rank == 1 && step == 2) mine.records = wrong.part(0, 20);
           },
           long_enough)) {
    BOOST_TEST(each.find("rank 1 of 3 failed") != std::string::npos, each);
    BOOST_TEST(each.find("record 7") != std::string::npos, each);
  }
  // shards that overlap, or leave something out
  for (const std::uint64_t first : {39U, 41U}) {
    for (const std::string& each : run(
             [&](std::size_t rank, int step, auto&mine) {
               if (rank == 2 && step == 1) mine.first_record = first;
             },
             long_enough)) {
      BOOST_TEST(each.find("rank 2 has 20 from number " + std::to_string(first)) != std::string::npos, each);
    }
  }
  // lanes that are cut
  for (const std::string& each : on_threads<pg::thread_ranks::member>(3, [&](const pg::thread_ranks::member& me) {
         const pg::host exec{pg::threads{1}};
         cnn net{exec, pg::kaiming_uniform{1}};
         auto options = replacing(usual());
         options.lanes = pg::record_lanes{2, 30};
         pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options, me, pg::seeded_generator{3}};
         trainer.step(pg::shard{all.part(20 * me.rank(), 20), 20 * me.rank()});
       })) {
    BOOST_TEST(each.find("that of rank 1 begins at record 20") != std::string::npos, each);
  }
  // a loss that throws what is no std::exception: the others hear of it, and all can go on
  const auto went_on = on_threads<pg::thread_ranks::member>(3, [&](const pg::thread_ranks::member& me) {
    const pg::host exec{pg::threads{1}};
    cnn net{exec, pg::kaiming_uniform{1}};
    pg::dp_sgd trainer{exec, net, throwing_a_number{}, usual(), me, pg::seeded_generator{3}};
    const pg::shard mine{all.part(20 * me.rank(), 20), 20 * me.rank()};
    throwing_a_number::is_told = me.rank() == 1;
    bool has_heard = false;
    try {
      trainer.step(mine);
    } catch (const pg::rank_failed&) {
      has_heard = true;
    }
    throwing_a_number::is_told = false;
    trainer.step(mine);
    if (!has_heard || trainer.steps() != 2) throw std::runtime_error("did not hear of it, or lost a step");
  });
  for (const std::string& each : went_on) BOOST_TEST(each == "");
  // a patience that no clock counts to
  for (const std::string& each : run([](std::size_t, int, auto&) {}, std::chrono::milliseconds::max())) {
    BOOST_TEST(each == "");
  }
  // one that leaves without a word
  const auto begin = std::chrono::steady_clock::now();
  const auto thrown = run(
      [](std::size_t rank, int step, auto&) {
        if (rank == 0 && step == 1) throw std::runtime_error("gone");
      },
      std::chrono::milliseconds{500});
  BOOST_TEST(thrown[0] == "gone");
  for (const std::size_t rank : {1U, 2U}) BOOST_TEST(thrown[rank].find("one of them is gone") != std::string::npos);
  BOOST_TEST((std::chrono::steady_clock::now() - begin < std::chrono::seconds{30}));
}

BOOST_AUTO_TEST_CASE(secret_keys_are_rank_0s) {
  // Each rank noises the counts of a step by itself: with keys of their own they would have other counts.
  const data all{100};
  auto options = usual();
  options.adaptive_clip = pg::adaptive_clip{pg::noise_multiplier{3}};
  std::vector<values> found(3);
  std::vector<std::vector<double>> counts(3);
  const auto thrown = on_threads<pg::thread_ranks::member>(3, [&](const pg::thread_ranks::member& me) {
    const pg::host exec{pg::threads{1}};
    cnn net{exec, pg::kaiming_uniform{1}};
    pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options, me};
    const std::size_t first = cut(100, 3, me.rank());
    const pg::shard mine{all.part(first, cut(100, 3, me.rank() + 1) - first), first};
    for (int step = 0; step < 3; ++step) {
      trainer.step(mine);
      const auto released = trainer.last_statistic().counts();
      counts[me.rank()].insert(counts[me.rank()].end(), released.begin(), released.end());
    }
    found[me.rank()] = parameters_of(net);
    if (trainer.steps() != 3) throw std::runtime_error("not three steps");
  });
  for (const std::string& each : thrown) BOOST_TEST(each == "");
  for (const values& each : found) BOOST_TEST((each == found[0]));
  for (const auto& each : counts) BOOST_TEST((each == counts[0]));
  BOOST_TEST(counts[0].size() == 6U);
  BOOST_TEST(std::isfinite(found[0][0]));
}

#if defined(__linux__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which take memory too
namespace {

using wide = pg::network<pg::shape{1000}, pg::linear<2000>>;  // 2,002,000 parameters

/// Bytes that four ranks take after two steps, and after a checkpoint was written, in a process of its own.
std::array<std::size_t, 2> bytes_of_four_ranks(pg::optimizer_kind optimizer) {
  int ends[2];
  BOOST_TEST_REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string path =
        (std::filesystem::temp_directory_path() / ("pergrad_ranks_memory_" + std::to_string(::getpid()))).string();
    std::array<std::size_t, 2> taken{};
    const std::vector<float> inputs(8 * 1000, 0.5F);
    const std::vector<std::int32_t> targets(8, 7);
    const auto thrown = on_threads<pg::thread_ranks::member>(4, [&](const pg::thread_ranks::member& me) {
      const auto note = [&](std::size_t number) {
        static_cast<void>(pg::detail::values_of_all(me, 0));  // all are here, and stay until all have gone on
        std::size_t pages[2] = {};
        if (me.rank() == 0) {
          std::ifstream{"/proc/self/statm"} >> pages[0] >> pages[1];
          taken[number] = pages[1] * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
        }
        static_cast<void>(pg::detail::values_of_all(me, 0));
      };
      const pg::host exec{pg::threads{1}};
      wide net{exec, pg::kaiming_uniform{1}};
      auto options = usual();
      options.momentum = 0;
      options.optimizer = optimizer;
      options.max_batch = pg::max_batch{2};
      pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options, me, pg::seeded_generator{3}};
      const pg::shard mine{
          pg::dataset<float, std::int32_t>{std::span{inputs}.subspan(2000 * me.rank(), 2000),
                                           std::span{targets}.subspan(2 * me.rank(), 2), wide::input_shape},
          2 * me.rank()};
      trainer.step(mine);
      trainer.step(mine);
      note(0);
      pg::save_checkpoint(trainer, path);
      note(1);
    });
    std::filesystem::remove(path);
    const bool failed = std::ranges::any_of(thrown, [](const std::string& each) { return !each.empty(); });
    const bool told = ::write(ends[1], taken.data(), sizeof taken) == static_cast<ssize_t>(sizeof taken);
    ::_exit(failed || !told ? 1 : 0);
  }
  ::close(ends[1]);
  std::array<std::size_t, 2> taken{};
  BOOST_TEST(::read(ends[0], taken.data(), sizeof taken) == static_cast<ssize_t>(sizeof taken));
  ::close(ends[0]);
  int status = -1;
  ::waitpid(child, &status, 0);
  BOOST_TEST(status == 0);
  return taken;
}

}  // namespace

BOOST_AUTO_TEST_CASE(an_optimizers_memory_is_divided_among_ranks) {
  const auto without = bytes_of_four_ranks(pg::optimizer_kind::sgd);
  const auto with = bytes_of_four_ranks(pg::optimizer_kind::adam);
  constexpr std::size_t arrays = 2 * wide::parameter_count * sizeof(float);  // 16 MB, and four times as much undivided
  for (const std::size_t when : {0U, 1U}) {
    const auto more = static_cast<double>(with[when]) - static_cast<double>(without[when]);
    BOOST_TEST(more > 0.5 * arrays);
    BOOST_TEST(more < 2.0 * arrays);
  }
}
#endif

BOOST_AUTO_TEST_SUITE_END()
