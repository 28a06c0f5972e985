// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/pld/pld_block.hpp - the losses of a block of steps as those of one step on a coarser grid.
//
// A sum of many steps is far wider than one of them, and needs a grid that is as fine only near one step. Blocks of M
// steps, taken together on a spacing h and then put on a spacing of sqrt(M) h, add as much variance by that as their
// steps did by h, and a run of T steps is one of T / M blocks.
//
// Above: every atom may be too small by its error's bound, which is added; what lies above the window is at
// most P-mass M e^(-theta top) tau (composed_pld.hpp) and goes to infinity. Atoms are spread to two points, P and Q
// kept. Below: the same bound is taken off every atom, and so is all that may have wrapped around; atoms are merged at
// grid points (merged_losses.hpp). Paths with one step beyond a cut are an atom's worth of P and Q of their own.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <pergrad/privacy/pld/composed_pld.hpp>
#include <pergrad/privacy/pld/merged_losses.hpp>
#include <pergrad/privacy/pld/pld.hpp>
#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1::detail {

/// A composition on a grid of `spacing`, which has 8 significant bits; points are multiples of it.
template <pld_side Side, class Pays>
[[nodiscard, gnu::cold]] pld<Side> as_one_step(const composed_pld<Side, Pays>& sum, double spacing) {
  constexpr double u = unit_roundoff;
  constexpr double side = Side == upper ? 1 : -1;
  const auto n = static_cast<std::int64_t>(sum.atoms.size());
  const double off = sum.loss_error();
  const auto moved = [&](double e) { return e + side * (off + 8 * u * std::abs(e)); };
  const auto mass_of = [&](double e) {  // of a tilted atom of 1
    const double exponent = sum.log_scale - sum.tilt * e;
    const double errs =
        sum.log_scale_error + sum.tilt * off + 8 * u * (std::abs(sum.log_scale) + sum.tilt * std::abs(e));
    return std::exp(exponent + side * errs) * (1 + side * 1e-12);
  };
  const double noise =
      sum.atom_error * (1 + 1e-9) + (Side == upper ? 0.0 : (sum.outside_above + sum.outside_below) * (1 + 1e-9));
  const double lowest = moved(sum.loss(sum.first));
  const double highest = moved(sum.loss(sum.first + n - 1));
  const auto before = static_cast<std::int64_t>(std::floor(lowest / spacing)) - 2;
  const auto behind = static_cast<std::int64_t>(std::ceil(highest / spacing)) + 2;
  const auto buckets = static_cast<std::size_t>(behind - before);
  const double scale = -std::expm1(-spacing);
  const double additions = static_cast<double>(n) * u;  // at one point, at most

  pld<Side> made;
  made.spacing = spacing;
  made.first = before * pld<Side>::parts;
  std::vector<merged_piece> halves(Side == lower ? 2 * buckets : 0);
  if (Side == upper) made.masses.assign(buckets + 1, 0.0);
  for (std::int64_t place = sum.first; place < sum.first + n; ++place) {
    const double e = sum.loss(place);
    const double atom = std::max(sum.atoms[sum.place_of(place)], 0.0) + side * noise;
    if (!(atom > 0)) continue;
    const double p = mass_of(e) * atom;
    const double at = moved(e);
    const auto bucket = static_cast<std::size_t>(static_cast<std::int64_t>(std::floor(at / spacing)) - before);
    const double share = std::clamp(-std::expm1(made.loss(bucket) - at) / scale, 0.0, 1.0);
    if constexpr (Side == upper) {
      const double b = std::min(p, p * share * (1 + 16 * u));
      made.masses[bucket] += (p - b) * (1 + additions);
      made.masses[bucket + 1] += b * (1 + additions);
    } else {
      merged_piece& half = halves[2 * bucket + (at > made.loss(bucket) + spacing / 2 ? 1 : 0)];
      half.kept += p * (1 - additions);
      half.high += p * share * (1 - 16 * u - additions);
    }
  }
  if constexpr (Side == upper) {
    made.infinite = sum.infinite * (1 + 1e-9) +
                    mass_of(sum.loss(sum.first + n) - 2 * off) * sum.outside_above * (1 + 1e-9) +
                    static_cast<double>(n) * 1e-300;
  } else {
    made.masses = merged_losses<>{halves, spacing, 2}.masses(0);
    made.beyond_p = sum.beyond_p;
    made.beyond_q = sum.beyond_q;
  }
  return made;
}

}  // namespace pergrad::inline v0_1::detail
