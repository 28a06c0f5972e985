// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/pld/pld_step.hpp - the privacy loss of one Poisson-sampled Gaussian step on a grid, from above and
// from below. The notation is that of pld.hpp.
//
// Grid. Losses e_i = (first + i 2^24) h 2^-24 with whole `first` and h of 8 significant bits: every e_i is exact in
// double. Bounds u_i of buckets are doubles near l^-1(e_i) and exact by definition. Let
//     xi_i bound |l(u_i) - e_i|,    M0, M1 the mass of bucket [u_i, u_{i+1}] under N(0, 1) and N(m, 1),
//     k_i = e^(e_i) - (1 - q),      num = q M1 - k_i M0,     b = num / (1 - e^-h),      a = P - b.
// Then a at e_i and b at e_{i+1} have the bucket's P and Q, and the difference num loses no more than the rounding of
// numbers of the size of q, as k_i is computed as expm1(e_i) + q where that is the better way.
//
// Upper (connect the dots, Doroshenko et al. 2022, arXiv:2207.04380, from masses). If the bucket's losses are in
// [e_i, e_{i+1}], a and b spread it. So does any b' >= b with a' >= P - b', as that is more mass at a larger loss. The
// losses are only in [e_i - xi, e_{i+1} + xi]: clamped to the bucket they change by at most xi, which changes b by at
// most P xi e^xi / (1 - e^-h), added to b', and all atoms are then moved up by xi, which the fraction
// f = (1 - e^-xi) / (1 - e^-h) of them going to the next grid point dominates. Mass below e_0 goes to e_0, mass above
// the last point to infinity.
//
// Lower. Every half of a bucket is merged to one atom, at loss c = ln(P/Q), written as a at e_i and b at e_{i+1}. The
// rounded b is at most b P'/P for the mass P' <= P that is kept, so c is not rounded up either; where rounding hides
// whether b > 0, the half is left out. Atoms lie off the grid.
// At every grid point a part of what is below it is merged with a part of what is above it: of bucket i, atoms that are
// below a cut go to e_i, the rest to e_{i+1}, a cut atom in two parts. The merged loss at e_i is at least e_i, to which
// it is rounded down, if
//     sum_{bucket i, to e_i} b (1 - e^-h) >= sum_{bucket i - 1, to e_i} a (e^h - 1),   i.e.  sum b >= e^h sum a.
// Equality loses nothing. Cuts are found from both ends, each with equality where it can be had, and joined in the
// bucket where least is lost. Mass above the last point is rounded down to it, mass below e_0 left out. Where all mass
// is far closer together than h, most of it has to be at a grid point: `first` is chosen such that least is lost among
// the lowest losses.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <pergrad/privacy/pld/gaussian_mass.hpp>
#include <pergrad/privacy/pld/pld.hpp>
#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1::detail {

/// One kind of step, and where its grid ends.
struct continuous_step {
  double q;           ///< sampling probability, in (0, 1]
  double m;           ///< 1 / noise multiplier
  double m_error;     ///< bounds the relative error of m, in units of roundoff; at most 2^20
  double deviations;  ///< the grid reaches from u = -deviations to m + deviations
};

/// Makes the grids of one step; a template, so that programs which do not account do not compile it.
template <class = void>
class step_discretiser {
 public:
  static constexpr double u = unit_roundoff;
  static constexpr std::size_t most_points = std::size_t{1} << 18;
  static constexpr double least_mass = 1e-300;  // more than what is below the smallest number in all buckets

  explicit step_discretiser(const continuous_step& step) noexcept
      : q_{step.q}, m_{step.m}, rest_{1 - step.q}, z_{step.deviations}, m_units_{8 + step.m_error} {}

  /// Loss at u, for estimates.
  [[nodiscard]] double loss(double at) const noexcept {
    const double w = at * m_ - m_ * m_ / 2;
    if (q_ == 1) return w;
    return w < 30 ? std::log1p(q_ * std::expm1(w)) : std::log(q_) + w + std::log1p(rest_ / q_ * std::exp(-w));
  }
  [[nodiscard]] double lowest_loss() const noexcept { return loss(-z_); }
  [[nodiscard]] double highest_loss() const noexcept { return loss(m_ + z_); }

  /// Points that a grid of spacing h would have.
  [[nodiscard]] double points(double h) const noexcept { return (highest_loss() - lowest_loss()) / h + 6; }

