// SPDX-License-Identifier: Apache-2.0
// tests/train/metrics_test.cpp - confusion matrix, area under the ROC curve, R² against counting; the progress bar on a
// terminal and in a file
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <vector>

#include <pergrad/pergrad.hpp>
#include <pergrad/progress.hpp>

#include "fixture.hpp"

BOOST_AUTO_TEST_SUITE(train_metrics)

namespace {

namespace pg = pergrad;
using fixture::classifier;
using fixture::clouds;
using numbers = std::vector<double>;

}  // namespace

BOOST_AUTO_TEST_CASE(a_confusion_matrix_by_hand) {
  pg::confusion_matrix found{3};
  for (const auto& [is, told] : std::vector<std::pair<std::size_t, std::size_t>>{{0, 0}, {0, 1}, {1, 1}, {1, 1}}) {
    found.add(is, told);
  }
  BOOST_TEST(found.count(0, 1) == 1U);
  BOOST_TEST(found.total(0) == 2U);
  BOOST_TEST(found.total_told(1) == 3U);
  BOOST_TEST(found.recall(0) == 0.5);
  BOOST_TEST(found.precision(1) == 2.0 / 3);
  BOOST_TEST(found.accuracy() == 0.75);
  BOOST_TEST(found.recall(2) == 0);
  BOOST_TEST(found.precision(2) == 0);
  BOOST_CHECK_THROW(found.add(3, 0), std::out_of_range);
  BOOST_CHECK_THROW(static_cast<void>(found.count(0, 3)), std::out_of_range);
  BOOST_TEST(pg::confusion_matrix{2}.accuracy() == 0);
}
BOOST_AUTO_TEST_CASE(a_network_is_confused_as_its_predictions_are) {
  const pg::host exec{pg::threads{2}};
  const classifier net{exec, pg::kaiming_uniform{3}};
  const clouds data{2100};  // several chunks
  const auto found = pg::confuse(exec, net, pg::public_records{data.records()});
  const auto logits = pg::predict(exec, net, pg::public_records{data.inputs});
  pg::confusion_matrix wanted{3};
  for (std::size_t i = 0; i < data.size(); ++i) {
    const auto one = std::span{logits}.subspan(3 * i, 3);
    wanted.add(static_cast<std::size_t>(data.classes[i]),
               static_cast<std::size_t>(std::ranges::max_element(one) - one.begin()));
  }
  for (std::size_t is = 0; is < 3; ++is) {
    for (std::size_t told = 0; told < 3; ++told) BOOST_TEST(found.count(is, told) == wanted.count(is, told));
  }
  BOOST_TEST(found.accuracy() == pg::evaluate_classifier(exec, net, pg::public_records{data.records()}).accuracy);
  BOOST_TEST(pg::unprotected::confuse(exec, net, data.records()).accuracy() == found.accuracy());
}

