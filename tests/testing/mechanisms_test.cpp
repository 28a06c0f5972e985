// SPDX-License-Identifier: Apache-2.0
// tests/testing/mechanisms_test.cpp - what the trainer's mechanisms really do, measured, against what their ledgers say
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include <pergrad/pergrad.hpp>

BOOST_AUTO_TEST_SUITE(mechanisms)

namespace {

namespace pg = pergrad;
using network = pg::network<pg::shape{40}, pg::linear<50>>;

[[nodiscard]] pg::dp_sgd_options options() {
  pg::dp_sgd_options chosen;
  chosen.clip = pg::l2_clip_norm{0.5};
  chosen.noise = pg::noise_multiplier{2};
  chosen.sampling = pg::poisson_sampling{pg::sampling_probability{1}};
  chosen.divisor = pg::expected_batch_size{10.0};
  chosen.learning_rate = pg::learning_rate{1e-9};
  return chosen;
}

}  // namespace

// Nobody's records, so what is released is noise: of the gradient over its clip norm, and of both counts. The event's
// noise must be that of all of it side by side.
BOOST_AUTO_TEST_CASE(counts_in_the_event) {
  const pg::host exec{pg::threads{1}};
  network net{exec, pg::zeros{}};
  auto chosen = options();
  chosen.adaptive_clip = pg::adaptive_clip{.noise = pg::noise_multiplier{3}};
  pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, chosen, pg::seeded_generator{3}};
  double of_gradient = 0, of_counts = 0;
  std::size_t elements = 0, counts = 0;
  for (int step = 0; step < 2000; ++step) {
    const double clip = trainer.options().clip->value();
    trainer.step(pg::dataset<float, std::int32_t>{{}, {}, pg::shape{40}});
    for (const float value : trainer.last_update().values().first(20)) {
      of_gradient += std::pow(static_cast<double>(value) / clip, 2);
      ++elements;
    }
    for (const double value : trainer.last_statistic().counts()) {
      of_counts += value * value;
      ++counts;
    }
  }
  const double measured = 1 / std::sqrt(static_cast<double>(elements) / of_gradient +  //
                                        static_cast<double>(counts) / of_counts);
  const double claimed = trainer.accountant().accountant().ledger()[0].event.noise_multiplier;
  // Six standard errors of the 4,000 counts' deviation are 7 %, and most of what is claimed is the gradient's.
  BOOST_TEST(std::abs(claimed / measured - 1) < 0.04);
}

// What one record moves a step's release by is within the share of the sensitivity that it is charged for: of gradients
// from nothing to far above the clip norm. The same noise is in both releases, so their difference is the record's.
BOOST_AUTO_TEST_CASE(norms_round_up) {
  using small = pg::network<pg::shape{13}, pg::linear<11, pg::no_bias>>;
  const pg::host exec{pg::threads{1}};
  small net{exec, pg::zeros{}};
  auto chosen = options();
  chosen.noise = pg::noise_multiplier{20};
  chosen.individual = pg::individual_accounting{};
  chosen.budget = pg::privacy_budget{pg::epsilon{8}, pg::delta{1e-5}};
  const double order = pg::rdp_accountant::order_for(*chosen.budget, {1, 20});
  const double constant = pg::epsilon_from_rdp(order, 0.1, pg::delta{1e-5}) - 0.1;
  const auto grid = pg::release_grid::of(0.5, small::parameter_count);
  const double rounding = std::sqrt(static_cast<double>(grid.elements)) / 2 * std::ldexp(1.0, grid.unit - grid.steps);
  const auto release = [&](std::span<const float> input, std::span<const float> target, double& spent) {
    std::fill(net.parameters().begin(), net.parameters().end(), 0.0F);
    pg::dp_sgd trainer{exec, net, pg::mean_squared_error{}, chosen, pg::seeded_generator{3}};
    trainer.step(pg::dataset<float, float>{input, target, pg::shape{13}, 11});
    for (const double epsilon : pg::unprotected::individual_epsilons(trainer, pg::delta{1e-5})) {
      spent = epsilon > 0 ? epsilon - constant : 0;
    }
    return std::vector<double>(trainer.last_update().values().begin(), trainer.last_update().values().end());
  };
  double nobody = 0;
  const auto without = release({}, {}, nobody);
  std::mt19937 random{11};
  std::normal_distribution<float> normal;
  double nearest = 0;
  std::size_t free_of_charge = 0;
  for (int trial = 0; trial < 600; ++trial) {
    std::vector<float> input(13), target(11);
    const float size =
        trial % 5 == 4 ? std::pow(10.0F, static_cast<float>(trial % 40) - 38.0F) : 0.03F * std::exp(2 * normal(random));
    for (float& value : input) value = size * normal(random);
    for (float& value : target) value = normal(random);
    double spent = 0;
    const auto with = release(input, target, spent);
    double squares = 0, shown = 0;
    for (std::size_t i = 0; i < with.size(); ++i) {
      squares += std::pow(with[i] - without[i], 2);
      shown += std::pow((std::abs(with[i]) + std::abs(without[i])) * 0x1p-24, 2);  // releases are shown as floats
    }
    const double share = 20 * std::sqrt(2 * std::max(0.0, spent) / order);
    const double most = share * (0.5 + rounding) * (1 + 1e-9);
    BOOST_TEST(std::sqrt(squares) <= most + std::sqrt(shown));
    if (most > 0.05) nearest = std::max(nearest, std::sqrt(squares) / most);
    free_of_charge += std::abs(spent) < 1e-12 ? 1U : 0U;
  }
  BOOST_TEST(nearest > 0.95);
  BOOST_TEST(free_of_charge > 10U);
}

BOOST_AUTO_TEST_SUITE_END()
