// SPDX-License-Identifier: Apache-2.0
// tests/attacks/attacks.hpp - what a victim shows, attacks on it, and how often guessing would be right as often
//
// An attacker sees released numbers, knows everything but the key (formulas, grid, which elements share a pair) and
// decides between two sums, with and without one record, or which words a batch used. An attack is a score of one
// hypothesis: how well does it explain what was released? It is the same code for planted noise and the library's.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <numbers>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace attacks {

/// What is public about a release.
struct setting {
  double sigma = 1;        ///< noise multiplier
  double deviation = 1;    ///< of the noise, in units of the sum
  double grid = 0;         ///< g
  bool is_double = false;  ///< type of what is released
};

/// What is seen of one release.
struct observation {
  std::vector<double> values;  ///< noised sums, as well as they can be computed from what is seen
  std::vector<double> blur{};  ///< standard deviation of that computation's error; empty: these are the released bits
};

/// A sum that may be under the noise.
struct hypothesis {
  std::vector<double> sum;      ///< as floating point adds it up
  std::vector<double> on_grid;  ///< the nearest multiples of g, or the sum again if there is no grid
};

/// Elements that a score is about, each so many behind the one before; others are only looked at as their partners.
struct stretch {
  std::size_t first = 0;
  std::size_t count = 0;
  std::size_t step = 1;
  [[nodiscard]] std::size_t end() const { return first + count * step; }
  [[nodiscard]] bool has(std::size_t i) const { return i >= first && i < end() && (i - first) % step == 0; }
};

/// The score of a hypothesis; equal scores are no answer.
struct attack {
  const char* name;
  double (*score)(const observation&, const hypothesis&, stretch, const setting&);
  bool needs_bits;          ///< and not values with a blur
  bool lower_wins = false;  ///< of two scores
};

