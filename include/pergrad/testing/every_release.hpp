// SPDX-License-Identifier: Apache-2.0
// pergrad/testing/every_release.hpp - the sensitivity of every release that a network can have: each kind of clipping,
// strategy, relation and way to add up, and each sampler of a trainer
//
// A release is g (Q(S) + k), so a rehearsal without noise shows g Q(S), and neighbours must not move it by more than
// g D (privacy/sensitivity.hpp), exactly; a float that shows it rounds once more. What noise is really drawn is
// measured beside it, from releases of an empty sum with a noise multiplier of 1: its deviation must be g D as well, so
// that a claim that nobody keeps is found, too.
//
// A new kind of clipping is a line in `for_each_clipping`, of a trainer in `trainer_clippings`; a new sampler is a line
// in `for_each_sampler`.
#pragma once

// clang-format off
#include <pergrad/detail/beside_the_umbrella.hpp>  // before anything is defined
// clang-format on

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <pergrad/batch.hpp>
#include <pergrad/expressions/clip.hpp>
#include <pergrad/expressions/evaluate.hpp>
#include <pergrad/expressions/noise.hpp>
#include <pergrad/expressions/totals.hpp>
#include <pergrad/initialise.hpp>
#include <pergrad/losses/cross_entropy.hpp>
#include <pergrad/pergrad.hpp>
#include <pergrad/privacy/generator.hpp>
#include <pergrad/privacy/samplers/cyclic_poisson.hpp>
#include <pergrad/privacy/samplers/fixed_size.hpp>
#include <pergrad/privacy/samplers/min_separation.hpp>
#include <pergrad/privacy/samplers/poisson_replace_one.hpp>
#include <pergrad/privacy/samplers/random_allocation.hpp>
#include <pergrad/privacy/samplers/shuffled.hpp>
#include <pergrad/privacy/samplers/truncated_poisson.hpp>
#include <pergrad/privacy/sampling.hpp>
#include <pergrad/privacy/sensitivity.hpp>
#include <pergrad/privacy/types.hpp>
#include <pergrad/privacy/units.hpp>
#include <pergrad/testing/observer.hpp>
#include <pergrad/testing/samples.hpp>
#include <pergrad/testing/sensitivity.hpp>
#include <pergrad/train/dp_sgd.hpp>
#include <pergrad/train/dp_sgd_options.hpp>

