// SPDX-License-Identifier: Apache-2.0
// pergrad/network.hpp - a network is a type: an input shape and a list of layers; every other shape is inferred
//
// `network<shape{1, 28, 28}, conv2d<16, 8>, relu, flatten, linear<10>>` unfolds into a list of nodes with compile-time
// shapes, parameter counts and offsets. An object of it owns one aligned buffer: the parameters, in PyTorch's order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include <pergrad/concepts.hpp>
#include <pergrad/detail/aligned_buffer.hpp>
#include <pergrad/detail/error_text.hpp>
#include <pergrad/detail/executors.hpp>
#include <pergrad/errors.hpp>
#include <pergrad/graph/gate.hpp>
#include <pergrad/graph/graph.hpp>
#include <pergrad/graph/stand_ins.hpp>
#include <pergrad/initialise.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

template <class Network>
class tape;

namespace detail {

/// Bytes of a network on a device; cuda/plan/layout.hpp knows.
template <class Network>
struct device_memory;
struct network_access;

}  // namespace detail

/// The type behind `network`: use that name. One object holds the parameters of one model. `Input` names the shape of a
/// sample: `of_shape<1, 28, 28>`.
template <class Scalar, class Input, class... Layers>
class static_network {
 public:
  static_assert(sizeof(std::conditional_t < std::is_same_v<Scalar, float> || std::is_same_v<Scalar, double>, char,
                       error::scalar_not_offered < Scalar >>) != 0);
  using scalar = Scalar;
  using structure = detail::structure<Input, Layers...>;
  using tape = pergrad::tape<static_network>;
  /// The same network with another scalar type.
  template <class Other>
  using rebind = static_network<Other, Input, Layers...>;

  static constexpr shape input_shape = Input::value;
  static constexpr shape output_shape = structure::shapes[structure::size];
  /// Number of parameters, biases included.
  static constexpr std::size_t parameter_count = structure::found.trained;
  /// Number of parameters inside `frozen`, which are not trained and not part of `parameter_count`.
  static constexpr std::size_t frozen_parameter_count = structure::found.frozen;
  /// The type of one input value: integer ids or numbers.
  using input_value = std::conditional_t<input_shape.ids != 0, std::int32_t, Scalar>;

  /// Bytes that a tape of this network for batches of up to MaxBatch samples takes on a device, all in one allocation:
  /// parameters, values, gradients and sums. A trainer's optimizer takes more, and evaluations do, from the first one
  /// on: samples, outputs, and gradients that are materialised. Needs the device part of the library.
  template <std::size_t MaxBatch>
  static constexpr std::size_t device_bytes = detail::device_memory<static_network>::template bytes<MaxBatch>;

  /// A network whose parameters are set by an initialiser (initialise.hpp). The executor says where it will live.
  template <class Executor, class Initialiser>
  static_network(const Executor& /*executor*/, const Initialiser& initialiser)
      : parameters_{parameter_count + frozen_parameter_count, "a network's parameters"} {
    detail::for_each_layer<structure>([&]<class Layer>(std::type_identity<Layer> /*type*/, std::size_t i) {
      if constexpr (detail::may_have_parameters<Layer>) {
        if (structure::parameter_counts[i] == 0 || structure::owners[i] != i) return;
        detail::initialise_parameters<Layer>(initialiser, structure::shapes[structure::inputs[i]],
                                             structure::parameter_offsets[i], layer_parameters(i),
                                             structure::shapes[structure::inputs2[i]]);
      }
    });
  }

  /// What was moved from has no parameters: whatever wants them throws std::logic_error. While a device trains them,
  /// they are brought back first, and throws what that throws.
  // NOLINTNEXTLINE(performance-noexcept-move-constructor,cppcoreguidelines-noexcept-move-operations): see above
  static_network(static_network&& other) : parameters_{other.give_up()} {}
  /// A trainer on a device that refers to this network goes on with the parameters that it gets.
  // NOLINTNEXTLINE(performance-noexcept-move-constructor,cppcoreguidelines-noexcept-move-operations): see above
  static_network& operator=(static_network&& other) {
    parameters_ = other.give_up();
    remote_.newer = false;
    remote_.changed = true;
    return *this;
  }
  // Compilers show these lines.
  static_network(const static_network&) = delete;             // a copy is made by a word: net.clone()
  static_network& operator=(const static_network&) = delete;  // a copy is made by a word: other = net.clone()
  static_network() = delete;  // a network has an executor and first parameters: {exec, pergrad::kaiming_uniform{1}}
  template <class Given>
  explicit static_network(const Given&) = delete;  // it has both: {exec, pergrad::kaiming_uniform{1}}
  // clang-format off
  template <class Executor, class Seed> requires std::is_arithmetic_v<Seed>
  static_network(const Executor&, const Seed&) = delete;  // a seed of what? {exec, pergrad::kaiming_uniform{1}}
  // clang-format on
  ~static_network() = default;