namespace scores {

inline double unit_in_the_last_place(double x, bool is_double) {
  int exponent = 0;
  static_cast<void>(std::frexp(x, &exponent));
  return std::ldexp(1.0, exponent - (is_double ? 53 : 24));
}

/// cos(2 pi x) to 2e-7, faster than the exact one: most of an attack's time goes here.
inline double cosine_of_turns(double x) {
  const double part = 2 * std::numbers::pi * (x - std::nearbyint(x));
  const double square = part * part;
  double sum = 0;
  for (int k = 16; k > 0; k -= 2) sum = (1 + sum) * -square / (k * (k - 1));
  return 1 + sum;
}

/// Angles of the noise of a pair, in steps of 2 pi / 2^24, are whole numbers; or all of them are a half beside one, and
/// then the score is the lower the better it fits. Both layouts, the former one and the library's, pair element i of a
/// tile of 512 with i + 256.
inline double angles(const observation& seen, const hypothesis& guess, stretch part, const setting& known) {
  constexpr double steps = 0x1p24 / (2 * std::numbers::pi);
  double score = 0;
  for (std::size_t i = part.first; i < part.end(); i += part.step) {
    const std::size_t partner = i % 512 < 256 ? i + 256 : i - 256;
    if (partner >= seen.values.size() || (partner < i && part.has(partner))) continue;
    const double one = seen.values[i] - guess.sum[i];
    const double other = seen.values[partner] - guess.sum[partner];
    const double square = one * one + other * other;
    if (square == 0) continue;
    const auto error = [&](std::size_t at) {
      if (!seen.blur.empty()) return seen.blur[at];
      return unit_in_the_last_place(seen.values[at], known.is_double) / std::sqrt(12.0);
    };
    // Each of the two was a product of floats as well.
    const double variance = (std::pow(error(i), 2) + std::pow(error(partner), 2)) / 2 + square * 0x1p-52;
    const double spread = 2 * std::numbers::pi * steps * std::sqrt(variance / square);
    if (spread > 8) continue;
    const double angle = partner > i ? std::atan2(other, one) : std::atan2(one, other);
    score += std::exp(-spread * spread / 2) * cosine_of_turns(angle * steps);
  }
  return score;
}

enum class formula { fused, rounded_twice, any_noise };

/// Is there a float z (for `any_noise` a number x of the released type) of which this was made? Every element of which
/// there is none refutes the hypothesis.
template <formula Formula, class Scalar>
bool is_reachable(Scalar released, Scalar sum, Scalar deviation) {
  const auto far = std::numeric_limits<double>::infinity();
  if constexpr (Formula == formula::any_noise) {
    const auto fits = [&](Scalar x) { return x + sum == released; };
    const Scalar near = released - sum;
    return fits(near) || fits(std::nextafter(near, static_cast<Scalar>(far))) ||
           fits(std::nextafter(near, static_cast<Scalar>(-far)));
  } else {
    const auto near =
        static_cast<float>((static_cast<double>(released) - static_cast<double>(sum)) / static_cast<double>(deviation));
    const auto fits = [&](float z) {
      const auto wide = static_cast<Scalar>(z);
      if constexpr (Formula == formula::fused) {
        return std::fma(deviation, wide, sum) == released;
      } else {
        const volatile Scalar noise = deviation * wide;
        return noise + sum == released;
      }
    };
    return fits(near) || fits(std::nextafter(near, static_cast<float>(far))) ||
           fits(std::nextafter(near, static_cast<float>(-far)));
  }
}
template <formula Formula>
double reachable(const observation& seen, const hypothesis& guess, stretch part, const setting& known) {
  double score = 0;
  for (std::size_t i = part.first; i < part.end(); i += part.step) {
    const bool is = known.is_double
                        ? is_reachable<Formula>(seen.values[i], guess.sum[i], known.deviation)
                        : is_reachable<Formula>(static_cast<float>(seen.values[i]), static_cast<float>(guess.sum[i]),
                                                static_cast<float>(known.deviation));
    score -= is ? 0 : 1;
  }
  return score;
}

/// Released minus sum lies on the grid.
inline double lattice(const observation& seen, const hypothesis& guess, stretch part, const setting& known) {
  double score = 0;
  for (std::size_t i = part.first; i < part.end(); i += part.step) {
    const double place = (seen.values[i] - guess.sum[i]) / known.grid;
    const double error = seen.blur.empty() ? 0 : seen.blur[i] / known.grid;
    if (error > 1) continue;
    score += cosine_of_turns(place);
  }
  return score;
}

/// Noise on the grid ends in zeros more often than every second time, every fourth time and so on.
inline double low_bits(const observation& seen, const hypothesis& guess, stretch part, const setting& known) {
  const double exact = known.is_double ? 0x1p53 : 0x1p24;
  double score = 0;
  for (std::size_t i = part.first; i < part.end(); i += part.step) {
    if (std::abs(seen.values[i]) >= exact * known.grid) continue;  // rounded, so its last bits are gone
    const double place = std::nearbyint((seen.values[i] - guess.on_grid[i]) / known.grid);
    const auto integer = static_cast<std::uint64_t>(static_cast<std::int64_t>(place)) | std::uint64_t{1} << 40U;
    score += static_cast<double>(__builtin_ctzll(integer));
  }
  return score;
}

/// A sum of several floating-point numbers that nearly cancelled has the last place of its terms, and zeros behind it:
/// small noise lies on a coarse lattice.
inline double cancellation(const observation& seen, const hypothesis& guess, stretch part, const setting& known) {
  int exponent = 0;
  static_cast<void>(std::frexp(known.deviation, &exponent));
  const double places = std::ldexp(1.0, exponent - (known.is_double ? 56 : 27));
  double score = 0;
  for (std::size_t i = part.first; i < part.end(); i += part.step) {
    const double noise = seen.values[i] - guess.sum[i];
    if (std::abs(noise) < known.deviation / 128)
      score += std::cos(2 * std::numbers::pi * std::fmod(noise, places) / places);
  }
  return score;
}

/// What the Gaussian mechanism allows: the likelihood.
inline double likelihood(const observation& seen, const hypothesis& guess, stretch part, const setting& /*known*/) {
  double score = 0;
  for (std::size_t i = part.first; i < part.end(); i += part.step) {
    score -= std::pow(seen.values[i] - guess.on_grid[i], 2);
  }
  return score;
}

}  // namespace scores

inline constexpr std::array<attack, 9> all_attacks{{
    {"angles", &scores::angles, false},
    {"angles between", &scores::angles, false, true},
    {"floats, fused", &scores::reachable<scores::formula::fused>, true},
    {"floats, rounded twice", &scores::reachable<scores::formula::rounded_twice>, true},
    {"precision", &scores::reachable<scores::formula::any_noise>, true},  // Haney et al. 2022, arXiv:2207.13793
    {"cancellation", &scores::cancellation, true},
    {"lattice", &scores::lattice, false},
    {"low bits", &scores::low_bits, true},  // Mironov 2012
    {"likelihood", &scores::likelihood, false},
}};

// How many answers are right
// -------------------------------------------------------------------------------------------

struct tally {
  std::string attack{};
  int right = 0;
  int trials = 0;
  bool is_ranked = false;  ///< half of the answers are one word, as half of what is asked for is
  [[nodiscard]] double rate() const { return static_cast<double>(right) / trials; }
};

