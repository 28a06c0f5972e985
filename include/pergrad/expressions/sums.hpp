// SPDX-License-Identifier: Apache-2.0
// pergrad/expressions/sums.hpp - what can be made of per-sample gradients over a batch: sums, moments, rows, products
//
// Every class here is a value that says what it wants from one evaluation: `attach` fills in a request, `finish`
// completes the result. Only sum(clip(...)) and its kin know a sensitivity.
#pragma once

#include <cmath>
#include <cstddef>
#include <span>
#include <type_traits>
#include <vector>

#include <pergrad/detail/error_text.hpp>
#include <pergrad/detail/float_environment.hpp>
#include <pergrad/detail/thread_pool.hpp>
#include <pergrad/expressions/clip.hpp>
#include <pergrad/expressions/leaf.hpp>
#include <pergrad/expressions/scalars.hpp>
#include <pergrad/privacy/release.hpp>
#include <pergrad/privacy/types.hpp>
#include <pergrad/simd/elements.hpp>

namespace pergrad::inline v0_1 {

namespace detail {

template <class Scalar>
detail::sum_request<Scalar>& new_sum(detail::run_request<Scalar>& request) {
  if (request.sum_count == detail::most_sums) {
    throw_invalid_argument({"pergrad: one evaluation forms at most ", detail::most_sums, " sums"});
  }
  request.backward = true;
  return request.sums[request.sum_count++];
}
template <class Scalar>
detail::observer<Scalar>& new_observer(detail::run_request<Scalar>& request) {
  if (request.observer_count == detail::most_observers) {
    throw_invalid_argument({"pergrad: one evaluation serves at most ", detail::most_observers, " per-sample results"});
  }
  return request.observers[request.observer_count++];
}

}  // namespace detail

/// sum_b g_b or sum_b g_b², or with a public scale 1 / B their mean: the ordinary gradient, the second moment. It has
/// no sensitivity.
template <class Leaf>
class plain_sum : public detail::over_gradients<Leaf> {
 public:
  using scalar = typename Leaf::scalar;
  plain_sum(const Leaf& leaf, double scale, bool squares = false)
      : detail::over_gradients<Leaf>{leaf}, scale_{scale}, squares_{squares} {}
  void attach(detail::run_request<scalar>& request, std::span<scalar> out, bool accumulate) const {
    auto& sum = detail::new_sum(request);
    sum.squares = squares_;
    sum.scale = scale_;
    sum.out = out.data();
    sum.accumulate = accumulate;
  }

 private:
  double scale_;
  bool squares_;
};

/// sum_b w_b g_b with weights from a per-sample scalar expression or from a list. Any weights, so no sensitivity.
template <class Leaf, class Weights>
class weighted_gradient_sum : public detail::over_gradients<Leaf> {
 public:
  using scalar = typename Leaf::scalar;
  weighted_gradient_sum(const Leaf& leaf, Weights weights) : detail::over_gradients<Leaf>{leaf}, weights_{weights} {}
  void attach(detail::run_request<scalar>& request, std::span<scalar> out, bool accumulate) const {
    auto& sum = detail::new_sum(request);
    sum.is_plain = false;
    sum.weigher = &weights_;
    sum.weigh = [](const void* weigher, const detail::sample_facts<scalar>& facts, int /*unit*/, scalar* weight) {
      const auto& weights = *static_cast<const Weights*>(weigher);
      if constexpr (per_sample_scalar<Weights>) {
        *weight = static_cast<scalar>(weights.at(facts));
      } else {
        *weight = weights[facts.sample];
      }
    };
    sum.out = out.data();
    sum.accumulate = accumulate;
    request.norms = true;
    detail::ask_for_projections(request, weights_);
  }

