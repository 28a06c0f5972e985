// SPDX-License-Identifier: Apache-2.0
// pergrad/detail/executors.hpp - what the library asks of an executor, whatever it runs on
//
// An executor is a door. Nobody outside of its folder asks which one it is, or includes what is behind it:
//
//   make_tape<Network>(max_batch, max_sums)           the working memory of a tape
//   run<Needs>(network, loss, samples, tape, request) an evaluation (gradients/request.hpp)
//   make_evaluation_tape<Network>(max_batch), evaluated_together<Network>(most)
//                                                     optional: a tape without room for gradients, and for how many
//   hold_parameters(network, tape)                    optional: they stay as they are while evaluations use the tape
//   trainer<Network, Loss>                            what a `dp_sgd` keeps and does there; it may mark a step's
//   records pool()                                            host threads, for what is done once a step
//   decodes<Network>, decoder<Network>                optional: a network's output behind a text that grows, from keys
//                                                     and values that are kept, if it can (host/decode)
//   usual_sums<Network>                               sums that a tape has room for unless it is told
//   explanation<Network>, loss_explanation<Loss>      why it cannot run one, as a class that says so; else `char`
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>

namespace pergrad::inline v0_1 {

/// The CPU (host/executor.hpp).
class host;

/// What the verbs take: `pergrad::host`, or the executor of a device.
template <class Type>
concept executor = requires {
  requires std::remove_cvref_t<Type>::is_executor;
};

namespace detail {

/// What a trainer's step adds up: gradients of records that are never formed, gradients that are, of units of privacy
/// of several rows each, or those scaled by the optimizer before they are clipped.
enum class step_gradients : unsigned char { unformed, formed, scaled };

/// A tape for outputs and losses alone: for so many records at a time, or as many as its executor prefers.
struct forward_only {
  std::size_t most = 1;
};

/// How an evaluation adds up in floating point.
struct addition_way {
  std::size_t inside = 0;  ///< additions on the longest way of an addend to a sum that is added to a total
  std::size_t onto = 0;    ///< how many such sums there are
};

template <class Type>
inline constexpr char kind_mark{};

/// Memory of a type that only its executor knows. The same in every translation unit.
struct executor_memory {
  executor_memory() = default;
  template <class Memory>
  executor_memory(std::unique_ptr<Memory> made, addition_way way_of_additions) noexcept
      : bytes{made->bytes()},
        way{way_of_additions},
        kind{&kind_mark<Memory>},
        memory{made.release(), [](void* mine) noexcept { delete static_cast<Memory*>(mine); }} {}

  std::size_t bytes = 0;
  addition_way way;
  const void* kind = nullptr;  ///< &kind_mark<the memory's type>
  std::unique_ptr<void, void (*)(void*) noexcept> memory{nullptr, nullptr};

  /// The memory, if it is of this type; else null.
  template <class Memory>
  [[nodiscard]] Memory* as() const noexcept {
    return kind == &kind_mark<Memory> ? static_cast<Memory*>(memory.get()) : nullptr;
  }
};

/// Who has the newest parameters of a network while another executor than the host trains them.
struct remote_parameters {
  void* context = nullptr;
  void (*pull)(void* context, void* parameters) = nullptr;
  void* (*place)(void* context, const void* device) = nullptr;  ///< where this device has them; null if another has
  bool newer = false;                                           ///< than the host's
  bool changed = true;  ///< the host's may have been written since they were sent
};

}  // namespace detail
}  // namespace pergrad::inline v0_1
