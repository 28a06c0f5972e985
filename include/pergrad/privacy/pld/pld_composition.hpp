// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/pld/pld_composition.hpp - transforms that add up the losses of many steps; composed_pld.hpp says what
// for, and what they err by.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <pergrad/privacy/pld/composed_pld.hpp>
#include <pergrad/privacy/pld/fourier.hpp>
#include <pergrad/privacy/pld/pld.hpp>
#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1::detail {

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

  [[gnu::cold]] explicit pld_composer(std::size_t length)
      : transform_{length}, data_(length), product_(length), reach_(length), gap_(length) {}

  [[nodiscard]] std::size_t length() const noexcept { return transform_.length(); }

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
  /// Coefficients below e^-345 are taken for 0: 2^20 of them have less than what the sum's bound ends with, 1e-140.
  static constexpr double least_reach = -345;

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
    made.beyond_p = made.beyond_q = made.log_p = made.log_q = 0;
    made.origin = made.origin_error = made.log_scale = made.log_scale_error = made.infinite = made.lost = 0;
    made.outside_below = made.outside_above = 0;  // exponents, until close()
  }

  /// Tilts a kind's masses and adds them, all but the heaviest, to a part of data_, from whose place on they are
  /// counted.
  template <pld_side Side, double complex_number::*Part>
  [[gnu::cold]] part add_kind(const counted_pld<Side>& kind, const transform_plan& plan,
                              composed_pld<Side, Pays>& made) {
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
    add_totals(step, count, made);
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

  /// Enters a kind's masses, what it has at infinity or what was cut off from its steps. Sums are of long double, as
  /// their errors count once for each step.
  template <pld_side Side>
  static void add_totals(const pld<Side>& step, double count, composed_pld<Side, Pays>& made) {
    long double sum = 0;
    long double sum_q = 0;
    for (std::size_t i = 0; i < step.masses.size(); ++i) {
      sum += static_cast<long double>(step.masses[i]);
      if (Side == lower) sum_q += static_cast<long double>(step.masses[i] * std::exp(-step.loss(i)));
    }
    const double errs = 0x1p-62 * static_cast<double>(step.masses.size()) + 16 * u;
    if constexpr (Side == upper) {
      const auto p = static_cast<double>(sum + static_cast<long double>(step.infinite));
      made.log_p += count * (std::log(p) + errs);
      if (Pays::truncation) made.infinite += count * step.infinite / p * (1 + 1e-9);
    } else {
      const auto p = static_cast<double>(sum);
      const auto q = static_cast<double>(sum_q);
      made.log_p += count * (std::log(p) - errs);
      made.log_q += count * (std::log(q) + errs);
      made.beyond_p += count * step.beyond_p / p * (1 - 1e-9);  // also cut() adds up
      made.beyond_q += count * step.beyond_q / q * (1 + 1e-9);
    }
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
    if (reach < least_reach) {  // nothing is left
      into = {0, 0};
      return;
    }
    const double modulus = std::sqrt(value.real * value.real + value.imaginary * value.imaginary);
    const auto times = static_cast<double>(count);
    const double largest = modulus + error;
    if (times * (largest - 1) < least_reach) {  // ln x <= x - 1
      reach = -760;
      gap = infinity;
      into = {0, 0};
      return;
    }
    reach += times * (std::log(largest) + 8 * u);
    gap += modulus > 0 ? times * (error / modulus * (1 + 8 * u) + 8 * u) : infinity;
    const complex_number result = power(value, count);
    into = first ? result : before * result;
  }

  template <pld_side First, pld_side Second>
  [[gnu::cold]] void finish(double steps, bool has_second, composed_pld<First, Pays>& first,
                            composed_pld<Second, Pays>& second) {
    const std::size_t n = transform_.length();
    const double growth = std::expm1(3 * u * steps * 1.0001);
    double errors = 0;
    double moduli = 0;
    double sum_of_errors = 0;
    double sum_of_moduli = 0;
    const auto count_errors = [&](double reach, double gap, double times) {
      if (reach < least_reach) return;
      const double largest = std::exp(reach) * (1 + 1e-9) * (1 + growth);
      const double errs = largest * (std::min(1.0, gap * (1 + 1e-9)) + growth + 8 * u);  // 1 - e^-gap <= gap
      errors += times * errs * errs;
      moduli += times * largest * largest;
      sum_of_errors += times * errs;
      sum_of_moduli += times * largest;
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
    // Both parts together, which bounds either; |a + i b|^2 is at most twice the sum of squares.
    const double rounded = (1 + length * 4 * u + 1e-9) * std::sqrt(2 / length);
    first.atoms_error = second.atoms_error =
        rounded *
            (std::sqrt(errors) + (transform_.error_of_squares() + 2 * u) * (std::sqrt(moduli) + std::sqrt(errors))) +
        1e-140;
    first.atom_error = second.atom_error =
        (sum_of_errors + (transform_.error() + 2 * u) * (sum_of_moduli + sum_of_errors)) / length *
            (1 + length * 4 * u + 1e-9) +
        1e-140;
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
    if constexpr (Side == upper) {
      made.infinite *= std::exp(made.log_p + 8 * u * std::abs(made.log_p)) * (1 + 1e-9);
    } else {
      made.beyond_p *= std::exp(made.log_p - 8 * u * std::abs(made.log_p)) * (1 - 1e-9);
      made.beyond_q *= std::exp(made.log_q + 8 * u * std::abs(made.log_q)) * (1 + 1e-9);
      if (!(made.beyond_q < infinity && made.beyond_p < infinity)) made.beyond_p = 0;
    }
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
