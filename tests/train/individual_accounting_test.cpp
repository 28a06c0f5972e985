// SPDX-License-Identifier: Apache-2.0
// tests/train/individual_accounting_test.cpp - a budget for each record, in a trainer: who is left out, what is spent,
// and that nobody else notices
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "fixture.hpp"

BOOST_AUTO_TEST_SUITE(train_individual_accounting)

namespace {

using namespace fixture;

/// All records in every step.
[[nodiscard]] pg::dp_sgd_options individual_options(double epsilon = 2) {
  auto options = usual_options();
  options.sampling = pg::poisson_sampling{pg::sampling_probability{1}};
  options.noise = pg::noise_multiplier{12};
  options.individual = pg::individual_accounting{};
  options.budget = pg::privacy_budget{pg::epsilon{epsilon}, pg::delta{1e-5}};
  return options;
}

struct run {
  pg::host exec;
  classifier net;
  pg::dp_sgd<classifier, pg::cross_entropy, pg::seeded_generator> trainer;
  explicit run(const pg::dp_sgd_options& options, std::size_t threads = 2)
      : exec{pg::threads{threads}},
        net{exec, pg::kaiming_uniform{8}},
        trainer{exec, net, pg::cross_entropy{}, options, pg::seeded_generator{41}} {}
  [[nodiscard]] std::vector<double> spent() const {
    return pg::unprotected::individual_epsilons(trainer, pg::delta{1e-5});
  }
};

/// Parameters that do not move, so that norms stay what they are.
[[nodiscard]] pg::dp_sgd_options standing_still(pg::dp_sgd_options options) {
  options.learning_rate = pg::learning_rate{1e-30};
  return options;
}

[[nodiscard]] std::vector<double> norms_of(const run& it, const clouds& data) {
  const pg::batch<classifier, pg::cross_entropy> all{data.inputs, data.classes};
  pg::tape<classifier> tape{it.exec, pg::max_batch{data.size()}};
  return pg::unprotected::evaluate(it.exec,
                                   pg::l2_norms(pg::per_sample_gradients(it.net, pg::cross_entropy{}, all, tape)));
}

}  // namespace

// Every record is charged the level of its norm, none below what it really costs, and is left out exactly when its next
// charge would not fit: seen in the sums, which then lack it.
BOOST_AUTO_TEST_CASE(records_pay_for_their_norms) {
  const clouds data{60};
  auto options = standing_still(individual_options());
  auto norms = norms_of(run{options}, data);
  std::nth_element(norms.begin(), norms.begin() + 40, norms.end());
  const double clip = norms[40];
  options.clip = pg::l2_clip_norm{clip};
  run it{options};
  norms = norms_of(it, data);
  std::size_t below = 0;
  it.trainer.step(data.records());
  const auto first = it.spent();
  const double order = pg::rdp_accountant::order_for(*options.budget, {1, 12});
  for (std::size_t i = 0; i < 60; ++i) {
    const double share = std::min(1.0, norms[i] / clip);
    const double least = pg::epsilon_from_rdp(
        order, pg::renyi_divergence(pg::sampled_gaussian_event{1, 12 / share}, order), pg::delta{1e-5});
    const double most = pg::epsilon_from_rdp(
        order,
        pg::renyi_divergence(pg::sampled_gaussian_event{1, 12 / std::min(1.0, share + 1.01 / 64)}, order) * 1.001,
        pg::delta{1e-5});
    BOOST_TEST(first[i] >= least);
    BOOST_TEST(first[i] <= most);
    below += norms[i] < 0.9 * clip ? 1U : 0U;
  }
  BOOST_TEST(below > 5U);
  BOOST_TEST(below < 55U);
}

// What is released is the sum over those who are left, as a trainer without them would release it.
BOOST_AUTO_TEST_CASE(who_is_left_out_is_not_in_the_sum) {
  const clouds data{60};
  auto options = standing_still(individual_options(1));
  run it{options};
  const auto norms = norms_of(it, data);
  const double level_cost =
      pg::renyi_divergence(pg::sampled_gaussian_event{1, 12}, pg::rdp_accountant::order_for(*options.budget, {1, 12}));
  std::size_t steps_with_some = 0;
  std::vector<double> before(60, 0);
  for (int step = 0; step < 60; ++step) {
    it.trainer.step(data.records());
    const auto after = it.spent();
    // Whose spent budget has moved was used: those alone, in a trainer of the same noise.
    clouds used{0};
    for (std::size_t i = 0; i < 60; ++i) {
      if (!(after[i] > before[i])) continue;
      used.inputs.insert(used.inputs.end(), data.inputs.begin() + static_cast<std::ptrdiff_t>(6 * i),
                         data.inputs.begin() + static_cast<std::ptrdiff_t>(6 * i + 6));
      used.classes.push_back(data.classes[i]);
    }
    auto plain = usual_options();
    plain.sampling = options.sampling;
    plain.noise = options.noise;
    plain.learning_rate = options.learning_rate;
    plain.capacity = pg::record_capacity{0};
    const pg::host exec{pg::threads{1}};
    classifier net{exec, pg::kaiming_uniform{8}};
    std::copy(it.net.parameters().begin(), it.net.parameters().end(), net.parameters().begin());
    pg::dp_sgd of_them{exec, net, pg::cross_entropy{}, plain,
                       pg::seeded_generator{41, 2 * static_cast<std::uint64_t>(step)}};
    of_them.step(used.records());
    BOOST_TEST(std::ranges::equal(of_them.last_update().values(), it.trainer.last_update().values()));
    steps_with_some += used.size() > 0 && used.size() < 60 ? 1U : 0U;
    before = after;
    for (const double spent : after) BOOST_TEST_REQUIRE(spent <= 1);
  }
  BOOST_TEST(level_cost > 0);
  BOOST_TEST(steps_with_some > 5U);
}

