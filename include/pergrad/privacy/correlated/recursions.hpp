// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/correlated/recursions.hpp - how fresh noise becomes correlated noise, in integers of the grid
//
// Fresh noise z_t, integers of the release's grid, becomes n_t = z_t - f_t, where f_t is computed from n_0 ... n_(t-1)
// alone. Without rounding this is C n = z with a lower-triangular C of unit diagonal, n = C^-1 z:
//
//   banded     C_ts = c_(t-s), c_0 = 1, 0 behind the last one (arXiv:2306.08153, arXiv:2405.15913):
//              f_t = round(sum_k c_k n_(t-k))
//   buffered   c_k = sum_j w_j h_j^(k-1) with h_j in [0, 1), w_j >= 0, for any k >= 1 (BLT, arXiv:2404.16706):
//              f_t = round(sum_j w_j s_j), s_j <- round'(h_j s_j) + n_t, round' to steps of 2^-20
//   tree       rows of C are sums over (t - 2^j, t], t = 1, 2, ..., 2^j the largest power of two that divides t: prefix
//              sums have at most log2(n) + 1 terms (Dwork et al. 2010; Kairouz et al. 2021, arXiv:2103.00039). The
//              noise of a prefix is that of its terms, and n_t is what comes and goes with step t: f_t = sum of z of
//              the sums that are part of the new one. Nothing is rounded.
//
// What is rounded is exact before: coefficients are whole multiples of 2^-18 (banded) and 2^-30 (buffered), and
// `require_room` refuses noise so large that a sum of products might not fit a double, or 64 bits. So bits depend on no
// compiler, vector width or order of sums. With |x - round(x)| <= 1/2, two histories n, n' whose exact sums differ by y
// have |f - f' - y| <= `rounding()` in every element; it is 1 but for the share of round', errors of at most 1 step
// each of which decays by h_j, and no more of them than steps:  1 + 2^-20 sum_j w_j min(1 / (1 - h_j), T). What that
// does to privacy: correlated_noise.hpp.
#pragma once

// clang-format off
#include <pergrad/detail/beside_the_umbrella.hpp>  // before anything is defined
// clang-format on

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <pergrad/detail/error_text.hpp>
#include <pergrad/privacy/correlated/participation.hpp>
#include <pergrad/privacy/noise/rounded_gaussian.hpp>

namespace pergrad::inline v0_1::detail {

/// |z| is at most so many deviations: -ln U < 2^7.8 (exact_gaussian.hpp), and one for the rounding.
inline constexpr double most_deviations = 23;

[[noreturn, gnu::cold]] inline void refuse_noise(double sigma) {
  throw_invalid_argument({"pergrad: correlated noise: fresh noise of ", sigma,
                          " steps of the grid is too large for exact sums: fewer participations, or a smaller noise "
                          "multiplier"});
}

/// The first `count` coefficients of 1 / c, c_0 = 1.
[[nodiscard]] inline std::vector<double> inverse_series(std::span<const double> c, std::size_t count) {
  std::vector<double> inverse(count);
  for (std::size_t t = 0; t < count; ++t) {
    double sum = t == 0 ? 1 : 0;
    for (std::size_t k = 1; k < c.size() && k <= t; ++k) sum -= c[k] * inverse[t - k];
    inverse[t] = sum;
  }
  return inverse;
}

[[nodiscard]] inline double sum_of_magnitudes(std::span<const double> of) noexcept {
  double sum = 0;
  for (const double each : of) sum += std::abs(each);
  return sum;
}

class banded_recursion {
 public:
  using cell = double;
  static constexpr double coefficient_step = 0x1p-18;

  /// Coefficients behind c_0 = 1, which are rounded to multiples of 2^-18. Throws std::invalid_argument unless they are
  /// below 2^10 in magnitude.
  banded_recursion(std::span<const double> coefficients, std::uint64_t steps) : coefficients_{1.0} {
    for (const double each : coefficients) {
      if (!(std::abs(each) < 0x1p10)) {
        throw_invalid_argument({"pergrad: banded noise: coefficient ", coefficients_.size(),
                                " must be finite and below 1024 in magnitude, got ", each});
      }
      coefficients_.push_back(std::nearbyint(each / coefficient_step) * coefficient_step);
    }
    growth_ = 2 * sum_of_magnitudes(inverse_series(coefficients_, static_cast<std::size_t>(steps))) *
              std::max(1.0, sum_of_magnitudes(coefficients_));
  }
  /// c_0 = 1, c_1, ...
  [[nodiscard]] std::span<const double> coefficients() const noexcept { return coefficients_; }

