// SPDX-License-Identifier: Apache-2.0
// pergrad/expressions/leaf.hpp - the lazy per-sample gradients of a batch: the leaf of every gradient expression
//
// Nothing is computed here. A leaf points at a network, a batch and a tape; expressions are values made of it; only
// evaluation (evaluate.hpp) computes, and it names the executor.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <pergrad/batch.hpp>
#include <pergrad/concepts.hpp>
#include <pergrad/detail/error_text.hpp>
#include <pergrad/detail/executors.hpp>
#include <pergrad/errors.hpp>
#include <pergrad/gradients/request.hpp>
#include <pergrad/graph/graph.hpp>
#include <pergrad/graph/stand_ins.hpp>
#include <pergrad/network.hpp>
#include <pergrad/privacy/generator.hpp>
#include <pergrad/tape.hpp>

namespace pergrad::inline v0_1 {

/// How the papers arrange the work; all give the same sums to rounding. `book_keeping` is the default.
using strategy = detail::strategy_kind;

template <class Leaf, bool Clipped>
class gradient_row;

namespace detail {

/// What an evaluation is asked for, unless an expression says otherwise.
struct usual_needs {
  static constexpr bool whole_batch = true;
  static constexpr bool needs_backward = true;  ///< more than losses and outputs
  static constexpr bool needs_rows = false;     ///< materialised gradients
};
/// Base of everything that is a per-sample gradient expression, so that its misuse can be explained.
struct expression_tag : usual_needs {};
struct per_sample_scalar_tag : expression_tag {
  using value_type = double;
  [[nodiscard]] static std::size_t value_count(const auto& leaf) noexcept { return leaf.size(); }
};
/// Base of what is made of one leaf's gradients: one result a parameter, unless it says otherwise.
template <class Leaf>
class over_gradients : public expression_tag {
 public:
  using scalar = typename Leaf::scalar;
  using value_type = scalar;
  explicit over_gradients(const Leaf& leaf) : leaf_{leaf} {}
  [[nodiscard]] const Leaf& leaf() const noexcept { return leaf_; }
  [[nodiscard]] static constexpr std::size_t value_count(const Leaf&) { return Leaf::network_type::parameter_count; }

 private:
  Leaf leaf_;
};
struct evaluation;

/// The most positions of an outer-product block of an entry of the unfolded list; 1 if it has none.
template <class Network>
[[nodiscard]] constexpr std::size_t most_positions(std::size_t entry) {
  using structure = typename Network::structure;
  std::size_t most = 1;
  for_each_layer<structure>([&]<class Layer>(std::type_identity<Layer> /*type*/, std::size_t i) {
    if (i != entry || structure::parameter_counts[i] == 0) return;
    const shape in = structure::shapes[structure::inputs[i]];
    if constexpr (has_affine<Layer>) {
      most = Layer::affine(in).out_size.size();
    } else if constexpr (has_factors<Layer>) {
      for (const factor& each : factors_of<Layer>(in, structure::shapes[structure::inputs2[i]])) {
        if (each.outer) most = std::max(most, each.positions);
      }
    }
  });
  return most;
}

[[noreturn]] inline void throw_larger_than_tape(std::size_t samples, std::size_t capacity) {
  throw_invalid_argument({"pergrad: a batch of ", samples, " samples on a tape for ", capacity,
                          ": evaluate it in chunks, or construct the tape with pergrad::max_batch{", samples, "}"});
}

}  // namespace detail

/// Per-sample gradients of `loss(network(sample))` for every sample of a batch, not computed yet.
///
/// A light value: copies are free, and evaluating twice gives the same bits. The network, batch and tape must outlive
/// it.
template <class Network, class Loss, detail::algorithms Which = detail::algorithms::planned>
class per_sample_gradient_leaf : public detail::expression_tag {
 public:
  using network_type = Network;
  using loss_type = Loss;
  using scalar = typename Network::scalar;

  per_sample_gradient_leaf(const Network& network, Loss loss, const batch<Network, Loss>& samples, tape<Network>& tape)
      : network_{&network}, batch_{&samples}, tape_{&tape}, loss_{loss} {
    if (samples.size() > tape.capacity()) detail::throw_larger_than_tape(samples.size(), tape.capacity());
  }

