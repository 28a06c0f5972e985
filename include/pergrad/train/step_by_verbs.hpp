// SPDX-License-Identifier: Apache-2.0
// pergrad/train/step_by_verbs.hpp - a trainer's step made of the verbs that a program has too: for executors that need
// nothing of their own
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include <pergrad/batch.hpp>
#include <pergrad/detail/executors.hpp>
#include <pergrad/expressions/evaluate.hpp>
#include <pergrad/expressions/unit_gradients.hpp>
#include <pergrad/optim/adam.hpp>
#include <pergrad/optim/optimizer.hpp>
#include <pergrad/optim/scale_then_privatise.hpp>
#include <pergrad/optim/sgd.hpp>
#include <pergrad/privacy/layer_randomness.hpp>
#include <pergrad/privacy/release.hpp>
#include <pergrad/privacy/units.hpp>
#include <pergrad/tape.hpp>
#include <pergrad/train/dp_sgd_options.hpp>
#include <pergrad/train/individual_accounting.hpp>
#include <pergrad/train/step_notes.hpp>

namespace pergrad::inline v0_1::detail {

template <class Network, class Loss, executor Executor>
class step_on_ranks;

/// The records of one step, or its units of privacy, and what goes with them.
template <class Network, class Loss>
struct step_records {
  using scalar = typename Network::scalar;
  const dataset<typename Network::input_value, target_of<Loss, scalar>>* records = nullptr;
  void* source = nullptr;
  std::span<const std::uint32_t> (*next_batch)(void* source) = nullptr;  ///< the next physical batch; empty behind them
  const privacy_units* units = nullptr;                                  ///< null: records
  layer_randomness randomness;
  step_notes<scalar>* notes = nullptr;
  individual_charges* charges = nullptr;  ///< of individual accounting
  std::size_t first_record = 0;           ///< number of the first record in the data set

  [[nodiscard]] std::span<const std::uint32_t> next() const { return next_batch(source); }
};

/// f(the sum of these gradients, clipped as the options say). `gate`: of flat clipping.
template <class Network, class Loss, class Function>
auto with_clipped(const training_choices& options, const per_sample_gradient_leaf<Network, Loss>& gradients,
                  Function&& f, const sample_gate* gate = nullptr) {
  switch (options.clipping) {
    case clipping_kind::per_layer:
      return f(sum(clip_per_layer(gradients, *options.clip)));
    case clipping_kind::automatic:
    case clipping_kind::per_sample_adaptive:
      return f(sum(options.clipping == clipping_kind::automatic ? normalise(gradients, *options.clip)
                                                                : normalise_adaptively(gradients, *options.clip)));
    case clipping_kind::per_group:
      if constexpr ((clipping_groups<Network>) > 1) {
        return f(sum(clip_per_group(gradients, options.group_bounds)));
      } else {
        return f(sum(clip(gradients, options.group_bounds.front())));  // one group is the whole
      }
    default:
      // One type of sum for both.
      return f(sum(options.clipping == clipping_kind::certified ? gated_clip::proven(gradients, *options.clip)
                                                                : gated_clip::of(gradients, *options.clip, gate)));
  }
}

/// What a step of units keeps: their gradients, and the rows of the next evaluation.
template <class Network>
struct units_of_step {
  explicit units_of_step(std::size_t most) : gradients{most}, losses(most) {
    rows.reserve(most);
    unit_of.reserve(most);
    loss_of_unit.resize(most);
  }
  unit_gradients<Network> gradients;
  std::vector<std::uint32_t> rows;
  std::vector<std::uint32_t> unit_of;  ///< of each row, by its place in the physical batch
  std::vector<double> losses;
  std::vector<double> loss_of_unit;
};

/// Optimizers that options choose from.
template <class Network, step_gradients Gradients>
struct optimizers_of {
  using type = std::variant<sgd<Network>, adam<Network>>;
};
template <class Network>
struct optimizers_of<Network, step_gradients::scaled> {
  using type = std::variant<scaled_adam<Network>>;
};

/// What a `dp_sgd` keeps on such an executor. Refers to the executor, the network and the tape.
template <class Network, class Loss, executor Executor, step_gradients Gradients>
class step_by_verbs {
  static constexpr bool forms = Gradients != step_gradients::unformed;
  static constexpr bool scales = Gradients == step_gradients::scaled;

 public:
  using scalar = typename Network::scalar;
  /// Records are read where they lie.
  static constexpr bool trains_on_a_copy = false;