  /// Precondition: h > 0 has 8 significant bits, points(h) <= most_points, |losses| < 2^20 h.
  [[nodiscard]] discrete_step on_grid(double h) const {
    const double anchor = anchor_of(h);
    const double unit = h / static_cast<double>(pld<upper>::parts);
    const auto before = static_cast<std::int64_t>(std::floor((lowest_loss() - anchor) / h)) - 2;
    const auto behind = static_cast<std::int64_t>(std::ceil((highest_loss() - anchor) / h)) + 1;
    const auto n = static_cast<std::size_t>(behind - before);  // buckets; one more point
    discrete_step made;
    made.remove.spacing = made.remove_below.spacing = made.add.spacing = h;
    made.remove.first = static_cast<std::int64_t>(std::llround(anchor / unit)) + before * pld<upper>::parts;
    made.remove_below.first = made.remove.first;
    made.add.first = -(made.remove.first + static_cast<std::int64_t>(n) * pld<upper>::parts);
    made.remove.masses.assign(n + 2, 0.0);  // the last one takes what xi moves up
    made.add.masses.assign(n + 2, 0.0);
    std::vector<double>& up = made.remove.masses;
    std::vector<double>& add = made.add.masses;  // add[n - i] is at loss -e_i
    std::vector<piece> halves(2 * n);            // of buckets, for the lower side
    const double scale = -std::expm1(-h);

    point here = point_at(made.remove.loss(0));
    {
      const interval_mass m0 = mass_below(here.at, 0);
      const interval_mass m1 = mass_below(here.at, m_);
      up[0] += more(rest_ * above(m0) + q_ * above(m1));
      made.add.infinite = more(above(m0)) + least_mass;
    }
    for (std::size_t i = 0; i < n; ++i) {
      point next = point_at(made.remove.loss(i + 1));
      next.at = std::max(next.at, here.at);
      const double middle = std::clamp(point_at(made.remove.loss(i) + h / 2).at, here.at, next.at);
      interval_mass m0{0, 0};
      interval_mass m1{0, 0};
      for (const bool second : {false, true}) {
        const double from = second ? middle : here.at;
        const double to = second ? next.at : middle;
        const interval_mass half0 = interval(from, to, to - from, 0.0);
        const interval_mass half1 = interval(from - m_, to - m_, to - from, m_ * (m_units_ / 8));
        halves[2 * i + (second ? 1 : 0)] = piece_of(here, half0, half1, scale);
        m0 = {m0.mass + half0.mass, std::max(m0.error, half0.error + u)};
        m1 = {m1.mass + half1.mass, std::max(m1.error, half1.error + u)};
      }
      const double xi = 1.01 * std::max(here.xi, next.xi);
      const double shift = std::min(1.0, xi / scale);
      {  // remove
        const double mass = more(rest_ * above(m0) + q_ * above(m1));
        const double num = q_ * m1.mass - here.k * m0.mass;
        const double error = error_of(here, m0, m1);
        const double b = std::clamp(more((num + error) / scale) + mass * shift, 0.0, mass);
        const double a = more(mass - b);
        up[i] += a * more(1 - shift);
        up[i + 1] += more(a * shift + b * more(1 - shift));
        up[i + 2] += more(b * shift);
      }
      {  // add: from -e_{i+1} to -e_i
        const double mass = more(above(m0));
        const double factor = std::exp(-made.remove.loss(i + 1));
        const double num = next.k * m0.mass - q_ * m1.mass;
        const double error = error_of(next, m0, m1);
        const double b = std::clamp(more(factor * (num + error) / scale) + mass * shift, 0.0, mass);
        const double a = more(mass - b);
        const std::size_t top = n - i;  // -e_i
        add[top - 1] += a * more(1 - shift);
        add[top] += more(a * shift + b * more(1 - shift));
        add[top + 1] += more(b * shift);
      }
      here = next;
    }
    const interval_mass m0 = mass_above(here.at, 0);
    const interval_mass m1 = mass_above(here.at, m_);
    made.remove.infinite = more(rest_ * above(m0) + q_ * above(m1)) + least_mass;
    add[0] += more(above(m0));
    const double top = (rest_ * m0.mass * std::max(0.0, 1 - m0.error) + q_ * m1.mass * std::max(0.0, 1 - m1.error));
    made.remove_below.masses = merged(halves, top * (1 - 8 * u), h);
    // What was added up above came to every place in at most six parts.
    for (double& each : up) each *= 1 + 16 * u;
    for (double& each : add) each *= 1 + 16 * u;
    return made;
  }

