// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/accounting/pld_engine.hpp - brackets of epsilon and delta for a ledger, by privacy loss
// distributions.
//
// pld.hpp has the grids of single steps, pld_composition.hpp their sums, both with the proofs. What is here chooses a
// tilt, a window, a spacing and a loss to cut at from estimates; no choice can make a bound wrong, only wide. Estimates
// are of the cumulants ln E[e^(t loss)] of steps that are not discretised, cut as the steps will be: where records are
// drawn seldom, a single step may decide, and what it has far above the answer must not draw the tilt there. The tilt
// is first that of the saddle point for delta, then that whose mean loss is the answer of the attempt before; the
// window is what Chernoff bounds leave little outside of. The spacing h starts where T tilt h^2 / 8 is about the wanted
// width (spreading adds h^2/6 to a step's variance, merging takes about h^2/12) and is refined until the bracket is
// narrow enough, or a grid as long as memory allows has been tried; the tilt is flattened as far as rounding allows
// where many rare losses make its window long. All kinds without sampling are one Gaussian of 1/s^2 = sum T/s^2. Every
// attempt proves its bounds, so the least upper and the largest lower one count.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include <pergrad/detail/float_environment.hpp>
#include <pergrad/privacy/accounting/pld_grids.hpp>
#include <pergrad/privacy/accounting/step_losses.hpp>
#include <pergrad/privacy/pld/composed_pld.hpp>
#include <pergrad/privacy/pld/gaussian_mass.hpp>
#include <pergrad/privacy/pld/loss_plan.hpp>
#include <pergrad/privacy/pld/loss_source.hpp>
#include <pergrad/privacy/pld/pld.hpp>
#include <pergrad/privacy/pld/pld_block.hpp>
#include <pergrad/privacy/pld/pld_composition.hpp>
#include <pergrad/privacy/pld/pld_step.hpp>
#include <pergrad/privacy/sampling.hpp>
#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1 {

/// Two proven bounds of one number.
struct bracket {
  double lower;
  double upper;
};

namespace detail {

/// Brackets of one ledger. A template, so that programs that never ask do not compile it.
template <class = void>
class pld_engine : public pld_grids<> {
 public:
  static constexpr std::size_t most_kinds = 256;
  static constexpr double most_steps = 0x1p34;
  static constexpr std::size_t trial = std::size_t{1}
                                       << 15;  ///< the first one where single steps decide, and a coarse grid may do

  static constexpr double relative_width = 1e-3;
  static constexpr double absolute_width = 1e-4;
  static constexpr double spread = 4.8;  // h^2 / 8 of a step's variance for each wanted width, and some more

  /// Of entries with an `event` that has losses_of(event), and a `count`.
  template <class Ledger>
  [[gnu::cold]] explicit pld_engine(const Ledger& ledger) {
    long double squares = 0;
    std::size_t whole = 0;
    for (const auto& each : ledger) {
      if (each.count == 0) continue;
      step_losses losses = losses_of(each.event);
      if (losses.gaussian == 0 && losses.parts.empty()) continue;
      const auto count = static_cast<double>(each.count);
      if (losses.gaussian > 0) {
        steps_ += count;
        const auto gaussian = static_cast<long double>(losses.gaussian);
        squares += static_cast<long double>(each.count) * gaussian * gaussian;
        ++whole;
      }
      for (step_losses::part& part : losses.parts) {
        if (part.count > std::numeric_limits<std::uint64_t>::max() / each.count) steps_ = infinity;
        steps_ += count * static_cast<double>(part.count);
        kinds_.push_back({std::move(part.source), part.count * each.count});
      }
    }
    if (whole > 0) {
      gaussian_ = std::max(static_cast<double>(std::sqrt(squares)), 1e-300);  // 0 would be no loss at all
      gaussian_error_ = static_cast<double>(whole + 8);
      const continuous_step one{1, gaussian_, gaussian_error_, 0};
      kinds_.push_back({std::make_unique<pair_source<sampled_pair<>>>(one), 1});
    }
    if (kinds_.size() > most_kinds) {
      refuse_accounting({"pergrad: pld_accountant: the ledger has ", kinds_.size(), " kinds of steps, more than ",
                         most_kinds, "; rdp_accountant takes any number"});
    }
    if (steps_ > most_steps) {
      refuse_accounting(
          {"pergrad: pld_accountant: more than 2^34 steps: no bound within reasonable time; rdp_accountant has one"});
    }
  }

