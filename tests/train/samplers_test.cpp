// SPDX-License-Identifier: Apache-2.0
// tests/train/samplers_test.cpp - a trainer and a loop with every sampler: they train on what it draws, enter its event
// and no other, and go on in the middle of a round
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include <pergrad/correlated_noise.hpp>
#include <pergrad/pergrad.hpp>

#include "fixture.hpp"

BOOST_AUTO_TEST_SUITE(train_samplers)

namespace {

using namespace fixture;

constexpr std::uint32_t count = 90;
constexpr std::uint64_t seed = 41;

template <class Sampling>
pg::dp_options<Sampling> options_with(const Sampling& sampling) {
  pg::dp_options<Sampling> options;
  static_cast<pg::training_choices&>(options) = usual_options();
  options.sampling = sampling;
  return options;
}
/// visit(sampler) for one of each.
template <class Visit>
void for_each_sampler(const Visit& visit) {
  visit(pg::poisson_sampling{pg::sampling_probability{0.2}});
  visit(pg::replace_one_poisson_sampling{pg::sampling_probability{0.2}});
  visit(pg::truncated_poisson_sampling{pg::sampling_probability{0.2}, pg::batch_capacity{20},
                                       pg::public_record_count{count}});
  visit(pg::replace_one_truncated_poisson_sampling{pg::sampling_probability{0.2}, pg::batch_capacity{20},
                                                   pg::public_record_count{count}});
  visit(pg::fixed_size_sampling{pg::batch_size{20}, pg::public_record_count{count}});
  visit(pg::shuffled_batches{pg::batch_size{20}, pg::public_record_count{count}});
  visit(pg::random_allocation{pg::round_steps{4}});
  visit(pg::random_allocation{pg::round_steps{4}, pg::participations{2}});
  visit(pg::balls_in_bins_sampling{pg::round_steps{3}, pg::epoch_count{2}});
  visit(pg::cyclic_poisson_sampling{pg::sampling_probability{0.5}, pg::round_steps{3}});
  visit(pg::min_separation_sampling{pg::sampling_probability{0.3}, pg::round_steps{3}});
}
template <class Sampling>
std::uint64_t round_of(const Sampling& sampling) {
  if constexpr (pg::detail::has_rounds<Sampling>) return sampling.steps_of_an_event();
  return 1;
}
/// What step t of a trainer with this seed draws. A step takes two of the generator's: the draw's and the noise's.
template <class Sampling>
std::vector<std::uint32_t> drawn_in(const Sampling& sampling, std::uint64_t t) {
  const pg::seeded_generator generator{seed};
  const auto stream = [&](std::uint64_t step) { return generator.stream<pg::detail::randomness::sampling>(step); };
  const std::uint64_t in_round = t % round_of(sampling);
  return pg::unaccounted::drawn_at(
      {stream(2 * t), stream(2 * (t - in_round)), stream(pg::detail::step_of_the_run), in_round, t}, sampling, count);
}
struct scratch_file {
  std::string path = (std::filesystem::temp_directory_path() / ("samplers_" + std::to_string(::getpid()))).string();
  ~scratch_file() { std::remove(path.c_str()); }
};

}  // namespace

BOOST_AUTO_TEST_CASE(a_step_sums_the_records_that_its_sampler_draws) {
  const clouds data{count};
  const auto records = data.records();
  const pg::host exec{pg::threads{2}};
  for_each_sampler([&](const auto& sampling) {
    auto options = options_with(sampling);
    options.noise = pg::noise_multiplier{0};
    options.capacity = pg::record_capacity{256};
    options.private_metrics = true;
    classifier net{exec, pg::kaiming_uniform{1}};
    pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options, pg::seeded_generator{seed}};
    classifier::tape tape{exec, pg::max_batch{count}};
    for (std::uint64_t t = 0; t < 9; ++t) {
      const auto drawn = drawn_in(sampling, t);
      const pg::batch<classifier, pg::cross_entropy> batch{records, drawn};
      const auto wanted = pg::unprotected::evaluate(
          exec, sum(clip(per_sample_gradients(net, pg::cross_entropy{}, batch, tape), *options.clip)));
      trainer.step(records);
      BOOST_TEST_REQUIRE(pg::unprotected::metrics(trainer).batch_size == drawn.size());
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        // Both are sums in float of the same numbers, and one of them is rounded to the grid.
        BOOST_TEST_REQUIRE(
            std::abs(static_cast<double>(trainer.last_update().values()[i]) - static_cast<double>(wanted[i])) < 1e-4);
      }
    }
  });
}

