// SPDX-License-Identifier: Apache-2.0
// pergrad/gradients/request.hpp - what one evaluation asks of an executor, free of the expressions' types
//
// Expressions differ from program to program, an executor's engine does not: it is compiled once a network and is told
// by this table which sums to form, what to do with each sample's facts, and where rows go.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <pergrad/gradients/plan.hpp>
#include <pergrad/privacy/clip.hpp>
#include <pergrad/privacy/layer_randomness.hpp>

namespace pergrad::inline v0_1::detail {

/// What is known of one sample once its backward pass is done.
template <class Scalar>
struct sample_facts {
  std::size_t sample = 0;  ///< index in the batch
  double loss = 0;
  std::span<const Scalar> output;      ///< the network's output, PyTorch's order
  norm_bound norm;                     ///< of the whole gradient
  std::span<const norm_bound> layers;  ///< of each layer with parameters
  double projection = 0;               ///< <g_b, direction>
};

/// One weighted sum over the batch: sum_b w_b g_b, or sum_b w_b g_b².
template <class Scalar>
struct sum_request {
  bool is_plain = true;  ///< every weight is 1: nothing else is asked of the samples
  bool squares = false;
  bool per_layer = false;  ///< one weight a layer with parameters instead of one
  bool is_proven = false;  ///< weights bound nothing: it is proven of what a host computes (expressions/unclipped.hpp)
  const void* weigher = nullptr;
  void (*weigh)(const void*, const sample_facts<Scalar>&, int unit, Scalar* weights) = nullptr;
  int unit = 0;           ///< weights count in units of 2^unit
  int grid_steps = 0;     ///< with `integers`: a unit has 2^grid_steps steps
  Scalar* out = nullptr;  ///< parameter_count values, PyTorch's order
  /// Not null: every sample's share is rounded to whole steps by itself and added to these, in the place of `out`.
  std::int64_t* integers = nullptr;
  double scale = 1;         ///< public factor on the finished sum
  bool accumulate = false;  ///< add to `out` instead of overwriting it

  /// What a weighted gradient is multiplied by before it is rounded.
  [[nodiscard]] double steps() const noexcept { return static_cast<double>(std::int64_t{1} << grid_steps); }
};

/// One consumer of per-sample facts.
template <class Scalar>
struct observer {
  void* context = nullptr;
  void (*observe)(void*, const sample_facts<Scalar>&) = nullptr;
};

/// Which algorithms for norms and sums a program compiles: those of the plan, or all that exist.
enum class algorithms : unsigned char { planned, any };

/// What an evaluation may ask for, known when a program is compiled: an executor compiles nothing else.
struct evaluation_needs {
  bool backward = true;          ///< more than losses and outputs
  bool rows = false;             ///< materialised gradients
  bool every_algorithm = false;  ///< another method or strategy than the plan's
};

/// How the papers arrange the work; all give the same sums to rounding.
enum class strategy_kind {
  book_keeping,  ///< one forward and one backward; factors kept until the norms are known (Bu et al. 2022)
  naive,         ///< batches of one, each gradient formed, clipped and added (Abadi et al. 2016)
  multi,         ///< samples side by side, each through the whole network with shared parameters (Rochette et al. 2019)
  crb,           ///< layer by layer, every sample's gradient by per-example convolution (Rochette et al. 2019)
  ghost          ///< norms in a first backward, the weighted sum in a second (Lee & Kifer 2020; Li et al. 2021)
};

inline constexpr std::size_t most_sums = 8;
inline constexpr std::size_t most_observers = 16;

/// The most samples whose shares, rounded to a grid, 32 bits of an accumulator can add up.
[[nodiscard]] constexpr std::size_t most_rounded_shares(int grid_steps) noexcept {
  return std::size_t{1} << std::max(0, 30 - grid_steps);
}

template <class Scalar>
struct run_request {
  std::array<sum_request<Scalar>, most_sums> sums{};
  std::size_t sum_count = 0;
  bool has_several_totals = false;  ///< one may be added up as integers, and others in floating point
  std::array<observer<Scalar>, most_observers> observers{};
  std::size_t observer_count = 0;
  bool backward = false;  ///< anything beyond losses and outputs
  bool norms = false;
  bool outputs = false;               ///< does anybody read `sample_facts::output`?
  const Scalar* direction = nullptr;  ///< PyTorch's order; for projections
  Scalar* rows = nullptr;             ///< materialised gradients of samples first .. first + count - 1
  const sum_request<Scalar>* row_weights = nullptr;
  norm_method method = norm_method::automatic;
  std::uint64_t method_layers =
      ~std::uint64_t{0};  ///< entries of the unfolded list that `method` is for; all by default
  strategy_kind strategy = strategy_kind::book_keeping;
  layer_randomness randomness;
  std::size_t first = 0;  ///< samples of the batch to evaluate
  std::size_t count = 0;

  /// Does anything depend on a sample's gradient as such, its norm at least?
  [[nodiscard, gnu::noinline]] bool needs_facts() const {
    bool wanted = norms || rows != nullptr || direction != nullptr;
    for (std::size_t k = 0; k < sum_count; ++k) wanted = wanted || !sums[k].is_plain || sums[k].squares;
    return wanted;
  }
  /// Has any sample a weight of its own? Then the way of an addend to a sum is short.
  [[nodiscard]] bool has_weights() const {
    bool weighted = false;
    for (std::size_t k = 0; k < sum_count; ++k) weighted = weighted || !sums[k].is_plain;
    return weighted;
  }
  [[nodiscard]] bool has_proven_sums() const {
    return std::any_of(sums.begin(), sums.begin() + sum_count, [](const auto& sum) { return sum.is_proven; });
  }
  /// Must the gradients themselves be formed, of all samples and blocks?
  [[nodiscard]] bool needs_every_gradient() const {
    bool every = keeps_gradients();
    for (std::size_t k = 0; k < sum_count; ++k) every = every || sums[k].squares;
    return every;
  }
  /// Those of blocks whose sums, squares included, are formed from x and delta?
  [[nodiscard]] bool keeps_gradients() const {
    return rows != nullptr || direction != nullptr ||
           (needs_facts() &&
            (strategy == strategy_kind::naive || strategy == strategy_kind::multi || strategy == strategy_kind::crb));
  }
};

}  // namespace pergrad::inline v0_1::detail
