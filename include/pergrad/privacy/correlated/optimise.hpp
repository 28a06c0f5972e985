// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/correlated/optimise.hpp - coefficients of correlated noise for what is trained
//
// What noise does to a run is what it does to the iterates. SGD with momentum m and rates r_t maps released sums h to
// iterates by a lower-triangular A: v_t = m v_(t-1) + h_t, x_t = x_(t-1) - r_t v_t (up to the divisor). With n = C^-1
// z, z of deviation sigma sens(C), the squared error of iterate t is sigma² sens(C)² ‖row t of A C^-1‖². What is made
// small is its mean over t, or that of the last one (arXiv:2306.08153, arXiv:2404.16706): `squared_error` of a strategy
// for sigma = 1, by BFGS. Coefficients are numbers like others: sensitivity and epsilon are right for any of them.
//
// Banded C with no more bands than steps between two participations: sens(C)² is proportional to sum c_k². Gradient:
// with A Toeplitz of w, B = w / c and g = B / c (as power series), d‖row‖²/dc_k = -2 sum_i B_i g_(i-k); with rates that
// change, the same with the columns of A C^-1 and A C^-2.
#pragma once

// clang-format off
#include <pergrad/detail/beside_the_umbrella.hpp>  // before anything is defined
// clang-format on

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <pergrad/detail/error_text.hpp>
#include <pergrad/privacy/correlated/participation.hpp>
#include <pergrad/privacy/correlated/recursions.hpp>
#include <pergrad/privacy/correlated/strategies.hpp>

namespace pergrad::inline v0_1 {

/// Which error is made small: the mean of all iterates', or the last one's, which is the largest with rates that are
/// all the same.
enum class iterate_error { mean, last };

/// What is trained: SGD, for so many steps.
struct sgd_workload {
  std::uint64_t steps = 0;
  double momentum = 0;          ///< in [0, 1)
  std::vector<double> rates{};  ///< one a step, by public numbers; empty: all the same. Takes steps² time and memory
  iterate_error error = iterate_error::mean;

