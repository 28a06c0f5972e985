// SPDX-License-Identifier: Apache-2.0
// pergrad/train/option.hpp - an option that may be missing, and that says what it takes
#pragma once

#include <optional>
#include <type_traits>
#include <utility>

#include <pergrad/errors.hpp>

namespace pergrad::inline v0_1 {

namespace detail {
/// What is said of a value that is not the option's: of a sampler, which options are its.
template <class Needed, class Given>
struct explained_option {
  using type = error::option_of_another_type<Needed, Given>;
};
template <class Needed, class Given>
requires requires {
  typename Needed::event_type;
  typename Given::event_type;
}
struct explained_option<Needed, Given> {
  using type = error::option_of_another_sampler<Needed, Given>;
};
template <class Needed, class Given>
using wrong_option = typename explained_option<Needed, Given>::type;
}  // namespace detail

/// An option that may be missing, and is set to a value of its type: what else is given is an error that says so.
template <class Value>
struct option : std::optional<Value> {
  using std::optional<Value>::optional;
  option() = default;
  template <class Given>
  requires(!std::is_convertible_v<Given, std::optional<Value>>)
      // NOLINTNEXTLINE(google-explicit-constructor): explains
      option(const Given& /*given*/) {
    static_cast<void>(detail::wrong_option<Value, Given>{});
  }
  template <class Given = Value>
  option& operator=(Given&& given) {
    if constexpr (std::is_convertible_v<Given, std::optional<Value>>) {
      std::optional<Value>::operator=(std::forward<Given>(given));
    } else {
      static_cast<void>(detail::wrong_option<Value, std::remove_cvref_t<Given>>{});
    }
    return *this;
  }
};

}  // namespace pergrad::inline v0_1
