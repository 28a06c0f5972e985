// SPDX-License-Identifier: Apache-2.0
// pergrad/graph/stand_ins.hpp - what takes the place of anything made from a program that was explained to be wrong
//
// The compiler has printed one error; every use of a stand-in is allowed, means nothing and prints nothing. A class
// template that has a network for an argument has its stand-in here, so that the network's mistake is the only one that
// is reported.
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>
#include <vector>

#include <pergrad/concepts.hpp>
#include <pergrad/errors.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

template <class Network>
class tape;
template <class Network, class Loss>
class batch;
template <class Network, bool IsPrivate>
class released_gradient;
template <class Network>
class bounded_total;
template <class Network>
class sgd;
template <class Network>
class adam;
namespace unprotected {
template <class Network>
class gradient;
}  // namespace unprotected

/// A base in the library's own namespace, so that functions called by their short names are found for stand-ins as
/// well.
struct stand_in_base {};

namespace error {

/// Stands in for an expression or an object; takes whatever is done with it.
struct explained : stand_in_base {
  template <class... Any>
  explicit(false) explained(Any&&...) noexcept {}  // NOLINT(google-explicit-constructor)
  template <class Any>
  explained& operator=(Any&&) noexcept {
    return *this;
  }
  template <class Any>
  explained& operator+=(Any&&) noexcept {
    return *this;
  }

  [[nodiscard]] static constexpr std::size_t size() noexcept { return 0; }
  [[nodiscard]] static constexpr std::size_t capacity() noexcept { return 0; }
  [[nodiscard]] static constexpr std::size_t bytes() noexcept { return 0; }
  [[nodiscard]] static constexpr double sensitivity() noexcept { return 0; }
  [[nodiscard]] static constexpr double standard_deviation() noexcept { return 0; }
  [[nodiscard]] static constexpr bool within_budget() noexcept { return false; }
  [[nodiscard]] static constexpr bool next() noexcept { return false; }
  [[nodiscard]] static explained gradients() noexcept { return {}; }
  template <class... Any>
  [[nodiscard]] static explained begin(Any&&...) noexcept {
    return {};
  }
  [[nodiscard]] static constexpr std::size_t steps() noexcept { return 0; }
  template <class... Any>
  [[nodiscard]] static constexpr double epsilon(Any&&...) noexcept {
    return 0;
  }
  [[nodiscard]] static explained accountant() noexcept { return {}; }
  [[nodiscard]] static explained leaf() noexcept { return {}; }
  template <class Index>
  [[nodiscard]] explained operator[](Index&&) const noexcept {
    return {};
  }
  template <class... Any>
  static void step(Any&&...) noexcept {}
  template <class... Any>
  static void clear(Any&&...) noexcept {}
};

/// Stands in for values that nobody can compute; becomes a vector of any numbers.
struct unknown_values : std::vector<double> {
  template <class Value>
  explicit(false) operator std::vector<Value>() const {  // NOLINT(google-explicit-constructor)
    return {};
  }
};

/// Stands in for a number that belongs to a wrong network: usable as one, and equal to whatever a static_assert
/// expects.
struct unknown_count {
  // NOLINTNEXTLINE(google-explicit-constructor)
  constexpr explicit(false) operator std::size_t() const noexcept { return 1; }
  template <class Any>
  friend constexpr bool operator==(const unknown_count&, const Any&) noexcept {
    return true;
  }
};
struct unknown_shape : shape {
  constexpr unknown_shape() noexcept : shape{1} {}
  template <class Any>
  friend constexpr bool operator==(const unknown_shape&, const Any&) noexcept {
    return true;
  }
};

/// Stands in for an object that holds numbers of type `Scalar`.
template <class Scalar>
struct stand_in : explained {
  using explained::explained;
  using explained::operator=;
  using scalar = Scalar;

  [[nodiscard]] static std::span<Scalar> values() noexcept { return {}; }
  [[nodiscard]] static std::span<Scalar> parameters() noexcept { return {}; }
  [[nodiscard]] static std::span<Scalar> frozen_parameters() noexcept { return {}; }
  [[nodiscard]] static std::span<Scalar> all_parameters() noexcept { return {}; }
  [[nodiscard]] static std::span<Scalar> layer_parameters(std::size_t /*index*/) noexcept { return {}; }
  [[nodiscard]] static stand_in last_update() noexcept { return {}; }
};

/// Stands in for a network.
template <class Explanation, class Scalar>
struct wrong_network : stand_in<Scalar> {
  using stand_in<Scalar>::stand_in;
  using tape = pergrad::tape<wrong_network>;
  template <class Other>
  using rebind = wrong_network<Explanation, Other>;
  using input_value = Scalar;
  static constexpr unknown_count parameter_count{};
  static constexpr unknown_count frozen_parameter_count{};
  static constexpr unknown_shape input_shape{};
  static constexpr unknown_shape output_shape{};
};

/// The one class whose body is the explanation; of a sound network, nothing.
template <class Network>
struct explanation_of {
  using type = char;
};
template <class Explanation, class Scalar>
struct explanation_of<wrong_network<Explanation, Scalar>> {
  using type = Explanation;
};

}  // namespace error