  /// Number of samples.
  [[nodiscard]] std::size_t size() const noexcept { return batch_->size(); }
  /// The gradient of one sample, lazily. Throws std::out_of_range.
  [[nodiscard]] gradient_row<per_sample_gradient_leaf, false> operator[](std::size_t sample) const;

  [[nodiscard]] const Network& network() const noexcept { return *network_; }
  [[nodiscard]] const batch<Network, Loss>& samples() const noexcept { return *batch_; }
  /// The most samples that the tape takes.
  [[nodiscard]] std::size_t capacity() const noexcept { return tape_->capacity(); }
  /// How evaluations on this tape add up in floating point.
  [[nodiscard]] const detail::addition_way& way_of_additions() const noexcept { return tape_->way_of_additions(); }
  [[nodiscard]] norm_method method() const noexcept { return method_; }
  [[nodiscard]] pergrad::strategy strategy() const noexcept { return strategy_; }

  /// Do both read the same gradients in the same way? Expressions in one evaluation must.
  template <detail::algorithms Other>
  [[nodiscard]] bool same_as(const per_sample_gradient_leaf<Network, Loss, Other>& other) const noexcept {
    return network_ == other.network_ && batch_ == other.batch_ && tape_ == other.tape_ && method_ == other.method_ &&
           method_layers_ == other.method_layers_ && strategy_ == other.strategy_ && randomness_ == other.randomness_;
  }

 private:
  friend struct detail::evaluation;

  /// Carries out a request, but for a batch with ids, lengths or targets that do not fit: then it throws before
  /// anything is computed. `count` samples from `first` on. An executor compiles what `Needs` names, and no more.
  template <detail::evaluation_needs Needs, executor Executor>
  void run(const Executor& executor, detail::run_request<scalar>& request) const {
    batch_->require_valid(request.first, request.count);
    request.method = method_;
    request.method_layers = method_layers_;
    request.strategy = strategy_;
    request.randomness = randomness_;
    if constexpr (std::is_same_v<typename Executor::template explanation<Network>, char> &&
                  std::is_same_v<typename Executor::template loss_explanation<Loss>, char>) {
      constexpr detail::evaluation_needs needs{Needs.backward, Needs.rows, Which == detail::algorithms::any};
      executor.template run<needs>(*network_, loss_, *batch_, *tape_, request);
    }
  }

 public:
  /// With another method or strategy than the plan's: only then are the others compiled.
  [[nodiscard]] auto with(norm_method method, std::uint64_t layers) const noexcept {
    auto result = with_any_algorithm();
    result.method_ = method;
    result.method_layers_ = layers;
    return result;
  }
  [[nodiscard]] auto with(pergrad::strategy strategy) const noexcept {
    auto result = with_any_algorithm();
    result.strategy_ = strategy;
    return result;
  }
  [[nodiscard]] per_sample_gradient_leaf with(layer_randomness randomness) const noexcept {
    per_sample_gradient_leaf result = *this;
    result.randomness_ = randomness;
    return result;
  }

 private:
  template <class, class, detail::algorithms>
  friend class per_sample_gradient_leaf;
  [[nodiscard]] auto with_any_algorithm() const noexcept {
    per_sample_gradient_leaf<Network, Loss, detail::algorithms::any> result{*network_, loss_, *batch_, *tape_};
    result.method_ = method_;
    result.method_layers_ = method_layers_;
    result.strategy_ = strategy_;
    result.randomness_ = randomness_;
    return result;
  }

