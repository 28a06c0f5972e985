// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/statistics.hpp - counts of records as released values: a histogram over public bins
//
// Every record lies in at most one bin, so a record more or less moves one count by one: the sensitivity is 1 in L2,
// however many bins there are. Counts are whole steps of the release's grid, so nothing is rounded before the noise.
// What is made of a released histogram (totals, shares, quantiles) is post-processing.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <pergrad/detail/aligned_buffer.hpp>
#include <pergrad/detail/error_text.hpp>
#include <pergrad/detail/float_environment.hpp>
#include <pergrad/privacy/generator.hpp>
#include <pergrad/privacy/release.hpp>
#include <pergrad/privacy/sensitivity.hpp>
#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1 {

namespace detail {
struct statistic_release;
class private_counts;
}  // namespace detail

/// Public borders e_1 < ... < e_k of k + 1 bins: below e_1, [e_1, e_2), ..., from e_k on. They must not be computed
/// from records.
class bin_edges {
 public:
  /// Throws std::invalid_argument unless there is an edge, and they are finite and increase strictly.
  explicit bin_edges(std::vector<double> edges) : edges_{std::move(edges)} {
    if (edges_.empty()) detail::throw_invalid_argument({"pergrad: bin_edges: there is no edge"});
    for (std::size_t i = 0; i < edges_.size(); ++i) {
      if (!std::isfinite(edges_[i]) || (i > 0 && !(edges_[i - 1] < edges_[i]))) {
        detail::throw_invalid_argument(
            {"pergrad: bin_edges: edges must be finite and increase, edge ", i, " is ", edges_[i]});
      }
    }
  }
  /// `bins` bins of one width from `low` to `high`, and one at either end for the rest. Throws std::invalid_argument as
  /// above, for no bin, and for more than 2^32.
  [[nodiscard]] static bin_edges evenly(double low, double high, std::size_t bins) {
    constexpr std::size_t most = std::size_t{1} << 32U;
    if (bins == 0 || bins > most) {
      detail::throw_invalid_argument({"pergrad: bin_edges: evenly() takes 1 to 2^32 bins, got ", bins});
    }
    std::vector<double> edges(bins + 1);
    for (std::size_t i = 0; i <= bins; ++i) {
      const double share = static_cast<double>(i) / static_cast<double>(bins);
      edges[i] = low * (1 - share) + high * share;
    }
    return bin_edges{std::move(edges)};
  }
  [[nodiscard]] std::span<const double> values() const noexcept { return edges_; }
  [[nodiscard]] std::size_t bins() const noexcept { return edges_.size() + 1; }
  /// The bin of a value; a NaN lies above all edges, as an error would tell of a record.
  [[nodiscard]] std::size_t bin_of(double value) const noexcept {
    return static_cast<std::size_t>(std::upper_bound(edges_.begin(), edges_.end(), value) - edges_.begin());
  }

 private:
  friend class detail::private_counts;
  std::vector<double> edges_;
};

/// How many records lie in which bin, with noise: a released value.
class released_histogram {
 public:
  [[nodiscard]] std::span<const double> edges() const noexcept { return edges_.values(); }
  /// One count a bin, one more than edges. Noise makes them fractions, and some of them negative.
  [[nodiscard]] std::span<const double> counts() const noexcept { return counts_; }
  /// Standard deviation of the noise on each count.
  [[nodiscard]] double deviation() const noexcept { return deviation_; }
  /// Of all records.
  [[nodiscard]] double total() const noexcept { return below(counts_.size()); }
  /// Of the records whose value is below edge number `edge`: 0, 1, ... Throws std::out_of_range if there is none.
  [[nodiscard]] double count_below(std::size_t edge) const {
    if (edge >= edges().size()) {
      throw std::out_of_range("pergrad: released_histogram: edge " + std::to_string(edge) + " of " +
                              std::to_string(edges().size()));
    }
    return below(edge + 1);
  }
  /// The value below which the share `share` of the records lies, to the width of a bin, between the first and the last
  /// edge. Noise bends the counts, so they are first brought to the nearest that rise (in the largest difference):
  /// (largest so far + smallest from here) / 2. Means nothing where total() is not far above deviation(). Throws
  /// std::invalid_argument unless 0 <= share <= 1.
  [[nodiscard]] double quantile(double share) const {
    require_share(share);
    const std::span<const double> at = edges();
    std::vector<double> rising(at.size());
    std::vector<double> least(at.size());
    double sum = 0;
    for (std::size_t i = 0; i < at.size(); ++i) least[i] = rising[i] = sum += counts_[i];
    for (std::size_t i = 1; i < at.size(); ++i) rising[i] = std::max(rising[i], rising[i - 1]);
    for (std::size_t i = at.size() - 1; i-- > 0;) least[i] = std::min(least[i], least[i + 1]);
    for (std::size_t i = 0; i < at.size(); ++i) rising[i] = (rising[i] + least[i]) / 2;
    const double wanted = share * total();
    const auto reached = static_cast<std::size_t>(std::ranges::lower_bound(rising, wanted) - rising.begin());
    if (reached == 0) return at.front();
    if (reached == at.size()) return at.back();
    const double part = (wanted - rising[reached - 1]) / (rising[reached] - rising[reached - 1]);
    return at[reached - 1] + part * (at[reached] - at[reached - 1]);
  }

