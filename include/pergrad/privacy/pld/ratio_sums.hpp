// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/pld/ratio_sums.hpp - the law of the likelihood ratio of t steps, one of which, drawn for each record
// by itself, has the record: random allocation.
//
// Feldman & Shenfeld 2026 (arXiv:2602.17284) compute these losses by sums of exponentials; the bounds here are our own.
// Given the other records' steps, and with z_i the release of step i along the record's gradient,
//     P = 1/t sum_i N(m e_i, 1),   Q = N(0, 1)^t,   dP/dQ = 1/t sum_i r_i,   r_i = e^(m z_i - m^2/2).
// Whoever sees z can make what is released of it step by step, also where gradients depend on what was released: the
// gradient's direction times z_i, and noise for what the gradient lacks of the clip bound. So the pair dominates.
//
// A pair is the law of r = dP/dQ under Q, and mass of P where Q has none. A law that is larger in the convex order
// (spread out, with its mean kept) dominates, in both directions, as (r - a)+ and (1 - a r)+ are convex; a smaller one,
// where values are merged to their mean, is dominated. Sums of independent values keep the order. So S_s = r_1 + ... +
// r_s is taken from S_a and S_b with a + b = s, and after each sum
// * above: the value e^(i h) + e^(j h) is spread to the two neighbours among e^(k h). It lies log1p(e^(-|i - j| h)) / h
//   points above the larger one: places and shares depend on |i - j| alone. What is below the grid is spread to 0 and
//   its lowest point, what is above it to its top and infinity.
// * below: values are merged that come to the same cell, which holds their mass and their mass times value.
// h falls with s such that each sum adds about `widening` of the final variance, (e^(m^2) - 1) / t.
//
// Rounding. A spread value's mean errs by a factor 1 + 16 u, that of a single step by its bucket's ends and masses; all
// of that is a factor of r, which adds up to value_error, by which losses are moved up in the end. Masses are sums of
// products, all positive: they err by the two factors' errors and by so many u as there are terms.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <pergrad/privacy/pld/gaussian_mass.hpp>
#include <pergrad/privacy/pld/pld.hpp>
#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1::detail {

/// Laws of a sum S of `steps` values r, from above and from below, about points e^((first + i) h).
struct sum_of_ratios {
  double steps = 1;
  double spacing = 1;
  std::int64_t first = 0;
  std::vector<double> above;         ///< Q-mass at a point
  std::vector<double> below;         ///< Q-mass of the cell between a point and the next
  std::vector<double> below_values;  ///< the same times its value
  double nil = 0;                    ///< above: Q-mass at S = 0
  double infinite = 0;               ///< above: P-mass where Q has none
  double mass_error = 0;             ///< bounds relative errors
  double value_error = 0;

  [[nodiscard]] double log_value(std::size_t i) const noexcept {
    return static_cast<double>(first + static_cast<std::int64_t>(i)) * spacing;
  }
};

/// Adds ratios up. A template, so that programs which do not account do not compile it.
template <class = void>
class ratio_sums {
 public:
  static constexpr double u = unit_roundoff;
  static constexpr double widening = 2e-5;
  static constexpr double widest = 0.02;  ///< of all h

  /// `m`: 1 / noise multiplier, m + deviations <= 37; `tail`: mass that may be left outside, about.
  ratio_sums(double m, double deviations, double tail) : m_{m}, z_{deviations}, tail_{tail} {}

  /// Points of a law that `of` makes, about.
  [[nodiscard]] double points(std::uint64_t steps) const noexcept {
    return (0.7 + m_ * (2 * z_ + m_)) / spacing_for(static_cast<double>(steps));
  }
  /// Precondition: 1 <= steps <= 2^24.
  [[nodiscard]] sum_of_ratios of(std::uint64_t steps) const {
    // From the highest bit of `steps` down: the law of the number s of its upper bits, and that of s + 1 where it will
    // be needed.
    const auto bits_below = [&](int bit) { return (steps & ((std::uint64_t{1} << bit) - 1)) != 0; };
    int bit = static_cast<int>(std::bit_width(steps)) - 1;
    sum_of_ratios low = one();
    sum_of_ratios high;  // of the same spacing
    if (bits_below(bit)) high = sum(low, low, low.spacing);
    while (bit-- > 0) {
      const bool odd = (steps >> bit & 1U) != 0;
      const double h = spacing_for(static_cast<double>(steps >> bit));
      sum_of_ratios next_high;
      if (bits_below(bit)) next_high = odd ? sum(high, high, h) : sum(low, high, h);
      low = odd ? sum(low, high, h) : sum(low, low, h);
      high = std::move(next_high);
    }
    return low;
  }

