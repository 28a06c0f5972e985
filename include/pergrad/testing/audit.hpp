// SPDX-License-Identifier: Apache-2.0
// pergrad/testing/audit.hpp - audits of trainers: canaries, what is seen of them, and what that proves
//
//   audit_gradients              many runs with and without a canary, in gradient space (testing/gradient_space.hpp):
//                                the tightest, as the canary and the attacker are the worst that the analysis allows
//                                of clipping by norm (of elements clipped by themselves check_conformance tells)
//   audit_gradients_in_one_run   a thousand canaries in directions of their own, one run
//   audit_inputs_in_one_run      canaries that are records of a network, trained by any program; their losses are seen
//
// A canary is a gradient of ten times C in a direction that no other record has. With o_t what the sum of step t has in
// that direction, divided by C, a trainer that keeps its claim shows o_t ~ N(0, s^2) without the canary and
// (1 - q) N(0, s^2) + q N(1, s^2) with it. The best score is the log-likelihood ratio
//     sum_t ln(1 - q + q e^((o_t - 1/2) / s^2)).
// Mistakes may show better in others: how far apart the o_t of one run are (noise that repeats), how far o_t is from an
// element that is zero in every record (noise that elements share), and how large elements are that nobody has (noise
// that depends on records). All four are looked at, each with its part of the significance.
#pragma once

// clang-format off
#include <pergrad/detail/beside_the_umbrella.hpp>  // before anything is defined
// clang-format on

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <pergrad/batch.hpp>
#include <pergrad/detail/error_text.hpp>
#include <pergrad/expressions/evaluate.hpp>
#include <pergrad/initialise.hpp>
#include <pergrad/pergrad.hpp>
#include <pergrad/privacy/types.hpp>
#include <pergrad/testing/audit/one_run.hpp>
#include <pergrad/testing/audit/trade_off.hpp>
#include <pergrad/testing/audit/two_worlds.hpp>
#include <pergrad/testing/conformance.hpp>
#include <pergrad/testing/gradient_space.hpp>
#include <pergrad/testing/samples.hpp>

namespace pergrad::inline v0_1::testing {

/// One kind of score in both worlds.
struct scored_worlds {
  const char* name;
  two_worlds worlds;
};

/// What was seen of a canary in many runs: several kinds of scores, whose confidences together are that of the audit.
class gradient_audit {
 public:
  explicit gradient_audit(std::vector<scored_worlds> scores) : scores_{std::move(scores)} {}

  /// The first one is the likelihood.
  [[nodiscard]] const std::vector<scored_worlds>& scores() const noexcept { return scores_; }
  /// The score that proves the largest epsilon, and that lower bound; 0 if nothing was proven.
  [[nodiscard]] std::pair<const char*, double> epsilon(pergrad::delta delta) const {
    std::pair<const char*, double> most{scores_.front().name, 0};
    for (const scored_worlds& each : scores_) {
      const double epsilon = each.worlds.epsilon(delta);
      if (epsilon > most.second) most = {each.name, epsilon};
    }
    return most;
  }
  /// A lower bound of the mu of which the mechanism can keep to the Gaussian curve: for claims without sampling.
  [[nodiscard]] double gaussian_mu() const {
    double most = 0;
    for (const scored_worlds& each : scores_) most = std::max(most, each.worlds.gaussian_mu());
    return most;
  }
  /// The name of a score that contradicts the claim that the mechanism keeps to this curve; null if none does.
  template <trade_off_curve Curve>
  [[nodiscard]] const char* contradicts(const Curve& curve) const {
    for (const scored_worlds& each : scores_) {
      if (each.worlds.contradicts(curve)) return each.name;
    }
    return nullptr;
  }

