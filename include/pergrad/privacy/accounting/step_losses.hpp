// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/accounting/step_losses.hpp - which privacy losses the steps of a sampler have.
//
// An event type takes part in the PLD accountant by a function losses_of(event), found by its argument, that returns
// one of these. Noise multipliers s are deviations over the clip bound C, whatever the relation: what one record adds
// to a sum is at most C, so replacing it changes a sum by up to 2 C.
//
// Truncated Poisson. Records are drawn with probability q each, and if more than B were drawn, B of them are kept, all
// sets alike. Let N be the number of the other n - 1 records that were drawn. Given N < B, the record takes part with
// probability q, and nothing is truncated. Given N >= B, order the B that would be kept without it: their joint law
// does not depend on N. The record is drawn and kept with probability q B/(N + 1), and then stands in the place of the
// last one; in the mean over N >= B with
//     q' = B/n Pr[Bin(n, q) > B] / p,    p = Pr[Bin(n - 1, q) >= B],
// as q/(N + 1) Pr[Bin(n - 1, q) = N] = Pr[Bin(n, q) = N + 1] / n. So with probability 1 - p the pair is that of
// Poisson sampling, otherwise one of (1 - q') N(c + y) + q' N(c + x) against N(c + y), |x - y| <= 2 (adding, removing),
// or against (1 - q') N(c + y) + q' N(c + x') (replacing; both ways, loss_source.hpp). n counts the larger of two
// neighbours. From below: gradients of 0 but for the record, which is in with probability (1 - p) q + p q'.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include <pergrad/detail/error_text.hpp>
#include <pergrad/privacy/accounting/binomial_tail.hpp>
#include <pergrad/privacy/pld/allocation_source.hpp>
#include <pergrad/privacy/pld/loss_source.hpp>
#include <pergrad/privacy/sampling.hpp>
#include <pergrad/privacy/types.hpp>

