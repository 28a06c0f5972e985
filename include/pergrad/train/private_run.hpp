// SPDX-License-Identifier: Apache-2.0
// pergrad/train/private_run.hpp - sampling and accounting of a run, which cannot part: what a trainer and a loop by
// hand have in common
//
// A step is entered in the ledger before any of its records is drawn. Records are drawn window by window, so that no
// memory grows with the data set; they come out in physical batches of at most `max_batch`.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <pergrad/detail/executors.hpp>
#include <pergrad/detail/float_environment.hpp>
#include <pergrad/detail/thread_pool.hpp>
#include <pergrad/expressions/totals.hpp>
#include <pergrad/privacy/accounting/budget.hpp>
#include <pergrad/privacy/generator.hpp>
#include <pergrad/privacy/layer_randomness.hpp>
#include <pergrad/privacy/sampling.hpp>
#include <pergrad/privacy/statistics.hpp>
#include <pergrad/privacy/types.hpp>
#include <pergrad/privacy/units.hpp>
#include <pergrad/train/dp_sgd_options.hpp>
#include <pergrad/train/run_noise.hpp>

namespace pergrad::inline v0_1 {

namespace detail {

struct checkpoint_access;
struct run_state_access;

/// The records of a data set that this process has; all of them, if no other process has any.
struct record_share {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
};

/// The records of one step among those of a share, in the order of the data set, as numbers in the share.
template <class Sampling>
class drawn_records {
 public:
  /// `lane`: records of one lane, which shares no physical batch with another.
  drawn_records(const Sampling& /*sampling*/, std::size_t max_batch, std::uint64_t lane) : lane_{lane} {
    records_.reserve(max_batch);
  }

  /// Begins a step on a data set of so many records.
  void begin(const Sampling& sampling, const draw_place& place, std::uint64_t /*record_count*/,
             const record_share& mine) noexcept {
    sampling_ = &sampling;
    place_ = place;
    mine_ = mine;
    next_window_ = mine.first / marked_at_once * marked_at_once;
    word_ = 0;
    words_ = 0;
    rest_ = 0;
    records_.clear();
  }
  /// The next physical batch, once all threads have looked for it; empty behind the last one. Records for which
  /// fits(record) is false are left out and told to `left_out`. `marks`: threads, or a function that knows the bits of
  /// (sampling, place, begin, end), as on_device::device_marks.
  template <class Marks, class Fits, class LeftOut>
  std::span<const std::uint32_t> next(const Marks& marks, const Fits& fits, const LeftOut& left_out) {
    records_.clear();
    while (records_.size() < records_.capacity()) {
      if (rest_ == 0 && !next_word(marks)) break;
      const std::uint64_t record = first_ + 64 * word_ + static_cast<std::uint64_t>(std::countr_zero(rest_));
      if (!records_.empty() && (mine_.first + records_.front()) / lane_ != record / lane_) break;
      rest_ &= rest_ - 1;
      if (record < mine_.first || record >= mine_.first + mine_.count) continue;
      const std::uint64_t in_share = record - mine_.first;
      if (fits(in_share)) {
        records_.push_back(static_cast<std::uint32_t>(in_share));
      } else {
        left_out();
      }
    }
    return {records_.data(), records_.size()};
  }

 private:
  /// The next 64 records of which any is drawn; false behind the last ones.
  template <class Marks>
  [[gnu::noinline]] bool next_word(const Marks& marks) {
    while (true) {
      while (++word_ < words_) {
        rest_ = bits_[word_];
        if (rest_ != 0) return true;
      }
      if (next_window_ >= mine_.first + mine_.count) return false;
      mark_window(marks);
      word_ = ~std::size_t{0};
    }
  }
  template <class Marks>
  void mark_window(const Marks& marks) {
    first_ = next_window_;
    const std::uint64_t end = mine_.first + mine_.count;
    const std::uint64_t count = std::min<std::uint64_t>(64 * bits_.size(), end - first_);
    if constexpr (std::is_same_v<Marks, thread_pool>) {
      const std::uint64_t tasks = (count + marked_at_once - 1) / marked_at_once;
      marks.parallel(tasks, [&](std::size_t task, std::size_t) {
        mark_step(*sampling_, place_, first_ + task * marked_at_once,
                  std::span{bits_}.subspan(task * marked_at_once / 64, marked_at_once / 64));
      });
      words_ = tasks * marked_at_once / 64;
    } else {
      const std::uint64_t begin = mine_.first / marked_at_once * marked_at_once;
      words_ = (count + 63) / 64;
      std::ranges::copy(marks(*sampling_, place_, begin, end).subspan((first_ - begin) / 64, words_), bits_.begin());
    }
    next_window_ += 64 * bits_.size();
  }