  /// Bounds of epsilon at delta. For a search, they may be as far apart as a third of what they are from `target`: the
  /// same of them are above it, or below, as of the narrow ones.
  [[nodiscard]] bracket epsilon(double delta, double target = infinity) {
    if (total_variation() <= delta) return {0, 0};
    if (is_one_gaussian()) {
      return {gaussian_epsilon(gaussian_mu(-1), delta, false), gaussian_epsilon(gaussian_mu(1), delta, true)};
    }
    reach(delta);
    const double tilt = plan_.saddle_tilt(delta);
    bracket result{0, infinity};
    refine(tilt, delta, true, [&](const attempt& made) -> verdict {
      result.upper = std::min(result.upper, std::max(made.remove.epsilon(delta), made.add.epsilon(delta)));
      result.lower = std::max(result.lower, made.remove_below.epsilon(delta));
      const double wanted = std::max(relative_width * result.lower, absolute_width);
      const double apart = std::max(result.lower - target, target < infinity ? target - result.upper : 0.0);
      return {(result.upper - result.lower) / wanted,
              result.upper / std::max(relative_width * result.upper, absolute_width), result.upper, delta,
              result.upper - result.lower <= apart / 3};
    });
    check(result);
    return result;
  }

  /// Bounds of delta at epsilon >= 0.
  [[nodiscard]] bracket delta(double epsilon) {
    if (kinds_.empty() || epsilon == infinity) return {0, 0};
    if (is_one_gaussian()) {
      const stick_with_error below = gaussian_stick(gaussian_mu(-1), epsilon);
      const stick_with_error above = gaussian_stick(gaussian_mu(1), epsilon);
      return {std::clamp(below.value - below.error, 0.0, 1.0), std::clamp(above.value + above.error, 0.0, 1.0)};
    }
    bracket result{0, std::min(1.0, total_variation())};
    const double least = smallest_within_reach(0);
    if (least == 0) return result;
    double delta = least;
    double tilt = 1;
    for (int round = 0; round < 3; ++round) {  // the grid's end depends on delta
      reach(delta);
      tilt = plan_.tilt_for(epsilon);
      const loss_estimate::cumulants sum = plan_.total(tilt, true);
      if (!(tilt < 1e17)) break;  // no loss is so large
      tilt = std::max(tilt, 0.1 / std::sqrt(sum.second));
      delta = std::clamp(std::exp(sum.value - tilt * epsilon) * 1e-4, least, 1.0);
    }
    if (!(tilt < 1e17)) {
      pld_engine& same = *this;  // nvcc drops a `this->`
      if (same.epsilon(least).upper <= epsilon) return {0, least};
      return result;
    }
    refine(tilt, delta, true, [&](const attempt& made) -> verdict {
      result.upper = std::min(result.upper, std::max(made.remove.delta(epsilon), made.add.delta(epsilon)));
      result.lower = std::max(result.lower, made.remove_below.delta(epsilon));
      const double wanted = std::max(relative_width * epsilon, absolute_width) * std::max(1.0, tilt);
      return {std::log(result.upper / result.lower) / wanted, std::log(result.upper) / wanted, epsilon, result.upper};
    });
    return result;
  }

