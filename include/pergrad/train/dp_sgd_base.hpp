// SPDX-License-Identifier: Apache-2.0
// pergrad/train/dp_sgd_base.hpp - all of a trainer that does not know its source of noise
//
// A program that trains with a secret key or, for a test, with a seed has two types of trainers; what is here is
// compiled once for both.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <pergrad/batch.hpp>
#include <pergrad/detail/executors.hpp>
#include <pergrad/detail/float_environment.hpp>
#include <pergrad/gradients/evaluate.hpp>
#include <pergrad/optim/adam.hpp>
#include <pergrad/optim/sgd.hpp>
#include <pergrad/privacy/clip.hpp>
#include <pergrad/privacy/generator.hpp>
#include <pergrad/privacy/types.hpp>
#include <pergrad/train/dp_sgd_options.hpp>
#include <pergrad/train/private_run.hpp>

namespace pergrad::inline v0_1 {

namespace detail {

/// What a trainer notes of the records of its last step.
template <class Scalar>
class step_notes {
 public:
  step_notes(bool wanted, std::size_t max_batch) : wanted_{wanted} {
    losses_.resize(wanted ? max_batch : 0);
    norms_.resize(wanted ? max_batch : 0);
  }
  [[nodiscard]] bool wanted() const noexcept { return wanted_; }
  [[nodiscard]] const step_metrics& metrics() const noexcept { return metrics_; }
  void begin() noexcept { metrics_ = {}; }
  void end() noexcept {
    if (!wanted_) return;
    metrics_.mean_loss = metrics_.batch_size == 0 ? std::numeric_limits<double>::quiet_NaN()
                                                  : metrics_.mean_loss / static_cast<double>(metrics_.batch_size);
  }
  void leave_out() noexcept {
    if (!wanted_) return;
    ++metrics_.batch_size;
    ++metrics_.non_finite;
    metrics_.mean_loss = std::numeric_limits<double>::quiet_NaN();
  }
  /// Room for those of a chunk.
  [[nodiscard]] std::span<double> losses(std::size_t count) noexcept { return {losses_.data(), count}; }
  [[nodiscard]] std::span<double> norms(std::size_t count) noexcept { return {norms_.data(), count}; }
  /// Notes what lies there; above `clip_norm` a norm counts as clipped.
  [[gnu::noinline]] void note(std::size_t count, double clip_norm) noexcept {
    for (std::size_t i = 0; i < count; ++i) {
      const auto finite_before = static_cast<double>(metrics_.batch_size - metrics_.non_finite);
      ++metrics_.batch_size;
      metrics_.mean_loss += losses_[i];
      if (!is_finite_norm<Scalar>(norms_[i])) {
        ++metrics_.non_finite;
        continue;
      }
      metrics_.mean_norm += (norms_[i] - metrics_.mean_norm) / (finite_before + 1);
      if (norms_[i] > clip_norm) ++metrics_.clipped;
    }
  }

 private:
  bool wanted_;
  std::vector<double> losses_;
  std::vector<double> norms_;
  step_metrics metrics_;
};

template <class Network, class Loss, executor Executor>
class dp_sgd_base : public private_run {
 public:
  using scalar = typename Network::scalar;
  using input_value = typename Network::input_value;
  using target = target_of<Loss, scalar>;
  /// Whether a device does the steps.
  static constexpr bool on_a_device = device_executor<Executor>;

  dp_sgd_base(const Executor& executor, Network& network, Loss loss, const dp_sgd_options& options, bool is_private)
      : dp_sgd_base{executor, network, loss,
                    settled<scalar>(checked_options(options, clipping_groups<Network>), is_private)} {}

  [[nodiscard]] const dp_sgd_options& options() const noexcept { return options_; }

