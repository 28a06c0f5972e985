// SPDX-License-Identifier: Apache-2.0
// tests/testing/mechanisms_test.cpp - what the trainer's mechanisms really do, measured, against what their ledgers say
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
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

BOOST_AUTO_TEST_SUITE_END()