BOOST_AUTO_TEST_CASE(the_ledger_has_the_samplers_event_once_a_round) {
  const clouds data{count};
  const pg::host exec{pg::threads{1}};
  for_each_sampler([&](const auto& sampling) {
    const auto options = options_with(sampling);
    const auto event = sampling.event(*options.noise);
    classifier net{exec, pg::kaiming_uniform{1}};
    pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options, pg::seeded_generator{seed}};
    static_assert(decltype(trainer)::relation == decltype(event)::relation);
    for (std::uint64_t t = 0; t < 9; ++t) {
      trainer.step(data.records());
      const auto ledger = trainer.accountant().accountant().ledger();
      BOOST_TEST_REQUIRE(ledger.size() == 1U);
      BOOST_TEST((ledger[0].event == event));
      BOOST_TEST(ledger[0].count == t / round_of(sampling) + 1);
      BOOST_TEST(trainer.steps() == t + 1);
    }
    // A statistic of all records is one more event, and one more step.
    static_cast<void>(pg::release_count(trainer, pg::noise_multiplier{5}, std::vector<double>(count), -1, 1));
    BOOST_TEST(trainer.steps() == 10U);
    BOOST_TEST(trainer.accountant().accountant().ledger().size() == 2U);
    const double epsilon = trainer.epsilon(pg::delta{1e-5});
    BOOST_TEST((epsilon > 0 && epsilon < 1000));
  });
}

// Correlated noise makes a run one Gaussian mechanism without sampling, and has the deviation for all steps of a
// record; with no more bands than turns have steps, each turn is the sampler's event, and the deviation that of one
// step.
BOOST_AUTO_TEST_CASE(a_run_with_correlated_noise_is_one_event_or_one_a_turn) {
  constexpr std::uint64_t steps = 12;
  const pg::sampled_gaussian_event whole{1, 1.1};
  const pg::sampled_gaussian_event turn{0.5, 1.1};
  const auto check = [&](const auto& noise, const auto& sampling, const pg::sampled_gaussian_event& event,
                         std::uint64_t pays, std::uint64_t times) {
    using sampler = std::decay_t<decltype(sampling)>;
    using strategy = std::decay_t<decltype(noise)>;
    pg::dp_options<sampler, strategy> options;
    options.correlation = noise;
    pg::detail::run_noise<sampler, strategy> run{options, options, sampling};
    BOOST_TEST((run.event(sampling, pg::noise_multiplier{1.1}) == event));
    BOOST_TEST(run.steps_of_an_event(sampling) == pays);
    BOOST_TEST(run.steps() == steps);
    // ||C u|| of a record that is drawn as often as it can be, from the first step on.
    const auto c = noise.coefficients();
    double square = 0;
    for (std::size_t t = 0; t < steps; ++t) {
      double row = 0;
      for (std::size_t k = 0; k < times; ++k) {
        const std::size_t from = k * static_cast<std::size_t>(sampling.min_separation());
        if (from <= t && t - from < c.size()) row += c[t - from];
      }
      square += row * row;
    }
    run.take(1, 1);
    const double large = 1e9;  // beside which the feedback's rounding is nothing
    BOOST_TEST(run.filter()->sensitivity(large, 1) == large * std::sqrt(square), boost::test_tools::tolerance(1e-6));
  };
  const pg::banded_noise banded{steps, {0.6, 0.5, 0.4}};
  const pg::buffered_noise buffered{steps, {0.95, 0.5}, {0.2, 0.4}};
  const pg::cyclic_poisson_sampling turns{pg::sampling_probability{0.5}, pg::round_steps{4}};
  const pg::min_separation_sampling apart{pg::sampling_probability{0.3}, pg::round_steps{3}};
  check(banded, turns, turn, 4, 1);
  check(banded, apart, whole, steps, 4);
  check(buffered, turns, whole, steps, 3);
  check(buffered, apart, whole, steps, 4);
  const pg::cyclic_poisson_sampling fewer{pg::sampling_probability{0.5}, pg::round_steps{3}};
  BOOST_CHECK_THROW(check(banded, fewer, turn, 3, 1), std::invalid_argument);
}

