// SPDX-License-Identifier: Apache-2.0
// tests/train/dp_sgd_test.cpp - the trainer takes the steps that its parts would take by hand, counts them, and refuses
// the rest.
#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "fixture.hpp"

BOOST_AUTO_TEST_SUITE(train_dp_sgd)

namespace {

using namespace fixture;
using trainer_type = pg::dp_sgd<classifier, pg::cross_entropy, pg::seeded_generator>;

struct run {
  pg::host exec;
  classifier net;
  trainer_type trainer;
  explicit run(const pg::dp_sgd_options& options, std::size_t threads = 2, std::uint64_t seed = 41)
      : exec{pg::threads{threads}},
        net{exec, pg::kaiming_uniform{8}},
        trainer{exec, net, pg::cross_entropy{}, options, pg::seeded_generator{seed}} {}
  [[nodiscard]] std::vector<float> parameters() const { return parameters_of(net); }
};

std::vector<float> train(const pg::dp_sgd_options& options, const clouds& data, int steps, std::size_t threads = 2,
                         std::uint64_t seed = 41) {
  run r{options, threads, seed};
  for (int step = 0; step < steps; ++step) r.trainer.step(data.records());
  return r.parameters();
}

/// The same by hand: draw, clip, add up in chunks, noise, divide, update.
template <class Optimizer, class Clip>
std::vector<float> train_by_hand(const pg::dp_sgd_options& options, const clouds& data, int steps, Optimizer optimizer,
                                 Clip clip) {
  const pg::host exec{pg::threads{2}};
  classifier net{exec, pg::kaiming_uniform{8}};
  pg::tape<classifier> tape{exec, options.max_batch};
  pg::bounded_total<classifier> total{exec, pg::detail::capacity_for<float>(options)};
  pg::unprotected::rehearsed_gradient<classifier> update{exec};
  pg::seeded_generator generator{41};
  const auto records = data.records();
  for (int step = 0; step < steps; ++step) {
    const auto drawn = pg::unaccounted::draw(*options.sampling, generator, static_cast<std::uint32_t>(data.size()));
    total.clear();
    for (std::size_t first = 0; first == 0 || first < drawn.size(); first += options.max_batch.count) {
      const pg::batch<classifier, pg::cross_entropy> chunk{
          records, std::span{drawn}.subspan(first, std::min(options.max_batch.count, drawn.size() - first))};
      pg::evaluate_into(
          exec, pg::accumulate(total, pg::sum(clip(pg::per_sample_gradients(net, pg::cross_entropy{}, chunk, tape)))));
    }
    pg::evaluate_into(exec, update, total + pg::unaccounted::gaussian_noise(*options.noise, generator));
    optimizer.step(exec, net, update, *options.divisor);
  }
  return parameters_of(net);
}

}  // namespace

