// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/pld/pld_step.hpp - the privacy loss of one step on a grid, from above and from below. The notation is
// that of pld.hpp, and of pld_pair.hpp for pairs other than that of Poisson sampling.
//
// Grid. Losses e_i = (first + i 2^24) h 2^-24 with whole `first` and h of 8 significant bits: every e_i is exact in
// double. Bounds u_i of buckets are doubles near l^-1(e_i) and exact by definition. Let
//     xi_i bound |l(u_i) - e_i|,    P, Q the mass of bucket [u_i, u_{i+1}] under both sides,
//     num = P - e^(e_i) Q,          b = num / (1 - e^-h),    a = P - b.
// Then a at e_i and b at e_{i+1} have the bucket's P and Q. A pair knows how to take the difference num.
//
// Upper (connect the dots, Doroshenko et al. 2022, arXiv:2207.04380, from masses). If the bucket's losses are in
// [e_i, e_{i+1}], a and b spread it. So does any b' >= b with a' >= P - b', as that is more mass at a larger loss. The
// losses are only in [e_i - xi, e_{i+1} + xi]: clamped to the bucket they change by at most xi, which changes b by at
// most P xi e^xi / (1 - e^-h), added to b', and all atoms are then moved up by xi, which the fraction
// f = (1 - e^-xi) / (1 - e^-h) of them going to the next grid point dominates. A bucket whose losses may move
// further has its mass at infinity; that is so of grids alone that are finer than rounding. Mass below e_0 goes to e_0,
// mass above the last point to that and to infinity, P - e^e Q of it, as the next grid point is there.
//
// Lower. Every half of a bucket is merged to one atom, at loss c = ln(P/Q), written as a at e_i and b at e_{i+1}. The
// rounded b is at most b P'/P for the mass P' <= P that is kept, so c is not rounded up either; where rounding hides
// whether b > 0, the half is left out. Atoms lie off the grid.
// merged_losses.hpp takes them to grid points. Mass above the last point is cut off, mass below e_0 left out. Where all
// mass is far closer together than h, most of it has to be at a grid point: `first` is chosen such that least is lost
// among the lowest losses.
//
// A part of the line alone (pld_rare.hpp): buckets are cut to it, and their losses are between the same bounds.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <pergrad/privacy/pld/gaussian_mass.hpp>
#include <pergrad/privacy/pld/merged_losses.hpp>
#include <pergrad/privacy/pld/pld.hpp>
#include <pergrad/privacy/pld/pld_pair.hpp>
#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1::detail {

/// What part of a pair's line counts: [low, high], or all but that.
struct line_part {
  double low = -infinity;
  double high = infinity;
  bool is_inside = true;
};

/// Makes the grids of one step; a template, so that programs which do not account do not compile it.
template <class Pair = sampled_pair<>>
class step_discretiser {
 public:
  static constexpr double u = unit_roundoff;
  static constexpr std::size_t most_points = std::size_t{1} << 18;
  static constexpr double least_mass = 1e-300;  // more than what is below the smallest number in all buckets

  explicit step_discretiser(const continuous_step& step, const line_part& part = {}) noexcept
      : pair_{step}, part_{part}, is_gaussian_{step.q == 1} {}

  [[nodiscard]] const Pair& pair() const noexcept { return pair_; }
  [[nodiscard]] double lowest_loss() const noexcept {
    return pair_.loss(part_.is_inside ? std::max(pair_.lowest(), part_.low) : pair_.lowest());
  }
  [[nodiscard]] double highest_loss() const noexcept {
    return pair_.loss(part_.is_inside ? std::min(pair_.highest(), part_.high) : pair_.highest());
  }
  /// Of what lies between two places and counts.
  [[nodiscard]] pair_masses between(double from, double to) const noexcept {
    if (part_.is_inside) {
      from = std::max(from, part_.low);
      to = std::min(to, part_.high);
      return pair_.between(from, to, to - from);
    }
    const double until = std::min(to, part_.low);
    const double since = std::max(from, part_.high);
    pair_masses both = pair_.between(from, until, until - from);
    both.add(pair_.between(since, to, to - since));
    return both;
  }

  /// Losses may be counted from 0, or from where the lower side is best.
  enum class grid_points { best, at_zero };