// Full norms: as many steps as a filter over all allows; the ledger says more from then on, the budget is what holds.
BOOST_AUTO_TEST_CASE(the_budget_is_what_holds) {
  const clouds data{60};
  auto options = standing_still(individual_options());
  options.clip = pg::l2_clip_norm{1e-3};
  run it{options};
  const double order = pg::rdp_accountant::order_for(*options.budget, {1, 12});
  pg::rdp_accountant filter;
  std::uint64_t allowed = 0;
  while (filter.epsilon_at_order(order, {1, 12}, allowed + 1, pg::delta{1e-5}) <= 2) ++allowed;
  std::vector<double> before(60, 0);
  for (std::uint64_t step = 0; step < allowed + 5; ++step) {
    BOOST_TEST(it.trainer.within_budget());
    it.trainer.step(data.records());
    const auto after = it.spent();
    for (std::size_t i = 0; i < 60; ++i) BOOST_TEST_REQUIRE((after[i] > before[i]) == (step < allowed));
    before = after;
  }
  BOOST_TEST(it.trainer.accountant().epsilon(pg::delta{1e-5}) < it.trainer.epsilon(pg::delta{1e-5}) * 1.5);
  for (int step = 0; step < 200; ++step) it.trainer.step(data.records());
  BOOST_TEST(it.trainer.accountant().epsilon(pg::delta{1e-5}) > 2.5);
  BOOST_TEST(it.trainer.epsilon(pg::delta{1e-5}) <= 2);
  BOOST_TEST(it.trainer.epsilon(pg::delta{1e-5}) > 2 * (1 - 1e-9));
}

// A record that is not drawn pays as if it added C.
BOOST_AUTO_TEST_CASE(who_is_not_drawn_pays_for_the_clip_norm) {
  const clouds data{300};
  auto options = standing_still(individual_options());
  options.sampling = pg::poisson_sampling{pg::sampling_probability{0.2}};
  options.noise = pg::noise_multiplier{3};
  options.clip = pg::l2_clip_norm{100};  // far above all norms
  run it{options};
  it.trainer.step(data.records());
  const auto spent = it.spent();
  const double q = pg::poisson_sampling{pg::sampling_probability{0.2}}.probability().value();
  const double order = pg::rdp_accountant::order_for(*options.budget, {q, 3});
  const double full =
      pg::epsilon_from_rdp(order, pg::renyi_divergence(pg::sampled_gaussian_event{q, 3}, order), pg::delta{1e-5});
  std::size_t drawn = 0;
  for (const double each : spent) {
    drawn += each < full ? 1U : 0U;
    BOOST_TEST((each < full || std::abs(each / full - 1) < 1e-9));
  }
  BOOST_TEST(std::abs(static_cast<double>(drawn) - 60) < 35);
  BOOST_TEST(drawn > 0U);
}

// A record more: all others spend what they would have spent, however the batches are cut and whoever is left out.
BOOST_AUTO_TEST_CASE(others_do_not_notice) {
  const clouds data{60};
  clouds more = data;
  for (int k = 0; k < 6; ++k) more.inputs.push_back(3);
  more.classes.push_back(1);
  auto options = standing_still(individual_options(1));
  std::vector<double> first;
  for (const std::size_t max_batch : {16U, 7U}) {
    for (const std::size_t threads : {1U, 3U}) {
      options.max_batch = pg::max_batch{max_batch};
      run without{options, threads};
      run with{options, threads};
      for (int step = 0; step < 30; ++step) {
        without.trainer.step(data.records());
        with.trainer.step(more.records());
      }
      const auto spent = without.spent();
      const auto among_more = with.spent();
      BOOST_TEST(among_more.size() == 61U);
      BOOST_TEST(std::equal(spent.begin(), spent.end(), among_more.begin()));
      if (first.empty()) first = spent;
      BOOST_TEST((first == spent));
    }
  }
}