BOOST_AUTO_TEST_CASE(steps_are_those_taken_by_hand) {
  const clouds data{300};
  const pg::l2_clip_norm bound{0.5};
  const pg::learning_rate rate{0.25};
  auto options = usual_options();
  const auto flat = [&](const auto& g) { return pg::clip(g, bound); };
  const auto layered = [&](const auto& g) { return pg::clip_per_layer(g, bound); };
  const auto automatic = [&](const auto& g) { return pg::normalise(g, bound); };

  BOOST_TEST((train(options, data, 5) == train_by_hand(options, data, 5, pg::sgd<classifier>{rate}, flat)));
  options.momentum = 0.9;
  BOOST_TEST((train(options, data, 5) == train_by_hand(options, data, 5, pg::sgd<classifier>{rate, 0.9}, flat)));
  options.clipping = pg::clipping_kind::per_layer;
  BOOST_TEST((train(options, data, 5) == train_by_hand(options, data, 5, pg::sgd<classifier>{rate, 0.9}, layered)));
  options.clipping = pg::clipping_kind::automatic;
  BOOST_TEST((train(options, data, 5) == train_by_hand(options, data, 5, pg::sgd<classifier>{rate, 0.9}, automatic)));
  options.clipping = pg::clipping_kind::per_sample_adaptive;
  const auto adaptive = [&](const auto& g) { return pg::normalise_adaptively(g, bound); };
  BOOST_TEST((train(options, data, 5) == train_by_hand(options, data, 5, pg::sgd<classifier>{rate, 0.9}, adaptive)));
  options.weight_decay = 0.05;
  options.clipping = pg::clipping_kind::flat;
  BOOST_TEST((train(options, data, 5) == train_by_hand(options, data, 5, pg::sgd<classifier>{rate, 0.9, 0.05}, flat)));
  options.weight_decay = 0;
  options.optimizer = pg::optimizer_kind::adam;
  options.momentum = 0;
  options.adam = {0.8, 0.99, 1e-6};
  options.clipping = pg::clipping_kind::flat;
  BOOST_TEST((train(options, data, 5) ==
              train_by_hand(options, data, 5, pg::adam<classifier>{rate, {0.8, 0.99, 1e-6}}, flat)));
  options.adam.weight_decay = 0.1;
  BOOST_TEST((train(options, data, 5) ==
              train_by_hand(options, data, 5, pg::adam<classifier>{rate, {0.8, 0.99, 1e-6, 0.1}}, flat)));
  options.adam.noise_floor = 1e-7;
  // Of the sum's noise, a multiple of D, all is taken off.
  const auto grid = pg::release_grid::of(bound.value(), classifier::parameter_count);
  const auto added = pg::summation::of<float>(pg::detail::capacity_for<float>(options).count);
  const pg::l2_clip_norm all{std::ldexp(pg::sensitivity_in_steps(grid, added, 1), grid.unit - grid.steps)};
  BOOST_TEST(all.value() > 1.002 * bound.value());
  BOOST_TEST((train(options, data, 5) ==
              train_by_hand(options, data, 5,
                            pg::adam<classifier>{rate, {0.8, 0.99, 1e-6, 0.1, 1e-7}, *options.noise, all}, flat)));
}

BOOST_AUTO_TEST_CASE(the_kinds_of_clipping_and_optimizer_differ) {
  const clouds data{300};
  auto options = usual_options();
  const auto flat = train(options, data, 2);
  options.clipping = pg::clipping_kind::per_layer;
  BOOST_TEST((train(options, data, 2) != flat));
  options.clipping = pg::clipping_kind::automatic;
  BOOST_TEST((train(options, data, 2) != flat));
  options = usual_options();
  options.momentum = 0.5;
  BOOST_TEST((train(options, data, 2) != flat));
  options = usual_options();
  options.optimizer = pg::optimizer_kind::adam;
  BOOST_TEST((train(options, data, 2) != flat));
  BOOST_TEST((train(usual_options(), data, 2, 2, 42) != flat));  // another seed
  BOOST_TEST((train(usual_options(), data, 2) == flat));
}

BOOST_AUTO_TEST_CASE(threads_do_not_change_a_bit) {
  const clouds data{300};
  const auto one = train(usual_options(), data, 6, 1);
  for (std::size_t threads = 2; threads <= 5; ++threads) BOOST_TEST((train(usual_options(), data, 6, threads) == one));
}

BOOST_AUTO_TEST_CASE(chunks_change_rounding_alone) {
  const clouds data{300};
  auto options = usual_options();
  const auto usual = train(options, data, 8);
  run reference{options};
  for (int step = 0; step < 8; ++step) reference.trainer.step(data.records());
  for (const std::size_t capacity : {1U, 7U, 64U, 1000U}) {
    options.max_batch = pg::max_batch{capacity};
    run r{options};
    for (int step = 0; step < 8; ++step) r.trainer.step(data.records());
    BOOST_TEST(distance(usual, r.parameters()) < 1e-5);
    BOOST_TEST(r.trainer.epsilon(pg::delta{1e-5}) == reference.trainer.epsilon(pg::delta{1e-5}));
    BOOST_TEST(r.trainer.steps() == 8U);
  }
}

