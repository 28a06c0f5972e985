// SPDX-License-Identifier: Apache-2.0
// tests/files/resume_state_test.cpp - whatever a trainer remembers between steps is in its file: a run in two parts has
// the bits of one, at any step, for every combination of what options make it remember
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <new>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <vector>

#include <pergrad/pergrad.hpp>

#include "counted_allocations.hpp"
#include "train/fixture.hpp"

BOOST_AUTO_TEST_SUITE(files_resume_state)

namespace {

using namespace fixture;

constexpr std::uint64_t steps = 6;

struct file {
  std::string path =
      (std::filesystem::temp_directory_path() / ("pergrad_resume_state_" + std::to_string(::getpid()))).string();
  ~file() { std::filesystem::remove(path); }
};
struct run {
  pg::host exec{pg::threads{1}};
  classifier net;
  pg::dp_sgd<classifier, pg::cross_entropy, pg::seeded_generator> trainer;
  explicit run(const pg::dp_sgd_options& options, std::uint64_t first = 8)
      : net{exec, pg::kaiming_uniform{first}},
        trainer{exec, net, pg::cross_entropy{}, options, pg::seeded_generator{41}} {}
};

struct choice {
  const char* name;
  std::function<void(pg::dp_sgd_options&)> set;
};
using choices = std::vector<choice>;

[[nodiscard]] const std::vector<choices>& all_choices() {
  static const std::vector<choices> all{
      {{"SGD", [](auto&) {}},
       {"momentum", [](auto& o) { o.momentum = 0.9; }},
       {"Adam", [](auto& o) { o.optimizer = pg::optimizer_kind::adam; }},
       {"DP-AdamBC",
        [](auto& o) {
          o.optimizer = pg::optimizer_kind::adam;
          o.adam.noise_floor = 1e-8;
        }}},
      {{"no average", [](auto&) {}}, {"average", [](auto& o) { o.average_decay = 0.9; }}},
      {{"flat", [](auto&) {}},
       {"per layer", [](auto& o) { o.clipping = pg::clipping_kind::per_layer; }},
       {"automatic", [](auto& o) { o.clipping = pg::clipping_kind::automatic; }},
       {"per-sample adaptive", [](auto& o) { o.clipping = pg::clipping_kind::per_sample_adaptive; }},
       {"adaptive clip", [](auto& o) { o.adaptive_clip = pg::adaptive_clip{.noise = pg::noise_multiplier{5}}; }},
       {"individual",
        [](auto& o) {
          o.individual = pg::individual_accounting{};
          o.budget = pg::privacy_budget{pg::epsilon{3}, pg::delta{1e-5}};
        }},
       {"statistic",
        [](auto& o) {
          o.statistic = pg::step_statistic{pg::noise_multiplier{5}, pg::bin_edges{{0.5, 1}}};
        }}},
      {{"constant", [](auto&) {}},
       {"scheduled",
        [](auto& o) {
          o.noise.reset();
          o.learning_rate.reset();
          o.sampling.reset();
          o.schedules.steps = steps;
          o.schedules.noise = pg::schedule::exponential(1.5, 0.9, 2);
          o.schedules.sampling = pg::schedule{[](std::uint64_t step) { return step < 4 ? 0.2 : 0.3; }};
          o.schedules.learning_rate = pg::schedule::exponential(0.25, 0.8);
        }},
       {"with a scheduled clip norm",
        [](auto& o) {
          o.clip.reset();
          o.schedules.steps = steps;
          o.schedules.clip = pg::schedule::exponential(0.6, 0.9);
        }}},
      {{"no budget", [](auto&) {}},
       {"budget",
        [](auto& o) {
          o.budget = pg::privacy_budget{pg::epsilon{40}, pg::delta{1e-5}};
        }}},
  };
  return all;
}

/// In the short tier a third of the combinations, in which any two choices that may meet do.
#ifdef PERGRAD_LONG_TESTS
constexpr std::size_t one_of = 1;
#else
constexpr std::size_t one_of = 3;
#endif
constexpr std::size_t one_in = 13;  // of these, where each takes hundreds of loads
[[nodiscard]] bool is_in_this_tier(const std::vector<std::size_t>& digits) {
  return std::accumulate(digits.begin(), digits.end(), std::size_t{0}) % one_of == 0;
}

/// visit(options, their names, which choice it is of each kind) of every combination.
template <class Visit>
void for_each_combination(const Visit& visit) {
  std::vector<std::size_t> digits(all_choices().size());
  while (true) {
    auto options = usual_options();
    std::string name;
    for (std::size_t i = 0; i < digits.size(); ++i) {
      const choice& chosen = all_choices()[i][digits[i]];
      chosen.set(options);
      name += std::string{name.empty() ? "" : ", "} + chosen.name;
    }
    // What excludes each other, as the trainer's options say.
    const bool refused = options.adaptive_clip && options.schedules.clip;
    if (!refused) visit(options, name, digits);
    std::size_t i = 0;
    while (i < digits.size() && ++digits[i] == all_choices()[i].size()) digits[i++] = 0;
    if (i == digits.size()) return;
  }
}

/// All that two runs can differ in.
void check_same(run& one, run& other, const pg::dp_sgd_options& options, const std::string& name) {
  BOOST_TEST_REQUIRE((parameters_of(one.net) == parameters_of(other.net)), name);
  BOOST_TEST_REQUIRE(one.trainer.steps() == other.trainer.steps(), name);
  BOOST_TEST_REQUIRE(one.trainer.within_budget() == other.trainer.within_budget(), name);
  BOOST_TEST_REQUIRE(one.trainer.options().noise->value() == other.trainer.options().noise->value(), name);
  if (options.clip || options.schedules.clip) {
    BOOST_TEST_REQUIRE(one.trainer.options().clip->value() == other.trainer.options().clip->value(), name);
  }
  if (options.average_decay > 0) {
    BOOST_TEST_REQUIRE(std::ranges::equal(one.trainer.average().parameters(), other.trainer.average().parameters()),
                       name);
  }
  if (options.individual) {
    BOOST_TEST_REQUIRE((pg::unprotected::individual_epsilons(one.trainer, pg::delta{1e-5}) ==
                        pg::unprotected::individual_epsilons(other.trainer, pg::delta{1e-5})),
                       name);
  }
  const auto ledger_of = [](const run& of) {
    std::vector<std::vector<double>> entries;
    for (const auto& each : of.trainer.accountant().accountant().ledger()) {
      if (each.count == 0) continue;
      entries.push_back(
          {each.event.sampling_probability, each.event.noise_multiplier, static_cast<double>(each.count)});
    }
    return entries;
  };
  BOOST_TEST_REQUIRE((ledger_of(one) == ledger_of(other)), name);
}

}  // namespace

