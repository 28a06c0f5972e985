// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/kernels/sampling.hpp - Poisson sampling on the device with the host's bits, and gathering of records
//
//   choose_kernel   a block looks at 2048 records (16 tiles of 128, privacy/sampling.hpp) and writes those that are
//                   drawn, ascending, to its own stretch, and how many they are
//   collect_kernel  moves the stretches together: a block adds up the counts before its own; the last one writes their
//                   sum
//   gather_kernel   copies records by their numbers into rows of a batch
// Without atomics: the list is ascending and the same on every device, and the same as the host's.
#pragma once

#include <cstddef>
#include <cstdint>

#include <pergrad/cuda/device/kernel.hpp>
#include <pergrad/cuda/kernels/release.hpp>
#include <pergrad/cuda/kernels/tables.hpp>
#include <pergrad/privacy/sampling.hpp>

namespace pergrad::inline v0_1::on_device {

/// Records that one block of `choose_kernel` looks at: each of its threads makes one ChaCha20 block, for 8 of them.
inline constexpr int chosen_stretch = 2048;

/// Draws the records of a step; blocks() of them.
struct choose_kernel {
  static constexpr int threads = 256;
  struct shared_type {
    std::uint8_t drawn[chosen_stretch];
    std::uint32_t bits[chosen_stretch / 32];
    std::uint32_t before[chosen_stretch / 32];
  };

  const std::uint64_t* step;  ///< of the generator
  random_stream stream;       ///< of the purpose record_sampling and step 0
  std::uint64_t threshold;    ///< floor(q 2^64)
  std::uint32_t everybody;    ///< q is 1
  std::uint32_t record_count;
  std::uint32_t* records;  ///< `chosen_stretch` a block
  std::uint32_t* counts;   ///< one a block

  [[nodiscard]] int blocks() const noexcept { return blocks_for(record_count, chosen_stretch); }

  template <class Block>
  PERGRAD_HD void operator()(const Block& block) const {
    auto& shared = block.template shared<shared_type>();
    const std::uint32_t begin = static_cast<std::uint32_t>(block.index()) * chosen_stretch;
    block.each([&](int t) {
      std::uint32_t words[16] = {};
      if (everybody == 0) {
        make_random_block(at_step(stream, *step), static_cast<std::uint32_t>(threads * block.index() + t), words);
      }
      PERGRAD_UNROLL
      for (int p = 0; p < 8; ++p) {
        const int record = t / 16 * 128 + 16 * p + t % 16;
        const std::uint64_t word = (std::uint64_t{words[p]} << 32U) | words[8 + p];
        const bool drawn =
            begin + static_cast<std::uint32_t>(record) < record_count && (everybody != 0 || word < threshold);
        shared.drawn[record] = drawn ? 1 : 0;
      }
    });
    block.each([&](int t) {
      if (t >= chosen_stretch / 32) return;
      std::uint32_t bits = 0;
      for (int i = 0; i < 32; ++i) bits |= static_cast<std::uint32_t>(shared.drawn[32 * t + i]) << i;
      shared.bits[t] = bits;
    });
    block.once([&] {
      std::uint32_t total = 0;
      for (int word = 0; word < chosen_stretch / 32; ++word) {
        shared.before[word] = total;
        total += ones(shared.bits[word]);
      }
      counts[block.index()] = total;
    });
    block.each([&](int t) {
      if (t >= chosen_stretch / 32) return;
      std::uint32_t* to = records + begin + shared.before[t];
      for (std::uint32_t bits = shared.bits[t]; bits != 0; bits &= bits - 1) {
        *to++ = begin + static_cast<std::uint32_t>(32 * t) + ones((bits - 1) & ~bits);
      }
    });
  }

 private:
  [[nodiscard]] PERGRAD_HD static std::uint32_t ones(std::uint32_t bits) noexcept {
#ifdef __CUDA_ARCH__
    return static_cast<std::uint32_t>(__popc(bits));
#else
    return static_cast<std::uint32_t>(__builtin_popcount(bits));
#endif
  }
};

/// Moves the stretches of `choose_kernel` together; as many blocks.
struct collect_kernel {
  static constexpr int threads = 256;
  struct shared_type {
    std::uint32_t partial[threads / warp_size];
  };

  const std::uint32_t* stretches;
  const std::uint32_t* counts;
  std::uint32_t* records;  ///< room for all
  std::uint32_t* total;    ///< how many were drawn

  template <class Block>
  PERGRAD_HD void operator()(const Block& block) const {
    auto& shared = block.template shared<shared_type>();
    typename Block::template local<std::uint32_t> own;
    block.each([&](int t) {
      own[t] = 0;
      for (int i = t; i < block.index(); i += threads) own[t] += counts[i];
    });
    const std::uint32_t before = block.sum(own, shared.partial);
    const std::uint32_t count = counts[block.index()];
    block.each([&](int t) {
      const std::int64_t begin = static_cast<std::int64_t>(block.index()) * chosen_stretch;
      for (std::uint32_t i = static_cast<std::uint32_t>(t); i < count; i += threads) {
        records[before + i] = stretches[begin + i];
      }
      if (t == 0 && block.index() == block.count() - 1) *total = before + count;
    });
  }
};

/// Row b of `to` becomes record ids[b], for the state's samples; rows behind them become zero. One block a row.
template <class Value, int Threads>
struct gather_kernel {
  static constexpr int threads = Threads;
  struct shared_type {};

  const step_state* state;
  const Value* from;
  const std::uint32_t* ids;
  Value* to;
  std::int64_t size;    ///< of a record
  std::int64_t stride;  ///< of a row

  template <class Block>
  PERGRAD_HD void operator()(const Block& block) const {
    const bool valid = static_cast<std::uint32_t>(block.index()) < state->count;
    const Value* record = valid ? from + static_cast<std::int64_t>(ids[block.index()]) * size : nullptr;
    block.each([&](int t) {
      Value* row = to + block.index() * stride;
      for (std::int64_t i = t; i < size; i += threads) row[i] = valid ? record[i] : Value{0};
    });
  }
};

}  // namespace pergrad::inline v0_1::on_device
