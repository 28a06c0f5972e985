// SPDX-License-Identifier: Apache-2.0
// pergrad/testing/sensitivity.hpp - tries to move a clipped sum further than its sensitivity allows
//
//   add or remove one   max over D, x        |S(D + x) - S(D)|        <= Delta
//   replace one         max over D, x, y     |S(D + x) - S(D + y)|    <= Delta
// x, y: random, from denormal to the largest numbers, of mixed magnitudes, not finite, a copy of a sample of D, its
// mirror image; D has 0 to `most_samples` samples, of usual, tiny or huge numbers.
//
// A floating-point sum rounds, so that another order or number of terms moves it by a little more than one term
// (Casacuberta et al. 2022, arXiv:2207.10635). The allowance is what a release counts for that (privacy/release.hpp, e
// times twice the number of samples). For an empty D there is none: a single sample must stay within Delta exactly.
#pragma once

// clang-format off
#include <pergrad/detail/beside_the_umbrella.hpp>  // before anything is defined
// clang-format on

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include <pergrad/expressions/evaluate.hpp>
#include <pergrad/initialise.hpp>
#include <pergrad/losses/cross_entropy.hpp>
#include <pergrad/pergrad.hpp>
#include <pergrad/privacy/release.hpp>
#include <pergrad/privacy/types.hpp>
#include <pergrad/testing/samples.hpp>

namespace pergrad::inline v0_1::testing {

struct sensitivity_options {
  std::uint64_t seed = 1;
  std::size_t batches = 20;
  std::size_t most_samples = 20;
};

/// The largest movement that was found.
struct sensitivity_report {
  double sensitivity = 0;  ///< what the expression claims
  double observed = 0;     ///< the largest movement of the sum
  double allowance = 0;    ///< rounding of the sums at that movement
  bool holds = true;       ///< observed <= sensitivity + allowance, at every attempt
  std::string attempt;     ///< what was tried at the largest movement, or at the first that was too large
  std::size_t attempts = 0;
  std::uint64_t seed = 0;

  /// One line for people.
  [[nodiscard]] std::string text() const {
    char line[200];
    std::snprintf(line, sizeof line,
                  "%s: moved by at most %.17g, sensitivity %.17g (rounding %.3g), %zu attempts, seed %llu: ",
                  holds ? "within sensitivity" : "MORE THAN SENSITIVITY", observed, sensitivity, allowance, attempts,
                  static_cast<unsigned long long>(seed));
    return line + attempt;
  }
};

namespace testing_detail {

/// What can be done to a sample's numbers, by name.
struct newcomer_kind {
  const char* name;
  double factor = 1;  ///< of all numbers
  enum class shape { scaled, nan, one_nan, infinity, minus_infinity, one_infinity, mixed, one_huge, copy, mirror };
  shape how = shape::scaled;
};
inline constexpr newcomer_kind newcomer_kinds[] = {{"random"},
                                                   {"times 1e-38", 1e-38},
                                                   {"times 1e-30", 1e-30},
                                                   {"times 1e-15", 1e-15},
                                                   {"times 1e-5", 1e-5},
                                                   {"times 1000", 1e3},
                                                   {"times 1e10", 1e10},
                                                   {"times 1e19", 1e19},
                                                   {"times 1e30", 1e30},
                                                   {"square root of the largest number", -2},
                                                   {"the largest number", -1},
                                                   {"denormal", 0},
                                                   {"NaN", 1, newcomer_kind::shape::nan},
                                                   {"one NaN", 1, newcomer_kind::shape::one_nan},
                                                   {"infinity", 1, newcomer_kind::shape::infinity},
                                                   {"minus infinity", 1, newcomer_kind::shape::minus_infinity},
                                                   {"one infinity", 1, newcomer_kind::shape::one_infinity},
                                                   {"mixed magnitudes", 1, newcomer_kind::shape::mixed},
                                                   {"one huge number", 1, newcomer_kind::shape::one_huge},
                                                   {"a copy", 1, newcomer_kind::shape::copy},
                                                   {"a mirror image", 1, newcomer_kind::shape::mirror}};

/// By what a kind scales. Factors that depend on the type are marked by numbers that are none.
template <class Scalar>
[[nodiscard]] Scalar scale_of(const newcomer_kind& kind) noexcept {
  using limits = std::numeric_limits<Scalar>;
  if (kind.factor == -1) return limits::max();
  if (kind.factor == -2) return std::sqrt(limits::max());
  if (kind.factor == 0) return 16 * limits::denorm_min();
  return static_cast<Scalar>(kind.factor);
}

/// A sample of ids that might move a sum far: ids cannot be large or broken, only others.
template <class Network, class Loss>
void spoil_ids(const newcomer_kind& kind, sample_set<Network, Loss>& newcomer) {
  if (kind.factor == 1) return;
  std::fill(newcomer.inputs.begin(), newcomer.inputs.end(),
            kind.factor < 1 ? 0 : static_cast<std::int32_t>(Network::input_shape.ids - 1));
}

/// A sample that might move a sum far.
template <class Network, class Loss>
void spoil_numbers(const newcomer_kind& kind, sample_set<Network, Loss>& newcomer) {
  using scalar = typename Network::scalar;
  using limits = std::numeric_limits<scalar>;
  using shape = newcomer_kind::shape;
  auto& values = newcomer.inputs;
  const scalar factor = kind.how == shape::mirror ? scalar{-1} : scale_of<scalar>(kind);
  for (scalar& value : values) value *= factor;
  switch (kind.how) {
    case shape::nan:
      return std::fill(values.begin(), values.end(), limits::quiet_NaN());
    case shape::one_nan:
      values.front() = limits::quiet_NaN();
      return;
    case shape::infinity:
      return std::fill(values.begin(), values.end(), limits::infinity());
    case shape::minus_infinity:
      return std::fill(values.begin(), values.end(), -limits::infinity());
    case shape::one_infinity:
      values.back() = limits::infinity();
      return;
    case shape::mixed:
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] *= static_cast<scalar>(std::pow(10.0, 68.0 * static_cast<double>(i % 17) / 16 - 38));
      }
      return;
    case shape::one_huge:
      for (scalar& value : values) value *= static_cast<scalar>(1e-30);
      values[values.size() / 2] = static_cast<scalar>(1e30);
      return;
    default:
      return;
  }
}