  template <class Options>
  step_by_verbs(const Executor& executor, Network& network, Loss loss, tape<Network>& tape, const Options& options,
                double sensitivity)
      : executor_{&executor},
        network_{&network},
        loss_{loss},
        tape_{&tape},
        options_{&options},
        sensitivity_{sensitivity},
        total_{total_access::total_of<Network>(executor, summation_of<scalar>(options))},
        optimizer_{make_optimizer(options, sensitivity)} {
    if constexpr (forms) {
      units_ = std::make_unique<units_of_step<Network>>(tape.capacity());
      static_cast<void>(total_access::integers(total_, false));  // no step takes memory
    }
  }

  void set_learning_rate(learning_rate rate) {
    std::visit([&](auto& optimizer) { optimizer.set_learning_rate(rate); }, optimizer_);
  }
  void set_sensitivity(double sensitivity) noexcept { sensitivity_ = sensitivity; }
  void forget_records() noexcept {}

  /// All of a step: clipped sums into a total, noise, update. What is released goes to `update`; zeros if
  /// anything fails.
  template <class Generator, class NextNoise>
  void step(const step_records<Network, Loss>& records, const noise_of<Generator>& noise, const NextNoise& /*noise*/,
            std::span<scalar> update) {
    try {
      total_.clear();
      total_access::state(total_).expect(release_grid::of(sensitivity_, Network::parameter_count), 1);
      if constexpr (forms) {
        add_units(records);
      } else {
        add_chunks(records);
      }
      if constexpr (!scales) tell_noise(noise);
      std::visit(
          [&](auto& optimizer) {
            total_release::of_total<Network>(executor_->pool(), total_, noise, 1, update.data(),
                                             optimizer_access::beginning(optimizer, *network_, *options_->divisor));
          },
          optimizer_);
    } catch (...) {  // nobody may take an earlier release for this one
      std::fill(update.begin(), update.end(), scalar{0});
      throw;
    }
  }
  /// f(the optimizer), of a kind that options choose: for files.
  template <class Function>
  auto with_optimizer(Function&& f) {
    return std::visit(std::forward<Function>(f), optimizer_);
  }
  /// Nothing is to be fetched: it is where the step was told to put it.
  void fetch_update(std::span<scalar> /*to*/) const noexcept {}

 private:
  template <class OfNetwork, class OfLoss, executor OnRanks>
  friend class step_on_ranks;
  /// To an optimizer that takes it off again: that of the gate, a multiple of D and not of C.
  template <class Generator>
  void tell_noise(const noise_of<Generator>& noise) {
    if (!(options_->adam.noise_floor > 0)) return;
    const total_state& state = total_access::state(total_);
    const release_grid& grid = state.grid();
    const double in_steps = fresh_deviation(noise.multiplier.value(), state.sensitivity(), grid.elements, noise.filter);
    optimizer_access::set_deviation(std::get<adam<Network>>(optimizer_), std::ldexp(in_steps, grid.unit - grid.steps));
  }
  using any_optimizer = typename optimizers_of<Network, Gradients>::type;
  template <class Options>
  [[nodiscard]] static any_optimizer make_optimizer(const Options& options, double sensitivity) {
    if constexpr (scales) {
      // It adds up nothing itself here, so it needs no rows.
      return scaled_adam<Network>{*options.learning_rate, l2_clip_norm{sensitivity}, options.scale_stability,
                                  max_batch{0}, options.adam};
    } else {
      if (options.adam.noise_floor > 0) {
        return adam<Network>{*options.learning_rate, options.adam, *options.noise, l2_clip_norm{sensitivity}};
      }
      if (options.optimizer == optimizer_kind::adam) return adam<Network>{*options.learning_rate, options.adam};
      return sgd<Network>{*options.learning_rate, options.momentum, options.weight_decay};
    }
  }

  [[gnu::noinline]] void add_chunks(const step_records<Network, Loss>& records) {
    individual_charges* const charges = records.charges;
    for (auto drawn = records.next(); !drawn.empty(); drawn = records.next()) {
      const auto chunk = batch<Network, Loss>{*records.records, drawn}.numbered_from(records.first_record);
      const auto gradients_of_chunk = per_sample_gradients(*network_, loss_, chunk, *tape_).with(records.randomness);
      const sample_gate* const gate = charges != nullptr ? charges->begin(drawn) : nullptr;
      if (options_->lanes) {
        total_access::enter_lane(executor_->pool(), total_, options_->lanes->of(records.first_record + drawn.front()));
      }
      with_clipped(
          *options_, gradients_of_chunk,
          [&](const auto& sum) {
            step_notes<scalar>& notes = *records.notes;
            if (!notes.wanted()) {
              evaluate_into(*executor_, accumulate(total_, sum));
              return;
            }
            const auto gradients = sum.leaf();
            unprotected::evaluate_into(*executor_, accumulate(total_, sum),
                                       assign(notes.losses(chunk.size()), pergrad::losses(gradients)),
                                       assign(notes.norms(chunk.size()), l2_norms(gradients)));
            notes.note(chunk.size());
          },
          gate);
      if (charges != nullptr) charges->charge(drawn);
    }
    if (charges != nullptr) charges->end_of_step();
  }