  static void require_share(double share) {
    if (share >= 0 && share <= 1) return;
    detail::throw_invalid_argument({"pergrad: quantile: the share must be in [0, 1], got ", share});
  }

 private:
  friend struct detail::statistic_release;
  released_histogram(bin_edges edges, std::vector<double> counts, double deviation)
      : edges_{std::move(edges)}, counts_{std::move(counts)}, deviation_{deviation} {}
  [[nodiscard]] double below(std::size_t bins) const noexcept {
    double sum = 0;
    for (std::size_t i = 0; i < bins; ++i) sum += counts_[i];
    return sum;
  }

  bin_edges edges_;
  std::vector<double> counts_;
  double deviation_;
};

/// The noise multiplier of two releases about the same records, as one: they are one Gaussian mechanism on both numbers
/// side by side, 1 / s² = 1 / a² + 1 / b², rounded down. Two events of the same draw would be another, smaller cost,
/// which is none: who is drawn for one is drawn for the other.
[[nodiscard]] inline noise_multiplier joint_noise(noise_multiplier a, noise_multiplier b) {
  const detail::float_environment proven;
  const double larger = std::max(a.value(), b.value());
  const double smaller = std::min(a.value(), b.value());
  if (smaller == 0) return noise_multiplier{0};
  const double ratio = smaller / larger;
  return noise_multiplier{smaller / std::sqrt(1 + ratio * ratio) * (1 - 0x1p-50)};
}

namespace detail {

/// Counts that nobody has seen.
class private_counts {
 public:
  explicit private_counts(bin_edges edges) : edges_{std::move(edges)}, counts_(edges_.bins()) {}
  void clear() noexcept { std::ranges::fill(counts_, 0); }
  /// One value a record; a record must not be counted twice.
  void add(std::span<const double> values) noexcept {
    for (const double value : values) ++counts_[edges_.bin_of(value)];
  }
  /// Other bins for the next records, by one public edge. Precondition: there was one, and this one is finite.
  void set_edge(double edge) noexcept { edges_.edges_.front() = edge; }

 private:
  friend struct statistic_release;
  friend struct counts_of_ranks;
  bin_edges edges_;
  std::vector<std::int64_t> counts_;
};

/// The only way of counts to the gate.
struct statistic_release {
  /// Throws std::invalid_argument for noise that the grid cannot carry, or for none where the key is secret.
  template <random_generator Generator>
  static void require_noise(noise_multiplier noise, std::size_t bins) {
    const release_grid grid = release_grid::of(1, bins);
    const double sigma = noise.value() * sensitivity_in_steps(grid, summation{}, 1);
    require_sigma(noise.value(), sigma, !Generator::is_private && sigma == 0);
  }
  /// Takes a step of the generator. Throws what the gate throws.
  template <random_generator Generator>
  [[nodiscard]] static released_histogram of(const private_counts& counted, noise_multiplier noise,
                                             Generator& generator) {
    released_histogram released = empty(counted);
    private_counts integers{counted};
    into(released, integers, noise, generator);
    return released;
  }
  /// Counts of 0, of the same bins.
  [[nodiscard]] static released_histogram empty(const private_counts& counted) {
    return {counted.edges_, std::vector<double>(counted.counts_.size()), 0};
  }
  /// The same as `of` without an allocation, for bins as many as before; the counts are used up.
  template <random_generator Generator>
  static void into(released_histogram& released, private_counts& counted, noise_multiplier noise,
                   Generator& generator) {
    using gate_type = release_gate<double>;
    const float_environment proven;
    const std::size_t bins = counted.counts_.size();
    const release_grid grid = release_grid::of(1, bins);
    const double sensitivity = sensitivity_in_steps(grid, summation{}, 1);
    const gate_type gate{typename gate_type::of_any_generator{}, grid, sensitivity, noise, 1, generator};
    const int one = grid.steps - grid.unit;  // a record is 2^one steps
    for (std::int64_t& count : counted.counts_) {
      count = std::min(count, std::numeric_limits<std::int64_t>::max() >> one) << one;
    }
    const element_update<double> kept{released.counts_.data(),
                                      [](void* to, std::size_t first, double* values, std::size_t count) {
                                        std::copy_n(values, count, static_cast<double*>(to) + first);
                                      }};
    for (std::size_t i = 0; i < gate.stretches(); ++i) {
      gate.release(i, {nullptr, counted.counts_.data()}, nullptr, kept);
    }
    released.edges_ = counted.edges_;
    released.deviation_ = noise.value() * std::ldexp(sensitivity, -one);
  }
};

}  // namespace detail
}  // namespace pergrad::inline v0_1