  static constexpr std::uint64_t marked_at_once = 32 * Sampling::marked_together;

  std::uint64_t lane_;
  const Sampling* sampling_ = nullptr;
  draw_place place_;
  record_share mine_;
  std::uint64_t next_window_ = 0;           ///< the first record that nobody has looked at
  std::uint64_t first_ = 0;                 ///< of the window
  std::array<std::uint64_t, 1024> bits_{};  ///< one bit a record of the window
  std::size_t words_ = 0;                   ///< of the window
  std::size_t word_ = 0;
  std::uint64_t rest_ = 0;  ///< bits of the word that are still to be visited
  std::vector<std::uint32_t> records_;
};

/// The same of a sampler that lists them.
template <lists_records Sampling>
class drawn_records<Sampling> {
 public:
  drawn_records(const Sampling& sampling, std::size_t max_batch, std::uint64_t lane) : lane_{lane}, list_{sampling} {
    records_.reserve(max_batch);
  }

  void begin(const Sampling& sampling, const draw_place& place, std::uint64_t record_count, const record_share& mine) {
    listed_ = list_.draw(sampling, place, record_count);
    const auto first = std::lower_bound(listed_.begin(), listed_.end(), mine.first);
    const auto last = std::lower_bound(first, listed_.end(), mine.first + mine.count);
    listed_ =
        listed_.subspan(static_cast<std::size_t>(first - listed_.begin()), static_cast<std::size_t>(last - first));
    first_ = mine.first;
  }
  template <class Marks, class Fits, class LeftOut>
  std::span<const std::uint32_t> next(const Marks& /*marks*/, const Fits& fits, const LeftOut& left_out) {
    records_.clear();
    for (; !listed_.empty() && records_.size() < records_.capacity(); listed_ = listed_.subspan(1)) {
      if (!records_.empty() && (first_ + records_.front()) / lane_ != listed_.front() / lane_) break;
      const std::uint64_t in_share = listed_.front() - first_;
      if (fits(in_share)) {
        records_.push_back(static_cast<std::uint32_t>(in_share));
      } else {
        left_out();
      }
    }
    return {records_.data(), records_.size()};
  }

 private:
  std::uint64_t lane_;
  typename Sampling::listing list_;
  std::span<const std::uint32_t> listed_;  ///< those that are still to come
  std::uint64_t first_ = 0;                ///< of the share
  std::vector<std::uint32_t> records_;
};

/// Where a run is in the rounds of its sampler.
struct run_place {
  std::uint64_t position = 0;           ///< of the next step in its round; 0 begins one
  std::uint64_t round = 0;              ///< the generator's step that began it
  std::uint64_t taken = 0;              ///< steps
  std::uint64_t paid = 0;               ///< steps that entered no event, as one before them had
  std::uint64_t run = step_of_the_run;  ///< the generator's step of which draws are that depend on those of other steps
};

/// How many records a step's sum, or each lane of it, is made for, by public numbers: far more than are ever drawn if
/// the expected batch size is what it says; fewer where only so few are added up in floating point. Physical batches
/// have nothing to do with it, as noise is scaled by it.
template <class Scalar>
[[nodiscard, gnu::cold]] record_capacity capacity_for(const private_choices& options) {
  if (options.capacity) return *options.capacity;
  const float_environment proven;
  const std::size_t lanes = lanes_of(options);
  const std::size_t granule = lanes == 1 ? 256 : 32;
  const double expected = std::min(options.divisor->value(), 0x1p31) / static_cast<double>(lanes);
  const auto records = static_cast<std::size_t>(expected + 6 * std::sqrt(expected)) + 16;
  std::size_t enough = (records + granule - 1) / granule * granule;
  while (summation::of<Scalar>(enough).capacity == 0 && static_cast<double>(enough - granule) >= expected) {
    enough -= granule;
  }
  return {enough};
}
/// Options with a capacity, and with physical batches no larger than that; with a capacity of 0 all records are added
/// up as integers, and of any number. Throws std::invalid_argument for options that are missing or out of range.
template <class Scalar, class Options>
[[nodiscard, gnu::cold]] Options settled(Options options, bool is_private) {
  require_private_choices(options, options.sampling.has_value(), is_private);
  constexpr bool as_integers = gradients_of_step<Options> != step_gradients::unformed;
  if (options.lanes && as_integers) {
    refuse_training(
        "the option lanes is for records: owners, views and scaled gradients are added up as integers, which need "
        "none");
  }
  if (options.lanes && Options::sampling_type::event_type::relation != neighbouring::replace_one) {
    refuse_training(
        "the option lanes is for samplers whose neighbours differ by replacing one record: where one is removed, "
        "others change lanes in steps that do not draw it. Take replace_one_poisson_sampling, say, or leave lanes out");
  }
  const record_capacity capacity = as_integers ? record_capacity{0} : capacity_for<Scalar>(options);
  options.capacity = capacity;
  if (capacity.count > 0) options.max_batch.count = std::min(options.max_batch.count, capacity.count);
  return options;
}

/// The ledger of a run and the records of a step: all of a private run that does not know its network. The ledger holds
/// the events of this sampler, and no others.
template <class Sampling, class Noise>
class private_run {
 public:
  using event_type = typename Sampling::event_type;
  /// Whether noise of a step depends on that of steps before.
  static constexpr bool is_correlated = run_noise<Sampling, Noise>::is_correlated;
  /// Whether what is drawn depends on the steps before.
  static constexpr bool keeps_its_place = is_correlated || remembers_steps<Sampling>;
  /// For which neighbours epsilon counts.
  static constexpr neighbouring relation = event_type::relation;

