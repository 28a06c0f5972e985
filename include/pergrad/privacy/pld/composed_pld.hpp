// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/pld/composed_pld.hpp - many steps' privacy losses added up, with what that errs by.
//
// Losses of independent steps add up, so atoms of a composition are convolutions. They are taken of tilted masses: with
// p_i the masses of one kind of step, e_i its losses and theta >= 0,
//     w_i = p_i e^(theta e_i) / M,    p^(*T)_k = w^(*T)_k M^T e^(-theta E_k),
//     delta(E_k) = M^T e^(-theta E_k) sum_{j > k} w^(*T)_j e^(-theta (j - k) h) (1 - e^(-(j - k) h)).
// M is any number (that which makes w sum to about 1). The tilt puts the bulk of w^(*T) where E is near epsilon, so an
// error of 1e-15 of its bulk is a relative error of delta, however small delta is.
//
// * Rounding before the transform: factors of 1 +- so many u of every w_i, upwards in the upper and downwards in the
//   lower side. delta grows with every p_i.
// * Transform (fourier.hpp): a kind's heaviest atom is put at place 0, where its transform is constant and needs no
//   rounding; what is transformed is the rest. So a coefficient z_k of w errs by at most E, the transform's error for
//   the sum of the rest, and 3 u. Powers and products of kinds j, T_j times each, err by at most prod (|z| + E)^T (1 +
//   growth) - prod |z|^T, growth = (1 + 3 u)^(all steps + kinds) - 1. By
//   Parseval's equation the l2 norm of what all atoms err by is the root of the mean square of these over k, plus the
//   transform's own error times the root of the mean square of the moduli. Atoms below 0 are set to 0, which takes them
//   nearer to the truth. The sum over j is a scalar product of atoms and a weight, so by Cauchy and Schwarz it errs by
//   at most the two norms' product: added to the upper and taken from the lower side.
// * Wrap-around: atoms outside of a window of N come out inside of it. That makes the upper side larger only; what it
//   lacks lies above the window, at most tau_high, by Markov's inequality for e^(t E) (Chernoff). The lower side holds
//   at most tau_high + tau_low too much. An atom w adds at most peak = max_y e^(-theta y) (1 - e^-y) to the sum, and at
//   most e^(-theta (top - E_k)) from above the window's top.
// * Mass at infinity: with x the share that a step has there of its mass m, prod m - prod m (1 - x) <= prod m sum x,
//   added to delta. Products are 1 but for rounding.
// * Masses that were cut off, from below: besides the paths of all other atoms, those with exactly one step beyond the
//   cut, and all others not. As (x)+ >= x, these paths S add E_P[(1 - e^(eps - L))+; S] >= P(S) - e^eps Q(S), which is
//   sum_steps p P' - e^eps sum_steps q Q', with p, q of what is beyond, P', Q' the products of the other steps' masses.
// * The sum over j is a recurrence from the top, all of whose terms are positive: a factor 1 +- N (4 (theta + 1) h +
// 32) u.
// * Exponents: |theta E|, |ln M| T and E's own sums times a few u.
// Between grid points the hockey stick of a discrete pair is linear in e^eps, hence so are bounds of it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <pergrad/privacy/pld/fourier.hpp>
#include <pergrad/privacy/pld/pld.hpp>
#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1::detail {

/// What bounds pay for. Tests leave one out, and must see that.
struct all_is_paid {
  static constexpr bool truncation = true;  ///< mass at infinity
  static constexpr bool rounding = true;    ///< of the transform
  static constexpr bool wrap_around = true;
};

/// Where to transform: the tilt, and a window of losses from `lowest`, of `length` points.
struct transform_plan {
  double tilt = 0;
  double lowest = 0;
  std::size_t length = 2;
  double below = 1;  ///< t of the Chernoff bounds below and above the window
  double above = 1;
};

/// A composition's atoms, in a window.
template <pld_side Side, class Pays = all_is_paid>
class composed_pld {
 public:
  static constexpr double u = unit_roundoff;