  const Network* network_;
  const batch<Network, Loss>* batch_;
  tape<Network>* tape_;
  [[no_unique_address]] Loss loss_;
  norm_method method_ = norm_method::automatic;
  std::uint64_t method_layers_ = ~std::uint64_t{0};
  pergrad::strategy strategy_ = pergrad::strategy::book_keeping;
  layer_randomness randomness_;
};

namespace detail {

template <class Type>
struct is_leaf : std::false_type {};
template <class Network, class Loss, algorithms Which>
struct is_leaf<per_sample_gradient_leaf<Network, Loss, Which>> : std::true_type {};

/// An expression, or what stands in for one. Each function of expressions has an overload for expressions that it does
/// not take: it explains.
template <class Type>
concept expression = std::is_base_of_v<expression_tag, Type> || is_explained<Type>;
template <class Type>
concept expression_but_no_leaf = expression<Type> && !is_leaf<Type>::value;

}  // namespace detail

/// The lazy per-sample gradients of a batch. Network, batch and tape are referred to: name them.
/// Throws std::invalid_argument if the batch is larger than the tape.
template <class Network, class Loss, class Batch, class Tape>
[[nodiscard]] auto per_sample_gradients(Network&& network, Loss loss, Batch&& samples, Tape&& tape_to_use) {
  using network_type = std::remove_cvref_t<Network>;
  using batch_type = std::remove_cvref_t<Batch>;
  using tape_type = std::remove_cvref_t<Tape>;
  if constexpr (detail::any_explained<Network, Batch, Tape>) {
    return error::explained{};
  } else if constexpr (!std::is_lvalue_reference_v<Tape>) {
    static_cast<void>(error::temporary_tape<tape_type>{});
    return error::explained{};
  } else if constexpr (!std::is_lvalue_reference_v<Network> || !std::is_lvalue_reference_v<Batch>) {
    static_cast<void>(
        error::temporary_operand<std::conditional_t<std::is_lvalue_reference_v<Network>, batch_type, network_type>>{});
    return error::explained{};
  } else if constexpr (detail::cannot_be_trained<network_type, Loss>) {
    static_cast<void>(detail::loss_explanation<network_type, Loss>{});
    return error::explained{};
  } else if constexpr (!std::is_same_v<tape_type, tape<network_type>> ||
                       std::is_const_v<std::remove_reference_t<Tape>>) {
    static_cast<void>(error::tape_does_not_fit<network_type, std::remove_reference_t<Tape>>{});
    return error::explained{};
  } else if constexpr (!std::is_same_v<batch_type, batch<network_type, Loss>>) {
    static_cast<void>(error::batch_does_not_fit<network_type, Loss, batch_type>{});
    return error::explained{};
  } else {
    return per_sample_gradient_leaf<network_type, Loss>{network, loss, samples, tape_to_use};
  }
}

/// The same gradients, with the norms of all outer-product blocks found by `Method`, or of the listed entries of the
/// unfolded list (see `describe`) only. `product` is exact for one position only: blocks with more keep their own
/// method unless they are listed, which is an error. Of two calls the last one counts, for all blocks.
template <norm_method Method, std::size_t... Entries, class Network, class Loss, detail::algorithms Which>
[[nodiscard]] auto with_method(const per_sample_gradient_leaf<Network, Loss, Which>& gradients) {
  constexpr auto positions = [](std::size_t entry) { return detail::most_positions<Network>(entry); };
  using method_type = std::integral_constant<norm_method, Method>;
  if constexpr (Method == norm_method::elementwise || !((Entries < 64 && Entries < Network::structure::size) && ...)) {
    static_cast<void>(error::method_not_offered<method_type, error::entries<Entries...>>{});
    return error::explained{};
  } else if constexpr (Method == norm_method::product && !((positions(Entries) == 1) && ...)) {
    constexpr std::size_t most_positions = std::max({std::size_t{1}, positions(Entries)...});
    static_cast<void>(error::product_method_needs_one_position<method_type, error::entries<Entries...>,
                                                               error::count<most_positions>>{});
    return error::explained{};
  } else {
    constexpr std::uint64_t layers =
        sizeof...(Entries) == 0 ? ~std::uint64_t{0} : ((std::uint64_t{1} << Entries) | ... | 0U);
    return gradients.with(Method, layers);
  }
}
/// The same gradients by another strategy of the papers.
template <strategy Strategy, class Network, class Loss, detail::algorithms Which>
[[nodiscard]] auto with_strategy(const per_sample_gradient_leaf<Network, Loss, Which>& gradients) {
  return gradients.with(Strategy);
}
/// The same gradients in training, where layers such as dropout are random; without this they behave as in evaluation.
/// The bits are a function of the generator's key, of the step that is drawn here, of record, layer and element: tiles,
/// chunks and threads do not matter, and evaluating twice gives the same. The generator is referred to.
template <class Network, class Loss, detail::algorithms Which, random_generator Generator>
[[nodiscard]] auto with_randomness(const per_sample_gradient_leaf<Network, Loss, Which>& gradients,
                                   Generator& generator) {
  return gradients.with(layer_randomness::of_next_step(generator));
}
}  // namespace pergrad::inline v0_1
