// SPDX-License-Identifier: Apache-2.0
// pergrad/train/private_loop.hpp - a private training loop by hand, as safe as the trainer
//
//   while (loop.within_budget()) {
//     auto step = loop.begin(records);                                    // into the ledger, then the draw
//     while (step.next()) {                                               // physical batches
//       const auto g = step.gradients();
//       pg::evaluate_into(exec, accumulate(step, sum(clip(g, bound))));   // any expression that is clipped to the
//       bound
//     }
//     optimizer.step(exec, net, std::move(step));                         // noise once; or evaluate_into(exec, update,
//     ...)
//   }
//
// A loop ties sampler, batch, clip bound, noise and ledger into one value. A step is a token: it cannot be copied,
// every physical batch goes into its sum exactly once, clipped to the bound that the ledger counts, and what consumes
// it draws the noise. What is left to the program is what costs no privacy: how gradients are clipped, what else is
// looked at, and what becomes of what was released.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include <pergrad/batch.hpp>
#include <pergrad/errors.hpp>
#include <pergrad/expressions/evaluate.hpp>
#include <pergrad/expressions/scalars.hpp>
#include <pergrad/optim/optimizer.hpp>
#include <pergrad/privacy/generator.hpp>
#include <pergrad/tape.hpp>
#include <pergrad/train/dp_sgd_options.hpp>
#include <pergrad/train/private_run.hpp>

namespace pergrad::inline v0_1 {

template <class Network, class Loss, random_generator Generator, executor Executor, class Options>
class private_loop;
namespace detail {
struct checkpoint_access;
struct statistics_access;
}

/// One step of a `private_loop`: its records, in physical batches, and its sum. Movable, not copyable; a loop has one
/// at a time, and one that is given up ends with its destructor. The step is in the ledger, whatever becomes of it.
/// Behind a release or a move, and once the loop is gone, each function throws std::logic_error.
template <class Loop>
class private_step {
 public:
  using network_type = typename Loop::network_type;
  using loss_type = typename Loop::loss_type;
  using generator_type = typename Loop::generator_type;

  private_step(private_step&& other) noexcept { take_over(other); }
  private_step& operator=(private_step&& other) noexcept {
    if (this != &other) {
      end();
      take_over(other);
    }
    return *this;
  }
  private_step(const private_step&) = delete;
  private_step& operator=(const private_step&) = delete;
  ~private_step() { end(); }

  /// Goes on to the next physical batch; false behind the last one. How many there are, and how large, are private
  /// values. Throws std::logic_error if the batch before is not in the sum yet.
  [[nodiscard]] bool next() { return loop().next_batch(); }
  /// The lazy per-sample gradients of this physical batch, with the step's randomness inside layers.
  [[nodiscard]] auto gradients() { return loop().gradients(); }
  /// Counts this physical batch's records in the run's statistic, by their norms or losses as its options say. Batches
  /// that are not counted are left out of it. Another pass over the batch; allocates. Throws std::logic_error for a
  /// batch's second time, before next(), and if the options have no `statistic`.
  template <class OfExecutor>
  void tally(const OfExecutor& executor) {
    loop().tally(executor);
  }

 private:
  template <class, class, random_generator, executor, class>
  friend class private_loop;
  template <class Sum, class Net, class Step>
  friend class detail::chunk_of_step;
  template <class, class>
  friend class optimizer_steps;
  template <class>
  friend class scaled_adam;
  template <executor Executor, class Network, class AnyLoop>
  friend void evaluate_into(const Executor& executor, released_gradient<Network, AnyLoop::is_private>& update,
                            private_step<AnyLoop>&& step);

  explicit private_step(Loop& loop) noexcept : loop_{&loop} { loop.under_way_ = this; }
  void take_over(private_step& other) noexcept {
    loop_ = std::exchange(other.loop_, nullptr);
    if (loop_ != nullptr) loop_->under_way_ = this;
  }
  void end() noexcept {
    if (loop_ != nullptr) loop_->under_way_ = nullptr;
    loop_ = nullptr;
  }
  [[nodiscard]] Loop& loop() const {
    if (loop_ == nullptr) {
      throw std::logic_error(
          "pergrad: a private_step was used after it was moved from or released, or without its loop");
    }
    return *loop_;
  }
  [[nodiscard]] auto& total() const { return loop().total_; }
  void admit(const auto* samples) const { loop().admit(samples); }
  void is_in_the_sum() const { loop().state_ = Loop::batch_state::in_the_sum; }
  [[nodiscard]] expected_batch_size divisor() const { return *loop().options_.divisor; }
  /// The step's sum with its noise, once. Throws std::logic_error before all of its batches are in the sum.
  [[nodiscard]] noised_total<network_type, generator_type> consumed() && {
    Loop& from = loop();
    if (from.state_ != Loop::batch_state::none_left) {
      throw std::logic_error("pergrad: private_step: released before next() has said that no batch is left");
    }
    from.release_its_statistic();
    end();
    return {&from.total_, {*from.options_.noise, &from.generator_, from.its_filter()}};
  }