 private:
  std::vector<scored_worlds> scores_;
};

/// How an audit looks.
struct audit_options {
  std::size_t runs = 1000;   ///< in each world
  std::size_t steps = 1;     ///< of a run
  std::size_t records = 20;  ///< beside the canary
  double confidence = 0.95;
};

namespace testing_detail {

/// ln(1 - q + q e^((o - 1/2) / s^2)); what is not finite can only be a canary's.
[[nodiscard]] inline double canary_evidence(double o, const step_claim& claim) noexcept {
  if (!std::isfinite(o)) return std::numeric_limits<double>::infinity();
  const double exponent = (o - 0.5) / (claim.noise * claim.noise);
  const double q = claim.sampling;
  return q == 1 ? exponent
                : std::max(exponent, 0.0) +
                      std::log((1 - q) * std::exp(-std::max(exponent, 0.0)) + q * std::exp(std::min(exponent, 0.0)));
}

/// Scores of one run, of what its steps let out.
struct run_scores {
  static constexpr const char* names[] = {"likelihood", "steps apart", "elements apart", "size of noise"};
  static constexpr std::size_t count = std::size(names);
  double values[count] = {0, 0, 0, 0};

  run_scores(std::span<const std::vector<double>> steps, const step_claim& claim) {
    double least = std::numeric_limits<double>::infinity();
    double most = -least;
    for (const std::vector<double>& released : steps) {
      const double o = released.front() / claim.clip;
      values[0] += canary_evidence(o, claim);
      least = std::min(least, o);
      most = std::max(most, o);
      values[2] = std::max(values[2], std::abs(o - released.back() / claim.clip));
      for (std::size_t i = first_of_nobody; i < released.size(); ++i) {
        values[3] += std::pow(released[i] / claim.clip, 2);
      }
    }
    values[1] = most - least;
    for (double& value : values) {
      if (std::isnan(value)) value = std::numeric_limits<double>::infinity();
    }
  }
};

inline void require_audit(const step_claim& claim, std::size_t steps) {
  if (!(claim.noise > 0) || !(claim.clip > 0) || steps == 0) {
    detail::throw_invalid_argument({"pergrad: testing: an audit needs noise, a clip norm and a step, got ", claim.noise,
                                    ", ", claim.clip, " and ", steps});
  }
}

}  // namespace testing_detail

/// Runs of `options.steps` steps in each world, with the steps that `make` makes (testing/gradient_space.hpp): each run
/// is another trainer's with a seed of its own, as bounds count runs that know nothing of each other (an optimizer's
/// momentum would add up a world's earlier runs). All runs of a world are one trainer's where make.is_memoryless() says
/// that its steps are the same however many came before. Throws std::invalid_argument for a claim without noise, less
/// than 4 runs or no steps, and what the trainer throws.
template <class Make>
[[nodiscard]] gradient_audit audit_gradients(const host& executor, const Make& make, const step_claim& claim,
                                             const audit_options& options = {}) {
  using namespace testing_detail;
  require_audit(claim, options.steps);
  std::vector<double> scores[2][run_scores::count];
  const bool is_memoryless = [&] {
    if constexpr (requires { make.is_memoryless(); }) return make.is_memoryless();
    return false;
  }();
  for (const std::size_t world : {0U, 1U}) {
    conformance_records records = ordinary_records(options.records, claim.clip);
    if (world == 1) records.add().front() = static_cast<float>(10 * claim.clip);
    const auto view = records.view();
    gradient_space<conformance_width> network{executor, zeros{}};
    const auto make_for = [&](std::size_t run) {
      step_claim of_run_alone = claim;
      of_run_alone.seed = 2 * claim.seed + world + (std::uint64_t{run} << 32U);
      return make(executor, network, of_run_alone);
    };
    using step_type = decltype(make_for(0));
    auto step = std::make_unique<step_type>(make_for(0));
    for (std::size_t run = 0; run < options.runs; ++run) {
      if (run > 0 && !is_memoryless) {
        step.reset();  // it may refer to the network
        network = gradient_space<conformance_width>{executor, zeros{}};
        step = std::make_unique<step_type>(make_for(run));
      }
      released_steps released;
      for (std::size_t t = 0; t < options.steps; ++t) released.push_back((*step)(view));
      const run_scores of_run{released, claim};
      for (std::size_t kind = 0; kind < run_scores::count; ++kind) scores[world][kind].push_back(of_run.values[kind]);
    }
  }
  const double confidence = 1 - (1 - options.confidence) / run_scores::count;
  std::vector<scored_worlds> seen;
  for (std::size_t kind = 0; kind < run_scores::count; ++kind) {
    seen.push_back(
        {run_scores::names[kind], two_worlds{std::move(scores[1][kind]), std::move(scores[0][kind]), confidence}});
  }
  return gradient_audit{std::move(seen)};
}

/// 1024 canaries in directions of their own, each in the data set by a fair coin, and one run. `coins` seeds the coins;
/// the trainer must not know it. Throws as `audit_gradients`.
template <class Make>
[[nodiscard]] one_run audit_gradients_in_one_run(const host& executor, const Make& make, const step_claim& claim,
                                                 std::uint64_t coins, const audit_options& options = {}) {
  constexpr std::size_t canaries = 1024;
  testing_detail::require_audit(claim, options.steps);
  gradient_records<canaries> records;
  std::vector<std::uint8_t> included(canaries);
  for (std::size_t i = 0; i < canaries; ++i) {
    included[i] = detail::public_uniform(coins, i) < 0.5 ? 1 : 0;
    if (included[i] != 0) records.add()[i] = static_cast<float>(10 * claim.clip);
  }
  gradient_space<canaries> network{executor, zeros{}};
  auto step = make(executor, network, claim);
  const auto view = records.view();
  std::vector<double> scores(canaries);
  for (std::size_t t = 0; t < options.steps; ++t) {
    const std::vector<double> released = step(view);
    for (std::size_t i = 0; i < canaries; ++i) {
      scores[i] += testing_detail::canary_evidence(released[i] / claim.clip, claim);
    }
  }
  for (double& score : scores) {
    if (std::isnan(score)) score = std::numeric_limits<double>::infinity();
  }
  return one_run{std::move(scores), included, options.confidence};
}

/// Canaries that are records: each joins `records` by a fair coin, `train(network, dataset)` trains on all of them as
/// any program may, and the score of a canary is by how much its loss has fallen, as an attacker sees it who has the
/// parameters before and after. Records that are unlike others, of a wrong class for example, are remembered best;
/// `draw_samples` makes some. The parameters that `network` has before count as public. Throws std::invalid_argument
/// for no canaries, and what `train` throws.
template <class Loss, class Network, class Train>
[[nodiscard]] one_run audit_inputs_in_one_run(const host& executor, Network& network,
                                              const sample_set<Network, Loss>& records,
                                              const sample_set<Network, Loss>& canaries, Train&& train,
                                              std::uint64_t coins, double confidence = 0.95) {
  using samples = sample_set<Network, Loss>;
  using value = typename samples::input_value;
  using target = typename samples::target;
  if (canaries.size() == 0) detail::throw_invalid_argument({"pergrad: testing: an audit without canaries"});
  typename Network::tape tape{executor, max_batch{canaries.size()}};
  const auto losses_now = [&] {
    const auto batch = canaries.view();
    return unprotected::evaluate(executor, losses(per_sample_gradients(network, Loss{}, batch, tape)));
  };
  const std::vector<double> before = losses_now();
  samples all = records;
  std::vector<std::uint8_t> included(canaries.size());
  for (std::size_t i = 0; i < canaries.size(); ++i) {
    included[i] = detail::public_uniform(coins, i) < 0.5 ? 1 : 0;
    if (included[i] == 0) continue;
    const samples one = canaries.pick(std::vector<std::size_t>{i});
    all.inputs.insert(all.inputs.end(), one.inputs.begin(), one.inputs.end());
    all.targets.insert(all.targets.end(), one.targets.begin(), one.targets.end());
    all.lengths.insert(all.lengths.end(), one.lengths.begin(), one.lengths.end());
  }
  const dataset<value, target> joined{std::span<const value>{all.inputs}, std::span<const target>{all.targets},
                                      Network::input_shape, samples::target_count,
                                      std::span<const std::uint32_t>{all.lengths}};
  std::forward<Train>(train)(network, joined);
  std::vector<double> scores = losses_now();
  for (std::size_t i = 0; i < scores.size(); ++i) {
    scores[i] = before[i] - scores[i];
    if (std::isnan(scores[i])) scores[i] = 0;
  }
  return one_run{std::move(scores), included, confidence};
}

}  // namespace pergrad::inline v0_1::testing
