// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/kernels/functions.hpp - which layers run on a device, and the list of their functions that a kernel is
// made with
//
// Affine layers and pools are numbers in a table. What remains are scalar functions (value and derivative, a window's
// combine and share) and the forward and backward of general layers. Each is a public struct, so that two networks with
// the same functions share a kernel.
#pragma once

#include <concepts>
#include <cstddef>
#include <type_traits>
#include <utility>

#include <pergrad/concepts.hpp>
#include <pergrad/cuda/device/kernel.hpp>
#include <pergrad/errors.hpp>
#include <pergrad/graph/graph.hpp>
#include <pergrad/layers/activations.hpp>
#include <pergrad/layers/pools.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

namespace on_device {

/// A view of values that a device can read too: what a general layer gets there in the place of a std::span.
template <class Value>
class view {
 public:
  PERGRAD_HD constexpr view(Value* data, std::size_t size) noexcept : data_{data}, size_{size} {}
  [[nodiscard]] PERGRAD_HD constexpr Value& operator[](std::size_t i) const noexcept { return data_[i]; }
  [[nodiscard]] PERGRAD_HD constexpr std::size_t size() const noexcept { return size_; }
  [[nodiscard]] PERGRAD_HD constexpr Value* data() const noexcept { return data_; }
  [[nodiscard]] PERGRAD_HD constexpr Value* begin() const noexcept { return data_; }
  [[nodiscard]] PERGRAD_HD constexpr Value* end() const noexcept { return data_ + size_; }
  [[nodiscard]] PERGRAD_HD constexpr view first(std::size_t count) const noexcept { return {data_, count}; }
  [[nodiscard]] PERGRAD_HD constexpr view last(std::size_t count) const noexcept {
    return {data_ + (size_ - count), count};
  }
  [[nodiscard]] PERGRAD_HD constexpr view subspan(std::size_t offset, std::size_t count) const noexcept {
    return {data_ + offset, count};
  }

