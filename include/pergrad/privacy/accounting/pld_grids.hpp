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
  static constexpr double few_parts = 1 << 11;  ///< blocks of common losses, which are whole ones

 protected:
  struct kind {
    std::unique_ptr<loss_source> source;
    std::uint64_t count = 0;
  };
  /// Which losses of a step.
  enum class share { all, common, rare };
  /// So many blocks of so many steps.
  struct portion {
    std::size_t kind = 0;
    std::uint64_t count = 0;
    std::uint64_t steps = 0;
    share of = share::all;
    double at = infinity;     ///< where rare losses begin
    std::uint64_t below = 0;  ///< `count` of the lower side
  };
  struct layout {
    std::vector<portion> portions;
    double steps = 0;  ///< on the grid
    double spacing = 1;
    std::size_t length = 1024;
  };
  /// The smallest blocks with which the spacing can be as is wished, or those that come nearest to that. Where that is
  /// not enough, of common losses alone, with rare ones beside them.
  [[nodiscard, gnu::cold]] layout layout_for(std::size_t room, double wish, double range, double delta, double tilt,
                                             double cap) const {
    layout best;
    double least = infinity;
    for (const bool parts : {false, true}) {
      if (parts && (least <= wish || room < longest)) break;
      const double few = parts ? few_parts : few_blocks;
      for (std::uint64_t block = 1; block == 1 || steps_ / static_cast<double>(block) >= few; block *= 4) {
        layout here;
        here.portions = parts ? parts_of(block, delta) : portions_of(block);
        if (here.portions.empty()) break;
        for (const portion& each : here.portions) {  // a block has been on a finer grid, which is as much again
          const double moving = each.of == share::rare ? rare_share(each.count) : each.steps > 1 ? 2 : 1;
          here.steps += static_cast<double>(each.count) * moving;
        }
        const std::size_t most = std::min(room, block > 1 ? longest / 4 : longest);  // blocks want room, too
        const double finest =
            std::max(range / static_cast<double>(most - 8), least_spacing(here.portions, delta, tilt, cap));
        // A block that is not wider than the spacing has no place on its grid from below.
        const double width = narrowest_block(here.portions, cap);
        const double wanted = std::min(wish / std::sqrt(here.steps), width / 2);
        while (here.length < most && range > wanted * static_cast<double>(here.length - 8)) here.length *= 2;
        here.spacing = coarse_spacing(std::max(finest, range / static_cast<double>(here.length - 8)));
        while (here.length > 1024 && range < here.spacing * (static_cast<double>(here.length) / 2 - 8))
          here.length /= 2;
        const double roughness = here.spacing * std::sqrt(here.steps) * std::max(1.0, 2 * here.spacing / width);
        if (roughness < least) {
          least = roughness;
          best = std::move(here);
        }
        if (least <= wish || room < longest) break;  // a trial needs no blocks
      }
    }
    return best;
  }

  /// Steps in blocks of up to `most` = 4^n steps, and of fewer what is left.
  [[nodiscard]] std::vector<portion> portions_of(std::uint64_t most) const {
    std::vector<portion> all;
    for (std::size_t i = 0; i < kinds_.size(); ++i) {
      std::uint64_t block = most;
      for (std::uint64_t rest = kinds_[i].count; rest > 0; block /= 4) {
        if (rest >= block) all.push_back({i, rest / block, block, share::all, infinity, rest / block});
        rest %= block;
      }
    }
    return all;
  }

  /// P-mass of what is called rare in so many steps, about: some hundred losses, each of which is rounded to the grid.
  [[nodiscard]] static double rare_share(std::uint64_t steps) noexcept {
    return std::clamp(100 / static_cast<double>(steps), 1e-7, 1e-5);
  }
  /// The same of common losses, in whole blocks, and rare ones; nothing where a kind has no such parts, or only
  /// some kinds are symmetric.
  [[nodiscard]] std::vector<portion> parts_of(std::uint64_t block, double delta) const {
    std::vector<portion> all;
    // The common losses of a symmetric kind are no mirror image of themselves, and blocks take them for one: right
    // where all are, as the other direction is then not asked for.
    const auto is_symmetric = [](const kind& each) { return each.source->is_symmetric(); };
    if (std::any_of(kinds_.begin(), kinds_.end(), is_symmetric) &&
        !std::all_of(kinds_.begin(), kinds_.end(), is_symmetric)) {
      return {};
    }
    for (std::size_t i = 0; i < kinds_.size(); ++i) {
      const std::uint64_t steps = kinds_[i].count;
      const loss_plan<> one = plan_.alone(i, 1);
      const double at = one.least_cap([&](double cap) { return one.above(cap).mass <= rare_share(steps) / 2; });
      const double mean = 1.1 * rare_share(steps) * static_cast<double>(steps);
      double most = mean + 8;  // rare losses in a run, but for some of delta
      while (most * std::log(most / mean) - most + mean < 20 - std::log(delta)) most *= 1.05;
      if (!kinds_[i].source->has_parts() || !(at > 0) || most > static_cast<double>(steps) / 64) return {};
      all.push_back({i, (steps + block - 1) / block, block, share::common, at,
                     (steps - static_cast<std::uint64_t>(most)) / block});
      all.push_back({i, steps, 1, share::rare, at, steps});
    }
    return all;
  }

  [[nodiscard]] static double outside_blocks(const portion& part, double delta) {
    return std::log(1e8 * static_cast<double>(part.count) / delta);
  }

  /// Losses of a portion's steps, where it says.
  struct losses_of_block {
    double lowest;
    double highest;
  };
  [[nodiscard]] losses_of_block range_of(const portion& part, double cap) const {
    const loss_source& source = *kinds_[part.kind].source;
    if (part.of == share::common) return {source.is_symmetric() ? -part.at : -infinity, part.at};
    return {source.is_symmetric() ? -cap : -infinity, std::min(source.highest_loss(), cap)};
  }

  /// The least spacing that memory has room for: of grids of single steps, and of windows of blocks.
  [[nodiscard]] double least_spacing(const std::vector<portion>& portions, double delta, double tilt,
                                     double cap) const {
    double least = 0;
    for (const portion& each : portions) {
      const loss_source& source = *kinds_[each.kind].source;
      const double coarser = std::sqrt(static_cast<double>(each.steps));
      const losses_of_block in = range_of(each, cap);
      const double losses = in.highest - std::max(in.lowest, source.lowest_loss());
      least = std::max(least, coarser * losses / static_cast<double>(most_points - 16));
      if (each.steps == 1) continue;
      const loss_window of = plan_.alone(each.kind, static_cast<double>(each.steps))
                                 .window_of(tilt, true, outside_blocks(each, delta), infinity, in.highest, in.lowest);
      least = std::max(least, coarser * (of.highest - of.lowest) / static_cast<double>(longest_block - 8));
    }
    return least;
  }

  /// The least standard deviation of a block; infinity if there is none.
  [[nodiscard]] double narrowest_block(const std::vector<portion>& portions, double cap) const {
    double least = infinity;
    for (const portion& each : portions) {
      if (each.steps == 1) continue;
      least = std::min(least, plan_.alone(each.kind, static_cast<double>(each.steps))
                                  .total(0, true, each.at, range_of(each, cap).lowest)
                                  .second);
    }
    return std::sqrt(least);
  }

  /// A grid of spacing h of a block of steps, and the bytes that it took.
  [[nodiscard, gnu::cold]] discrete_step grid_of(const portion& part, double delta, double h, double tilt, double cap,
                                                 std::size_t& bytes) const {
    const loss_source& source = *kinds_[part.kind].source;
    const double fine = h / std::sqrt(static_cast<double>(part.steps));  // a power of 2 below h
    const bool common = part.of == share::common;
    if (part.of == share::rare) return source.rare_on_grid(h, cap, part.at);  // not in blocks
    discrete_step one = common ? source.common_on_grid(fine, part.at) : source.on_grid(fine, cap);
    const losses_of_block in = range_of(part, cap);
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
    compose(block.window_of(tilt, true, outside, infinity, in.highest, in.lowest), true);
    made.remove = as_one_step(sum, h);
    made.remove_below = as_one_step(below, h);
    if (source.is_symmetric()) {
      made.add = made.remove;
    } else {
      compose(block.window_of(tilt, false, outside, 2 / fine, common ? in.highest : infinity, in.lowest), false);
      made.add = as_one_step(sum, h);
    }
    return made;
  }

  std::vector<kind> kinds_;
  loss_plan<> plan_;
  double steps_ = 0;
};

}  // namespace pergrad::inline v0_1::detail