// Nothing is drawn, and nothing spent.
BOOST_AUTO_TEST_CASE(what_cannot_be_trained_is_said_before_a_step) {
  const clouds data{100};
  run r{usual_options()};
  BOOST_CHECK_THROW(r.trainer.set_learning_rate(pg::learning_rate{1e-60}), std::invalid_argument);
  BOOST_TEST(r.trainer.options().learning_rate->value() == usual_options().learning_rate->value());
  classifier other = std::move(r.net);
  for (int turn = 0; turn < 2; ++turn) {
    BOOST_CHECK_EXCEPTION(r.trainer.step(data.records()), std::logic_error, [](const std::logic_error& error) {
      return std::string{error.what()} == "pergrad: this network was moved from, and has no parameters";
    });
  }
  BOOST_TEST(r.trainer.steps() == 0U);
  r.net = std::move(other);
  r.trainer.step(data.records());
  run untouched{usual_options()};
  untouched.trainer.step(data.records());
  BOOST_TEST((r.parameters() == untouched.parameters()));
}

BOOST_AUTO_TEST_CASE(empty_batches_are_noised_and_counted) {
  const clouds data{100};
  auto options = usual_options();
  options.sampling = pg::poisson_sampling{pg::sampling_probability{0}};
  run r{options};
  const auto before = r.parameters();
  r.trainer.step(data.records());
  BOOST_TEST(r.trainer.steps() == 1U);
  // Generator step 0 went to sampling, step 1 to the noise.
  const std::vector<float> noise = noise_alone<classifier>(options, 0.5, 1);
  const std::vector<float> found(r.trainer.last_update().values().begin(), r.trainer.last_update().values().end());
  BOOST_TEST((found == noise));
  std::size_t moved = 0;
  for (std::size_t i = 0; i < before.size(); ++i) moved += r.parameters()[i] != before[i] ? 1U : 0U;
  BOOST_TEST(moved > before.size() * 9 / 10);
  // The same for a data set without records.
  const clouds nobody{0};
  auto usual = usual_options();
  run empty{usual};
  empty.trainer.step(nobody.records());
  BOOST_TEST(empty.trainer.steps() == 1U);
  BOOST_TEST((std::vector<float>(empty.trainer.last_update().values().begin(),
                                 empty.trainer.last_update().values().end()) == noise));
  BOOST_TEST(empty.trainer.epsilon(pg::delta{1e-5}) > 0);
}

BOOST_AUTO_TEST_CASE(everybody_is_drawn_with_probability_one) {
  const clouds data{50};
  auto options = usual_options();
  options.sampling = pg::poisson_sampling{pg::sampling_probability{1}};
  options.noise = pg::noise_multiplier{0};
  run r{options};
  const classifier& net = r.net;
  pg::tape<classifier> tape{r.exec, pg::max_batch{50}};
  const pg::batch<classifier, pg::cross_entropy> all{data.inputs, data.classes};
  const auto wanted = pg::unprotected::evaluate(
      r.exec, pg::sum(pg::clip(pg::per_sample_gradients(net, pg::cross_entropy{}, all, tape), pg::l2_clip_norm{0.5})));
  r.trainer.step(data.records());
  // Without noise the release is the sum at the nearest places of its grid.
  const auto grid = pg::release_grid::of(0.5, classifier::parameter_count);
  const double half = std::ldexp(0.5, grid.unit - grid.steps);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const double released = static_cast<double>(r.trainer.last_update().values()[i]);
    BOOST_TEST(std::fabs(released - static_cast<double>(wanted[i])) <= half + 1e-6);
  }
  BOOST_TEST(r.trainer.epsilon(pg::delta{1e-5}) == std::numeric_limits<double>::infinity());  // no noise, no privacy
}