  /// Upper bound of the true positives of any test, whichever of two neighbours is the hypothesis, whose false
  /// positives are at most alpha: the least that hockey sticks at eps >= 0 allow both ways.
  [[nodiscard]] double true_positive_rate(double alpha) {
    if (kinds_.empty() || alpha >= 1) return std::min(1.0, alpha);
    double bound = std::min(1.0, alpha + total_variation());
    const double least = smallest_within_reach(1e-3 * alpha);
    if (least == 0) return bound;
    double before = 2;
    refine(plan_.saddle_tilt(std::max(alpha, least)), std::max(alpha, least), false,
           [&](const attempt& made) -> verdict {
             const auto remove = made.remove.test(alpha);
             const auto add = made.add.test(alpha);
             const double record_added = std::min(remove.hits, 1 - add.misses + 1e-16);
             const double record_removed = std::min(add.hits, 1 - remove.misses + 1e-16);
             bound = std::min(bound, std::max(record_added, record_removed));
             const double gained = (before - bound) / bound;
             before = bound;
             return {std::min(gained / 1e-4, 8.0), infinity, remove.epsilon,
                     remove.delta};  // until a finer grid gains no more
           });
    return bound;
  }

  /// Bytes that the last question took at most, of vectors.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  struct attempt {
    composed_pld<upper> remove;
    composed_pld<lower> remove_below;
    composed_pld<upper> add;
  };
  struct verdict {
    double missing = 0;  ///< the bracket's width, over what is wanted
    double height = 0;   ///< where its upper end is, in the same unit
    double epsilon = 0;  ///< where it is, about
    double delta = 0;
    bool is_enough = false;  ///< whatever is missing
  };

  /// All steps without sampling: in closed form.
  [[nodiscard]] bool is_one_gaussian() const noexcept { return kinds_.size() == 1 && gaussian_ > 0; }
  [[nodiscard]] double gaussian_mu(double side) const noexcept {
    return gaussian_ * (1 + side * (gaussian_error_ + 4) * unit_roundoff);
  }

  /// Total variation adds up, and bounds delta at every epsilon >= 0.
  [[nodiscard]] double total_variation() const {
    double sum = 0;
    for (const kind& each : kinds_) {
      sum += static_cast<double>(each.count) * each.source->total_variation();
    }
    return sum * (1 + 1e-9);
  }

  /// Grids end where what lies outside in all steps is below 1e-7 delta.
  [[gnu::cold]] void reach(double delta) {
    if (reaches(delta)) return;
    refuse_accounting(
        {"pergrad: pld_accountant: no bound: with so little noise and so small a delta, Gaussian tails beyond 37 "
         "deviations matter; rdp_accountant has one"});
  }
  /// Reaches 1e-100, or `wanted` if that is more; with little noise something larger instead. What it is, or 0 if
  /// nothing.
  [[gnu::cold, nodiscard]] double smallest_within_reach(double wanted) {
    for (double least = 1e-100; least < 1e-6; least = std::sqrt(least)) {
      if (reaches(std::max(least, wanted))) return least;
    }
    return 0;
  }
  [[gnu::cold, nodiscard]] bool reaches(double delta) {
    plan_.clear();
    for (const kind& each : kinds_) {
      if (!each.source->reach(std::min(1e-7 * delta / steps_, 0.5))) return false;
      plan_.add(*each.source, static_cast<double>(each.count));
    }
    return true;
  }