  /// Of all steps from now on: for schedules. Costs no privacy as long as it is not computed from records: of the
  /// number of steps, say.
  void set_learning_rate(learning_rate rate) {
    options_.learning_rate = rate;
    if constexpr (on_a_device) {
      part_->set_learning_rate(rate);
    } else {
      std::visit([&](auto& optimizer) { optimizer.set_learning_rate(rate); }, part_->optimizer);
    }
  }
  /// Memory behind the spans of the data set has changed since the last step: the next one looks at all records again,
  /// and a device copies them again. Needed on a device, which trains on its copy; on the host each step reads the
  /// memory anyway.
  void records_changed() noexcept {
    checked_.reset();
    if constexpr (on_a_device) part_->forget_records();
  }

 private:
  template <class OfNetwork, class OfLoss, random_generator Generator, executor OfExecutor>
  friend class pergrad::dp_sgd;
  friend struct checkpoint_access;
  using noise_stream = secret_stream<randomness::noise>;

  [[gnu::noinline]] dp_sgd_base(const Executor& executor, Network& network, Loss loss, const dp_sgd_options& options)
      : private_run{options},
        options_{options},
        notes_{options.private_metrics, options.max_batch.count},
        executor_{&executor},
        network_{&network},
        loss_{loss},
        tape_{executor, options.max_batch} {
    take(with_empty_batch([](const auto& sum) { return sum.sensitivity(); }),
         static_cast<double>(std::numeric_limits<scalar>::max()));
  }

  /// During a step the memory of what was released last holds the sum that is released next; there is no second array.
  class lent_memory {
   public:
    lent_memory(bounded_total<Network>& total, sum_memory<scalar>& update) noexcept : total_{total}, update_{update} {
      total_access::exchange_memory(total_, update_);
    }
    lent_memory(const lent_memory&) = delete;
    lent_memory& operator=(const lent_memory&) = delete;
    ~lent_memory() {
      if (!released_) std::ranges::fill(total_access::floating(total_), scalar{0});
      total_access::exchange_memory(total_, update_);
    }
    void holds_what_was_released() noexcept { released_ = true; }

   private:
    bounded_total<Network>& total_;
    sum_memory<scalar>& update_;
    bool released_ = false;
  };

  using any_optimizer = std::variant<sgd<Network>, adam<Network>>;
  [[nodiscard]] static any_optimizer make_optimizer(const dp_sgd_options& options) {
    if (options.optimizer == optimizer_kind::adam) return adam<Network>{*options.learning_rate, options.adam};
    return sgd<Network>{*options.learning_rate, options.momentum};
  }
  /// What a step needs on the host; a device has its own.
  struct host_part {
    bounded_total<Network> total;  ///< has memory only during a step: that of `update_`
    any_optimizer optimizer;
  };
  [[nodiscard]] static constexpr auto kind_of_part() {
    if constexpr (on_a_device) {
      return std::type_identity<typename Executor::template trainer<Network, Loss>>{};
    } else {
      return std::type_identity<host_part>{};
    }
  }
  using part_type = typename decltype(kind_of_part())::type;
  void make_part() {
    const float_environment proven;
    if constexpr (on_a_device) {
      if (options_.optimizer == optimizer_kind::adam) {
        require_adam_options(options_.adam);
      } else {
        require_momentum(options_.momentum);
      }
      part_ = std::make_unique<part_type>(*executor_, *network_, tape_, options_, sensitivity_);
      with_empty_batch([&](const auto& sum) { part_->clip_with(sum.clipped().rule()); });
    } else {
      part_ = std::make_unique<part_type>(part_type{
          total_access::total_without_memory<Network>(capacity_for<scalar>(options_)), make_optimizer(options_)});
    }
  }

