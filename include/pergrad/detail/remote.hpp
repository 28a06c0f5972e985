// SPDX-License-Identifier: Apache-2.0
// pergrad/detail/remote.hpp - what a tape and a network keep for a device, without knowing what one is
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>

namespace pergrad::inline v0_1::detail {

/// An executor that evaluates elsewhere than on the host.
template <class Type>
concept device_executor = requires {
  requires std::remove_cvref_t<Type>::is_device_executor;
};

template <class Type>
inline constexpr char kind_mark{};

/// Memory on a device, of a type that only the device's executor knows. The same in every translation unit.
struct remote_memory {
  std::shared_ptr<void> memory;
  const void* kind = nullptr;  ///< &kind_mark<the memory's type>
  std::size_t bytes = 0;
};

/// Who has the newest parameters of a network while a device trains them.
struct remote_parameters {
  void* context = nullptr;
  void (*pull)(void* context, void* parameters) = nullptr;
  bool newer = false;   ///< than the host's
  bool changed = true;  ///< the host's may have been written since they were sent
};

}  // namespace pergrad::inline v0_1::detail
