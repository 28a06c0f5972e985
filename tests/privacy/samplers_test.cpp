// SPDX-License-Identifier: Apache-2.0
// tests/privacy/samplers_test.cpp - every sampler draws what its event says: how often each record takes part, which
// records go together, exact counts; and a sampler that is planted wrong is found by the same tests
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <vector>

#include <pergrad/privacy/generator.hpp>
#include <pergrad/privacy/samplers/cyclic_poisson.hpp>
#include <pergrad/privacy/samplers/fixed_size.hpp>
#include <pergrad/privacy/samplers/min_separation.hpp>
#include <pergrad/privacy/samplers/poisson_replace_one.hpp>
#include <pergrad/privacy/samplers/random_allocation.hpp>
#include <pergrad/privacy/samplers/shuffled.hpp>
#include <pergrad/privacy/samplers/truncated_poisson.hpp>
#include <pergrad/privacy/sampling.hpp>

BOOST_AUTO_TEST_SUITE(privacy_samplers)

namespace {

namespace pg = pergrad;
using batch = std::vector<std::uint32_t>;

const pg::seeded_generator generator{20261125};

/// Step number t of a run of a sampler whose events pay `round` steps each.
pg::draw_place place_of(std::uint64_t t, std::uint64_t round) {
  const auto stream = [&](std::uint64_t step) { return generator.stream<pg::detail::randomness::sampling>(step); };
  return {stream(t), stream(t - t % round), stream(pg::detail::step_of_the_run), t % round, t};
}
template <class Sampling>
std::uint64_t round_of(const Sampling& sampling) {
  if constexpr (pg::detail::has_rounds<Sampling>) return sampling.steps_of_an_event();
  return 1;
}
template <class Sampling>
std::vector<batch> batches_of(const Sampling& sampling, std::uint32_t records, std::uint64_t steps) {
  std::vector<batch> drawn;
  for (std::uint64_t t = 0; t < steps; ++t) {
    drawn.push_back(pg::unaccounted::drawn_at(place_of(t, round_of(sampling)), sampling, records));
    BOOST_REQUIRE(std::is_sorted(drawn.back().begin(), drawn.back().end()));
    BOOST_REQUIRE(std::adjacent_find(drawn.back().begin(), drawn.back().end()) == drawn.back().end());
    BOOST_REQUIRE(drawn.back().empty() || drawn.back().back() < records);
  }
  return drawn;
}

/// Standard errors between a count of `trials` and what a probability expects.
double errors_between(double count, double trials, double probability) {
  return (count - trials * probability) / std::sqrt(std::max(1e-300, trials * probability * (1 - probability)));
}
/// Of sums of squares of so many standard normal numbers.
double errors_of_squares(double sum, double numbers) { return (sum - numbers) / std::sqrt(2 * numbers); }

/// How far draws are from a claim, in standard errors: each record's own rate (largest deviation, and sum of squares),
/// and how often two records with these distances of their numbers go together.
struct verdict {
  double worst_rate = 0;
  double squares_of_rates = 0;
  double worst_pair = 0;
  [[nodiscard]] bool holds() const {
    return std::abs(worst_rate) < 6 && std::abs(squares_of_rates) < 6 && std::abs(worst_pair) < 6;
  }
};
/// `apart`: independent steps are so many steps apart; `rate`, `pair`: probabilities that a record, or two of them, are
/// drawn in one of those.
verdict judged(const std::vector<batch>& drawn, std::uint32_t records, std::uint64_t apart, double rate, double pair) {
  verdict found;
  std::vector<double> counts(records);
  std::map<std::uint32_t, double> together;
  double steps = 0;
  for (std::size_t t = 0; t < drawn.size(); t += apart, ++steps) {
    std::vector<bool> is_in(records);
    for (const std::uint32_t record : drawn[t]) {
      ++counts[record];
      is_in[record] = true;
    }
    for (const std::uint32_t distance : {1U, 2U, 16U, 64U, 128U}) {
      for (std::uint32_t record = 0; record + distance < records; record += 2 * distance) {
        together[distance] += is_in[record] && is_in[record + distance] ? 1 : 0;
      }
    }
  }
  double squares = 0;
  for (const double count : counts) {
    const double errors = errors_between(count, steps, rate);
    squares += errors * errors;
    if (std::abs(errors) > std::abs(found.worst_rate)) found.worst_rate = errors;
  }
  found.squares_of_rates = errors_of_squares(squares, records);
  for (const auto& [distance, count] : together) {
    const double pairs = steps * std::floor((records - distance + 2 * distance - 1) / (2 * distance));
    const double errors = errors_between(count, pairs, pair);
    if (std::abs(errors) > std::abs(found.worst_pair)) found.worst_pair = errors;
  }
  return found;
}
void require_holds(const verdict& found) {
  BOOST_TEST(std::abs(found.worst_rate) < 6);
  BOOST_TEST(std::abs(found.squares_of_rates) < 6);
  BOOST_TEST(std::abs(found.worst_pair) < 6);
}

constexpr std::uint32_t records = 300;
constexpr std::uint64_t steps = 20'000;

}  // namespace

