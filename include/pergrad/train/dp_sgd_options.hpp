// SPDX-License-Identifier: Apache-2.0
// pergrad/train/dp_sgd_options.hpp - what the trainer is told, what it tells about a step, and what it refuses
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <pergrad/batch.hpp>
#include <pergrad/errors.hpp>
#include <pergrad/expressions/totals.hpp>
#include <pergrad/expressions/unclipped.hpp>
#include <pergrad/optim/adam.hpp>
#include <pergrad/optim/optimizer.hpp>
#include <pergrad/privacy/accounting/budget.hpp>
#include <pergrad/privacy/generator.hpp>
#include <pergrad/privacy/release.hpp>
#include <pergrad/privacy/sampling.hpp>
#include <pergrad/privacy/schedule.hpp>
#include <pergrad/privacy/statistics.hpp>
#include <pergrad/privacy/types.hpp>
#include <pergrad/privacy/units.hpp>
#include <pergrad/tape.hpp>
#include <pergrad/train/option.hpp>

namespace pergrad::inline v0_1 {

/// How the noised gradient becomes an update.
enum class optimizer_kind { sgd, adam };
/// What bounds a sample's share. `certified`: a proof that no gradient is longer (the option `certified`), and nothing
/// is clipped.
enum class clipping_kind { flat, per_layer, automatic, per_group, per_sample_adaptive, certified };

/// One value of each record of a step.
enum class step_value { norm, loss };
/// A histogram of each step's own records, released with it. Its noise is in the step's event: gradient and histogram
/// are one mechanism with `joint_noise` of both.
struct step_statistic {
  noise_multiplier noise;            ///< standard deviation of each count
  bin_edges edges;                   ///< public
  step_value of = step_value::norm;  ///< the gradient's norm before clipping, or the loss
};

/// What every private run is told, but for its sampler. Those without a default must be set; a constructor names the
/// first that is not.
struct private_choices {
  option<l2_clip_norm> clip;             ///< C, the most that one record can add to a sum
  option<noise_multiplier> noise;        ///< sigma; the noise's standard deviation is sigma times sensitivity
  option<expected_batch_size> divisor;   ///< a public constant, never the drawn size
  pergrad::max_batch max_batch{256};     ///< records a chunk; changes memory and rounding, not privacy
  option<record_capacity> capacity;      ///< records a sum is made for; from the divisor unless it is given
  option<record_lanes> lanes;            ///< by which sums are divided among ranks; a capacity is that of each
  option<privacy_budget> budget;         ///< steps beyond it are refused; room for one is required
  run_plan plan = run_plan::beforehand;  ///< when noise, sampling and the end of the run are chosen
  option<step_statistic> statistic;      ///< a histogram of each step's records, see `last_statistic`

  /// The noise that a step's event counts. Precondition: `noise` is given.
  [[nodiscard]] noise_multiplier noise_of_event() const {
    return statistic ? joint_noise(*noise, statistic->noise) : *noise;
  }
};

/// A clip norm that follows a quantile of the gradients' norms (Andrew et al. 2021, arXiv:1905.03871):
///   C <- C exp(-rate (share - quantile)),  share = 1/2 + (below - above) / (2 divisor)
/// of the step's records whose norms are below C and not. Both counts are noised and released with the step, as its
/// statistic: gradient and counts are one event with `joint_noise` of both. A noise of a twentieth of the divisor, in
/// the hundreds, costs next to nothing.
struct adaptive_clip {
  noise_multiplier noise;  ///< standard deviation of each count
  double quantile = 0.5;   ///< share of gradients that are to stay unclipped, in [0, 1]
  double rate = 0.2;       ///< above 0
  /// C stays within the first one times and divided by this, so that its noise always fits.
  static constexpr double range = 0x1p20;
};

/// Each record pays for what it really adds, and is left out where its own budget, the option `budget`, would be
/// exceeded (privacy/accounting/individual_filter.hpp): a run may then go on for longer than the ledger's events allow.
/// Of flat clipping and Poisson sampling; a record that is not drawn pays as if it added C, so that most is won where
/// all are drawn. All records are added up as integers. Budgets go with records' numbers, so a trainer takes one data
/// set, whose records keep theirs; a step with another one throws std::logic_error.
struct individual_accounting {
  std::size_t levels = 64;  ///< to which shares of C are rounded up
};

/// What changes from step to step. A schedule takes the place of the option of the same name.
struct step_schedules {
  std::uint64_t steps = 0;    ///< of the whole run, which ends then; must be set if there is a schedule
  option<schedule> noise;     ///< sigma
  option<schedule> clip;      ///< C, not of clipping per group
  option<schedule> sampling;  ///< the probability of Poisson sampling; the divisor stays what it is
  option<schedule> learning_rate;