BOOST_AUTO_TEST_CASE(epsilon_is_the_accountants) {
  const clouds data{100};
  run r{usual_options()};
  const auto event = usual_options().sampling->event(pg::noise_multiplier{1.1});
  double last = 0;
  BOOST_TEST(r.trainer.steps() == 0U);
  for (std::uint64_t steps = 1; steps <= 5; ++steps) {
    r.trainer.step(data.records());
    pg::pld_accountant accountant;
    pg::rdp_accountant other;
    accountant.record(event, steps);
    other.record(event, steps);
    for (const pg::delta delta : {pg::delta{1e-5}, pg::delta{1e-3}}) {
      BOOST_TEST(r.trainer.epsilon(delta) == accountant.epsilon(delta));
      BOOST_TEST(r.trainer.epsilon(delta) < other.epsilon(delta));
    }
    BOOST_TEST(r.trainer.epsilon(pg::delta{1e-5}) > last);
    last = r.trainer.epsilon(pg::delta{1e-5});
    BOOST_TEST(r.trainer.steps() == steps);
    BOOST_TEST_REQUIRE(r.trainer.accountant().accountant().ledger().size() == 1U);
    BOOST_TEST(r.trainer.accountant().accountant().ledger()[0].count == steps);
    BOOST_TEST((r.trainer.accountant().accountant().ledger()[0].event == event));
  }
}

BOOST_AUTO_TEST_CASE(the_step_beyond_the_budget_is_refused_with_nothing_changed) {
  const clouds data{100};
  const auto event = usual_options().sampling->event(pg::noise_multiplier{1.1});
  pg::pld_accountant accountant;
  accountant.record(event, 7);
  auto options = usual_options();
  options.momentum = 0.9;
  options.budget = pg::privacy_budget{pg::epsilon{accountant.epsilon(pg::delta{1e-5}) * 1.0001}, pg::delta{1e-5}};
  run r{options};
  for (int step = 0; step < 7; ++step) {
    BOOST_TEST(r.trainer.within_budget());
    r.trainer.step(data.records());
  }
  BOOST_TEST(!r.trainer.within_budget());
  const auto parameters = r.parameters();
  const auto epsilon = r.trainer.epsilon(pg::delta{1e-5});
  const std::vector<float> update(r.trainer.last_update().values().begin(), r.trainer.last_update().values().end());
  for (int attempt = 0; attempt < 3; ++attempt) {
    BOOST_CHECK_THROW(r.trainer.step(data.records()), pg::budget_exhausted);
    BOOST_TEST((r.parameters() == parameters));
    BOOST_TEST(r.trainer.steps() == 7U);
    BOOST_TEST(r.trainer.epsilon(pg::delta{1e-5}) == epsilon);
    BOOST_TEST((std::vector<float>(r.trainer.last_update().values().begin(), r.trainer.last_update().values().end()) ==
                update));
  }
  BOOST_TEST(epsilon <= options.budget->max_epsilon.value());
  // Without a budget there is no end.
  run endless{usual_options()};
  for (int step = 0; step < 20; ++step) {
    BOOST_TEST_REQUIRE(endless.trainer.within_budget());
    endless.trainer.step(data.records());
  }
}