  [[nodiscard]] std::size_t rows() const noexcept { return coefficients_.size() - 1; }
  [[nodiscard]] static double rounding() noexcept { return 1; }
  void require_room(double sigma) const {
    if (!(growth_ * most_deviations * sigma < 0x1p53 * coefficient_step)) refuse_noise(sigma);
  }
  /// z becomes n of step t for a block of elements; rows(): those of the latest steps, row t mod rows() of step t.
  void step(std::uint64_t t, double* rows, double (&k)[gaussian_block]) const noexcept {
    const std::size_t count = coefficients_.size() - 1;
    if (count == 0) return;
    alignas(64) double sum[gaussian_block]{};
    auto row = static_cast<std::size_t>(t % count);  // of step t - count, and then of step t
    double* const own = rows + row * gaussian_block;
    for (std::size_t lag = count; lag > 0; --lag) {
      const double* const before = rows + row * gaussian_block;
      const double c = coefficients_[lag];
      for (std::size_t i = 0; i < gaussian_block; ++i) sum[i] += c * before[i];
      row = row + 1 == count ? 0 : row + 1;
    }
    constexpr double to_integer = 0x1.8p52;
    for (std::size_t i = 0; i < gaussian_block; ++i) {
      k[i] -= (sum[i] + to_integer) - to_integer;
      own[i] = k[i];
    }
    wipe(sum, sizeof sum);
  }

 private:
  std::vector<double> coefficients_;
  double growth_ = 1;
};

/// 128 bits for products of 64.
__extension__ using wide_integer = __int128;

class buffered_recursion {
 public:
  using cell = std::int64_t;  ///< in steps of 2^-20
  static constexpr int cell_bits = 20;
  static constexpr int parameter_bits = 30;

  /// A buffer for each (h_j, w_j), which are rounded to multiples of 2^-30. Throws std::invalid_argument unless h_j is
  /// in [0, 1) and w_j >= 0, with a sum of at most 1.
  buffered_recursion(std::span<const double> decays, std::span<const double> scales, std::uint64_t steps)
      : steps_{steps} {
    if (decays.size() != scales.size()) {
      throw_invalid_argument({"pergrad: buffered noise: ", decays.size(), " decays and ", scales.size(), " scales"});
    }
    double sum = 0;
    for (std::size_t j = 0; j < decays.size(); ++j) {
      if (!(decays[j] >= 0 && decays[j] < 1 && scales[j] >= 0 && scales[j] <= 1)) {
        throw_invalid_argument({"pergrad: buffered noise: buffer ", j,
                                " must decay by a number of [0, 1) and have a scale of [0, 1], got ", decays[j],
                                " and ", scales[j]});
      }
      const auto as_integer = [](double x) {
        return static_cast<std::int64_t>(std::floor(std::ldexp(x, parameter_bits)));
      };
      buffers_.push_back({as_integer(decays[j]), as_integer(scales[j])});
      sum += scale(j);
    }
    if (sum > 1) throw_invalid_argument({"pergrad: buffered noise: scales add up to ", sum, ", more than 1"});
    measure_growth();
  }
  [[nodiscard]] double decay(std::size_t j) const noexcept {
    return std::ldexp(static_cast<double>(buffers_[j].decay), -parameter_bits);
  }
  [[nodiscard]] double scale(std::size_t j) const noexcept {
    return std::ldexp(static_cast<double>(buffers_[j].scale), -parameter_bits);
  }
  /// c_0 = 1, c_1, ..., of all steps.
  [[nodiscard]] std::vector<double> coefficients() const {
    std::vector<double> c(static_cast<std::size_t>(steps_));
    c[0] = 1;
    for (std::size_t j = 0; j < buffers_.size(); ++j) {
      double power = scale(j);
      // What is left out beyond 1e-30 is less than sensitivities are rounded up by.
      for (std::size_t k = 1; k < c.size() && power > 1e-30; ++k, power *= decay(j)) c[k] += power;
    }
    return c;
  }