 private:
  Weights weights_;
};

/// sum_b clip(g_b): the only sum that noise can be added to. Knows how far one record can move it, in the relation that
/// its type names.
template <class Leaf, class Rule, neighbouring Relation>
class bounded_sum final : public detail::expression_tag {
 public:
  using scalar = typename Leaf::scalar;
  using value_type = scalar;
  explicit bounded_sum(const clipped_gradients<Leaf, Rule>& clipped) : clipped_{clipped} {}
  [[nodiscard]] const Leaf& leaf() const noexcept { return clipped_.leaf(); }
  [[nodiscard]] const clipped_gradients<Leaf, Rule>& clipped() const noexcept { return clipped_; }
  /// Records by which neighbours differ: one that is added or removed, or two that are exchanged.
  static constexpr int exchanged = Relation == neighbouring::replace_one ? 2 : 1;
  /// The most that neighbouring batches can differ by, in L2: C if one record is added or removed, 2 C if one is
  /// replaced. What adding up and rounding add to that, a release counts itself (privacy/release.hpp).
  [[nodiscard]] double sensitivity() const noexcept { return exchanged * clipped_.sensitivity(); }
  [[nodiscard]] static constexpr std::size_t value_count(const Leaf&) { return Leaf::network_type::parameter_count; }
  /// The sum's own values, for unprotected evaluation.
  void attach(detail::run_request<scalar>& request, std::span<scalar> out, bool accumulate) const {
    auto& sum = attached(request);
    sum.out = out.data();
    sum.accumulate = accumulate;
  }
  /// A chunk of a total on `grid`: in floating point to `out`, or to `integers` if that is not null.
  void attach(detail::run_request<scalar>& request, const release_grid& grid, scalar* out, std::int64_t* integers,
              bool accumulate) const {
    auto& sum = attached(request);
    sum.unit = grid.unit;
    sum.grid_steps = grid.steps;
    sum.out = out;
    sum.integers = integers;
    sum.accumulate = accumulate;
  }

 private:
  auto& attached(detail::run_request<scalar>& request) const {
    auto& sum = detail::new_sum(request);
    clipped_.require_proof();
    clipped_.weigh_into(sum);
    request.norms = request.norms || clipped_.needs_norms();
    return sum;
  }
  clipped_gradients<Leaf, Rule> clipped_;
};

/// (1/B) sum_b g_b² - mean², element by element: the population variance, never below 0.
template <class Leaf>
class variance_of : public detail::over_gradients<Leaf> {
 public:
  using scalar = typename Leaf::scalar;
  explicit variance_of(const Leaf& leaf) : detail::over_gradients<Leaf>{leaf} {}
  void attach(detail::run_request<scalar>& request, std::span<scalar> out, bool accumulate) {
    if (accumulate) detail::throw_invalid_argument({"pergrad: a variance cannot be accumulated over chunks"});
    mean_.resize(out.size());
    const double scale = 1 / static_cast<double>(this->leaf().size());
    plain_sum{this->leaf(), scale}.attach(request, mean_, false);
    plain_sum{this->leaf(), scale, true}.attach(request, out, false);
  }
  void finish(const detail::thread_pool&, std::span<scalar> out) const {
    for (std::size_t i = 0; i < out.size(); ++i) {
      const scalar rest = out[i] - mean_[i] * mean_[i];
      out[i] = rest < 0 ? scalar{0} : rest;  // and what is no number stays none
    }
  }

 private:
  std::vector<scalar> mean_;
};

/// All gradients, one row a sample, `[B, parameter_count]` in PyTorch's order; of a clipped expression the clipped
/// ones.
template <class Gradients, bool Clipped>
class materialised_gradients : public detail::expression_tag {
 public:
  static constexpr bool needs_rows = true;
  using scalar = typename Gradients::scalar;
  using value_type = scalar;
  explicit materialised_gradients(Gradients gradients, std::size_t first, std::size_t count)
      : gradients_{gradients}, first_{first}, count_{count} {}
  [[nodiscard]] const auto& leaf() const noexcept {
    if constexpr (Clipped) {
      return gradients_.leaf();
    } else {
      return gradients_;
    }
  }
  [[nodiscard]] std::size_t value_count(const auto& leaf) const {
    return std::remove_cvref_t<decltype(leaf)>::network_type::parameter_count * count_;
  }
  void attach(detail::run_request<scalar>& request, std::span<scalar> out, bool accumulate) {
    if (accumulate || request.rows != nullptr) {
      detail::throw_invalid_argument({"pergrad: one evaluation materialises gradients once, and never adds to them"});
    }
    request.backward = true;
    request.norms = true;
    request.rows = out.data();
    if constexpr (Clipped) {
      gradients_.weigh_into(weights_);
      request.row_weights = &weights_;
    }
    request.first = first_;
    request.count = count_;
  }