  Loop* loop_ = nullptr;
};

namespace detail {
template <class Usual, class... Given>
struct first_or {
  using type = Usual;
};
template <class Usual, class First>
struct first_or<Usual, First> {
  using type = First;
};
}  // namespace detail

/// A private training loop of one network. Refers to the executor and the network; a step allocates nothing. Options:
/// as `loop_options` says.
template <class Network, class Loss, random_generator Generator = os_keyed_generator, executor Executor = host,
          class Options = private_options>
class private_loop : private detail::private_run<typename Options::sampling_type, typename Options::noise_type> {
  using base = detail::private_run<typename Options::sampling_type, typename Options::noise_type>;
  using sampling_type = typename Options::sampling_type;
  static_assert(
      sizeof(std::conditional_t<detail::draws_units<sampling_type>, error::loop_draws_records<sampling_type>, char>) !=
      0);

 public:
  using network_type = Network;
  using loss_type = Loss;
  using generator_type = Generator;
  using scalar = typename Network::scalar;
  using input_value = typename Network::input_value;
  using target = target_of<Loss, scalar>;
  using step_type = private_step<private_loop>;
  /// Whether the noise's key is secret: false for a seeded generator, whose runs protect nobody.
  static constexpr bool is_private = Generator::is_private;
  using base::accountant;
  using base::epsilon;
  using base::last_statistic;
  using base::relation;
  using base::steps;
  using base::within_budget;

  /// Throws std::invalid_argument naming an option that is missing or out of range, a trainer's that a loop does not
  /// follow (schedules, adaptive_clip, individual, certified), or a budget that is less than what one step costs.
  private_loop(const Executor& executor, const Network& network, Loss loss, const Options& chosen,
               Generator generator = Generator{})
      : private_loop{detail::settled<scalar>(detail::of_a_loop(chosen), is_private), executor, network, loss,
                     std::move(generator)} {}
  private_loop(const private_loop&) = delete;
  private_loop& operator=(const private_loop&) = delete;
  ~private_loop() {
    if (under_way_ != nullptr) under_way_->loop_ = nullptr;
  }

  /// Enters a step in the ledger, then draws its records. Throws
  /// budget_exhausted if it would exceed the budget, std::invalid_argument for records that do not fit the network or
  /// the loss, std::logic_error while another step is under way; nothing is changed then. As in `dp_sgd::step`, all
  /// records are looked at when the loop sees them first, and one that fits no more when it is drawn is left out.
  [[nodiscard]] step_type begin(const dataset<input_value, target>& records) {
    if (under_way_ != nullptr) {
      throw std::logic_error("pergrad: private_loop: another step is under way: release it, or let it go out of scope");
    }
    if (records_ && !told_) this->require_known(records, *records_);
    const bool are_new = told_ || !records_ || !records_->same_view(records);
    if (are_new) detail::require_fit_for_training<Network, Loss>(records);
    this->meet_records(are_new);
    const std::uint64_t step = this->spend_and_draw(generator_, records.size());
    records_ = records;
    told_ = false;
    randomness_ = base::inside_layers(generator_, step);
    total_.clear();
    detail::total_access::state(total_).expect(release_grid::of(this->sensitivity_, Network::parameter_count), 1);
    batch_.reset();
    state_ = batch_state::in_the_sum;
    return step_type{*this};
  }
  /// Memory behind the spans of the data set has changed since the last step: the next one looks at all records again,
  /// and where the sampler has rounds, one begins.
  void records_changed() noexcept { told_ = true; }

 private:
  template <class>
  friend class private_step;
  friend struct detail::checkpoint_access;
  friend struct detail::statistics_access;
  enum class batch_state : unsigned char { waiting, in_the_sum, none_left };

  private_loop(const Options& options, const Executor& executor, const Network& network, Loss loss, Generator generator)
      : base{options, *options.sampling, options, options.budget},
        options_{options},
        executor_{&executor},
        network_{&network},
        loss_{loss},
        tape_{executor, options.max_batch},
        total_{detail::total_access::total_of<Network>(executor, detail::summation_of<scalar>(options))},
        generator_{std::move(generator)} {
    detail::require_option(options.clip.has_value(), "clip");
    detail::require_divisor_that_counts<scalar>(*options.divisor);
    this->take(options.clip->value(), static_cast<double>(std::numeric_limits<scalar>::max()), Network::parameter_count,
               executor.pool().thread_count());
    this->require_noise_on_the_grid(options.noise->value(), options.clip->value(), Network::parameter_count,
                                    detail::summation_of<scalar>(options), is_private);
  }