  /// Would one more step keep to the budget? Always true without one, but for correlated noise, which ends with its
  /// strategy. Costs nothing: how many there are was found when
  /// the run was made, or read from a file.
  template <class = void>
  [[nodiscard]] bool within_budget() const {
    return has_room_for(event_);
  }
  /// Steps taken, each with its noise, and statistics of all records released beside them (statistics.hpp).
  [[nodiscard]] std::uint64_t steps() const noexcept { return accountant_.steps() + place_.paid; }
  /// Privacy spent so far at `delta`, for neighbours by `relation`: a proven upper bound, by privacy loss distributions
  /// and Renyi divergences. Takes some tens of milliseconds.
  template <class = void>
  [[nodiscard]] double epsilon(pergrad::delta delta) const {
    return accountant_.epsilon(delta);
  }
  [[nodiscard]] const basic_privacy_accountant<event_type>& accountant() const noexcept { return accountant_; }
  /// The histogram of the last step's records: released with the step, which counts it. Throws std::logic_error if the
  /// options have no `statistic`, and before the first step.
  [[nodiscard]] const released_histogram& last_statistic() const {
    if (!statistic_ || !statistic_->is_released) {
      throw_logic_error({"pergrad: private training: ",
                         statistic_ ? "no step has released a statistic yet" : "the option statistic is not set"});
    }
    return statistic_->histogram;
  }

 private:
  // Named, and nothing is protected: who derives from this draws nothing.
  template <class Network, class Loss, executor Executor, class Options>
  friend class dp_sgd_base;
  template <class Network, class Loss, random_generator Generator, executor Executor, class Options>
  friend class pergrad::dp_sgd;
  template <class Network, class Loss, random_generator Generator, executor Executor, class Options>
  friend class pergrad::private_loop;
  friend struct checkpoint_access;
  friend struct run_state_access;
  friend struct statistics_access;