BOOST_AUTO_TEST_CASE(a_budget_pays_whole_rounds) {
  const clouds data{count};
  const pg::host exec{pg::threads{1}};
  const pg::random_allocation sampling{pg::round_steps{4}};
  auto options = options_with(sampling);
  pg::basic_privacy_accountant<pg::allocated_gaussian_event> ledger;
  for (int round = 0; round < 2; ++round) ledger.spend(sampling.event(*options.noise));
  options.budget = pg::privacy_budget{pg::epsilon{ledger.epsilon(pg::delta{1e-5}) * 1.001}, pg::delta{1e-5}};
  classifier net{exec, pg::kaiming_uniform{1}};
  pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options, pg::seeded_generator{seed}};
  while (trainer.within_budget()) trainer.step(data.records());
  BOOST_TEST(trainer.steps() == 8U);
  BOOST_CHECK_THROW(trainer.step(data.records()), pg::budget_exhausted);
  BOOST_TEST(trainer.steps() == 8U);
  // Other records begin a round of their own, which is paid as one.
  const clouds others{count, 77};
  options.budget.reset();
  pg::dp_sgd second{exec, net, pg::cross_entropy{}, options, pg::seeded_generator{seed}};
  second.step(data.records());
  second.step(data.records());
  second.step(others.records());
  BOOST_TEST(second.accountant().steps() == 2U);
  BOOST_TEST(second.steps() == 3U);
  second.step(others.records());
  BOOST_TEST(second.accountant().steps() == 2U);
}

BOOST_AUTO_TEST_CASE(a_run_goes_on_in_the_middle_of_a_round) {
  const scratch_file file;
  const clouds data{count};
  const pg::host exec{pg::threads{1}};
  for_each_sampler([&](const auto& sampling) {
    const auto options = options_with(sampling);
    classifier whole{exec, pg::kaiming_uniform{1}};
    pg::dp_sgd unbroken{exec, whole, pg::cross_entropy{}, options, pg::seeded_generator{seed}};
    for (int t = 0; t < 8; ++t) unbroken.step(data.records());
    for (int first : {2, 3, 5}) {
      classifier net{exec, pg::kaiming_uniform{1}}, again{exec, pg::zeros{}}, anew{exec, pg::zeros{}};
      pg::dp_sgd one{exec, net, pg::cross_entropy{}, options, pg::seeded_generator{seed}};
      for (int t = 0; t < first; ++t) one.step(data.records());
      pg::save_checkpoint(one, file.path);
      pg::dp_sgd two{exec, again, pg::cross_entropy{}, options, pg::seeded_generator{seed}};
      pg::load_checkpoint(two, file.path);
      BOOST_TEST(two.steps() == static_cast<std::uint64_t>(first));
      for (int t = first; t < 8; ++t) two.step(data.records());
      BOOST_TEST((parameters_of(again) == parameters_of(whole)));
      BOOST_TEST(two.steps() == 8U);
      BOOST_TEST(two.accountant().steps() == unbroken.accountant().steps());
      // With a new key a new round begins, and is paid.
      classifier part{exec, pg::kaiming_uniform{1}};
      pg::dp_sgd secret{exec, part, pg::cross_entropy{}, options};
      for (int t = 0; t < first; ++t) secret.step(data.records());
      pg::save_checkpoint(secret, file.path);
      pg::dp_sgd with_a_new_key{exec, anew, pg::cross_entropy{}, options};
      pg::load_checkpoint(with_a_new_key, file.path);
      const std::uint64_t paid = with_a_new_key.accountant().steps();
      with_a_new_key.step(data.records());
      BOOST_TEST(with_a_new_key.accountant().steps() == paid + 1);
    }
  });
  // Under correlated noise an event says nothing of the probability: with another one the run is paid anew.
  const auto apart = [](double p) {
    pg::dp_options<pg::min_separation_sampling, pg::banded_noise> options;
    static_cast<pg::training_choices&>(options) = usual_options();
    options.sampling = pg::min_separation_sampling{pg::sampling_probability{p}, pg::round_steps{3}};
    options.correlation.emplace(8, std::initializer_list<double>{0.5});
    return options;
  };
  classifier begun{exec, pg::kaiming_uniform{1}};
  pg::dp_sgd thirds{exec, begun, pg::cross_entropy{}, apart(0.3), pg::seeded_generator{seed}};
  for (int t = 0; t < 2; ++t) thirds.step(data.records());
  pg::save_checkpoint(thirds, file.path);
  for (const double p : {0.3, 0.4}) {
    classifier net{exec, pg::zeros{}};
    pg::dp_sgd taken_up{exec, net, pg::cross_entropy{}, apart(p), pg::seeded_generator{seed}};
    pg::load_checkpoint(taken_up, file.path);
    taken_up.step(data.records());
    BOOST_TEST(taken_up.accountant().steps() == (p == 0.3 ? 1U : 2U));
  }
  // A file of another sampler.
  classifier net{exec, pg::kaiming_uniform{1}};
  pg::dp_sgd usual{exec, net, pg::cross_entropy{}, usual_options(), pg::seeded_generator{seed}};
  pg::dp_sgd other{exec, net, pg::cross_entropy{},
                   options_with(pg::replace_one_poisson_sampling{pg::sampling_probability{0.2}}),
                   pg::seeded_generator{seed}};
  pg::save_checkpoint(usual, file.path);
  BOOST_CHECK_EXCEPTION(pg::load_checkpoint(other, file.path), std::runtime_error, [](const auto& error) {
    return std::string{error.what()}.find("its events is sampled Gaussian, this sampler's is") != std::string::npos;
  });
}