/// One sample that might move a sum of `others` far.
template <class Network, class Loss>
[[nodiscard]] sample_set<Network, Loss> make_newcomer(const newcomer_kind& kind,
                                                      const sample_set<Network, Loss>& others, std::uint64_t seed) {
  using shape = newcomer_kind::shape;
  sample_set<Network, Loss> newcomer = draw_samples<Network, Loss>(seed, 1);
  if ((kind.how == shape::copy || kind.how == shape::mirror) && others.size() > 0) {
    newcomer = others.pick(std::vector<std::size_t>{others.size() / 2});
  }
  if constexpr (Network::input_shape.ids != 0) {
    spoil_ids(kind, newcomer);
  } else {
    spoil_numbers(kind, newcomer);
  }
  return newcomer;
}

/// `data` with one sample more.
template <class Network, class Loss>
[[nodiscard]] sample_set<Network, Loss> with(const sample_set<Network, Loss>& data,
                                             const sample_set<Network, Loss>& newcomer, std::size_t place) {
  using samples = sample_set<Network, Loss>;
  samples result = data;
  const auto at = [place](auto& values, std::size_t size) {
    return values.begin() + static_cast<std::ptrdiff_t>(place * size);
  };
  result.inputs.insert(at(result.inputs, samples::input_size), newcomer.inputs.begin(), newcomer.inputs.end());
  result.targets.insert(at(result.targets, samples::target_count), newcomer.targets.begin(), newcomer.targets.end());
  result.lengths.insert(at(result.lengths, newcomer.lengths.empty() ? 0 : 1), newcomer.lengths.begin(),
                        newcomer.lengths.end());
  return result;
}

/// A sum that is probed. What it is filled with may be known after its first evaluation only.
template <class Network, class Loss>
struct probed_sum {
  using samples = sample_set<Network, Loss>;
  std::function<std::vector<double>(const samples&, std::uint64_t seed)> evaluate;
  /// How far rounding that the claim does not cover may move sums of so many samples and one more.
  std::function<double(std::size_t count, const std::vector<double>& from, const std::vector<double>& to)> allowance;
  bool only_at_the_end = false;  ///< which records are drawn depends on their numbers
  double claimed = 0;
  neighbouring relation = neighbouring::add_or_remove_one;
};