// Cut behind each step of each combination: the rest of the second part is that of the whole, bit by bit.
BOOST_AUTO_TEST_CASE(two_parts_are_one_run) {
  const clouds data{120};
  const file saved;
  std::size_t combinations = 0;
  for_each_combination([&](const pg::dp_sgd_options& options, const std::string& name, const auto& digits) {
    if (!is_in_this_tier(digits)) return;
    // Combinations are many, cuts few: each is cut at one step of its own, so that all steps are cut.
    const std::uint64_t cut = combinations % (steps + 1);
    run whole{options};
    for (std::uint64_t step = 0; step < cut; ++step) whole.trainer.step(data.records());
    pg::unprotected::save_checkpoint(whole.trainer, saved.path);
    run part{options, 99};
    pg::load_checkpoint(part.trainer, saved.path);
    check_same(whole, part, options, name + ", cut at " + std::to_string(cut));
    for (std::uint64_t step = cut; step < steps; ++step) {
      whole.trainer.step(data.records());
      part.trainer.step(data.records());
    }
    check_same(whole, part, options, name + ", at the end");
    ++combinations;
  });
  BOOST_TEST(combinations == ((4 * 2 * 7 * 3 - 4 * 2) * 2U + one_of - 1) / one_of);
}
// Wherever memory ends in a load, the trainer is as it was, or takes no step any more; a load with more of it is whole.
BOOST_AUTO_TEST_CASE(a_load_for_which_memory_does_not_suffice_changes_nothing) {
  const clouds data{120};
  const file saved;
  std::size_t combinations = 0, failures = 0, in_part = 0;
  for_each_combination([&](const pg::dp_sgd_options& options, const std::string& name, const auto& digits) {
    if (!is_in_this_tier(digits) || combinations++ % one_in != 0) return;
    run whole{options}, untouched{options, 99};
    auto part = std::make_unique<run>(options, 99);
    for (std::uint64_t step = 0; step < 3; ++step) whole.trainer.step(data.records());
    pg::unprotected::save_checkpoint(whole.trainer, saved.path);
    bool is_loaded = false;
    for (std::size_t allowed = 0; !is_loaded; allowed += 1 + (allowed > 150 ? allowed / 4 : 0)) {  // proofs take many
      most_allocations = allocations + allowed;
      try {
        pg::load_checkpoint(part->trainer, saved.path);
        is_loaded = true;
      } catch (const std::bad_alloc&) {
        ++failures;
      }
      most_allocations = SIZE_MAX;
      if (is_loaded) break;
      if (part->trainer.steps() == 0) {
        check_same(untouched, *part, options, name + ", memory for " + std::to_string(allowed));
        continue;
      }
      BOOST_CHECK_THROW(part->trainer.step(data.records()), std::logic_error);
      BOOST_CHECK_THROW(pg::unprotected::save_checkpoint(part->trainer, saved.path), std::logic_error);
      BOOST_CHECK_THROW(pg::load_checkpoint(part->trainer, saved.path), std::logic_error);
      part = std::make_unique<run>(options, 99);
      ++in_part;
    }
    check_same(whole, *part, options, name + ", loaded");
    for (std::uint64_t step = 3; step < steps; ++step) {
      whole.trainer.step(data.records());
      part->trainer.step(data.records());
    }
    check_same(whole, *part, options, name + ", at the end");
  });
  BOOST_TEST(in_part > 0U);
  BOOST_TEST(failures > 50 * combinations / one_in);
}
BOOST_AUTO_TEST_CASE(any_two_choices_meet) {
  std::set<std::array<std::size_t, 4>> all, here;
  for_each_combination([&](const pg::dp_sgd_options& /*options*/, const std::string& /*name*/, const auto& digits) {
    for (std::size_t i = 0; i < digits.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        all.insert({i, digits[i], j, digits[j]});
        if (is_in_this_tier(digits)) here.insert({i, digits[i], j, digits[j]});
      }
    }
  });
  BOOST_TEST(all.size() == 4 * (2 + 7 + 3 + 2) + 2 * (7 + 3 + 2) + 7 * (3 + 2) + 3 * 2U - 1);  // one is refused
  BOOST_TEST((here == all));
}