 private:
  struct point {
    double at;      // u
    double k;       // e^e - (1 - q)
    double k_size;  // k is right to 16 u of this
    double xi;      // bounds |l(at) - e|
  };

  /// Bounds the error of q M1 - k M0; 1e-320 is for masses below the smallest normal number.
  [[nodiscard]] double error_of(const point& at, const interval_mass& m0, const interval_mass& m1) const noexcept {
    return q_ * (m1.mass * (m1.error + 32 * u) + 1e-320) + at.k_size * (m0.mass * (m0.error + 32 * u) + 1e-320);
  }

  /// Half of a bucket, merged, as a is at the bucket's lower point and b at its upper one.
  struct piece {
    double kept;  // P'
    double high;  // b
    [[nodiscard]] double low() const noexcept { return kept - high; }
  };
  [[nodiscard]] piece piece_of(const point& here, const interval_mass& m0, const interval_mass& m1,
                               double scale) const noexcept {
    const double num = q_ * m1.mass - here.k * m0.mass;
    const double error = error_of(here, m0, m1);
    const double relative = m0.error + m1.error + 64 * u;
    if (!(num > error)) return {0, 0};  // it may lie below e_i, and is left out
    const double kept = (rest_ * m0.mass + q_ * m1.mass) * std::max(0.0, 1 - relative);
    return {kept, std::clamp((num - error) / scale * (1 - 2 * relative - 64 * u), 0.0, kept)};
  }

  [[nodiscard]] static double more(double x) noexcept { return x * (1 + 32 * u); }
  [[nodiscard]] static double above(const interval_mass& x) noexcept { return x.mass * (1 + x.error); }

  [[nodiscard]] interval_mass mass_below(double at, double centre) const noexcept {
    return interval(-infinity, at - centre, infinity, centre * (m_units_ / 8));
  }
  [[nodiscard]] interval_mass mass_above(double at, double centre) const noexcept {
    return interval(at - centre, infinity, infinity, centre * (m_units_ / 8));
  }

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

  /// Where grid points are best: such that merging loses least among the lowest losses, where densities are steep.
  [[nodiscard]] double anchor_of(double h) const {
    if (q_ == 1) return 0;
    constexpr std::size_t buckets = 128;
    constexpr double golden = 0.61803398874989484820;
    const double lowest = lowest_loss();
    const double scale = -std::expm1(-h);
    std::vector<piece> halves(2 * buckets);
    const auto lost = [&](double part) {
      point here = point_at(lowest + (part - 3) * h);
      for (std::size_t i = 0; i < buckets; ++i) {
        point next = point_at(lowest + (part + static_cast<double>(i) - 2) * h);
        next.at = std::max(next.at, here.at);
        const double middle =
            std::clamp(point_at(lowest + (part + static_cast<double>(i) - 2.5) * h).at, here.at, next.at);
        for (const bool second : {false, true}) {
          const double from = second ? middle : here.at;
          const double to = second ? next.at : middle;
          halves[2 * i + (second ? 1 : 0)] =
              piece_of(here, interval(from, to, to - from, 0.0), interval(from - m_, to - m_, to - from, 0.0), scale);
        }
        here = next;
      }
      return merging{halves, h, 1}.lost;
    };
    constexpr int tries = 16;
    double best = 0;
    double least = infinity;
    for (int i = 0; i < tries; ++i) {
      const double part = static_cast<double>(i) / tries;
      const double here = lost(part);
      if (here < least) {
        least = here;
        best = part;
      }
    }
    double low = best - 1.0 / tries;
    double high_end = best + 1.0 / tries;
    for (int i = 0; i < 30 && least > 0; ++i) {
      const double left = high_end - golden * (high_end - low);
      const double right = low + golden * (high_end - low);
      const double at_left = lost(left);
      const double at_right = lost(right);
      if (std::min(at_left, at_right) < least) {
        least = std::min(at_left, at_right);
        best = at_left < at_right ? left : right;
      }
      (at_left < at_right ? high_end : low) = at_left < at_right ? right : left;
    }
    return lowest + best * h;
  }

  /// Cuts of buckets for merging: what lies below the cut goes to the bucket's lower point. A cut of c in [0, 1] is
  /// that fraction of the first half, one of 1 + c all of it and that fraction of the second.
  struct merging {
    const std::vector<piece>& halves;
    std::vector<double> rising;   // by balancing upwards, for buckets below `join`
    std::vector<double> falling;  // by balancing downwards, for buckets above
    std::size_t join = 0;
    double lost = infinity;

