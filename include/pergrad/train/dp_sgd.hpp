// SPDX-License-Identifier: Apache-2.0
// pergrad/train/dp_sgd.hpp - differentially private training in which sampling, clipping, noise and accounting cannot
// part
//
// One step (Abadi et al. 2016, arXiv:1607.00133): enter the step in the ledger or refuse it; draw every record with
// probability q; add up clipped per-sample gradients in chunks that fit the tape; add noise once, also to an empty
// batch; divide by the public constant; update. The ledger counts the event that this very sampler yields.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <pergrad/detail/error_text.hpp>
#include <pergrad/detail/executors.hpp>
#include <pergrad/detail/float_environment.hpp>
#include <pergrad/errors.hpp>
#include <pergrad/expressions/noise.hpp>
#include <pergrad/privacy/generator.hpp>
#include <pergrad/privacy/units.hpp>
#include <pergrad/train/dp_sgd_base.hpp>

namespace pergrad::inline v0_1 {

namespace detail {
struct checkpoint_access;
struct run_state_access;
struct statistics_access;
}
namespace unprotected {
template <class Network, class Loss, class Generator, class Executor, class Options>
[[nodiscard]] const step_metrics& metrics(const dp_sgd<Network, Loss, Generator, Executor, Options>& trainer);
template <class Network, class Loss, class Generator, class Executor, class Options>
[[nodiscard]] std::vector<double> individual_epsilons(
    const dp_sgd<Network, Loss, Generator, Executor, Options>& trainer, delta at);
}  // namespace unprotected

/// The training loop of one network. Refers to the executor and the network, owns everything else; a step allocates
/// nothing.
template <class Network, class Loss, random_generator Generator = os_keyed_generator, executor Executor = host,
          class Options = dp_sgd_options>
class dp_sgd : private detail::dp_sgd_base<Network, Loss, Executor, Options> {
  using base = detail::dp_sgd_base<Network, Loss, Executor, Options>;
  static constexpr bool forms_gradients = detail::gradients_of_step<Options> != detail::step_gradients::unformed;
  static constexpr bool lacks_them = forms_gradients && Executor::template trainer<Network, Loss>::trains_on_a_copy;
  static_assert(sizeof(std::conditional_t<lacks_them, error::on_the_host_only<Executor>, char>) != 0);

 public:
  using typename base::input_value;
  using typename base::scalar;
  using typename base::target;
  /// Whether the noise's key is secret: false for a seeded generator, whose runs protect nobody.
  static constexpr bool is_private = Generator::is_private;
  using base::accountant;
  using base::average;
  using base::epsilon;
  using base::last_statistic;
  using base::options;
  using base::records_changed;
  using base::relation;
  using base::set_learning_rate;
  using base::steps;
  using base::unit_of_privacy;
  using base::within_budget;

  /// Throws std::invalid_argument naming an option that is missing, out of range or not for this kind of clipping, or a
  /// budget that is less than what one step costs.
  dp_sgd(const Executor& executor, Network& network, Loss loss, const Options& chosen,
         Generator generator = Generator{})
      : base{executor, network, loss, chosen, is_private},
        update_{detail::total_access::released_without_sums<released_gradient<Network, is_private>>(
            chosen.keep_update.value_or(Network::parameter_count <= most_kept_unasked))},
        generator_{std::move(generator)} {}
  // clang-format off
  dp_sgd(const Executor&&, Network&, Loss, const Options&, Generator = Generator{}) = delete;  // name the executor
  dp_sgd(const dp_sgd&) = delete;  // one run has one ledger: pass a reference, or save_checkpoint
  dp_sgd& operator=(const dp_sgd&) = delete;
  ~dp_sgd() = default;
  // What a trainer has in Opacus. Compilers show these lines.
  template <class... Any>
  void get_epsilon(const Any&...) const = delete;  // write trainer.epsilon(pergrad::delta{1e-5})
  void epsilon() const = delete;  // at which delta: trainer.epsilon(pergrad::delta{1e-5})
  void zero_grad() const = delete;  // a step keeps no gradients: leave it out
  // clang-format on

