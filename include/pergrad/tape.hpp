// SPDX-License-Identifier: Apache-2.0
// pergrad/tape.hpp - the working memory that evaluating a network's per-sample gradients needs, reserved once
#pragma once

#include <concepts>
#include <cstddef>
#include <type_traits>
#include <utility>

#include <pergrad/detail/error_text.hpp>
#include <pergrad/detail/executors.hpp>

namespace pergrad::inline v0_1 {

/// The most samples that one evaluation takes; larger batches are processed in chunks of this size.
struct max_batch {
  std::size_t count = 0;

  /// Compilers show the next lines to who leaves the type out.
  template <std::integral Number>
  max_batch& operator=(Number) = delete;  // a plain number does not say what it stands for: pergrad::max_batch{256}
};
/// The most different sums over the batch that one evaluation forms.
struct max_sums {
  std::size_t count = 0;
};

/// The working memory of one network, where its executor has it. Construct it once; a step allocates nothing.
///
/// One evaluation at a time may use a tape. It must be evaluated by the executor that it was made for, or by another
/// host with no more threads.
template <class Network>
class tape {
 public:
  using scalar = typename Network::scalar;

  /// Reserves everything. Throws std::invalid_argument for an empty batch, std::runtime_error or, of a device's,
  /// std::bad_alloc if there is no memory, and what the executor throws.
  template <executor Executor>
  tape(const Executor& executor, max_batch batch, max_sums sums = {Executor::template usual_sums<Network>})
      : max_batch_{batch.count}, max_sums_{sums.count} {
    if (batch.count == 0) detail::throw_invalid_argument({"pergrad: tape: max_batch must be at least 1"});
    if (sums.count == 0) detail::throw_invalid_argument({"pergrad: tape: max_sums must be at least 1"});
    static_assert(sizeof(typename Executor::template explanation<Network>) != 0);
    if constexpr (std::is_same_v<typename Executor::template explanation<Network>, char>) {
      memory_ = executor.template make_tape<Network>(batch.count, sums.count);
    }
  }

  /// The library's own: capacity() may be less than `most`.
  template <executor Executor>
  tape(const Executor& executor, detail::forward_only wanted) {
    if constexpr (requires { executor.template make_evaluation_tape<Network>(wanted.most); }) {
      max_batch_ = Executor::template evaluated_together<Network>(wanted.most);
      memory_ = executor.template make_evaluation_tape<Network>(max_batch_);
    } else {
      *this = tape{executor, max_batch{wanted.most}};
    }
  }

  template <class... Given>
  explicit tape(const Given&...) = delete;  // write net_type::tape tape{exec, pergrad::max_batch{256}}

  /// The largest batch of one evaluation.
  [[nodiscard]] std::size_t capacity() const noexcept { return max_batch_; }
  /// Sums that one evaluation may form.
  [[nodiscard]] std::size_t sum_capacity() const noexcept { return max_sums_; }
  /// Bytes reserved. Those for gradients that the plan never forms are reserved but not touched, so they cost no
  /// memory.
  [[nodiscard]] std::size_t bytes() const noexcept { return memory_.bytes; }
  /// How clipped sums that are formed on this tape add up.
  [[nodiscard]] const detail::addition_way& way_of_additions() const noexcept { return memory_.way; }
  /// The library's own: what the executor has made, if it is of this type; else null.
  template <class Memory>
  [[nodiscard]] Memory* memory() noexcept {
    return memory_.template as<Memory>();
  }

 private:
  std::size_t max_batch_ = 0;
  std::size_t max_sums_ = 0;
  detail::executor_memory memory_;
};

}  // namespace pergrad::inline v0_1