namespace pergrad::inline v0_1::testing {

/// One release that was probed.
struct release_report {
  std::string name;
  sensitivity_report moved;
  double deviation = 0;    ///< of the noise that is drawn at a noise multiplier of 1
  bool has_noise = false;  ///< the deviation is what was claimed, but for six standard errors
  [[nodiscard]] bool holds() const noexcept { return moved.holds && has_noise; }
  [[nodiscard]] std::string text() const {
    return name + ": " + moved.text() + ", noise " + std::to_string(deviation / moved.sensitivity) + " of it" +
           (has_noise ? "" : ", MUST BE 1");
  }
};

namespace testing_detail {

inline constexpr double probed_clip = 0.7;
inline constexpr std::size_t noise_values = 20'000;  ///< that are looked at: six standard errors are 3 %

/// visit(name, clip): `clip(gradients)` makes clipped gradients.
template <class Network, class Visit>
void for_each_clipping(const Visit& visit) {
  const l2_clip_norm bound{probed_clip};
  visit("flat", [=](const auto& g) { return clip(g, bound); });
  visit("per layer", [=](const auto& g) { return clip_per_layer(g, bound); });
  visit("automatic", [=](const auto& g) { return normalise(g, bound); });
  visit("per-sample adaptive", [=](const auto& g) { return normalise_adaptively(g, bound); });
  if constexpr (detail::clipping_groups < Network >> 1) {
    const std::vector<l2_clip_norm> bounds(detail::clipping_groups<Network>, bound);
    visit("per group", [=](const auto& g) { return clip_per_group(g, bounds); });
  }
}

/// How far neighbours may move a step's sum with a sampler, in D; 0: they are not its neighbours.
struct sampler_moves {
  int added = 1;     ///< a record more or less
  int replaced = 2;  ///< one that leaves and one that joins
};

/// visit(name, make, moves): `make(records)` is a sampler of so many. Which records are drawn may depend on nothing but
/// the step and their own numbers, and on how many there are, so that all that neighbours have in common is drawn
/// alike.
template <class Visit>
void for_each_sampler(const Visit& visit) {
  const sampling_probability half{0.5};
  const auto count = [](std::size_t records) { return static_cast<std::uint32_t>(records); };
  const auto of = [](const auto& sampling) { return [=](std::size_t) { return sampling; }; };
  visit("everybody", of(poisson_sampling{sampling_probability{1}}), sampler_moves{});
  visit("Poisson, q = 1/2", of(poisson_sampling{half}), sampler_moves{});
  visit("Poisson, replacing one", of(replace_one_poisson_sampling{half}), sampler_moves{0, 2});
  // One that is added may take another one's place.
  visit("truncated Poisson", of(truncated_poisson_sampling{half, batch_capacity{3}, public_record_count{64}}),
        sampler_moves{2, 2});
  visit("truncated Poisson, replacing one",
        of(replace_one_truncated_poisson_sampling{half, batch_capacity{3}, public_record_count{64}}),
        sampler_moves{0, 2});
  visit(
      "fixed size",
      [=](std::size_t records) {
        return fixed_size_sampling{batch_size{count(records + 1) / 2}, public_record_count{count(records)}};
      },
      sampler_moves{0, 2});
  visit(
      "shuffled",
      [=](std::size_t records) {
        return shuffled_batches{batch_size{count(records + 1) / 2}, public_record_count{count(records)}};
      },
      sampler_moves{0, 2});
  visit("random allocation", of(random_allocation{round_steps{3}, participations{2}}), sampler_moves{});
  visit("balls in bins", of(balls_in_bins_sampling{round_steps{2}, epoch_count{2}}), sampler_moves{});
  visit("cyclic Poisson", of(cyclic_poisson_sampling{sampling_probability{1}, round_steps{2}}), sampler_moves{});
  visit("min-sep", of(min_separation_sampling{half, round_steps{2}}), sampler_moves{});
  visit(
      "owners",
      [=](std::size_t records) {
        std::vector<std::uint32_t> owners(records);
        std::iota(owners.begin(), owners.end(), 0U);
        return of_owners{poisson_sampling{half}, owners};
      },
      sampler_moves{});
  visit("views", of(with_views{poisson_sampling{half}, view_count{2}}), sampler_moves{});
}

struct trainer_clipping {
  const char* name = "";
  clipping_kind kind = clipping_kind::flat;
  bool adapts = false;  ///< by a quantile of the norms
};
inline constexpr trainer_clipping trainer_clippings[] = {
    {"flat", clipping_kind::flat},           {"per layer", clipping_kind::per_layer},
    {"automatic", clipping_kind::automatic}, {"per-sample adaptive", clipping_kind::per_sample_adaptive},
    {"per group", clipping_kind::per_group}, {"adaptive", clipping_kind::flat, true}};

/// How a sum is added up: records of a chunk, and those that are added up in floating point, of each lane if a lane has
/// so many records.
struct addition {
  const char* name = "";
  std::size_t chunk = 1;
  std::size_t capacity = 0;
  std::size_t lane = 0;
};
inline constexpr addition additions[] = {{"at once", 64, 64},
                                         {"record by record", 1, 64},
                                         {"in threes, floats then integers", 3, 8},
                                         {"in threes, as integers", 3, 0},
                                         {"in lanes of five, three as floats", 3, 3, 5}};  // or in threes, where none

/// g D of a release.
template <class Network>
[[nodiscard]] double claim_of(double bound, std::size_t capacity, int exchanged) {
  const release_grid grid = release_grid::of(bound, Network::parameter_count);
  return std::ldexp(sensitivity_in_steps(grid, summation::of<typename Network::scalar>(capacity), exchanged),
                    grid.unit - grid.steps);
}
/// What the conversion to floats may add to a movement.
template <class Network>
[[nodiscard]] double shown_rounding(const std::vector<double>& from, const std::vector<double>& to) {
  using scalar = typename Network::scalar;
  if (std::numeric_limits<scalar>::digits > 50) return 0;
  constexpr auto unit = static_cast<double>(std::numeric_limits<scalar>::epsilon()) / 2;
  double squares = 0;
  for (std::size_t i = 0; i < from.size(); ++i) squares += std::pow(std::abs(from[i]) + std::abs(to[i]), 2);
  return unit * std::sqrt(squares);
}
/// `release()`: of nobody, with fresh noise.
template <class Release>
void measure_noise(release_report& report, const Release& release) {
  double squares = 0;
  double count = 0;
  while (count < static_cast<double>(noise_values)) {
    for (const double value : release()) {
      squares += value * value;
      ++count;
    }
  }
  report.deviation = std::sqrt(squares / count);
  const double six_errors = 6 / std::sqrt(2 * count);
  report.has_noise = std::abs(report.deviation / report.moved.sensitivity - 1) <= six_errors;
}
template <class Values>
[[nodiscard]] std::vector<double> as_doubles(const Values& values) {
  return {values.begin(), values.end()};
}

/// A release by verbs.
template <class Loss, neighbouring Relation, class Network, class Clip>
[[nodiscard]] release_report probe_by_verbs(const host& executor, const Network& network, const Clip& clipped,
                                            const configuration& how, const addition& adding,
                                            const sensitivity_options& options) {
  using samples = sample_set<Network, Loss>;
  constexpr int exchanged = Relation == neighbouring::replace_one ? 2 : 1;
  typename Network::tape tape{executor, max_batch{std::max<std::size_t>(1, std::min(adding.chunk, std::size_t{64}))}};
  bounded_total<Network> total{executor, record_capacity{adding.capacity}};
  unprotected::rehearsed_gradient<Network> shown{executor};
  probed_sum<Network, Loss> probed;
  probed.relation = Relation;
  const auto release = [&](const samples& data, double noise, std::uint64_t seed) {
    total.clear();
    const dataset<typename samples::input_value, typename samples::target> records{
        std::span<const typename samples::input_value>{data.inputs},
        std::span<const typename samples::target>{data.targets}, Network::input_shape, samples::target_count,
        std::span<const std::uint32_t>{data.lengths}};
    std::vector<std::uint32_t> numbers(data.size());
    std::iota(numbers.begin(), numbers.end(), 0U);
    for (std::size_t first = 0; first == 0 || first < numbers.size(); first += adding.chunk) {
      const std::size_t count = std::min(adding.chunk, numbers.size() - first);
      const batch<Network, Loss> chunk{records, std::span<const std::uint32_t>{numbers}.subspan(first, count)};
      const auto gradients =
          per_sample_gradients(network, Loss{}, chunk, tape).with(how.method, ~std::uint64_t{0}).with(how.strategy);
      const auto sum_of_chunk = sum<Relation>(clipped(gradients));
      probed.claimed = claim_of<Network>(sum_of_chunk.clipped().sensitivity(), adding.capacity, exchanged);
      evaluate_into(executor, accumulate(total, sum_of_chunk));
    }
    seeded_generator generator{seed};
    evaluate_into(executor, shown, total + unaccounted::gaussian_noise(noise_multiplier{noise}, generator));
    return as_doubles(shown.values());
  };
  probed.evaluate = [&](const samples& data, std::uint64_t seed) { return release(data, 0, seed); };
  probed.allowance = [](std::size_t, const auto& from, const auto& to) { return shown_rounding<Network>(from, to); };
  release_report report;
  probe(probed, options, report.moved);
  std::uint64_t seed = options.seed;
  measure_noise(report, [&] { return release(samples{}, 1, seed++); });
  return report;
}

/// A step of `dp_sgd`.
template <class Loss, class Network, class MakeSampler>
[[nodiscard]] release_report probe_trainer(const host& executor, const Network& network, const MakeSampler& make,
                                           const trainer_clipping& clipped, const addition& adding,
                                           neighbouring relation, int moves, const sensitivity_options& options) {
  using samples = sample_set<Network, Loss>;
  using sampling = std::decay_t<decltype(make(0))>;
  const std::size_t groups = detail::clipping_groups<Network>;
  const clipping_kind clipping = clipped.kind;
  // What a unit of several rows adds is added up as integers.
  const bool as_integers = detail::draws_units<sampling>;
  const std::size_t capacity = as_integers ? 0 : adding.capacity;
  dp_options<sampling> chosen;
  if (clipping == clipping_kind::per_group) {
    chosen.group_bounds.assign(groups, l2_clip_norm{probed_clip});
  } else {
    chosen.clip = l2_clip_norm{probed_clip};
  }
  chosen.clipping = clipping;
  if (clipped.adapts) chosen.adaptive_clip = adaptive_clip{.noise = noise_multiplier{1}};
  chosen.divisor = expected_batch_size{10};
  chosen.learning_rate = learning_rate{1};
  chosen.max_batch = max_batch{adding.chunk};
  chosen.capacity = record_capacity{adding.capacity};
  // Where records are removed there are no lanes.
  const bool in_lanes = adding.lane != 0 && !as_integers && sampling::event_type::relation == neighbouring::replace_one;
  if (in_lanes) chosen.lanes = record_lanes{record_lanes::most, adding.lane};
  const double bound = clipping == clipping_kind::per_group ? probed_clip * std::sqrt(static_cast<double>(groups)) *
                                                                  (1 + 8 * std::numeric_limits<double>::epsilon())
                                                            : probed_clip;
  Network trained{executor, zeros{}};
  const auto step = [&](auto& trainer, const samples& data) {
    std::copy(network.parameters().begin(), network.parameters().end(), trained.parameters().begin());
    trainer.step(dataset<typename samples::input_value, typename samples::target>{
        std::span<const typename samples::input_value>{data.inputs},
        std::span<const typename samples::target>{data.targets}, Network::input_shape, samples::target_count,
        std::span<const std::uint32_t>{data.lengths}});
    return as_doubles(trainer.last_update().values());
  };
  constexpr bool can_draw_none =
      sampling::event_type::relation == neighbouring::add_or_remove_one || requires(const sampling& sampler) {
    sampler.probability();
  };
  const bool draws_all = [&] {
    if constexpr (std::is_same_v<sampling, poisson_sampling>) return make(1).probability().value() == 1;
    return false;
  }();
  probed_sum<Network, Loss> probed;
  probed.relation = relation;
  // Where all are drawn it does not matter that records behind get other numbers.
  probed.only_at_the_end = !draws_all;
  probed.claimed = moves * claim_of<Network>(bound, capacity, 1);
  probed.evaluate = [&](const samples& data, std::uint64_t seed) {
    if (!can_draw_none && data.size() == 0) return std::vector<double>(Network::parameter_count);
    chosen.noise = noise_multiplier{0};
    chosen.sampling = make(data.size());
    dp_sgd trainer{executor, trained, Loss{}, chosen, seeded_generator{seed}};
    return step(trainer, data);
  };
  probed.allowance = [](std::size_t, const auto& from, const auto& to) { return shown_rounding<Network>(from, to); };
  release_report report;
  probe(probed, options, report.moved);
  const double claimed = report.moved.sensitivity;
  report.moved.sensitivity = claim_of<Network>(bound, capacity, 1);  // the unit of a noise multiplier
  dp_options<std::conditional_t<can_draw_none, sampling, replace_one_poisson_sampling>> of_nobody;
  static_cast<training_choices&>(of_nobody) = chosen;
  of_nobody.noise = noise_multiplier{1};
  if constexpr (can_draw_none) {
    of_nobody.sampling = make(0);
  } else {
    of_nobody.sampling = replace_one_poisson_sampling{sampling_probability{1}};  // noise has nothing to do with it
  }
  dp_sgd noisy{executor, trained, Loss{}, of_nobody, seeded_generator{options.seed}};
  measure_noise(report, [&] {
    const double bound_now = clipped.adapts ? noisy.options().clip->value() / probed_clip : 1;
    auto values = step(noisy, samples{});
    for (double& value : values) value /= bound_now;  // noise follows the clip norm
    return values;
  });
  report.moved.sensitivity = claimed;
  return report;
}

}  // namespace testing_detail

/// Probes every release of a network with the parameters it has: clippings x strategies and norm methods x relations x
/// ways to add up, by verbs; then samplers x clippings x ways to add up x the sampler's neighbours by a trainer, whose
/// noise counts what one record adds: replacing one must move it by no more than twice as much. Probed is what a few
/// small batches with adversarial records do, as `probe_sensitivity` says. Throws std::invalid_argument for no batches
/// or more than 63 samples.
template <class Loss = cross_entropy, class Network>
[[nodiscard]] std::vector<release_report> probe_every_release(const host& executor, const Network& network,
                                                              const sensitivity_options& options = {
                                                                  .batches = 4, .most_samples = 12}) {
  using namespace testing_detail;
  if (options.most_samples > 63) {
    detail::throw_invalid_argument(
        {"pergrad: probe_every_release: most_samples must be at most 63, got ", options.most_samples});
  }
  std::vector<release_report> reports;
  const auto keep = [&](release_report report, std::initializer_list<const char*> names) {
    for (const char* const name : names) report.name += (report.name.empty() ? "" : ", ") + std::string{name};
    reports.push_back(std::move(report));
  };
  for_each_clipping<Network>([&](const char* clipping, const auto& clipped) {
    for (const configuration& how : configurations) {
      for (const addition& adding : additions) {
        if (adding.lane != 0) continue;  // they are a trainer's
        keep(probe_by_verbs<Loss, neighbouring::add_or_remove_one>(executor, network, clipped, how, adding, options),
             {"sum", clipping, how.name, "add or remove one", adding.name});
        keep(probe_by_verbs<Loss, neighbouring::replace_one>(executor, network, clipped, how, adding, options),
             {"sum", clipping, how.name, "replace one", adding.name});
      }
    }
  });
  for_each_sampler([&](const char* sampler, const auto& make, const sampler_moves& moves) {
    for (const trainer_clipping& clipping : trainer_clippings) {
      for (const addition& adding : additions) {
        if (moves.added != 0) {
          keep(probe_trainer<Loss>(executor, network, make, clipping, adding, neighbouring::add_or_remove_one,
                                   moves.added, options),
               {"dp_sgd", sampler, clipping.name, "add or remove one", adding.name});
        }
        keep(probe_trainer<Loss>(executor, network, make, clipping, adding, neighbouring::replace_one, moves.replaced,
                                 options),
             {"dp_sgd", sampler, clipping.name, "replace one", adding.name});
      }
    }
  });
  return reports;
}

}  // namespace pergrad::inline v0_1::testing
