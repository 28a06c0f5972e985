// SPDX-License-Identifier: Apache-2.0
// pergrad/testing/laws_report.hpp - what an examination found: which law was broken, where, by how much
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pergrad::inline v0_1::testing {

/// The laws of layer_laws.hpp and length_law.hpp.
enum class law {
  finite_differences,  ///< gradients agree with central differences of the loss
  sum_of_rows,         ///< the ordinary gradient is the sum of the per-sample gradients
  norms,               ///< every norm method gives the norm of the materialised gradient
  strategies,          ///< every norm method and strategy gives the same clipped sum
  accumulation,        ///< sums are linear in their weights, and accumulate adds to what is there
  isolation,           ///< no sample moves a bit of another sample's output, loss, gradient or norm
  permutation,         ///< a permuted batch gives permuted results, bit for bit
  repetition,          ///< evaluating again gives the same bits
  thread_count,        ///< so does any number of threads
  non_finite,          ///< a sample without a finite gradient adds exactly zero to a clipped sum
  clip_bound,          ///< what a sample adds to a clipped sum has a norm of at most C, exactly
  lengths,             ///< what lies behind a sample's length does not exist
  precision            ///< gradients in float are those in double, but for what rounding does to them
};

[[nodiscard]] constexpr std::string_view name_of(law which) noexcept {
  constexpr std::string_view names[] = {"finite differences", "sum of rows",        "norms",       "strategies",
                                        "accumulation",       "isolation",          "permutation", "repetition",
                                        "thread count",       "non-finite samples", "clip bound",  "lengths",
                                        "precision"};
  return names[static_cast<std::size_t>(which)];
}

/// Values of a comparison, from `first` to the next owner's, are of parameters of this layer.
struct parameter_owner {
  std::size_t first = 0;
  std::string layer;
};

/// The worst case of one broken law.
struct violation {
  testing::law law = testing::law::finite_differences;
  std::string where;      ///< scalar type, what was compared, under which circumstances
  std::size_t index = 0;  ///< of the worst value in what was compared
  double expected = 0;    ///< for the clip bound: the bound
  double actual = 0;
  double excess = 0;  ///< error in units of what the law allows; infinite where it allows none, or for NaN
  std::uint64_t seed = 0;
  std::string layer{};  ///< whose parameter's value it is; empty for values of no parameter

  /// One line for people.
  [[nodiscard]] std::string text() const {
    char numbers[160];
    std::snprintf(numbers, sizeof numbers, " is %.17g, expected %s%.17g (seed %llu)", actual,
                  law == testing::law::clip_bound ? "at most " : "", expected, static_cast<unsigned long long>(seed));
    return "law \"" + std::string{name_of(law)} + "\" broken: " + where + ": value " + std::to_string(index) +
           (layer.empty() ? "" : ", of " + layer + ",") + numbers;
  }
};

/// All broken laws of one examination, the worst case of each. Iterate over it, or ask `empty()`.
class laws_report {
 public:
  explicit laws_report(std::uint64_t seed) : seed_{seed} {}

  [[nodiscard]] bool empty() const noexcept { return violations_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return violations_.size(); }
  [[nodiscard]] auto begin() const noexcept { return violations_.begin(); }
  [[nodiscard]] auto end() const noexcept { return violations_.end(); }
  /// Comparisons made: so that a test can see that something was examined.
  [[nodiscard]] std::size_t comparisons() const noexcept { return comparisons_; }
  [[nodiscard]] std::uint64_t seed() const noexcept { return seed_; }
  [[nodiscard]] bool broke(law which) const noexcept {
    for (const violation& each : violations_) {
      if (each.law == which) return true;
    }
    return false;
  }
  /// One line a broken law, or one line that says that all hold.
  [[nodiscard]] std::string text() const {
    if (empty()) {
      return "all laws hold: " + std::to_string(comparisons_) + " comparisons (seed " + std::to_string(seed_) + ")\n";
    }
    std::string lines;
    for (const violation& each : violations_) lines += each.text() + '\n';
    return lines;
  }

  using owners_of = std::span<const parameter_owner>;

  /// Both must have the same bits, element by element.
  template <class Value>
  void same_bits(law which, const std::string& where, std::span<const Value> expected, std::span<const Value> actual,
                 owners_of owners = {}) {
    if (!same_size(which, where, expected.size(), actual.size())) return;
    if (expected.empty() || std::memcmp(expected.data(), actual.data(), expected.size_bytes()) == 0) return;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      // Bits, not values: a NaN equals itself here, and 0 differs from -0.
      // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison)
      if (std::memcmp(&expected[i], &actual[i], sizeof(Value)) != 0) {
        add({which, where, i, static_cast<double>(expected[i]), static_cast<double>(actual[i]), infinite, seed_,
             layer_of(owners, i)});
        return;
      }
    }
  }
  /// Every |expected - actual| must be at most its tolerance. NaN never is.
  template <class Value>
  void close(law which, const std::string& where, std::span<const Value> expected, std::span<const Value> actual,
             std::span<const double> tolerances, owners_of owners = {}) {
    if (!same_size(which, where, expected.size(), actual.size())) return;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      agree(which, where, i, static_cast<double>(expected[i]), static_cast<double>(actual[i]), tolerances[i], owners);
    }
  }
  /// One tolerance for all of them.
  template <class Value>
  void close(law which, const std::string& where, std::span<const Value> expected, std::span<const Value> actual,
             double tolerance, owners_of owners = {}) {
    close(which, where, expected, actual, std::vector<double>(expected.size(), tolerance), owners);
  }
  void agree(law which, const std::string& where, std::size_t index, double expected, double actual, double tolerance,
             owners_of owners = {}) {
    ++comparisons_;
    const double error = std::fabs(expected - actual);
    if (error <= tolerance) return;
    add({which, where, index, expected, actual, tolerance > 0 && !std::isnan(error) ? error / tolerance : infinite,
         seed_, layer_of(owners, index)});
  }
  /// `actual` must be at most `bound`.
  void at_most(law which, const std::string& where, std::size_t index, double bound, long double actual) {
    ++comparisons_;
    if (actual <= static_cast<long double>(bound)) return;
    const auto ratio = static_cast<double>(actual / static_cast<long double>(bound));
    add({which, where, index, bound, static_cast<double>(actual), std::isnan(ratio) ? infinite : ratio, seed_});
  }
  /// Takes over what another examination found.
  void merge(const laws_report& other) {
    comparisons_ += other.comparisons_;
    for (const violation& each : other.violations_) add(each);
  }

 private:
  static constexpr double infinite = HUGE_VAL;

  /// Empty if nobody owns it.
  [[nodiscard]] static std::string layer_of(owners_of owners, std::size_t index) {
    std::string layer;
    for (const parameter_owner& each : owners) {
      if (each.first <= index) layer = each.layer;
    }
    return layer;
  }

  bool same_size(law which, const std::string& where, std::size_t expected, std::size_t actual) {
    ++comparisons_;
    if (expected == actual) return true;
    add({which, where + ", number of values", 0, static_cast<double>(expected), static_cast<double>(actual), infinite,
         seed_});
    return false;
  }
  void add(violation found) {
    for (violation& each : violations_) {
      if (each.law != found.law) continue;
      if (found.excess > each.excess) each = std::move(found);
      return;
    }
    violations_.push_back(std::move(found));
  }

  std::uint64_t seed_;
  std::size_t comparisons_ = 0;
  std::vector<violation> violations_;
};

}  // namespace pergrad::inline v0_1::testing