  static constexpr std::uint64_t most_steps = 10'000'000;  ///< each is a line of a table

  [[nodiscard]] bool any() const noexcept { return noise || clip || sampling || learning_rate; }
};

/// What a trainer is told beside them.
struct training_choices : private_choices {
  option<pergrad::learning_rate> learning_rate;  ///< of the first step; see `set_learning_rate`
  clipping_kind clipping = clipping_kind::flat;
  std::vector<l2_clip_norm> group_bounds{};  ///< of per_group, in the place of `clip`: one C_k a clipping group
  optimizer_kind optimizer = optimizer_kind::sgd;
  double momentum = 0;                           ///< of sgd
  double weight_decay = 0;                       ///< of sgd, decoupled; adam's is adam.weight_decay
  adam_options adam{};                           ///< of adam
  option<pergrad::adaptive_clip> adaptive_clip;  ///< of flat clipping; `clip` is the first one
  step_schedules schedules{};
  option<individual_accounting> individual;  ///< a budget for each record
  /// Of certified clipping: K of each step in the place of `clip`. Of flat clipping: a step clips to min(C, K).
  option<certified_training> certified;
  double average_decay = 0;      ///< above 0: an exponential moving average of the parameters, see `average`
  bool private_metrics = false;  ///< keep losses and norms of the last step, for `unprotected::metrics`
  /// Keep what a step releases, for `last_update`: as much memory as the parameters. Not set: up to 2^24 of them.
  option<bool> keep_update;
};

/// How the noise of a run's steps is correlated.
template <class Noise>
struct noise_choice {
  using noise_type = Noise;
  option<Noise> correlation;  ///< a strategy of privacy/correlated/strategies.hpp, for so many steps as the run has
};
template <>
struct noise_choice<independent_noise> {
  using noise_type = independent_noise;
};

namespace detail {
/// A sampler that promises how often, and how far apart, a record takes part; its event is that of a Gaussian where
/// every record takes part.
template <class Sampling>
concept promises_participation = requires(const Sampling& sampling) {
  sampling.min_separation();
  sampling.max_participations(std::uint64_t{});
  requires std::is_same_v<typename Sampling::event_type, sampled_gaussian_event>;
};
/// A class that says what is wrong with this noise under this sampler; else `char`.
template <class Noise, class Sampling>
using noise_explanation = std::conditional_t<std::is_same_v<Noise, independent_noise> ||
                                                 promises_participation<typename inner_sampler<Sampling>::type>,
                                             char, error::correlated_noise_needs_a_promise<Noise, Sampling>>;
}  // namespace detail

/// Options of a `private_loop` with this sampler and this noise.
template <class Sampling, class Noise = independent_noise>
struct loop_options : private_choices, noise_choice<Noise> {
  static_assert(sizeof(detail::noise_explanation<Noise, Sampling>) != 0);
  using sampling_type = Sampling;
  option<Sampling> sampling;  ///< how records enter a batch, and what that costs
};
namespace detail {
[[noreturn]] inline void refuse_training(const std::string& what) {
  throw std::invalid_argument("pergrad: private training: " + what);
}
/// Options of a loop, or a trainer's. Throws std::invalid_argument where a trainer would change noise, clip norm or
/// sampling, which a loop does by hand.
template <class Options>
[[nodiscard]] const Options& of_a_loop(const Options& options) {
  if constexpr (std::derived_from<Options, training_choices>) {
    if (options.schedules.any() || options.adaptive_clip || options.individual || options.certified) {
      refuse_training(
          "the options schedules, adaptive_clip, individual and certified are a trainer's: a loop by hand has none");
    }
  }
  return options;
}
}  // namespace detail
/// Options of a `dp_sgd` with this sampler and this noise.
template <class Sampling = poisson_sampling, class Noise = independent_noise>
struct dp_options : training_choices, noise_choice<Noise> {
  static_assert(sizeof(detail::noise_explanation<Noise, Sampling>) != 0);
  using sampling_type = Sampling;
  using of_a_loop = loop_options<Sampling, Noise>;
  option<Sampling> sampling;  ///< how records enter a batch, and what that costs
  /// Those that a loop has, too.
  operator loop_options<Sampling, Noise>() const {  // NOLINT(google-explicit-constructor): one is the other, and more
    static_cast<void>(detail::of_a_loop(*this));
    return {static_cast<const private_choices&>(*this), static_cast<const noise_choice<Noise>&>(*this), sampling};
  }
};
/// Options of a `dp_sgd` whose optimizer is Adam by scale-then-privatise (optim/scale_then_privatise.hpp): gradients
/// are scaled by its second moment before they are clipped, so that the noise has their shape. `clip` bounds scaled
/// gradients. Excludes `certified`, `individual` and adam's noise_floor.
template <class Sampling = poisson_sampling, class Noise = independent_noise>
struct scaled_adam_options : dp_options<Sampling, Noise> {
  double scale_stability = 1e-3;  ///< below which size elements are not told apart; above 0
  scaled_adam_options() { this->optimizer = optimizer_kind::adam; }
};
/// With Poisson sampling.
using private_options = loop_options<poisson_sampling>;
using dp_sgd_options = dp_options<poisson_sampling>;

/// Options of a trainer, whatever the sampler.
template <class Options>
concept trainer_options = std::derived_from<Options, training_choices> && requires {
  typename Options::sampling_type;
};
/// Options of a loop, whatever the sampler.
template <class Options>
concept private_loop_options = std::derived_from<Options, private_choices> && !trainer_options<Options> && requires {
  typename Options::sampling_type;
};

namespace detail {
/// What a step of these options adds up.
template <class Options>
inline constexpr step_gradients gradients_of_step = [] {
  if (requires(const Options& options) { options.scale_stability; }) return step_gradients::scaled;
  return draws_units<typename Options::sampling_type> ? step_gradients::formed : step_gradients::unformed;
}();
}  // namespace detail

/// Private values of one step: for debugging, never for release.
struct step_metrics {
  std::size_t batch_size = 0;
  double mean_loss = 0;        ///< over the batch; NaN if it was empty
  double mean_norm = 0;        ///< of the unclipped gradients that are finite
  std::size_t clipped = 0;     ///< samples whose norm is above C; of per_group, above sqrt(sum C_k²)
  std::size_t non_finite = 0;  ///< samples that were left out: no finite gradient, or no valid record any more
};

namespace detail {

inline void require_option(bool given, const char* name) {
  if (!given) throw std::invalid_argument(std::string{"pergrad: private training: the option "} + name + " is not set");
}
[[nodiscard]] inline std::size_t lanes_of(const private_choices& options) noexcept {
  return options.lanes ? options.lanes->count : 1;
}
/// How a step's records are added up. Precondition: the options are settled.
template <class Scalar>
[[nodiscard]] summation summation_of(const private_choices& options) noexcept {
  return summation::of<Scalar>(options.capacity->count);
}
/// Throws std::invalid_argument for a divisor that makes nothing or infinity of what is released.
template <class Scalar>
[[gnu::cold]] void require_divisor_that_counts(expected_batch_size divisor) {
  require_number_that_counts<Scalar>("private training", "divisor", divisor.value());
  require_number_that_counts<Scalar>("private training", "1 / divisor", 1 / divisor.value());
}
/// Throws std::invalid_argument naming the first option that is missing but for `clip`. What single numbers may be is
/// said where they are used. A run without noise is for generators that are not private.
inline void require_private_choices(const private_choices& options, bool has_a_sampler, bool is_private) {
  require_option(options.noise.has_value(), "noise");
  if (is_private && options.noise->value() == 0) {
    refuse_training("the option noise is 0, which protects nobody: train without privacy with unprotected::step");
  }
  if (options.statistic) {
    if (is_private && options.statistic->noise.value() == 0) {
      refuse_training("the noise of the option statistic, or adaptive_clip, is 0, which protects nobody");
    }
    const std::size_t bins = options.statistic->edges.bins();
    is_private ? statistic_release::require_noise<os_keyed_generator>(options.statistic->noise, bins)
               : statistic_release::require_noise<seeded_generator>(options.statistic->noise, bins);
  }
  require_option(has_a_sampler, "sampling");
  require_option(options.divisor.has_value(), "divisor");
  if (options.max_batch.count == 0) refuse_training("max_batch must be at least 1");
  if (options.lanes && (options.lanes->count == 0 || options.lanes->count > record_lanes::most)) {
    refuse_training("the option lanes must have 1 to " + std::to_string(record_lanes::most) + " of them, got " +
                    std::to_string(options.lanes->count));
  }
  if (options.lanes && options.lanes->records == 0) refuse_training("the option lanes needs records a lane");
}
/// The same for a trainer, and for options that are not for its kind of clipping; `groups` are the network's clipping
/// groups.
[[gnu::cold]] inline void require_training_choices(const training_choices& options, std::size_t groups) {
  if (options.certified && options.clipping != clipping_kind::certified && options.clipping != clipping_kind::flat) {
    refuse_training("the option certified is for clipping_kind::certified and clipping_kind::flat only");
  }
  if (options.certified && (options.adaptive_clip || options.schedules.clip || options.individual)) {
    refuse_training("the option certified excludes adaptive_clip, individual and a schedule of clip");
  }
  if (options.clipping == clipping_kind::certified) {
    require_option(options.certified.has_value(), "certified");
    if (options.clip) refuse_training("the option clip is not for certified clipping: what is proven takes its place");
    if (!(options.certified->most() <= largest_double)) {
      refuse_training("the option certified needs a limit for certified clipping: certified_training_of(..., limit)");
    }
  } else if (options.clipping == clipping_kind::per_group) {
    if (options.clip) refuse_training("the option clip is not for clipping per group: group_bounds are its bounds");
    require_option(!options.group_bounds.empty(), "group_bounds");
    if (options.group_bounds.size() != groups) {
      refuse_training("the option group_bounds has " + std::to_string(options.group_bounds.size()) +
                      " bounds, the network has " + std::to_string(groups) + " clipping groups");
    }
  } else {
    require_option(options.clip.has_value(), "clip");
    if (!options.group_bounds.empty()) refuse_training("the option group_bounds is for clipping_kind::per_group only");
  }
  if (options.optimizer != optimizer_kind::sgd && options.momentum != 0) {
    refuse_training("the option momentum is for optimizer_kind::sgd only: adam's is adam.beta1");
  }
  if (options.optimizer != optimizer_kind::sgd && options.weight_decay != 0) {
    refuse_training("the option weight_decay is for optimizer_kind::sgd only: adam's is adam.weight_decay");
  }
  if (options.optimizer != optimizer_kind::adam && options.adam.noise_floor != 0) {
    refuse_training("the option adam.noise_floor is for optimizer_kind::adam only");
  }
  require_option(options.learning_rate.has_value(), "learning_rate");
  if (options.individual) {
    require_option(options.budget.has_value(), "budget");
    if (options.clipping != clipping_kind::flat) {
      refuse_training("the option individual is for clipping_kind::flat only");
    }
    if (options.statistic) {
      refuse_training("the option individual excludes statistic and adaptive_clip: they count who is left out, too");
    }
    if (options.plan != run_plan::beforehand) {
      refuse_training("the option individual is a filter of its own: leave plan as it is");
    }
  }
  if (const auto& adapts = options.adaptive_clip) {
    if (options.clipping != clipping_kind::flat) {
      refuse_training("the option adaptive_clip is for clipping_kind::flat only");
    }
    if (options.schedules.clip) refuse_training("the option adaptive_clip and a schedule of clip exclude each other");
    released_histogram::require_share(adapts->quantile);
    if (!(adapts->rate > 0 && adapts->rate <= largest_double)) {
      refuse_training("adaptive_clip.rate must be finite and above 0, got " + std::to_string(adapts->rate));
    }
    if (!l2_clip_norm::holds(options.clip->value() / adaptive_clip::range) ||
        !l2_clip_norm::holds(options.clip->value() * adaptive_clip::range)) {
      refuse_training("the option clip, from which adaptive_clip sets out, must be in [1e-24, 1e300]");
    }
  }
}

/// The same for options of scale-then-privatise.
template <class Scalar, class Options>
[[gnu::cold]] void require_scaled_adam(const Options& options) {
  require_scale_stability<Scalar>(options.scale_stability);
  if (options.optimizer != optimizer_kind::adam) refuse_training("scaled_adam_options are for optimizer_kind::adam");
  if (options.adam.noise_floor != 0) {
    refuse_training("adam's noise_floor takes off noise of one size, and scaled_adam_options give it the gradients'");
  }
  if (options.certified || options.individual) {
    refuse_training(
        "scaled_adam_options exclude the options certified and individual: both are of gradients as they are");
  }
}

/// A schedule's number of a step. Throws std::invalid_argument, naming both, for one that is none of its kind, or of
/// which `require` throws that.
template <class Number>
[[nodiscard, gnu::cold]] Number number_of(const schedule& all, std::uint64_t step, const auto& require) {
  const double number = all(step);
  try {
    const Number result{number};
    require(result);
    return result;
  } catch (const std::invalid_argument& why) {
    throw std::invalid_argument(std::string{why.what()} + ", of step " + std::to_string(step) + " in a schedule" +
                                (all.path().empty() ? "" : " from " + all.path()));
  }
}
template <class Number>
[[nodiscard]] Number number_of(const schedule& all, std::uint64_t step) {
  return number_of<Number>(all, step, [](Number /*any*/) {});
}
/// Sets the options of step number `step` to what the schedules say. Throws std::invalid_argument for a number that is
/// none of its kind.
template <class Options>
void apply_schedules(Options& options, std::uint64_t step) {
  const step_schedules& now = options.schedules;
  if (now.noise) options.noise = number_of<noise_multiplier>(*now.noise, step);
  if (now.clip) options.clip = number_of<l2_clip_norm>(*now.clip, step);
  if (now.learning_rate) options.learning_rate = number_of<learning_rate>(*now.learning_rate, step);
  if constexpr (std::is_same_v<typename Options::sampling_type, poisson_sampling>) {
    if (now.sampling) options.sampling = poisson_sampling{number_of<sampling_probability>(*now.sampling, step)};
  } else if (now.sampling) {
    refuse_training("a schedule of sampling is for Poisson sampling only");
  }
}
/// Options of the first step of these schedules, each of which is a table then; and what adaptive clipping counts.
/// Throws std::invalid_argument for what excludes each other, and what a schedule throws.
template <class Options>
[[nodiscard, gnu::cold]] Options with_first_step(Options options) {
  step_schedules& all = options.schedules;
  if (all.any()) {
    if (all.steps == 0) refuse_training("the option schedules.steps is not set");
    if (all.steps > step_schedules::most_steps) {
      refuse_training("the option schedules.steps must be at most " + std::to_string(step_schedules::most_steps) +
                      ", got " + std::to_string(all.steps));
    }
    const auto begins = [&](option<schedule>& one, bool given, const char* name) {
      if (!one) return;
      if (given) refuse_training(std::string{"the option "} + name + " and a schedule of it exclude each other");
      one = one->tabulated(all.steps);
    };
    begins(all.noise, options.noise.has_value(), "noise");
    begins(all.clip, options.clip.has_value(), "clip");
    begins(all.sampling, options.sampling.has_value(), "sampling");
    begins(all.learning_rate, options.learning_rate.has_value(), "learning_rate");
    if (has_rounds<typename inner_sampler<typename Options::sampling_type>::type> && all.noise) {
      refuse_training("a schedule of noise is not for samplers whose events pay several steps");
    }
    if (all.clip && options.clipping == clipping_kind::per_group) {
      refuse_training("a schedule of clip is not for clipping per group");
    }
    apply_schedules(options, 0);
  } else if (all.steps != 0) {
    refuse_training("the option schedules.steps is set, and there is no schedule");
  }
  if (options.individual) {
    if (!std::is_same_v<typename Options::sampling_type, poisson_sampling>) {
      refuse_training("the option individual is for Poisson sampling of records only, without owners or views");
    }
    if (options.capacity && options.capacity->count != 0) {
      refuse_training("the option individual adds up integers only: leave capacity, or set it to 0");
    }
    options.capacity = record_capacity{0};
  }
  if (options.adaptive_clip) {
    if (options.statistic) refuse_training("the options statistic and adaptive_clip exclude each other");
    require_option(options.clip.has_value(), "clip");
    options.statistic = step_statistic{options.adaptive_clip->noise, bin_edges{{options.clip->value()}}};
  }
  return options;
}

/// Whether network and loss take this record. Shapes and counts of the records fit already.
template <class Network, class Loss, class Records>
[[nodiscard]] bool fits_the_trainer(const Records& records, std::size_t record) noexcept {
  return records.is_valid(record) && Loss::valid(Network::output_shape, records.targets(record));
}

/// A loop that runs while the budget lasts would train nothing, and say nothing. What an earlier part of the run spent
/// is not counted: a budget that is spent is no mistake.
template <class Event>
[[gnu::cold]] void require_room_for_a_step(const basic_privacy_accountant<Event>& accountant, const Event& event) {
  if (accountant.within(event)) return;
  const privacy_budget& budget = *accountant.budget();
  char text[400];
  std::snprintf(text, sizeof text,
                "pergrad: private training: the option budget allows no step: it is epsilon %.6g at delta %.6g, and "
                "one step with %s costs epsilon %.6g",
                budget.max_epsilon.value(), budget.delta.value(), description_of(event).text,
                proven_epsilon(accountant.accountant(), {event, 1}, budget.delta).upper);
  throw std::invalid_argument(text);
}

/// What of this can be said of all records at once.
inline void require_fitting_counts(std::size_t records, std::size_t targets, std::size_t targets_per_record) {
  if (records > std::numeric_limits<std::uint32_t>::max()) refuse_training("more than 2^32 - 1 records");
  if (targets != records * targets_per_record) {
    refuse_training(std::to_string(targets) + " targets for " + std::to_string(records) + " records, the loss takes " +
                    std::to_string(targets_per_record) + " a record");
  }
}
/// Throws std::invalid_argument that says which record, or what about all of them, network and loss do not take.
template <class Network, class Loss, class Records>
[[gnu::cold]] void require_fit_for_training(const Records& records) {
  require_fit(records.input_shape(), Network::input_shape, "private training");
  require_fitting_counts(records.size(), records.targets().size(), Loss::target_count(Network::output_shape));
  for (std::size_t record = 0; record < records.size(); ++record) {
    records.require_valid(record);
    if (!fits_the_trainer<Network, Loss>(records, record)) {
      throw_bad_target<Loss>("private training", record, Network::output_shape, records.targets(record));
    }
  }
}

}  // namespace detail

}  // namespace pergrad::inline v0_1