  template <class Function>
  auto with_clipped(const per_sample_gradient_leaf<Network, Loss>& gradients, Function&& f) const {
    switch (options_.clipping) {
      case clipping_kind::per_layer:
        return f(sum(clip_per_layer(gradients, *options_.clip)));
      case clipping_kind::automatic:
        return f(sum(normalise(gradients, *options_.clip)));
      case clipping_kind::per_group:
        if constexpr (clipping_groups < Network >> 1) {
          return f(sum(clip_per_group(gradients, options_.group_bounds)));
        } else {
          return f(sum(clip(gradients, options_.group_bounds.front())));  // one group is the whole
        }
      default:
        return f(sum(clip(gradients, *options_.clip)));
    }
  }
  template <class Function>
  auto with_empty_batch(Function&& f) {
    const std::vector<std::uint32_t> nobody;
    const dataset<input_value, target> no_records{
        {}, {}, Network::input_shape, Loss::target_count(Network::output_shape)};
    const batch<Network, Loss> empty{no_records, nobody};
    return with_clipped(per_sample_gradients(*network_, loss_, empty, tape_), f);
  }

  /// Looks at the records if it has not seen them.
  void look_at(const dataset<input_value, target>& records) {
    if (checked_ && checked_->same_view(records)) return;
    checked_.reset();
    require_fit_for_training<Network, Loss>(records);
    checked_ = records;
  }
  /// The next records of this step.
  [[nodiscard]] std::span<const std::uint32_t> next_records(const dataset<input_value, target>& records) {
    return drawn_.next(
        crew_of(*executor_),
        [&](std::uint64_t record) { return on_a_device || fits_the_trainer<Network, Loss>(records, record); },
        [&] { notes_.leave_out(); });
  }
  [[nodiscard]] double clip_norm() const noexcept { return options_.clip ? options_.clip->value() : sensitivity_; }

  /// All chunks of a step, and its noise under `noise`.
  [[gnu::noinline]] void step_on_device(const dataset<input_value, target>& records, const noise_stream& noise) {
    part_->prepare(records, noise);
    std::span<const std::uint32_t> drawn = next_records(records);
    // The last chunk brings the noise along, and an empty batch is one as well.
    while (drawn.size() == options_.max_batch.count) {
      chunk_on_device(drawn, nullptr);
      drawn = next_records(records);
    }
    chunk_on_device(drawn, &noise);
  }
  void chunk_on_device(std::span<const std::uint32_t> drawn, const noise_stream* noise) {
    part_->run(drawn, noise);
    if (!notes_.wanted()) return;
    part_->fetch_facts(notes_.losses(drawn.size()), notes_.norms(drawn.size()));
    notes_.note(drawn.size(), clip_norm());
  }

  /// All chunks of a step, into the total.
  [[gnu::noinline]] void add_chunks(const dataset<input_value, target>& records, const layer_randomness& randomness) {
    for (auto drawn = next_records(records); !drawn.empty(); drawn = next_records(records)) {
      const batch<Network, Loss> chunk{records, drawn};
      const auto gradients_of_chunk = per_sample_gradients(*network_, loss_, chunk, tape_).with(randomness);
      with_clipped(gradients_of_chunk, [&](const auto& sum) {
        if (!notes_.wanted()) {
          evaluate_into(*executor_, accumulate(part_->total, sum));
          return;
        }
        const auto gradients = sum.leaf();
        unprotected::evaluate_into(*executor_, accumulate(part_->total, sum),
                                   assign(notes_.losses(chunk.size()), pergrad::losses(gradients)),
                                   assign(notes_.norms(chunk.size()), l2_norms(gradients)));
        notes_.note(chunk.size(), clip_norm());
      });
    }
  }

  dp_sgd_options options_;
  step_notes<scalar> notes_;
  const Executor* executor_;
  Network* network_;
  [[no_unique_address]] Loss loss_;
  tape<Network> tape_;
  std::optional<dataset<input_value, target>> checked_;  ///< all of its records did fit when they were looked at
  std::unique_ptr<part_type> part_;                      ///< refers to the tape and the options, so it goes first
};

}  // namespace detail
}  // namespace pergrad::inline v0_1
