// SPDX-License-Identifier: Apache-2.0
// pergrad/testing/conformance.hpp - does a trainer do to gradients what it claims? Statistics of its steps in gradient
// space (testing/gradient_space.hpp), each of which a mistake of one kind moves
//
// An audit proves leaks; small mistakes and exotic ones leak too little to be proven. These are tests of a claim that
// is known in every number, so they see a noise that is 2 % too small. Every statistic is standard normal or nearly so
// if the claim holds, and counts as broken from 6 standard errors on: by chance less than once in a million reports.
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

#include <pergrad/initialise.hpp>
#include <pergrad/pergrad.hpp>
#include <pergrad/testing/gradient_space.hpp>

namespace pergrad::inline v0_1::testing {

/// One thing that was looked at.
struct conformance_check {
  std::string name;
  double measured = 0;
  double expected = 0;
  double errors = 0;  ///< how many standard errors they are apart; infinite where it is not a matter of chance

  static constexpr double most_errors = 6;
  [[nodiscard]] bool holds() const noexcept { return std::abs(errors) <= most_errors; }
};

/// What was looked at.
struct conformance_report {
  std::vector<conformance_check> checks;

  [[nodiscard]] bool holds() const {
    return std::all_of(checks.begin(), checks.end(), [](const conformance_check& each) { return each.holds(); });
  }
  /// Throws std::out_of_range for a name that no check has.
  [[nodiscard]] const conformance_check& at(const std::string& name) const {
    for (const conformance_check& each : checks) {
      if (each.name == name) return each;
    }
    throw std::out_of_range("pergrad: testing: no check of a trainer is called " + name);
  }
  /// A line a check.
  [[nodiscard]] std::string text() const {
    std::string lines;
    for (const conformance_check& each : checks) {
      char line[200];
      std::snprintf(line, sizeof line, "%-28s %12.6g, expected %12.6g, %8.2f standard errors%s\n", each.name.c_str(),
                    each.measured, each.expected, each.errors, each.holds() ? "" : "  BROKEN");
      lines += line;
    }
    return lines;
  }
};

namespace testing_detail {

inline constexpr std::size_t conformance_width = 64;
inline constexpr std::size_t first_of_nobody = 32;  ///< elements from here on are zero in every record

using conformance_records = gradient_records<conformance_width>;

/// Gradients of norms from below to above C in the elements 1 ... 31; element 0 is a canary's.
[[nodiscard]] inline conformance_records ordinary_records(std::size_t count, double clip) {
  conformance_records records;
  for (std::size_t i = 0; i < count; ++i) {
    const auto gradient = records.add();
    const double size = clip * (0.2 + 2 * detail::public_uniform(3, i));
    for (std::size_t k = 1; k < first_of_nobody; ++k) {
      gradient[k] =
          static_cast<float>(size * (detail::public_uniform(i + 5, k) - 0.5) / std::sqrt(first_of_nobody / 12.0));
    }
  }
  return records;
}

/// Released sums of many steps.
using released_steps = std::vector<std::vector<double>>;

/// Sums of products of elements of nobody's, which are noise alone.
class noise_alone {
 public:
  explicit noise_alone(const released_steps& steps) : steps_{steps} {}
  [[nodiscard]] double count() const {
    return static_cast<double>(steps_.size() * (conformance_width - first_of_nobody));
  }
  /// Mean of x_i y over elements i of nobody's; y: the element `elements` further on, `later` steps later.
  [[nodiscard]] double product(std::size_t later, std::size_t elements) const {
    double sum = 0;
    double terms = 0;
    for (std::size_t t = 0; t + later < steps_.size(); ++t) {
      for (std::size_t i = first_of_nobody; i + elements < conformance_width; ++i) {
        sum += steps_[t][i] * steps_[t + later][i + elements];
        ++terms;
      }
    }
    return sum / terms;
  }
  [[nodiscard]] double mean() const {
    double sum = 0;
    for (const auto& step : steps_) {
      for (std::size_t i = first_of_nobody; i < conformance_width; ++i) sum += step[i];
    }
    return sum / count();
  }