namespace pergrad::inline v0_1 {

/// Thrown by an accountant that has no proven answer for what it was asked; says why. rdp_accountant may have one.
class accounting_refused : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

namespace detail {

[[noreturn]] [[gnu::cold, gnu::noinline]] inline void refuse_accounting(std::initializer_list<text_piece> pieces) {
  throw accounting_refused{error_text{pieces}.text};
}

/// The losses of one event.
struct step_losses {
  struct part {
    std::unique_ptr<loss_source> source;
    std::uint64_t count = 1;
  };
  double gaussian = 0;      ///< a Gaussian of this sensitivity over its deviation
  std::vector<part> parts;  ///< and these
};

/// Throws accounting_refused on too little noise.
inline void require_noise(double noise, double least) {
  if (noise >= least) return;
  refuse_accounting(
      {"pergrad: pld_accountant: no bound for so little noise: the noise multiplier is below 1/32 (1e-9 without "
       "sampling); rdp_accountant has one"});
}

/// One pair of sensitivity `reach` (of clip bounds) at most, of which `made` makes the source.
template <class Made>
[[nodiscard]] step_losses pair_losses(double q, double noise, double reach, double gaussians_apart, const Made& made) {
  step_losses losses;
  if (q == 0) return losses;
  require_noise(noise / reach, q < 1 ? 1.0 / 32 : 1e-9);
  const double m = reach / noise;
  if (q == 1) {
    losses.gaussian = gaussians_apart * m;
  } else {
    losses.parts.push_back({made(continuous_step{q, m, 2, 0}), 1});
  }
  return losses;
}

/// Poisson sampling, neighbours by adding or removing one record.
template <class = void>
[[nodiscard]] step_losses poisson_losses(double q, double noise) {
  return pair_losses(q, noise, 1, 1,
                     [](const continuous_step& step) { return std::make_unique<pair_source<sampled_pair<>>>(step); });
}
/// Poisson sampling, neighbours by replacing one record.
template <class = void>
[[nodiscard]] step_losses poisson_replace_losses(double q, double noise) {
  return pair_losses(q, noise, 1, 2,
                     [](const continuous_step& step) { return std::make_unique<pair_source<replaced_pair<>>>(step); });
}
/// Batches of fixed size, q of all records, without replacement; neighbours by replacing one record.
template <class = void>
[[nodiscard]] step_losses fixed_size_losses(double q, double noise) {
  return pair_losses(q, noise, 2, 1, [](const continuous_step& step) {
    return std::make_unique<mixture_source<>>(std::vector<step_part>{{1, pair_kind::both_ways, step}},
                                              step_part{1, pair_kind::sampled, step});
  });
}

struct truncated_poisson {
  double q;
  double noise;
  std::uint64_t capacity;       ///< of a batch: B
  std::uint64_t least_records;  ///< of the larger of two neighbours
  std::uint64_t most_records;   ///< the bound holds for any number between them; at most 64 apart
  neighbouring relation;
};

/// Poisson sampling of batches that are cut to a capacity.
template <class = void>
[[nodiscard]] step_losses truncated_poisson_losses(const truncated_poisson& of) {
  step_losses made;
  if (of.q == 0 || of.capacity == 0 || of.most_records == 0) return made;
  const bool replaces = of.relation == neighbouring::replace_one;
  if (of.most_records <= of.capacity) {
    return replaces ? poisson_replace_losses(of.q, of.noise) : poisson_losses(of.q, of.noise);
  }
  require_noise(of.noise / 2, 1.0 / 32);
  const auto capacity = static_cast<double>(of.capacity);
  double plain = 0;
  double cut = 0;
  double kept = 0;  // q'
  double least_taking_part = of.q;
  for (std::uint64_t n = std::max<std::uint64_t>(of.least_records, 1); n <= of.most_records; ++n) {
    const probability_bounds p = binomial_tail(n - 1, of.q, of.capacity);
    const probability_bounds more = binomial_tail(n, of.q, of.capacity + 1);
    const double share = capacity / static_cast<double>(n);
    // q B/(N + 1) is at most q B/(B + 1), also in the mean.
    const double most_kept = of.q * capacity / (capacity + 1) * (1 + 1e-15);
    plain = std::max(plain, (1 - p.least) * (1 + 1e-15));
    cut = std::max(cut, p.most);
    if (p.most > 0)
      kept = std::max(kept, p.least > 0 ? std::min(most_kept, share * more.most / p.least * (1 + 1e-14)) : most_kept);
    least_taking_part = std::min(least_taking_part, ((1 - p.most) * of.q + share * more.least) * (1 - 1e-14));
  }
  const double m = 1 / of.noise;
  // Without sampling, what is replaced is a Gaussian of sensitivity 2.
  const auto untruncated = [&](double weight, double q) -> step_part {
    if (!replaces) return {weight, pair_kind::sampled, {q, m, 2, 0}};
    return {weight, q < 1 ? pair_kind::replaced : pair_kind::sampled, {q, q < 1 ? m : 2 * m, 2, 0}};
  };
  std::vector<step_part> parts;
  if (plain > 0) parts.push_back(untruncated(plain, of.q));
  if (cut > 0) parts.push_back({cut, replaces ? pair_kind::both_ways : pair_kind::sampled, {kept, 2 * m, 2, 0}});
  const step_part below = untruncated(1, least_taking_part);
  made.parts.push_back({std::make_unique<mixture_source<>>(std::move(parts), below), 1});
  return made;
}

/// Every record takes part in `times` of `steps` steps, chosen for each record by itself, all sets alike; neighbours by
/// adding or removing one record. An epoch of `steps` steps is one event. A partition of the steps into `times` blocks,
/// drawn at random, and one step of each block make such a set; whoever knows the partition sees one source a block.
/// Precondition: 1 <= times <= steps <= 2^24.
template <class = void>
[[nodiscard]] step_losses allocation_losses(std::uint64_t steps, std::uint64_t times, double noise) {
  require_noise(noise, 1.0 / 32);
  step_losses made;
  const double m = 1 / noise;
  if (times == steps) {
    made.gaussian = std::sqrt(static_cast<double>(times)) * m * (1 + 4 * unit_roundoff);
    return made;
  }
  const std::uint64_t length = steps / times;
  const std::uint64_t longer = steps % times;  // blocks of one more
  // From below, whoever does not know the partition may add up all releases; each block has its share of that.
  const double sum = times == 1 ? 0 : m * std::sqrt(static_cast<double>(times) / static_cast<double>(steps));
  const auto blocks = [&](std::uint64_t of, std::uint64_t count) {
    if (count != 0) made.parts.push_back({std::make_unique<allocation_source<>>(of, m, sum), count});
  };
  blocks(length, times - longer);
  blocks(length + 1, longer);
  return made;
}

}  // namespace detail

/// Of Poisson sampling, neighbours by adding or removing one record.
template <class = void>
[[nodiscard]] detail::step_losses losses_of(const sampled_gaussian_event& event) {
  return detail::poisson_losses(event.sampling_probability, event.noise_multiplier);
}

}  // namespace pergrad::inline v0_1
