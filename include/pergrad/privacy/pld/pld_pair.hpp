// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/pld/pld_pair.hpp - what neighbours see of one step, as two mixtures of Gaussians on a line whose loss
// rises: the loss and its inverse, masses of intervals, and P - e^e Q of an interval without cancellation.
//
// sampled: D = (1 - q) phi(u) + q phi(u - m) against phi, as in pld.hpp.
// replaced: the record is drawn with probability q, and another one stands in its place among the neighbours. With
// g, g' the two gradients, |g|, |g'| <= 1 (the clip bound), the sides see (1 - q) N(0) + q N(g) and the same with g'.
// For a >= 1 and any set S with N(g)-mass p, Neyman and Pearson bound the other two masses from below,
//     N(0)(S) >= Phi(Phi^-1(p) - |g|),    N(g')(S) >= Phi(Phi^-1(p) - |g - g'|),
// so P(S) - a Q(S) = q p - (1 - q)(a - 1) N(0)(S) - a q N(g')(S) is largest for |g| = 1, |g - g'| = 2, where half-lines
// attain both: g = -g'. That pair dominates (a < 1 by swapping sides):
//     P = (1 - q) phi(u) + q phi(u - m),    Q = (1 - q) phi(u) + q phi(u + m),
//     l(u) = ln (kappa + e^(u m)) / (kappa + e^(-u m)),    kappa = (1 - q)/q e^(m^2/2),
//     l(u) = e:  sinh(u m - e/2) = kappa sinh(e/2).
// Both sides are mirror images, so losses of (Q, P) are those of (P, Q).
#pragma once

#include <algorithm>
#include <cmath>

#include <pergrad/privacy/pld/fourier.hpp>
#include <pergrad/privacy/pld/gaussian_mass.hpp>
#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1::detail {

/// One kind of step, and where its grid ends.
struct continuous_step {
  double q;           ///< sampling probability, in (0, 1]
  double m;           ///< 1 / noise multiplier
  double m_error;     ///< bounds the relative error of m, in units of roundoff; at most 2^20
  double deviations;  ///< the grid reaches so many deviations beyond the means of Gaussians
};

/// Masses of an interval under the Gaussians of a pair; `lowered` is left empty where Q has no part of its own.
struct pair_masses {
  interval_mass rest{0, 0};     ///< N(0, 1)
  interval_mass raised{0, 0};   ///< N(m, 1)
  interval_mass lowered{0, 0};  ///< N(-m, 1)

  void add(const pair_masses& other) noexcept {
    add(rest, other.rest);
    add(raised, other.raised);
    add(lowered, other.lowered);
  }
  /// Bounds what quotients of them err by, relatively.
  [[nodiscard]] double error() const noexcept { return rest.error + raised.error + lowered.error; }

 private:
  static void add(interval_mass& to, const interval_mass& part) noexcept {
    to = {to.mass + part.mass, std::max(to.error, part.error + unit_roundoff)};
  }
};

/// What both pairs share. A template, so that programs which do not account do not compile it.
template <class = void>
class gaussian_mixture {
 public:
  static constexpr double u = unit_roundoff;

  explicit gaussian_mixture(const continuous_step& step) noexcept
      : q_{step.q}, m_{step.m}, rest_{1 - step.q}, z_{step.deviations}, m_units_{8 + step.m_error} {}

 protected:
  [[nodiscard]] static double above(const interval_mass& x) noexcept { return x.mass * (1 + x.error); }
  [[nodiscard]] static double below(const interval_mass& x) noexcept { return x.mass * std::max(0.0, 1 - x.error); }
  /// Bounds the error of factor x; 1e-320 is for masses below the smallest normal number.
  [[nodiscard]] static double error_of(double factor, const interval_mass& x) noexcept {
    return factor * (x.mass * (x.error + 32 * u) + 1e-320);
  }
  [[nodiscard]] interval_mass mass(double from, double to, double width, double centre) const noexcept {
    return interval(from - centre, to - centre, width, std::abs(centre) * (m_units_ / 8));
  }

  double q_;
  double m_;
  double rest_;
  double z_;
  double m_units_;
};

template <class = void>
class sampled_pair : public gaussian_mixture<> {
 public:
  using gaussian_mixture<>::gaussian_mixture;
  static constexpr bool is_symmetric = false;

  /// An end of a bucket, at loss e.
  struct point {
    double at;      ///< u
    double xi;      ///< bounds |l(at) - e|
    double k;       ///< e^e - (1 - q)
    double k_size;  ///< k is right to 16 u of this
  };

  [[nodiscard]] double loss(double at) const noexcept {
    const double w = at * m_ - m_ * m_ / 2;
    if (q_ == 1) return w;
    return w < 30 ? std::log1p(q_ * std::expm1(w)) : std::log(q_) + w + std::log1p(rest_ / q_ * std::exp(-w));
  }
  [[nodiscard]] double lowest() const noexcept { return -z_; }
  [[nodiscard]] double highest() const noexcept { return m_ + z_; }
  /// ln of Q's density, without 1 / sqrt(2 pi); for estimates.
  [[nodiscard]] double log_density(double at) const noexcept { return -at * at / 2; }

