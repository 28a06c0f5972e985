// SPDX-License-Identifier: Apache-2.0
// pergrad/gradients/leaf.hpp - the lazy per-sample gradients of a batch: the leaf of every gradient expression
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
#include <pergrad/detail/stand_ins.hpp>
#include <pergrad/errors.hpp>
#include <pergrad/host/engine.hpp>
#include <pergrad/host/every_way.hpp>
#include <pergrad/host/other_ways.hpp>
#include <pergrad/host/request.hpp>
#include <pergrad/network.hpp>
#include <pergrad/privacy/generator.hpp>
#include <pergrad/tape.hpp>

namespace pergrad::inline v0_1 {

/// How the papers arrange the work; all give the same sums to rounding. `book_keeping` is the default.
using strategy = on_host::strategy_kind;

template <class Leaf, bool Clipped>
class gradient_row;

namespace detail {

/// Base of everything that is a per-sample gradient expression, so that its misuse can be explained.
struct expression_tag {};
struct per_sample_scalar_tag : expression_tag {};
struct evaluation;

[[noreturn]] inline void throw_larger_than_tape(std::size_t samples, std::size_t capacity) {
  throw_invalid_argument({"pergrad: a batch of ", samples, " samples on a tape for ", capacity,
                          ": evaluate it in chunks, or construct the tape with pergrad::max_batch{", samples, "}"});
}

}  // namespace detail

/// Per-sample gradients of `loss(network(sample))` for every sample of a batch, not computed yet.
///
/// A light value: copies are free, and evaluating twice gives the same bits. The network, batch and tape must outlive
/// it.
template <class Network, class Loss>
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
  [[nodiscard]] const tape<Network>& working_memory() const noexcept { return *tape_; }
  [[nodiscard]] norm_method method() const noexcept { return method_; }
  [[nodiscard]] pergrad::strategy strategy() const noexcept { return strategy_; }

  /// Do both read the same gradients in the same way? Expressions in one evaluation must.
  [[nodiscard]] bool same_as(const per_sample_gradient_leaf& other) const noexcept {
    return network_ == other.network_ && batch_ == other.batch_ && tape_ == other.tape_ && method_ == other.method_ &&
           method_layers_ == other.method_layers_ && strategy_ == other.strategy_ && randomness_ == other.randomness_;
  }

 private:
  friend struct detail::evaluation;

  /// Carries out a request, but for a batch with ids, lengths or targets that do not fit: then it throws before
  /// anything is computed. `count` samples from `first` on. `Backward`: whether it may ask for more than losses and
  /// outputs; a device compiles no kernels of gradients for one that cannot.
  template <bool Backward = true, executor Executor>
  void run(const Executor& executor, on_host::run_request<scalar>& request) const {
    batch_->require_valid(request.first, request.count);
    request.method = method_;
    request.method_layers = method_layers_;
    request.strategy = strategy_;
    request.randomness = randomness_;
    if constexpr (detail::device_executor<Executor>) {
      if constexpr (std::is_same_v<typename Executor::template explanation<Network>, char> &&
                    std::is_same_v<typename Executor::template loss_explanation<Loss>, char>) {
        executor.template run<Backward>(*network_, *batch_, *tape_, request);
      }
    } else {
      run_on_host(executor, request);
    }
  }

  void run_on_host(const host& executor, on_host::run_request<scalar>& request) const {
    on_host::sample_source<scalar> source;
    source.context = this;
    source.input = [](const void* self, std::size_t sample) -> const void* {
      return static_cast<const per_sample_gradient_leaf*>(self)->batch_->input(sample);
    };
    source.record = [](const void* self, std::size_t sample) {
      return static_cast<std::uint32_t>(static_cast<const per_sample_gradient_leaf*>(self)->batch_->record(sample));
    };
    source.length = [](const void* self, std::size_t sample) {
      return static_cast<const per_sample_gradient_leaf*>(self)->batch_->length(sample);
    };
    source.loss = [](const void* self, std::size_t sample, std::span<const scalar> y, std::span<scalar> dy) {
      const auto* leaf = static_cast<const per_sample_gradient_leaf*>(self);
      return leaf->loss_.evaluate(y, leaf->batch_->targets(sample), dy);
    };
    on_host::engine<Network>::run(executor, *network_, *tape_, source, request, other_ways_);
  }

 public:
  [[nodiscard]] per_sample_gradient_leaf with(norm_method method, std::uint64_t layers) const noexcept {
    per_sample_gradient_leaf result = *this;
    result.method_ = method;
    result.method_layers_ = layers;
    result.other_ways_ = &on_host::every_way<Network>;
    return result;
  }
  [[nodiscard]] per_sample_gradient_leaf with(pergrad::strategy strategy) const noexcept {
    per_sample_gradient_leaf result = *this;
    result.strategy_ = strategy;
    result.other_ways_ = &on_host::every_way<Network>;
    return result;
  }
  [[nodiscard]] per_sample_gradient_leaf with(layer_randomness randomness) const noexcept {
    per_sample_gradient_leaf result = *this;
    result.randomness_ = randomness;
    return result;
  }

 private:
  const Network* network_;
  const batch<Network, Loss>* batch_;
  tape<Network>* tape_;
  [[no_unique_address]] Loss loss_;
  norm_method method_ = norm_method::automatic;
  std::uint64_t method_layers_ = ~std::uint64_t{0};
  pergrad::strategy strategy_ = pergrad::strategy::book_keeping;
  const on_host::other_ways<Network>* other_ways_ = nullptr;  // for another method or strategy than by default
  layer_randomness randomness_;
};

namespace detail {

template <class Type>
struct is_leaf : std::false_type {};
template <class Network, class Loss>
struct is_leaf<per_sample_gradient_leaf<Network, Loss>> : std::true_type {};

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
/// method unless they are listed, which is an error.
template <norm_method Method, std::size_t... Entries, class Network, class Loss>
[[nodiscard]] auto with_method(const per_sample_gradient_leaf<Network, Loss>& gradients) {
  constexpr auto positions = [](std::size_t entry) -> std::size_t {
    for (const on_host::outer_leaf& leaf : on_host::program<Network>::table.outer) {
      if (leaf.node == entry && leaf.positions() != 1) return static_cast<std::size_t>(leaf.positions());
    }
    return 1;
  };
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
template <strategy Strategy, class Network, class Loss>
[[nodiscard]] auto with_strategy(const per_sample_gradient_leaf<Network, Loss>& gradients) {
  return gradients.with(Strategy);
}
/// The same gradients in training, where layers such as dropout are random; without this they behave as in evaluation.
/// The bits are a function of the generator's key, of the step that is drawn here, of record, layer and element: tiles,
/// chunks and threads do not matter, and evaluating twice gives the same. The generator is referred to.
template <class Network, class Loss, random_generator Generator>
[[nodiscard]] auto with_randomness(const per_sample_gradient_leaf<Network, Loss>& gradients, Generator& generator) {
  return gradients.with(layer_randomness::of_next_step(generator));
}
}  // namespace pergrad::inline v0_1
