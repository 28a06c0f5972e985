// SPDX-License-Identifier: Apache-2.0
// tests/train/private_loop_test.cpp - a loop by hand is the trainer bit for bit, and what would be another mechanism
// than the one in its ledger is refused
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "fixture.hpp"

BOOST_AUTO_TEST_SUITE(train_private_loop)

namespace {

using namespace fixture;

using with_dropout = pg::network<pg::shape{6}, pg::linear<9>, pg::tanh, pg::dropout<0.25>, pg::linear<3>>;
template <class Network>
using seeded_loop = pg::private_loop<Network, pg::cross_entropy, pg::seeded_generator>;

static_assert(!std::is_copy_constructible_v<seeded_loop<classifier>> &&
              !std::is_move_constructible_v<seeded_loop<classifier>>);
static_assert(!std::is_copy_constructible_v<seeded_loop<classifier>::step_type> &&
              !std::is_copy_assignable_v<seeded_loop<classifier>::step_type> &&
              std::is_nothrow_move_constructible_v<seeded_loop<classifier>::step_type>);

/// Adds all batches of a step.
void add_all(const pg::host& exec, auto& step, const pg::l2_clip_norm& bound) {
  while (step.next()) {
    const auto g = step.gradients();
    pg::evaluate_into(exec, pg::accumulate(step, pg::sum(pg::clip(g, bound))));
  }
}

template <class Network>
std::vector<float> numbers_of(const Network& net) {
  return {net.parameters().begin(), net.parameters().end()};
}

/// One loop with all that it refers to.
struct running {
  clouds data{300};
  pg::dataset<float, std::int32_t> records = data.records();
  pg::host exec{pg::threads{2}};
  classifier net{exec, pg::kaiming_uniform{8}};
  pg::dp_sgd_options options = usual_options();
  seeded_loop<classifier> loop{exec, net, pg::cross_entropy{}, options, pg::seeded_generator{5}};
  pg::unprotected::rehearsed_gradient<classifier> update{exec};
  pg::l2_clip_norm bound = *options.clip;

