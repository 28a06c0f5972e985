// SPDX-License-Identifier: Apache-2.0
// pergrad/testing/sensitivity.hpp - tries to move a clipped sum further than its sensitivity allows
//
//   add or remove one   max over D, x        |S(D + x) - S(D)|        <= Delta
//   replace one         max over D, x, y     |S(D + x) - S(D + y)|    <= Delta
// x, y: random, huge, tiny, not finite, a copy of a sample of D, its mirror image; D has 0 to `most_samples` samples.
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

inline constexpr std::size_t newcomer_kinds = 9;

/// A sample of ids that might move a sum far, and its name: ids cannot be large or broken, only others.
template <class Network, class Loss>
[[nodiscard]] const char* make_newcomer_of_ids(std::size_t kind, const sample_set<Network, Loss>& others,
                                               sample_set<Network, Loss>& newcomer) {
  if (kind == 7 && others.size() > 0) {
    newcomer = others.pick(std::vector<std::size_t>{others.size() / 2});
    return "a copy";
  }
  if (kind != 1 && kind != 2) return "random";
  std::fill(newcomer.inputs.begin(), newcomer.inputs.end(),
            kind == 1 ? 0 : static_cast<std::int32_t>(Network::input_shape.ids - 1));
  return kind == 1 ? "the first id" : "the last id";
}

/// A sample that might move a sum far, and its name.
template <class Network, class Loss>
[[nodiscard]] const char* make_newcomer(std::size_t kind, const sample_set<Network, Loss>& others,
                                        sample_set<Network, Loss>& newcomer) {
  using scalar = typename Network::scalar;
  using limits = std::numeric_limits<scalar>;
  constexpr const char* names[newcomer_kinds] = {"random",
                                                 "large",
                                                 "square root of the largest number",
                                                 "the largest number",
                                                 "denormal",
                                                 "NaN",
                                                 "infinity",
                                                 "a copy",
                                                 "a mirror image"};
  const scalar factors[newcomer_kinds] = {1, 1000, std::sqrt(limits::max()), limits::max(), limits::min(), 1, 1, 1, -1};
  if (kind >= 7) {
    if (others.size() == 0) return "random";
    newcomer = others.pick(std::vector<std::size_t>{others.size() / 2});
  }
  for (scalar& value : newcomer.inputs) value *= factors[kind];
  if (kind == 5) newcomer.inputs.front() = limits::quiet_NaN();
  if (kind == 6) std::fill(newcomer.inputs.begin(), newcomer.inputs.end(), limits::infinity());
  return names[kind];
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
  if (options.batches == 0)
    throw std::invalid_argument("pergrad: probe_sensitivity: batches must be at least 1, got 0");
  typename Network::tape tape{executor, max_batch{options.most_samples + 1}};
  sensitivity_report report;
  report.seed = options.seed;
  neighbouring relation = neighbouring::add_or_remove_one;
  double bound = 0;  // of one sample's share

  const auto sum_of = [&](const samples& data) {
    const auto batch = data.view();
    const auto total = make_sum(per_sample_gradients(network, Loss{}, batch, tape));
    report.sensitivity = total.sensitivity();
    bound = report.sensitivity / total.exchanged;
    if (total.exchanged == 2) relation = neighbouring::replace_one;
    return unprotected::evaluate(executor, total);
  };
  const auto with = [](const samples& data, const samples& newcomer, std::size_t place) {
    samples result = data;
    const auto at = [place](auto& values, std::size_t size) {
      return values.begin() + static_cast<std::ptrdiff_t>(place * size);
    };
    result.inputs.insert(at(result.inputs, samples::input_size), newcomer.inputs.begin(), newcomer.inputs.end());
    result.targets.insert(at(result.targets, samples::target_count), newcomer.targets.begin(), newcomer.targets.end());
    result.lengths.insert(at(result.lengths, newcomer.lengths.empty() ? 0 : 1), newcomer.lengths.begin(),
                          newcomer.lengths.end());
    return result;
  };
  const auto compare = [&](const std::vector<scalar>& from, const std::vector<scalar>& to, std::size_t count,
                           const std::string& attempt) {
    long double squared = 0;
    for (std::size_t i = 0; i < from.size(); ++i) {
      const long double difference = static_cast<long double>(to[i]) - static_cast<long double>(from[i]);
      squared += difference * difference;
    }
    ++report.attempts;
    const double allowance = count == 0 ? 0 : summation::of<scalar>(count + 1).share() * bound;
    const long double moved = std::sqrt(squared);
    const bool within = moved <= static_cast<long double>(report.sensitivity) + static_cast<long double>(allowance);
    if (within && (!report.holds || static_cast<double>(moved) <= report.observed)) return;
    if (!within && !report.holds && !(static_cast<double>(moved) > report.observed)) return;
    report.holds = report.holds && within;
    report.observed = static_cast<double>(moved);
    report.allowance = allowance;
    report.attempt = attempt;
  };

  for (std::size_t number = 0; number < options.batches; ++number) {
    const std::uint64_t seed = options.seed + 1000 * number;
    const std::size_t count = number * (options.most_samples + 1) / options.batches;
    const samples data = draw_samples<Network, Loss>(seed, count);
    const auto before = sum_of(data);
    std::vector<scalar> other;
    for (std::size_t kind = 0; kind < testing_detail::newcomer_kinds; ++kind) {
      samples newcomer = draw_samples<Network, Loss>(seed + 1 + kind, 1);
      const std::string name = [&] {
        if constexpr (Network::input_shape.ids != 0) {
          return testing_detail::make_newcomer_of_ids(kind, data, newcomer);
        } else {
          return testing_detail::make_newcomer(kind, data, newcomer);
        }
      }();
      for (const std::size_t place : {count, count / 2, std::size_t{0}}) {
        const auto after = sum_of(with(data, newcomer, place));
        const std::string circumstances = name + " at place " + std::to_string(place) + " of " + std::to_string(count);
        if (relation == neighbouring::add_or_remove_one) {
          compare(before, after, count, circumstances);
        } else {
          // The same other samples with another newcomer: one was replaced (and moved, which a set does not know).
          if (!other.empty()) compare(other, after, count, circumstances + " instead of the one tried before");
          other = after;
        }
      }
    }
  }
  return report;
}

}  // namespace pergrad::inline v0_1::testing