  [[nodiscard]] point point_at(double e) const noexcept {
    point made{};
    if (e < -0.5) {
      made.k = std::exp(e) - rest_;
      made.k_size = std::exp(e) + rest_;
    } else {
      made.k = std::expm1(e) + q_;
      made.k_size = std::abs(std::expm1(e)) + q_;
    }
    made.k_size *= 4;
    if (!(made.k > 0)) {  // no u has so low a loss; ln(1 - q) is within rounding of e, or above
      made.at = -infinity;
      made.xi = 16 * u * made.k_size * std::exp(-e);
      return made;
    }
    const double logarithm = std::log(made.k / q_);
    made.at = logarithm / m_ + m_ / 2;
    // dl/du = m k e^-e; u errs by the errors of k, of the logarithm and of its own operations.
    made.xi = 16 * u * std::exp(-e) *
              (made.k_size + made.k * (std::abs(logarithm) + m_units_ / 8 * (m_ * std::abs(made.at) + m_ * m_)));
    return made;
  }
  [[nodiscard]] pair_masses between(double from, double to, double width) const noexcept {
    return {mass(from, to, width, 0), mass(from, to, width, m_), {0, 0}};
  }
  /// Bounds of P and Q.
  [[nodiscard]] double most_p(const pair_masses& x) const noexcept {
    return rest_ * above(x.rest) + q_ * above(x.raised);
  }
  [[nodiscard]] double least_p(const pair_masses& x) const noexcept {
    return rest_ * below(x.rest) + q_ * below(x.raised);
  }
  [[nodiscard]] double most_q(const pair_masses& x) const noexcept { return above(x.rest); }
  [[nodiscard]] double least_q(const pair_masses& x) const noexcept { return below(x.rest); }
  /// P - e^e Q, and what it errs by: no more than the rounding of numbers of the size of q, as k is computed as
  /// expm1(e) + q where that is the better way.
  [[nodiscard]] double difference(const point& at, const pair_masses& x) const noexcept {
    return q_ * x.raised.mass - at.k * x.rest.mass;
  }
  [[nodiscard]] double difference_error(const point& at, const pair_masses& x) const noexcept {
    return error_of(q_, x.raised) + error_of(at.k_size, x.rest);
  }
};

/// Precondition: q < 1; both are Gaussians of sensitivity 2 otherwise.
template <class = void>
class replaced_pair : public gaussian_mixture<> {
 public:
  static constexpr bool is_symmetric = true;

  struct point {
    double at;
    double xi;
    double less;   ///< e^e - 1
    double grown;  ///< e^e
  };

  explicit replaced_pair(const continuous_step& step) noexcept
      : gaussian_mixture<>{step}, log_kappa_{std::log(rest_) - std::log(q_) + m_ * m_ / 2} {}

  [[nodiscard]] double loss(double at) const noexcept {
    const double a = std::abs(at * m_);
    const double value = a < 30 ? std::log1p(2 * std::sinh(a) * std::exp(-log_sum(-a))) : log_sum(a) - log_sum(-a);
    return at < 0 ? -value : value;
  }
  [[nodiscard]] double lowest() const noexcept { return -m_ - z_; }
  [[nodiscard]] double highest() const noexcept { return m_ + z_; }
  [[nodiscard]] double log_density(double at) const noexcept {
    const double w = -at * m_ - m_ * m_ / 2;
    return -at * at / 2 + (w < 30 ? std::log1p(q_ * std::expm1(w)) : std::log(q_) + w);
  }

  [[nodiscard]] point point_at(double e) const noexcept {
    point made{};
    made.less = std::expm1(e);
    made.grown = std::exp(e);
    const double half = std::abs(e) / 2;
    // ln of kappa sinh(half); b = asinh of it; all of this is odd in e
    const double log_x = half > 0 ? log_kappa_ + half + std::log(-std::expm1(-2 * half) / 2) : -infinity;
    const double x = std::exp(std::min(log_x, 25.0));
    const double b = log_x > 25 ? log_x + 0.69314718055994530942 : std::log1p(x + x * x / (1 + std::sqrt(1 + x * x)));
    const double a = std::copysign(half + b, e);
    made.at = a / m_;
    // a errs by its sum, and by the relative error of x times at most min(1, x); dl/da is at most 2, and small where
    // kappa is large.
    const double size = std::abs(log_kappa_) + m_units_ / 4 * m_ * m_ + std::abs(std::log(rest_)) + half + 8;
    const double steps = std::abs(a) * (m_units_ / 4 + 4) + std::min(1.0, x) * size;
    const double slope = 1 / (1 + std::exp(log_kappa_ - a)) + 1 / (1 + std::exp(log_kappa_ + a));
    made.xi = 32 * u * slope * steps;
    return made;
  }
  [[nodiscard]] pair_masses between(double from, double to, double width) const noexcept {
    return {mass(from, to, width, 0), mass(from, to, width, m_), mass(from, to, width, -m_)};
  }
  [[nodiscard]] double most_p(const pair_masses& x) const noexcept {
    return rest_ * above(x.rest) + q_ * above(x.raised);
  }
  [[nodiscard]] double least_p(const pair_masses& x) const noexcept {
    return rest_ * below(x.rest) + q_ * below(x.raised);
  }
  [[nodiscard]] double most_q(const pair_masses& x) const noexcept {
    return rest_ * above(x.rest) + q_ * above(x.lowered);
  }
  [[nodiscard]] double least_q(const pair_masses& x) const noexcept {
    return rest_ * below(x.rest) + q_ * below(x.lowered);
  }
  [[nodiscard]] double difference(const point& at, const pair_masses& x) const noexcept {
    return q_ * (x.raised.mass - at.grown * x.lowered.mass) - rest_ * at.less * x.rest.mass;
  }
  [[nodiscard]] double difference_error(const point& at, const pair_masses& x) const noexcept {
    return error_of(q_, x.raised) + error_of(q_ * at.grown, x.lowered) + error_of(rest_ * std::abs(at.less), x.rest);
  }

 private:
  /// ln(kappa + e^a)
  [[nodiscard]] double log_sum(double a) const noexcept {
    const double larger = std::max(a, log_kappa_);
    return larger + std::log1p(std::exp(-std::abs(a - log_kappa_)));
  }

  double log_kappa_;
};

}  // namespace pergrad::inline v0_1::detail