  double spacing = 1;
  double tilt = 0;
  double lowest = 0;        ///< where the window was wanted to begin
  double origin = 0;        ///< loss of place 0
  double origin_error = 0;  ///< bounds its error
  std::int64_t first = 0;   ///< place of the window's first atom
  double log_scale = 0;     ///< sum T ln M
  double log_scale_error = 0;
  double infinite = 0;  ///< until close(), relative to the mass of all steps
  double lost = 0;      ///< from below: taken off delta
  double beyond_p = 0;  ///< from below: P and Q of paths with one step beyond a cut; until close(), relative to the
  double beyond_q = 0;  ///< logarithms of what all other atoms have
  double log_p = 0;     ///< from above, with what is at infinity
  double log_q = 0;
  double outside_below = 0;  ///< bound of tilted mass
  double outside_above = 0;
  double chernoff_below = 0;  ///< t of the bounds outside of the window
  double chernoff_above = 0;
  double atoms_error = 0;     ///< bounds the l2 norm of what atoms err by
  double atom_error = 0;      ///< bounds what each errs by: the mean of what coefficients do
  std::vector<double> atoms;  ///< tilted; place k is at k mod size

  [[nodiscard]] double loss(std::int64_t place) const noexcept { return origin + static_cast<double>(place) * spacing; }
  /// Where in `atoms` a place is.
  [[nodiscard]] std::size_t place_of(std::int64_t place) const noexcept {
    const auto n = static_cast<std::int64_t>(atoms.size());
    return static_cast<std::size_t>(((place % n) + n) % n);
  }
  /// Bounds the error of loss(): in nats.
  [[nodiscard]] double loss_error() const noexcept {
    const auto last = static_cast<double>(first) + static_cast<double>(atoms.size());
    return origin_error +
           4 * u * (std::abs(origin) + std::max(std::abs(static_cast<double>(first)), std::abs(last)) * spacing);
  }

  /// Calls visit(place, loss, delta) from the top of the window down, until it returns false. delta bounds the hockey
  /// stick at that place from the pair's own side.
  template <class Visitor>
  [[gnu::cold]] void descend(const Visitor& visit) const {
    const double step = std::exp(-tilt * spacing);
    const double step_more = std::exp(-(tilt + 1) * spacing);
    const double gain = -std::expm1(-spacing);
    const double peak = std::exp(tilt * std::log(tilt > 0 ? tilt / (1 + tilt) : 1.0)) / (1 + tilt);
    const auto n = static_cast<std::int64_t>(atoms.size());
    const double rounding = static_cast<double>(n) * (4 * (tilt + 1) * spacing + 32) * u;
    const double top = loss(first + n - 1);
    const double noise = atoms_error * norm_of_weights(step, gain);
    double sum = 0;    // sum_j w_j e^(-theta (j - k) h)
    double stick = 0;  // the same with 1 - e^(-(j - k) h)
    std::size_t at = place_of(first + n - 1);
    const double off = loss_error();
    // Powers are taken anew every 32 places: between them they err by less than 32 (8 + 2 theta h) u < 1e-13.
    const int apart = tilt * spacing < 1 ? 32 : 1;
    const double grown = std::exp(tilt * spacing);
    double scale = 0;  // M^T e^(-theta E_k), to the safe side
    double above = 1;  // e^(-theta (top - E_k))
    int until = 0;
    for (std::int64_t place = first + n - 1; place >= first; --place) {
      const double e = loss(place);
      if (until-- == 0) {
        const double exponent = log_scale - tilt * e;
        const double errs = log_scale_error + tilt * off + 8 * u * (std::abs(log_scale) + tilt * std::abs(e));
        scale = std::exp(Side == upper ? exponent + errs + rounding : std::min(exponent - errs, 700.0));
        above = std::exp(-tilt * (top - e));
        until = apart - 1;
      }
      double delta = 0;
      double outside = 0;
      if (Pays::wrap_around && Side == upper) outside = outside_above * std::min(peak, above);
      if (Pays::wrap_around && Side == lower) outside = (outside_above + outside_below) * peak;
      outside = (outside + (Pays::rounding ? noise : 0.0)) * (1 + 1e-9);
      if constexpr (Side == upper) {
        delta = scale * (stick + outside) * (1 + 1e-12) + infinite + 1e-300;
        if (!(delta < 1)) delta = 1;
      } else {
        const double kept = stick * (1 - rounding) - outside;
        if (kept > 0) delta = std::min(scale, 1e304) * kept * (1 - 1e-12);
        // Only where it is so up to the next point: between them it is taken to be linear in e^eps.
        if (beyond_p > std::exp(e + spacing + off) * beyond_q) {
          delta += (beyond_p - std::exp(e + off) * beyond_q) * (1 - 1e-12);
        }
        delta -= lost;
        if (!(delta > 0)) delta = 0;  // also what is no number
        delta = std::min(delta, 1.0);
      }
      if (!visit(place, e, delta)) return;
      scale *= grown;
      above *= step;
      sum = step * (std::max(atoms[at], 0.0) + sum);
      stick = step_more * stick + gain * sum;
      at = at == 0 ? static_cast<std::size_t>(n) - 1 : at - 1;
    }
  }

