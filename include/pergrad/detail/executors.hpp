// SPDX-License-Identifier: Apache-2.0
// pergrad/detail/executors.hpp - what the verbs ask of an executor
//
// There are two kinds: the host (host/executor.hpp), and executors of devices (cuda/executor.hpp).
#pragma once

#include <type_traits>

#include <pergrad/detail/remote.hpp>
#include <pergrad/host/executor.hpp>

namespace pergrad::inline v0_1 {

namespace detail {

template <class Type>
concept host_executor = std::is_convertible_v < const std::remove_cvref_t<Type>
&, const host& > ;

/// The host's threads that finish what an executor began.
template <class Executor>
[[nodiscard]] const host& crew_of(const Executor& executor) {
  if constexpr (device_executor<Executor>) {
    return executor.crew();
  } else {
    return executor;
  }
}

}  // namespace detail

/// What the verbs take: `pergrad::host` or the executor of a device.
template <class Type>
concept executor = detail::host_executor<Type> || detail::device_executor<Type>;

}  // namespace pergrad::inline v0_1