  /// Rows go through the network a tape full at a time, whichever unit they are of. A record is a unit of one row.
  template <class = void>
  void add_units(const step_records<Network, Loss>& records) {
    const scalar* scaled_by = nullptr;
    if constexpr (scales) scaled_by = std::get<scaled_adam<Network>>(optimizer_).scales();
    units_->rows.clear();  // of a step that failed: they are no rows of this one's units
    units_->unit_of.clear();
    total_state& state = total_access::state(total_);
    const bool begun = state.has_integers();
    static_cast<void>(state.next_as_integers(tape_->capacity(), tape_->way_of_additions()));
    std::int64_t* const integers = total_access::integers(total_, !begun);
    for (auto drawn = records.next(); !drawn.empty(); drawn = records.next()) {
      units_->gradients.begin(drawn.size());
      std::fill(units_->loss_of_unit.begin(), units_->loss_of_unit.end(), 0.0);
      const privacy_units* const units = records.units;
      if (units != nullptr && units->are_owners()) {
        for (std::uint32_t i = 0; i < drawn.size(); ++i) {
          for (const std::uint32_t record : units->records_of(drawn[i])) {
            if (fits_the_trainer<Network, Loss>(*records.records, record)) add_row(records, record, i, 0);
          }
        }
        evaluate_rows(records, 0);
      } else {
        for (std::uint32_t view = 0; view < (units != nullptr ? units->views() : 1); ++view) {
          for (std::uint32_t i = 0; i < drawn.size(); ++i) add_row(records, drawn[i], i, view);
          evaluate_rows(records, view);
        }
      }
      const batch<Network, Loss> nobody{*records.records, drawn.first(0)};
      with_clipped(*options_, per_sample_gradients(*network_, loss_, nobody, *tape_), [&](const auto& sum) {
        units_->gradients.add_clipped(executor_->pool(), sum.clipped().rule(),
                                      units != nullptr && units->are_averaged(), state.grid(), integers, scaled_by);
      });
      note_units(records, drawn.size());
    }
  }
  template <class = void>
  void add_row(const step_records<Network, Loss>& records, std::uint32_t record, std::uint32_t unit,
               std::uint32_t view) {
    units_->rows.push_back(record);
    units_->unit_of.push_back(unit);
    if (units_->rows.size() == units_->rows.capacity()) evaluate_rows(records, view);
  }
  template <class = void>
  void evaluate_rows(const step_records<Network, Loss>& records, std::uint32_t view) {
    auto& [gradients, rows, unit_of, losses, loss_of_unit] = *units_;
    if (rows.empty()) return;
    const batch<Network, Loss> chunk{*records.records, rows};
    const auto of_rows = per_sample_gradients(*network_, loss_, chunk, *tape_).with(records.randomness.of_view(view));
    if (records.notes->wanted()) {
      unprotected::evaluate_into(*executor_, assign(gradients.rows(rows.size()), materialise(of_rows)),
                                 assign(std::span{losses}.first(rows.size()), pergrad::losses(of_rows)));
      for (std::size_t i = 0; i < rows.size(); ++i) loss_of_unit[unit_of[i]] += losses[i];
    } else {
      unprotected::evaluate_into(*executor_, assign(gradients.rows(rows.size()), materialise(of_rows)));
    }
    gradients.add_rows(executor_->pool(), unit_of);
    rows.clear();
    unit_of.clear();
  }
  /// Of a unit, the mean loss of its rows, and the norm of what is clipped.
  template <class = void>
  void note_units(const step_records<Network, Loss>& records, std::size_t count) {
    step_notes<scalar>& notes = *records.notes;
    if (!notes.wanted()) return;
    const auto losses = notes.losses(count);
    const auto norms = notes.norms(count);
    for (std::size_t i = 0; i < count; ++i) {
      losses[i] = units_->loss_of_unit[i] / std::max(1U, units_->gradients.rows_of(i));
      norms[i] = units_->gradients.norm_of(i);
    }
    notes.note(count);
  }

  const Executor* executor_;
  Network* network_;
  [[no_unique_address]] Loss loss_;
  tape<Network>* tape_;
  const training_choices* options_;
  double sensitivity_;
  bounded_total<Network> total_;  ///< of a step
  any_optimizer optimizer_;
  std::unique_ptr<units_of_step<Network>> units_;  ///< null where records are drawn
};

}  // namespace pergrad::inline v0_1::detail
