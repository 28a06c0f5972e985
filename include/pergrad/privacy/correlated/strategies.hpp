// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/correlated/strategies.hpp - what the noise of a run may be made of: banded, buffered and tree noise
//
//   pg::banded_noise{steps, {0.5, 0.375, 0.3125}}            C_ts = 1, 0.5, ... on diagonals, four bands
//   pg::buffered_noise{steps, {0.99, 0.6}, {0.08, 0.5}}      C_ts = sum_j w_j h_j^(t-s-1) below the diagonal
//   pg::tree_noise{steps}                                    tree aggregation
//
// The number of steps is part of a strategy: sensitivity counts all of them, and there is no step beyond the last one.
// Coefficients for a workload: optimise.hpp.
#pragma once

// clang-format off
#include <pergrad/detail/beside_the_umbrella.hpp>  // before anything is defined
// clang-format on

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <pergrad/detail/error_text.hpp>
#include <pergrad/privacy/correlated/filter.hpp>
#include <pergrad/privacy/correlated/participation.hpp>
#include <pergrad/privacy/correlated/recursions.hpp>

namespace pergrad::inline v0_1 {

namespace detail {

inline void require_strategy(std::uint64_t steps) {
  if (steps == 0 || steps > std::uint64_t{1} << 24U) {
    throw_invalid_argument({"pergrad: correlated noise: a strategy is for 1 to 2^24 steps, got ", steps});
  }
}

/// What strategies have in common.
template <class Strategy, class Recursion>
class noise_strategy {
 public:
  /// The noise of a run, for sums of so many elements.
  using filter = correlated_filter<Recursion>;
  using sensitivity_type = run_sensitivity;

  /// Steps of the run.
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }
  /// The same with memory for a block a thread only; see filter.hpp for what that costs.
  [[nodiscard]] Strategy regenerated() const {
    Strategy same = static_cast<const Strategy&>(*this);
    same.memory_ = noise_memory::regenerated;
    return same;
  }
  /// What a record does to the whole run under this sampler, which promises how often it draws one.
  template <class Sampling>
  [[nodiscard]] run_sensitivity sensitivity_under(const Sampling& sampling) const {
    return static_cast<const Strategy&>(*this).sensitivity(
        {.steps = steps_, .separation = sampling.min_separation(), .most = sampling.max_participations(steps_)});
  }
  [[nodiscard]] std::unique_ptr<filter> make_filter(const run_sensitivity& sensitivity, std::size_t elements,
                                                    std::size_t threads) const {
    return std::make_unique<filter>(recursion_, sensitivity, steps_, elements, threads, memory_);
  }

 protected:
  noise_strategy(std::uint64_t steps, Recursion recursion) : steps_{steps}, recursion_{std::move(recursion)} {}
  /// This pattern for all of the run.
  [[nodiscard]] participation of_run(participation pattern) const {
    pattern.steps = steps_;
    pattern.require();
    return pattern;
  }
  [[nodiscard]] static std::uint64_t checked(std::uint64_t steps) {
    require_strategy(steps);
    return steps;
  }

  std::uint64_t steps_;
  Recursion recursion_;
  noise_memory memory_ = noise_memory::stored;
};

}  // namespace detail

/// Banded Toeplitz noise (BandMF).
class banded_noise : public detail::noise_strategy<banded_noise, detail::banded_recursion> {
 public:
  /// Whether a record's steps that are `bands()` apart have no row of C in common.
  static constexpr bool is_banded = true;

  /// The coefficients behind the diagonal's 1, rounded to multiples of 2^-18. Throws std::invalid_argument for more
  /// than 2^24 steps, and coefficients that are not below 1024 in magnitude.
  banded_noise(std::uint64_t steps, std::span<const double> coefficients)
      : noise_strategy{checked(steps), detail::banded_recursion{coefficients, steps}} {}
  banded_noise(std::uint64_t steps, std::initializer_list<double> coefficients)
      : banded_noise{steps, std::span{coefficients.begin(), coefficients.size()}} {}

  /// c_0 = 1, c_1, ...: as they are used.
  [[nodiscard]] std::span<const double> coefficients() const noexcept { return recursion_.coefficients(); }
  [[nodiscard]] std::size_t bands() const noexcept { return coefficients().size(); }

  /// What a record with this pattern does to the whole run.
  [[nodiscard]] run_sensitivity sensitivity(const participation& pattern) const {
    const participation of = of_run(pattern);
    const std::uint64_t lags = bands() - 1;
    return {std::sqrt(squared_toeplitz_sensitivity(coefficients(), of)) * detail::covers_rounding,
            std::min(steps_, of.times() * lags)};
  }
  /// What a record does by one of its steps.
  [[nodiscard]] run_sensitivity sensitivity_of_one() const {
    return sensitivity({.steps = steps_, .separation = steps_, .most = 1});
  }
};

/// Buffered linear Toeplitz noise (BLT): a memory without end from a few buffers a parameter.
class buffered_noise : public detail::noise_strategy<buffered_noise, detail::buffered_recursion> {
 public:
  static constexpr bool is_banded = false;

  /// Buffer j decays by decays[j] a step and counts scales[j]; both are rounded down to multiples of 2^-30. Throws
  /// std::invalid_argument for more than 2^24 steps, decays that are not in [0, 1), scales that are not in [0, 1] or
  /// have a larger sum.
  buffered_noise(std::uint64_t steps, std::span<const double> decays, std::span<const double> scales)
      : noise_strategy{checked(steps), detail::buffered_recursion{decays, scales, steps}} {}
  buffered_noise(std::uint64_t steps, std::initializer_list<double> decays, std::initializer_list<double> scales)
      : buffered_noise{steps, std::span{decays.begin(), decays.size()}, std::span{scales.begin(), scales.size()}} {}

  /// c_0 = 1, c_1, ..., of all steps.
  [[nodiscard]] std::vector<double> coefficients() const { return recursion_.coefficients(); }

  /// What a record with this pattern does to the whole run.
  [[nodiscard]] run_sensitivity sensitivity(const participation& pattern) const {
    return {std::sqrt(squared_toeplitz_sensitivity(coefficients(), of_run(pattern))) * detail::covers_rounding, steps_};
  }
};

/// Tree aggregation.
class tree_noise : public detail::noise_strategy<tree_noise, detail::tree_recursion> {
 public:
  static constexpr bool is_banded = false;

  /// Throws std::invalid_argument for more than 2^24 steps.
  explicit tree_noise(std::uint64_t steps) : noise_strategy{checked(steps), detail::tree_recursion{steps}} {}

  /// What a record with this pattern does to the whole run. A sum over 2^j steps has the record at most
  /// m_j = ceil(2^j / separation) times, and sums of the same length have no step in common, so ‖C u‖² <= sum_j m_j
  /// times().
  [[nodiscard]] run_sensitivity sensitivity(const participation& pattern) const {
    const participation of = of_run(pattern);
    double sum = 0;
    for (std::uint64_t length = 1; length <= steps_; length *= 2) {
      sum += static_cast<double>(participation{length, of.separation, of.most}.times());
    }
    return {std::sqrt(sum * static_cast<double>(of.times())) * detail::covers_rounding, 0};
  }
};

}  // namespace pergrad::inline v0_1
