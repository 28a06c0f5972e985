// SPDX-License-Identifier: Apache-2.0
// tests/testing/audit_samplers_test.cpp - attackers who know the sampler: none contradicts its event, and each
// contradicts what another sampler's event would say of the same releases
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <pergrad/pergrad.hpp>
#include <pergrad/testing/audit/two_worlds.hpp>
#include <pergrad/testing/gradient_space.hpp>

BOOST_AUTO_TEST_SUITE(audit_samplers)

namespace {

namespace pg = pergrad;
using network = pg::testing::gradient_space<4>;
using records = pg::testing::gradient_records<4>;
constexpr double sigma = 0.4;
constexpr std::uint64_t runs = 4000;

/// Records whose gradients lie along one axis; beyond the clip norm of 1.
records along(const std::vector<float>& sizes) {
  records made;
  for (const float size : sizes) made.add()[0] = size;
  return made;
}

/// Runs of so many steps on these records, whole rounds of the sampler: score(what each step released along the axis).
/// They are steps of one trainer, as gradients of this network do not depend on its parameters.
template <class MakeSampler, class Score>
std::vector<double> scores_of(const records& data, const MakeSampler& sampler, std::size_t steps, const Score& score,
                              std::uint64_t seed) {
  const pg::host exec{pg::threads{1}};
  network net{exec, pg::zeros{}};
  pg::dp_options<std::decay_t<decltype(sampler())>> options;
  options.clip = pg::l2_clip_norm{1};
  options.noise = pg::noise_multiplier{sigma};
  options.divisor = pg::expected_batch_size{1};
  options.learning_rate = pg::learning_rate{1};
  options.max_batch = pg::max_batch{4};
  options.sampling = sampler();
  pg::dp_sgd trainer{exec, net, pg::testing::output_as_loss{}, options, pg::seeded_generator{seed}};
  std::vector<double> scores;
  std::vector<double> seen(steps);
  const auto all = data.view();
  for (std::uint64_t run = 0; run < runs; ++run) {
    for (double& value : seen) {
      trainer.step(all);
      value = static_cast<double>(trainer.last_update().values()[0]);
    }
    scores.push_back(score(seen));
  }
  return scores;
}

/// A certified curve from some of the accountant's deltas.
template <class Event>
auto curve_of(const Event& event, std::uint64_t count) {
  pg::basic_pld_accountant<Event> ledger;
  ledger.record(event, count);
  std::vector<std::pair<double, double>> pairs;  // e^epsilon, delta
  for (double epsilon = 0; epsilon < 16; epsilon += 0.5) {
    pairs.emplace_back(std::exp(epsilon), ledger.delta(pg::epsilon{epsilon}));
  }
  return [pairs](double alpha) {
    double beta = 0;
    for (const auto& [factor, delta] : pairs) {
      beta = std::max({beta, 1 - delta - factor * alpha, (1 - delta - alpha) / factor});
    }
    return beta;
  };
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_batch_of_fixed_size_leaks_more_than_a_poisson_batch) {
  // One of two records: who is replaced takes the other one's place, or is not there at all.
  const auto sampler = [] { return pg::fixed_size_sampling{pg::batch_size{1}, pg::public_record_count{2}}; };
  const auto score = [](const std::vector<double>& seen) { return seen[0]; };
  const pg::testing::two_worlds audit{scores_of(along({3, -3}), sampler, 1, score, 1),
                                      scores_of(along({-3, -3}), sampler, 1, score, 2), 0.999};
  BOOST_TEST(!audit.contradicts(curve_of(pg::fixed_size_gaussian_event{0.5, sigma}, 1)));
  BOOST_TEST(audit.contradicts(curve_of(pg::replace_one_gaussian_event{0.5, sigma}, 1)));
}

BOOST_AUTO_TEST_CASE(an_allocated_record_is_never_missing) {
  const auto sampler = [] { return pg::random_allocation{pg::round_steps{2}}; };
  const auto likelihood = [](const std::vector<double>& seen) {
    return std::log(std::exp(seen[0] / (sigma * sigma)) + std::exp(seen[1] / (sigma * sigma)));
  };
  const pg::testing::two_worlds audit{scores_of(along({3}), sampler, 2, likelihood, 1),
                                      scores_of(along({}), sampler, 2, likelihood, 2), 0.999};
  BOOST_TEST(!audit.contradicts(curve_of(pg::allocated_gaussian_event{2, 1, sigma}, 1)));
  BOOST_TEST(audit.contradicts(curve_of(pg::sampled_gaussian_event{0.5, sigma}, 2)));
}

BOOST_AUTO_TEST_CASE(an_owner_leaks_no_more_than_one_record) {
  const std::vector<std::uint32_t> owners{7, 7, 7}, nobody;
  const auto score = [](const std::vector<double>& seen) { return seen[0]; };
  const pg::poisson_sampling half{pg::sampling_probability{0.5}};
  const auto of_three = [&] { return pg::of_owners{half, owners, pg::combined::sum}; };
  const auto of_none = [&] { return pg::of_owners{half, nobody, pg::combined::sum}; };
  const auto of_records = [&] { return half; };
  const auto claim = curve_of(half.event(pg::noise_multiplier{sigma}), 1);
  const std::vector<double> without = scores_of(along({}), of_none, 1, score, 2);
  const pg::testing::two_worlds clipped_once{scores_of(along({3, 3, 3}), of_three, 1, score, 1), without, 0.999};
  const pg::testing::two_worlds clipped_thrice{scores_of(along({3, 3, 3}), of_records, 1, score, 1), without, 0.999};
  BOOST_TEST(!clipped_once.contradicts(claim));
  BOOST_TEST(clipped_thrice.contradicts(claim));
}

BOOST_AUTO_TEST_SUITE_END()