BOOST_AUTO_TEST_CASE(a_loop_by_hand_takes_any_sampler) {
  const clouds data{count};
  const pg::host exec{pg::threads{1}};
  for_each_sampler([&](const auto& sampling) {
    using sampling_type = std::decay_t<decltype(sampling)>;
    const pg::dp_options<sampling_type> all = options_with(sampling);
    const pg::loop_options<sampling_type> options = all;
    classifier net{exec, pg::kaiming_uniform{1}}, trained{exec, pg::kaiming_uniform{1}};
    pg::private_loop loop{exec, net, pg::cross_entropy{}, options, pg::seeded_generator{seed}};
    pg::dp_sgd trainer{exec, trained, pg::cross_entropy{}, all, pg::seeded_generator{seed}};
    pg::sgd<classifier> optimizer{*all.learning_rate};
    for (int t = 0; t < 5; ++t) {
      auto step = loop.begin(data.records());
      while (step.next()) pg::evaluate_into(exec, accumulate(step, sum(clip(step.gradients(), *options.clip))));
      optimizer.step(exec, net, std::move(step));
      trainer.step(data.records());
    }
    BOOST_TEST((parameters_of(net) == parameters_of(trained)));
    BOOST_TEST(loop.accountant().steps() == trainer.accountant().steps());
  });
}

BOOST_AUTO_TEST_CASE(what_a_sampler_was_not_made_for_is_refused_before_anything_is_spent) {
  const clouds data{count + 1};
  const pg::host exec{pg::threads{1}};
  classifier net{exec, pg::kaiming_uniform{1}};
  const auto refused = [&](const auto& sampling) {
    pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options_with(sampling), pg::seeded_generator{seed}};
    BOOST_CHECK_EXCEPTION(trainer.step(data.records()), std::invalid_argument, [](const auto& error) {
      return std::string{error.what()}.find("90 records, and got 91") != std::string::npos;
    });
    BOOST_TEST(trainer.steps() == 0U);
  };
  refused(pg::fixed_size_sampling{pg::batch_size{20}, pg::public_record_count{count}});
  refused(pg::shuffled_batches{pg::batch_size{20}, pg::public_record_count{count}});
  refused(pg::truncated_poisson_sampling{pg::sampling_probability{0.2}, pg::batch_capacity{20},
                                         pg::public_record_count{count}});
}