BOOST_AUTO_TEST_CASE(a_budget_without_room_for_one_step_is_refused_at_once) {
  auto options = usual_options();
  const auto event = options.sampling->event(*options.noise);
  pg::pld_accountant one;
  one.record(event);
  const double cost = one.epsilon(pg::delta{1e-5});
  options.budget = pg::privacy_budget{pg::epsilon{cost}, pg::delta{1e-5}};
  const clouds data{100};
  run exact{options};  // room for exactly one
  BOOST_TEST(exact.trainer.within_budget());
  exact.trainer.step(data.records());
  BOOST_TEST(!exact.trainer.within_budget());

  options.budget->max_epsilon = pg::epsilon{cost * 0.999};
  char price[32], given[32];
  std::snprintf(price, sizeof price, "%.6g", cost);
  std::snprintf(given, sizeof given, "%.6g", cost * 0.999);
  BOOST_CHECK_EXCEPTION(run{options}, std::invalid_argument, [&](const std::exception& error) {
    return error.what() == std::string{"pergrad: private training: the option budget allows no step: it is epsilon "} +
                               given +
                               " at delta 1e-05, and one step with noise multiplier 1.1 and sampling probability 0.2 "
                               "costs epsilon " +
                               price;
  });
  options.noise = pg::noise_multiplier{0};
  BOOST_CHECK_EXCEPTION(run{options}, std::invalid_argument, [](const std::exception& error) {
    return std::string{error.what()}.ends_with("costs epsilon inf");
  });
  options.budget.reset();
  BOOST_CHECK_NO_THROW(run{options});
}

BOOST_AUTO_TEST_CASE(missing_options_are_named) {
  const pg::host exec{pg::threads{1}};
  classifier net{exec, pg::zeros{}};
  const auto names = [&](auto reset, const std::string& name) {
    auto options = usual_options();
    reset(options);
    BOOST_CHECK_EXCEPTION((trainer_type{exec, net, pg::cross_entropy{}, options, pg::seeded_generator{1}}),
                          std::invalid_argument, [&](const std::invalid_argument& error) {
                            const std::string text = error.what();
                            return text.starts_with("pergrad: ") && text.find(name) != std::string::npos;
                          });
  };
  names([](auto& o) { o.clip.reset(); }, "clip");
  names([](auto& o) { o.noise.reset(); }, "noise");
  names([](auto& o) { o.sampling.reset(); }, "sampling");
  names([](auto& o) { o.divisor.reset(); }, "divisor");
  names([](auto& o) { o.learning_rate.reset(); }, "learning_rate");
  names([](auto& o) { o.max_batch = pg::max_batch{0}; }, "max_batch");
  names([](auto& o) { o.momentum = 1; }, "momentum");
  names(
      [](auto& o) {
        o.optimizer = pg::optimizer_kind::adam;
        o.adam.beta1 = 2;
      },
      "adam");
  names(
      [](auto& o) {
        o.optimizer = pg::optimizer_kind::adam;
        o.momentum = 0.9;
      },
      "momentum is for optimizer_kind::sgd");
  names(
      [](auto& o) {
        o.optimizer = pg::optimizer_kind::adam;
        o.weight_decay = 0.1;
      },
      "weight_decay is for optimizer_kind::sgd");
  names([](auto& o) { o.weight_decay = -0.1; }, "weight decay");
  names([](auto& o) { o.noise = pg::noise_multiplier{1e39}; }, "noise");
}

BOOST_AUTO_TEST_CASE(records_that_do_not_fit_cost_nothing) {
  const clouds good{120};
  auto options = usual_options();
  run r{options};
  r.trainer.step(good.records());
  const auto parameters = r.parameters();
  const auto refused = [&](const pg::dataset<float, std::int32_t>& records, const std::string& what) {
    BOOST_CHECK_EXCEPTION(r.trainer.step(records), std::invalid_argument, [&](const std::invalid_argument& error) {
      return std::string{error.what()}.find(what) != std::string::npos;
    });
    BOOST_TEST((r.parameters() == parameters));
    BOOST_TEST(r.trainer.steps() == 1U);
  };
  // One wrong label among many is found whether it is drawn or not: hardly ever here.
  for (const std::int32_t label : {-1, 3, 2147483647}) {
    clouds bad = good;
    bad.classes[77] = label;
    refused(bad.records(), "record 77");
  }
  refused({good.inputs, std::span{good.classes}.first(60), pg::shape{12}}, "(12), 12 values");
  const std::vector<std::int32_t> twice(240);
  refused({good.inputs, twice, pg::shape{6}, 2}, "240 targets");
  // The run goes on as if nothing had been.
  r.trainer.step(good.records());
  BOOST_TEST((r.parameters() == train(options, good, 2)));
}

