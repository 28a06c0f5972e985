// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/pld/pld.hpp - a privacy loss on a grid, from above or from below.
//
//
// One step with sampling probability q and noise multiplier s, neighbours by adding or removing one record. With
// m = 1/s, u = x/s and phi the standard Gaussian density, the two sides see (Mironov, Talwar & Zhang 2019,
// arXiv:1908.10530)
//     D(u) = (1 - q) phi(u) + q phi(u - m)   and   phi(u),      l(u) = ln D/phi = ln(1 - q + q exp(u m - m^2/2)).
// remove: P = D, Q = phi, loss l. add: P = phi, Q = D, loss -l. The hockey stick of a pair,
// delta(eps) = sup_S P(S) - e^eps Q(S) = E_P[(1 - e^(eps - loss))+], is all that composition depends on: a pair whose
// curve is nowhere below that of another dominates it, also when both are composed, with whatever it may be, also
// adaptively (Zhu, Dong & Wang 2022, arXiv:2106.08567). A discrete pair is a list of atoms: mass p at loss e has P-mass
// p and Q-mass p e^-e. The proofs below use that these make a pair dominate: more mass, mass at a larger loss, mass at
// infinity, and spreading mass to both sides with its P and Q kept; and their inverses make it be dominated, merging
// mass with its P and Q added up among them, which is post-processing.
//
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pergrad::inline v0_1 {

/// Which way a discrete privacy loss errs: `upper` says too much loss, never too little; `lower` the reverse.
enum class pld_side { lower, upper };
inline constexpr pld_side upper = pld_side::upper;
inline constexpr pld_side lower = pld_side::lower;

/// Privacy loss on an even grid: atom i has P-mass `masses[i]` and Q-mass `masses[i]` e^-loss(i).
template <pld_side Side>
struct pld {
  static constexpr std::int64_t parts = std::int64_t{1} << 24;  ///< of a grid's spacing, in which `first` is counted

  double spacing = 1;      ///< of losses, in nats; at most 8 significant bits
  std::int64_t first = 0;  ///< loss of the first atom, in spacing / parts
  double infinite = 0;     ///< P-mass where there is no Q-mass
  double beyond_p = 0;     ///< of a lower side: masses that were cut off
  double beyond_q = 0;
  std::vector<double> masses;

  /// Loss of an atom, without rounding.
  [[nodiscard]] double loss(std::size_t i) const noexcept {
    return static_cast<double>(first + static_cast<std::int64_t>(i) * parts) * (spacing / static_cast<double>(parts));
  }

  /// Puts mass on point i, and `share` of it on the next one: what moves its loss up, by up to the spacing. To infinity
  /// where that is not enough, which is a share above 1. Rounded up.
  void put(std::size_t i, double mass, double share) requires(Side == pld_side::upper) {
    if (share > 1) {
      infinite += mass;
      return;
    }
    masses[i] += mass * (1 - share) * (1 + 0x1p-48);
    masses[i + 1] += mass * share * (1 + 0x1p-48);
  }

  /// Takes masses above `most` out, and keeps their P and Q for what composed_pld.hpp makes of them.
  void cut(double most) requires(Side == pld_side::lower) {
    while (masses.size() > 1 && loss(masses.size() - 1) > most) {
      beyond_p += masses.back();
      beyond_q += masses.back() * std::exp(-loss(masses.size() - 1));
      masses.pop_back();
    }
  }

  /// Spreads masses above the last point that is no higher than `most` to that point and to infinity, with P and Q
  /// kept, which makes an upper side no smaller, and hockey sticks below `most` no larger.
  void cut(double most) requires(Side == pld_side::upper) {
    std::size_t last = masses.size() - 1;
    while (last > 0 && loss(last) > most) --last;
    for (std::size_t i = last + 1; i < masses.size(); ++i) {
      const double share = std::exp(loss(last) - loss(i));
      masses[last] += masses[i] * share * (1 + 0x1p-48);
      infinite += masses[i] * (1 - share + 0x1p-48);
    }
    masses[last] *= 1 + static_cast<double>(masses.size() - last) * 0x1p-52;
    infinite *= 1 + static_cast<double>(masses.size() - last) * 0x1p-52;
    masses.resize(last + 1);
  }

  /// The hockey stick at `eps` (also a negative one) of these atoms. Relative rounding below (2 n + 40) 2^-53 for n
  /// atoms. For single steps and tests: it takes time in proportion to the grid.
  [[nodiscard]] double delta(double eps) const {
    double sum = 0;
    for (std::size_t i = masses.size(); i-- > 0 && loss(i) > eps;) sum += masses[i] * -std::expm1(eps - loss(i));
    return sum + infinite + std::max(0.0, beyond_p * (1 - 0x1p-36) - std::exp(eps) * beyond_q * (1 + 0x1p-36));
  }
};

namespace detail {

/// h rounded up to 8 significant bits.
[[nodiscard]] inline double coarse_spacing(double h) noexcept {
  int exponent = 0;
  const double fraction = std::frexp(h, &exponent);
  return std::ldexp(std::ceil(fraction * 256), exponent - 8);
}

/// The share of a mass that goes to the next grid point where losses move up by at most `xi`, for `pld<upper>::put`: at
/// least (1 - e^-xi) / (1 - e^-h), and at least (e^xi - 1) / (1 - e^-h). `scale` is 1 - e^-h.
[[nodiscard]] inline double share_moved_up(double xi, double scale) noexcept {
  return xi <= 0.01 && xi * 1.01 <= scale ? xi * 1.01 / scale : 2;
}

/// One step on a grid: both sides of `remove`, the upper one of `add`.
struct discrete_step {
  pld<upper> remove;
  pld<lower> remove_below;
  pld<upper> add;
  // Of rare losses alone (pld_rare.hpp): bounds of ln of what all others have.
  double least_log_p = 0;
  double most_log_p = 0;
  double least_log_q = 0;
  double most_log_q = 0;
};

}  // namespace detail
}  // namespace pergrad::inline v0_1