// Were draws to stay with records' numbers where the records are others, one that stands before all of them would
// change which draws belong together.
BOOST_AUTO_TEST_CASE(other_records_are_drawn_independently_of_those_before) {
  using selector = pg::network<pg::shape{count}, pg::linear<1, pg::no_bias>>;
  std::vector<float> inputs(count * count);  // of record i, a one at i: its weight moves if it is drawn
  for (std::size_t i = 0; i < count; ++i) inputs[i * count + i] = 1;
  const std::vector<float> others = inputs;
  const std::vector<float> targets(count, 100);
  const pg::host exec{pg::threads{1}};
  constexpr std::uint64_t steps = 4;
  constexpr std::uint64_t runs = 40;
  int compared = 0;
  for_each_sampler([&](const auto& sampling) {
    double first[steps] = {};
    double second[steps] = {};
    double both[steps][steps] = {};
    for (std::uint64_t run = 0; run < runs; ++run) {
      auto options = options_with(sampling);
      options.noise = pg::noise_multiplier{0};
      selector net{exec, pg::zeros{}};
      pg::dp_sgd trainer{exec, net, pg::mean_squared_error{}, options, pg::seeded_generator{run}};
      const pg::dataset<float, float> ones{inputs, targets, selector::input_shape};
      const pg::dataset<float, float> other_ones{others, targets, selector::input_shape};
      std::vector<std::vector<bool>> drawn;
      for (std::uint64_t t = 0; t < 2 * steps; ++t) {
        trainer.step(t < steps ? ones : other_ones);
        drawn.emplace_back();
        for (const float value : trainer.last_update().values()) drawn.back().push_back(value != 0);
      }
      for (std::size_t i = 0; i < steps; ++i) {
        for (std::size_t r = 0; r < count; ++r) {
          first[i] += drawn[i][r] ? 1 : 0;
          second[i] += drawn[steps + i][r] ? 1 : 0;
          for (std::size_t j = 0; j < steps; ++j) both[i][j] += drawn[i][r] && drawn[steps + j][r] ? 1 : 0;
        }
      }
    }
    constexpr double all = count * runs;
    for (std::size_t i = 0; i < steps; ++i) {
      for (std::size_t j = 0; j < steps; ++j) {
        const double p = first[i] / all;
        const double q = second[j] / all;
        BOOST_TEST(std::abs(both[i][j] - all * p * q) <= 5 * std::sqrt(all * p * (1 - p) * q * (1 - q)));
        ++compared;
      }
    }
    BOOST_TEST(first[0] > 0);
    BOOST_TEST(second[0] > 0);
  });
  BOOST_TEST(compared == 11 * 16);
}

// A seed that goes on in the middle has the bits of a run that was not cut, also with other records behind it.
BOOST_AUTO_TEST_CASE(files_keep_which_draws_belong_together) {
  const clouds data{count};
  const clouds other{count, 7};
  const pg::host exec{pg::threads{1}};
  for_each_sampler([&](const auto& sampling) {
    const auto options = options_with(sampling);
    const scratch_file file;
    classifier whole{exec, pg::kaiming_uniform{3}};
    pg::dp_sgd trainer{exec, whole, pg::cross_entropy{}, options, pg::seeded_generator{seed}};
    for (int step = 0; step < 2; ++step) trainer.step(data.records());
    for (int step = 0; step < 2; ++step) trainer.step(other.records());
    pg::save_checkpoint(trainer, file.path);
    classifier part{exec, pg::zeros{}};
    pg::dp_sgd cut{exec, part, pg::cross_entropy{}, options, pg::seeded_generator{seed}};
    pg::load_checkpoint(cut, file.path);
    for (int step = 0; step < 5; ++step) {
      trainer.step(other.records());
      cut.step(other.records());
    }
    BOOST_TEST((parameters_of(part) == parameters_of(whole)));
    BOOST_TEST(cut.epsilon(pg::delta{1e-5}) == trainer.epsilon(pg::delta{1e-5}));
  });
}

