// SPDX-License-Identifier: Apache-2.0
// pergrad/ranks/thread_ranks.hpp - ranks that are threads of one process: for tests, and to try a program without MPI
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include <pergrad/detail/error_text.hpp>
#include <pergrad/ranks/communicator.hpp>

namespace pergrad::inline v0_1 {

/// What they share. Outlives its members.
class thread_ranks {
 public:
  /// A rank that waits longer than `patience` for the others ends with rank_failed, and so do they. Throws
  /// std::invalid_argument for 0 ranks.
  explicit thread_ranks(std::size_t size, std::chrono::milliseconds patience = std::chrono::minutes{1})
      : patience_{detail::patience_of(patience)}, sums_(size), bytes_(size) {
    if (size == 0) detail::throw_invalid_argument({"pergrad: thread_ranks: 0 ranks"});
  }

  /// One rank, for the thread that is it.
  class member {
   public:
    member(thread_ranks& all, std::size_t rank) : all_{&all}, rank_{rank} {
      if (rank >= all.bytes_.size()) detail::throw_out_of_range({"pergrad: thread_ranks: there is no rank ", rank});
    }
    [[nodiscard]] std::size_t rank() const noexcept { return rank_; }
    [[nodiscard]] std::size_t size() const noexcept { return all_->bytes_.size(); }

    void broadcast(std::span<std::byte> bytes, std::size_t from) const {
      all_->bytes_[rank_] = bytes.data();
      meet();
      if (rank_ != from) std::memcpy(bytes.data(), all_->bytes_[from], bytes.size());
      meet();
    }
    void reduce_scatter(std::span<std::int64_t> sum, std::span<const std::size_t> places) const {
      all_->sums_[rank_] = sum.data();
      meet();
      // Each rank changes its own part, which nobody else reads.
      for (std::size_t other = 0; other < size(); ++other) {
        if (other == rank_) continue;
        for (std::size_t i = places[rank_]; i < places[rank_ + 1]; ++i) sum[i] += all_->sums_[other][i];
      }
      meet();
    }
    void all_gather(std::span<std::byte> bytes, std::span<const std::size_t> places) const {
      all_->bytes_[rank_] = bytes.data();
      meet();
      for (std::size_t other = 0; other < size(); ++other) {
        if (other == rank_ || places[other] == places[other + 1]) continue;
        std::memcpy(bytes.data() + places[other], all_->bytes_[other] + places[other],
                    places[other + 1] - places[other]);
      }
      meet();
    }

   private:
    void meet() const { all_->meet(rank_); }
    thread_ranks* all_;
    std::size_t rank_;
  };

 private:
  void meet(std::size_t rank) {
    std::unique_lock lock{mutex_};
    if (is_broken_) fail(rank);
    if (++arrived_ == bytes_.size()) {
      arrived_ = 0;
      ++meeting_;
      all_are_here_.notify_all();
      return;
    }
    const std::uint64_t mine = meeting_;
    const bool came = all_are_here_.wait_for(lock, patience_, [&] { return meeting_ != mine || is_broken_; });
    if (meeting_ != mine) return;
    if (!came) is_broken_ = true;
    all_are_here_.notify_all();
    fail(rank);
  }
  [[noreturn]] void fail(std::size_t rank) const {
    throw rank_failed("pergrad: rank " + std::to_string(rank) + " waited " + std::to_string(patience_.count()) +
                      " ms for the others: one of them is gone, or hangs");
  }

  std::chrono::milliseconds patience_;
  std::mutex mutex_;
  std::condition_variable all_are_here_;
  std::size_t arrived_ = 0;
  std::uint64_t meeting_ = 0;
  bool is_broken_ = false;
  std::vector<std::int64_t*> sums_;
  std::vector<std::byte*> bytes_;
};

}  // namespace pergrad::inline v0_1