    [[nodiscard]] double cut(std::size_t i) const noexcept {
      return i < join ? rising[i] : i > join ? falling[i] : std::max(rising[i], falling[i]);
    }
    /// What goes down has at the lower point, and what goes up lacks at the upper one, in units of a and b.
    [[nodiscard]] double has(std::size_t i, double c) const noexcept {
      return std::min(c, 1.0) * halves[2 * i].high + std::max(c - 1, 0.0) * halves[2 * i + 1].high;
    }
    [[nodiscard]] double lacks(std::size_t i, double c) const noexcept {
      return std::max(1 - c, 0.0) * halves[2 * i].low() + std::min(2 - c, 1.0) * halves[2 * i + 1].low();
    }
    /// The least cut that has `needed`, which is at most has(i, 2), up to rounding upwards.
    [[nodiscard]] double cut_that_has(std::size_t i, double needed) const noexcept {
      const double first = halves[2 * i].high;
      if (needed <= 0) return 0;
      const double c = needed <= first ? needed / first : 1 + (needed - first) / halves[2 * i + 1].high;
      return std::min(2.0, c + 8 * u);
    }
    /// The least cut that lacks at most `most`, up to rounding upwards.
    [[nodiscard]] double cut_that_lacks(std::size_t i, double most) const noexcept {
      const double first = halves[2 * i].low();
      const double second = halves[2 * i + 1].low();
      if (most >= first + second) return 0;
      const double c = most < second ? 2 - most / second : 1 - (most - second) / first;
      return std::clamp(c + 8 * u, 0.0, 2.0);
    }

    /// `of`: two pieces for each bucket, the first bucket empty.
    merging(const std::vector<piece>& of, double h, double last)
        : halves{of}, rising(of.size() / 2), falling(of.size() / 2) {
      const std::size_t n = rising.size();
      const double grown = std::exp(h) * (1 + 1e-12);  // the margin is for the rounding of all that follows
      const auto slack = [&](std::size_t i, double c, double c_before) {
        return has(i, c) - lacks(i - 1, c_before) * grown;
      };
      rising[0] = 2;
      for (std::size_t i = 1; i < n; ++i) {
        const double needed = lacks(i - 1, rising[i - 1]) * grown;
        const double all = has(i, 2);
        if (needed <= all) {
          rising[i] = cut_that_has(i, needed);
        } else {  // less of the bucket before goes up
          rising[i] = 2;
          rising[i - 1] = std::max(rising[i - 1], cut_that_lacks(i - 1, all / grown));
        }
      }
      falling[n - 1] = last;
      for (std::size_t i = n - 1; i-- > 0;) falling[i] = cut_that_lacks(i, has(i + 1, falling[i + 1]) / grown);
      double before = has(0, rising[0]);  // lost by rising, at the lower points of buckets below the last
      for (std::size_t i = 1; i + 1 < n; ++i) before += slack(i, rising[i], rising[i - 1]);
      double behind = 0;  // lost by falling
      for (std::size_t i = n; i-- > 1;) {
        // join in bucket i; `before` holds points 0 ... i - 1, `behind` those from i + 2
        const double c = std::max(rising[i], falling[i]);
        double total = before + slack(i, c, rising[i - 1]);
        if (i + 1 < n) total += slack(i + 1, falling[i + 1], c) + behind;
        if (total < lost) {
          lost = total;
          join = i;
        }
        if (i + 1 < n) behind += slack(i + 1, falling[i + 1], falling[i]);
        before -= i > 1 ? slack(i - 1, rising[i - 1], rising[i - 2]) : 0.0;
      }
    }
  };

  /// Masses of the lower side; `top`: mass above the last point.
  [[nodiscard]] static std::vector<double> merged(const std::vector<piece>& halves, double top, double h) {
    const merging found{halves, h, 2};
    const std::size_t n = halves.size() / 2;
    std::vector<double> masses(n + 1, 0.0);
    for (std::size_t i = 0; i < n; ++i) {
      const double c = found.cut(i);
      const double first = halves[2 * i].kept * (1 - 8 * u);
      const double second = halves[2 * i + 1].kept * (1 - 8 * u);
      masses[i] += std::min(c, 1.0) * first + std::max(c - 1, 0.0) * second;
      masses[i + 1] += std::max(1 - c, 0.0) * first + std::min(2 - c, 1.0) * second;
    }
    masses[n] += top;
    return masses;
  }

  double q_;
  double m_;
  double rest_;
  double z_;
  double m_units_;
};

}  // namespace pergrad::inline v0_1::detail