// Records that are refused neither end a round nor cost one.
BOOST_AUTO_TEST_CASE(refused_records_leave_a_round_as_it_is) {
  const clouds data{count};
  clouds bad = data;
  bad.classes[7] = 3;
  const pg::host exec{pg::threads{1}};
  classifier net{exec, pg::kaiming_uniform{3}}, other{exec, pg::kaiming_uniform{3}};
  const auto options = options_with(pg::random_allocation{pg::round_steps{10}});
  pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options, pg::seeded_generator{seed}};
  pg::dp_sgd undisturbed{exec, other, pg::cross_entropy{}, options, pg::seeded_generator{seed}};
  for (int step = 0; step < 2; ++step) {
    BOOST_CHECK_THROW(trainer.step(bad.records()), std::invalid_argument);
    trainer.step(data.records());
    undisturbed.step(data.records());
  }
  BOOST_TEST((parameters_of(net) == parameters_of(other)));
  BOOST_TEST(trainer.accountant().steps() == 1U);
  // Nor do those that the sampler, or what is left of the budget, refuses.
  const clouds more{count + 1};
  const auto check = [&](const auto& chosen, auto refused_as) {
    using refusal = typename decltype(refused_as)::type;
    classifier one_net{exec, pg::kaiming_uniform{3}}, other_net{exec, pg::kaiming_uniform{3}};
    pg::dp_sgd one{exec, one_net, pg::cross_entropy{}, chosen, pg::seeded_generator{seed}};
    pg::dp_sgd another{exec, other_net, pg::cross_entropy{}, chosen, pg::seeded_generator{seed}};
    pg::private_loop loop{exec, net, pg::cross_entropy{}, chosen, pg::seeded_generator{seed}};
    for (int step = 0; step < 4; ++step) {
      one.step(data.records());
      another.step(data.records());
      static_cast<void>(loop.begin(data.records()));
      if (step == 3) break;
      BOOST_CHECK_THROW(one.step(more.records()), refusal);
      BOOST_TEST(one.within_budget());
      BOOST_CHECK_THROW(static_cast<void>(loop.begin(more.records())), refusal);
      BOOST_TEST(loop.within_budget());
    }
    BOOST_TEST((parameters_of(one_net) == parameters_of(other_net)));
    BOOST_TEST(one.accountant().steps() == 1U);
    BOOST_TEST(loop.accountant().steps() == 1U);
  };
  check(options_with(pg::shuffled_batches{pg::batch_size{count / 4}, pg::public_record_count{count}}),
        std::type_identity<std::invalid_argument>{});
  auto for_one_round = options;
  pg::basic_privacy_accountant<pg::allocated_gaussian_event> ledger;
  ledger.spend(options.sampling->event(*options.noise));
  for_one_round.budget = pg::privacy_budget{pg::epsilon{ledger.epsilon(pg::delta{1e-5}) * 1.001}, pg::delta{1e-5}};
  check(for_one_round, std::type_identity<pg::budget_exhausted>{});
}