 private:
  const released_steps& steps_;
};

/// Of each element, over steps: its mean and its variance.
struct step_means {
  std::vector<double> mean;
  std::vector<double> variance;
};
[[nodiscard]] inline step_means means_of(const released_steps& steps) {
  const auto count = static_cast<double>(steps.size());
  step_means of{std::vector<double>(steps.front().size()), std::vector<double>(steps.front().size())};
  for (const std::vector<double>& step : steps) {
    for (std::size_t i = 0; i < step.size(); ++i) of.mean[i] += step[i] / count;
  }
  for (const std::vector<double>& step : steps) {
    for (std::size_t i = 0; i < step.size(); ++i) of.variance[i] += std::pow(step[i] - of.mean[i], 2) / (count - 1);
  }
  return of;
}

/// The largest correlation, in magnitude, of two of these steps' elements from `first` on.
[[nodiscard]] inline double largest_of_step_pairs(const released_steps& steps, std::size_t first) {
  std::vector<std::vector<double>> normalised;
  for (const std::vector<double>& step : steps) {
    std::vector<double>& to = normalised.emplace_back(step.begin() + static_cast<std::ptrdiff_t>(first), step.end());
    double squares = 0;
    for (const double each : to) squares += each * each;
    for (double& each : to) each /= std::sqrt(squares);
  }
  double most = 0;
  for (std::size_t t = 0; t < normalised.size(); ++t) {
    for (std::size_t later = t + 1; later < normalised.size(); ++later) {
      double product = 0;
      for (std::size_t i = 0; i < normalised[t].size(); ++i) product += normalised[t][i] * normalised[later][i];
      most = std::max(most, std::isnan(product) ? detail::infinity : std::abs(product));
    }
  }
  return most;
}
/// The same of elements so far apart, whatever the distance, in one step and in two that follow each other.
[[nodiscard]] inline double largest_of_element_pairs(const released_steps& steps) {
  const std::size_t width = steps.front().size();
  double variance = 0;
  for (const std::vector<double>& step : steps) {
    for (const double each : step) variance += each * each / static_cast<double>(steps.size() * width);
  }
  double most = 0;
  for (std::size_t apart = 1; apart <= width * 3 / 4; ++apart) {
    double within = 0;
    double forwards = 0;
    double backwards = 0;
    for (std::size_t t = 0; t < steps.size(); ++t) {
      const std::vector<double>& before = steps[t == 0 ? steps.size() - 1 : t - 1];
      for (std::size_t i = 0; i + apart < width; ++i) {
        within += steps[t][i] * steps[t][i + apart];
        forwards += steps[t][i] * before[i + apart];
        backwards += before[i] * steps[t][i + apart];
      }
    }
    const double terms = static_cast<double>(steps.size() * (width - apart)) * variance;
    for (const double sum : {within, forwards, backwards}) {
      most = std::max(most, std::isnan(sum / terms) ? detail::infinity : std::abs(sum / terms));
    }
  }
  return most;
}

}  // namespace testing_detail

/// Takes some six times `steps` steps with trainers from `make` (testing/gradient_space.hpp) and looks at what they
/// let out. The claim's clip, divisor, batch and seed are used as they are; noise multipliers and sampling
/// probabilities are chosen here. `slack`: by how much the noise may be larger than sigma C, as it also covers rounding
/// (2 % in `dp_sgd`).
///
///   noise deviation        of elements that no record has: at least sigma C, at most (1 + slack) sigma C
///   noise mean             zero
///   noise of an empty set  the same deviation where there is no record at all
///   noise fourth moment    is that of a normal distribution, whose deviation is the same everywhere
///   steps, elements        noise of steps that follow each other, and of neighbouring elements, is uncorrelated
///   pairs of steps         no two steps, and no two elements of a step or of two that follow each other, have the same
///   pairs of elements      noise or a large part of it
///   inclusion rate         a record is in a step with probability q,
///   inclusion dispersion   independently of the steps before: counts in 1/q steps have variance over mean 1 - q
///   inclusion of others    and of the other records: of N records N q are in a step,
///   dispersion of others   with variance N q (1 - q)
///   inclusion of each      each of them by itself: the one whose rate is the farthest from q
///   clipped size           a record that is much too large adds C, and not more
///   size at any norm       nor does one whose norm is some C, in 16 elements together
///   noise among records    the noise's deviation is the same in elements that records have
///   other records          it does not depend on how many records there are,
///   largest record         nor on how large one of them is
///   not finite             a record with NaN or infinity adds nothing, to any element
///
/// Throws std::invalid_argument for less than 100 steps.
template <class Make>
[[nodiscard]] conformance_report check_conformance(const host& executor, const Make& make, const step_claim& claim = {},
                                                   std::size_t steps = 2000, double slack = 0.02) {
  using namespace testing_detail;
  if (steps < 100) detail::throw_invalid_argument({"pergrad: testing: conformance needs 100 steps, got ", steps});
  conformance_report report;
  const auto take = [&](const conformance_records& records, double noise, double sampling, std::size_t count) {
    gradient_space<conformance_width> network{executor, zeros{}};
    step_claim of_these = claim;
    of_these.noise = noise;
    of_these.sampling = sampling;
    auto step = make(executor, network, of_these);
    released_steps released;
    const auto view = records.view();
    for (std::size_t t = 0; t < count; ++t) released.push_back(step(view));
    return released;
  };
  const auto add = [&](const char* name, double measured, double expected, double standard_error) {
    const double apart = (measured - expected) / standard_error;
    report.checks.push_back({name, measured, expected, std::isnan(apart) ? detail::infinity : apart});
  };
  // Between 1 and (1 + slack)^2 times the claimed variance.
  const auto add_variance = [&](const char* name, double found, double count) {
    const double ratio = found / (claim.clip * claim.clip);
    const double most = (1 + slack) * (1 + slack);
    const double expected = std::isnan(ratio) ? 1 : std::clamp(ratio, 1.0, most);
    add(name, std::sqrt(ratio), std::sqrt(expected), expected * std::sqrt(2 / count) / 2);
  };
  const auto add_deviation = [&](const char* name, const noise_alone& noise) {
    add_variance(name, noise.product(0, 0), noise.count());
  };

  constexpr double often = 0.25;
  const auto canary_in = [&](conformance_records records, double size) {
    records.add()[0] = static_cast<float>(size * claim.clip);
    return records;
  };
  const conformance_records few = ordinary_records(40, claim.clip);

  const released_steps usual = take(few, 1, often, steps);
  const noise_alone noise{usual};
  const double variance = noise.product(0, 0);
  add_deviation("noise deviation", noise);
  add("noise mean", noise.mean(), 0, std::sqrt(variance / noise.count()));
  add("steps", noise.product(1, 0) / variance, 0, 1 / std::sqrt(noise.count()));
  add("elements", noise.product(0, 1) / variance, 0, 1 / std::sqrt(noise.count()));

  double fourth = 0;
  for (const std::vector<double>& step : usual) {
    for (std::size_t i = first_of_nobody; i < conformance_width; ++i) fourth += std::pow(step[i], 4) / noise.count();
  }
  add("noise fourth moment", fourth / (variance * variance), 3, std::sqrt(96 / noise.count()));

  // As shares of what chance does not reach: of 32 elements 1 - 0.95² to the power of 15, of more elements or terms
  // less.
  const auto add_largest = [&](const char* name, double share) {
    report.checks.push_back({name, share, 0, share < 1 ? 0 : detail::infinity});
  };
  constexpr std::size_t wide = 1024;  // more than a block of noise
  constexpr std::size_t wide_steps = 64;
  released_steps of_nobody;
  {
    gradient_space<wide> network{executor, zeros{}};
    auto step = make(executor, network, [&] {
      step_claim of_these = claim;
      of_these.noise = 1;
      of_these.sampling = often;
      return of_these;
    }());
    const gradient_records<wide> none;
    const auto view = none.view();
    for (std::size_t t = 0; t < wide_steps; ++t) of_nobody.push_back(step(view));
  }
  add_largest("pairs of steps", std::max(largest_of_step_pairs(usual, first_of_nobody) / 0.95,
                                         largest_of_step_pairs(of_nobody, 0) / 0.25));
  add_largest("pairs of elements", largest_of_element_pairs(of_nobody) / 0.1);

  const released_steps empty = take({}, 1, often, steps / 4);
  add_deviation("noise of an empty set", noise_alone{empty});

  // So little noise that every inclusion shows.
  constexpr double little = 0.01;
  const released_steps clear = take(canary_in(few, 10), little, often, steps);
  constexpr std::size_t block = 4;  // 1 / q
  double included = 0;
  double size = 0;
  double squares = 0;
  for (std::size_t t = 0; t + block <= steps; t += block) {
    double of_block = 0;
    for (std::size_t i = t; i < t + block; ++i) {
      if (!(std::abs(clear[i][0]) > claim.clip / 2)) continue;
      ++of_block;
      size += clear[i][0];
    }
    included += of_block;
    squares += of_block * of_block;
  }
  const std::size_t whole_blocks = steps / block;
  const auto blocks = static_cast<double>(whole_blocks);
  add("inclusion rate", included / (blocks * block), often, std::sqrt(often * (1 - often) / (blocks * block)));
  const double mean = included / blocks;
  add("inclusion dispersion", (squares / blocks - mean * mean) / mean, 1 - often, (1 - often) * std::sqrt(2 / blocks));
  const double error_of_size = 1.1 * little * claim.clip / std::sqrt(std::max(included, 1.0));
  add("clipped size", included > 0 ? size / included : 0, claim.clip, error_of_size);

  // Of records that all add C to one element it is how many of them are in a step.
  conformance_records alike;
  constexpr std::size_t alike_count = 40;
  for (std::size_t i = 0; i < alike_count; ++i) alike.add()[0] = static_cast<float>(10 * claim.clip);
  const step_means number = means_of(take(alike, little, often, steps));
  const auto taken = static_cast<double>(steps);
  const double spread = alike_count * often * (1 - often);
  add("inclusion of others", number.mean[0] / claim.clip, alike_count * often, std::sqrt(spread / taken));
  add("dispersion of others", number.variance[0] / (claim.clip * claim.clip), spread, spread * std::sqrt(2 / taken));

  // Each in an element of its own: one that is drawn at a rate of its own is lost in the number of all.
  conformance_records apart;
  for (std::size_t i = 0; i < alike_count; ++i) apart.add()[i] = static_cast<float>(10 * claim.clip);
  const released_steps alone = take(apart, little, often, steps);
  double farthest = often;
  for (std::size_t i = 0; i < alike_count; ++i) {
    double steps_with = 0;
    for (const std::vector<double>& step : alone) steps_with += std::abs(step[i]) > claim.clip / 2 ? 1 : 0;
    const double rate = steps_with / taken;
    if (std::abs(rate - often) > std::abs(farthest - often)) farthest = rate;
  }
  add("inclusion of each", farthest, often, std::sqrt(often * (1 - often) / taken));

  // In elements that belong to nobody else, evenly: elements that are clipped one by one add up to more.
  constexpr std::size_t shared = 16;
  constexpr std::size_t few_steps = 20;
  const step_means nobody = means_of(take(few, little, 1, few_steps));
  double largest = 0;
  for (const double times : {0.5, 1.2, 2.0, 5.0, 1000.0}) {
    conformance_records with = few;
    const auto canary = with.add();
    for (std::size_t i = 0; i < shared; ++i) {
      canary[first_of_nobody + i] = static_cast<float>(times * claim.clip / std::sqrt(shared));
    }
    const step_means found = means_of(take(with, little, 1, few_steps));
    double added = 0;
    for (std::size_t i = first_of_nobody; i < first_of_nobody + shared; ++i) added += found.mean[i] - nobody.mean[i];
    largest = std::max(largest, std::isnan(added) ? detail::infinity : added / (std::sqrt(shared) * claim.clip));
  }
  add("size at any norm", largest, std::min(largest, 1.0), 1.1 * little * std::sqrt(2.0 / few_steps));

  const std::size_t quarter = steps / 4;
  const step_means among = means_of(take(few, 1, 1, quarter));
  double of_all = 0;
  for (std::size_t i = 0; i < first_of_nobody; ++i) of_all += among.variance[i] / first_of_nobody;
  add_variance("noise among records", of_all, static_cast<double>((quarter - 1) * first_of_nobody));

  const auto add_same_noise = [&](const char* name, const released_steps& other) {
    const noise_alone of_other{other};
    const double ratio = std::sqrt(of_other.product(0, 0) / variance);
    add(name, ratio, 1, std::sqrt((2 / noise.count() + 2 / of_other.count()) / 4));
  };
  add_same_noise("other records", take(ordinary_records(160, claim.clip), 1, often, steps / 2));
  add_same_noise("largest record", take(canary_in(few, 1000), 1, 1, steps / 4));

  // A gate may hide what is not finite, as zeros or as the largest number: then the others' sum is gone.
  conformance_records broken = few;
  for (float& value : broken.add()) value = std::numeric_limits<float>::quiet_NaN();
  broken.add()[1] = std::numeric_limits<float>::infinity();
  broken.add()[first_of_nobody] = -std::numeric_limits<float>::infinity();
  const released_steps without = take(few, little, 1, 10);
  const released_steps with_broken = take(broken, little, 1, 10);
  double not_finite = 0;
  for (std::size_t t = 0; t < without.size(); ++t) {
    for (std::size_t i = 0; i < conformance_width; ++i) {
      not_finite += std::abs(with_broken[t][i] - without[t][i]) <= 20 * little * claim.clip ? 0 : 1;
    }
  }
  report.checks.push_back({"not finite", not_finite, 0, not_finite > 0 ? detail::infinity : 0});
  return report;
}

}  // namespace pergrad::inline v0_1::testing