  /// Bound of the hockey stick at eps >= 0.
  [[nodiscard]] double delta(double eps) const {
    double result = Side == upper ? 1 : 0;
    double above = Side == upper ? 1 : 0;
    bool any = false;
    const double error = loss_error();
    descend([&](std::int64_t, double e, double here) {
      if (Side == upper ? e + error <= eps : e - error <= eps) {
        // between this point and the one above; the loss is moved to the safe side, as delta falls with it
        const double moved = Side == upper ? eps - error : eps + error;
        const double part = std::clamp(std::expm1(std::max(0.0, moved - e)) / std::expm1(spacing), 0.0, 1.0);
        result = any ? here + (above - here) * part : here;
        result = Side == upper ? std::min(1.0, result + 4 * u * here) : std::max(0.0, result - 4 * u * here);
        if (!any && Side == lower) result = 0;  // above the window
        return false;
      }
      any = true;
      above = here;
      result = Side == upper ? 1 : here;  // eps below the window: 1, and the largest that is known
      return true;
    });
    return result;
  }

  /// What the pair's hockey stick allows a test whose false positives are at most alpha.
  struct test_bounds {
    double hits;     ///< upper bound of the true positives, if false ones are of the second side: e^eps alpha + delta
    double misses;   ///< lower bound of the false negatives, if they are of the second side: e^-eps (1 - alpha - delta)
    double epsilon;  ///< where the first is least
    double delta;
  };
  /// Every eps >= 0 gives valid bounds: the best of those in the window.
  [[nodiscard]] test_bounds test(double alpha) const requires(Side == upper) {
    test_bounds best{1, 0, 0, 1};
    const double off = loss_error();
    descend([&](std::int64_t, double e, double here) {
      if (e < 0) return false;
      const double eps = e + off;  // delta falls with eps, so `here` holds there as well
      const double hits = (std::exp(eps) * alpha + here) * (1 + 1e-14);
      if (hits < best.hits) best.hits = hits, best.epsilon = eps, best.delta = here;
      best.misses = std::max(best.misses, std::exp(-eps) * (1 - alpha - here) * (1 - 1e-14) - 1e-16);
      return true;
    });
    return best;
  }

  /// Bound of the epsilon at delta, at least 0; infinity if there is none.
  [[nodiscard]] double epsilon(double target) const {
    double result = Side == upper ? infinity : 0;
    double above = 0;
    bool any = false;
    const double error = loss_error();
    descend([&](std::int64_t, double e, double here) {
      if (here > target) {
        if (!any) return false;  // nothing is known above the window: infinity or, from below, e
        const double part = std::clamp((here - target) / (here - above), 0.0, 1.0);
        const double between = e + std::log1p(part * std::expm1(spacing));
        const double slack = error + 1e-12 * spacing + 8 * u * std::abs(e);
        result = Side == upper ? std::max(0.0, between + slack) : std::max(0.0, between - slack);
        return false;
      }
      any = true;
      above = here;
      if constexpr (Side == upper) {
        result = std::max(0.0, e + error);
        if (e + error <= 0) return false;
      } else {
        if (e + error + spacing <= 0) return false;
      }
      return true;
    });
    return result;
  }

 private:
  /// Bounds the l2 norm of e^(-theta j h) (1 - e^(-j h)) over j >= 1; step = e^(-theta h), gain = 1 - e^-h.
  [[nodiscard]] double norm_of_weights(double step, double gain) const {
    double squares = 0;
    double power = 1;
    double grown = 0;  // 1 - e^(-j h)
    for (std::size_t j = 0; j < atoms.size() && power > 1e-30; ++j) {
      power *= step;
      grown += gain * (1 - grown);
      squares += power * grown * power * grown;
    }
    return std::sqrt(squares + static_cast<double>(atoms.size()) * 1e-60) * (1 + 1e-8);
  }
};

}  // namespace pergrad::inline v0_1::detail