 private:
  [[nodiscard]] double spacing_for(double steps) const noexcept {
    return std::min(widest, std::sqrt(6 * widening * std::expm1(m_ * m_) / steps));
  }

  /// The law of r. Bucket i is [u_i, u_{i+1}], where ln r is at e_i = m u_i - m^2/2.
  [[nodiscard]] sum_of_ratios one() const {
    sum_of_ratios made;
    const double h = coarse_spacing(spacing_for(1));
    made.spacing = h;
    const auto log_ratio = [&](double at) { return m_ * at - m_ * m_ / 2; };
    made.first = static_cast<std::int64_t>(std::floor(log_ratio(-z_) / h));
    const auto n = static_cast<std::size_t>(std::ceil(log_ratio(m_ + z_) / h) - static_cast<double>(made.first)) + 1;
    made.above.assign(n, 0.0);
    made.below.assign(n, 0.0);
    made.below_values.assign(n, 0.0);
    double worst = 0;
    const auto place = [&](std::size_t i) { return made.log_value(i) / m_ + m_ / 2; };
    const auto mass = [&](double from, double to, double width, double centre) {
      const interval_mass found = interval(from - centre, to - centre, width, 2 * centre);
      worst = std::max(worst, found.error);
      return found.mass;
    };
    for (std::size_t i = 0; i + 1 < n; ++i) {
      const double from = place(i);
      const double to = place(i + 1);
      const double q = mass(from, to, to - from, 0);
      const double p = mass(from, to, to - from, m_);
      const double value = std::exp(made.log_value(i));
      const double up = std::clamp((p / value - q) / std::expm1(h), 0.0, q);
      made.above[i] += q - up;
      made.above[i + 1] += up;
      made.below[i] += q;
      made.below_values[i] += p;
    }
    {  // below the grid: to 0 and the lowest point
      const double q = mass(-infinity, place(0), infinity, 0);
      const double p = mass(-infinity, place(0), infinity, m_);
      const double kept = std::min(q, p / std::exp(made.log_value(0)));
      made.above[0] += kept;
      made.nil = q - kept;
      made.below[0] += q;
      made.below_values[0] += p;
    }
    {  // above it: to its top and infinity
      const double q = mass(place(n - 1), infinity, infinity, 0);
      const double p = mass(place(n - 1), infinity, infinity, m_);
      made.above[n - 1] += q;
      made.infinite = std::max(0.0, p - q * std::exp(made.log_value(n - 1)) * (1 - 64 * u)) * (1 + 64 * u) + 1e-300;
      made.below[n - 1] += q;
      made.below_values[n - 1] += p;
    }
    // ln r of a bucket's end errs by some u of what it is made of.
    const double size = m_ * (z_ + 2 * m_) + m_ * m_ + 1;
    made.value_error = 32 * u * size + 2 * worst + 64 * u;
    made.mass_error = worst + 64 * u;
    return made;
  }

  /// Of a grid whose spacing is a half, a fourth, ... of that of a and b, such that it is at most `wanted`.
  [[nodiscard]] sum_of_ratios sum(const sum_of_ratios& a, const sum_of_ratios& b, double wanted) const {
    sum_of_ratios made;
    made.steps = a.steps + b.steps;
    std::int64_t finer = 1;  // points of the sum for each of a and b
    for (double h = a.spacing; h > wanted; h /= 2) finer *= 2;
    const double h = made.spacing = a.spacing / static_cast<double>(finer);
    const auto end_of = [](const sum_of_ratios& x) { return x.first + static_cast<std::int64_t>(x.above.size()); };
    made.first = std::min(a.first, b.first) * finer;
    const auto rise = static_cast<std::int64_t>(std::ceil(0.6931471805599454 / h)) + 1;  // ln 2
    const auto n = static_cast<std::size_t>((std::max(end_of(a), end_of(b)) - 1) * finer + rise + 1 - made.first);
    made.above.assign(n, 0.0);
    made.below.assign(n, 0.0);
    made.below_values.assign(n, 0.0);
    const bool same = &a == &b;
    for (std::int64_t apart = 0; apart < end_of(a) - b.first; ++apart) {
      add_pairs(a, b, apart, finer, same && apart > 0 ? 2 : 1, made);
    }
    for (std::int64_t apart = 1; apart < end_of(b) - a.first && !same; ++apart) add_pairs(b, a, apart, finer, 1, made);
    const auto with_nil = [&](const sum_of_ratios& x, double nil) {
      for (std::size_t i = 0; i < x.above.size(); ++i) {
        const std::int64_t place = (x.first + static_cast<std::int64_t>(i)) * finer - made.first;
        made.above[static_cast<std::size_t>(place)] += nil * x.above[i];
      }
    };
    with_nil(a, b.nil);
    with_nil(b, a.nil);
    made.nil = a.nil * b.nil;
    made.infinite = (a.steps * a.infinite + b.steps * b.infinite) / made.steps * (1 + 8 * u);
    made.value_error = std::max(a.value_error, b.value_error) + 16 * u;
    made.mass_error = a.mass_error + b.mass_error + a.mass_error * b.mass_error +
                      u * (8 * static_cast<double>(a.above.size() + b.above.size()) + 64);
    trim(made);
    return made;
  }

