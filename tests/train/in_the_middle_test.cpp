// SPDX-License-Identifier: Apache-2.0
// tests/train/in_the_middle_test.cpp - what a trainer shows while a step is under way, and after one that failed
#include <sys/wait.h>

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <utility>

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

// The sum of a step grows where what was released last lay: nobody sees it there, in the step or after one that fails.
BOOST_AUTO_TEST_CASE(last_update_shows_no_sum) {
  const clouds data{300};
  const pg::host exec{pg::threads{1}};
  classifier net{exec, pg::kaiming_uniform{8}};
  pg::dp_sgd trainer{exec, net, curious_loss{}, usual_options(), pg::seeded_generator{5}};
  std::size_t looks = 0;
  std::size_t seen = 0;
  curious_loss::look = [&] {
    ++looks;
    for (const float value : trainer.last_update().values()) seen += value != 0 ? 1U : 0U;
  };
  trainer.step(data.records());
  trainer.step(data.records());
  BOOST_TEST(looks > 40U);
  BOOST_TEST(seen == 0U);
  BOOST_TEST(trainer.last_update().values().size() == classifier::parameter_count);
  BOOST_TEST(!std::ranges::all_of(trainer.last_update().values(), [](float value) { return value == 0; }));
  curious_loss::look = [&] {
    if (++looks % 30 == 0) throw std::runtime_error("a loss of the user's");
  };
  BOOST_CHECK_THROW(trainer.step(data.records()), std::runtime_error);
  curious_loss::look = nullptr;
  BOOST_TEST(std::ranges::all_of(trainer.last_update().values(), [](float value) { return value == 0; }));
  trainer.step(data.records());
  BOOST_TEST(trainer.steps() == 4U);
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