  /// One logical step on the whole data set. Throws budget_exhausted if it would exceed the budget,
  /// std::invalid_argument for records that do not fit the network or the loss; nothing is changed then, but that
  /// certified training brings weights within their limits.
  ///
  /// All records are looked at, drawn or not, as which ones are drawn is private; but only in the first step on these
  /// spans, since that takes time for each of them. Memory behind the same spans may change between steps. If a record
  /// no longer fits when it is drawn, it is left out, like one whose gradient is not finite: no error tells that it was
  /// drawn. A device trains on the copy that it made when the records were looked at, until `records_changed()`.
  void step(const dataset<input_value, target>& records) {
    const detail::float_environment proven;
    this->look_at(records);
    if (this->charges_) this->charges_->filter().begin_step(records.size());
    this->plan_next_step();
    if (this->options_.certified) this->certify_next_step();
    this->notes_.begin();
    const std::uint64_t step = this->spend_and_draw(generator_, this->unit_count(records.size()));
    this->accept(records);
    this->begin_average();
    this->trainer_->step(
        this->records_of_step(records, base::inside_layers(generator_, step)),
        detail::noise_of<Generator>{*this->options_.noise, &generator_, this->noise_.filter()},
        [&] { return base::next_noise(generator_); }, detail::total_access::values(update_));
    if (this->options_.certified) this->certify_next_step();
    this->end_average();
    this->notes_.end();
    this->release_statistic(generator_);
    if (this->options_.adaptive_clip) this->adapt_clip();
    this->plan_next_step();
  }
  /// Records of other types, and whatever else is no data set: one error that says so.
  template <class Value, class Target>
  void step(const dataset<Value, Target>& /*records*/) {
    static_cast<void>(error::records_of_another_type<dataset<input_value, target>, dataset<Value, Target>>{});
  }
  template <class... Given>
  void step(const Given&... /*given*/) {
    static_cast<void>(error::step_draws_from_all_records<Given...>{});
  }

  /// The noised gradient of the last step, before division: released. Zeros before the first step and after one that
  /// failed halfway; a span of it that was kept never shows anything else than released values and zeros. Throws
  /// std::logic_error where the option keep_update is false, or not set and there are more than 2^24 parameters.
  [[nodiscard]] const released_gradient<Network, is_private>& last_update() const {
    if (update_.values().empty()) {
      detail::throw_logic_error(
          {"pergrad: dp_sgd: no update is kept: the option keep_update is false, or it is not set "
           "and there are more than 16777216 parameters"});
    }
    this->trainer_->fetch_update(detail::total_access::values(update_));
    return update_;
  }

 private:
  friend const step_metrics& unprotected::metrics<Network, Loss, Generator, Executor, Options>(const dp_sgd& trainer);
  friend struct detail::checkpoint_access;
  friend struct detail::run_state_access;
  friend struct detail::statistics_access;
  friend std::vector<double> unprotected::individual_epsilons<Network, Loss, Generator, Executor, Options>(
      const dp_sgd& trainer, delta at);
  [[nodiscard]] const step_metrics& noted() const noexcept { return this->notes_.metrics(); }
  [[nodiscard]] const detail::individual_charges* charged() const noexcept { return this->charges_.get(); }

  static constexpr std::size_t most_kept_unasked = std::size_t{1} << 24U;
  mutable released_gradient<Network, is_private> update_;  ///< of a device: fetched when somebody asks
  Generator generator_;
};

/// Of a network or a loss that is explained to be wrong.
template <class Network, class Loss, random_generator Generator, executor Executor, class Options>
requires detail::cannot_be_trained<Network, Loss>
class dp_sgd<Network, Loss, Generator, Executor, Options> : public error::stand_in<typename Network::scalar> {
  static_assert(sizeof(detail::loss_explanation<Network, Loss>) != 0);
  static_assert(sizeof(typename error::explanation_of<Network>::type) != 0);

 public:
  static constexpr bool is_private = Generator::is_private;
  template <class... Any>
  explicit dp_sgd(const Any&...) noexcept {}
  [[nodiscard]] const step_metrics& noted() const noexcept { return nothing_noted; }