// Arrays at the same address may have been given to other records: only one who made a data set knows.
BOOST_AUTO_TEST_CASE(another_data_set_of_the_same_arrays_is_refused_where_records_are_followed) {
  clouds data{count};
  const auto one = data.records();
  const pg::dataset<float, std::int32_t> another{data.inputs, data.classes, pg::shape{6}};
  const auto copy = one;
  const pg::host exec{pg::threads{1}};
  classifier net{exec, pg::kaiming_uniform{3}};
  pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options_with(pg::random_allocation{pg::round_steps{10}}),
                     pg::seeded_generator{seed}};
  trainer.step(one);
  trainer.step(copy);
  const auto before = parameters_of(net);
  for (int tries = 0; tries < 2; ++tries) BOOST_CHECK_THROW(trainer.step(another), std::logic_error);
  BOOST_TEST(trainer.steps() == 2U);
  BOOST_TEST((parameters_of(net) == before));
  trainer.step(one);
  BOOST_TEST(trainer.accountant().steps() == 1U);  // still in its round
  trainer.records_changed();
  trainer.step(another);
  BOOST_TEST(trainer.accountant().steps() == 2U);
  BOOST_CHECK_THROW(trainer.step(one), std::logic_error);
  const clouds elsewhere{data};
  trainer.step(elsewhere.records());
  BOOST_TEST(trainer.accountant().steps() == 3U);
  // Draws of Poisson sampling are independent, whoever the records are.
  pg::dp_sgd forgets{exec, net, pg::cross_entropy{}, options_with(pg::poisson_sampling{pg::sampling_probability{0.1}}),
                     pg::seeded_generator{seed}};
  forgets.step(one);
  forgets.step(another);
  BOOST_TEST(forgets.steps() == 2U);
  // By hand as well.
  pg::private_loop loop{exec, net, pg::cross_entropy{}, options_with(pg::random_allocation{pg::round_steps{10}}),
                        pg::seeded_generator{seed}};
  pg::unprotected::rehearsed_gradient<classifier> update{exec};
  const auto take = [&](const auto& records) {
    auto step = loop.begin(records);
    while (step.next()) {
      pg::evaluate_into(exec, accumulate(step, pg::sum(pg::clip(step.gradients(), pg::l2_clip_norm{0.5}))));
    }
    pg::evaluate_into(exec, update, std::move(step));
  };
  take(one);
  BOOST_CHECK_THROW(take(another), std::logic_error);
  take(copy);
  BOOST_TEST(loop.accountant().steps() == 1U);
  loop.records_changed();
  take(another);
  BOOST_TEST(loop.accountant().steps() == 2U);
  loop.records_changed();
  take(another);
  BOOST_TEST(loop.accountant().steps() == 3U);
}

// A number may be another record's where the trainer is told so: nobody takes part twice for one payment.
BOOST_AUTO_TEST_CASE(records_that_change_in_place_begin_a_round) {
  clouds data{count};
  const pg::host exec{pg::threads{1}};
  classifier net{exec, pg::kaiming_uniform{3}};
  const auto options = options_with(pg::random_allocation{pg::round_steps{10}});
  pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options, pg::seeded_generator{seed}};
  for (int step = 0; step < 2; ++step) trainer.step(data.records());
  BOOST_TEST(trainer.accountant().steps() == 1U);
  trainer.records_changed();
  const std::int32_t before = std::exchange(data.classes[7], 3);
  BOOST_CHECK_THROW(trainer.step(data.records()), std::invalid_argument);
  BOOST_TEST(trainer.accountant().steps() == 1U);  // those that do not fit cost nothing
  data.classes[7] = before;
  for (int step = 0; step < 10; ++step) trainer.step(data.records());
  BOOST_TEST(trainer.accountant().steps() == 2U);
  trainer.step(data.records());
  BOOST_TEST(trainer.accountant().steps() == 3U);
}

// What is left of a round belongs to the options that paid it.
BOOST_AUTO_TEST_CASE(other_options_behind_a_file_pay_a_round_of_their_own) {
  const clouds data{count};
  const pg::host exec{pg::threads{1}};
  const scratch_file file;
  auto options = options_with(pg::random_allocation{pg::round_steps{10}});
  options.noise = pg::noise_multiplier{50};
  classifier net{exec, pg::kaiming_uniform{3}};
  pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options, pg::seeded_generator{seed}};
  for (int step = 0; step < 3; ++step) trainer.step(data.records());
  pg::save_checkpoint(trainer, file.path);
  options.noise = pg::noise_multiplier{0.5};
  pg::dp_sgd loud{exec, net, pg::cross_entropy{}, options, pg::seeded_generator{seed}};
  pg::load_checkpoint(loud, file.path);
  loud.step(data.records());
  pg::basic_pld_accountant<pg::random_allocation::event_type> one;
  one.record(options.sampling->event(*options.noise), 1);
  BOOST_TEST(loud.epsilon(pg::delta{1e-5}) >= one.bracket(pg::delta{1e-5}).lower);
}

BOOST_AUTO_TEST_SUITE_END()