// All records are looked at once. When memory behind the same spans changes, a record that is drawn and does not fit
// any more is left out: an error would tell that it was drawn.
BOOST_AUTO_TEST_CASE(records_that_change_are_left_out) {
  clouds data{300};
  auto options = usual_options();
  options.private_metrics = true;
  run r{options};
  r.trainer.step(data.records());
  // What the steps draw, by the same key.
  pg::seeded_generator generator{41, 2};
  const auto drawn = pg::unaccounted::draw(*options.sampling, generator, 300);
  const std::size_t count = drawn.size();
  BOOST_TEST_REQUIRE(count > 20U);
  // The same step without that record: behind spans that are new.
  const std::size_t broken = drawn[7];
  clouds zeroed = data;
  zeroed.inputs[broken * 6] = std::numeric_limits<float>::quiet_NaN();  // weight 0 in the clipped sum
  run wanted{options};
  wanted.trainer.step(data.records());
  wanted.trainer.step(zeroed.records());
  data.classes[broken] = 3;
  r.trainer.step(data.records());
  BOOST_TEST(r.trainer.steps() == 2U);
  const pg::step_metrics& metrics = pg::unprotected::metrics(r.trainer);
  BOOST_TEST(metrics.batch_size == count);
  BOOST_TEST(metrics.non_finite == 1U);
  BOOST_TEST(std::isnan(metrics.mean_loss));
  BOOST_TEST(distance(r.parameters(), wanted.parameters()) < 1e-6);  // tiles are cut elsewhere
  BOOST_TEST(distance(r.parameters(), run{options}.parameters()) > 1e-3);
  // Spans that are new are looked at again.
  const clouds copy = data;
  BOOST_CHECK_THROW(r.trainer.step(copy.records()), std::invalid_argument);
  // And so are these, after others.
  BOOST_CHECK_THROW(r.trainer.step(data.records()), std::invalid_argument);
  BOOST_TEST(r.trainer.steps() == 2U);
  data.classes[broken] = 0;
  r.trainer.step(data.records());
  BOOST_TEST(r.trainer.steps() == 3U);
}

// More records than one round of sampling looks for.
BOOST_AUTO_TEST_CASE(large_data_sets_are_sampled_in_rounds) {
  const clouds data{2 * 65536 + 4321};
  auto options = usual_options();
  options.sampling = pg::poisson_sampling{pg::sampling_probability{3e-4}};
  BOOST_TEST(
      (train(options, data, 4, 3) == train_by_hand(options, data, 4, pg::sgd<classifier>{pg::learning_rate{0.25}},
                                                   [](const auto& g) { return pg::clip(g, pg::l2_clip_norm{0.5}); })));
}

BOOST_AUTO_TEST_CASE(an_update_that_is_not_kept_moves_the_parameters_all_the_same) {
  const clouds data{300};
  pg::host exec{pg::threads{2}};
  std::vector<float> moved[2];
  for (const bool kept : {false, true}) {
    classifier net{exec, pg::kaiming_uniform{8}};
    auto options = usual_options();
    options.keep_update = kept;
    trainer_type trainer{exec, net, pg::cross_entropy{}, options, pg::seeded_generator{41}};
    for (int step = 0; step < 3; ++step) trainer.step(data.records());
    moved[kept ? 1 : 0] = parameters_of(net);
    if (kept) {
      BOOST_TEST(trainer.last_update().values().size() == classifier::parameter_count);
    } else {
      BOOST_CHECK_THROW(static_cast<void>(trainer.last_update()), std::logic_error);
    }
  }
  BOOST_TEST((moved[0] == moved[1]));
}
// Nobody who trains a large network pays for an array that few read.
BOOST_AUTO_TEST_CASE(an_update_of_many_parameters_is_kept_for_who_asks) {
  using large = pg::network<pg::shape{4096}, pg::linear<4097>>;
  const pg::host exec{pg::threads{1}};
  large net{exec, pg::zeros{}};
  auto options = usual_options();
  BOOST_CHECK_THROW(
      static_cast<void>(
          pg::dp_sgd{exec, net, pg::mean_squared_error{}, options, pg::seeded_generator{41}}.last_update()),
      std::logic_error);
  options.keep_update = true;
  const pg::dp_sgd keeps{exec, net, pg::mean_squared_error{}, options, pg::seeded_generator{41}};
  BOOST_TEST(keeps.last_update().values().size() == large::parameter_count);
}