namespace detail {

/// Base of what stands in for a loss of PyTorch's (losses/not_offered.hpp).
struct loss_not_offered;

template <class Type>
inline constexpr bool is_explained = std::is_base_of_v<error::explained, std::remove_cvref_t<Type>>;
template <class... Types>
inline constexpr bool any_explained = (is_explained<Types> || ...);

/// What nobody has explained, and has no shape either.
template <class Type>
concept no_network = !is_explained<Type> && !requires {
  Type::output_shape;
};

/// What is wrong with a loss, as a class whose body says so; `char` if nothing is, or if the network is wrong already.
template <class Network, class Loss>
[[nodiscard]] constexpr auto explanation_of_loss() {
  if constexpr (is_explained<Network>) {
    return std::type_identity<char>{};
  } else if constexpr (std::is_base_of_v<loss_not_offered, Loss>) {
    return std::type_identity<error::loss_of_pytorch_not_offered<Loss>>{};
  } else if constexpr (!loss<Loss>) {
    return std::type_identity<error::not_a_loss<Loss>>{};
  } else if constexpr (!Loss::accepts(Network::output_shape) ||
                       !takes_lengths_of<Loss, typename Network::scalar>(Network::output_shape)) {
    return std::type_identity<
        error::loss_rejects_the_networks_output<Loss, error::gets_shape<Network::output_shape>>>{};
  } else {
    return std::type_identity<char>{};
  }
}
template <class Network, class Loss>
using loss_explanation = typename decltype(explanation_of_loss<Network, Loss>())::type;
/// No training, no batch: the network or the loss is wrong.
template <class Network, class Loss>
inline constexpr bool cannot_be_trained =
    is_explained<Network> || !std::is_same_v<loss_explanation<Network, Loss>, char>;

}  // namespace detail

// clang-format off
template <class Explanation, class Scalar>
class tape<error::wrong_network<Explanation, Scalar>> : public error::stand_in<Scalar> { public: using error::stand_in<Scalar>::stand_in; };
template <class Explanation, class Scalar, bool IsPrivate>
class released_gradient<error::wrong_network<Explanation, Scalar>, IsPrivate> : public error::stand_in<Scalar> { public: using error::stand_in<Scalar>::stand_in; };
template <class Explanation, class Scalar>
class bounded_total<error::wrong_network<Explanation, Scalar>> : public error::stand_in<Scalar> { public: using error::stand_in<Scalar>::stand_in; };
template <class Explanation, class Scalar>
class sgd<error::wrong_network<Explanation, Scalar>> : public error::stand_in<Scalar> { static_assert(sizeof(Explanation) != 0); public: using error::stand_in<Scalar>::stand_in; };
template <class Explanation, class Scalar>
class adam<error::wrong_network<Explanation, Scalar>> : public error::stand_in<Scalar> { static_assert(sizeof(Explanation) != 0); public: using error::stand_in<Scalar>::stand_in; };
template <class Explanation, class Scalar>
class unprotected::gradient<error::wrong_network<Explanation, Scalar>> : public error::stand_in<Scalar> { public: using error::stand_in<Scalar>::stand_in; };
template <class Network, class Loss> requires detail::cannot_be_trained<Network, Loss>
class batch<Network, Loss> : public error::stand_in<typename Network::scalar> {
  static_assert(sizeof(detail::loss_explanation<Network, Loss>) != 0);
  static_assert(sizeof(typename error::explanation_of<Network>::type) != 0);
 public:
  using error::stand_in<typename Network::scalar>::stand_in;
};
template <class... Given> sgd(const Given&...) -> sgd<error::wrong_network<error::optimizer_of_no_network<Given...>, float>>;
template <class... Given> adam(const Given&...) -> adam<error::wrong_network<error::optimizer_of_no_network<Given...>, float>>;
template <class... Given> batch(const Given&...) -> batch<error::wrong_network<error::batch_of_no_network<Given...>, float>, void>;
// clang-format on

}  // namespace pergrad::inline v0_1
