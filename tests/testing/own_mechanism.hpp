// SPDX-License-Identifier: Apache-2.0
// tests/testing/own_mechanism.hpp - a private sum in thirty lines, for conformance to look at: a right one, and what is
// easily done wrong in it
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>
#include <span>
#include <vector>

#include <pergrad/pergrad.hpp>
#include <pergrad/testing/gradient_space.hpp>

enum class own_mistake {
  none,
  clips_elements,           // each by itself: the norm may be C sqrt(elements)
  clips_the_largest_alone,  // norms up to 5 C are left
  no_noise_among_records,   // where a sum is not zero
  one_coin,                 // for all records
  first_twice,              // the first record has two chances
  fixed_size,               // batches of as many records as are expected
};

/// Clipped gradients of Poisson-sampled records, and noise.
struct own_mechanism {
  own_mistake mistake = own_mistake::none;

  template <class Network>
  [[nodiscard]] auto operator()(const pergrad::host& /*executor*/, const Network& /*network*/,
                                const pergrad::testing::step_claim& claim) const {
    return [wrong = mistake, claim, random = std::mt19937_64{claim.seed}](const auto& records) mutable {
      const std::size_t width = Network::parameter_count;
      std::vector<double> sum(width);
      const auto drawn = draw(records.size(), claim.sampling, wrong, random);
      for (std::size_t i = 0; i < records.size(); ++i) {
        if (!drawn[i]) continue;
        const std::span<const float> gradient{records.input(i), width};
        double squares = 0;
        for (const float each : gradient) squares += std::pow(static_cast<double>(each), 2);
        const double norm = std::sqrt(squares);
        if (!std::isfinite(norm)) continue;
        const bool is_left = wrong == own_mistake::clips_the_largest_alone && norm <= 5.5 * claim.clip;
        const double weight = is_left ? 1 : std::min(1.0, claim.clip / std::max(norm, 1e-300));
        for (std::size_t k = 0; k < width; ++k) {
          const auto value = static_cast<double>(gradient[k]);
          sum[k] += wrong == own_mistake::clips_elements ? std::clamp(value, -claim.clip, claim.clip) : weight * value;
        }
      }
      std::normal_distribution<double> normal{0, claim.noise * claim.clip};
      for (double& each : sum) {
        const double noise = normal(random);
        if (wrong != own_mistake::no_noise_among_records || each == 0) each += noise;
      }
      return sum;
    };
  }

 private:
  template <class Random>
  [[nodiscard]] static std::vector<bool> draw(std::size_t count, double q, own_mistake wrong, Random& random) {
    std::vector<bool> drawn(count);
    std::bernoulli_distribution coin{q};
    const bool of_all = coin(random);
    for (std::size_t i = 0; i < count; ++i) drawn[i] = wrong == own_mistake::one_coin ? of_all : coin(random);
    if (wrong == own_mistake::first_twice && count > 0) drawn[0] = drawn[0] || coin(random);
    if (wrong == own_mistake::fixed_size) {
      const auto taken = static_cast<std::size_t>(std::lround(q * static_cast<double>(count)));
      for (std::size_t i = 0; i < count; ++i) drawn[i] = i < taken;
      std::shuffle(drawn.begin(), drawn.end(), random);
    }
    return drawn;
  }
};