  /// Tries finer and finer grids until `judge` says that what is missing is at most 1. `delta`: about;
  /// `cuts`: only what is near that counts, so what a step has far above it may be cut.
  template <class Judge>
  [[gnu::cold]] void refine(double tilt, double delta, bool cuts, const Judge& judge) {
    const double width = std::max(relative_width * std::max(0.0, plan_.total(tilt, true).first), absolute_width);
    double wish = std::sqrt(spread * width / tilt);  // of h times the root of the number of steps
    double outside = 22;
    // One step alone may have this loss; then the answer is no less.
    const double alone = 1.02 * plan_.least_cap([&](double cap) { return plan_.above(cap).stick <= delta; });
    const double about = std::max(0.0, plan_.total(tilt, true).first);
    double cap = cuts ? plan_.cap_for(std::max(alone, about), delta) : about + 20 / tilt;
    for (int round = 0; round < 3 && cuts; ++round) {
      tilt = std::min(8 * tilt, plan_.saddle_tilt(delta, cap));
      cap = plan_.cap_for(std::max(alone, plan_.total(tilt, true, cap).first), delta);
    }
    const bool one_decides = alone > 0.7 * plan_.total(tilt, true, cap).first;
    const bool is_tight =
        std::all_of(kinds_.begin(), kinds_.end(), [](const kind& each) { return each.source->is_tight(); });
    double roughness_before = 0;
    double height_before = 0;
    double missing_before = infinity;
    double steeper = 0;                                             // nats by which the tilt was flattened
    double flatter = std::clamp(std::log(1e9 / steps_), 0.0, 8.0);  // in nats; rounding grows with the steps
    for (int round = 0; round < 6; ++round) {
      const loss_window remove = plan_.window_of(tilt, true, outside, infinity, cap);
      const double range = remove.highest - remove.lowest;
      if (!(range > 0 && range < infinity)) {
        refuse_accounting({"pergrad: pld_accountant: no estimate of the loss to start from"});
      }
      const layout chosen = layout_for(round == 0 && one_decides ? trial : longest, wish, range, delta, tilt, cap);
      const double h = chosen.spacing;
      attempt made;
      try_spacing(chosen, delta, tilt, cap, remove, plan_.window_of(tilt, false, outside, 2 / h), made);
      verdict seen = judge(made);
      // Where the lower end is not of the same losses, the upper one is near its limit once a finer grid gains little:
      // what is above the limit falls with T h^2.
      const double roughness = h * std::sqrt(chosen.steps);
      const double ratio = roughness_before * roughness_before / (roughness * roughness);
      if (!is_tight && ratio > 1.5)
        seen.missing = std::min(seen.missing, 2 * (height_before - seen.height) / (ratio - 1));
      roughness_before = roughness;
      height_before = seen.height;
      if (seen.missing <= 1 || seen.is_enough) return;
      // A better tilt for where the answer is, and a window that leaves out little of what makes it up.
      const bool last = round > 0 && roughness > 1.01 * wish;
      double better = outside;
      const bool is_near =
          seen.epsilon < infinity && seen.delta > 0 &&
          made.remove.outside_below + made.remove.outside_above < 0.5;  // else the window was too narrow
      if (is_near) {
        const double new_cap =
            cuts ? plan_.cap_for(seen.epsilon, seen.delta) : std::max(seen.epsilon, about) + (outside + 6) / tilt;
        const double new_tilt = plan_.tilt_for(seen.epsilon, new_cap);
        const loss_estimate::cumulants there = plan_.total(new_tilt, true, new_cap);
        if (new_tilt < 1e17) {
          cap = new_cap;
          tilt = std::max(new_tilt, 0.1 / std::sqrt(there.second));
          better = outside_for(tilt, cap, seen);
        }
      } else {
        better = outside + 14;
        cap = 1.3 * cap;
        tilt = std::min(tilt, plan_.saddle_tilt(delta, cap));
      }
      const bool cut_short = better > outside + 5;  // what wraps around is e^-7 of delta, or more
      if (last && !cut_short && steeper < 1) return;
      if (last || seen.missing > 0.8 * missing_before) flatter = steeper / 8;  // rounding may be what is left
      missing_before = steeper > 0 ? seen.missing : infinity;
      outside = better;
      if (is_near) flatten(tilt, outside, cap, seen, flatter);
      steeper = outside - better;
      const double finer = seen.missing < 1e6 ? std::sqrt(seen.missing * 1.4) : 1e3;
      wish = roughness / std::clamp(finer, 1.0, cut_short ? 4.0 : one_decides ? 64.0 : 8.0);
    }
  }

  /// What may be left outside of a window, so that it is little of delta: in nats.
  [[nodiscard]] double outside_for(double tilt, double cap, const verdict& at) const {
    const double log_part = std::log(at.delta) + tilt * at.epsilon - plan_.total(tilt, true, cap).value;
    return std::clamp(12 - std::log1p(tilt) - log_part, 12.0, 80.0);
  }
  /// Less of a tilt makes delta a smaller part of what is transformed, but the tail of many rare losses, and with it
  /// the window, shorter: as little as `room` allows, in nats.
  [[gnu::cold]] void flatten(double& tilt, double& outside, double cap, const verdict& at, double room) const {
    const double most = outside + room;
    double least = infinity;
    const double steep = tilt;
    for (double less = steep; less > 0.2 * steep; less *= 0.88) {
      const double wanted = outside_for(less, cap, at);
      if (wanted > most) break;
      const loss_window window = plan_.window_of(less, true, wanted, infinity, cap);
      if (!(window.highest - window.lowest < 0.95 * least)) continue;
      least = window.highest - window.lowest;
      tilt = less;
      outside = wanted;
    }
  }