  [[nodiscard]] detail::noise_filter* its_filter() const noexcept { return this->noise_.filter(); }
  void release_its_statistic() { this->release_statistic(generator_); }
  [[nodiscard]] bool next_batch() {
    if (state_ == batch_state::waiting) {
      throw std::logic_error("pergrad: private_step: accumulate(step, sum(clip(step.gradients(), bound))) is missing");
    }
    const auto drawn = this->drawn_.next(
        executor_->pool(),
        [&](std::uint64_t record) { return detail::fits_the_trainer<Network, Loss>(*records_, record); }, [] {});
    if (drawn.empty()) {
      batch_.reset();
      state_ = batch_state::none_left;
      return false;
    }
    if (options_.lanes) {
      detail::total_access::enter_lane(executor_->pool(), total_, options_.lanes->of(drawn.front()));
    }
    batch_.emplace(*records_, drawn);
    state_ = batch_state::waiting;
    is_tallied_ = false;
    return true;
  }
  [[nodiscard]] auto gradients() {
    if (!batch_) throw std::logic_error("pergrad: private_step: next() comes first, and says whether there is a batch");
    return per_sample_gradients(*network_, loss_, *batch_, tape_).with(randomness_);
  }
  template <class OfExecutor>
  void tally(const OfExecutor& executor) {
    if (!this->statistic_) throw std::logic_error("pergrad: private_step: tally() needs the option statistic");
    if (!batch_ || is_tallied_) {
      throw std::logic_error("pergrad: private_step: tally() counts each physical batch once, behind next()");
    }
    // No expression of the program's: its numbers might be of several records, and one of them would move all counts.
    const auto g = gradients();
    const std::vector<double> numbers = options_.statistic->of == step_value::norm
                                            ? unprotected::evaluate(executor, l2_norms(g))
                                            : unprotected::evaluate(executor, losses(g));
    is_tallied_ = true;
    this->statistic_->counted.add(numbers);
  }
  /// Throws std::logic_error unless these gradients are those of the batch that waits.
  void admit(const batch<Network, Loss>* samples) {
    if (!batch_ || samples != &*batch_ || state_ != batch_state::waiting) {
      throw std::logic_error(
          "pergrad: private_step: each physical batch goes into the sum once, as step.gradients() gives it");
    }
  }

  Options options_;
  const Executor* executor_;
  const Network* network_;
  [[no_unique_address]] Loss loss_;
  tape<Network> tape_;
  bounded_total<Network> total_;
  layer_randomness randomness_;
  std::optional<dataset<input_value, target>> records_;
  bool told_ = false;  ///< that they are others
  std::optional<batch<Network, Loss>> batch_;
  batch_state state_ = batch_state::none_left;
  bool is_tallied_ = false;
  step_type* under_way_ = nullptr;
  Generator generator_;
};

/// Of a network or a loss that is explained to be wrong.
template <class Network, class Loss, random_generator Generator, executor Executor, class Options>
requires detail::cannot_be_trained<Network, Loss>
class private_loop<Network, Loss, Generator, Executor, Options> : public error::stand_in<typename Network::scalar> {
  static_assert(sizeof(detail::loss_explanation<Network, Loss>) != 0);
  static_assert(sizeof(typename error::explanation_of<Network>::type) != 0);

 public:
  static constexpr bool is_private = Generator::is_private;
  template <class... Any>
  explicit private_loop(const Any&...) noexcept {}
};

template <executor Executor, class Network, class Loss, private_loop_options Options>
private_loop(const Executor&, const Network&, Loss, const Options&)
    -> private_loop<Network, Loss, os_keyed_generator, Executor, Options>;
template <executor Executor, class Network, class Loss, private_loop_options Options, random_generator Generator>
private_loop(const Executor&, const Network&, Loss, const Options&, Generator)
    -> private_loop<Network, Loss, Generator, Executor, Options>;
/// A trainer's options say all that a loop's do.
template <executor Executor, class Network, class Loss, trainer_options Options, class... Generator>
private_loop(const Executor&, const Network&, Loss, const Options&, Generator...)
    -> private_loop<Network, Loss, typename detail::first_or<os_keyed_generator, Generator...>::type, Executor,
                    typename Options::of_a_loop>;

/// It names its executor first: one error that says so.
template <class First, class... Rest>
requires(!executor<First>) private_loop(const First&, const Rest&...)
->private_loop<error::wrong_network<error::needs_an_executor<error::function::private_loop, First>, float>, void>;

/// Releases a step into a private gradient: its noise is drawn, and the step is used up. Throws what the generator
/// throws, and std::logic_error before all of its physical batches are in the sum.
template <executor Executor, class Network, class Loop>
void evaluate_into(const Executor& executor, released_gradient<Network, Loop::is_private>& update,
                   private_step<Loop>&& step) {
  detail::total_release::into(executor, update, std::move(step).consumed());
}
template <executor Executor, class Network, bool IsPrivate, class Loop>
void evaluate_into(const Executor& /*executor*/, released_gradient<Network, IsPrivate>& /*update*/,
                   const private_step<Loop>& /*step*/) {
  static_cast<void>(error::step_is_used_up_by_a_release<Loop>{});
}

}  // namespace pergrad::inline v0_1