  /// `options` are settled; `budget`: of the ledger.
  [[gnu::cold, gnu::noinline]] private_run(const private_choices& options, const Sampling& sampling,
                                           const noise_choice<Noise>& chosen,
                                           const std::optional<privacy_budget>& budget)
      : sampling_{sampling},
        noise_{chosen, options, sampling_},
        accountant_{budget, options.plan},
        event_{noise_.event(sampling_, options.noise_of_event())},
        gradient_noise_{*options.noise},
        lanes_{options.lanes},
        drawn_{sampling_, options.max_batch.count, lanes_ ? lanes_->records : without_end} {
    if (options.statistic) statistic_.emplace(*options.statistic);
  }
  /// The last part of construction: `sensitivity` of sums of so many elements is known from the options' clipping.
  /// Throws std::invalid_argument for noise that the largest number of the network's type cannot hold, and for a budget
  /// that allows no step.
  template <class = void>
  [[gnu::noinline]] void take(double sensitivity, double largest, std::size_t elements, std::size_t threads) {
    noise_.take(elements, threads);
    sensitivity_ = sensitivity;
    const double deviation = gradient_noise_.value() * sensitivity_;
    if (!(deviation <= largest)) {
      refuse_training("noise times clip does not fit the network's scalar, got " + std::to_string(deviation));
    }
    const bool has_schedules = most_ != without_end;
    most_ = std::min(most_, noise_.steps());
    if constexpr (requires { Sampling::most_steps; }) most_ = std::min(most_, Sampling::most_steps);
    if (has_schedules) return;  // they have a proof of their own
    accountant_.prepare(event_);
    require_room_for_a_step(accountant_, event_);
  }
  /// Throws std::invalid_argument for noise that a release's grid, or the strategy of correlated noise, cannot carry:
  /// every step would fail, each behind its entry in the ledger.
  template <class = void>
  [[gnu::cold]] void require_noise_on_the_grid(double multiplier, double clip, std::size_t elements,
                                               const summation& added, bool is_private) const {
    const release_grid grid = release_grid::of(clip, elements);
    const noise_filter* const filter = noise_.filter();
    const double sigma = fresh_deviation(multiplier, sensitivity_in_steps(grid, added, 1), grid.elements, filter);
    require_sigma(multiplier, sigma, multiplier == 0 && !is_private);
    if (filter != nullptr) filter->require_deviation(sigma);
  }
  /// The next step's numbers. Precondition: these are options of a step of the run.
  void plan(const private_choices& options, const Sampling& sampling) {
    sampling_ = sampling;
    gradient_noise_ = *options.noise;
    event_ = event_of(options, sampling_);
  }
  /// Calls add(name, number) for all that decides who is drawn and what hides it: a ledger has only what that costs.
  /// The strategy's numbers have no name.
  template <class Add>
  void tell_draws(const Add& add) const {
    add("the steps that an event pays", static_cast<double>(noise_.steps_of_an_event(sampling_)));
    add("the steps of the noise's strategy", static_cast<double>(noise_.steps()));
    if constexpr (requires { sampling_.min_separation(); }) {
      add("the least separation of a record's steps", static_cast<double>(sampling_.min_separation()));
    }
    if constexpr (is_correlated && requires { sampling_.probability(); }) {
      // An event of the whole run says nothing of it.
      add("the sampler's probability", sampling_.probability().value());
    }
    if constexpr (requires { sampling_.size(); }) {
      add("the sampler's batch size", static_cast<double>(sampling_.size()));
    }
    noise_.tell([&](double each) { add(nullptr, each); });
  }
  /// What an event of these options costs.
  [[nodiscard]] event_type event_of(const private_choices& options, const Sampling& sampling) const {
    return noise_.event(sampling, options.noise_of_event());
  }
  /// Proves that these steps, all that are left of a run by schedules, keep to the budget. Throws std::invalid_argument
  /// if they do not.
  template <class = void>
  void declare(std::span<const ledger_entry<event_type>> steps) {
    if (!accountant_.budget() || accountant_.plan() != run_plan::beforehand) {
      for (const auto& each : steps) accountant_.prepare(each.event);
      if (place_.taken == 0) require_room_for_a_step(accountant_, event_);
      return;
    }
    try {
      accountant_.declare(steps);
    } catch (const budget_exhausted&) {
      refuse_training("the steps of the schedules cost more than the option budget allows: epsilon " +
                      std::to_string(accountant_.budget()->max_epsilon.value()) + " at delta " +
                      std::to_string(accountant_.budget()->delta.value()));
    }
  }