  /// Throws std::invalid_argument for numbers that are none.
  void require() const {
    detail::require_strategy(steps);
    if (!(momentum >= 0 && momentum < 1)) {
      detail::throw_invalid_argument({"pergrad: sgd_workload: momentum must be in [0, 1), got ", momentum});
    }
    if (!rates.empty() && rates.size() != steps) {
      detail::throw_invalid_argument({"pergrad: sgd_workload: ", rates.size(), " rates for ", steps, " steps"});
    }
    for (std::size_t step = 0; step < rates.size(); ++step) {
      if (!std::isfinite(rates[step])) {
        detail::throw_invalid_argument({"pergrad: sgd_workload: the rate of step ", step, " is ", rates[step]});
      }
    }
  }
};

namespace detail {

/// What becomes of `input` behind step `first`, as iterates.
inline void iterates_of(const sgd_workload& of, std::span<const double> input, std::size_t first,
                        std::span<double> iterates) {
  double velocity = 0;
  double iterate = 0;
  for (std::size_t t = first; t < iterates.size(); ++t) {
    velocity = of.momentum * velocity + input[t - first];
    iterate += (of.rates.empty() ? 1 : of.rates[t]) * velocity;
    iterates[t] = iterate;
  }
}

/// Share of iterate t's error in what is made small.
[[nodiscard]] inline double weight_of(const sgd_workload& of, std::size_t t) noexcept {
  const auto n = static_cast<std::size_t>(of.steps);
  if (of.error == iterate_error::mean) return 1 / static_cast<double>(n);
  return t + 1 == n ? 1 : 0;
}

/// Share of all that stands i below the diagonal of A C^-1, where that is Toeplitz.
[[nodiscard]] inline double weight_of_diagonal(const sgd_workload& of, std::size_t i) noexcept {
  const auto n = static_cast<double>(of.steps);
  return of.error == iterate_error::mean ? (n - static_cast<double>(i)) / n : 1;
}

/// ‖A C^-1‖², weighted, of x = 1 / c.
[[nodiscard]] inline double error_of_inverse(const sgd_workload& of, std::span<const double> x) {
  const auto n = static_cast<std::size_t>(of.steps);
  std::vector<double> column(n);
  double sum = 0;
  if (of.rates.empty()) {
    iterates_of(of, x, 0, column);
    for (std::size_t i = 0; i < n; ++i) sum += weight_of_diagonal(of, i) * column[i] * column[i];
    return sum;
  }
  for (std::size_t j = 0; j < n; ++j) {
    iterates_of(of, x, j, column);
    for (std::size_t t = j; t < n; ++t) sum += weight_of(of, t) * column[t] * column[t];
  }
  return sum;
}

[[nodiscard]] inline double sum_of_squares(std::span<const double> of) noexcept {
  double sum = 0;
  for (const double each : of) sum += each * each;
  return sum;
}

/// ln(sum c² ‖A C^-1‖²) of banded c, c_0 = 1, and its gradient in c_1, c_2, ..., if wanted
[[nodiscard]] inline double banded_loss(const sgd_workload& of, std::span<const double> behind_diagonal,
                                        std::vector<double>* gradient) {
  const auto n = static_cast<std::size_t>(of.steps);
  const std::size_t bands = behind_diagonal.size() + 1;
  std::vector<double> c(1, 1.0);
  c.insert(c.end(), behind_diagonal.begin(), behind_diagonal.end());
  const auto x = inverse_series(c, n);
  if (gradient == nullptr) return std::log(sum_of_squares(c)) + std::log(error_of_inverse(of, x));
  std::vector<double> twice(n);  // 1 / c²
  for (std::size_t t = 0; t < n; ++t) {
    twice[t] = x[t];
    for (std::size_t k = 1; k < bands && k <= t; ++k) twice[t] -= c[k] * twice[t - k];
  }
  double error = 0;
  std::vector<double> derivative(bands);
  if (of.rates.empty()) {
    std::vector<double> b(n);
    std::vector<double> g(n);
    iterates_of(of, x, 0, b);
    iterates_of(of, twice, 0, g);
    for (std::size_t i = 0; i < n; ++i) {
      const double weighted = weight_of_diagonal(of, i) * b[i];
      error += weighted * b[i];
      for (std::size_t k = 1; k < bands && k <= i; ++k) derivative[k] -= 2 * weighted * g[i - k];
    }
  } else {
    std::vector<double> columns(n * n);  // of A C^-2, one after the other
    for (std::size_t j = 0; j < n; ++j) iterates_of(of, twice, j, std::span{columns}.subspan(j * n, n));
    std::vector<double> b(n);
    for (std::size_t j = 0; j < n; ++j) {
      iterates_of(of, x, j, b);
      for (std::size_t t = j; t < n; ++t) {
        const double weighted = weight_of(of, t) * b[t];
        error += weighted * b[t];
        b[t] = weighted;
      }
      for (std::size_t k = 1; k < bands && j + k < n; ++k) {
        double dot = 0;
        for (std::size_t t = j + k; t < n; ++t) dot += b[t] * columns[(j + k) * n + t];
        derivative[k] -= 2 * dot;
      }
    }
  }
  const double square = sum_of_squares(c);
  for (std::size_t k = 1; k < bands; ++k) (*gradient)[k - 1] = 2 * c[k] / square + derivative[k] / error;
  return std::log(square) + std::log(error);
}

/// A minimum of f near `x`, by BFGS with backtracking (Nocedal and Wright, chapter 6). f(x, gradient) returns the
/// value, not finite where x is none.
template <class Function>
void minimise(std::vector<double>& x, const Function& f) {
  constexpr int most_iterations = 500;
  const std::size_t n = x.size();
  std::vector<double> gradient(n);
  std::vector<double> inverse(n * n);
  for (std::size_t i = 0; i < n; ++i) inverse[i * n + i] = 1;
  double value = f(x, &gradient);
  std::vector<double> direction(n);
  std::vector<double> tried(n);
  std::vector<double> next(n);
  std::vector<double> image(n);
  bool is_fresh = true;
  for (int iteration = 0; iteration < most_iterations; ++iteration) {
    double slope = 0;
    for (std::size_t i = 0; i < n; ++i) {
      direction[i] = 0;
      for (std::size_t j = 0; j < n; ++j) direction[i] -= inverse[i * n + j] * gradient[j];
      slope += direction[i] * gradient[i];
    }
    if (!(slope < -1e-26)) return;
    double length = 1;
    double reached = value;
    for (; length > 1e-9; length /= 2) {
      for (std::size_t i = 0; i < n; ++i) tried[i] = x[i] + length * direction[i];
      reached = f(tried, nullptr);
      if (std::isfinite(reached) && reached <= value + 1e-4 * length * slope) break;
    }
    if (!(length > 1e-9)) {
      if (is_fresh) return;
      std::fill(inverse.begin(), inverse.end(), 0.0);
      for (std::size_t i = 0; i < n; ++i) inverse[i * n + i] = 1;
      is_fresh = true;
      continue;
    }
    f(tried, &next);
    double curvature = 0;
    for (std::size_t i = 0; i < n; ++i) curvature += (tried[i] - x[i]) * (next[i] - gradient[i]);
    if (curvature > 0) {
      double quadratic = 0;
      for (std::size_t i = 0; i < n; ++i) {
        image[i] = 0;
        for (std::size_t j = 0; j < n; ++j) image[i] += inverse[i * n + j] * (next[j] - gradient[j]);
        quadratic += image[i] * (next[i] - gradient[i]);
      }
      for (std::size_t i = 0; i < n; ++i) {
        const double moved = tried[i] - x[i];
        for (std::size_t j = 0; j < n; ++j) {
          const double other = tried[j] - x[j];
          inverse[i * n + j] += (1 + quadratic / curvature) * moved * other / curvature -
                                (image[i] * other + moved * image[j]) / curvature;
        }
      }
      is_fresh = false;
    }
    const double gained = value - reached;
    x.swap(tried);
    gradient.swap(next);
    value = reached;
    if (gained <= 1e-14 * std::abs(value)) return;
  }
}

/// Coefficients of sqrt(1 / ((1 - x)(1 - m x))): c with C² = A, which is nearly optimal (Henzinger et al. 2022; Kalinin
/// and Lampert 2024).
[[nodiscard]] inline std::vector<double> square_root_coefficients(double momentum, std::size_t count) {
  std::vector<double> of_one(count);
  double binomial = 1;
  for (std::size_t k = 0; k < count; ++k) {
    of_one[k] = binomial;
    binomial *= (2 * static_cast<double>(k) + 1) / (2 * static_cast<double>(k) + 2);
  }
  std::vector<double> c(count);
  for (std::size_t k = 0; k < count; ++k) {
    double power = 1;
    for (std::size_t i = 0; i <= k; ++i, power *= momentum) c[k] += of_one[k - i] * of_one[i] * power;
  }
  return c;
}

}  // namespace detail

/// The error of iterates under noise of multiplier 1, in units of one record's bound, squared: what strategies are
/// compared by. `coefficients`: c_0 = 1, c_1, ...; 0 behind them.
[[nodiscard]] inline double squared_error(const sgd_workload& of, std::span<const double> coefficients,
                                          participation pattern) {
  of.require();
  pattern.steps = of.steps;
  return squared_toeplitz_sensitivity(coefficients, pattern) *
         detail::error_of_inverse(of, detail::inverse_series(coefficients, static_cast<std::size_t>(of.steps)));
}

/// The best noise of so many bands for records whose steps are at least as many apart. Takes about a second for
/// thousands of steps or a hundred bands. Throws std::invalid_argument for no bands, or more than steps.
[[nodiscard]] inline banded_noise optimal_banded_noise(const sgd_workload& of, std::size_t bands) {
  of.require();
  if (bands == 0 || bands > of.steps) {
    detail::throw_invalid_argument({"pergrad: optimal_banded_noise: from 1 to ", of.steps, " bands, got ", bands});
  }
  auto c = detail::square_root_coefficients(of.momentum, bands);
  c.erase(c.begin());
  detail::minimise(c, [&](const std::vector<double>& at, std::vector<double>* gradient) {
    return detail::banded_loss(of, at, gradient);
  });
  return {of.steps, c};
}

/// The best noise of so many buffers for records that take part as `pattern` says. Throws std::invalid_argument for no
/// buffers.
[[nodiscard]] inline buffered_noise optimal_buffered_noise(const sgd_workload& of, std::size_t buffers,
                                                           participation pattern) {
  of.require();
  if (buffers == 0 || buffers > 16) {
    detail::throw_invalid_argument({"pergrad: optimal_buffered_noise: from 1 to 16 buffers, got ", buffers});
  }
  const auto n = static_cast<std::size_t>(of.steps);
  pattern.steps = of.steps;
  // Variables: ln(h / (1 - h)) and ln w of each buffer. Begins with memories from 1 to n steps in geometric progression
  // and with sum_j w_j h_j^k like 1 / sqrt(k).
  const auto parameters = [&](const std::vector<double>& x, std::vector<double>& decays, std::vector<double>& scales) {
    for (std::size_t j = 0; j < buffers; ++j) {
      decays[j] = 1 / (1 + std::exp(-x[j]));
      scales[j] = std::exp(x[buffers + j]);
    }
  };
  std::vector<double> decays(buffers);
  std::vector<double> scales(buffers);
  std::vector<double> c(n);
  std::vector<double> inverse(n);
  std::vector<double> s(buffers);
  const auto value = [&](const std::vector<double>& x) {
    parameters(x, decays, scales);
    double sum = 0;
    for (const double each : scales) sum += each;
    if (!(sum <= 1)) return detail::infinity;
    std::fill(c.begin(), c.end(), 0.0);
    std::fill(s.begin(), s.end(), 0.0);
    c[0] = 1;
    for (std::size_t j = 0; j < buffers; ++j) {
      double power = scales[j];
      for (std::size_t k = 1; k < n && power > 1e-30; ++k, power *= decays[j]) c[k] += power;
    }
    for (std::size_t t = 0; t < n; ++t) {
      double made = t == 0 ? 1 : 0;
      for (std::size_t j = 0; j < buffers; ++j) made -= scales[j] * s[j];
      for (std::size_t j = 0; j < buffers; ++j) s[j] = decays[j] * s[j] + made;
      inverse[t] = made;
    }
    return std::log(squared_toeplitz_sensitivity(c, pattern)) + std::log(detail::error_of_inverse(of, inverse));
  };
  std::vector<double> x(2 * buffers);
  for (std::size_t j = 0; j < buffers; ++j) {
    const double memory =
        std::pow(static_cast<double>(n) + 1, (static_cast<double>(j) + 0.5) / static_cast<double>(buffers));
    x[j] = std::log(memory);
    x[buffers + j] = std::log(0.5 / (std::sqrt(memory) * static_cast<double>(buffers)));
  }
  detail::minimise(x, [&](const std::vector<double>& at, std::vector<double>* gradient) {
    if (gradient == nullptr) return value(at);
    std::vector<double> moved = at;
    constexpr double h = 1e-5;
    for (std::size_t i = 0; i < at.size(); ++i) {
      moved[i] = at[i] + h;
      const double above = value(moved);
      moved[i] = at[i] - h;
      const double below = value(moved);
      moved[i] = at[i];
      (*gradient)[i] = (above - below) / (2 * h);
    }
    return value(at);
  });
  parameters(x, decays, scales);
  return {of.steps, decays, scales};
}

}  // namespace pergrad::inline v0_1
