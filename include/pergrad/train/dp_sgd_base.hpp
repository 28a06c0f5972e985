// SPDX-License-Identifier: Apache-2.0
// pergrad/train/dp_sgd_base.hpp - all of a trainer that does not know its source of noise
//
// A program that trains with a secret key or, for a test, with a seed has two types of trainers; what is here is
// compiled once for both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <pergrad/batch.hpp>
#include <pergrad/detail/executors.hpp>
#include <pergrad/detail/float_environment.hpp>
#include <pergrad/expressions/evaluate.hpp>
#include <pergrad/optim/adam.hpp>
#include <pergrad/optim/sgd.hpp>
#include <pergrad/privacy/types.hpp>
#include <pergrad/tape.hpp>
#include <pergrad/train/dp_sgd_options.hpp>
#include <pergrad/train/private_run.hpp>
#include <pergrad/train/step_by_verbs.hpp>
#include <pergrad/train/step_notes.hpp>

namespace pergrad::inline v0_1 {

namespace detail {

template <class Network, class Loss, executor Executor>
class dp_sgd_base : public private_run {
 public:
  using scalar = typename Network::scalar;
  using input_value = typename Network::input_value;
  using target = target_of<Loss, scalar>;
  /// What the executor keeps of a run and does in a step.
  using executor_trainer = typename Executor::template trainer<Network, Loss>;

  dp_sgd_base(const Executor& executor, Network& network, Loss loss, const dp_sgd_options& options, bool is_private)
      : dp_sgd_base{executor, network, loss,
                    settled<scalar>(checked_options(options, clipping_groups<Network>), is_private)} {}
  dp_sgd_base(const dp_sgd_base&) = delete;
  dp_sgd_base& operator=(const dp_sgd_base&) = delete;
  ~dp_sgd_base() = default;

  [[nodiscard]] const dp_sgd_options& options() const noexcept { return options_; }

  /// Of all steps from now on: for schedules. Costs no privacy as long as it is not computed from records: of the
  /// number of steps, say.
  void set_learning_rate(learning_rate rate) {
    options_.learning_rate = rate;
    trainer_->set_learning_rate(rate);
  }
  /// Memory behind the spans of the data set has changed since the last step: the next one looks at all records again,
  /// and a device copies them again. Needed on a device, which trains on its copy; on the host each step reads the
  /// memory anyway.
  void records_changed() noexcept {
    checked_.reset();
    trainer_->forget_records();
  }

 private:
  template <class OfNetwork, class OfLoss, random_generator Generator, executor OfExecutor>
  friend class pergrad::dp_sgd;
  friend struct checkpoint_access;

  [[gnu::noinline]] dp_sgd_base(const Executor& executor, Network& network, Loss loss, const dp_sgd_options& options)
      : private_run{options},
        options_{options},
        executor_{&executor},
        network_{&network},
        loss_{loss},
        tape_{executor, options.max_batch} {
    const float_environment proven;
    take(with_empty_batch([](const auto& sum) { return sum.sensitivity(); }),
         static_cast<double>(std::numeric_limits<scalar>::max()));
    if (options.optimizer == optimizer_kind::adam) {
      require_adam_options(options.adam);
    } else {
      require_momentum(options.momentum);
      require_weight_decay(options.weight_decay);
    }
    notes_ = {options.private_metrics, options.max_batch.count, options.clip ? options.clip->value() : sensitivity_,
              statistic_ ? &statistic_->counted : nullptr,
              options.statistic ? options.statistic->of : step_value::norm};
    trainer_ = std::make_unique<executor_trainer>(executor, network, loss, tape_, options_, sensitivity_);
    if constexpr (executor_trainer::trains_on_a_copy) {
      with_empty_batch([&](const auto& sum) { trainer_->clip_with(sum.clipped().rule()); });
    }
  }

  template <class Function>
  auto with_empty_batch(Function&& f) {
    const std::vector<std::uint32_t> nobody;
    const dataset<input_value, target> no_records{
        {}, {}, Network::input_shape, Loss::target_count(Network::output_shape)};
    const batch<Network, Loss> empty{no_records, nobody};
    return with_clipped(options_, per_sample_gradients(*network_, loss_, empty, tape_), f);
  }

  /// Looks at the records if it has not seen them.
  void look_at(const dataset<input_value, target>& records) {
    if (checked_ && checked_->same_view(records)) return;
    checked_.reset();
    require_fit_for_training<Network, Loss>(records);
    checked_ = records;
  }
  /// The records of a step that is drawn. Refers to the trainer and to `records`.
  [[nodiscard]] step_records<Network, Loss> records_of_step(const dataset<input_value, target>& records,
                                                            const layer_randomness& randomness) {
    return {&records, this, [](void* self) { return static_cast<dp_sgd_base*>(self)->next_records(); }, randomness,
            &notes_};
  }
  [[nodiscard]] std::span<const std::uint32_t> next_records() {
    return drawn_.next(
        executor_->pool(),
        [&](std::uint64_t record) {
          return executor_trainer::trains_on_a_copy || fits_the_trainer<Network, Loss>(*checked_, record);
        },
        [&] { notes_.leave_out(); });
  }

  dp_sgd_options options_;
  step_notes<scalar> notes_{false, 0, 0};
  const Executor* executor_;
  Network* network_;
  [[no_unique_address]] Loss loss_;
  tape<Network> tape_;
  std::optional<dataset<input_value, target>> checked_;  ///< all of its records did fit when they were looked at
  std::unique_ptr<executor_trainer> trainer_;            ///< refers to the tape and the options, so it goes first
};

}  // namespace detail
}  // namespace pergrad::inline v0_1