// One array is sum and release by turns: a step that fails halfway may not leave its sum where releases are read.
BOOST_AUTO_TEST_CASE(a_step_that_fails_halfway_releases_nothing) {
  const clouds data{300};
  pg::host exec{pg::threads{2}};
  classifier net{exec, pg::kaiming_uniform{8}};
  // As many steps as three calls take, one for sampling and one for noise each; the fourth fails at its noise.
  const pg::seeded_generator limited{41, std::numeric_limits<std::uint64_t>::max() - 7};
  trainer_type trainer{exec, net, pg::cross_entropy{}, usual_options(), limited};
  const auto released = [&] { return trainer.last_update().values(); };
  const auto is_zero = [](float value) { return value == 0; };
  BOOST_TEST(released().size() == classifier::parameter_count);
  BOOST_TEST(std::ranges::all_of(released(), is_zero));
  const float* const memory = released().data();
  for (int step = 0; step < 3; ++step) trainer.step(data.records());
  BOOST_TEST(released().data() == memory);
  BOOST_TEST(std::ranges::none_of(released(), is_zero));
  const auto before = parameters_of(net);
  BOOST_CHECK_THROW(trainer.step(data.records()), std::overflow_error);
  BOOST_TEST(released().data() == memory);
  BOOST_TEST(released().size() == classifier::parameter_count);
  BOOST_TEST(std::ranges::all_of(released(), is_zero));
  BOOST_TEST((parameters_of(net) == before));
}

BOOST_AUTO_TEST_CASE(metrics_are_those_of_the_drawn_batch) {
  const clouds data{300};
  auto options = usual_options();
  options.private_metrics = true;
  run r{options};
  clouds spoilt = data;
  pg::tape<classifier> tape{r.exec, pg::max_batch{300}};
  pg::seeded_generator generator{41};
  std::size_t clipped_in_all = 0;
  std::size_t unclipped_in_all = 0;
  for (int step = 0; step < 4; ++step) {
    const auto drawn = pg::unaccounted::draw(*options.sampling, generator, 300);
    const std::size_t count = drawn.size();
    static_cast<void>(generator.next_step());
    if (step == 3) {  // one of the drawn is broken
      spoilt.inputs[drawn[2] * 6 + 1] = std::numeric_limits<float>::quiet_NaN();
    }
    const auto records = step == 3 ? spoilt.records() : data.records();
    const pg::batch<classifier, pg::cross_entropy> batch{records, drawn};
    const auto g = pg::per_sample_gradients(r.net, pg::cross_entropy{}, batch, tape);
    const auto losses = pg::unprotected::evaluate(r.exec, pg::losses(g));
    const auto norms = pg::unprotected::evaluate(r.exec, pg::l2_norms(g));
    double loss = 0;
    double norm = 0;
    std::size_t clipped = 0;
    std::size_t finite = 0;
    for (std::size_t b = 0; b < count; ++b) {
      loss += losses[b] / static_cast<double>(count);
      if (!std::isfinite(norms[b])) continue;
      ++finite;
      norm += norms[b];
      clipped += norms[b] > 0.5 ? 1U : 0U;
    }
    r.trainer.step(records);
    const pg::step_metrics& metrics = pg::unprotected::metrics(r.trainer);
    BOOST_TEST(metrics.batch_size == count);
    BOOST_TEST(metrics.clipped == clipped);
    BOOST_TEST(metrics.non_finite == count - finite);
    BOOST_TEST(metrics.non_finite == (step == 3 ? 1U : 0U));
    BOOST_TEST(std::fabs(metrics.mean_norm - norm / static_cast<double>(finite)) < 1e-9);
    if (step < 3) {
      BOOST_TEST(std::fabs(metrics.mean_loss - loss) < 1e-9);
    } else {
      BOOST_TEST(!std::isfinite(metrics.mean_loss));
    }
    clipped_in_all += clipped;
    unclipped_in_all += finite - clipped;
  }
  BOOST_TEST(clipped_in_all > 0U);
  BOOST_TEST(unclipped_in_all > 0U);
  for (const float value : r.parameters()) BOOST_TEST_REQUIRE(std::isfinite(value));  // the broken record left no trace

  const clouds nobody{0};
  r.trainer.step(nobody.records());
  BOOST_TEST(pg::unprotected::metrics(r.trainer).batch_size == 0U);
  BOOST_TEST(std::isnan(pg::unprotected::metrics(r.trainer).mean_loss));
}

