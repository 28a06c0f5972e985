// SPDX-License-Identifier: Apache-2.0
// pergrad/train/dp_sgd_base.hpp - all of a trainer that does not know its source of noise
//
// A program that trains with a secret key or, for a test, with a seed has two types of trainers; what is here is
// compiled once for both.
#pragma once

#include <algorithm>
#include <array>
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
#include <pergrad/detail/error_text.hpp>
#include <pergrad/detail/executors.hpp>
#include <pergrad/gradients/evaluate.hpp>
#include <pergrad/optim/adam.hpp>
#include <pergrad/optim/sgd.hpp>
#include <pergrad/privacy/budget.hpp>
#include <pergrad/privacy/clip.hpp>
#include <pergrad/privacy/generator.hpp>
#include <pergrad/privacy/sampling.hpp>
#include <pergrad/privacy/types.hpp>
#include <pergrad/train/dp_sgd_options.hpp>

namespace pergrad::inline v0_1 {

namespace detail {

// What follows is not inlined where it knows less than its caller: else each network's and each generator's trainer has
// a copy.

/// Marks which of the next records are drawn, as many as `bits` has room for: the words that hold them.
[[gnu::noinline]] inline std::span<const std::uint64_t> mark_drawn(const host& crew, const poisson_sampling& sampling,
                                                                   const layer_randomness& randomness,
                                                                   std::uint64_t first, std::uint64_t record_count,
                                                                   std::span<std::uint64_t> bits) {
  constexpr std::uint64_t share = 32 * poisson_sampling::marked_together;
  const std::uint64_t tasks = std::min<std::uint64_t>(64 * bits.size(), record_count + share - 1) / share;
  crew.parallel(tasks, [&](std::size_t task, std::size_t) {
    sampling.mark(*randomness.key, randomness.step, first + task * share, bits.subspan(task * share / 64, share / 64));
  });
  return bits.first(tasks * share / 64);
}

/// What of a trainer knows its network's scalar only: the ledger, the records of a step and what is noted of them.
template <class Scalar>
class dp_sgd_state {
 public:
  /// Would one more step keep to the budget? Always true without one.
  [[nodiscard]] bool within_budget() const { return accountant_.within(event_); }
  /// Steps taken, each with its noise.
  [[nodiscard]] std::uint64_t steps() const noexcept { return accountant_.steps(); }
  /// Privacy spent so far at `delta`, for neighbours that differ by adding or removing one record.
  [[nodiscard]] double epsilon(pergrad::delta delta) const { return accountant_.epsilon(delta); }
  [[nodiscard]] const privacy_accountant& accountant() const noexcept { return accountant_; }
  [[nodiscard]] const dp_sgd_options& options() const noexcept { return options_; }

 protected:
  [[gnu::noinline]] dp_sgd_state(const dp_sgd_options& options, std::size_t clipping_groups)
      : options_{checked_options(options, clipping_groups)},
        accountant_{options.budget},
        event_{options.sampling->event(*options.noise)} {
    records_.reserve(options.max_batch.count);
    if (options.private_metrics) {
      losses_.resize(options.max_batch.count);
      norms_.resize(options.max_batch.count);
    }
  }
  /// The last part of construction: `sensitivity` is known from the options' clipping.
  [[gnu::noinline]] void take(double sensitivity) {
    sensitivity_ = sensitivity;
    clip_norm_ = options_.clip ? options_.clip->value() : sensitivity_;
    const double deviation = options_.noise->value() * sensitivity_;
    if (!(deviation <= static_cast<double>(std::numeric_limits<Scalar>::max()))) {
      throw_invalid_argument({"pergrad: dp_sgd: noise times clip does not fit the network's scalar, got ", deviation});
    }
    accountant_.prepare(event_);
    require_room_for_a_step(accountant_, event_);
  }

