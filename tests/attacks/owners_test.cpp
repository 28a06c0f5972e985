// SPDX-License-Identifier: Apache-2.0
// tests/attacks/owners_test.cpp - the attacks on released bits, on sums of owners' clipped gradients: with and without
// an owner
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <pergrad/pergrad.hpp>

#include "attacks/matrix.hpp"

BOOST_AUTO_TEST_SUITE(attacks_owners)

namespace {

namespace pg = pergrad;
using attacks::hypothesis;
using attacks::observation;
using network = victims::small<float>;
using sampler = pg::of_owners<pg::poisson_sampling>;

/// Owners of three records each, and one of a single record that makes the difference. Each world has a trainer.
class owners_victim {
 public:
  attacks::setting known;

  explicit owners_victim(double sigma) : net_{executor_, pg::kaiming_uniform{5}} {
    const auto grid = pg::release_grid::of(clip, network::parameter_count);
    known = {sigma, sigma * clip, std::ldexp(1.0, grid.unit - grid.steps), false};
    start_.assign(net_.parameters().begin(), net_.parameters().end());
    for (const bool with : {false, true}) {
      trainer rehearsed = make(with, 0, 1);
      const observation without_noise = step(rehearsed, with);
      guesses_[with ? 1 : 0] = {without_noise.values, without_noise.values};
    }
    worlds_.reserve(2);
    for (const bool with : {false, true}) {
      worlds_.push_back(std::make_unique<trainer>(executor_, net_, pg::cross_entropy{}, options(with, sigma),
                                                  pg::seeded_generator{with ? 11U : 12U}));
    }
  }
  [[nodiscard]] const hypothesis& guess(bool with) const { return guesses_[with ? 1 : 0]; }
  [[nodiscard]] observation observe(bool with) { return step(*worlds_[with ? 1 : 0], with); }

 private:
  using trainer = pg::dp_sgd<network, pg::cross_entropy, pg::seeded_generator, pg::host, pg::dp_options<sampler>>;
  static constexpr double clip = 0.7;
  static constexpr std::size_t records = 120;

  [[nodiscard]] pg::dp_options<sampler> options(bool with, double sigma) const {
    std::vector<std::uint32_t> owners(records + (with ? 1 : 0));
    for (std::size_t i = 0; i < owners.size(); ++i) owners[i] = static_cast<std::uint32_t>(i / 3);
    pg::dp_options<sampler> made;
    made.clip = pg::l2_clip_norm{clip};
    made.noise = pg::noise_multiplier{sigma};
    made.sampling = sampler{pg::poisson_sampling{pg::sampling_probability{1}}, owners};
    made.divisor = pg::expected_batch_size{40};
    made.learning_rate = pg::learning_rate{0.1};
    made.max_batch = pg::max_batch{64};
    return made;
  }
  [[nodiscard]] trainer make(bool with, double sigma, std::uint64_t seed) {
    return {executor_, net_, pg::cross_entropy{}, options(with, sigma), pg::seeded_generator{seed}};
  }
  [[nodiscard]] observation step(trainer& of, bool with) {
    std::copy(start_.begin(), start_.end(), net_.parameters().begin());
    of.step(data_.view(with));
    const auto seen = of.last_update().values();
    return {{seen.begin(), seen.end()}};
  }

  pg::host executor_{pg::threads{1}};
  victims::records<network> data_{records, false};
  network net_;
  std::vector<float> start_;
  hypothesis guesses_[2];
  std::vector<std::unique_ptr<trainer>> worlds_;
};

}  // namespace

BOOST_AUTO_TEST_CASE(no_bit_tells_of_an_owner) {
  for (const double sigma : {1.0, 100.0}) {
    owners_victim victim{sigma};
    matrix::check_private(attacks::decide_neighbours(victim, attacks::trials(200, 2000), 5), sigma, "owners");
  }
}

// Hardly any noise: the attackers do see the owner, so they would see it through noise that is broken.
BOOST_AUTO_TEST_CASE(an_owner_shows_where_there_is_hardly_any_noise) {
  owners_victim victim{0.05};
  bool found = false;
  for (const auto& each : attacks::decide_neighbours(victim, attacks::trials(100, 100), 5)) {
    found = found || each.right > 0.95 * static_cast<double>(each.trials);
  }
  BOOST_TEST(found);
}

BOOST_AUTO_TEST_SUITE_END()