  /// The same for a next step of this event.
  template <class = void>
  [[nodiscard]] bool has_room_for(const event_type& next) const {
    return place_.taken < most_ && (place_.position != 0 || accountant_.within(next));
  }
  /// Whether a later step of the run enters an event.
  [[nodiscard]] bool pays(std::uint64_t step) const noexcept {
    return (place_.position + (step - place_.taken)) % noise_.steps_of_an_event(sampling_) == 0;
  }
  /// Are the records of the next step others than those before? Then it begins a round, once it is entered in the
  /// ledger, and nothing that is drawn from then on depends on earlier draws. A record's number is another one's now,
  /// and a draw that stayed with the number would tell which: of all records, where one stands before them. What a
  /// sampler promises correlated noise is of one set of records: throws std::logic_error for others.
  void meet_records(bool are_others) {
    begins_a_round_ = are_others && has_drawn_;  // not with the first ones, also behind a file
    if constexpr (is_correlated) {
      if (begins_a_round_) {
        throw_logic_error({"pergrad: private training: correlated noise needs the same records in all steps"});
      }
    }
  }
  /// Throws std::logic_error where a sampler's rounds or correlated noise follow records over steps, and it cannot be
  /// known whether they are those of the last step: the same arrays, of which somebody made another data set.
  template <class Records>
  void require_known(const Records& records, const Records& last) const {
    if (!has_drawn_ || !keeps_its_place || records.is_copy_of(last) || !records.same_view(last)) return;
    throw_logic_error(
        {"pergrad: private training: another data set of the arrays of the step before: if its records are "
         "the same, make it once and pass it to all steps",
         is_correlated ? "" : "; if they are others, call records_changed()"});
  }
  /// Throws std::logic_error where a part of a file alone is here: what lacks may be what was spent.
  void require_loaded() const {
    if (is_loaded_in_part_) {
      throw_logic_error(
          {"pergrad: private training: a checkpoint was loaded in part (memory ended, or not all ranks have "
           "it): this run cannot go on, make a new trainer"});
    }
  }
  /// Throws what the sampler throws where it cannot draw from so many records.
  void require_records(std::uint64_t record_count) const {
    if constexpr (requires { sampling_.require_records(record_count); }) sampling_.require_records(record_count);
  }
  /// Enters a step in the ledger, or refuses it; then its draws may begin. An event that pays a round is entered with
  /// its first step.
  template <class Generator>
  std::uint64_t spend_and_draw(Generator& generator, std::uint64_t record_count) {
    return spend_and_draw(generator, record_count, {0, record_count});
  }
  template <class Generator>
  std::uint64_t spend_and_draw(Generator& generator, std::uint64_t record_count, const record_share& mine) {
    require_loaded();
    require_records(record_count);
    if (lanes_ && record_count > lanes_->count * std::uint64_t{lanes_->records}) {
      refuse_training("the option lanes has room for " + std::to_string(lanes_->count) + " times " +
                      std::to_string(lanes_->records) + " records, and there are " + std::to_string(record_count));
    }
    if (place_.taken >= most_) {
      throw budget_exhausted("pergrad: private training: the run has no step behind number " + std::to_string(most_));
    }
    if (place_.position == 0 || begins_a_round_) accountant_.spend(event_);
    const bool draws_anew = std::exchange(begins_a_round_, false);
    if (draws_anew) place_.position = 0;
    noise_.catch_up(generator, place_.taken);
    if (statistic_) {
      statistic_->counted.clear();
      statistic_->is_released = false;  // nobody may take an earlier one for this step's
    }
    const std::uint64_t step = generator.next_step();
    if (place_.position == 0) {
      place_.round = step;
    } else {
      ++place_.paid;
    }
    if (draws_anew) place_.run = step;
    const auto stream = [&](std::uint64_t of) { return generator.template stream<randomness::sampling>(of); };
    drawn_.begin(sampling_, {stream(step), stream(place_.round), stream(place_.run), place_.position, place_.taken},
                 record_count, mine);
    has_drawn_ = true;
    ++place_.taken;
    place_.position = (place_.position + 1) % noise_.steps_of_an_event(sampling_);
    return step;
  }
  /// The step's randomness inside layers.
  template <class Generator>
  [[nodiscard]] static layer_randomness inside_layers(const Generator& generator, std::uint64_t step) {
    return layer_randomness{generator.template stream<randomness::layers>(step)};
  }
  /// The next step's noise, for a device: it is used up.
  template <class Generator>
  [[nodiscard]] static secret_stream<randomness::noise> next_noise(Generator& generator) {
    return generator.template stream<randomness::noise>(generator.next_step());
  }

  /// Of the step that was drawn, once.
  template <class Generator>
  void release_statistic(Generator& generator) {
    if (!statistic_) return;
    statistic_release::into(statistic_->histogram, statistic_->counted, statistic_->noise, generator);
    statistic_->is_released = true;
  }
  struct statistic_of_steps {
    explicit statistic_of_steps(const step_statistic& chosen)
        : noise{chosen.noise}, counted{chosen.edges}, histogram{statistic_release::empty(counted)} {}
    noise_multiplier noise;
    private_counts counted;
    released_histogram histogram;  ///< of the last step
    bool is_released = false;
  };

  Sampling sampling_;
  [[no_unique_address]] run_noise<Sampling, Noise> noise_;
  basic_privacy_accountant<event_type> accountant_;
  event_type event_;                 ///< of the next step: its gradient and its statistic together
  noise_multiplier gradient_noise_;  ///< of the gradient alone
  std::optional<statistic_of_steps> statistic_;
  double sensitivity_ = 0;  ///< of the next step's sum
  run_place place_;
  bool has_drawn_ = false;       ///< a step, of records that it was given
  bool begins_a_round_ = false;  ///< the next step, if it is entered: it has other records
  bool is_loaded_in_part_ = false;
  static constexpr std::uint64_t without_end = ~std::uint64_t{0};
  std::uint64_t most_ = without_end;  ///< steps that its schedules, or its noise's strategy, have
  option<record_lanes> lanes_;
  drawn_records<Sampling> drawn_;
};

}  // namespace detail
}  // namespace pergrad::inline v0_1