 private:
  Gradients gradients_;
  std::size_t first_;
  std::size_t count_;
  detail::sum_request<scalar> weights_{};
};

/// One sample's gradient, `[parameter_count]`. Evaluates only that sample.
template <class Gradients, bool Clipped>
class gradient_row : public materialised_gradients<Gradients, Clipped> {
 public:
  static constexpr bool whole_batch = false;
  gradient_row(Gradients gradients, std::size_t sample)
      : materialised_gradients<Gradients, Clipped>{gradients, sample, 1} {
    if (sample >= gradients.size()) {
      detail::throw_out_of_range({"pergrad: sample ", sample, " of a batch of ", gradients.size()});
    }
  }
};

/// The network's outputs, `[B, outputs]`, in PyTorch's order.
template <class Leaf>
class outputs_of : public detail::over_gradients<Leaf> {
 public:
  using scalar = typename Leaf::scalar;
  explicit outputs_of(const Leaf& leaf) : detail::over_gradients<Leaf>{leaf} {}
  static constexpr bool needs_backward = false;
  [[nodiscard]] static std::size_t value_count(const Leaf& leaf) { return leaf.size() * width; }
  void attach(detail::run_request<scalar>& request, std::span<scalar> out, bool accumulate) {
    if (accumulate) detail::throw_invalid_argument({"pergrad: outputs cannot be accumulated"});
    out_ = out.data();
    request.outputs = true;
    detail::new_observer(request) = {this, [](void* self, const detail::sample_facts<scalar>& facts) {
                                       std::copy(facts.output.begin(), facts.output.end(),
                                                 static_cast<outputs_of*>(self)->out_ + facts.sample * width);
                                     }};
  }

 private:
  static constexpr std::size_t width = Leaf::network_type::output_shape.size();
  scalar* out_ = nullptr;
};

/// <g_a, g_b> for all pairs, `[B, B]`. Forms all gradients: B times parameter_count values for the time of the
/// evaluation.
template <class Leaf>
class gram_of : public detail::over_gradients<Leaf> {
 public:
  using scalar = typename Leaf::scalar;
  using value_type = double;
  explicit gram_of(const Leaf& leaf) : detail::over_gradients<Leaf>{leaf} {}
  static constexpr bool needs_rows = true;
  [[nodiscard]] static std::size_t value_count(const Leaf& leaf) { return leaf.size() * leaf.size(); }
  void attach(detail::run_request<scalar>& request, std::span<double> /*out*/, bool accumulate) {
    if (accumulate) detail::throw_invalid_argument({"pergrad: a Gram matrix cannot be accumulated over chunks"});
    if (request.rows != nullptr)
      detail::throw_invalid_argument({"pergrad: one evaluation materialises gradients once"});
    rows_.resize(this->leaf().size() * Leaf::network_type::parameter_count);
    request.backward = true;
    request.norms = true;
    request.rows = rows_.data();
  }
  void finish(const detail::thread_pool& pool, std::span<double> out) const {
    constexpr std::size_t width = Leaf::network_type::parameter_count;
    const std::size_t count = this->leaf().size();
    pool.parallel(count, [&](std::size_t a, std::size_t) {
      for (std::size_t b = 0; b <= a; ++b) {
        const double value =
            on_host::dot(rows_.data() + a * width, rows_.data() + b * width, static_cast<on_host::index>(width));
        out[a * count + b] = value;
        out[b * count + a] = value;
      }
    });
  }