  void add(auto& step, double wanted_bound) {
    pg::evaluate_into(exec, pg::accumulate(step, pg::sum(pg::clip(step.gradients(), pg::l2_clip_norm{wanted_bound}))));
  }
  [[nodiscard]] std::vector<float> released() const { return {update.values().begin(), update.values().end()}; }
};

/// A loss that throws for the first record that it sees after `armed` was set.
struct failing_loss : pg::cross_entropy {
  static inline bool armed = false;
  template <class Scalar>
  static double evaluate(std::span<const Scalar> y, std::span<const std::int32_t> classes, std::span<Scalar> dy) {
    if (armed) throw std::runtime_error("a loss of the user's");
    return pg::cross_entropy{}.evaluate(y, classes, dy);
  }
};

template <class Network, class Optimizer>
void check_equals_the_trainer(const pg::dp_sgd_options& options, Optimizer optimizer, const std::string& what) {
  const clouds data{300};
  const auto records = data.records();
  const pg::host exec{pg::threads{2}};
  Network by_trainer{exec, pg::kaiming_uniform{8}};
  Network by_hand{exec, pg::kaiming_uniform{8}};
  pg::dp_sgd trainer{exec, by_trainer, pg::cross_entropy{}, options, pg::seeded_generator{77}};
  seeded_loop<Network> loop{exec, by_hand, pg::cross_entropy{}, options, pg::seeded_generator{77}};
  pg::unprotected::rehearsed_gradient<Network> update{exec};
  std::size_t batches = 0;
  for (int i = 0; i < 6; ++i) {
    trainer.step(records);
    auto step = loop.begin(records);
    while (step.next()) {
      ++batches;
      const auto g = step.gradients();
      pg::evaluate_into(exec, pg::accumulate(step, pg::sum(pg::clip(g, *options.clip))));
    }
    optimizer.step(exec, by_hand, update, std::move(step));
    BOOST_TEST((std::ranges::equal(update.values(), trainer.last_update().values())), what);
  }
  BOOST_TEST((numbers_of(by_hand) == numbers_of(by_trainer)), what);
  BOOST_TEST(loop.steps() == 6U);
  BOOST_TEST(loop.epsilon(pg::delta{1e-5}) == trainer.epsilon(pg::delta{1e-5}));
  if (options.sampling->probability().value() > 0) {
    BOOST_TEST(batches > 12U, what);  // several a step
  } else {
    BOOST_TEST(batches == 0U, what);
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(equals_the_trainer_bit_for_bit) {
  auto options = usual_options();
  const pg::learning_rate rate = *options.learning_rate;
  check_equals_the_trainer<classifier>(options, pg::sgd<classifier>{rate}, "sgd");
  check_equals_the_trainer<with_dropout>(options, pg::sgd<with_dropout>{rate}, "dropout");
  // more records than the sum has room for in floating point
  options.capacity = pg::record_capacity{16};
  check_equals_the_trainer<classifier>(options, pg::sgd<classifier>{rate}, "more were drawn than fit");
  options.capacity.reset();
  options.momentum = 0.9;
  check_equals_the_trainer<classifier>(options, pg::sgd<classifier>{rate, 0.9}, "momentum");
  options.momentum = 0;
  options.optimizer = pg::optimizer_kind::adam;
  check_equals_the_trainer<classifier>(options, pg::adam<classifier>{rate}, "adam");
  options.sampling = pg::poisson_sampling{pg::sampling_probability{0}};
  check_equals_the_trainer<classifier>(options, pg::adam<classifier>{rate}, "an empty draw");
}

BOOST_AUTO_TEST_CASE(three_ways_to_release_are_one) {
  std::vector<std::vector<float>> parameters;
  for (int way = 0; way < 3; ++way) {
    running it;
    pg::sgd<classifier> optimizer{pg::learning_rate{0.25}};
    auto step = it.loop.begin(it.records);
    add_all(it.exec, step, it.bound);
    if (way == 0) optimizer.step(it.exec, it.net, std::move(step));
    if (way == 1) optimizer.step(it.exec, it.net, it.update, std::move(step));
    if (way == 2) {
      pg::evaluate_into(it.exec, it.update, std::move(step));
      optimizer.step(it.exec, it.net, it.update, *it.options.divisor);
    }
    parameters.push_back(parameters_of(it.net));
  }
  BOOST_TEST((parameters[0] == parameters[1]));
  BOOST_TEST((parameters[0] == parameters[2]));
}

BOOST_AUTO_TEST_CASE(the_budget_refuses_the_step_before_anything_is_drawn) {
  running it;
  auto options = it.options;
  pg::pld_accountant ledger;
  ledger.record(options.sampling->event(*options.noise), 3);
  options.budget = pg::privacy_budget{pg::epsilon{ledger.epsilon(pg::delta{1e-5}) * (1 + 1e-9)}, pg::delta{1e-5}};
  seeded_loop<classifier> loop{it.exec, it.net, pg::cross_entropy{}, options, pg::seeded_generator{5}};
  for (int i = 0; i < 3; ++i) {
    BOOST_TEST(loop.within_budget());
    auto step = loop.begin(it.records);
    add_all(it.exec, step, it.bound);
    pg::evaluate_into(it.exec, it.update, std::move(step));
  }
  BOOST_TEST(!loop.within_budget());
  BOOST_CHECK_THROW(static_cast<void>(loop.begin(it.records)), pg::budget_exhausted);
  BOOST_TEST(loop.steps() == 3U);
  options.budget = pg::privacy_budget{pg::epsilon{0.01}, pg::delta{1e-5}};
  BOOST_CHECK_THROW((seeded_loop<classifier>{it.exec, it.net, pg::cross_entropy{}, options, pg::seeded_generator{5}}),
                    std::invalid_argument);
}

BOOST_AUTO_TEST_CASE(options_that_are_missing_or_protect_nobody) {
  running it;
  const auto refuse = [&](auto change, const char* named) {
    auto options = it.options;
    change(options);
    try {
      const pg::private_loop<classifier, pg::cross_entropy> loop{it.exec, it.net, pg::cross_entropy{}, options};
      BOOST_ERROR(named);
    } catch (const std::invalid_argument& error) {
      BOOST_TEST(std::string{error.what()}.find(named) != std::string::npos, error.what());
    }
  };
  refuse([](auto& options) { options.clip.reset(); }, "clip");
  refuse([](auto& options) { options.noise.reset(); }, "noise");
  refuse([](auto& options) { options.noise = pg::noise_multiplier{0}; }, "protects nobody");
  refuse([](auto& options) { options.sampling.reset(); }, "sampling");
  refuse([](auto& options) { options.divisor.reset(); }, "divisor");
  refuse([](auto& options) { options.max_batch.count = 0; }, "max_batch");
  refuse([](auto& options) { options.noise = pg::noise_multiplier{1e-6}; }, "must be in [2^4, 2^46]");
  refuse([](auto& options) { options.noise = pg::noise_multiplier{1e10}; }, "must be in [2^4, 2^46]");
  refuse([](auto& options) { options.divisor = pg::expected_batch_size{1e50}; },
         "takes divisor for infinity, got 1e+50");
  refuse([](auto& options) { options.divisor = pg::expected_batch_size{1e-50}; }, "takes divisor for 0, got 1e-50");
  // Of samplers by which records are added or removed; lanes_test.cpp says why.
  refuse([](auto& options) { options.lanes = pg::record_lanes{2, 30}; }, "differ by replacing one record");
  // A trainer's options are a loop's and more; what a loop would not do is not left out silently.
  pg::dp_sgd_options of_a_trainer;
  static_cast<pg::private_choices&>(of_a_trainer) = it.options;
  of_a_trainer.sampling = it.options.sampling;
  const pg::private_loop taken{it.exec, it.net, pg::cross_entropy{}, of_a_trainer};
  of_a_trainer.adaptive_clip = pg::adaptive_clip{pg::noise_multiplier{3}};
  BOOST_CHECK_THROW((pg::private_loop{it.exec, it.net, pg::cross_entropy{}, of_a_trainer}), std::invalid_argument);
}

// A tape takes no more records than a sum is made for, so larger physical batches are cut; of 0, all are integers.
BOOST_AUTO_TEST_CASE(a_capacity_cuts_physical_batches) {
  for (const std::size_t capacity : {std::size_t{0}, std::size_t{5}}) {
    running it;
    auto options = it.options;
    options.capacity = pg::record_capacity{capacity};
    pg::private_loop<classifier, pg::cross_entropy> loop{it.exec, it.net, pg::cross_entropy{}, options};
    auto step = loop.begin(it.records);
    while (step.next()) {
      const auto g = step.gradients();
      BOOST_TEST(g.capacity() == (capacity == 0 ? options.max_batch.count : capacity));
      pg::evaluate_into(it.exec, pg::accumulate(step, pg::sum(pg::clip(g, it.bound))));
    }
    pg::private_gradient<classifier> update{it.exec};
    pg::evaluate_into(it.exec, update, std::move(step));
    BOOST_TEST(update.values()[0] != 0);
  }
}

// Each batch of a step is in its sum once. Whatever else is tried says so and releases nothing.
BOOST_AUTO_TEST_CASE(a_batch_twice_or_left_out) {
  running it;
  auto step = it.loop.begin(it.records);
  BOOST_CHECK_THROW(static_cast<void>(step.gradients()), std::logic_error);  // no batch yet
  BOOST_CHECK_THROW(pg::evaluate_into(it.exec, it.update, std::move(step)), std::logic_error);
  BOOST_TEST_REQUIRE(step.next());
  BOOST_CHECK_THROW(static_cast<void>(step.next()), std::logic_error);  // left out
  BOOST_CHECK_THROW(pg::evaluate_into(it.exec, it.update, std::move(step)), std::logic_error);
  const auto g = step.gradients();
  const auto once = pg::accumulate(step, pg::sum(pg::clip(g, it.bound)));
  pg::evaluate_into(it.exec, once);
  BOOST_CHECK_THROW(pg::evaluate_into(it.exec, once), std::logic_error);
  BOOST_CHECK_THROW(it.add(step, 0.5), std::logic_error);
  BOOST_CHECK_THROW(pg::evaluate_into(it.exec, it.update, std::move(step)), std::logic_error);  // more batches wait
  add_all(it.exec, step, it.bound);
  BOOST_CHECK_THROW(pg::evaluate_into(it.exec, once), std::logic_error);
  const std::vector<float> zeros(classifier::parameter_count);
  BOOST_TEST((it.released() == zeros));
  pg::evaluate_into(it.exec, it.update, std::move(step));
  BOOST_TEST((it.released() != zeros));
  // and it is what it would have been without all that
  running same;
  auto other = same.loop.begin(same.records);
  add_all(same.exec, other, same.bound);
  pg::evaluate_into(same.exec, same.update, std::move(other));
  BOOST_TEST((it.released() == same.released()));
}

BOOST_AUTO_TEST_CASE(twice_in_one_evaluation) {
  running it;
  auto step = it.loop.begin(it.records);
  BOOST_TEST_REQUIRE(step.next());
  const auto g = step.gradients();
  const auto chunk = pg::accumulate(step, pg::sum(pg::clip(g, it.bound)));
  BOOST_CHECK_THROW(pg::unprotected::evaluate_into(it.exec, chunk, chunk), std::logic_error);
  BOOST_CHECK_THROW(static_cast<void>(step.next()), std::logic_error);  // what is in the sum nobody knows
  BOOST_CHECK_THROW(pg::evaluate_into(it.exec, chunk), std::logic_error);
  BOOST_CHECK_THROW(pg::evaluate_into(it.exec, it.update, std::move(step)), std::logic_error);
}

BOOST_AUTO_TEST_CASE(another_bound_or_another_batch) {
  running it;
  auto step = it.loop.begin(it.records);
  BOOST_TEST_REQUIRE(step.next());
  for (const double other : {0.25, 0.5000001, 1000.0}) BOOST_CHECK_THROW(it.add(step, other), std::logic_error);
  // another batch of the same records, and one that the step does not know
  const auto g = step.gradients();
  const std::vector<std::uint32_t> ids{1, 2, 3};
  const pg::batch<classifier, pg::cross_entropy> chosen{it.records, ids};
  const pg::batch<classifier, pg::cross_entropy> copy = g.samples();
  classifier::tape tape{it.exec, pg::max_batch{16}};
  for (const auto* foreign : {&chosen, &copy}) {
    const auto theirs = pg::per_sample_gradients(it.net, pg::cross_entropy{}, *foreign, tape);
    BOOST_CHECK_THROW(pg::evaluate_into(it.exec, pg::accumulate(step, pg::sum(pg::clip(theirs, it.bound)))),
                      std::logic_error);
  }
  // a way of clipping with the same bound is the program's choice
  pg::evaluate_into(it.exec, pg::accumulate(step, pg::sum(pg::normalise(g, it.bound))));
  add_all(it.exec, step, it.bound);
  pg::evaluate_into(it.exec, it.update, std::move(step));
}

// A draw that is released twice is not two draws, and the ledger would not know.
BOOST_AUTO_TEST_CASE(one_step_at_a_time_and_one_release_a_step) {
  running it;
  auto step = it.loop.begin(it.records);
  BOOST_CHECK_THROW(static_cast<void>(it.loop.begin(it.records)), std::logic_error);
  BOOST_TEST(it.loop.steps() == 1U);  // nothing was entered or changed
  add_all(it.exec, step, it.bound);
  auto moved = std::move(step);
  // NOLINTBEGIN(bugprone-use-after-move)
  BOOST_CHECK_THROW(static_cast<void>(step.next()), std::logic_error);
  BOOST_CHECK_THROW(static_cast<void>(step.gradients()), std::logic_error);
  BOOST_CHECK_THROW(pg::evaluate_into(it.exec, it.update, std::move(step)), std::logic_error);
  BOOST_CHECK_THROW(static_cast<void>(it.loop.begin(it.records)), std::logic_error);  // still one
  pg::evaluate_into(it.exec, it.update, std::move(moved));
  const auto released = it.released();
  BOOST_CHECK_THROW(pg::evaluate_into(it.exec, it.update, std::move(moved)), std::logic_error);
  BOOST_CHECK_THROW(static_cast<void>(moved.next()), std::logic_error);
  // NOLINTEND(bugprone-use-after-move)
  BOOST_TEST((it.released() == released));

  // the next one does not bring the first one back to life
  auto next = it.loop.begin(it.records);
  add_all(it.exec, next, it.bound);
  BOOST_CHECK_THROW(pg::evaluate_into(it.exec, it.update, std::move(moved)), std::logic_error);
  // assigned away: it has ended, and the loop may begin another
  next = std::move(moved);
  BOOST_CHECK_THROW(static_cast<void>(next.next()), std::logic_error);
  BOOST_CHECK_NO_THROW(static_cast<void>(it.loop.begin(it.records)));
  BOOST_TEST(it.loop.steps() == 3U);
}

BOOST_AUTO_TEST_CASE(a_step_that_outlives_its_loop) {
  running it;
  auto loop = std::make_unique<seeded_loop<classifier>>(it.exec, it.net, pg::cross_entropy{}, it.options,
                                                        pg::seeded_generator{5});
  auto step = loop->begin(it.records);
  add_all(it.exec, step, it.bound);
  loop.reset();
  BOOST_CHECK_THROW(static_cast<void>(step.next()), std::logic_error);
  BOOST_CHECK_THROW(pg::evaluate_into(it.exec, it.update, std::move(step)), std::logic_error);
}

// The step is spent, its sum is never released, and the loop goes on.
BOOST_AUTO_TEST_CASE(an_exception_in_the_middle) {
  running it;
  pg::private_loop<classifier, failing_loss, pg::seeded_generator> loop{it.exec, it.net, failing_loss{}, it.options,
                                                                        pg::seeded_generator{5}};
  {
    auto step = loop.begin(it.records);
    BOOST_TEST_REQUIRE(step.next());
    it.add(step, 0.5);
    BOOST_TEST_REQUIRE(step.next());
    failing_loss::armed = true;
    BOOST_CHECK_THROW(it.add(step, 0.5), std::runtime_error);
    failing_loss::armed = false;
    BOOST_CHECK_THROW(it.add(step, 0.5), std::logic_error);  // half of it may be in the sum
    BOOST_CHECK_THROW(static_cast<void>(step.next()), std::logic_error);
    BOOST_CHECK_THROW(pg::evaluate_into(it.exec, it.update, std::move(step)), std::logic_error);
  }
  auto step = loop.begin(it.records);
  add_all(it.exec, step, it.bound);
  pg::evaluate_into(it.exec, it.update, std::move(step));
  BOOST_TEST(loop.steps() == 2U);
  // the second release of a loop in which nothing went wrong, which has drawn one step of the generator more
  seeded_loop<classifier> other{it.exec, it.net, pg::cross_entropy{}, it.options, pg::seeded_generator{5, 1}};
  const auto found = it.released();
  auto same = other.begin(it.records);
  add_all(it.exec, same, it.bound);
  pg::evaluate_into(it.exec, it.update, std::move(same));
  BOOST_TEST((it.released() == found));
}

// What is looked at beside it leaves no trace in the sum.
BOOST_AUTO_TEST_CASE(private_metrics_in_between) {
  running plain;
  running looked_at;
  auto step = plain.loop.begin(plain.records);
  add_all(plain.exec, step, plain.bound);
  pg::evaluate_into(plain.exec, plain.update, std::move(step));
  auto seen = looked_at.loop.begin(looked_at.records);
  while (seen.next()) {
    const auto g = seen.gradients();
    std::vector<double> norms(g.size());
    BOOST_TEST(pg::unprotected::evaluate(looked_at.exec, pg::losses(g)).size() == g.size());
    pg::unprotected::evaluate_into(looked_at.exec, pg::accumulate(seen, pg::sum(pg::clip(g, looked_at.bound))),
                                   pg::assign(norms, pg::l2_norms(g)));
    BOOST_TEST(pg::unprotected::evaluate(looked_at.exec, pg::sum(g)).size() == classifier::parameter_count);
  }
  pg::evaluate_into(looked_at.exec, looked_at.update, std::move(seen));
  BOOST_TEST((looked_at.released() == plain.released()));
}

BOOST_AUTO_TEST_CASE(layers_clipped_together_to_the_options_bound) {
  running it;
  for (const double bound : {0.5, 1.1, 1e-30}) {
    it.options.clip = pg::l2_clip_norm{bound};
    seeded_loop<classifier> loop{it.exec, it.net, pg::cross_entropy{}, it.options, pg::seeded_generator{5}};
    auto step = loop.begin(it.data.records());
    while (step.next()) {
      const auto clipped = clip_per_layer(step.gradients(), pg::l2_clip_norm{bound});
      double squares = 0;
      for (const double each : clipped.rule().bounds) squares += each * each;
      BOOST_TEST(std::sqrt(squares) * (1 + 1e-15) <= bound);
      BOOST_TEST(std::sqrt(squares) > bound * (1 - 1e-13));
      pg::evaluate_into(it.exec, accumulate(step, sum(clipped)));
    }
    pg::evaluate_into(it.exec, it.update, std::move(step));
  }
}

BOOST_AUTO_TEST_CASE(records_that_do_not_fit_are_refused_before_the_ledger) {
  running it;
  it.data.classes[200] = 3;
  const auto bad = it.data.records();
  BOOST_CHECK_THROW(static_cast<void>(it.loop.begin(bad)), std::invalid_argument);
  BOOST_TEST(it.loop.steps() == 0U);
  it.data.classes[200] = 2;
  static_cast<void>(it.loop.begin(bad));
  // no records at all: noise alone
  auto step = it.loop.begin(pg::dataset<float, std::int32_t>{{}, {}, pg::shape{6}});
  BOOST_TEST(!step.next());
  pg::evaluate_into(it.exec, it.update, std::move(step));
  BOOST_TEST((it.released() != std::vector<float>(classifier::parameter_count)));
}

BOOST_AUTO_TEST_SUITE_END()