 private:
  Value* data_;
  std::size_t size_;
};

/// Is it one of single numbers, y_i = f(x_i)?
template <class Function>
inline constexpr bool is_scalar_function = detail::has_value<Function> && !detail::is_tiled<Function>;
/// How the inputs of a pool's window make its output.
template <class Function>
concept is_window_rule = requires(float x) {
  { Function::combine(x, x) } -> std::convertible_to<float>;
};
/// Does a pool write down which input was a window's? Its gradient is that one's then.
template <class Rule>
inline constexpr bool remembers_inputs = std::is_same_v<Rule, detail::maximum_of_window>;
template <class Type>
concept marked_for_devices = requires {
  requires Type::on_device;
};

/// The scalar functions of a layer; `void` if it has none.
template <class Layer>
struct function_of {
  static constexpr auto choose() {
    if constexpr (detail::has_affine<Layer> || detail::is_branch_sum<Layer> || detail::is_reshape<Layer>) {
      return std::type_identity<void>{};
    } else if constexpr (detail::has_known_rule<Layer>) {  // one kernel for all of them
      return std::type_identity<typename Layer::rule_type>{};
    } else {
      return std::type_identity<Layer>{};
    }
  }
  using type = typename decltype(choose())::type;
};

/// May a layer be part of a network on a device?
template <class Layer>
[[nodiscard]] constexpr bool runs_on_devices() {
  return detail::has_affine<Layer> || detail::is_reshape<Layer> || detail::is_branch_sum<Layer> ||
         marked_for_devices<typename function_of<Layer>::type>;
}

/// What to say of a network that does not run on a device, as a class whose body says so; `char` if it does.
template <class Network>
struct explanation_of {
  using structure = typename Network::structure;
  static constexpr std::size_t first = [] {
    std::size_t found = structure::size;
    detail::for_each_layer<structure>([&]<class Layer>(std::type_identity<Layer> /*type*/, std::size_t i) {
      if (!runs_on_devices<Layer>() && i < found) found = i;
    });
    return found;
  }();
  static constexpr auto choose() {
    if constexpr (first == structure::size) {
      return std::type_identity<char>{};
    } else {
      return std::type_identity<error::layer_has_no_device_code<typename structure::template layer_at<first>>>{};
    }
  }
  using type = typename decltype(choose())::type;
};
/// The same for a loss.
template <class Loss>
using loss_explanation = std::conditional_t<marked_for_devices<Loss>, char, error::loss_has_no_device_code<Loss>>;

#ifdef __CUDA_ARCH__
/// What a kernel calls in the place of a layer's or a loss' own functions. nvcc only warns of a function for both sides
/// that calls one for the host, and a device then does anything; from a function for the device alone it is an error.
template <class Function>
struct needs_functions_marked_pergrad_hd {
  template <class Value>
  [[nodiscard]] __device__ static Value value(Value x) {
    return Function::value(x);
  }
  template <class Value>
  [[nodiscard]] __device__ static Value derivative(Value x, Value y) {
    return Function::derivative(x, y);
  }
  template <class Team>
  __device__ static void forward(const Team& team) {
    Function::forward(team);
  }
  template <class Team>
  __device__ static void backward(const Team& team) {
    Function::backward(team);
  }
  template <class... Views>
  __device__ static void forward(const shape& in, Views... views) {
    Function::forward(in, views...);
  }
  template <class... Views>
  __device__ static void backward(const shape& in, Views... views) {
    Function::backward(in, views...);
  }
  template <class Scalar, class Target>
  [[nodiscard]] __device__ static double evaluate(const Scalar* y, std::size_t count, const Target* targets,
                                                  Scalar* dy) {
    return Function::evaluate(y, count, targets, dy);
  }
  template <class Scalar, class Target>
  [[nodiscard]] __device__ static double evaluate(const Scalar* y, std::size_t count, const Target* targets, Scalar* dy,
                                                  std::size_t positions, std::size_t length) {
    return Function::evaluate(y, count, targets, dy, positions, length);
  }
  [[nodiscard]] __device__ static auto term(double y, double target, double count) {
    return Function::term(y, target, count);
  }
};
template <class Function>
using device_code_of = needs_functions_marked_pergrad_hd<Function>;
#else
template <class Function>
using device_code_of = Function;
#endif

/// A list of functions, each once; `void` is left out.
template <class... Functions>
struct function_list {
  template <class Function>
  static constexpr int index_of = [] {
    int found = -1;
    int i = 0;
    static_cast<void>(((found < 0 && std::is_same_v<Function, Functions> ? void(found = i) : void(), ++i), ..., 0));
    return found;
  }();
  template <class Function>
  using with = std::conditional_t<std::is_void_v<Function> || (std::is_same_v<Function, Functions> || ...),
                                  function_list, function_list<Functions..., Function>>;

  /// Calls visitor.template operator()<Function>() for the function with this number.
  template <class Visitor>
  PERGRAD_HD static void visit([[maybe_unused]] int number, [[maybe_unused]] const Visitor& visitor) {
    int i = 0;
    static_cast<void>(i);
    ((i++ == number ? visitor.template operator()<Functions>() : void()), ...);
  }
};

template <class Structure, class Indices = std::make_index_sequence<Structure::size>>
struct functions_of_structure;
template <class Structure, std::size_t... Index>
struct functions_of_structure<Structure, std::index_sequence<Index...>> {
  template <class List, class... Functions>
  struct gather {
    using type = List;
  };
  template <class List, class First, class... Rest>
  struct gather<List, First, Rest...> : gather<typename List::template with<First>, Rest...> {};
  using type = typename gather<function_list<>,
                               typename function_of<typename Structure::template layer_at<Index>>::type...>::type;
};

/// All functions that the layers of a network need.
template <class Structure>
using functions_of = typename functions_of_structure<Structure>::type;

}  // namespace on_device
}  // namespace pergrad::inline v0_1