  /// Another network with the same parameters, frozen ones included. While a device trains them, this brings them back.
  [[nodiscard]] static_network clone() const {
    const std::span<const Scalar> mine = all_parameters();
    static_network copy{detail::aligned_buffer<Scalar>{mine.size(), "a network's parameters"}};
    std::copy(mine.begin(), mine.end(), copy.parameters_.data());
    return copy;
  }

  // What a network has in PyTorch. Compilers show these lines.
  // clang-format off
  template <class Any>
  void forward(const Any&) const = delete;  // write pergrad::predict(exec, net, pergrad::public_records{inputs})
  template <class... Any>
  void train(const Any&...) const = delete;  // a network has no mode, trainers drop values, predict does not: leave it out
  void eval() const = delete;  // a network has no mode, trainers drop values, predict does not: leave it out
  void zero_grad() const = delete;  // a network keeps no gradients: leave it out
  template <class... Any>
  void to(const Any&...) const = delete;  // the executor says where: net_type net{exec, pergrad::kaiming_uniform{1}}
  void state_dict() const = delete;  // write pergrad::save_parameters(net, "net.safetensors")
  // clang-format on
  template <class... Any>
  error::explained operator()(const Any&... /*inputs*/) const {
    static_cast<void>(error::network_is_not_called<static_network>{});
    return {};
  }

  /// All parameters, layer after layer, each in PyTorch's order: weight `[out, in / groups, kh, kw]`, then bias.
  /// While a device trains them, this brings them back; a span from before a step shows the values of then.
  [[nodiscard]] std::span<Scalar> parameters() { return all_parameters().first(parameter_count); }
  [[nodiscard]] std::span<const Scalar> parameters() const { return all_parameters().first(parameter_count); }
  /// The parameters of `frozen` layers, in the same order among themselves.
  [[nodiscard]] std::span<Scalar> frozen_parameters() { return all_parameters().subspan(parameter_count); }
  [[nodiscard]] std::span<const Scalar> frozen_parameters() const { return all_parameters().subspan(parameter_count); }

  /// Both, one after the other: what a checkpoint holds.
  [[nodiscard]] std::span<Scalar> all_parameters() {
    require();
    pull();
    remote_.changed = true;
    return parameters_.span();
  }
  [[nodiscard]] std::span<const Scalar> all_parameters() const {
    require();
    pull();
    return parameters_.span();
  }

  /// The parameters of entry `index` of the unfolded list (see `describe`), frozen or not. Precondition:
  /// index < structure::size.
  [[nodiscard]] std::span<Scalar> layer_parameters(std::size_t index) {
    return all_parameters().subspan(structure::parameter_offsets[index], structure::parameter_counts[index]);
  }
  [[nodiscard]] std::span<const Scalar> layer_parameters(std::size_t index) const {
    return all_parameters().subspan(structure::parameter_offsets[index], structure::parameter_counts[index]);
  }

 private:
  friend struct detail::network_access;
  explicit static_network(detail::aligned_buffer<Scalar>&& parameters) noexcept : parameters_{std::move(parameters)} {}
  void require() const {
    if (parameter_count + frozen_parameter_count > parameters_.size()) {
      detail::throw_logic_error({"pergrad: this network was moved from, and has no parameters"});
    }
  }
  void pull() const {
    if (!remote_.newer) return;
    remote_.pull(remote_.context, parameters_.data());
    remote_.newer = false;  // not before: what throws is asked again
  }
  /// The buffer, with the newest parameters. Nobody's trainer refers to what is left.
  [[nodiscard]] detail::aligned_buffer<Scalar> give_up() {
    pull();
    remote_ = {};
    return std::move(parameters_);
  }

  mutable detail::aligned_buffer<Scalar> parameters_;
  mutable detail::remote_parameters remote_;
};

namespace detail {

/// A device's way to the parameters of a network.
struct network_access {
  [[nodiscard]] static remote_parameters& remote(const auto& network) noexcept { return network.remote_; }
  static void pull(const auto& network) { network.pull(); }
  /// Throws std::logic_error for a network that was moved from. Does not bring anything back.
  static void require_parameters(const auto& network) { network.require(); }
};

}  // namespace detail

/// A network with parameters of type `Scalar` (float or double).
template <class Scalar, shape Input, class... Layers>
using basic_network = detail::explained_network<typename detail::chosen<Input, Layers...>::template network<Scalar>,
                                                detail::chosen<Input, Layers...>::say()>;

/// A network in single precision: `network<shape{1, 28, 28}, flatten, linear<10>>`.
template <shape Input, class... Layers>
using network = detail::explained_network<typename detail::chosen<Input, Layers...>::template network<float>,
                                          detail::chosen<Input, Layers...>::say()>;

}  // namespace pergrad::inline v0_1