BOOST_AUTO_TEST_CASE(what_records_have_spent_is_no_file_for_release) {
  const clouds data{60};
  const file saved;
  auto options = usual_options();
  options.individual = pg::individual_accounting{};
  options.budget = pg::privacy_budget{pg::epsilon{3}, pg::delta{1e-5}};
  run it{options};
  it.trainer.step(data.records());
  BOOST_CHECK_THROW(pg::save_checkpoint(it.trainer, saved.path), std::logic_error);
  BOOST_TEST(!std::filesystem::exists(saved.path));
  pg::unprotected::save_checkpoint(it.trainer, saved.path);
  using perms = std::filesystem::perms;
  const auto of_owner = perms::owner_read | perms::owner_write;
  BOOST_TEST((std::filesystem::status(saved.path).permissions() == of_owner));
  std::filesystem::permissions(saved.path, of_owner | perms::group_read | perms::others_read);
  pg::unprotected::save_checkpoint(it.trainer, saved.path);  // in the place of one that all may read
  BOOST_TEST((std::filesystem::status(saved.path).permissions() == of_owner));
  const auto says = [&](const pg::dp_sgd_options& other, const std::string& text) {
    run another{other, 99};
    const auto before = parameters_of(another.net);
    BOOST_CHECK_EXCEPTION(
        pg::load_checkpoint(another.trainer, saved.path), std::runtime_error,
        [&](const std::exception& error) { return std::string{error.what()}.find(text) != std::string::npos; });
    BOOST_TEST((parameters_of(another.net) == before));
    BOOST_TEST(another.trainer.steps() == 0U);
  };
  auto other = options;
  other.budget = pg::privacy_budget{pg::epsilon{4}, pg::delta{1e-5}};
  says(other, "spent from another budget");
  says(usual_options(), "individual.");
  other = options;
  other.average_decay = 0.9;
  says(other, "average.");
  // Another number of records than the file's is another data set.
  run again{options, 99};
  pg::load_checkpoint(again.trainer, saved.path);
  BOOST_CHECK_THROW(again.trainer.step(clouds{61}.records()), std::logic_error);
  BOOST_CHECK_NO_THROW(again.trainer.step(data.records()));
}

BOOST_AUTO_TEST_SUITE_END()
