// SPDX-License-Identifier: Apache-2.0
// tests/train/in_the_middle_test.cpp - what a trainer shows while a step is under way, and after one that failed
#include <sys/wait.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include "fixture.hpp"

BOOST_AUTO_TEST_SUITE(train_in_the_middle)

namespace {

using namespace fixture;

/// A loss that looks at its trainer.
struct curious_loss : pg::cross_entropy {
  static inline std::function<void()> look;
  template <class Scalar>
  static double evaluate(std::span<const Scalar> y, std::span<const std::int32_t> classes, std::span<Scalar> dy) {
    if (look) look();
    return pg::cross_entropy{}.evaluate(y, classes, dy);
  }
};

}  // namespace

// While the sum of a step grows, views of what was released, new ones and kept ones, show that and nothing else: in the
// step and after one that fails.
BOOST_AUTO_TEST_CASE(last_update_shows_no_sum) {
  const clouds data{300};
  const pg::host exec{pg::threads{1}};
  classifier net{exec, pg::kaiming_uniform{8}};
  pg::dp_sgd trainer{exec, net, curious_loss{}, usual_options(), pg::seeded_generator{5}};
  const std::span<const float> kept = trainer.last_update().values();
  std::vector<float> released(classifier::parameter_count);
  const auto is_zero = [](float value) { return value == 0; };
  std::size_t looks = 0;
  std::size_t others = 0;
  const auto look = [&] {
    ++looks;
    if (!std::ranges::equal(kept, released) || !std::ranges::equal(trainer.last_update().values(), released)) ++others;
  };
  curious_loss::look = look;
  trainer.step(data.records());
  released.assign(kept.begin(), kept.end());
  BOOST_TEST(!std::ranges::all_of(kept, is_zero));
  trainer.step(data.records());
  BOOST_TEST(looks > 40U);
  BOOST_TEST(others == 0U);
  BOOST_TEST(!std::ranges::equal(kept, released));
  released.assign(kept.begin(), kept.end());
  looks = 0;
  curious_loss::look = [&] {
    look();
    if (looks == 20) throw std::runtime_error("a loss of the user's");
  };
  BOOST_CHECK_THROW(trainer.step(data.records()), std::runtime_error);
  BOOST_TEST(others == 0U);
  curious_loss::look = nullptr;
  BOOST_TEST(std::ranges::all_of(kept, is_zero));
  trainer.step(data.records());
  BOOST_TEST(trainer.steps() == 4U);
}

// The same of a sum by hand, whose evaluation may be the only one or the second into this gradient, or fail.
BOOST_AUTO_TEST_CASE(a_private_gradient_shows_no_sum) {
  const clouds data{60};
  const auto records = data.records();
  const pg::host exec{pg::threads{1}};
  const classifier net{exec, pg::kaiming_uniform{8}};
  pg::tape<classifier> tape{exec, pg::max_batch{60}};
  pg::os_keyed_generator generator;
  std::vector<std::uint32_t> all(60);
  std::iota(all.begin(), all.end(), 0U);
  const pg::batch<classifier, curious_loss> batch{records, all};
  pg::private_gradient<classifier> update{exec};
  const std::span<const float> kept = update.values();
  std::vector<float> released(classifier::parameter_count);
  std::size_t looks = 0;
  std::size_t others = 0;
  std::size_t fails_at = 0;
  curious_loss::look = [&] {
    if (!std::ranges::equal(kept, released)) ++others;
    if (++looks == fails_at) throw std::runtime_error("a loss of the user's");
  };
  const auto release = [&] {
    const auto g = pg::per_sample_gradients(net, curious_loss{}, batch, tape);
    pg::evaluate_into(exec, update,
                      pg::sum(pg::clip(g, pg::l2_clip_norm{0.5})) +
                          pg::unaccounted::gaussian_noise(pg::noise_multiplier{1}, generator));
    released.assign(kept.begin(), kept.end());
  };
  release();
  release();
  fails_at = looks + 30;
  BOOST_CHECK_THROW(release(), std::runtime_error);
  curious_loss::look = nullptr;
  BOOST_TEST(looks > 130U);
  BOOST_TEST(others == 0U);
  BOOST_TEST(kept.data() == update.values().data());
  BOOST_TEST(std::ranges::all_of(kept, [](float value) { return value == 0; }));
}

// A child would repeat the parent's noise: trainer and loop refuse before anything is drawn.
BOOST_AUTO_TEST_CASE(a_forked_process_cannot_go_on_with_a_run) {
  const clouds data{60};
  const auto records = data.records();
  const pg::host exec{pg::threads{1}};
  classifier net{exec, pg::kaiming_uniform{8}};
  pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, usual_options()};
  pg::private_loop<classifier, pg::cross_entropy> loop{exec, net, pg::cross_entropy{}, usual_options()};
  trainer.step(records);
  pg::private_gradient<classifier> update{exec};
  auto step = loop.begin(records);
  while (step.next()) {
    const auto g = step.gradients();
    pg::evaluate_into(exec, pg::accumulate(step, pg::sum(pg::clip(g, pg::l2_clip_norm{0.5}))));
  }
  const auto before = parameters_of(net);
  const ::pid_t child = ::fork();
  if (child == 0) {
    int refused = 0;
    const auto try_it = [&](const auto& f) {
      try {
        f();
      } catch (const std::logic_error& error) {
        if (std::string{error.what()}.find("forked process") != std::string::npos) ++refused;
      }
    };
    try_it([&] { trainer.step(records); });
    try_it([&] { pg::evaluate_into(exec, update, std::move(step)); });  // begun by the parent
    try_it([&] { static_cast<void>(loop.begin(records)); });
    if (parameters_of(net) == before) ++refused;
    if (std::ranges::all_of(update.values(), [](float value) { return value == 0; })) ++refused;
    ::_exit(refused);
  }
  int status = 0;
  BOOST_REQUIRE(::waitpid(child, &status, 0) == child);
  BOOST_TEST(WIFEXITED(status));
  BOOST_TEST(WEXITSTATUS(status) == 5);
  pg::evaluate_into(exec, update, std::move(step));
  trainer.step(records);
}

BOOST_AUTO_TEST_SUITE_END()