  /// Adds all pairs whose larger value is in x, `apart` points above that of y.
  static void add_pairs(const sum_of_ratios& x, const sum_of_ratios& y, std::int64_t apart, std::int64_t finer,
                        double times, sum_of_ratios& made) {
    // i: in x; i - apart: in y
    const std::int64_t from = std::max(x.first, y.first + apart);
    const std::int64_t to = std::min(x.first + static_cast<std::int64_t>(x.above.size()),
                                     y.first + apart + static_cast<std::int64_t>(y.above.size()));
    if (from >= to) return;
    const double h = made.spacing;
    const double risen = std::log1p(std::exp(-static_cast<double>(apart) * x.spacing));
    const auto whole = static_cast<std::int64_t>(std::floor(risen / h));
    const double up = std::clamp(std::expm1(risen - static_cast<double>(whole) * h) / std::expm1(h), 0.0, 1.0) * times;
    const double stay = times - up;
    const auto pointer = [](const std::vector<double>& of, std::int64_t i) { return of.data() + i; };
    const double* const ax = pointer(x.above, from - x.first);
    const double* const ay = pointer(y.above, from - apart - y.first);
    const double* const bx = pointer(x.below, from - x.first);
    const double* const by = pointer(y.below, from - apart - y.first);
    const double* const vx = pointer(x.below_values, from - x.first);
    const double* const vy = pointer(y.below_values, from - apart - y.first);
    const std::int64_t place = from * finer + whole - made.first;
    double* const above = made.above.data() + place;
    double* const below = made.below.data() + place;
    double* const values = made.below_values.data() + place;
    const std::int64_t n = to - from;
    if (finer == 1) {
      for (std::int64_t i = 0; i < n; ++i) above[i] += stay * (ax[i] * ay[i]);
      for (std::int64_t i = 0; i < n; ++i) above[i + 1] += up * (ax[i] * ay[i]);
      for (std::int64_t i = 0; i < n; ++i) below[i] += times * (bx[i] * by[i]);
      for (std::int64_t i = 0; i < n; ++i) values[i] += times * (vx[i] * by[i] + bx[i] * vy[i]);
    } else {
      for (std::int64_t i = 0; i < n; ++i) {
        const std::int64_t at = i * finer;
        const double both = ax[i] * ay[i];
        above[at] += stay * both;
        above[at + 1] += up * both;
        below[at] += times * (bx[i] * by[i]);
        values[at] += times * (vx[i] * by[i] + bx[i] * vy[i]);
      }
    }
  }

  /// Cuts the ends off where hardly any mass is.
  void trim(sum_of_ratios& x) const {
    const double most = tail_ / 64;
    std::size_t top = x.above.size() - 1;
    double mass = 0;
    double values = 0;  // P-mass
    for (double cut = 0; top > 0; --top) {
      const double value = std::exp(x.log_value(top)) / x.steps;
      cut += x.above[top] * value;
      if (cut > most) break;
      mass += x.above[top];
      values = cut;
    }
    x.above[top] += mass;
    x.infinite = (x.infinite + values) * (1 + 64 * u * static_cast<double>(x.above.size()));
    std::size_t low = 0;
    double nil = 0;
    double kept = 0;
    for (double cut = 0; low < top; ++low) {
      cut += x.above[low];
      if (cut > most) break;
      nil = cut;
      kept += x.above[low] * std::exp(x.log_value(low));
    }
    kept = std::min(nil, kept / std::exp(x.log_value(low)));
    x.above[low] += kept;
    x.nil += nil - kept;
    const auto gather = [&](std::vector<double>& of) {
      for (std::size_t i = 0; i < low; ++i) of[low] += of[i];
      for (std::size_t i = of.size() - 1; i > top; --i) of[top] += of[i];
    };
    gather(x.below);
    gather(x.below_values);
    for (std::vector<double>* of : {&x.above, &x.below, &x.below_values}) {
      of->resize(top + 1);
      of->erase(of->begin(), of->begin() + static_cast<std::ptrdiff_t>(low));
    }
    x.first += static_cast<std::int64_t>(low);
    x.mass_error += 4 * u * static_cast<double>(low + 64);
    x.value_error += 4 * u * static_cast<double>(low + 64);
  }

  double m_;
  double z_;
  double tail_;
};

}  // namespace pergrad::inline v0_1::detail