 private:
  static constexpr step_metrics nothing_noted{};
};

template <executor Executor, class Network, class Loss, trainer_options Options>
dp_sgd(const Executor&, Network&, Loss, const Options&) -> dp_sgd<Network, Loss, os_keyed_generator, Executor, Options>;
template <executor Executor, class Network, class Loss, trainer_options Options, random_generator Generator>
dp_sgd(const Executor&, Network&, Loss, const Options&, Generator)
    -> dp_sgd<Network, Loss, Generator, Executor, Options>;

/// What has no shapes is no network: a pointer to one, say.
template <executor Executor, class Network, class Loss, trainer_options Options>
requires detail::no_network<Network> dp_sgd(const Executor&, Network&, Loss, const Options&)
->dp_sgd<error::wrong_network<error::not_a_network<Network>, float>, Loss, os_keyed_generator, Executor>;
template <executor Executor, class Network, class Loss, trainer_options Options>
requires detail::no_network<Network> dp_sgd(const Executor&, const Network&&, Loss, const Options&)
->dp_sgd<error::wrong_network<error::not_a_network<Network>, float>, Loss, os_keyed_generator, Executor>;

/// The trainer refers to the network: a temporary one is an error that says so.
template <executor Executor, class Network, class Loss, trainer_options Options>
dp_sgd(const Executor&, const Network&&, Loss, const Options&)
    -> dp_sgd<error::wrong_network<error::temporary_operand<Network>, typename Network::scalar>, Loss,
              os_keyed_generator, Executor>;
namespace detail {
/// What takes the place of a network that is const; of one that is wrong already, itself.
template <class Network>
using not_const = std::conditional_t<is_explained<Network>, Network,
                                     error::wrong_network<error::network_is_const<Network>, typename Network::scalar>>;
}  // namespace detail

/// It changes the network, names its executor first, and is made of nothing else: one error that says so.
template <executor Executor, class Network, class Loss, trainer_options Options>
dp_sgd(const Executor&, const Network&, Loss, const Options&)
    -> dp_sgd<detail::not_const<Network>, Loss, os_keyed_generator, Executor>;
template <executor Executor, class Network, class Loss, trainer_options Options, random_generator Generator>
dp_sgd(const Executor&, const Network&, Loss, const Options&, Generator)
    -> dp_sgd<detail::not_const<Network>, Loss, Generator, Executor>;
template <class First, class... Rest>
requires(!executor<First>) dp_sgd(const First&, const Rest&...)
->dp_sgd<error::wrong_network<error::needs_an_executor<error::function::dp_sgd, First>, float>, void>;
template <executor Executor, class... Rest>
requires(sizeof...(Rest) < 3) dp_sgd(const Executor&, const Rest&...)
->dp_sgd<error::wrong_network<error::not_made_of_this<error::function::dp_sgd, Rest...>, float>, void>;
template <executor Executor, class Network, class Loss, trainer_options Options, class Number>
requires std::is_arithmetic_v<Number> dp_sgd(const Executor&, Network&, Loss, const Options&, Number)
->dp_sgd<error::wrong_network<error::not_made_of_this<error::function::dp_sgd, Number>, float>, void>;

namespace unprotected {

/// Private values of the trainer's last step; all zero unless its options ask for `private_metrics`.
template <class Network, class Loss, class Generator, class Executor, class Options>
[[nodiscard]] const step_metrics& metrics(const dp_sgd<Network, Loss, Generator, Executor, Options>& trainer) {
  return trainer.noted();
}

/// What each record of a trainer with individual accounting has spent, by its number: private values, as is how many of
/// them are still used. Throws std::logic_error without individual accounting.
template <class Network, class Loss, class Generator, class Executor, class Options>
[[nodiscard]] std::vector<double> individual_epsilons(
    const dp_sgd<Network, Loss, Generator, Executor, Options>& trainer, delta at) {
  const auto* const charged = trainer.charged();
  if (charged == nullptr) {
    pergrad::detail::throw_logic_error({"pergrad: individual_epsilons: the option individual is not set"});
  }
  std::vector<double> spent(charged->filter().records());
  for (std::size_t record = 0; record < spent.size(); ++record) {
    spent[record] = epsilon_from_rdp(charged->filter().order(), charged->filter().spent(record), at);
  }
  return spent;
}

}  // namespace unprotected
}  // namespace pergrad::inline v0_1
