// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/pld/loss_source.hpp - one kind of step as the accountant sees it: grids for bounds, points for
// estimates; and the kinds that are made of Gaussian pairs.
//
// both_ways: a batch of fixed size, drawn without replacement, where one record is replaced by another. Given the
// others of a batch, and whom the record displaces (y), the sides see (1 - q) N(c + y) + q N(c + x) and the same with
// x'. As in pld_pair.hpp, with |x - y|, |x - x'| <= 2 and a >= 1, P(S) - a Q(S) is largest for x' = y, |x - y| = 2: at
// most the hockey stick of `sampled` with m = 2 / sigma, removing; for a < 1 that of adding, by swapping sides. One
// pair has both: for eps >= 0 it has removing's curve, so removing's atoms above 0, for eps < 0 adding's, so adding's
// atoms below 0, and at 0 the mass that is left. Balle, Barthe & Gaboardi 2018 (arXiv:1807.01647), theorem 11, and Zhu,
// Dong & Wang 2022 (arXiv:2106.08567), proposition 30. Neither of the two alone bounds compositions.
//
// Parts: a step that is one of several, of which an adversary may know, has the mean of their hockey sticks at most.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <pergrad/privacy/pld/pld.hpp>
#include <pergrad/privacy/pld/pld_pair.hpp>
#include <pergrad/privacy/pld/pld_rare.hpp>
#include <pergrad/privacy/pld/pld_step.hpp>
#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1::detail {

/// Points of a loss with ln of their Q-masses: adds up what a source says of itself, for estimates.
struct loss_points {
  std::vector<double> losses;
  std::vector<double> log_masses;
  void add(double loss, double log_mass) {
    losses.push_back(loss);
    log_masses.push_back(log_mass);
  }
};

/// One kind of step.
class loss_source {
 public:
  loss_source() = default;
  loss_source(const loss_source&) = delete;
  loss_source& operator=(const loss_source&) = delete;
  virtual ~loss_source() = default;

  /// Of the questions that follow: the mass that grids may leave outside is about `tail`. Says whether that is
  /// possible.
  [[nodiscard]] virtual bool reach(double tail) = 0;
  [[nodiscard]] virtual double lowest_loss() const = 0;
  [[nodiscard]] virtual double highest_loss() const = 0;
  /// Of losses up to `cap`; what is above is cut off (pld.hpp). Precondition: h > 0 has 8 significant bits, the range
  /// of losses is at most 2^18 h, |losses| < 2^20 h.
  [[nodiscard]] virtual discrete_step on_grid(double h, double cap) const = 0;
  /// Whether it can be taken as two: of losses up to about `at`, on a grid of these alone, and of rare ones, on that of
  /// a run (pld_rare.hpp). Preconditions as of on_grid.
  [[nodiscard]] virtual bool has_parts() const { return false; }
  [[nodiscard]] virtual discrete_step common_on_grid(double /*h*/, double /*at*/) const { return {}; }
  [[nodiscard]] virtual discrete_step rare_on_grid(double /*h*/, double /*cap*/, double /*at*/) const { return {}; }
  virtual void estimate(loss_points& into) const = 0;
  /// Upper bound.
  [[nodiscard]] virtual double total_variation() const = 0;
  /// Whether it is its own mirror image, as its grids are, so that both directions have the same losses.
  [[nodiscard]] virtual bool is_symmetric() const = 0;
  /// Whether both directions have the same losses.
  [[nodiscard]] virtual bool has_one_direction() const { return is_symmetric(); }
  /// Whether the lower side comes as close to the upper one as a grid is fine.
  [[nodiscard]] virtual bool is_tight() const = 0;
};

