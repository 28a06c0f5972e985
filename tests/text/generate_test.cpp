// SPDX-License-Identifier: Apache-2.0
// tests/text/generate_test.cpp - a language model's text: the likeliest id by hand, and frequencies of drawn ones
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <vector>

#include <pergrad/generate.hpp>
#include <pergrad/models.hpp>
#include <pergrad/pergrad.hpp>

BOOST_AUTO_TEST_SUITE(generating)

namespace {

namespace pg = pergrad;
constexpr std::size_t positions = 6, vocabulary = 9;
using ids = std::vector<std::int32_t>;
using gpt2 = pg::models::gpt2<positions, 2, 8, 2, vocabulary>::rebind<double>;

const pg::host& executor() {
  static const pg::host exec{pg::threads{1}};
  return exec;
}
/// Logits of what follows a text that fits, by `predict`.
std::vector<double> logits_behind(const gpt2& net, const ids& text) {
  ids padded = text;
  padded.resize(positions, 4);  // anything
  const std::vector<double> all = pg::predict(executor(), net, pg::public_records{padded});
  const auto first = all.begin() + static_cast<std::ptrdiff_t>((text.size() - 1) * vocabulary);
  return {first, first + vocabulary};
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_likeliest_id_behind_what_is_seen) {
  const gpt2 net{executor(), pg::normal{.seed = 3, .standard_deviation = 1}};
  ids text{1, 5};
  for (int step = 0; step < 12; ++step) {
    const ids seen{text.end() - static_cast<std::ptrdiff_t>(std::min(text.size(), positions)), text.end()};
    const std::vector<double> logits = logits_behind(net, seen);
    text.push_back(static_cast<std::int32_t>(std::ranges::max_element(logits) - logits.begin()));
  }
  const ids made = pg::generate(executor(), net, pg::public_records{ids{1, 5}}, {.steps = 12, .temperature = 0});
  BOOST_TEST(made == (ids{text.begin() + 2, text.end()}), boost::test_tools::per_element());
  BOOST_TEST(pg::generate(executor(), net, pg::public_records{ids{1, 5}}, {.steps = 0}).empty());
}

BOOST_AUTO_TEST_CASE(ids_have_the_frequencies_of_a_softmax) {
  const gpt2 net{executor(), pg::normal{.seed = 5, .standard_deviation = 0.5}};
  const ids prompt{2, 7, 0};
  for (const double temperature : {0.5, 1.0, 3.0}) {
    std::vector<double> weights = logits_behind(net, prompt);
    double total = 0;
    for (double& each : weights) total += each = std::exp(each / temperature);
    constexpr int draws = 4000;
    std::vector<int> counts(vocabulary);
    for (int seed = 0; seed < draws; ++seed) {
      const auto made =
          pg::generate(executor(), net, pg::public_records{prompt},
                       {.steps = 1, .temperature = temperature, .seed = static_cast<std::uint64_t>(seed)});
      ++counts[static_cast<std::size_t>(made.at(0))];
    }
    for (std::size_t id = 0; id < vocabulary; ++id) {
      const double share = weights[id] / total, deviation = std::sqrt(share * (1 - share) * draws);
      BOOST_TEST(std::fabs(counts[id] - share * draws) < 5 * deviation + 1);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_seed_is_a_text) {
  const gpt2 net{executor(), pg::normal{.seed = 5, .standard_deviation = 0.5}};
  const auto text_of = [&](std::uint64_t seed) {
    return pg::generate(executor(), net, pg::public_records{ids{1}}, {.steps = 30, .temperature = 1, .seed = seed});
  };
  BOOST_TEST((text_of(1) == text_of(1)));
  BOOST_TEST((text_of(1) != text_of(2)));
}

BOOST_AUTO_TEST_CASE(wrong_wishes_are_refused) {
  const gpt2 net{executor(), pg::zeros{}};
  const auto ask = [&](const ids& prompt, double temperature) {
    static_cast<void>(
        pg::generate(executor(), net, pg::public_records{prompt}, {.steps = 1, .temperature = temperature}));
  };
  BOOST_CHECK_THROW(ask({}, 1), std::invalid_argument);
  BOOST_CHECK_THROW(ask({1}, -1), std::invalid_argument);
  BOOST_CHECK_THROW(ask({1}, std::numeric_limits<double>::quiet_NaN()), std::invalid_argument);
  BOOST_CHECK_THROW(ask({1}, std::numeric_limits<double>::infinity()), std::invalid_argument);
  BOOST_CHECK_THROW(ask({vocabulary}, 1), std::out_of_range);
}

BOOST_AUTO_TEST_SUITE_END()