BOOST_AUTO_TEST_CASE(looking_at_metrics_changes_nothing) {
  const clouds data{300};
  auto options = usual_options();
  const auto without = train(options, data, 4);
  run quiet{options};
  quiet.trainer.step(data.records());
  BOOST_TEST(pg::unprotected::metrics(quiet.trainer).batch_size == 0U);
  BOOST_TEST(pg::unprotected::metrics(quiet.trainer).mean_loss == 0.0);
  options.private_metrics = true;
  BOOST_TEST((train(options, data, 4) == without));
}

BOOST_AUTO_TEST_CASE(only_a_key_of_the_operating_system_is_private) {
  static_assert(!trainer_type::is_private);
  const pg::host exec{pg::threads{1}};
  classifier net{exec, pg::kaiming_uniform{8}};
  classifier other{exec, pg::kaiming_uniform{8}};
  pg::dp_sgd first{exec, net, pg::cross_entropy{}, usual_options()};
  pg::dp_sgd second{exec, other, pg::cross_entropy{}, usual_options()};
  static_assert(decltype(first)::is_private);
  static_assert(!std::is_copy_constructible_v<decltype(first)>);
  const clouds nobody{0};  // so that no draw makes a difference, but noise alone
  first.step(nobody.records());
  second.step(nobody.records());
  BOOST_TEST((parameters_of(net) != parameters_of(other)));  // two keys, two runs
}

BOOST_AUTO_TEST_CASE(training_learns) {
  const clouds data{2000};
  const clouds test{1000, 32};
  auto options = usual_options();
  options.noise = pg::noise_multiplier{0.8};
  options.sampling = pg::poisson_sampling{pg::sampling_probability{0.1}};
  options.divisor = pg::expected_batch_size{200};
  options.clip = pg::l2_clip_norm{1};
  options.learning_rate = pg::learning_rate{0.5};
  options.max_batch = pg::max_batch{64};
  run r{options};
  const double before = pg::evaluate_classifier(r.exec, r.net, pg::public_records{test.records()}).accuracy;
  for (int step = 0; step < 100; ++step) r.trainer.step(data.records());
  const double after = pg::evaluate_classifier(r.exec, r.net, pg::public_records{test.records()}).accuracy;
  BOOST_TEST_MESSAGE("accuracy " << before << " before, " << after << " after 100 private steps");
  BOOST_TEST(after > 0.8);
  BOOST_TEST(after > before + 0.2);
}

BOOST_AUTO_TEST_SUITE_END()
