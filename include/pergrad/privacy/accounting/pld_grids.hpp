// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/accounting/pld_grids.hpp - grids of a ledger's steps for the accountant: in blocks where runs are
// long, and no larger than memory has room for.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <pergrad/privacy/pld/composed_pld.hpp>
#include <pergrad/privacy/pld/loss_plan.hpp>
#include <pergrad/privacy/pld/loss_source.hpp>
#include <pergrad/privacy/pld/pld.hpp>
#include <pergrad/privacy/pld/pld_block.hpp>
#include <pergrad/privacy/pld/pld_composition.hpp>
#include <pergrad/privacy/pld/pld_step.hpp>
#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1::detail {

/// What a ledger's steps are, and their grids. A template, so that programs that never ask do not compile it.
template <class = void>
class pld_grids {
 public:
  static constexpr std::size_t most_points = step_discretiser<>::most_points;  ///< of a step
  static constexpr std::size_t longest = 2 * most_points;                      ///< of a composition
  static constexpr std::size_t longest_block = longest / 2;                    ///< of a block of steps
  static constexpr double few_blocks = 1 << 13;

 protected:
  struct kind {
    std::unique_ptr<loss_source> source;
    std::uint64_t count = 0;
  };
  /// So many blocks of so many steps.
  struct portion {
    std::size_t kind;
    std::uint64_t count;
    std::uint64_t steps;
  };
  struct layout {
    std::vector<portion> portions;
    double steps = 0;  ///< on the grid
    double spacing = 1;
    std::size_t length = 1024;
  };
  /// The smallest blocks with which the spacing can be as is wished, or those that come nearest to that.
  [[nodiscard, gnu::cold]] layout layout_for(std::size_t room, double wish, double range, double delta, double tilt,
                                             double cap) const {
    layout best;
    double least = infinity;
    for (std::uint64_t block = 1; block == 1 || steps_ / static_cast<double>(block) >= few_blocks; block *= 4) {
      layout here;
      here.portions = portions_of(block);
      for (const portion& each : here.portions) {  // a block has been on a finer grid, which is as much again
        here.steps += static_cast<double>(each.count) * (each.steps > 1 ? 2 : 1);
      }
      const std::size_t most = std::min(room, block > 1 ? longest / 4 : longest);  // blocks want room, too
      const double finest =
          std::max(range / static_cast<double>(most - 8), least_spacing(here.portions, delta, tilt, cap));
      const double wanted = wish / std::sqrt(here.steps);
      while (here.length < most && range > wanted * static_cast<double>(here.length - 8)) here.length *= 2;
      here.spacing = coarse_spacing(std::max(finest, range / static_cast<double>(here.length - 8)));
      while (here.length > 1024 && range < here.spacing * (static_cast<double>(here.length) / 2 - 8)) here.length /= 2;
      const double roughness = here.spacing * std::sqrt(here.steps);
      if (roughness < least) {
        least = roughness;
        best = std::move(here);
      }
      if (least <= wish || room < longest) break;  // a trial needs no blocks
    }
    return best;
  }

  /// Steps in blocks of up to `most` = 4^n steps, and of fewer what is left.
  [[nodiscard]] std::vector<portion> portions_of(std::uint64_t most) const {
    std::vector<portion> all;
    for (std::size_t i = 0; i < kinds_.size(); ++i) {
      std::uint64_t block = most;
      for (std::uint64_t rest = kinds_[i].count; rest > 0; block /= 4) {
        if (rest >= block) all.push_back({i, rest / block, block});
        rest %= block;
      }
    }
    return all;
  }

  [[nodiscard]] static double outside_blocks(const portion& part, double delta) {
    return std::log(1e8 * static_cast<double>(part.count) / delta);
  }

  /// The least spacing that memory has room for: of grids of single steps, and of windows of blocks.
  [[nodiscard]] double least_spacing(const std::vector<portion>& portions, double delta, double tilt,
                                     double cap) const {
    double least = 0;
    for (const portion& each : portions) {
      const loss_source& source = *kinds_[each.kind].source;
      const double coarser = std::sqrt(static_cast<double>(each.steps));
      const double losses = std::min(source.highest_loss(), cap) - source.lowest_loss();
      least = std::max(least, coarser * losses / static_cast<double>(most_points - 16));
      if (each.steps == 1) continue;
      const loss_window of = plan_.alone(each.kind, static_cast<double>(each.steps))
                                 .window_of(tilt, true, outside_blocks(each, delta), infinity, cap);
      least = std::max(least, coarser * (of.highest - of.lowest) / static_cast<double>(longest_block - 8));
    }
    return least;
  }

  /// A grid of spacing h of a block of steps, and the bytes that it took.
  [[nodiscard, gnu::cold]] discrete_step grid_of(const portion& part, double delta, double h, double tilt, double cap,
                                                 std::size_t& bytes) const {
    const loss_source& source = *kinds_[part.kind].source;
    const double fine = h / std::sqrt(static_cast<double>(part.steps));  // a power of 2 below h
    discrete_step one = source.on_grid(fine, cap);
    const std::size_t points = 9 * sizeof(double) * std::max(one.remove.masses.size(), one.add.masses.size());
    bytes = points;
    if (part.steps == 1) return one;
    // What is outside of a block's window counts once for each of the blocks, in proportion to delta.
    const double outside = outside_blocks(part, delta);
    const loss_plan<> block = plan_.alone(part.kind, static_cast<double>(part.steps));
    composed_pld<upper> sum;
    composed_pld<lower> below;
    const auto compose = [&](const loss_window& of, bool removes) {
      std::size_t length = 1024;
      while (length < longest_block && of.highest - of.lowest > fine * static_cast<double>(length - 8)) length *= 2;
      pld_composer<> composer{length};
      bytes = std::max(bytes, points / 2 + length * 5 * sizeof(complex_number));
      const double lowest = std::max(of.lowest, of.highest - fine * static_cast<double>(length - 8));
      const transform_plan plan{tilt, removes ? of.lowest : lowest, length, of.below, of.above};
      const counted_pld<upper> first{removes ? &one.remove : &one.add, part.steps};
      const counted_pld<lower> second{&one.remove_below, removes ? part.steps : 0};
      composer.compose(
          1, [&](std::size_t) { return first; }, plan, [&](std::size_t) { return second; }, plan, sum, below);
    };
    discrete_step made;
    compose(block.window_of(tilt, true, outside, infinity, cap), true);
    made.remove = as_one_step(sum, h);
    made.remove_below = as_one_step(below, h);
    if (source.is_symmetric()) {
      made.add = made.remove;
    } else {
      compose(block.window_of(tilt, false, outside, 2 / fine), false);
      made.add = as_one_step(sum, h);
    }
    return made;
  }

  std::vector<kind> kinds_;
  loss_plan<> plan_;
  double steps_ = 0;
};

}  // namespace pergrad::inline v0_1::detail