/// Looks for the neighbours that move a sum furthest.
template <class Network, class Loss>
void probe(probed_sum<Network, Loss>& sum, const sensitivity_options& options, sensitivity_report& report) {
  using samples = sample_set<Network, Loss>;
  if (options.batches == 0)
    throw std::invalid_argument("pergrad: probe_sensitivity: batches must be at least 1, got 0");
  report.seed = options.seed;
  const auto compare = [&](const std::vector<double>& from, const std::vector<double>& to, std::size_t count,
                           const std::string& attempt) {
    long double squared = 0;
    for (std::size_t i = 0; i < from.size(); ++i) {
      const long double difference = static_cast<long double>(to[i]) - static_cast<long double>(from[i]);
      squared += difference * difference;
    }
    ++report.attempts;
    const double allowance = sum.allowance(count, from, to);
    const long double moved = std::sqrt(squared);
    const bool within = moved <= static_cast<long double>(report.sensitivity) + static_cast<long double>(allowance);
    if (within && (!report.holds || static_cast<double>(moved) <= report.observed)) return;
    if (!within && !report.holds && !(static_cast<double>(moved) > report.observed)) return;
    report.holds = report.holds && within;
    report.observed = static_cast<double>(moved);
    report.allowance = allowance;
    report.attempt = attempt;
  };
  constexpr newcomer_kind others[] = {
      {"random"}, {"random"}, {"times 1000", 1e3}, {"times 1e30", 1e30}, {"times 1e-30", 1e-30}};
  for (std::size_t number = 0; number < options.batches; ++number) {
    const std::uint64_t seed = options.seed + 1000 * number;
    const std::size_t count = number * (options.most_samples + 1) / options.batches;
    samples data = draw_samples<Network, Loss>(seed, count);
    if constexpr (Network::input_shape.ids == 0) {
      if (count > 0) spoil_numbers<Network, Loss>(others[number % std::size(others)], data);
    }
    const auto before = sum.evaluate(data, seed);
    report.sensitivity = sum.claimed;
    std::vector<double> other;
    for (std::size_t kind = 0; kind < std::size(newcomer_kinds); ++kind) {
      const samples newcomer = make_newcomer(newcomer_kinds[kind], data, seed + 1 + kind);
      std::size_t last = count + 1;
      for (const std::size_t place : {count, count / 2, std::size_t{0}}) {
        if (place == last || (sum.only_at_the_end && place != count)) continue;
        last = place;
        const auto after = sum.evaluate(with(data, newcomer, place), seed);
        const std::string circumstances = std::string{newcomer_kinds[kind].name} + " at place " +
                                          std::to_string(place) + " of " + std::to_string(count);
        if (sum.relation == neighbouring::add_or_remove_one) {
          compare(before, after, count, circumstances);
        } else {
          // The same other samples with another newcomer: one was replaced (and moved, which a set does not know).
          if (!other.empty()) compare(other, after, count, circumstances + " instead of the one tried before");
          other = after;
        }
      }
    }
  }
}

}  // namespace testing_detail

/// Probes `make_sum`, a function from per-sample gradients to a clipped sum, on a network with the parameters it has:
///
///   const auto report = probe_sensitivity<cross_entropy>(exec, net, [](const auto& g) { return sum(clip(g,
///   l2_clip_norm{1.0})); });
///
/// Neighbours are those of the sum's own relation. Throws std::invalid_argument for no batches.
template <class Loss = cross_entropy, class Network, class MakeSum>
[[nodiscard]] sensitivity_report probe_sensitivity(const host& executor, const Network& network, MakeSum make_sum,
                                                   const sensitivity_options& options = {}) {
  using scalar = typename Network::scalar;
  using samples = sample_set<Network, Loss>;
  typename Network::tape tape{executor, max_batch{options.most_samples + 1}};
  double bound = 0;  // of one sample's share
  testing_detail::probed_sum<Network, Loss> probed;
  probed.evaluate = [&](const samples& data, std::uint64_t /*seed*/) {
    const auto batch = data.view();
    const auto total = make_sum(per_sample_gradients(network, Loss{}, batch, tape));
    probed.claimed = total.sensitivity();
    bound = probed.claimed / total.exchanged;
    if (total.exchanged == 2) probed.relation = neighbouring::replace_one;
    const auto values = unprotected::evaluate(executor, total);
    return std::vector<double>(values.begin(), values.end());
  };
  probed.allowance = [&](std::size_t count, const auto& /*from*/, const auto& /*to*/) {
    return count == 0 ? 0.0 : summation::of<scalar>(count + 1).share() * bound;
  };
  sensitivity_report report;
  testing_detail::probe(probed, options, report);
  return report;
}

}  // namespace pergrad::inline v0_1::testing
