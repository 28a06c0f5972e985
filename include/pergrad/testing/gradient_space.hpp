// SPDX-License-Identifier: Apache-2.0
// pergrad/testing/gradient_space.hpp - trainers without a model: records that are their own gradients
//
// The network <x, w> with the loss "its output" has the gradient x, whatever w is. So all that a trainer does to
// gradients (sampling, clipping, sums, noise, division, ledger) can be given any gradients at all, and what its steps
// let out can be read in the same space. A canary there is a gradient in a direction that nobody else has: the worst
// case of the analysis (Nasr et al. 2021, arXiv:2101.04535).
#pragma once

// clang-format off
#include <pergrad/detail/beside_the_umbrella.hpp>  // before anything is defined
// clang-format on

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <pergrad/batch.hpp>
#include <pergrad/initialise.hpp>
#include <pergrad/layers/linear.hpp>
#include <pergrad/network.hpp>
#include <pergrad/pergrad.hpp>
#include <pergrad/privacy/samplers/fixed_size.hpp>
#include <pergrad/privacy/samplers/poisson_replace_one.hpp>
#include <pergrad/privacy/sampling.hpp>
#include <pergrad/privacy/types.hpp>
#include <pergrad/train/dp_sgd.hpp>
#include <pergrad/train/dp_sgd_options.hpp>

namespace pergrad::inline v0_1::testing {

/// <x, w>: `Width` parameters.
template <std::size_t Width, class Scalar = float>
using gradient_space = basic_network<Scalar, shape{Width}, linear<1, no_bias>>;

/// The output itself. Targets are not used; there is one a record, as every record has some.
struct output_as_loss {
  template <class Scalar>
  using target = Scalar;
  [[nodiscard]] static constexpr std::size_t target_count(shape /*output*/) noexcept { return 1; }
  [[nodiscard]] static constexpr bool accepts(shape output) noexcept { return output.size() == 1; }
  template <class Scalar>
  [[nodiscard]] static constexpr bool valid(shape /*output*/, std::span<const Scalar> /*targets*/) noexcept {
    return true;
  }
  template <class Scalar>
  [[nodiscard]] static double evaluate(std::span<const Scalar> y, std::span<const Scalar> /*targets*/,
                                       std::span<Scalar> dy) noexcept {
    dy[0] = 1;
    return static_cast<double>(y[0]);
  }
};

/// Gradients as records.
template <std::size_t Width, class Scalar = float>
class gradient_records {
 public:
  /// All elements of one more gradient are zero: set what is to be set.
  std::span<Scalar> add() {
    values_.resize(values_.size() + Width);
    targets_.push_back(0);
    return std::span<Scalar>{values_}.last(Width);
  }
  [[nodiscard]] std::size_t size() const noexcept { return targets_.size(); }
  /// Of all of them, or of the first `count`. This object must outlive it, and not grow meanwhile.
  [[nodiscard]] dataset<Scalar, Scalar> view() const { return view(size()); }
  [[nodiscard]] dataset<Scalar, Scalar> view(std::size_t count) const {
    return {std::span{values_}.first(count * Width), std::span{targets_}.first(count), shape{Width}};
  }

 private:
  std::vector<Scalar> values_;
  std::vector<Scalar> targets_;
};

/// What a trainer says that a step of it does; a maker of trainers is told this and has to do it.
struct step_claim {
  double clip = 0.7;      ///< C
  double noise = 1;       ///< sigma: the noise's deviation is at least sigma C
  double sampling = 1;    ///< q
  double divisor = 10;    ///< public
  std::size_t batch = 4;  ///< records of a physical batch, at most
  std::uint64_t seed = 1;
};

/// The sampler of a claim: Poisson sampling.
struct poisson_of_claim {
  [[nodiscard]] poisson_sampling operator()(double q) const { return poisson_sampling{sampling_probability{q}}; }
};

/// A maker of trainers: make(executor, network, claim) gives a function that takes records, makes one step and returns
/// what the step lets out, times the divisor: a noised sum, as an attacker sees it. Executor, network and records
/// outlive it.
///
/// This one makes `dp_sgd` with some options of its own, of which those in the claim are replaced. What is looked at
/// are the parameters: each step begins at zero with the plain rule of SGD and a learning rate that is the divisor.
/// `Sampler`: gives the sampler with which a record is in a step with the claim's probability, independently of the
/// steps before.
template <random_generator Generator = seeded_generator, class Sampler = poisson_of_claim>
struct audited_dp_sgd {
  using options_type = dp_options<std::decay_t<std::invoke_result_t<Sampler, double>>>;
  options_type options{};

  /// Are steps the same however many came before? Rounds, turns, an optimizer, a clip norm may remember them.
  [[nodiscard]] bool is_memoryless() const {
    using sampling = typename options_type::sampling_type;
    constexpr bool draws_anew = std::is_same_v<sampling, poisson_sampling> ||
                                std::is_same_v<sampling, replace_one_poisson_sampling> ||
                                std::is_same_v<sampling, fixed_size_sampling>;
    return draws_anew && options.optimizer == optimizer_kind::sgd && options.momentum == 0 && !options.adaptive_clip &&
           !options.individual && !options.schedules.any() && !options.budget;
  }

  template <class Network>
  [[nodiscard]] auto operator()(const host& executor, Network& network, const step_claim& claim) const {
    using trainer = dp_sgd<Network, output_as_loss, Generator, host, options_type>;
    options_type chosen = options;
    chosen.clip = l2_clip_norm{claim.clip};
    chosen.noise = noise_multiplier{claim.noise};
    chosen.sampling = Sampler{}(claim.sampling);
    chosen.divisor = expected_batch_size{claim.divisor};
    chosen.learning_rate = learning_rate{claim.divisor};
    chosen.max_batch = max_batch{claim.batch};
    std::shared_ptr<trainer> made;
    if constexpr (Generator::is_private) {
      made = std::make_shared<trainer>(executor, network, output_as_loss{}, chosen);
    } else {
      made = std::make_shared<trainer>(executor, network, output_as_loss{}, chosen, Generator{claim.seed});
    }
    return [made, &network](const auto& records) {
      std::fill(network.parameters().begin(), network.parameters().end(), typename Network::scalar{0});
      made->step(records);
      std::vector<double> released;
      for (const auto parameter : std::as_const(network).parameters()) released.push_back(-double{parameter});
      return released;
    };
  }
};

}  // namespace pergrad::inline v0_1::testing