/// A victim releases the sum of a data set with one record more or without it: `observe(with)`, `guess(with)`, `known`.
/// Every attack decides every time; ties are decided by a coin.
template <class Victim>
std::vector<tally> decide_neighbours(Victim& victim, int trials, std::uint64_t seed) {
  std::mt19937_64 coins{seed};
  const bool blurred = !victim.observe(false).blur.empty();
  std::vector<tally> result;
  for (const attack& each : all_attacks) {
    if (!(blurred && each.needs_bits)) result.push_back({each.name, 0, trials});
  }
  for (int trial = 0; trial < trials; ++trial) {
    const bool with = (coins() >> 63U) != 0;
    const observation seen = victim.observe(with);
    const stretch all{0, seen.values.size()};
    std::size_t at = 0;
    double of_more = 0;
    double of_less = 0;
    decltype(attack::score) known_score = nullptr;
    for (const attack& each : all_attacks) {
      if (blurred && each.needs_bits) continue;
      if (each.score != known_score) {
        of_more = each.score(seen, victim.guess(true), all, victim.known);
        of_less = each.score(seen, victim.guess(false), all, victim.known);
        known_score = each.score;
      }
      const bool coin = (coins() >> 63U) != 0;
      const bool answer = of_more == of_less ? coin : (of_more > of_less) != each.lower_wins;
      result[at++].right += answer == with ? 1 : 0;
    }
  }
  return result;
}

/// Which rows of a table, half of all, did a batch leave at zero? `used[row]`, and `elements_of(row)` is a stretch. The
/// half with the higher scores of the hypothesis zero, which knows nothing of the data.
template <class ElementsOf>
std::vector<tally> decide_words(const observation& seen, const std::vector<bool>& used, const ElementsOf& elements_of,
                                const setting& known, std::uint64_t seed) {
  std::mt19937_64 coins{seed};
  const hypothesis zero{std::vector<double>(seen.values.size()), std::vector<double>(seen.values.size())};
  std::vector<tally> result;
  for (const attack& each : all_attacks) {
    std::vector<std::pair<double, std::uint64_t>> ranked;
    for (std::size_t row = 0; row < used.size(); ++row) {
      const std::uint64_t coin = coins() << 16U | row;
      const double score = each.score(seen, zero, elements_of(row), known);
      ranked.emplace_back(each.lower_wins ? -score : score, coin);
    }
    std::sort(ranked.begin(), ranked.end());
    int right = 0;
    for (std::size_t place = 0; place < ranked.size(); ++place) {
      const bool answer = place < ranked.size() / 2;
      right += answer == used[ranked[place].second & 0xffffU] ? 1 : 0;
    }
    result.push_back({each.name, right, static_cast<int>(used.size()), true});
  }
  return result;
}

/// P(at least `right` of `trials`) where each is right with probability p.
inline double tail(int right, int trials, double p) {
  double sum = 0;
  for (int k = right; k <= trials; ++k) {
    sum += std::exp(std::lgamma(trials + 1.0) - std::lgamma(k + 1.0) - std::lgamma(trials - k + 1.0) + k * std::log(p) +
                    (trials - k) * std::log1p(-p));
  }
  return sum;
}

/// P(at least `right`) for answers that are ranked by chance: of each half, equally many are right.
inline double tail_of_ranked(int right, int trials) {
  const double half = trials / 2.0;
  const auto log_ways = [&](double k) {
    return std::lgamma(half + 1) - std::lgamma(k + 1) - std::lgamma(half - k + 1);
  };
  const double all = std::lgamma(trials + 1.0) - 2 * std::lgamma(half + 1);
  double sum = 0;
  for (int k = (right + 1) / 2; k <= trials / 2; ++k) sum += std::exp(2 * log_ways(k) - all);
  return sum;
}

/// The most that the trade-off of the Gaussian mechanism allows with equal priors, where neighbours are one noise
/// multiplier's denominator apart: Phi(1 / (2 sigma)).
inline double most_allowed(double sigma) { return 0.5 * std::erfc(-1 / (2 * sigma) / std::sqrt(2.0)); }

/// 99.99 % for a family of so many cells, one attack on one victim each.
inline constexpr int most_cells = 6500;
inline constexpr double error_of_a_cell = 1e-4 / most_cells;

/// Is the rate no better than chance (from sigma = 100 on, on both sides) or what the trade-off allows?
inline bool is_private(const tally& found, double sigma) {
  if (sigma < 100) return tail(found.right, found.trials, most_allowed(sigma)) >= error_of_a_cell;
  const auto by_chance = [&](int right) {
    return found.is_ranked ? tail_of_ranked(right, found.trials) : tail(right, found.trials, 0.5);
  };
  return by_chance(found.right) >= error_of_a_cell / 2 && by_chance(found.trials - found.right) >= error_of_a_cell / 2;
}

/// At least a rate that was measured as `right` of `trials`, less three standard errors?
inline bool wins(const tally& found, int right, int trials) {
  const double p = (right + 1.0) / (trials + 2.0);
  return found.rate() >= static_cast<double>(right) / trials - 3 * std::sqrt(p * (1 - p) / trials);
}

/// Trials of a cell: few by default, more in the long tier.
inline int trials(int few, int many) { return std::getenv("PERGRAD_LONG_TESTS") == nullptr ? few : many; }

}  // namespace attacks