/// Whether tables reach a pair's Gaussians, and sets how far: to a mass of about `tail` beyond.
[[nodiscard]] inline bool set_reach(continuous_step& step, double tail, bool is_symmetric) noexcept {
  step.deviations = std::sqrt(-2 * std::log(tail));
  return (is_symmetric ? 2 : 1) * step.m + step.deviations <= 37;
}
/// Upper bound of a pair's total variation, but for 1e-9 of it.
[[nodiscard]] inline double total_variation_of(const continuous_step& step, bool is_symmetric) noexcept {
  return step.q * std::erf(step.m * (is_symmetric ? 2 : 1) * 0.35355339059327376);
}
/// Adds up what a pair says of itself, `weight` of it; `both_ways`: of both directions.
template <class Pair>
[[gnu::cold]] void estimate_pair(const Pair& pair, double weight, bool both_ways, loss_points& into) {
  const double from = pair.lowest();
  const double to = pair.highest();
  const auto points = static_cast<std::size_t>(std::ceil((to - from) * 12)) + 2;
  const double width = (to - from) / static_cast<double>(points - 1);
  constexpr double log_sqrt_two_pi = 0.91893853320467274178;
  const double base = std::log(width * weight) - log_sqrt_two_pi;
  double at_zero = weight;
  for (std::size_t i = 0; i < points; ++i) {
    const double at = from + static_cast<double>(i) * width;
    const double loss = pair.loss(at);
    const double log_mass = base + pair.log_density(at);
    if (!both_ways) {
      into.add(loss, log_mass);
    } else if (loss > 0) {
      into.add(loss, log_mass);
      into.add(-loss, log_mass + loss);
      at_zero -= std::exp(log_mass + loss) + std::exp(log_mass);
    }
  }
  if (both_ways) into.add(0, std::log(std::max(at_zero, 1e-300)));
}

/// One pair, exactly.
template <class Pair>
class pair_source final : public loss_source {
 public:
  explicit pair_source(const continuous_step& step) : step_{step} {}

  [[nodiscard]] bool reach(double tail) override { return set_reach(step_, tail, Pair::is_symmetric); }
  [[nodiscard]] double lowest_loss() const override { return on().lowest_loss(); }
  [[nodiscard]] double highest_loss() const override { return on().highest_loss(); }
  [[nodiscard]] discrete_step on_grid(double h, double cap) const override { return on().on_grid(h, cap); }
  [[nodiscard]] bool has_parts() const override { return step_.q < 1; }
  [[nodiscard]] discrete_step common_on_grid(double h, double at) const override {
    return step_discretiser<Pair>{step_, common(at)}.on_grid(h, at);
  }
  [[nodiscard]] discrete_step rare_on_grid(double h, double cap, double at) const override {
    return rare_losses<Pair>(step_, common(at), h, cap);
  }
  void estimate(loss_points& into) const override { estimate_pair(on().pair(), 1, false, into); }
  [[nodiscard]] double total_variation() const override {
    return total_variation_of(step_, Pair::is_symmetric) * (1 + 1e-9);
  }
  [[nodiscard]] bool is_symmetric() const override { return Pair::is_symmetric; }
  /// Also that of Gaussians alone.
  [[nodiscard]] bool has_one_direction() const override { return Pair::is_symmetric || step_.q == 1; }
  [[nodiscard]] bool is_tight() const override { return true; }

 private:
  [[nodiscard]] step_discretiser<Pair> on() const { return step_discretiser<Pair>{step_}; }
  /// Losses up to about `at`; of both signs, if there are such: a bit more of the negative ones, as what is common has
  /// to have no more P-mass than Q-mass.
  [[nodiscard]] line_part common(double at) const {
    const double high = on().pair().point_at(at).at;
    return {Pair::is_symmetric ? -high * (1 + 1e-4) : -infinity, high};
  }

  continuous_step step_;
};

/// Pairs of which steps are made.
enum class pair_kind { sampled, replaced, both_ways };

/// A step that is this with probability `weight`.
struct step_part {
  double weight;
  pair_kind kind;
  continuous_step step;
};

/// A template, so that programs which do not account for such steps do not compile it.
template <class = void>
class mixture_source final : public loss_source {
 public:
  /// The upper side is the mean of `parts`; the lower one is that of `below`, which is `sampled` or `replaced`.
  mixture_source(std::vector<step_part> parts, step_part below) : parts_{std::move(parts)}, below_{below} {}

