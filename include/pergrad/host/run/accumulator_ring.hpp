// SPDX-License-Identifier: Apache-2.0
// pergrad/host/run/accumulator_ring.hpp - which accumulator has which buffer, and when it joins the total
//
// An accumulator is an order of additions: its tiles in order, then the accumulators in order. It
// need not keep a buffer of its own for that. Accumulator 0 has buffer 0, which is the running total; the others take
// turns in a ring of those that are left. One begins once the one before it in the same buffer has been added to the
// total, and accumulators are added in order. So bits do not depend on the number of buffers, nor on which accumulator
// was done first.
//
// Nobody waits for ever: threads take accumulators in order, so of all accumulators that are not done the first one
// only needs accumulators that are done, and whoever finishes an accumulator adds up what has waited for it. What need
// not free its buffer stays where it is and is added up in parallel (gather.hpp).
#pragma once

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstddef>
#include <mutex>

#include <pergrad/graph/layout.hpp>

namespace pergrad::inline v0_1::on_host {

/// Buffers of sums that serve a number of threads: the total, one for each thread, and as many again but one, so that a
/// thread must be a whole round ahead of another before it waits. At least 2, the total's and one in work. What that
/// saves: docs/internals/tricks.md.
[[nodiscard]] constexpr index accumulator_buffers(index accumulators, std::size_t threads) noexcept {
  return std::max<index>(2, std::min(accumulators, 2 * static_cast<index>(threads)));
}

/// The accumulators of one evaluation, numbered in the order in which they are added up. Threads call `begin` in that
/// order, each accumulator's once, and `finish` for every accumulator that has begun, whatever becomes of it.
template <index MostBuffers>
class accumulator_ring {
 public:
  static_assert(MostBuffers >= 2);

  accumulator_ring(index accumulators, index buffers) noexcept : count_{accumulators}, ring_{buffers - 1} {}
  accumulator_ring(const accumulator_ring&) = delete;
  accumulator_ring& operator=(const accumulator_ring&) = delete;
  ~accumulator_ring() = default;

  [[nodiscard]] index count() const noexcept { return count_; }
  /// The buffer of an accumulator; 0, the first accumulator's, becomes the total.
  [[nodiscard]] index buffer_of(index accumulator) const noexcept {
    return accumulator == 0 ? 0 : 1 + (accumulator - 1) % ring_;
  }
  /// Has an accumulator before this one left its buffer?
  [[nodiscard]] bool was_used_before(index accumulator) const noexcept { return accumulator > ring_; }
  /// Accumulators [0, folded_in_the_end()) are in the total once all are done, the others still in their buffers.
  [[nodiscard]] index folded_in_the_end() const noexcept {
    return std::max<index>(std::min<index>(count_, 1), count_ - ring_);
  }

  /// Waits until the accumulator's buffer is free.
  void begin(index accumulator) {
    std::unique_lock lock{mutex_};
    is_free_.wait(lock, [&] { return accumulator <= ring_ || accumulator - ring_ < folded_; });
  }
  /// Notes that the accumulator is done. Calls add(total's buffer, buffer) for the accumulators whose turn it is to
  /// free their buffers: one call at a time, in the accumulators' order.
  template <class Add>
  void finish(index accumulator, Add&& add) {
    std::unique_lock lock{mutex_};
    done_[static_cast<std::size_t>(buffer_of(accumulator))] = true;
    if (is_adding_) return;  // whoever adds looks again
    while (folded_ < folded_in_the_end() && done_[static_cast<std::size_t>(buffer_of(folded_))]) {
      const index buffer = buffer_of(folded_);
      if (buffer != 0) {
        is_adding_ = true;
        lock.unlock();
        add(index{0}, buffer);
        lock.lock();
        is_adding_ = false;
      }
      done_[static_cast<std::size_t>(buffer)] = false;
      ++folded_;
      is_free_.notify_all();
    }
  }

 private:
  index count_;
  index ring_;
  std::mutex mutex_;
  std::condition_variable is_free_;
  index folded_ = 0;  ///< accumulators in the total
  bool is_adding_ = false;
  std::array<bool, static_cast<std::size_t>(MostBuffers)> done_{};  ///< by buffer: its accumulator waits for its turn
};

}  // namespace pergrad::inline v0_1::on_host