  [[nodiscard]] std::size_t rows() const noexcept { return buffers_.size(); }
  [[nodiscard]] double rounding() const noexcept {
    double share = 0;
    for (std::size_t j = 0; j < buffers_.size(); ++j) {
      share += scale(j) * std::min(1 / (1 - decay(j)), static_cast<double>(steps_));
    }
    return 1 + std::ldexp(share, -cell_bits) * covers_rounding;
  }
  void require_room(double sigma) const {
    if (!(growth_ * most_deviations * sigma < std::ldexp(1.0, 62 - cell_bits))) refuse_noise(sigma);
  }
  void step(std::uint64_t /*t*/, std::int64_t* rows, double (&k)[gaussian_block]) const noexcept {
    for (std::size_t i = 0; i < gaussian_block; ++i) {
      wide_integer sum = wide_integer{1} << (cell_bits + parameter_bits - 1);  // half, so that the shift rounds
      for (std::size_t j = 0; j < buffers_.size(); ++j) {
        sum += wide_integer{buffers_[j].scale} * rows[j * gaussian_block + i];
      }
      const auto n = static_cast<std::int64_t>(k[i]) - static_cast<std::int64_t>(sum >> (cell_bits + parameter_bits));
      k[i] = static_cast<double>(n);
      for (std::size_t j = 0; j < buffers_.size(); ++j) {
        std::int64_t& s = rows[j * gaussian_block + i];
        const wide_integer decayed = wide_integer{buffers_[j].decay} * s + (wide_integer{1} << (parameter_bits - 1));
        s = static_cast<std::int64_t>(decayed >> parameter_bits) + n * (std::int64_t{1} << cell_bits);
      }
    }
  }

 private:
  /// What one unit of fresh noise, or of an error, does to a buffer in all steps together; twice, for both.
  void measure_growth() {
    std::vector<double> s(buffers_.size());
    std::vector<double> sums(buffers_.size());
    double of_noise = 0;
    for (std::uint64_t t = 0; t < steps_; ++t) {
      double n = t == 0 ? 1 : 0;
      for (std::size_t j = 0; j < s.size(); ++j) n -= scale(j) * s[j];
      of_noise += std::abs(n);
      for (std::size_t j = 0; j < s.size(); ++j) {
        s[j] = decay(j) * s[j] + n;
        sums[j] += std::abs(s[j]);
      }
    }
    for (const double sum : sums) of_noise = std::max(of_noise, sum);
    growth_ = 2 * of_noise;
  }

  struct buffer {
    std::int64_t decay;
    std::int64_t scale;
  };
  std::vector<buffer> buffers_;
  std::uint64_t steps_;
  double growth_ = 1;
};

class tree_recursion {
 public:
  using cell = double;
  explicit tree_recursion(std::uint64_t steps) : levels_{static_cast<std::size_t>(std::bit_width(steps))} {}
  [[nodiscard]] std::size_t rows() const noexcept { return levels_; }
  [[nodiscard]] static double rounding() noexcept { return 0; }
  void require_room(double sigma) const {
    if (!(static_cast<double>(levels_) * most_deviations * sigma < 0x1p52)) refuse_noise(sigma);
  }
  /// Row j: the noise of the latest sum over 2^j steps.
  void step(std::uint64_t t, double* rows, double (&k)[gaussian_block]) const noexcept {
    const auto level = static_cast<std::size_t>(std::countr_zero(t + 1));
    double* const own = rows + level * gaussian_block;
    for (std::size_t i = 0; i < gaussian_block; ++i) own[i] = k[i];
    for (std::size_t part = 0; part < level; ++part) {
      const double* const before = rows + part * gaussian_block;
      for (std::size_t i = 0; i < gaussian_block; ++i) k[i] -= before[i];
    }
  }

 private:
  std::size_t levels_;
};

}  // namespace pergrad::inline v0_1::detail
