// SPDX-License-Identifier: Apache-2.0
// pergrad/optim/scale_then_privatise.hpp - Adam whose gradients are scaled before they are clipped and noised
//
//   s = 1 / (sqrt(v / (1 - b2^t)) + stability),   v and t of Adam behind the steps before
//   release   sum_i clip(s g_i, C) + noise of sigma C        s g: element by element
//   step      Adam with (release / s) / divisor
//
// Scale-then-privatise (Ganesh, McMahan & Thakurta 2025, arXiv:2507.01129, algorithm 8; preconditioning before noise is
// that of Li et al. 2023, DP², arXiv:2212.00309, with its delay of one step). Noise has the shape of the gradients
// then: sigma C / s_j in element j. s is made of what was released before, and dividing by it is post-processing, so a
// step costs what it costs without. C bounds scaled gradients, whose elements are of the order of 1, so it is of the
// order of the root of the number of parameters. `stability` is not Adam's: it says below which size elements are not
// told apart.
//
//   pg::scaled_adam_options<> options;  // of a dp_sgd
//
//   pg::scaled_adam<net_type> optimizer{rate, clip, 1e-3, max_batch};  // or by hand
//   auto step = loop.begin(records);
//   while (step.next()) optimizer.accumulate(exec, step);
//   optimizer.step(exec, net, std::move(step));
//
// Every gradient is written down as a row; its own numbers are squared, and its share is rounded and added up as
// integers (expressions/unit_gradients.hpp), so that slow and large it is, two rows a sample.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include <pergrad/detail/aligned_buffer.hpp>
#include <pergrad/detail/error_text.hpp>
#include <pergrad/detail/executors.hpp>
#include <pergrad/detail/float_environment.hpp>
#include <pergrad/expressions/clip.hpp>
#include <pergrad/expressions/evaluate.hpp>
#include <pergrad/expressions/totals.hpp>
#include <pergrad/expressions/unit_gradients.hpp>
#include <pergrad/optim/adam.hpp>
#include <pergrad/optim/optimizer.hpp>
#include <pergrad/privacy/sensitivity.hpp>
#include <pergrad/privacy/types.hpp>
#include <pergrad/tape.hpp>

namespace pergrad::inline v0_1 {

/// Adam by scale-then-privatise, for a `private_loop` on the host whose option `clip` is this one's.
template <class Network>
class scaled_adam : public optimizer_steps<scaled_adam<Network>, Network> {
 public:
  using scalar = typename Network::scalar;
  /// For physical batches of at most `rows` samples. Throws std::invalid_argument for Adam's options as Adam does, for
  /// a noise floor, and unless the network's scalar takes the stability, and 1 / stability, for finite and above 0.
  scaled_adam(learning_rate rate, l2_clip_norm clip, double stability, max_batch rows, adam_options options = {})
      : adam_{rate, options},
        beta2_{options.beta2},
        clip_{clip.value()},
        stability_{stability},
        most_{rows.count},
        gradients_{rows.count},
        numbers_(rows.count),
        scales_{Network::parameter_count, "scales of gradients"} {
    detail::require_scale_stability<scalar>(stability);
    std::iota(numbers_.begin(), numbers_.end(), 0U);
  }

  /// Of all steps from now on: for schedules. A rate must not be computed from records. Throws as Adam's does.
  void set_learning_rate(learning_rate rate) { adam_.set_learning_rate(rate); }

  /// Adds the physical batch of a private step to its sum, once. Throws std::logic_error as `accumulate(step, ...)`
  /// does, for another clip norm than the loop's and where this was moved from, std::invalid_argument for a loop of
  /// larger physical batches.
  template <executor Executor, class Step>
  void accumulate(const Executor& executor, Step& step) {
    using detail::total_access;
    const detail::float_environment proven;
    optimizer_access::require_memory(*this);
    const auto g = step.gradients();
    if (g.capacity() > most_) {
      detail::throw_invalid_argument({"pergrad: scaled_adam: made for physical batches of ", most_,
                                      " samples, and the loop has those of ", g.capacity()});
    }
    const auto& samples = g.samples();
    step.admit(&samples);
    detail::total_state& state = total_access::state(step.total());
    const release_grid grid = release_grid::of(clip_, Network::parameter_count);
    state.expect(grid, 1);
    const std::span<scalar> rows = gradients_.rows(samples.size());
    unprotected::evaluate_into(executor, assign(rows, materialise(g)));
    state.admit(samples);
    const bool begun = state.has_integers();
    static_cast<void>(state.next_as_integers(std::numeric_limits<std::size_t>::max() / 2, {}));  // as far beyond it
    gradients_.begin(samples.size());
    gradients_.add_rows(executor.pool(), std::span{numbers_}.first(samples.size()));
    gradients_.add_clipped(executor.pool(), detail::flat_clip{clip_}, false, grid,
                           total_access::integers(step.total(), !begun), scales());
    step.is_in_the_sum();
  }

 private:
  friend struct optimizer_access;
  template <class OfNetwork, class Loss, executor Executor, detail::step_gradients Gradients>
  friend class detail::step_by_verbs;
  friend struct detail::checkpoint_access;
  static constexpr std::array<const char*, 2> state_names{"exp_avg", "exp_avg_sq"};  // PyTorch's
  [[nodiscard]] const char* kind() const noexcept { return "adam, scaled then private"; }
  [[nodiscard]] bool has_memory() const noexcept { return scales_.size() == Network::parameter_count; }
  [[nodiscard]] auto state() noexcept { return optimizer_access::state(adam_); }
  [[nodiscard]] std::uint64_t* count() noexcept {
    is_scaled_ = false;  // whoever reads a file changes what the scales are made of
    return optimizer_access::count(adam_);
  }
  /// The scales of the next step.
  [[nodiscard]] const scalar* scales() {
    if (is_scaled_) return scales_.data();
    const auto moments = optimizer_access::state(adam_)[1];
    const auto steps = static_cast<double>(*optimizer_access::count(adam_));
    const double weights = steps > 0 ? 1 - std::pow(beta2_, steps) : 1;
    for (std::size_t k = 0; k < moments.size(); ++k) {
      const double size = std::sqrt(static_cast<double>(moments[k]) / weights);
      scales_.data()[k] = static_cast<scalar>(1 / (size + stability_));
    }
    is_scaled_ = true;
    return scales_.data();
  }
  [[nodiscard]] auto begin(Network& network, double scale) {
    const scalar* const by = scales();  // of a step without a batch, too
    is_scaled_ = false;
    return [update = optimizer_access::begin(adam_, network, scale), by](std::size_t first, const scalar* released,
                                                                         std::size_t size) {
      scalar gradient[256];
      for (std::size_t done = 0; done < size; done += std::size(gradient)) {
        const std::size_t count = std::min(std::size(gradient), size - done);
        for (std::size_t k = 0; k < count; ++k) gradient[k] = released[done + k] / by[first + done + k];
        update(first + done, gradient, count);
      }
    };
  }

  adam<Network> adam_;
  double beta2_;
  double clip_;
  double stability_;
  std::size_t most_;
  detail::unit_gradients<Network> gradients_;
  std::vector<std::uint32_t> numbers_;  ///< 0, 1, ...
  detail::aligned_buffer<scalar> scales_;
  bool is_scaled_ = false;
};

}  // namespace pergrad::inline v0_1