BOOST_AUTO_TEST_CASE(area_under_roc_counts_pairs) {
  using labels = std::vector<int>;
  BOOST_TEST(pg::area_under_roc(numbers{1, 2, 3, 4}, labels{0, 0, 1, 1}) == 1);
  BOOST_TEST(pg::area_under_roc(numbers{1, 2, 3, 4}, labels{1, 1, 0, 0}) == 0);
  BOOST_TEST(pg::area_under_roc(numbers{5, 5, 5, 5}, labels{1, 0, 0, 1}) == 0.5);
  std::mt19937 random{5};
  for (int trial = 0; trial < 50; ++trial) {
    const std::size_t count = 2 + random() % 40;
    std::vector<float> scores(count);
    std::vector<std::int32_t> is(count);
    for (std::size_t i = 0; i < count; ++i) {
      scores[i] = static_cast<float>(random() % 7);  // many ties
      is[i] = static_cast<std::int32_t>(random() % 2);
    }
    is[0] = 0;
    is[1] = 1;
    double won = 0;
    double pairs = 0;
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t k = 0; k < count; ++k) {
        if (is[i] != 1 || is[k] != 0) continue;
        ++pairs;
        won += scores[i] > scores[k] ? 1 : scores[i] == scores[k] ? 0.5 : 0;
      }
    }
    BOOST_TEST(std::fabs(pg::area_under_roc(scores, is) - won / pairs) < 1e-14);
  }
  BOOST_TEST(std::isnan(pg::area_under_roc(numbers{1, 2}, labels{1, 1})));
  BOOST_TEST(std::isnan(pg::area_under_roc(numbers{1, std::nan("")}, labels{0, 1})));
  BOOST_TEST(std::isnan(pg::area_under_roc(numbers{}, labels{})));
  BOOST_CHECK_THROW(static_cast<void>(pg::area_under_roc(numbers{1, 2}, labels{0, 2})), std::invalid_argument);
  BOOST_CHECK_THROW(static_cast<void>(pg::area_under_roc(numbers{std::nan(""), 2}, labels{0, 2})),
                    std::invalid_argument);
  BOOST_CHECK_THROW(static_cast<void>(pg::area_under_roc(numbers{1, 2}, labels{0})), std::invalid_argument);
}
BOOST_AUTO_TEST_CASE(r_squared_by_hand) {
  const numbers targets{1, 2, 3, 6};
  BOOST_TEST(pg::r_squared(targets, targets) == 1);
  BOOST_TEST(pg::r_squared(numbers{3, 3, 3, 3}, targets) == 0);
  BOOST_TEST(pg::r_squared(std::vector<float>{1, 2, 3, 4}, targets) == 1 - 4.0 / 14);
  for (const double alike : {1.0, 0.1, 1e-300, 1e300}) {
    for (const std::size_t count : {2U, 7U, 10U}) {
      BOOST_TEST(std::isnan(pg::r_squared(numbers(count, 1), numbers(count, alike))));
    }
  }
  BOOST_CHECK_THROW(static_cast<void>(pg::r_squared(numbers{1}, targets)), std::invalid_argument);
}
// Of 0, 1, 2 and 3, told one too large: 1 - 1 / 1.25. With 1.7e15 more, as microseconds since 1970 are, a sum of so
// many is off by more than targets differ by.
BOOST_AUTO_TEST_CASE(r_squared_of_targets_far_from_0_or_at_the_ends_of_a_double) {
  numbers far, near;
  for (int i = 0; i < 4000; ++i) {
    far.push_back(1.7e15 + i % 4);
    near.push_back(far.back() + 1);
  }
  BOOST_TEST(std::fabs(pg::r_squared(near, far) - 0.2) < 1e-9);
  for (const double unit : {1e-200, 1e200}) {
    BOOST_TEST(std::fabs(pg::r_squared(numbers{unit, 2 * unit, 2 * unit}, numbers{unit, 2 * unit, 3 * unit}) - 0.5) <
               1e-15);
  }
}

BOOST_AUTO_TEST_CASE(the_bar_writes_nothing_into_a_file) {
  std::FILE* const file = std::tmpfile();
  BOOST_REQUIRE(file != nullptr);
  {
    pg::progress_bar bar{10, file};
    bar.draw("epoch 1/2", 3, 5, 3);
    bar.clear();
  }
  BOOST_TEST(std::ftell(file) == 0);
  std::fclose(file);
}
BOOST_AUTO_TEST_CASE(the_bar_is_drawn_on_a_terminal_and_taken_away) {
  const int master = ::posix_openpt(O_RDWR | O_NOCTTY);
  if (master < 0 || ::grantpt(master) != 0 || ::unlockpt(master) != 0) {
    BOOST_TEST_MESSAGE("no pseudo-terminal here");
    return;
  }
  const char* const before = std::getenv("TERM");
  const std::string kept = before == nullptr ? "" : before;
  ::setenv("TERM", "xterm", 1);
  std::FILE* const terminal = std::fopen(::ptsname(master), "w");
  BOOST_REQUIRE(terminal != nullptr);
  {
    pg::progress_bar bar{10, terminal};
    bar.draw("epoch 1/2", 2, 4, 2);
    bar.draw("epoch 1/2", 3, 4, 3);  // too soon
  }
  std::fclose(terminal);
  std::string text;  // what was written arrives in its own time, and its end is an error
  char seen[400]{};
  for (auto count = ::read(master, seen, sizeof seen); count > 0; count = ::read(master, seen, sizeof seen)) {
    text.append(seen, static_cast<std::size_t>(count));
  }
  BOOST_TEST(text.find("epoch 1/2 [####################....................] 2/4, ") != std::string::npos, text);
  BOOST_TEST(text.find("3/4") == std::string::npos);
  BOOST_REQUIRE(text.size() >= 4);
  BOOST_TEST(text.substr(text.size() - 4) == "\r\x1b[K");
  ::close(master);
  before == nullptr ? ::unsetenv("TERM") : ::setenv("TERM", kept.c_str(), 1);
}

BOOST_AUTO_TEST_SUITE_END()
