// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/accounting/step_losses.hpp - which privacy losses the steps of a sampler have.
//
// An event type takes part in the PLD accountant by a function losses_of(event), found by its argument, that returns
// one of these. Noise multipliers s are deviations over the clip bound C, whatever the relation: what one record adds
// to a sum is at most C, so replacing it changes a sum by up to 2 C.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include <pergrad/detail/error_text.hpp>
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
