// SPDX-License-Identifier: Apache-2.0
// tests/optim/padding_rows_test.cpp - no step moves the row of a padding id: not its gradient, which is 0, nor noise
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <pergrad/pergrad.hpp>

BOOST_AUTO_TEST_SUITE(padding_rows)

namespace {

namespace pg = pergrad;

// Held are the last row of the first table and the first row of the second one, side by side, and one in the middle of
// a table that is used twice. The first of them lie across the end of a stretch of noise.
constexpr std::size_t words = 700;
using network = pg::network<
    pg::token_ids(4, words),
    pg::parallel<pg::sequential<pg::embedding<5, pg::padding_idx<words - 1>>, pg::select_last>,
                 pg::embedding_bag<3, pg::padding_idx<0>>,
                 pg::sequential<pg::tied<0, pg::embedding<2, pg::padding_idx<7>>>, pg::select_last>,
                 pg::sequential<pg::tied<0, pg::embedding<2, pg::padding_idx<7>>>, pg::tanh, pg::mean_over_positions>>,
    pg::linear<2>>;
static_assert(network::parameter_count == words * (5 + 3 + 2) + 2 * (12 + 1));

bool is_held(std::size_t parameter) {
  const std::size_t second = words * 5;
  const std::size_t third = words * 8;
  return (parameter >= second - 5 && parameter < second + 3) || (parameter >= third + 14 && parameter < third + 16);
}

struct run {
  pg::host exec{pg::threads{2}};
  network net{exec, pg::constant{0.25}};
  network::tape tape{exec, pg::max_batch{3}};
  pg::unprotected::rehearsed_gradient<network> update{exec};
  pg::seeded_generator generator{5};
  std::vector<std::int32_t> ids{0, 699, 7, 1, 2, 3, 699, 0, 7, 7, 0, 699};
  std::vector<std::int32_t> classes{0, 1, 1};
  pg::batch<network, pg::cross_entropy> batch{ids, classes};

  run() {
    // The bag's padding row is 0 at first, as the others' are; loaded weights may have anything there.
    std::fill(net.parameters().begin(), net.parameters().end(), 0.25F);
  }
  [[nodiscard]] auto noised() {
    const auto g = pg::per_sample_gradients(net, pg::cross_entropy{}, batch, tape);
    return pg::sum(pg::clip(g, pg::l2_clip_norm{1})) +
           pg::unaccounted::gaussian_noise(pg::noise_multiplier{3}, generator);
  }
  /// Two steps by an update in memory, or in the same sweep as the noise.
  template <class Optimizer>
  [[nodiscard]] std::vector<float> train(Optimizer&& optimizer, bool in_one_sweep) {
    for (int step = 0; step < 2; ++step) {
      if (in_one_sweep) {
        optimizer.step(exec, net, update, noised(), pg::expected_batch_size{3});
      } else {
        pg::evaluate_into(exec, update, noised());
        optimizer.step(exec, net, update, pg::expected_batch_size{3});
      }
    }
    return {net.parameters().begin(), net.parameters().end()};
  }
};

void check(const std::vector<float>& trained) {
  std::size_t held = 0;
  for (std::size_t i = 0; i < trained.size(); ++i) {
    held += is_held(i) ? 1U : 0U;
    BOOST_TEST_CONTEXT("parameter " << i) { BOOST_TEST((trained[i] == 0.25F) == is_held(i)); }
  }
  BOOST_TEST(held == 10U);
}

template <class Optimizer, class... Options>
void check_steps(Options... options) {
  const auto trained = run{}.train(Optimizer{pg::learning_rate{1.0}, options...}, false);
  check(trained);
  BOOST_TEST((run{}.train(Optimizer{pg::learning_rate{1.0}, options...}, true) == trained));
}

}  // namespace

BOOST_AUTO_TEST_CASE(stay_under_plain_sgd) { check_steps<pg::sgd<network>>(); }
BOOST_AUTO_TEST_CASE(stay_under_momentum) { check_steps<pg::sgd<network>>(0.9); }
BOOST_AUTO_TEST_CASE(stay_under_adam) { check_steps<pg::adam<network>>(); }

BOOST_AUTO_TEST_CASE(stay_in_a_trainer) {
  run r;
  const pg::dataset<std::int32_t, std::int32_t> records{r.ids, r.classes, network::input_shape};
  pg::dp_sgd_options options;
  options.clip = pg::l2_clip_norm{1};
  options.noise = pg::noise_multiplier{3};
  options.sampling = pg::poisson_sampling{pg::sampling_probability{0.5}};
  options.divisor = pg::expected_batch_size{2};
  options.learning_rate = pg::learning_rate{1.0};
  // From a seed: among noise from the system's, one number in some millions leaves a parameter as it is.
  pg::dp_sgd trainer{r.exec, r.net, pg::cross_entropy{}, options, pg::seeded_generator{5}};
  for (int step = 0; step < 2; ++step) trainer.step(records);
  check({r.net.parameters().begin(), r.net.parameters().end()});
}

BOOST_AUTO_TEST_SUITE_END()