  /// Of losses up to `cap`; what is above is cut off (pld.hpp), and of a symmetric pair what is below -cap.
  /// Precondition: h > 0 has 8 significant bits, the range of losses is at most most_points h, |losses| < 2^20 h.
  [[nodiscard, gnu::cold]] discrete_step on_grid(double h, double cap = infinity,
                                                 grid_points where = grid_points::best) const {
    const double anchor = where == grid_points::at_zero || Pair::is_symmetric ? 0 : anchor_of(h);
    const double unit = h / static_cast<double>(pld<upper>::parts);
    const double floor = Pair::is_symmetric ? std::max(lowest_loss(), -cap) : lowest_loss();
    const auto before = static_cast<std::int64_t>(std::floor((floor - anchor) / h)) - 2;
    const auto behind =
        static_cast<std::int64_t>(std::ceil((std::max(0.0, std::min(cap, highest_loss())) - anchor) / h)) + 1;
    const auto n = static_cast<std::size_t>(behind - before);  // buckets; one more point
    discrete_step made;
    made.remove.spacing = made.remove_below.spacing = made.add.spacing = h;
    made.remove.first = static_cast<std::int64_t>(std::llround(anchor / unit)) + before * pld<upper>::parts;
    made.remove_below.first = made.remove.first;
    made.add.first = -(made.remove.first + static_cast<std::int64_t>(n) * pld<upper>::parts);
    made.remove.masses.assign(n + 2, 0.0);  // the last one takes what xi moves up
    made.add.masses.assign(n + 2, 0.0);
    std::vector<piece> halves(2 * n);  // of buckets, for the lower side
    const double scale = -std::expm1(-h);

    point here = pair_.point_at(made.remove.loss(0));
    {  // of adding, spread to the last point and infinity, as at the other end; -e_i is point n - i of it
      const pair_masses beyond = between(-infinity, here.at);
      const double share = share_moved_up(here.xi, scale);
      made.remove.put(0, more(pair_.most_p(beyond)), share);
      const double mass = more(pair_.most_q(beyond));
      const double num = pair_.difference_error(here, beyond) - pair_.difference(here, beyond);
      const double b =
          std::clamp(more(std::exp(-made.remove.loss(0)) * num) + mass * std::min(share, 2 * here.xi), 0.0, mass);
      made.add.put(n, more(mass - b), share);
      made.add.infinite += more(b) + least_mass;
    }
    for (std::size_t i = 0; i < n; ++i) {
      point next = pair_.point_at(made.remove.loss(i + 1));
      next.at = std::max(next.at, here.at);
      const double middle = std::clamp(pair_.point_at(made.remove.loss(i) + h / 2).at, here.at, next.at);
      pair_masses all;
      for (const bool second : {false, true}) {
        const double from = second ? middle : here.at;
        const double to = second ? next.at : middle;
        const pair_masses half = between(from, to);
        halves[2 * i + (second ? 1 : 0)] = piece_of(here, half, scale);
        all.add(half);
      }
      const double share = share_moved_up(std::max(here.xi, next.xi), scale);
      {  // remove
        const double mass = more(pair_.most_p(all));
        const double num = pair_.difference(here, all);
        const double error = pair_.difference_error(here, all);
        const double b = std::clamp(more((num + error) / scale) + mass * share, 0.0, mass);
        made.remove.put(i, more(mass - b), share);
        made.remove.put(i + 1, b, share);
      }
      {  // add: from -e_{i+1} to -e_i
        const double mass = more(pair_.most_q(all));
        const double factor = std::exp(-made.remove.loss(i + 1));
        const double num = -pair_.difference(next, all);
        const double error = pair_.difference_error(next, all);
        const double b = std::clamp(more(factor * (num + error) / scale) + mass * share, 0.0, mass);
        made.add.put(n - i - 1, more(mass - b), share);
        made.add.put(n - i, b, share);
      }
      here = next;
    }
    {  // spread to the last point and infinity; below, cut off
      const pair_masses beyond = between(here.at, infinity);
      const double mass = more(pair_.most_p(beyond));
      const double num = pair_.difference(here, beyond) + pair_.difference_error(here, beyond);
      const double share = share_moved_up(here.xi, scale);
      const double b = std::clamp(more(num) + mass * std::min(share, 2 * here.xi), 0.0, mass);
      made.remove.put(n, more(mass - b), share);
      made.remove.infinite += more(b) + least_mass;
      made.add.put(0, more(pair_.most_q(beyond)), share);
      made.remove_below.beyond_p = pair_.least_p(beyond) * (1 - 32 * u);
      made.remove_below.beyond_q = more(pair_.most_q(beyond)) + least_mass;
    }
    made.remove_below.masses = merged_losses<>{halves, h, 2}.masses(0);
    // What was added up above came to every place in at most six parts, and to infinity in at most two of each bucket.
    for (pld<upper>* const of : {&made.remove, &made.add}) {
      for (double& each : of->masses) each *= 1 + 16 * u;
      of->infinite *= 1 + 4 * u * static_cast<double>(n + 4);
    }
    return made;
  }

 private:
  using point = typename Pair::point;
  using piece = merged_piece;

  [[nodiscard]] piece piece_of(const point& here, const pair_masses& half, double scale) const noexcept {
    const double num = pair_.difference(here, half);
    const double error = pair_.difference_error(here, half);
    const double relative = half.error() + 64 * u;
    if (!(num > error)) return {0, 0};  // it may lie below e_i, and is left out
    const double kept = pair_.least_p(half) * std::max(0.0, 1 - relative);
    return {kept, std::clamp((num - error) / scale * (1 - 2 * relative - 64 * u), 0.0, kept)};
  }

  [[nodiscard]] static double more(double x) noexcept { return x * (1 + 32 * u); }

  /// Where grid points are best: such that merging loses least among the lowest losses, where densities are steep.
  [[nodiscard]] double anchor_of(double h) const {
    if (is_gaussian_) return 0;
    constexpr std::size_t buckets = 128;
    constexpr double golden = 0.61803398874989484820;
    const double lowest = lowest_loss();
    const double scale = -std::expm1(-h);
    std::vector<piece> halves(2 * buckets);
    const auto lost = [&](double part) {
      point here = pair_.point_at(lowest + (part - 3) * h);
      for (std::size_t i = 0; i < buckets; ++i) {
        point next = pair_.point_at(lowest + (part + static_cast<double>(i) - 2) * h);
        next.at = std::max(next.at, here.at);
        const double middle =
            std::clamp(pair_.point_at(lowest + (part + static_cast<double>(i) - 2.5) * h).at, here.at, next.at);
        for (const bool second : {false, true}) {
          const double from = second ? middle : here.at;
          const double to = second ? next.at : middle;
          halves[2 * i + (second ? 1 : 0)] = piece_of(here, between(from, to), scale);
        }
        here = next;
      }
      return merged_losses<>{halves, h, 1}.lost();
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

  Pair pair_;
  line_part part_;
  bool is_gaussian_;
};

}  // namespace pergrad::inline v0_1::detail
