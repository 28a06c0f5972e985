// SPDX-License-Identifier: Apache-2.0
// pergrad/mpi.hpp - ranks that are processes of MPI; beside the umbrella, as it needs MPI
//
// Every call is begun without blocking and asked for until it is done. A rank that waits longer than its patience says
// so on the standard error stream and ends all with MPI_Abort: what became of the others nobody knows then, and the
// last checkpoint is what is left of the run.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <mpi.h>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <pergrad/ranks.hpp>

namespace pergrad::inline v0_1 {

/// The processes of an MPI communicator. Not copyable; outlives its trainers, and ends before MPI_Finalize.
class mpi_ranks {
 public:
  /// Collective. MPI has to be initialised; only the thread that trains calls it. `patience`: how long a rank waits for
  /// the others in one exchange, which is as long as their records may take. Throws std::runtime_error where MPI fails.
  explicit mpi_ranks(MPI_Comm those, std::chrono::milliseconds patience = std::chrono::minutes{5})
      : patience_{detail::patience_of(patience)} {
    int given = 0;
    MPI_Initialized(&given);
    if (given == 0) throw std::logic_error("pergrad: mpi_ranks: call MPI_Init first");
    if (MPI_Comm_dup(those, &own_) != MPI_SUCCESS) throw std::runtime_error("pergrad: mpi_ranks: MPI_Comm_dup failed");
    MPI_Comm_set_errhandler(own_, MPI_ERRORS_RETURN);
    int rank = 0;
    int size = 0;
    MPI_Comm_rank(own_, &rank);
    MPI_Comm_size(own_, &size);
    rank_ = static_cast<std::size_t>(rank);
    size_ = static_cast<std::size_t>(size);
    counts_.resize(size_);
    displacements_.resize(size_);
    arriving_.resize(size_);
    arrives_at_.resize(size_);
  }
  mpi_ranks(const mpi_ranks&) = delete;
  mpi_ranks& operator=(const mpi_ranks&) = delete;
  ~mpi_ranks() {
    int ended = 0;
    MPI_Finalized(&ended);
    if (ended == 0) MPI_Comm_free(&own_);
  }

  [[nodiscard]] std::size_t rank() const noexcept { return rank_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  void broadcast(std::span<std::byte> bytes, std::size_t from) const {
    for (std::size_t first = 0; first < bytes.size(); first += most_bytes) {
      const std::span<std::byte> piece = bytes.subspan(first, std::min(most_bytes, bytes.size() - first));
      MPI_Request request = MPI_REQUEST_NULL;
      begun(MPI_Ibcast(piece.data(), static_cast<int>(piece.size()), MPI_BYTE, static_cast<int>(from), own_, &request),
            "broadcast");
      wait(request, "broadcast");
    }
  }
  void reduce_scatter(std::span<std::int64_t> sum, std::span<const std::size_t> places) const {
    if (size_ == 1) return;
    // Parts go straight to their owners. Open MPI 4.1's MPI_Ireduce_scatter sends whole sums up a tree to rank 0, which
    // scatters the total: log2(ranks) + 1 times as many bytes through one rank.
    const std::size_t own = places[rank_ + 1] - places[rank_];
    const std::size_t others = size_ - 1;
    for (std::size_t i = 0; i < size_; ++i) {
      counts_[i] = i == rank_ ? 0 : as_int(places[i + 1] - places[i]);
      displacements_[i] = as_int(places[i]);
      arriving_[i] = i == rank_ ? 0 : as_int(own);
      arrives_at_[i] = as_int(own * (i - (i > rank_ ? 1 : 0)));
    }
    parts_.resize(others * own);
    MPI_Request request = MPI_REQUEST_NULL;
    begun(MPI_Ialltoallv(sum.data(), counts_.data(), displacements_.data(), MPI_INT64_T, parts_.data(),
                         arriving_.data(), arrives_at_.data(), MPI_INT64_T, own_, &request),
          "reduce_scatter");
    wait(request, "reduce_scatter");
    std::int64_t* const to = sum.data() + places[rank_];
    for (std::size_t part = 0; part < others; ++part) {
      const std::int64_t* const from = parts_.data() + part * own;
      for (std::size_t i = 0; i < own; ++i) to[i] += from[i];
    }
  }
  void all_gather(std::span<std::byte> bytes, std::span<const std::size_t> places) const {
    if (size_ == 1) return;
    if (bytes.size() > most_bytes) {  // MPI counts in int
      for (std::size_t i = 0; i < size_; ++i) broadcast(bytes.subspan(places[i], places[i + 1] - places[i]), i);
      return;
    }
    for (std::size_t i = 0; i < size_; ++i) {
      counts_[i] = as_int(places[i + 1] - places[i]);
      displacements_[i] = as_int(places[i]);
    }
    MPI_Request request = MPI_REQUEST_NULL;
    begun(MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, bytes.data(), counts_.data(), displacements_.data(),
                          MPI_BYTE, own_, &request),
          "all_gather");
    wait(request, "all_gather");
  }

 private:
  static constexpr std::size_t most_bytes = std::size_t{1} << 30U;
  [[nodiscard]] static int as_int(std::size_t count) {
    if (count > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
      throw std::length_error("pergrad: mpi_ranks: a part of " + std::to_string(count) + " values is too long for MPI");
    }
    return static_cast<int>(count);
  }
  void begun(int code, const char* what) const {
    if (code != MPI_SUCCESS) end(what, "failed: a rank is gone, or MPI has a fault");
  }
  void wait(MPI_Request& request, const char* what) const {
    const auto begin = std::chrono::steady_clock::now();
    for (std::uint64_t asked = 0;; ++asked) {
      int done = 0;
      begun(MPI_Test(&request, &done, MPI_STATUS_IGNORE), what);
      if (done != 0) return;
      if (asked < 1000) {
        std::this_thread::yield();
        continue;
      }
      std::this_thread::sleep_for(std::chrono::microseconds{20});
      if (std::chrono::steady_clock::now() - begin > patience_) end(what, "waited too long for the others");
    }
  }
  [[noreturn]] void end(const char* what, const char* why) const {
    std::fprintf(stderr, "pergrad: rank %zu of %zu: %s %s; all ranks end\n", rank_, size_, what, why);
    MPI_Abort(own_, 1);
    std::abort();
  }

  MPI_Comm own_ = MPI_COMM_NULL;
  std::chrono::milliseconds patience_;
  std::size_t rank_ = 0;
  std::size_t size_ = 1;
  mutable std::vector<int> counts_;
  mutable std::vector<int> displacements_;
  mutable std::vector<int> arriving_;
  mutable std::vector<int> arrives_at_;
  mutable std::vector<std::int64_t> parts_;  ///< of the others, one behind the other
};

}  // namespace pergrad::inline v0_1