  /// Enters a step in the ledger, or refuses it.
  void spend() {
    accountant_.spend(event_);
    metrics_ = {};
    records_.clear();
  }
  void end() {
    if (options_.private_metrics) {
      metrics_.mean_loss = metrics_.batch_size == 0 ? std::numeric_limits<double>::quiet_NaN()
                                                    : metrics_.mean_loss / static_cast<double>(metrics_.batch_size);
    }
  }
  /// Puts every record of this step into `records_`, ascending, once all threads have looked for them; calls full(self)
  /// when there is no room for one more, and leaves out those for which fits(self, record) is false. Without `fits` all
  /// do.
  [[gnu::noinline]] void collect(const host& crew, std::uint64_t record_count, void* self, void (*full)(void* self),
                                 bool (*fits)(void* self, std::uint64_t record)) {
    for (std::uint64_t first = 0; first < record_count; first += 64 * drawn_.size()) {
      const auto marked = mark_drawn(crew, *options_.sampling, randomness_, first, record_count - first, drawn_);
      poisson_sampling::visit_marked(marked, first, record_count, [&](std::uint64_t record) {
        if (fits != nullptr && !fits(self, record)) {
          leave_out();
          return;
        }
        if (records_.size() == options_.max_batch.count) full(self);
        records_.push_back(static_cast<std::uint32_t>(record));
      });
    }
  }
  void leave_out() noexcept {
    if (!options_.private_metrics) return;
    ++metrics_.batch_size;
    ++metrics_.non_finite;
    metrics_.mean_loss = std::numeric_limits<double>::quiet_NaN();
  }
  [[gnu::noinline]] void note(std::span<const double> chunk_losses, std::span<const double> chunk_norms) {
    for (std::size_t i = 0; i < chunk_losses.size(); ++i) {
      const double finite_before = static_cast<double>(metrics_.batch_size - metrics_.non_finite);
      ++metrics_.batch_size;
      metrics_.mean_loss += chunk_losses[i];
      if (!is_finite_norm<Scalar>(chunk_norms[i])) {
        ++metrics_.non_finite;
        continue;
      }
      metrics_.mean_norm += (chunk_norms[i] - metrics_.mean_norm) / (finite_before + 1);
      if (chunk_norms[i] > clip_norm_) ++metrics_.clipped;
    }
  }

  dp_sgd_options options_;
  privacy_accountant accountant_;
  sampled_gaussian_event event_;
  double sensitivity_ = 0;                   ///< of every sum
  double clip_norm_ = 0;                     ///< above it, a norm counts as clipped
  layer_randomness randomness_;              ///< of this step: what samples records and drives layers that are random
  std::array<std::uint64_t, 1024> drawn_{};  ///< one bit a record, of 65,536 at a time
  std::vector<std::uint32_t> records_;       ///< of the next physical batch
  std::vector<double> losses_;
  std::vector<double> norms_;
  step_metrics metrics_;
};

template <class Network, class Loss, executor Executor>
class dp_sgd_base : public dp_sgd_state<typename Network::scalar> {
  using state = dp_sgd_state<typename Network::scalar>;

 public:
  using scalar = typename Network::scalar;
  using input_value = typename Network::input_value;
  using target = target_of<Loss, scalar>;
  /// Whether a device does the steps.
  static constexpr bool on_a_device = device_executor<Executor>;

  [[gnu::noinline]] dp_sgd_base(const Executor& executor, Network& network, Loss loss, const dp_sgd_options& options)
      : state{options, clipping_groups<Network>},
        executor_{&executor},
        network_{&network},
        loss_{loss},
        tape_{executor, options.max_batch},
        update_{executor} {
    this->take(with_empty_batch([](const auto& sum) { return sum.sensitivity(); }));
  }

  /// The noised gradient of the last step, before division: released. Zeros before the first step and after one that
  /// failed halfway.
  [[nodiscard]] const private_gradient<Network>& last_update() const {
    if constexpr (on_a_device) part_->fetch_update(gradient_access::values(update_));
    return update_;
  }
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

 protected:
  /// During a step the memory of what was released last holds the sum that is released next; there is no second array.
  class lent_memory {
   public:
    lent_memory(bounded_total<Network>& total, private_gradient<Network>& update) noexcept
        : total_{total}, update_{update} {
      gradient_access::exchange_memory(total_, update_);
    }
    lent_memory(const lent_memory&) = delete;
    lent_memory& operator=(const lent_memory&) = delete;
    ~lent_memory() {
      if (!released_) std::ranges::fill(gradient_access::values(total_), scalar{0});
      gradient_access::exchange_memory(total_, update_);
    }
    void holds_what_was_released() noexcept { released_ = true; }

   private:
    bounded_total<Network>& total_;
    private_gradient<Network>& update_;
    bool released_ = false;
  };