BOOST_AUTO_TEST_CASE(it_follows_one_data_set) {
  const clouds data{60};
  run it{individual_options()};
  it.trainer.step(data.records());
  BOOST_CHECK_THROW(it.trainer.step(clouds{61}.records()), std::logic_error);
  // As many, whose numbers may be others': each would have a budget for each of its numbers.
  const clouds elsewhere{data};
  BOOST_CHECK_THROW(it.trainer.step(elsewhere.records()), std::logic_error);
  const pg::dataset<float, std::int32_t> of_same_arrays{data.inputs, data.classes, pg::shape{6}};
  BOOST_CHECK_THROW(it.trainer.step(of_same_arrays), std::logic_error);
  BOOST_TEST(it.trainer.steps() == 1U);
  it.trainer.records_changed();  // in place: their numbers stay
  BOOST_CHECK_THROW(it.trainer.step(of_same_arrays), std::logic_error);
  it.trainer.step(data.records());
  BOOST_TEST(it.trainer.steps() == 2U);
  const run without{usual_options()};
  BOOST_CHECK_THROW(static_cast<void>(without.spent()), std::logic_error);
}

// Budgets of records are for steps. A statistic of all records would be charged to nobody, and `epsilon` not know of
// it.
BOOST_AUTO_TEST_CASE(statistics_of_all_records_are_refused) {
  const clouds data{60};
  run it{individual_options()};
  it.trainer.step(data.records());
  const double before = it.trainer.epsilon(pg::delta{1e-5});
  const std::vector<double> values(60, 1);
  const pg::noise_multiplier loud{0.3};
  const auto refused = [](const std::exception& error) {
    return std::string{error.what()}.find("with individual accounting") != std::string::npos;
  };
  BOOST_CHECK_EXCEPTION(static_cast<void>(pg::release_count(it.trainer, loud, values, 0, 2)), std::logic_error,
                        refused);
  BOOST_CHECK_EXCEPTION(
      static_cast<void>(pg::release_quantile(it.trainer, loud, values, 0.5, pg::bin_edges::evenly(0, 2, 4))),
      std::logic_error, refused);
  BOOST_TEST(it.trainer.steps() == 1U);
  BOOST_TEST(it.trainer.epsilon(pg::delta{1e-5}) == before);
  // With a ledger of its own.
  pg::privacy_accountant ledger;
  pg::seeded_generator bits{7};
  static_cast<void>(pg::release_count(ledger, bits, pg::noise_multiplier{5}, values, 0, 2));
  BOOST_TEST(ledger.steps() == 1U);
}

BOOST_AUTO_TEST_CASE(with_schedules) {
  const clouds data{60};
  auto options = individual_options(1);
  options.noise.reset();
  options.schedules.steps = 40;
  options.schedules.noise = pg::schedule::exponential(20, 0.5, 20);
  run it{options};
  while (it.trainer.within_budget()) it.trainer.step(data.records());
  BOOST_TEST(it.trainer.steps() == 40U);
  for (const double spent : it.spent()) BOOST_TEST(spent <= 1);
  BOOST_TEST(it.trainer.epsilon(pg::delta{1e-9}) > 1);  // the budget is proven at 1e-5 alone
}

// A record pays what each step's own noise costs.
BOOST_AUTO_TEST_CASE(noise_that_falls_is_charged_as_it_falls) {
  const clouds data{60};
  auto options = standing_still(individual_options(3));
  options.clip = pg::l2_clip_norm{1e-4};  // all are clipped to it
  options.noise.reset();
  options.schedules.steps = 8;
  options.schedules.noise = pg::schedule::exponential(20, 0.5, 4);
  run it{options};
  for (int step = 0; step < 6; ++step) it.trainer.step(data.records());
  const double order = pg::rdp_accountant::order_for(*options.budget, {1, 20});
  const auto divergence = [&](double noise) {
    return pg::renyi_divergence(pg::sampled_gaussian_event{1, noise}, order);
  };
  const double wanted = pg::epsilon_from_rdp(order, 4 * divergence(20) + 2 * divergence(10), pg::delta{1e-5});
  for (const double spent : it.spent()) {
    BOOST_TEST(spent >= wanted * (1 - 1e-9));
    BOOST_TEST(spent <= wanted * 1.01);
  }
}

BOOST_AUTO_TEST_CASE(options_that_exclude_each_other) {
  const auto says = [](const auto& change, const std::string& text) {
    auto options = individual_options();
    change(options);
    BOOST_CHECK_EXCEPTION((run{options}), std::invalid_argument, [&](const std::exception& error) {
      return std::string{error.what()}.find(text) != std::string::npos;
    });
  };
  says([](auto& o) { o.budget.reset(); }, "budget is not set");
  for (const auto kind :
       {pg::clipping_kind::per_layer, pg::clipping_kind::automatic, pg::clipping_kind::per_sample_adaptive}) {
    says([=](auto& o) { o.clipping = kind; }, "individual is for clipping_kind::flat only");
  }
  says([](auto& o) { o.statistic = pg::step_statistic{pg::noise_multiplier{1}, pg::bin_edges{{1}}}; }, "excludes");
  says([](auto& o) { o.adaptive_clip = pg::adaptive_clip{.noise = pg::noise_multiplier{5}}; }, "excludes");
  says([](auto& o) { o.plan = pg::run_plan::on_the_way; }, "a filter of its own");
  says([](auto& o) { o.capacity = pg::record_capacity{64}; }, "adds up integers only");
  says([](auto& o) { o.individual->levels = 0; }, "levels must be in [1, 65535]");
}

BOOST_AUTO_TEST_SUITE_END()