 private:
  std::vector<scalar> rows_;
};

template <class Network, class Loss, detail::algorithms Which>
gradient_row<per_sample_gradient_leaf<Network, Loss, Which>, false>
per_sample_gradient_leaf<Network, Loss, Which>::operator[](std::size_t sample) const {
  return {*this, sample};
}
template <class Leaf, class Rule>
gradient_row<clipped_gradients<Leaf, Rule>, true> clipped_gradients<Leaf, Rule>::operator[](std::size_t sample) const {
  return {*this, sample};
}

/// sum_b g_b: the ordinary, non-private gradient of the summed loss.
template <class Network, class Loss, detail::algorithms Which>
[[nodiscard]] auto sum(const per_sample_gradient_leaf<Network, Loss, Which>& gradients) {
  return plain_sum{gradients, 1.0};
}
/// (1/B) sum_b g_b: the ordinary gradient of the mean loss. B is the size of this batch, so never private.
template <class Network, class Loss, detail::algorithms Which>
[[nodiscard]] auto mean(const per_sample_gradient_leaf<Network, Loss, Which>& gradients) {
  if (gradients.size() == 0) detail::throw_invalid_argument({"pergrad: mean: an empty batch has none"});
  const detail::float_environment proven;
  return plain_sum{gradients, 1 / static_cast<double>(gradients.size())};
}
/// sum_b clip(g_b); `sum<neighbouring::replace_one>(...)` is the same sum with the sensitivity of that relation.
template <neighbouring Relation = neighbouring::add_or_remove_one, class Leaf, class Rule>
[[nodiscard]] auto sum(const clipped_gradients<Leaf, Rule>& clipped) {
  return bounded_sum<Leaf, Rule, Relation>{clipped};
}
/// sum_b w_b g_b; weights: any per-sample scalar expression over the same gradients.
template <class Network, class Loss, detail::algorithms Which, per_sample_scalar Weights>
[[nodiscard]] auto weighted_sum(const per_sample_gradient_leaf<Network, Loss, Which>& gradients,
                                const Weights& weights) {
  if (!detail::leaf_of(weights).same_as(gradients)) {
    detail::throw_invalid_argument({"pergrad: weighted_sum: the weights belong to other per-sample gradients"});
  }
  return weighted_gradient_sum<per_sample_gradient_leaf<Network, Loss, Which>, Weights>{gradients, weights};
}
/// sum_b w_b g_b; weights: one number a sample, read when evaluated. Throws std::invalid_argument for another count.
template <class Network, class Loss, detail::algorithms Which>
[[nodiscard]] auto weighted_sum(const per_sample_gradient_leaf<Network, Loss, Which>& gradients,
                                std::type_identity_t<std::span<const typename Network::scalar>> weights) {
  if (weights.size() != gradients.size()) {
    detail::throw_invalid_argument(
        {"pergrad: weighted_sum: ", weights.size(), " weights for ", gradients.size(), " samples"});
  }
  return weighted_gradient_sum<per_sample_gradient_leaf<Network, Loss, Which>,
                               std::span<const typename Network::scalar>>{gradients, weights};
}
/// (1/B) sum_b g_b² (BackPACK's second moment).
template <class Network, class Loss, detail::algorithms Which>
[[nodiscard]] auto second_moment(const per_sample_gradient_leaf<Network, Loss, Which>& gradients) {
  if (gradients.size() == 0) detail::throw_invalid_argument({"pergrad: second_moment: an empty batch has none"});
  return plain_sum{gradients, 1 / static_cast<double>(gradients.size()), true};
}
/// Population variance over the batch, element by element (BackPACK's variance).
template <class Network, class Loss, detail::algorithms Which>
[[nodiscard]] auto variance(const per_sample_gradient_leaf<Network, Loss, Which>& gradients) {
  if (gradients.size() == 0) detail::throw_invalid_argument({"pergrad: variance: an empty batch has none"});
  return variance_of{gradients};
}
/// All gradients as rows: batch times `parameter_count` values.
template <class Network, class Loss, detail::algorithms Which>
[[nodiscard]] auto materialise(const per_sample_gradient_leaf<Network, Loss, Which>& gradients) {
  return materialised_gradients<per_sample_gradient_leaf<Network, Loss, Which>, false>{gradients, 0, gradients.size()};
}
template <class Leaf, class Rule>
[[nodiscard]] auto materialise(const clipped_gradients<Leaf, Rule>& clipped) {
  return materialised_gradients<clipped_gradients<Leaf, Rule>, true>{clipped, 0, clipped.size()};
}
/// The network's outputs.
template <class Network, class Loss, detail::algorithms Which>
[[nodiscard]] auto outputs(const per_sample_gradient_leaf<Network, Loss, Which>& gradients) {
  return outputs_of{gradients};
}
/// All inner products <g_a, g_b>, in double.
template <class Network, class Loss, detail::algorithms Which>
[[nodiscard]] auto gram(const per_sample_gradient_leaf<Network, Loss, Which>& gradients) {
  return gram_of{gradients};
}

}  // namespace pergrad::inline v0_1
