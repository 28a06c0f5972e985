// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/pld/allocation_source.hpp - losses of t steps, one of which, drawn for each record by itself, has the
// record: ratio_sums.hpp on a grid of losses.
//
// Above: a ratio between two points is spread to them. Below: cells are merged at grid points (merged_losses.hpp).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <pergrad/privacy/pld/fourier.hpp>
#include <pergrad/privacy/pld/loss_source.hpp>
#include <pergrad/privacy/pld/merged_losses.hpp>
#include <pergrad/privacy/pld/pld.hpp>
#include <pergrad/privacy/pld/ratio_sums.hpp>
#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1::detail {

/// One of `steps` steps has the record. `gaussian_below`: the lower side is a Gaussian of this sensitivity over its
/// deviation, or that of the same losses if it is 0.
template <class = void>
class allocation_source final : public loss_source {
 public:
  allocation_source(std::uint64_t steps, double m, double gaussian_below = 0)
      : steps_{steps}, m_{m}, gaussian_below_{gaussian_below} {}

  [[nodiscard]] bool reach(double tail) override {
    const double deviations = std::sqrt(-2 * std::log(tail));
    if (!(m_ + deviations <= 37)) return false;
    constexpr double most_points = 1 << 21;  // 150 MB
    const ratio_sums<> sums{m_, deviations, tail};
    if (!(sums.points(steps_) <= most_points)) return false;
    if (!law_ || tail < tail_) law_ = sums.of(steps_);
    tail_ = tail;
    deviations_ = deviations;
    return true;
  }
  [[nodiscard]] double lowest_loss() const override { return loss(0); }
  [[nodiscard]] double highest_loss() const override { return loss(law_->above.size() - 1); }

  [[nodiscard]] discrete_step on_grid(double h, double cap) const override {
    const sum_of_ratios& law = *law_;
    const auto before = static_cast<std::int64_t>(std::floor(lowest_loss() / h)) - 2;
    const auto behind = static_cast<std::int64_t>(std::ceil(highest_loss() / h)) + 2;
    const auto n = static_cast<std::size_t>(behind - before);  // buckets
    discrete_step made;
    made.remove.spacing = made.add.spacing = h;
    made.remove.first = before * pld<upper>::parts;
    made.add.first = -(before + static_cast<std::int64_t>(n)) * pld<upper>::parts;
    made.remove.masses.assign(n + 2, 0.0);
    made.add.masses.assign(n + 2, 0.0);
    const double moved = 1.01 * (law.value_error + 16 * u * (std::abs(lowest_loss()) + std::abs(highest_loss())));
    const double share = share_moved_up(moved, -std::expm1(-h));
    const double more = (1 + law.mass_error) * (1 + 64 * u);
    made.remove.infinite = law.infinite * (1 + 8 * u) + 1e-300;
    made.add.infinite = law.nil * more + 1e-300;
    for (std::size_t i = 0; i < law.above.size(); ++i) {
      const double at = loss(i);
      const auto bucket = static_cast<std::size_t>(static_cast<std::int64_t>(std::floor(at / h)) - before);
      const double e = made.remove.loss(bucket);
      const double up = std::clamp(std::expm1(at - e) / std::expm1(h), 0.0, 1.0);
      const double mass = law.above[i] * more;
      made.remove.put(bucket, mass * (1 - up) * std::exp(e) * (1 + moved), share);
      made.remove.put(bucket + 1, mass * up * std::exp(made.remove.loss(bucket + 1)) * (1 + moved), share);
      made.add.put(n - bucket, mass * (1 - up), share);
      made.add.put(n - bucket - 1, mass * up, share);
    }
    const double terms = 4 * u * static_cast<double>(law.above.size());
    for (pld<upper>* const of : {&made.remove, &made.add}) {
      for (double& each : of->masses) each *= 1 + terms;
      of->infinite *= 1 + terms;
    }
    made.remove_below = gaussian_below_ > 0
                            ? step_discretiser<>{{1, gaussian_below_, 8, deviations_}}.on_grid(h, cap).remove_below
                            : merged_on_grid(made.remove, n);
    made.remove.cut(cap);
    made.remove_below.cut(cap);
    return made;
  }

  void estimate(loss_points& into) const override {
    const sum_of_ratios& law = *law_;
    const std::size_t together = law.above.size() / 400 + 1;
    for (std::size_t i = 0; i < law.above.size(); i += together) {
      double mass = 0;
      double values = 0;
      for (std::size_t j = i; j < std::min(i + together, law.above.size()); ++j) {
        mass += law.above[j];
        values += law.above[j] * std::exp(loss(j));
      }
      if (mass > 0 && values > 0) into.add(std::log(values / mass), std::log(mass));
    }
  }
  [[nodiscard]] double total_variation() const override {
    // The record is in one step at most: that of a Gaussian, also before the grid reaches anywhere.
    double sum = law_ ? law_->infinite : infinity;
    for (std::size_t i = 0; law_ && i < law_->above.size(); ++i) {
      sum += law_->above[i] * (1 + law_->mass_error) * std::max(0.0, std::expm1(loss(i) + law_->value_error));
    }
    return std::min(sum * (1 + 1e-9), std::erf(m_ * 0.35355339059327376) * (1 + 1e-9));
  }
  [[nodiscard]] bool is_symmetric() const override { return false; }
  [[nodiscard]] bool is_tight() const override { return false; }

 private:
  static constexpr double u = unit_roundoff;

  /// The lower side, about the points of `grid`: n buckets.
  [[nodiscard]] pld<lower> merged_on_grid(const pld<upper>& grid, std::size_t n) const {
    const sum_of_ratios& law = *law_;
    const double h = grid.spacing;
    const double scale = -std::expm1(-h);
    const double terms = 4 * u * static_cast<double>(law.below.size());
    std::vector<merged_piece> halves(2 * n);
    double top = 0;  // what is above the grid's last point
    const double less = 2 * law.mass_error + law.value_error + 64 * u;
    for (std::size_t i = 0; i < law.below.size(); ++i) {
      const double q = law.below[i] * (1 + less);
      const double p = law.below_values[i] / law.steps * (1 - less);
      if (!(p > 0)) continue;
      const double at = std::log(p / q) - 16 * u;
      if (!(at > grid.loss(1))) continue;
      if (at >= grid.loss(n)) {
        top += p * (1 - terms);
        continue;
      }
      const auto bucket =
          static_cast<std::size_t>(static_cast<std::int64_t>(std::floor(at / h)) - grid.first / pld<upper>::parts);
      const double e = grid.loss(bucket);
      const double high = (p - std::exp(e) * q) / scale - 16 * u * p / scale;
      if (!(high > 0)) continue;
      merged_piece& half = halves[2 * bucket + (at > e + h / 2 ? 1 : 0)];
      half.kept += p * (1 - terms);
      half.high += std::min(high, p) * (1 - terms);
    }
    pld<lower> made;
    made.spacing = h;
    made.first = grid.first;
    made.masses = merged_losses<>{halves, h, 2}.masses(top);
    return made;
  }

  [[nodiscard]] double loss(std::size_t i) const { return law_->log_value(i) - std::log(law_->steps); }

  std::uint64_t steps_;
  double m_;
  double gaussian_below_;
  double deviations_ = 0;
  double tail_ = 0;
  std::optional<sum_of_ratios> law_;
};

}  // namespace pergrad::inline v0_1::detail