BOOST_AUTO_TEST_CASE(words_are_those_of_poisson_sampling_and_numbers_are_equally_likely) {
  const auto stream = generator.stream<pg::detail::randomness::sampling>(3);
  std::uint64_t some[pg::detail::sampling_words::together];
  for (const std::uint64_t family : {0U, 1U, 77U}) {
    const pg::detail::sampling_words words{stream, family};
    words.block(5, some);
    for (std::size_t i = 0; i < std::size(some); ++i) BOOST_REQUIRE(some[i] == words.at(5 * 128 + i));
  }
  // A record is in a Poisson batch if its word of family 0 is below q 2^64.
  const pg::poisson_sampling half{pg::sampling_probability{0.3}};
  const auto drawn = pg::unaccounted::drawn_at(place_of(3, 1), half, 1000);
  batch below;
  for (std::uint32_t record = 0; record < 1000; ++record) {
    if (half.is_below(pg::detail::sampling_words{stream, 0}.at(record))) below.push_back(record);
  }
  BOOST_CHECK_EQUAL_COLLECTIONS(drawn.begin(), drawn.end(), below.begin(), below.end());
  // Words at the ends of what a number takes, and those that are given up: low halves below 2^64 mod n.
  constexpr std::uint64_t bound = 3'000'000'019;
  const auto number = [&](std::uint64_t word) { return pg::detail::number_below(bound, word, 9, stream, 1); };
  BOOST_TEST(number(~std::uint64_t{0}) == bound - 1);
  const std::uint64_t again = pg::detail::sampling_words{stream, 2}.at(9);
  BOOST_TEST(number(0) == number(again));  // 0 is one too many for the number 0
  BOOST_TEST(pg::detail::number_below(1, 0, 9, stream, 1) == 0U);
  std::vector<double> counts(7);
  pg::detail::for_each_number(
      stream, 4, 70'000, [](std::uint64_t) { return 7U; },
      [&](std::uint64_t, std::uint64_t value) { ++counts.at(value); });
  double squares = 0;
  for (const double count : counts) squares += std::pow(errors_between(count, 70'000, 1.0 / 7), 2);
  BOOST_TEST(std::abs(errors_of_squares(squares * 6 / 7, 6)) < 6);
}

BOOST_AUTO_TEST_CASE(poisson_for_replacing_draws_what_poisson_draws) {
  const pg::replace_one_poisson_sampling replacing{pg::sampling_probability{0.2}};
  const pg::poisson_sampling usual{pg::sampling_probability{0.2}};
  BOOST_TEST((batches_of(replacing, records, 50) == batches_of(usual, records, 50)));
  require_holds(judged(batches_of(replacing, records, steps), records, 1, 0.2, 0.04));
}

BOOST_AUTO_TEST_CASE(truncated_poisson_keeps_any_of_those_drawn) {
  // On average 60 are drawn, and at most 58 kept.
  const pg::sampling_probability q{0.2};
  const pg::truncated_poisson_sampling sampling{q, pg::batch_capacity{58}, pg::public_record_count{records}};
  const std::vector<batch> all = batches_of(pg::poisson_sampling{q}, records, steps);
  const std::vector<batch> kept = batches_of(sampling, records, steps);
  double rate = 0;  // of the draws that there were: only the choice among them is judged
  double pair = 0;
  double cut = 0;
  for (std::size_t t = 0; t < steps; ++t) {
    BOOST_REQUIRE(std::includes(all[t].begin(), all[t].end(), kept[t].begin(), kept[t].end()));
    BOOST_REQUIRE(kept[t].size() == std::min<std::size_t>(58, all[t].size()));
    const auto size = static_cast<double>(kept[t].size());
    rate += size / records / static_cast<double>(steps);
    pair += size * (size - 1) / records / (records - 1) / static_cast<double>(steps);
    cut += all[t].size() > 58 ? 1 : 0;
  }
  BOOST_TEST(cut > 0.5 * static_cast<double>(steps));
  require_holds(judged(kept, records, 1, rate, pair));
  // Planted: those that come first are kept.
  std::vector<batch> first = all;
  for (batch& each : first) each.resize(std::min<std::size_t>(each.size(), 58));
  BOOST_TEST(!judged(first, records, 1, rate, pair).holds());
  BOOST_CHECK_THROW(static_cast<void>(batches_of(sampling, records + 1, 1)), std::invalid_argument);
  BOOST_CHECK_THROW((pg::truncated_poisson_sampling{q, pg::batch_capacity{0}, pg::public_record_count{1}}),
                    std::invalid_argument);
}

BOOST_AUTO_TEST_CASE(batches_of_fixed_size_are_any_sets_of_so_many) {
  const pg::fixed_size_sampling sampling{pg::batch_size{40}, pg::public_record_count{records}};
  const std::vector<batch> drawn = batches_of(sampling, records, steps);
  for (const batch& each : drawn) BOOST_REQUIRE(each.size() == 40U);
  const double share = 40.0 / records;
  require_holds(judged(drawn, records, 1, share, share * 39 / (records - 1)));
  // Planted: independent draws have the same rates, but two records go together more often.
  const pg::fixed_size_sampling few{pg::batch_size{4}, pg::public_record_count{10}};
  require_holds(judged(batches_of(few, 10, steps), 10, 1, 0.4, 0.4 * 3 / 9));
  const auto independent = batches_of(pg::poisson_sampling{pg::sampling_probability{0.4}}, 10, steps);
  require_holds(judged(independent, 10, 1, 0.4, 0.16));
  BOOST_TEST(!judged(independent, 10, 1, 0.4, 0.4 * 3 / 9).holds());
  // All sets of 2 of 4.
  std::map<batch, double> sets;
  const pg::fixed_size_sampling two{pg::batch_size{2}, pg::public_record_count{4}};
  for (const batch& each : batches_of(two, 4, steps)) ++sets[each];
  BOOST_TEST(sets.size() == 6U);
  double squares = 0;
  for (const auto& [set, count] : sets) squares += std::pow(errors_between(count, double{steps}, 1.0 / 6), 2);
  BOOST_TEST(std::abs(errors_of_squares(squares * 5 / 6, 5)) < 6);
  BOOST_TEST(sampling.event(pg::noise_multiplier{1}).sampled_share >= share);
  BOOST_TEST((pg::fixed_size_sampling{pg::batch_size{4}, pg::public_record_count{4}}
                  .event(pg::noise_multiplier{1})
                  .sampled_share == 1));
  BOOST_CHECK_THROW(static_cast<void>(batches_of(sampling, records - 1, 1)), std::invalid_argument);
  BOOST_CHECK_THROW((pg::fixed_size_sampling{pg::batch_size{5}, pg::public_record_count{4}}), std::invalid_argument);
}

// Marks of a part are those of the whole, wherever it begins: threads and ranks share data sets out.
BOOST_AUTO_TEST_CASE(parts_are_marked_as_the_whole_is) {
  const auto check = [](const auto& sampling, const char* name) {
    using sampling_type = std::decay_t<decltype(sampling)>;
    constexpr std::uint64_t together = sampling_type::marked_together;
    constexpr std::uint64_t count = 48 * together;
    for (std::uint64_t t = 0; t < 6; ++t) {
      const pg::draw_place place = place_of(t, round_of(sampling));
      std::vector<std::uint64_t> whole(count / 64);
      pg::detail::mark_step(sampling, place, 0, whole);
      for (const std::uint64_t size : {together, 4 * together, 16 * together}) {
        for (std::uint64_t first = 0; first < count; first += size) {
          std::vector<std::uint64_t> part(size / 64);
          pg::detail::mark_step(sampling, place, first, part);
          BOOST_TEST_REQUIRE(
              std::equal(part.begin(), part.end(), whole.begin() + static_cast<std::ptrdiff_t>(first / 64)),
              name << ", step " << t << ", from " << first << ", " << size);
        }
      }
      const auto half = whole.begin() + static_cast<std::ptrdiff_t>(whole.size() / 2);
      BOOST_TEST(!std::equal(whole.begin(), half, half), name << ": two parts are alike");
    }
  };
  const pg::poisson_sampling poisson{pg::sampling_probability{0.3}};
  check(poisson, "Poisson");
  check(pg::random_allocation{pg::round_steps{5}}, "allocation");
  check(pg::random_allocation{pg::round_steps{5}, pg::participations{2}}, "allocation to two steps");
  check(pg::balls_in_bins_sampling{pg::round_steps{5}, pg::epoch_count{2}}, "balls in bins");
  check(pg::cyclic_poisson_sampling{pg::sampling_probability{0.6}, pg::round_steps{3}}, "cyclic");
  check(pg::min_separation_sampling{pg::sampling_probability{0.3}, pg::round_steps{3}}, "separated");
}

BOOST_AUTO_TEST_CASE(an_epoch_of_shuffled_batches_has_every_record_once) {
  const pg::shuffled_batches sampling{pg::batch_size{70}, pg::public_record_count{records}};
  BOOST_TEST(sampling.steps_of_an_event() == 5U);
  const std::vector<batch> drawn = batches_of(sampling, records, steps);
  for (std::size_t epoch = 0; epoch + 5 <= drawn.size(); epoch += 5) {
    std::vector<int> times(records);
    for (std::size_t i = 0; i < 5; ++i) {
      BOOST_REQUIRE(drawn[epoch + i].size() == (i < 4 ? 70U : 20U));
      for (const std::uint32_t record : drawn[epoch + i]) ++times[record];
    }
    BOOST_REQUIRE(std::all_of(times.begin(), times.end(), [](int count) { return count == 1; }));
  }
  const double share = 70.0 / records;
  require_holds(judged(drawn, records, 5, share, share * 69 / (records - 1)));
  BOOST_CHECK_THROW((pg::shuffled_batches{pg::batch_size{0}, pg::public_record_count{4}}), std::invalid_argument);
}

BOOST_AUTO_TEST_CASE(an_allocation_has_every_record_once_a_round_independently) {
  const pg::random_allocation sampling{pg::round_steps{5}};
  const std::vector<batch> drawn = batches_of(sampling, records, steps);
  for (std::size_t round = 0; round + 5 <= drawn.size(); round += 5) {
    std::vector<int> times(records);
    for (std::size_t i = 0; i < 5; ++i) {
      for (const std::uint32_t record : drawn[round + i]) ++times[record];
    }
    BOOST_REQUIRE(std::all_of(times.begin(), times.end(), [](int count) { return count == 1; }));
  }
  for (std::size_t first = 0; first < 5; ++first) {
    require_holds(judged({drawn.begin() + static_cast<std::ptrdiff_t>(first), drawn.end()}, records, 5, 0.2, 0.04));
  }
  // From one round to the next the draw is a new one: whoever was in the first step is in the next one's at any rate.
  double again = 0;
  double trials = 0;
  for (std::size_t round = 0; round + 10 <= drawn.size(); round += 5) {
    trials += static_cast<double>(drawn[round].size());
    batch both;
    std::set_intersection(drawn[round].begin(), drawn[round].end(), drawn[round + 5].begin(), drawn[round + 5].end(),
                          std::back_inserter(both));
    again += static_cast<double>(both.size());
  }
  BOOST_TEST(std::abs(errors_between(again, trials, 0.2)) < 6);
  BOOST_CHECK_THROW(pg::random_allocation{pg::round_steps{0}}, std::invalid_argument);
}

BOOST_AUTO_TEST_CASE(an_allocation_of_several_steps_is_any_set_of_them) {
  const pg::random_allocation sampling{pg::round_steps{5}, pg::participations{2}};
  const std::vector<batch> drawn = batches_of(sampling, records, steps);
  std::map<std::vector<std::size_t>, double> sets;
  double rounds = 0;
  for (std::size_t round = 0; round + 5 <= drawn.size(); round += 5, ++rounds) {
    std::vector<std::vector<std::size_t>> steps_of(records);
    for (std::size_t i = 0; i < 5; ++i) {
      for (const std::uint32_t record : drawn[round + i]) steps_of[record].push_back(i);
    }
    for (const auto& each : steps_of) {
      BOOST_REQUIRE(each.size() == 2U);
      ++sets[each];
    }
  }
  BOOST_TEST(sets.size() == 10U);
  double squares = 0;
  for (const auto& [set, count] : sets) squares += std::pow(errors_between(count, rounds * records, 0.1), 2);
  BOOST_TEST(std::abs(errors_of_squares(squares * 0.9, 9)) < 6);
  for (std::size_t first = 0; first < 5; ++first) {
    require_holds(judged({drawn.begin() + static_cast<std::ptrdiff_t>(first), drawn.end()}, records, 5, 0.4, 0.16));
  }
  for (const std::uint32_t times : {0U, 6U}) {
    BOOST_CHECK_THROW((pg::random_allocation{pg::round_steps{5}, pg::participations{times}}), std::invalid_argument);
  }
}

BOOST_AUTO_TEST_CASE(a_ball_stays_in_its_bin) {
  const pg::balls_in_bins_sampling sampling{pg::round_steps{5}, pg::epoch_count{4}};
  BOOST_TEST(sampling.steps_of_an_event() == 20U);
  const std::vector<batch> drawn = batches_of(sampling, records, steps);
  for (std::size_t t = 0; t < drawn.size(); ++t) {
    if (t % 20 >= 5) BOOST_REQUIRE((drawn[t] == drawn[t - 5]));
  }
  for (std::size_t first = 0; first < 5; ++first) {
    require_holds(judged({drawn.begin() + static_cast<std::ptrdiff_t>(first), drawn.end()}, records, 20, 0.2, 0.04));
  }
  BOOST_CHECK_THROW((pg::balls_in_bins_sampling{pg::round_steps{0}, pg::epoch_count{1}}), std::invalid_argument);
}

BOOST_AUTO_TEST_CASE(groups_take_turns) {
  const pg::cyclic_poisson_sampling sampling{pg::sampling_probability{0.5}, pg::round_steps{3}};
  const std::vector<batch> drawn = batches_of(sampling, records, steps);
  std::vector<int> group(records, -1);
  for (std::size_t t = 0; t < drawn.size(); ++t) {
    for (const std::uint32_t record : drawn[t]) {
      const int turn = static_cast<int>(t % 3);
      BOOST_REQUIRE((group[record] == -1 || group[record] == turn));
      group[record] = turn;
    }
  }
  // Each group's records are drawn half of the time, independently.
  for (int turn = 0; turn < 3; ++turn) {
    const auto members = static_cast<double>(std::count(group.begin(), group.end(), turn));
    BOOST_TEST(std::abs(errors_between(members, records, 1.0 / 3)) < 4);
    double all = 0;
    double turns = 0;
    for (std::size_t t = static_cast<std::size_t>(turn); t < drawn.size(); t += 3, ++turns) {
      all += static_cast<double>(drawn[t].size());
    }
    BOOST_TEST(std::abs(errors_between(all, turns * members, 0.5)) < 6);
  }
  BOOST_TEST(sampling.max_participations(7) == 3U);
  BOOST_TEST(sampling.min_separation() == 3U);
}

BOOST_AUTO_TEST_CASE(a_record_that_took_part_waits) {
  for (const std::uint32_t separation : {1U, 2U, 5U}) {
    const double p = 0.3;
    const pg::min_separation_sampling sampling{pg::sampling_probability{p}, pg::round_steps{separation}};
    const std::vector<batch> drawn = batches_of(sampling, records, steps / 4);
    std::vector<std::uint64_t> may(records);  // the first step in which a record may take part
    double chances = 0;
    double taken = 0;
    for (std::uint64_t t = 0; t < drawn.size(); ++t) {
      for (const std::uint64_t first : may) chances += first <= t ? 1 : 0;
      for (const std::uint32_t record : drawn[t]) {
        BOOST_REQUIRE(may[record] <= t);
        may[record] = t + separation;
        ++taken;
      }
    }
    BOOST_TEST(std::abs(errors_between(taken, chances, p)) < 6);  // whoever may take part does so with probability p
    // Far apart, steps are independent, and so are records: a renewal process with a mean of 1 / p + b - 1 steps.
    const double rate = 1 / (1 / p + separation - 1);
    const std::vector<batch> later{drawn.begin() + 60, drawn.end()};
    require_holds(judged(later, records, 20, rate, rate * rate));
  }
  BOOST_CHECK_THROW((pg::min_separation_sampling{pg::sampling_probability{0.9}, pg::round_steps{4}}),
                    std::invalid_argument);
}

BOOST_AUTO_TEST_SUITE_END()
