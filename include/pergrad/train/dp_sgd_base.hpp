// SPDX-License-Identifier: Apache-2.0
// pergrad/train/dp_sgd_base.hpp - all of a trainer that does not know its source of noise
//
// A program that trains with a secret key or, for a test, with a seed has two types of trainers; what is here is
// compiled once for both.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <pergrad/batch.hpp>
#include <pergrad/detail/executors.hpp>
#include <pergrad/detail/float_environment.hpp>
#include <pergrad/expressions/evaluate.hpp>
#include <pergrad/expressions/unclipped.hpp>
#include <pergrad/optim/adam.hpp>
#include <pergrad/optim/parameter_average.hpp>
#include <pergrad/optim/sgd.hpp>
#include <pergrad/privacy/types.hpp>
#include <pergrad/privacy/units.hpp>
#include <pergrad/tape.hpp>
#include <pergrad/train/dp_sgd_options.hpp>
#include <pergrad/train/private_run.hpp>
#include <pergrad/train/step_by_verbs.hpp>
#include <pergrad/train/step_notes.hpp>

namespace pergrad::inline v0_1 {

namespace detail {

struct statistics_access;

/// What an executor does in a step; where gradients are formed by verbs, on executors that read records where they lie.
template <class Executor, class Network, class Loss, step_gradients Gradients>
struct trainer_for {
  using type = step_by_verbs<Network, Loss, Executor, Gradients>;
};
template <class Executor, class Network, class Loss>
struct trainer_for<Executor, Network, Loss, step_gradients::unformed> {
  using type = typename Executor::template trainer<Network, Loss>;
};

template <class Network, class Loss, executor Executor, class Options>
class dp_sgd_base
    : public private_run<typename inner_sampler<typename Options::sampling_type>::type, typename Options::noise_type> {
  using inner = inner_sampler<typename Options::sampling_type>;
  using run = private_run<typename inner::type, typename Options::noise_type>;

 public:
  using scalar = typename Network::scalar;
  using input_value = typename Network::input_value;
  using target = target_of<Loss, scalar>;
  /// What the executor keeps of a run and does in a step.
  using executor_trainer = typename trainer_for<Executor, Network, Loss, gradients_of_step<Options>>::type;
  static_assert(sizeof(std::conditional_t < run::is_correlated && executor_trainer::trains_on_a_copy,
                       error::correlated_noise_on_a_device<Executor>, char >) != 0);
  /// Whose data a unit of privacy is: by which neighbours differ.
  static constexpr const char* unit_of_privacy = inner::unit;

  [[gnu::cold]] dp_sgd_base(const Executor& executor, Network& network, Loss loss, const Options& options,
                            bool is_private)
      : dp_sgd_base{executor, network, loss, checked(options, is_private), is_private, {}} {}
  dp_sgd_base(const dp_sgd_base&) = delete;
  dp_sgd_base& operator=(const dp_sgd_base&) = delete;
  ~dp_sgd_base() = default;

  [[nodiscard]] const Options& options() const noexcept { return options_; }

  /// Of all steps from now on: for schedules. Costs no privacy as long as it is not computed from records: of the
  /// number of steps, say. Throws std::invalid_argument for a rate that the network's scalar takes for 0 or infinity,
  /// or that makes weight decay infinite.
  void set_learning_rate(learning_rate rate) {
    require_rate(rate.value());
    options_.learning_rate = rate;
    trainer_->set_learning_rate(rate);
  }
  /// As that of a `private_run`. Behind a step that has failed the schedules' numbers are those of the next one, too.
  template <class = void>
  [[nodiscard]] bool within_budget() const {
    if (!options_.schedules.any() || planned_ == this->place_.taken || this->place_.taken >= this->most_) {
      return run::within_budget();
    }
    Options next = options_;
    apply_schedules(next, this->place_.taken);
    return this->has_room_for(this->event_of(next, inner::of(*next.sampling)));
  }
  /// As that of the ledger. With individual accounting also what each record's budget proves, if that is less; the
  /// ledger itself says what one would have spent that is always drawn from, adds C, and is never left out.
  template <class = void>
  [[nodiscard]] double epsilon(pergrad::delta at) const {
    const double of_ledger = run::epsilon(at);
    return charges_ ? std::min(of_ledger, charges_->filter().epsilon(at)) : of_ledger;
  }
  /// The network with the exponential moving average of the parameters behind each step: of released values. Throws
  /// std::logic_error if the options have no `average_decay`.
  [[nodiscard]] const Network& average() const {
    if (!average_) throw_logic_error({"pergrad: private training: the option average_decay is not set"});
    return average_->network();
  }
  /// Memory behind the spans of the data set has changed since the last step: the next one looks at all records again,
  /// a device copies them again, and where a sampler has rounds, one begins: a number may be another record's now, but
  /// with owners or individual accounting, which follow numbers. Not with correlated noise, which is of the same
  /// records in all steps. Needed on a device, which trains on its copy; on the host, and on a device that shares the
  /// host's memory, each step reads the memory anyway.
  void records_changed() noexcept {
    must_look_ = told_ = true;
    trainer_->forget_records();
  }

 private:
  template <class OfNetwork, class OfLoss, random_generator Generator, executor OfExecutor, class OfOptions>
  friend class pergrad::dp_sgd;
  friend struct checkpoint_access;
  friend struct run_state_access;
  friend struct statistics_access;

  [[nodiscard, gnu::cold]] static Options checked(const Options& options, bool is_private) {
    if constexpr (run::is_correlated) {
      const step_schedules& all = options.schedules;
      if (options.adaptive_clip || all.noise || all.clip || all.sampling) {
        refuse_training("noise, clip norms and sampling that change do not go with correlated noise");
      }
      if (options.individual) refuse_training("individual accounting does not go with correlated noise");
      if (options.adam.noise_floor != 0) {
        refuse_training("adam's noise_floor takes off independent noise, and this one is correlated");
      }
    }
    if constexpr (gradients_of_step<Options> == step_gradients::scaled) require_scaled_adam<scalar>(options);
    const Options first = with_first_step(options);
    require_training_choices(first, clipping_groups<Network>);
    return settled<scalar>(first, is_private);
  }
  struct of_checked_options {};
  [[gnu::cold, gnu::noinline]] dp_sgd_base(const Executor& executor, Network& network, Loss loss,
                                           const Options& options, bool is_private, of_checked_options /*unused*/)
      : run{options, inner::of(*options.sampling), options,
            options.individual ? std::nullopt : std::optional<privacy_budget>{options.budget}},
        options_{options},
        first_clip_{options.clip ? options.clip->value() : 0},
        is_private_{is_private},
        executor_{&executor},
        network_{&network},
        loss_{loss},
        tape_{executor, options.max_batch} {
    const float_environment proven;
    if (options.schedules.any()) this->most_ = options.schedules.steps;
    if (options.certified) begin_certified();
    this->take(with_empty_batch([](const auto& sum) { return sum.sensitivity(); }),
               static_cast<double>(std::numeric_limits<scalar>::max()), Network::parameter_count,
               executor.pool().thread_count());
    if (options.optimizer == optimizer_kind::adam) {
      require_adam_options(options.adam);
    } else {
      require_momentum(options.momentum);
      require_weight_decay(options.weight_decay);
    }
    if constexpr (executor_trainer::trains_on_a_copy) {
      if (options.lanes) refuse_training("the option lanes is for the host: a device adds up in lanes of its own");
    }
    if (options.schedules.any()) declare_schedules();
    if (options.individual) {
      if constexpr (std::is_same_v<typename run::event_type, sampled_gaussian_event>) {
        charges_ = std::make_unique<individual_charges>(*options.budget, this->event_, options.individual->levels,
                                                        options.max_batch.count);
        charges_->plan(this->event_, release_grid::of(this->sensitivity_, Network::parameter_count));
      }
    }
    if (options.average_decay != 0) average_.emplace(network, options.average_decay);
    notes_ = {options.private_metrics, options.max_batch.count,
              options_.clip ? options_.clip->value() : this->sensitivity_,
              this->statistic_ ? &this->statistic_->counted : nullptr,
              options.statistic ? options.statistic->of : step_value::norm};
    require_noise_that_fits();
    require_numbers_that_count();
    trainer_ = std::make_unique<executor_trainer>(executor, network, loss, tape_, options_, this->sensitivity_);
    if constexpr (executor_trainer::trains_on_a_copy) {
      if (average_) trainer_->keep_average(*average_);
      tell_clip();
    }
  }

  /// Noise of any step, of adaptive clipping and of schedules, has to fit the scalar and the release's grid. Throws
  /// std::invalid_argument.
  [[gnu::cold]] void require_noise_that_fits() const {
    if (options_.adaptive_clip) {
      const double widest = options_.noise->value() * options_.clip->value() * adaptive_clip::range;
      if (!(widest <= static_cast<double>(std::numeric_limits<scalar>::max()))) {
        refuse_training("noise times the widest norm of adaptive_clip, " + std::to_string(widest) +
                        ", does not fit the network's scalar");
      }
    }
    const step_schedules& all = options_.schedules;
    const summation added = summation_of<scalar>(options_);
    const std::uint64_t steps = all.noise || all.clip ? all.steps : 1;
    for (std::uint64_t step = 0; step < steps; ++step) {
      const double noise = all.noise ? number_of<noise_multiplier>(*all.noise, step).value() : options_.noise->value();
      const double clip = all.clip ? number_of<l2_clip_norm>(*all.clip, step).value() : this->sensitivity_;
      if (!(noise * clip <= static_cast<double>(std::numeric_limits<scalar>::max()))) {
        refuse_training("noise times clip of step " + std::to_string(step) + " does not fit the network's scalar");
      }
      this->require_noise_on_the_grid(noise, clip, Network::parameter_count, added, is_private_);
    }
  }
  /// Throws std::invalid_argument for numbers that the network's scalar takes for nothing or for infinity: every step
  /// would be paid for, and train nothing.
  [[gnu::cold]] void require_numbers_that_count() const {
    constexpr const char* where = "private training";
    require_rate(options_.learning_rate->value());
    const step_schedules& all = options_.schedules;
    for (std::uint64_t step = 1; all.learning_rate && step < all.steps; ++step) {
      static_cast<void>(
          number_of<learning_rate>(*all.learning_rate, step, [&](learning_rate rate) { require_rate(rate.value()); }));
    }
    require_divisor_that_counts<scalar>(*options_.divisor);
    if (options_.optimizer == optimizer_kind::adam) {
      require_number_that_counts<scalar>(where, "adam's stability", options_.adam.stability);
      require_number_that_counts<scalar>(where, "adam's noise_floor", options_.adam.noise_floor);
    }
  }
  [[gnu::cold]] void require_rate(double rate) const {
    const bool is_adam = options_.optimizer == optimizer_kind::adam;
    require_rate_that_counts<scalar>("private training", rate,
                                     is_adam ? options_.adam.weight_decay : options_.weight_decay);
  }
  /// Those that are left of the run.
  template <class = void>
  [[gnu::cold]] void declare_schedules() {
    using event = typename run::event_type;
    std::vector<ledger_entry<event>> steps;
    Options each = options_;
    for (std::uint64_t step = this->place_.taken; step < this->most_; ++step) {
      apply_schedules(each, step);
      const event costs = this->event_of(each, inner::of(*each.sampling));
      if (steps.empty() || !(steps.back().event == costs)) steps.push_back({costs, 0});
      if (this->pays(step)) ++steps.back().count;
    }
    this->declare(std::span<const ledger_entry<event>>{steps});
  }
  /// Makes the schedules' numbers those of the next step, or of the last one.
  [[gnu::cold]] void plan_next_step() {
    if (!options_.schedules.any()) return;
    const std::uint64_t step = std::min(this->place_.taken, this->most_ - 1);
    if (planned_ == step) return;
    apply_schedules(options_, step);
    this->plan(options_, inner::of(*options_.sampling));
    if (options_.schedules.clip) clip_to(*options_.clip);
    if constexpr (executor_trainer::trains_on_a_copy) trainer_->set_noise(*options_.noise);
    if (options_.schedules.learning_rate) trainer_->set_learning_rate(*options_.learning_rate);
    if constexpr (std::is_same_v<typename run::event_type, sampled_gaussian_event>) {
      if (charges_) charges_->plan(this->event_, release_grid::of(this->sensitivity_, Network::parameter_count));
    }
    planned_ = step;
  }
  /// From the next step on.
  void clip_to(l2_clip_norm bound) {
    options_.clip = bound;
    this->sensitivity_ = with_empty_batch([](const auto& sum) { return sum.sensitivity(); });
    trainer_->set_sensitivity(this->sensitivity_);
    if constexpr (executor_trainer::trains_on_a_copy) tell_clip();
    notes_.set_clip_norm(bound.value());
  }
  /// Tells a device the rule that weighs samples.
  void tell_clip() {
    with_empty_batch([&](const auto& sum) { trainer_->clip_with(sum.clipped().rule()); });
  }
  /// Around a step. A device averages in the step itself.
  void begin_average() {
    if constexpr (executor_trainer::trains_on_a_copy) {
      if (average_) trainer_->set_way_of_average(average_access::begin(*average_, *network_));
    }
  }
  void end_average() {
    if constexpr (!executor_trainer::trains_on_a_copy) {
      if (average_) average_->update(*executor_, *network_);
    }
  }
  [[gnu::cold]] void begin_certified() {
    if constexpr (executor_trainer::trains_on_a_copy || gradients_of_step<Options> != step_gradients::unformed ||
                  run::is_correlated) {
      refuse_training("the option certified is for records and independent noise on the host");
    } else {
      if (!proof_maker::is_for<Network, Loss>(*options_.certified)) {
        refuse_training("the option certified was made for another network or another loss");
      }
      options_.clip = l2_clip_norm{most_certified()};  // before the first step
    }
  }
  /// The largest bound that a step may have. Precondition: the option certified.
  [[nodiscard]] double most_certified() const noexcept {
    return options_.clipping == clipping_kind::certified ? options_.certified->most() : first_clip_;
  }
  /// K of the weights that the next step begins with, however they came to be: weights are public.
  [[gnu::cold]] void certify_next_step() {
    const std::uint64_t now = fingerprint_of(std::as_const(*network_).all_parameters());
    if (!options_.certified || (is_certified_ && now == certified_weights_)) return;
    const double most = most_certified();
    is_certified_ = false;
    const double proven = proof_maker::prove(*options_.certified, *network_);
    // Below, noise would not fit its grid; a larger bound is one, too.
    clip_to(l2_clip_norm{std::clamp(proven, 1e-20, most)});
    if (options_.clipping == clipping_kind::certified && !(proven <= most)) {
      throw_logic_error({"pergrad: private training: certified: K is ", proven, ", above its limit ", most});
    }
    certified_weights_ = fingerprint_of(std::as_const(*network_).all_parameters());
    is_certified_ = true;
  }
  /// The clip norm of the next step from the counts of the last one, which were released.
  [[gnu::cold]] void adapt_clip() {
    const adaptive_clip& how = *options_.adaptive_clip;
    const std::span<const double> counts = this->last_statistic().counts();
    const double share = std::clamp(0.5 + (counts[0] - counts[1]) / (2 * options_.divisor->value()), 0.0, 1.0);
    const double next = options_.clip->value() * std::exp(-how.rate * (share - how.quantile));
    clip_to(l2_clip_norm{std::clamp(next, first_clip_ / adaptive_clip::range, first_clip_ * adaptive_clip::range)});
    this->statistic_->counted.set_edge(options_.clip->value());
  }

  template <class Function>
  [[gnu::cold]] auto with_empty_batch(Function&& f) {
    const std::vector<std::uint32_t> nobody;
    const dataset<input_value, target> no_records{
        {}, {}, Network::input_shape, Loss::target_count(Network::output_shape)};
    const batch<Network, Loss> empty{no_records, nobody};
    return with_clipped(options_, per_sample_gradients(*network_, loss_, empty, tape_), f);
  }

  [[nodiscard]] bool has_seen(const dataset<input_value, target>& records) const noexcept {
    if constexpr (executor_trainer::trains_on_a_copy) {
      if (!trainer_->holds(records)) return false;  // a step may have failed before there was a copy of what was seen
    }
    return checked_ && checked_->same_view(records) && !must_look_;
  }
  /// Does a round begin with these? Not with those of before, behind others that were refused.
  [[nodiscard]] bool are_new(const dataset<input_value, target>& records) const noexcept {
    return !checked_ || !checked_->same_view(records) || told_;
  }
  /// Looks at the records if it has not seen them. `accept` makes them the trainer's, behind the entry in the ledger.
  void look_at(const dataset<input_value, target>& records) {
    require_fit(records);
    this->meet_records(are_new(records));
  }
  void require_fit(const dataset<input_value, target>& records) {
    network_access::require_parameters(*network_);
    static_cast<void>(unit_count(records.size()));
    const bool by_number = charges_ || (units() != nullptr && units()->are_owners());
    if (by_number && this->has_drawn_ && checked_ && !checked_->is_copy_of(records)) {
      throw_logic_error({"pergrad: private training: ", charges_ ? "individual accounting" : "a sampler of owners",
                         " follows the records of one data set by their numbers: another one, also of the same arrays, "
                         "needs a trainer of its own"});
    }
    if (checked_ && !told_) this->require_known(records, *checked_);
    if (has_seen(records)) return;
    must_look_ = true;  // also at those of before, until some fit
    require_fit_for_training<Network, Loss>(records);
    if constexpr (executor_trainer::trains_on_a_copy) trainer_->require_room(records);
  }
  void accept(const dataset<input_value, target>& records) {
    checked_ = records;
    must_look_ = false;
    told_ = false;
  }
  /// The records of a step that is drawn. Refers to the trainer and to `records`.
  [[nodiscard]] step_records<Network, Loss> records_of_step(const dataset<input_value, target>& records,
                                                            const layer_randomness& randomness) {
    return {&records,      this,       [](void* self) { return static_cast<dp_sgd_base*>(self)->next_records(); },
            units(),       randomness, &notes_,
            charges_.get()};
  }
  /// Null where records are drawn.
  [[nodiscard]] const privacy_units* units() const noexcept {
    if constexpr (draws_units<typename Options::sampling_type>) {
      return &options_.sampling->units();
    } else {
      return nullptr;
    }
  }
  /// Of what is drawn. Throws std::invalid_argument where the owners are those of another number of records.
  [[nodiscard]] std::size_t unit_count(std::size_t records) const {
    return units() == nullptr ? records : units()->count(records);
  }
  [[nodiscard]] std::span<const std::uint32_t> next_records() {
    using sampling = typename inner::type;
    const auto marks = [&]() -> decltype(auto) {
      if constexpr (requires(const sampling& by, const draw_place& place) { trainer_->mark(by, place, 0, 0); }) {
        return [this](const sampling& by, const draw_place& place, std::uint64_t begin, std::uint64_t end) {
          return trainer_->mark(by, place, begin, end);
        };
      } else {
        return (executor_->pool());
      }
    };
    return this->drawn_.next(
        marks(),
        [&](std::uint64_t record) {
          if (units() != nullptr && units()->are_owners()) return true;  // each of their records is looked at
          if constexpr (executor_trainer::trains_on_a_copy) {
            if (!trainer_->reads_in_place()) return true;
          }
          return fits_the_trainer<Network, Loss>(*checked_, record);
        },
        [&] { notes_.leave_out(); });
  }

  Options options_;            ///< with the numbers of the next step
  double first_clip_ = 0;      ///< from which adaptive clipping set out
  std::uint64_t planned_ = 0;  ///< the step of which they are
  bool is_private_ = true;
  bool is_certified_ = false;            ///< are these the weights that the clip norm was proven for?
  std::uint64_t certified_weights_ = 0;  ///< their fingerprint
  std::optional<parameter_average<Network>> average_;
  std::unique_ptr<individual_charges> charges_;
  step_notes<scalar> notes_{false, 0, 0};
  const Executor* executor_;
  Network* network_;
  [[no_unique_address]] Loss loss_;
  tape<Network> tape_;
  std::optional<dataset<input_value, target>> checked_;  ///< all of its records did fit when they were looked at
  bool must_look_ = false;                               ///< again, at whatever comes
  bool told_ = false;                                    ///< that what was looked at has changed
  std::unique_ptr<executor_trainer> trainer_;            ///< refers to the tape and the options, so it goes first
};

}  // namespace detail
}  // namespace pergrad::inline v0_1
