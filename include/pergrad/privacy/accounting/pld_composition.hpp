// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/accounting/pld_composition.hpp - many steps' privacy losses added up, with what that errs by.
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
//   growth) - prod |z|^T, growth = (1 + 3 u)^(all steps + kinds) - 1. The inverse errs by the mean of these over k,
//   plus the transform's own error times the mean of the moduli. That one number is added to every atom of the upper
//   side and taken from every atom of the lower one, atoms then being at least 0.
// * Wrap-around: atoms outside of a window of N come out inside of it. That makes the upper side larger only; what it
//   lacks lies above the window, at most tau_high, by Markov's inequality for e^(t E) (Chernoff). The lower side holds
//   at most tau_high + tau_low too much. An atom w adds at most peak = max_y e^(-theta y) (1 - e^-y) to the sum, and at
//   most e^(-theta (top - E_k)) from above the window's top.
// * Mass at infinity: at most the sum over steps, added to delta.
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

#include <pergrad/privacy/accounting/fourier.hpp>
#include <pergrad/privacy/accounting/pld.hpp>

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
  double infinite = 0;
  double outside_below = 0;  ///< bound of tilted mass
  double outside_above = 0;
  double chernoff_below = 0;  ///< t of the bounds outside of the window
  double chernoff_above = 0;
  double atom_error = 0;
  std::vector<double> atoms;  ///< tilted; place k is at k mod size

  [[nodiscard]] double loss(std::int64_t place) const noexcept { return origin + static_cast<double>(place) * spacing; }
  /// Bounds the error of loss(): in nats.
  [[nodiscard]] double loss_error() const noexcept {
    const auto last = static_cast<double>(first) + static_cast<double>(atoms.size());
    return origin_error +
           4 * u * (std::abs(origin) + std::max(std::abs(static_cast<double>(first)), std::abs(last)) * spacing);
  }

  /// Calls visit(place, loss, delta) from the top of the window down, until it returns false. delta bounds the hockey
  /// stick at that place from the pair's own side.
  template <class Visitor>
  void descend(const Visitor& visit) const {
    const double step = std::exp(-tilt * spacing);
    const double step_more = std::exp(-(tilt + 1) * spacing);
    const double gain = -std::expm1(-spacing);
    const double peak = std::exp(tilt * std::log(tilt > 0 ? tilt / (1 + tilt) : 1.0)) / (1 + tilt);
    const auto n = static_cast<std::int64_t>(atoms.size());
    const double rounding = static_cast<double>(n) * (4 * (tilt + 1) * spacing + 32) * u;
    const double top = loss(first + n - 1);
    double sum = 0;    // sum_j w_j e^(-theta (j - k) h)
    double stick = 0;  // the same with 1 - e^(-(j - k) h)
    std::size_t at = place_of(first + n - 1);
    const double error = loss_error();
    for (std::int64_t place = first + n - 1; place >= first; --place) {
      const double e = loss(place);
      const double exponent = log_scale - tilt * e;
      const double exponent_error = log_scale_error + tilt * error + 8 * u * (std::abs(log_scale) + tilt * std::abs(e));
      double delta = 0;
      double outside = 0;
      if (Pays::wrap_around && Side == upper) outside = outside_above * std::min(peak, std::exp(-tilt * (top - e)));
      if (Pays::wrap_around && Side == lower) outside = (outside_above + outside_below) * peak;
      outside *= 1 + 1e-9;
      if constexpr (Side == upper) {
        delta = std::exp(exponent + exponent_error + rounding) * (stick + outside) * (1 + 1e-12) + infinite + 1e-300;
        if (!(delta < 1)) delta = 1;
      } else {
        const double kept = stick * (1 - rounding) - outside;
        if (kept > 0) delta = std::exp(std::min(exponent - exponent_error, 700.0)) * kept * (1 - 1e-12);
        if (!(delta > 0)) delta = 0;  // also what is no number
        delta = std::min(delta, 1.0);
      }
      if (!visit(place, e, delta)) return;
      const double atom = Side == upper ? std::max(atoms[at], 0.0) + (Pays::rounding ? atom_error : 0.0)
                                        : std::max(atoms[at] - (Pays::rounding ? atom_error : 0.0), 0.0);
      sum = step * (atom + sum);
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
  [[nodiscard]] std::size_t place_of(std::int64_t place) const noexcept {
    const auto n = static_cast<std::int64_t>(atoms.size());
    return static_cast<std::size_t>(((place % n) + n) % n);
  }
};

/// So many steps of one kind, on a grid; none and no count: nothing.
template <pld_side Side>
struct counted_pld {
  const pld<Side>* step = nullptr;
  std::uint64_t count = 0;
};

/// Composes two lists of steps at the price of one: one is the real, the other the imaginary part.
template <class Pays = all_is_paid>
class pld_composer {
 public:
  static constexpr double u = unit_roundoff;

  explicit pld_composer(std::size_t length)
      : transform_{length}, data_(length), product_(length), reach_(length), gap_(length) {}

  /// Composes all kinds; first(i), second(i) are counted_pld, used until the next i is asked for. `plans`: of the two.
  /// Precondition: at least one kind, all of one spacing; counts are at least 1, their sum at most 2^40. Counts of 0
  /// for all of the second: there is none.
  template <pld_side First, pld_side Second, class FirstKind, class SecondKind>
  void compose(std::size_t kinds, const FirstKind& first_kind, const transform_plan& first_plan,
               const SecondKind& second_kind, const transform_plan& second_plan, composed_pld<First, Pays>& first_sum,
               composed_pld<Second, Pays>& second_sum) {
    const std::size_t n = transform_.length();
    start(first_plan, first_sum);
    start(second_plan, second_sum);
    double steps = 0;
    bool has_second = false;
    for (std::size_t kind = 0; kind < kinds; ++kind) {
      const counted_pld<First> first = first_kind(kind);
      const counted_pld<Second> second = second_kind(kind);
      const std::uint64_t count = first.count;
      const std::uint64_t second_count = second.count;
      has_second = second_count != 0;
      std::fill(data_.begin(), data_.end(), complex_number{});
      const part of_first = add_kind<First, &complex_number::real>(first, first_plan, first_sum);
      part of_second;
      if (has_second) of_second = add_kind<Second, &complex_number::imaginary>(second, second_plan, second_sum);
      transform_.forward(data_.data());
      const double weight = of_first.others + of_second.others;
      const double error = (transform_.error() + 2 * u) * weight * (1 + 1e-6) + 3 * u + 1e-290;
      steps += static_cast<double>(std::max(count, second_count)) + 1;
      for (std::size_t place = 0; place < n; ++place) {
        const std::size_t other = transform_.mirrored(place);
        if (other < place) continue;
        const complex_number x = data_[place];
        const complex_number y = conjugate(data_[other]);
        const complex_number sum = x + y;
        const complex_number difference = x - y;
        const complex_number a{sum.real / 2 + of_first.heaviest, sum.imaginary / 2};
        const complex_number b{difference.imaginary / 2 + of_second.heaviest, -difference.real / 2};
        if (other == place) {  // both are real there
          complex_number both;
          multiply({a.real, 0}, count, error, kind == 0, {product_[place].real, 0}, both, reach_[place], gap_[place]);
          complex_number second_value;
          double reach = 0;
          double gap = 0;
          const std::size_t at = place == 0 ? 0 : 1;
          multiply({b.real, 0}, second_count, error, kind == 0, {product_[place].imaginary, 0}, second_value,
                   kind == 0 ? reach : lone_reach_[at], kind == 0 ? gap : lone_gap_[at]);
          if (kind == 0) {
            lone_reach_[at] = reach;
            lone_gap_[at] = gap;
          }
          product_[place] = {both.real, second_value.real};
        } else {
          multiply(a, count, error, kind == 0, product_[place], product_[place], reach_[place], gap_[place]);
          multiply(b, second_count, error, kind == 0, product_[other], product_[other], reach_[other], gap_[other]);
        }
      }
    }
    finish(steps, has_second, first_sum, second_sum);
  }

 private:
  /// Tilted masses of a kind: one atom, and the sum of all others.
  struct part {
    double heaviest = 0;
    double others = 0;
  };

  template <pld_side Side>
  static void start(const transform_plan& plan, composed_pld<Side, Pays>& made) {
    made.tilt = plan.tilt;
    made.lowest = plan.lowest;
    made.chernoff_below = plan.below;
    made.chernoff_above = plan.above;
    made.origin = made.origin_error = made.log_scale = made.log_scale_error = made.infinite = 0;
    made.outside_below = made.outside_above = 0;  // exponents, until close()
  }

  /// Tilts a kind's masses and adds them, all but the heaviest, to a part of data_, from whose place on they are
  /// counted.
  template <pld_side Side, double complex_number::*Part>
  part add_kind(const counted_pld<Side>& kind, const transform_plan& plan, composed_pld<Side, Pays>& made) {
    const pld<Side>& step = *kind.step;
    const std::size_t n = transform_.length();
    const double theta = plan.tilt;
    double weight = 0;
    double shift = -largest_double;
    for (std::size_t i = 0; i < step.masses.size(); ++i) {
      if (step.masses[i] > 0) shift = std::max(shift, theta * step.loss(i) + std::log(step.masses[i]));
    }
    std::vector<double>& tilted = tilted_;
    tilted.assign(step.masses.size(), 0.0);
    const double folds =
        40 + static_cast<double>(step.masses.size()) / static_cast<double>(n);  // additions in one place
    for (std::size_t i = 0; i < step.masses.size(); ++i) {
      const double mass = step.masses[i];
      if (!(mass > 0)) continue;
      const double exponent = theta * step.loss(i);
      // A product may overflow where the sum of logarithms does not.
      const bool direct = std::abs(exponent) + std::abs(shift) < 600 && mass > 1e-30;
      const double logarithm = direct ? 0 : std::log(mass);
      const double value = direct ? mass * std::exp(exponent - shift) : std::exp(exponent + logarithm - shift);
      const double errs = u * (6 * std::abs(exponent) + 6 * std::abs(shift) + 12 * std::abs(logarithm) + folds);
      tilted[i] = Side == upper ? value * (1 + errs) : value * std::max(0.0, 1 - errs);
      weight += tilted[i];
    }
    // w = tilted / weight: exact up to one rounding, in the safe direction. ln M = shift + ln weight.
    const auto count = static_cast<double>(kind.count);
    made.spacing = step.spacing;
    const auto heaviest = static_cast<std::size_t>(std::max_element(tilted.begin(), tilted.end()) - tilted.begin());
    made.origin += count * step.loss(heaviest);
    made.origin_error += 4 * u * (std::abs(count * step.loss(heaviest)) + std::abs(made.origin));
    if (Side == upper && Pays::truncation) made.infinite += count * step.infinite * (1 + 1e-9);
    const double log_weight = std::log(weight);
    made.log_scale += count * (shift + log_weight);
    made.log_scale_error +=
        count * (8 * u * (std::abs(shift) + std::abs(log_weight)) + 1e-300) + 16 * u * std::abs(made.log_scale);
    const double inverse = (Side == upper ? 1 + 4 * u : 1 - 4 * u) / weight;
    part made_of;
    std::size_t at = (n - heaviest % n) % n;
    for (std::size_t i = 0; i < tilted.size(); ++i) {
      tilted[i] *= inverse;
      if (i == heaviest) {
        made_of.heaviest = tilted[i];
      } else {
        made_of.others += tilted[i];
        data_[at].*Part += tilted[i];
      }
      at = at + 1 == n ? 0 : at + 1;
    }
    made.outside_below += count * log_moment(step, tilted, -plan.below) + 16 * u * std::abs(made.outside_below);
    made.outside_above += count * log_moment(step, tilted, plan.above) + 16 * u * std::abs(made.outside_above);
    return made_of;
  }

  /// Bounds ln sum_i w_i e^(t e_i) from above.
  template <pld_side Side>
  [[nodiscard]] static double log_moment(const pld<Side>& step, const std::vector<double>& w, double t) {
    const auto n = static_cast<std::int64_t>(w.size());
    const std::int64_t nil = std::clamp(-step.first / pld<Side>::parts, std::int64_t{0}, n - 1);  // about loss 0
    const std::int64_t end = t > 0 ? n - 1 : 0;  // where powers are largest; they are relative to it if they overflow
    const std::int64_t from = std::abs(t * step.loss(static_cast<std::size_t>(end))) < 650 ? nil : end;
    double sum = 1e-300;  // what is below the smallest number
    double power = 1;
    const double up = std::exp(t * step.spacing);
    for (std::int64_t i = from; i < n; ++i, power *= up) {
      const double mass = w[static_cast<std::size_t>(i)];
      if (mass > 0) sum += mass * power;
    }
    const double down = std::exp(-t * step.spacing);
    power = down;
    for (std::int64_t i = from; i-- > 0; power *= down) {
      const double mass = w[static_cast<std::size_t>(i)];
      if (mass > 0) sum += mass * power;
    }
    // A power errs by a factor 1 + (4 |t| h + 12) u for each of its steps.
    const double errs = u * (static_cast<double>(n) * (4 * std::abs(t) * step.spacing + 16) + 64);
    const double start = t * step.loss(static_cast<std::size_t>(from));
    return start + std::log(sum) + errs + 4 * u * std::abs(start);
  }

  /// into = before value^count, with the logarithm of what its modulus can be in exact arithmetic, and that of how much
  /// smaller the computed one is.
  static void multiply(complex_number value, std::uint64_t count, double error, bool first, complex_number before,
                       complex_number& into, double& reach, double& gap) {
    if (first) reach = gap = 0;
    if (count == 0) reach = -760;
    if (reach < -745) {  // nothing is left
      into = {0, 0};
      return;
    }
    const double modulus = std::hypot(value.real, value.imaginary);
    const auto times = static_cast<double>(count);
    const double largest = modulus + error;
    if (times * (largest - 1) < -760) {  // ln x <= x - 1
      reach = -760;
      gap = infinity;
      into = {0, 0};
      return;
    }
    reach += times * (std::log(largest) + 8 * u);
    gap += modulus > 0 ? times * (std::log1p(error / modulus) + 8 * u) : infinity;
    const complex_number result = power(value, count);
    into = first ? result : before * result;
  }

  template <pld_side First, pld_side Second>
  void finish(double steps, bool has_second, composed_pld<First, Pays>& first, composed_pld<Second, Pays>& second) {
    const std::size_t n = transform_.length();
    const double growth = std::expm1(3 * u * steps * 1.0001);
    double errors = 0;
    double moduli = 0;
    const auto count_errors = [&](double reach, double gap, double times) {
      const double largest = std::exp(reach) * (1 + 1e-9) * (1 + growth);
      errors += times * (largest * std::min(1.0, -std::expm1(-gap) * (1 + 1e-9)) + largest * (growth + 8 * u) + 1e-300);
      moduli += times * largest;
    };
    for (std::size_t place = 0; place < n; ++place) {
      const std::size_t other = transform_.mirrored(place);
      if (other < place) continue;
      if (other == place) {
        count_errors(reach_[place], gap_[place], 1);
        count_errors(lone_reach_[place == 0 ? 0 : 1], lone_gap_[place == 0 ? 0 : 1], 1);
        data_[place] = product_[place];
        continue;
      }
      count_errors(reach_[place], gap_[place], 2);
      count_errors(reach_[other], gap_[other], 2);
      const complex_number a = product_[place];
      const complex_number b = product_[other];
      data_[place] = {a.real - b.imaginary, a.imaginary + b.real};
      data_[other] = {a.real + b.imaginary, -a.imaginary + b.real};
    }
    transform_.backward(data_.data());
    const auto length = static_cast<double>(n);
    const double atom_error =
        (errors + (transform_.error() + 2 * u) * (moduli + errors)) / length * (1 + length * 4 * u + 1e-9) + 1e-280;
    first.atom_error = second.atom_error = atom_error;
    first.atoms.resize(n);
    for (std::size_t i = 0; i < n; ++i) first.atoms[i] = data_[i].real / length;
    close(first);
    if (!has_second) return;
    second.atoms.resize(n);
    for (std::size_t i = 0; i < n; ++i) second.atoms[i] = data_[i].imaginary / length;
    close(second);
  }

  template <pld_side Side>
  void close(composed_pld<Side, Pays>& made) const {
    made.first = static_cast<std::int64_t>(std::floor((made.lowest - made.origin) / made.spacing));
    const auto n = static_cast<double>(transform_.length());
    const double error = made.loss_error();
    const double lowest = made.loss(made.first) + error;
    const double highest = made.loss(made.first) + n * made.spacing - error;
    made.outside_below = bounded(made.outside_below + made.chernoff_below * lowest, made.chernoff_below * lowest);
    made.outside_above = bounded(made.outside_above - made.chernoff_above * highest, made.chernoff_above * highest);
  }
  [[nodiscard]] static double bounded(double exponent, double term) {
    const double tau = std::exp(exponent + 16 * u * (std::abs(term) + std::abs(exponent - term)));
    return tau < 1 ? tau : 1;  // also what is no number
  }

  fourier_transform<> transform_;
  std::vector<complex_number> data_;
  std::vector<complex_number> product_;
  std::vector<double> reach_;
  std::vector<double> gap_;
  std::vector<double> tilted_;
  double lone_reach_[2] = {};
  double lone_gap_[2] = {};
};

}  // namespace pergrad::inline v0_1::detail