  [[nodiscard]] bool reach(double tail) override {
    bool can = set_reach(below_.step, tail, below_.kind == pair_kind::replaced);
    for (step_part& part : parts_) can = set_reach(part.step, tail, part.kind == pair_kind::replaced) && can;
    return can;
  }
  [[nodiscard]] double lowest_loss() const override {
    double lowest = infinity;
    for (const step_part& part : parts_) {
      lowest = std::min(lowest, with(part, [&](const auto& one) {
                          return part.kind == pair_kind::both_ways ? -one.highest_loss() : one.lowest_loss();
                        }));
    }
    return lowest;
  }
  [[nodiscard]] double highest_loss() const override {
    double highest = -infinity;
    for (const step_part& part : parts_) {
      highest = std::max(highest, with(part, [](const auto& one) { return one.highest_loss(); }));
    }
    return highest;
  }
  [[nodiscard]] discrete_step on_grid(double h, double cap) const override {
    discrete_step made;
    made.remove.spacing = made.add.spacing = h;
    for (const step_part& part : parts_) {
      with(part, [&](const auto& one) {
        const discrete_step all = one.on_grid(h, cap, std::decay_t<decltype(one)>::grid_points::at_zero);
        const bool both = part.kind == pair_kind::both_ways;
        const pld<upper> joined = both ? both_ways(all) : pld<upper>{};
        add(made.remove, both ? joined : all.remove, part.weight);
        add(made.add, both ? joined : all.add, part.weight);
      });
    }
    made.remove_below = with(below_, [&](const auto& one) { return one.on_grid(h, cap).remove_below; });
    return made;
  }
  void estimate(loss_points& into) const override {
    for (const step_part& part : parts_) {
      with(part,
           [&](const auto& one) { estimate_pair(one.pair(), part.weight, part.kind == pair_kind::both_ways, into); });
    }
  }
  [[nodiscard]] double total_variation() const override {
    double sum = 0;
    for (const step_part& part : parts_) {
      sum += part.weight * total_variation_of(part.step, part.kind == pair_kind::replaced);
    }
    return sum * (1 + 1e-9);
  }
  [[nodiscard]] bool is_symmetric() const override {
    return std::all_of(parts_.begin(), parts_.end(),
                       [](const step_part& part) { return part.kind != pair_kind::sampled; });
  }
  [[nodiscard]] bool is_tight() const override { return false; }

 private:
  static constexpr double u = unit_roundoff;

  template <class Function>
  static auto with(const step_part& part, const Function& function) {
    return part.kind == pair_kind::replaced ? function(step_discretiser<replaced_pair<>>{part.step})
                                            : function(step_discretiser<>{part.step});
  }

  /// sum += weight part. Both have points at multiples of the spacing.
  static void add(pld<upper>& sum, const pld<upper>& part, double weight) {
    if (sum.masses.empty()) sum.first = part.first;
    const std::int64_t apart = (part.first - sum.first) / pld<upper>::parts;
    if (apart < 0) {
      sum.masses.insert(sum.masses.begin(), static_cast<std::size_t>(-apart), 0.0);
      sum.first = part.first;
    }
    const auto from = static_cast<std::size_t>(std::max<std::int64_t>(apart, 0));
    sum.masses.resize(std::max(sum.masses.size(), from + part.masses.size()));
    for (std::size_t i = 0; i < part.masses.size(); ++i) sum.masses[from + i] += part.masses[i] * weight * (1 + 4 * u);
    sum.infinite += part.infinite * weight * (1 + 4 * u);
  }

  /// The pair that has removing's curve above 0 and adding's below. Its hockey stick at eps <= 0 is adding's below 0,
  /// and what lies at 0 and above: two lines in e^eps, of which this one is the higher if it is at eps = 0 and at
  /// -infinity. Rounding may leave it short of the first by some 1e-12 of it, which a bit of mass at the first point
  /// above 0 makes good.
  [[nodiscard]] static pld<upper> both_ways(const discrete_step& one) {
    const auto zero_of = [](const pld<upper>& x) { return static_cast<std::size_t>(-x.first / pld<upper>::parts); };
    const std::size_t in_remove = zero_of(one.remove);
    const std::size_t in_add = zero_of(one.add);
    const double rounding = 8 * u * static_cast<double>(one.remove.masses.size() + 64);
    pld<upper> made;
    made.spacing = one.remove.spacing;
    made.first = one.add.first;
    made.masses.assign(one.add.masses.begin(), one.add.masses.begin() + static_cast<std::ptrdiff_t>(in_add));
    double needed = one.add.infinite;
    for (std::size_t i = in_add; i < one.add.masses.size(); ++i) needed += one.add.masses[i];
    double there = one.remove.infinite;
    for (std::size_t i = in_remove + 1; i < one.remove.masses.size(); ++i) there += one.remove.masses[i];
    made.masses.push_back(std::max(0.0, needed * (1 + rounding) - there * (1 - rounding)));
    made.masses.insert(made.masses.end(), one.remove.masses.begin() + static_cast<std::ptrdiff_t>(in_remove) + 1,
                       one.remove.masses.end());
    made.infinite = one.remove.infinite;
    const double short_of = one.add.delta(0) * (1 + rounding) - one.remove.delta(0) * (1 - rounding);
    made.masses[in_add + 1] += std::max(0.0, short_of) / -std::expm1(-made.spacing) * (1 + 8 * u);
    return made;
  }

  std::vector<step_part> parts_;
  step_part below_;
};

}  // namespace pergrad::inline v0_1::detail