  [[gnu::cold]] void try_spacing(const layout& chosen, double delta, double tilt, double cap, const loss_window& remove,
                                 const loss_window& add, attempt& made) {
    const std::vector<portion>& portions = chosen.portions;
    const double h = chosen.spacing;
    const std::size_t length = chosen.length;
    // A grid is made again for each pass where there are several: one at a time is what memory has room for.
    discrete_step grid;
    std::size_t of = portions.size();
    std::size_t largest = 0;
    std::size_t bytes = 0;
    const auto grid_at = [&](std::size_t i) -> const discrete_step& {
      if (of != i) grid = discrete_step{};
      if (of != i) grid = grid_of(portions[i], delta, h, tilt, cap, bytes);
      of = i;
      largest = std::max({largest, bytes, 4 * sizeof(double) * grid.remove.masses.size()});
      return grid;
    };
    static_cast<void>(grid_at(0));
    pld_composer<> composer{length};
    const transform_plan plan{tilt, remove.lowest, length, remove.below, remove.above};
    composer.compose(
        portions.size(),
        [&](std::size_t i) {
          return counted_pld<upper>{&grid_at(i).remove, portions[i].count};
        },
        plan,
        [&](std::size_t i) {
          return counted_pld<lower>{&grid_at(i).remove_below, portions[i].below};
        },
        plan, made.remove, made.remove_below);
    const auto each_rare = [&](const auto& visit) {  // visit(grid, steps, those of common losses: above, below)
      for (std::size_t i = 1; i < portions.size(); ++i) {
        if (portions[i].of != share::rare) continue;
        const auto block = static_cast<double>(portions[i - 1].steps);
        visit(grid_at(i), static_cast<double>(portions[i].count), static_cast<double>(portions[i - 1].count) * block,
              static_cast<double>(portions[i - 1].below) * block);
      }
    };
    each_rare([&](const discrete_step& rare, double steps, double above, double below) {
      take_common(made.remove, rare.least_log_p, rare.most_log_q, steps - above);
      take_common(made.remove_below, rare.least_log_p, rare.most_log_q, steps - below);
      made.remove_below.lost += more_than(steps - below, steps, -std::expm1(rare.least_log_p) * (1 + 1e-12));
    });
    if (std::all_of(kinds_.begin(), kinds_.end(), [](const kind& each) { return each.source->has_one_direction(); })) {
      made.add = made.remove;
    } else {
      transform_plan add_plan{tilt, add.lowest, length, add.below, add.above};
      add_plan.lowest = std::max(add.lowest, add.highest - h * static_cast<double>(length - 8));
      composed_pld<lower> none;
      composer.compose(
          portions.size(),
          [&](std::size_t i) {
            return counted_pld<upper>{&grid_at(i).add, portions[i].count};
          },
          add_plan, [](std::size_t) { return counted_pld<lower>{}; }, add_plan, made.add, none);
      each_rare([&](const discrete_step& rare, double steps, double above, double /*below*/) {
        take_common(made.add, rare.least_log_q, rare.most_log_p, steps - above);
      });
    }
    const std::size_t transforms = length * (4 * sizeof(complex_number) + 3 * sizeof(double));
    bytes_ = std::max({bytes_, transforms + (portions.size() > 1 ? largest + largest / 8 : largest / 2), largest});
  }

  static void check(const bracket& result) {
    if (result.upper < infinity && result.lower <= result.upper) return;
    refuse_accounting({"pergrad: pld_accountant: no grid within memory bounds epsilon; rdp_accountant may do"});
  }

  double gaussian_ = 0;  // what all Gaussians without sampling are: their sensitivity over the deviation
  double gaussian_error_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace detail

}  // namespace pergrad::inline v0_1