  [[nodiscard]] static bool fits(const dataset<input_value, target>& records, std::size_t record) noexcept {
    return fits_the_trainer<Network, Loss>(records, record);
  }
  using state::losses_, state::metrics_, state::norms_, state::options_, state::randomness_, state::records_;
  using state::sensitivity_;
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
  void make_part(const chacha_key& key) {
    if constexpr (on_a_device) {
      if (options_.optimizer == optimizer_kind::adam) {
        require_adam_options(options_.adam);
      } else {
        require_momentum(options_.momentum);
      }
      part_ = std::make_unique<part_type>(*executor_, *network_, tape_, options_, key, sensitivity_);
      with_empty_batch([&](const auto& sum) { part_->clip_with(sum.clipped().rule()); });
    } else {
      part_ = std::make_unique<part_type>(
          part_type{gradient_access::total_without_memory<Network>(), make_optimizer(options_)});
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

  /// A step whose generator is known by its function only: the step does not have to be compiled for each of them.
  [[gnu::noinline]] void step_on_device(const dataset<input_value, target>& records, const chacha_key& key,
                                        void* generator, std::uint64_t (*next_step)(void* generator)) {
    begin(records);
    randomness_ = {&key, next_step(generator)};
    part_->prepare(records);
    add_chunks(records);
    run_on_device(true, next_step(generator));
    this->end();
  }
  /// Enters the step in the ledger, and looks at the records if it has not seen them.
  void begin(const dataset<input_value, target>& records) {
    if (!checked_ || !checked_->same_view(records)) {
      checked_.reset();
      require_fit_for_training<Network, Loss>(records);
      checked_ = records;
    }
    this->spend();
  }
  void run_on_device(bool last, std::uint64_t noise_step) {
    part_->run(records_, last, noise_step);
    if (options_.private_metrics) {
      const std::span<double> chunk_losses{losses_.data(), records_.size()};
      const std::span<double> chunk_norms{norms_.data(), records_.size()};
      part_->fetch_facts(chunk_losses, chunk_norms);
      this->note(chunk_losses, chunk_norms);
    }
    records_.clear();
  }

  /// All records of this step, in chunks but for the last ones, which stay in `records_`.
  void add_chunks(const dataset<input_value, target>& records) {
    struct step_type {
      dp_sgd_base* trainer;
      const dataset<input_value, target>* records;
    } step{this, &records};
    bool (*fits_here)(void*, std::uint64_t) = nullptr;
    if constexpr (!on_a_device) {
      fits_here = [](void* self, std::uint64_t record) {
        return fits(*static_cast<step_type*>(self)->records, record);
      };
    }
    this->collect(
        detail::crew_of(*executor_), records.size(), &step,
        [](void* self) {
          const auto* mine = static_cast<const step_type*>(self);
          mine->trainer->add_chunk(*mine->records);
        },
        fits_here);
  }

  void add_chunk(const dataset<input_value, target>& records) {
    if (records_.empty()) return;
    if constexpr (on_a_device) {
      run_on_device(false, 0);
    } else {
      add_chunk_on_host(records);
    }
  }
  void add_chunk_on_host(const dataset<input_value, target>& records) {
    const batch<Network, Loss> chunk{records, records_};
    const auto gradients_of_chunk = per_sample_gradients(*network_, loss_, chunk, tape_).with(randomness_);
    with_clipped(gradients_of_chunk, [&](const auto& sum) {
      if (!options_.private_metrics) {
        evaluate_into(*executor_, accumulate(part_->total, sum));
        return;
      }
      const auto gradients = sum.leaf();
      const std::span<double> chunk_losses{losses_.data(), chunk.size()};
      const std::span<double> chunk_norms{norms_.data(), chunk.size()};
      unprotected::evaluate_into(*executor_, accumulate(part_->total, sum), assign(chunk_losses, losses(gradients)),
                                 assign(chunk_norms, l2_norms(gradients)));
      this->note(chunk_losses, chunk_norms);
    });
    records_.clear();
  }

  const Executor* executor_;
  Network* network_;
  [[no_unique_address]] Loss loss_;
  tape<Network> tape_;
  mutable private_gradient<Network> update_;             ///< of a device: fetched when somebody asks
  std::optional<dataset<input_value, target>> checked_;  ///< all of its records did fit when they were looked at
  std::unique_ptr<part_type> part_;                      ///< refers to the tape and the options, so it goes first
};

}  // namespace detail
}  // namespace pergrad::inline v0_1
