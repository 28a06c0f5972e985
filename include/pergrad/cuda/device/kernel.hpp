// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/device/kernel.hpp - how a kernel is written: once, as phases, for the device and for a host that
// emulates it
//
// A kernel is a plain struct, trivially copyable, whose members are its arguments:
//
//   template <int Threads>
//   struct scale_kernel {
//     static constexpr int threads = Threads;                      // of a block; a multiple of 32
//     struct shared_type { float partial[Threads / 32]; };         // plain data; uninitialised when a block starts
//     float* values; int count;
//     template <class Block>
//     PERGRAD_HD void operator()(const Block& block) const {
//       auto& shared = block.template shared<shared_type>();
//       typename Block::template local<float> own;                 // one value a thread
//       block.each([&](int t) { own[t] = values[t]; });            // a phase: every thread runs it, then a barrier
//       const float total = block.sum(own, shared.partial);        // collective; every thread gets it; barriers around
//       block.once([&] { values[0] = total; });                    // one thread runs it, then a barrier
//     }
//   };
//
// On the device a phase is the body of a thread and a barrier (kernel.cuh); here it is a loop over the threads of a
// block, in an order that a test chooses. So every kernel runs under the sanitizers, and one that forgets a barrier
// gives other bits in another order. Rules:
//   - between phases, code must be uniform: it runs once here and in every thread there
//   - `block.warps([&](const auto& warp) { ... })` makes each warp a block of its own for a while
//   - `block.overlap(begin, together, end)` is one phase in which threads read what is far away, then do something
//     together, `block.multiply_by_warps(sums, f)` say, and then write what they have read: no barrier stands between
//   - two threads may touch the same element in one phase only if both read it; likewise two blocks in one launch
//   - no atomics but `add_to`, of integers, which have no order; other sums go through `sum`, whose order of additions
//     is the same on both sides, or through a chain of one thread
//   - template arguments are ints, sizes and public structs at namespace scope, never a network
//   - what must have the same bits on host and device says `fma` where it means one
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <pergrad/cuda/device/tensor.hpp>
#include <pergrad/detail/host_device.hpp>
#include <pergrad/detail/limits.hpp>
#include <pergrad/simd/rounded.hpp>

#ifdef __CUDACC__
/// Before a loop whose counter chooses registers.
#define PERGRAD_UNROLL _Pragma("unroll")
/// Before a loop of few rounds that stands in many places: four copies of each would only be more to compile.
#define PERGRAD_ROLLED _Pragma("unroll 1")
/// Before a loop whose next round is to load while one computes.
#define PERGRAD_IN_PAIRS _Pragma("unroll 2")
/// Before a loop for which ptxas lacks registers for compute capability 11.0.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
#define PERGRAD_ROLLED_LATE _Pragma("unroll 1")
#else
#define PERGRAD_ROLLED_LATE
#endif
#else
#define PERGRAD_UNROLL
#define PERGRAD_ROLLED
#define PERGRAD_IN_PAIRS
#define PERGRAD_ROLLED_LATE
#endif

namespace pergrad::inline v0_1::on_device {

/// Threads that exchange values without a barrier.
inline constexpr int warp_size = 32;

// What kernels compute with.
using rounded::add;
using rounded::fma;
using rounded::multiply;
using rounded::square_root;

/// Rounds to the 10 bits of TF32's fraction, to nearest, ties away from zero, as tensor cores' own conversion does;
/// overflows to infinity, keeps NaN.
[[nodiscard]] PERGRAD_HD inline float round_to_tf32(float x) noexcept {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  std::uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return __uint_as_float(bits);
#else
  const std::uint32_t to_nearest = (__builtin_bit_cast(std::uint32_t, x) + 0x1000U) & ~0x1fffU;  // of infinity the same
  return x == x ? __builtin_bit_cast(float, to_nearest) : x;
#endif
}
/// The nearest integer; where there are two, the even one.
[[nodiscard]] PERGRAD_HD inline std::int64_t to_integer(float x) noexcept {
#ifdef __CUDA_ARCH__
  return __float2ll_rn(x);
#else
  return __builtin_llrintf(x);
#endif
}
/// The same of less than 2^31.
[[nodiscard]] PERGRAD_HD inline std::int32_t to_small_integer(float x) noexcept {
#ifdef __CUDA_ARCH__
  return __float2int_rn(x);
#else
  return static_cast<std::int32_t>(__builtin_llrintf(x));
#endif
}
[[nodiscard]] PERGRAD_HD inline std::int64_t to_integer(double x) noexcept {
#ifdef __CUDA_ARCH__
  return __double2ll_rn(x);
#else
  return __builtin_llrint(x);
#endif
}

/// Are squares of floats that were added up in float what this sum says? Not where tiny ones vanished or huge ones
/// overflowed: those are squared in double.
[[nodiscard]] PERGRAD_HD inline bool holds_squares_in_float(double sum) noexcept {
  return sum >= 0x1p-80 && sum <= limits::largest<double>;
}

/// sum += more, where other threads of the launch may add to it, too.
PERGRAD_HD inline void add_to(std::int64_t& sum, std::int64_t more) noexcept {
#ifdef __CUDA_ARCH__
  atomicAdd(reinterpret_cast<unsigned long long*>(&sum), static_cast<unsigned long long>(more));
#else
  sum += more;
#endif
}

/// The value, from here on in a register: ptxas reads an argument of a kernel anew, by an instruction more, for every
/// use that it is far away for; what a warp has exchanged it keeps. All threads of a warp call this, with one value.
template <class Value>
[[nodiscard]] PERGRAD_HD inline Value in_register(Value value) noexcept {
#ifdef __CUDA_ARCH__
  return __shfl_sync(0xffffffffU, value, 0);
#else
  return value;
#endif
}

/// What a sample adds to a sum: itself, or rounded to steps of the grid.
template <class Scalar>
PERGRAD_HD inline void add_share(Scalar& sum, Scalar factor, Scalar value, Scalar /*to_grid*/) noexcept {
  sum = fma(factor, value, sum);
}
template <class Scalar>
PERGRAD_HD inline void add_share(std::int64_t& sum, Scalar factor, Scalar value, Scalar to_grid) noexcept {
  sum += to_integer(multiply(multiply(factor, value), to_grid));
}

/// How shares become whole steps. What is clipped to less than a unit has no more steps than that, and where these are
/// few, 32 bits hold a sum, and nothing of 64 bits is formed for a term. `converted`: by a conversion to 32 bits.
/// `shifted`, in a third of the time: 3 * 2^22 steps are added, so that the last bit of a float is a step, and rounding
/// to it is the addition's.
enum class share_kind : int { any, converted, shifted };
template <share_kind Kind>
class small_shares {
 public:
  static constexpr bool shifted = Kind == share_kind::shifted;
  static constexpr int steps = shifted ? 22 : 26;  ///< of a unit 2^steps at most
  static constexpr int most = 1 << (30 - steps);   ///< shares that are added up
  small_shares() = default;
  /// Of a unit of `to_grid` steps, a power of two.
  explicit small_shares(float to_grid) noexcept
      : scale_{shifted ? 3.0F * (1 << 22) / to_grid : to_grid},
        offset_{shifted ? __builtin_bit_cast(std::uint32_t, scale_) : 0} {}

  /// The same, in registers.
  [[nodiscard]] PERGRAD_HD small_shares at_hand() const noexcept {
    small_shares same;
    same.scale_ = in_register(scale_);
    if constexpr (shifted) same.offset_ = in_register(offset_);
    return same;
  }
  /// A share and `offset`.
  [[nodiscard]] PERGRAD_HD std::uint32_t with_offset(float factor, float value) const noexcept {
    const float product = multiply(factor, value);
    if constexpr (shifted) return __builtin_bit_cast(std::uint32_t, add(product, scale_));
    return static_cast<std::uint32_t>(to_small_integer(multiply(product, scale_)));
  }
  /// The same of a product that nobody else forms, as of a layer of one position: rounded once, to a step.
  [[nodiscard]] PERGRAD_HD std::uint32_t product_with_offset(float factor, float value) const noexcept {
    if constexpr (shifted) return __builtin_bit_cast(std::uint32_t, fma(factor, value, scale_));
    return with_offset(factor, value);
  }
  [[nodiscard]] PERGRAD_HD std::uint32_t offset() const noexcept { return offset_; }
  /// What shares without offsets add up to.
  [[nodiscard]] PERGRAD_HD static std::int64_t whole(std::uint32_t sum) noexcept {
    return static_cast<std::int32_t>(sum);
  }

 private:
  float scale_ = 0;
  std::uint32_t offset_ = 0;
};

/// The pointer, of which a compiler that has lost sight of it learns that it points to no shared memory: loads are
/// faster then.
template <class Value>
[[nodiscard]] PERGRAD_HD inline const Value* in_device_memory(const Value* at) noexcept {
#ifdef __CUDA_ARCH__
  __builtin_assume(__isGlobal(at));
#endif
  return at;
}

/// A pointer that may lie outside of what it points into until an offset is added: of what a position and a tap add to
/// an address, the part that many elements share is added once.
template <class Value>
class base_address {
 public:
  base_address() = default;
  PERGRAD_HD base_address(const Value* at, int offset) noexcept
      : base_address{base_address{reinterpret_cast<std::uintptr_t>(at)}, offset} {}
  /// The same, which the compiler takes for one number: it would rather add it up anew for every element.
  [[nodiscard]] PERGRAD_HD base_address added_up() const noexcept {
    base_address sum = *this;
#ifdef __CUDA_ARCH__
    asm("" : "+l"(sum.at_));
#endif
    return sum;
  }
  /// What lies there: in device memory, there.
  [[nodiscard]] PERGRAD_HD const Value* operator+(int offset) const noexcept {
    const std::uintptr_t at = base_address{*this, offset}.at_;
#ifdef __CUDA_ARCH__
    return static_cast<const Value*>(__cvta_global_to_generic(at));
#else
    return reinterpret_cast<const Value*>(at);  // NOLINT(performance-no-int-to-ptr): that is what it is for
#endif
  }

 private:
  PERGRAD_HD explicit base_address(std::uintptr_t at) noexcept : at_{at} {}
  PERGRAD_HD base_address(base_address before, int offset) noexcept : at_{before.at_} {
    at_ += static_cast<std::uintptr_t>(offset * static_cast<std::int64_t>(sizeof(Value)));
  }
  std::uintptr_t at_ = 0;
};

/// *at if `wanted`, else 0: no branch, and nothing waits for what is read before it is used. `at`: device memory.
template <class Scalar>
[[nodiscard]] PERGRAD_HD inline Scalar read_if(bool wanted, const Scalar* at) noexcept {
#ifdef __CUDA_ARCH__
  Scalar value;
  if constexpr (sizeof(Scalar) == sizeof(float)) {
    asm volatile("{.reg .pred p; setp.ne.s32 p, %2, 0; mov.f32 %0, 0f00000000; @p ld.global.f32 %0, [%1];}"
                 : "=&f"(value)
                 : "l"(at), "r"(static_cast<int>(wanted)));
  } else {
    asm volatile("{.reg .pred p; setp.ne.s32 p, %2, 0; mov.f64 %0, 0d0000000000000000; @p ld.global.f64 %0, [%1];}"
                 : "=&d"(value)
                 : "l"(at), "r"(static_cast<int>(wanted)));
  }
  return value;
#else
  return wanted ? *at : Scalar{0};
#endif
}

/// Rounds to the 7 bits of BF16's fraction, to nearest, ties to even; overflows to infinity, keeps NaN.
[[nodiscard]] PERGRAD_HD inline float round_to_bf16(float x) noexcept {
  const auto bits = __builtin_bit_cast(std::uint32_t, x);
  const std::uint32_t to_nearest = (bits + 0x7fffU + (bits >> 16U & 1U)) & 0xffff'0000U;
  return x == x ? __builtin_bit_cast(float, to_nearest) : x;
}
/// How values are stored that layers hand on, and gradients.
enum class stored_format : int { exact, tf32, bf16 };
/// Only floats are rounded.
[[nodiscard]] PERGRAD_HD inline double stored_as(stored_format /*format*/, double value) noexcept { return value; }
[[nodiscard]] PERGRAD_HD inline float stored_as(stored_format format, float value) noexcept {
  return format == stored_format::exact  ? value
         : format == stored_format::tf32 ? round_to_tf32(value)
                                         : round_to_bf16(value);
}

template <class Value>
[[nodiscard]] PERGRAD_HD constexpr Value smaller_of(Value a, Value b) noexcept {
  return b < a ? b : a;
}
template <class Value>
[[nodiscard]] PERGRAD_HD constexpr Value larger_of(Value a, Value b) noexcept {
  return a < b ? b : a;
}
/// Blocks of `size` that hold `count`.
[[nodiscard]] PERGRAD_HD constexpr int blocks_for(std::int64_t count, int size) noexcept {
  return static_cast<int>((count + size - 1) / size);
}

/// A few values of one thread, for `Block::local<registers<float, 4>>`.
template <class Value, int Count>
struct registers {
  Value values[static_cast<std::size_t>(Count)];
  [[nodiscard]] PERGRAD_HD constexpr Value& operator[](int i) noexcept { return values[i]; }
  [[nodiscard]] PERGRAD_HD constexpr const Value& operator[](int i) const noexcept { return values[i]; }
};

/// A few that lie together and are read at once.
template <class Value, int Count>
struct alignas(Count * sizeof(Value)) element_group {
  Value v[static_cast<std::size_t>(Count)];
};

/// A few numbers next to each other, in one piece.
template <int Count, class Value>
[[nodiscard]] PERGRAD_HD inline element_group<Value, Count> read_group(const Value* at) noexcept {
  element_group<Value, Count> group;
  __builtin_memcpy(&group, __builtin_assume_aligned(at, sizeof group), sizeof group);
  return group;
}

/// What the engine may launch.
template <class Kernel>
concept kernel = std::is_trivially_copyable_v<Kernel> && std::is_trivially_copyable_v<typename Kernel::shared_type> &&
                         Kernel::threads %
                         warp_size ==
                     0 &&
                 Kernel::threads >= warp_size&& Kernel::threads <= 1024;

/// Shared memory of a block: `shared_type`, and what the kernel says that it needs behind it.
template <kernel Kernel>
[[nodiscard]] std::size_t shared_bytes_of(const Kernel& it) noexcept {
  std::size_t bytes = sizeof(typename Kernel::shared_type);
  if constexpr (requires { it.more_shared_bytes(); }) bytes += it.more_shared_bytes();
  return bytes;
}

/// Launches as many blocks as the kernel says.
template <class Device, kernel Kernel>
void launch(Device& device, const Kernel& kernel) {
  device.launch(kernel, kernel.blocks());
}

/// A phase: f(0), ..., f(count - 1), shared out among the threads of a block.
template <class Block, class Function>
PERGRAD_HD void for_each(const Block& block, int count, Function&& f) {
  block.each([&](int t) {
    for (int i = t; i < count; i += Block::threads) f(i);
  });
}

/// In which order the host emulates the threads of a phase and the blocks of a launch.
enum class emulation_order : std::uint32_t { forward, reversed, shuffled };
/// One of the shuffled orders; number 0 is `shuffled`.
[[nodiscard]] constexpr emulation_order shuffled_order(std::uint32_t seed) noexcept {
  return static_cast<emulation_order>(static_cast<std::uint32_t>(emulation_order::shuffled) + seed);
}

namespace emulation {

/// The numbers 0, ..., count - 1 in an order. All orders are i -> factor i + start modulo a power of two, a permutation
/// as the factor is odd; numbers beyond `count` are skipped. So there is one loop for all of them, and each of the many
/// functions that are called in it is compiled once.
struct call_order {
  std::uint32_t size = 1;
  std::uint32_t factor = 1;
  std::uint32_t start = 0;

  /// `salt` makes shuffles differ from each other.
  call_order(emulation_order order, int count, std::uint32_t salt) noexcept {
    while (size < static_cast<std::uint32_t>(count)) size *= 2;
    if (order == emulation_order::forward) return;
    if (order == emulation_order::reversed) {
      factor = ~0U;
      start = size - 1;
      return;
    }
    const std::uint32_t seed = salt + 0x9e3779b9U * (static_cast<std::uint32_t>(order) - 2);
    factor = (2654435761U * (seed + 1)) | 1U;
    start = 40503U * seed + 11U;
  }
  [[nodiscard]] int operator[](std::uint32_t i) const noexcept {
    return static_cast<int>((i * factor + start) & (size - 1));
  }
};

/// Calls f(0), ..., f(count - 1) in the given order.
template <class Function>
void for_each_in_order(emulation_order order, int count, std::uint32_t salt, Function&& f) {
  const call_order calls{order, count, salt};
  for (std::uint32_t i = 0; i < calls.size; ++i) {
    const int at = calls[i];
    if (at < count) f(at);
  }
}

}  // namespace emulation

/// One block of threads as the host emulates it. A model of the `Block` that kernels are written for.
template <int Threads>
class emulated_block {
 public:
  static constexpr int threads = Threads;
  /// One value a thread. Begins as NaN, so that a read before the first write shows.
  template <class Value>
  class local {
   public:
    local() noexcept { std::memset(static_cast<void*>(values_), 0xff, sizeof values_); }
    [[nodiscard]] Value& operator[](int thread) noexcept { return values_[thread]; }
    [[nodiscard]] const Value& operator[](int thread) const noexcept { return values_[thread]; }

   private:
    Value values_[static_cast<std::size_t>(Threads)];
  };

  emulated_block(int index, emulation_order order, void* shared) noexcept
      : index_{index}, order_{order}, shared_{shared} {}

  /// Number of this block in the launch.
  [[nodiscard]] int index() const noexcept { return index_; }
  /// The block's shared memory. One type a kernel.
  template <class Shared>
  [[nodiscard]] Shared& shared() const noexcept {
    return *static_cast<Shared*>(shared_);
  }

  template <class Function>
  void each(Function&& f) const {  // of which there are so many that they have no loop in a function of its own
    const emulation::call_order calls{order_, Threads, static_cast<std::uint32_t>(phase_++)};
    for (std::uint32_t i = 0; i < calls.size; ++i) {
      const int thread = calls[i];
      if (thread < Threads) f(thread);
    }
  }
  template <class Function>
  void once(Function&& f) const {
    ++phase_;
    f();
  }
  /// begin(t) of all threads, together(), end(t) of all threads; then a barrier.
  template <class Begin, class Together, class End>
  void overlap(Begin&& begin, Together&& together, End&& end) const {
    each(begin);
    together();
    each(end);
  }
  /// Adds to the sums of a block's threads, 2 RowPairs rows of 4 ColumnPairs, the products of f(t), their
  /// tensor_fragments<Format, RowPairs, ColumnPairs>, warp by warp, on tensor cores. No barrier.
  template <class Sums, class Function>
  void multiply_by_warps(local<Sums>& sums, Function&& f) const {
    using fragments = decltype(f(0));
    for (int first = 0; first < Threads; first += warp_size) {
      fragments from[warp_size];
      for (int lane = 0; lane < warp_size; ++lane) from[lane] = f(first + lane);
      for (int i = 0; i < fragments::row_pairs; ++i) {
        for (int j = 0; j < 2 * fragments::column_pairs; ++j) {
          tensor_registers operands[warp_size];
          float c[warp_size][4];
          const auto each_result = [&](auto&& move) {
            for (int lane = 0; lane < warp_size; ++lane) {
              for (int number = 0; number < 4; ++number) {
                move(sums[first + lane][place_of_result<fragments>(i, j, number)], c[lane][number]);
              }
            }
          };
          for (int lane = 0; lane < warp_size; ++lane) operands[lane] = registers_of(from[lane], i, j);
          each_result([](float& sum, float& held) { held = sum; });
          emulation::multiply_add(typename fragments::format{}, operands, c);
          each_result([](float& sum, float& held) { sum = held; });
        }
      }
    }
  }
  /// f(warp) for every warp of the block, each of which is a block of its own; then a barrier.
  template <class Function>
  void warps(Function&& f) const {
    emulation::for_each_in_order(order_, Threads / warp_size, static_cast<std::uint32_t>(phase_++), [&](int warp) {
      f(emulated_block<warp_size>{warp, order_, nullptr});
    });
  }
  /// The sum of all threads' values: pairs 16, 8, 4, 2, 1 apart within a warp, then warp after warp.
  template <class Value>
  [[nodiscard]] Value sum(const local<Value>& own,
                          Value (&partial)[static_cast<std::size_t>(Threads / warp_size)]) const noexcept {
    return fold(own, partial, [](Value a, Value b) { return a + b; });
  }
  /// Their largest, in the same way.
  template <class Value>
  [[nodiscard]] Value largest(const local<Value>& own,
                              Value (&partial)[static_cast<std::size_t>(Threads / warp_size)]) const noexcept {
    return fold(own, partial, [](Value a, Value b) { return larger_of(a, b); });
  }

 private:
  template <class Value, class Function>
  [[nodiscard]] Value fold(const local<Value>& own, Value (&partial)[static_cast<std::size_t>(Threads / warp_size)],
                           const Function& f) const noexcept {
    for (int warp = 0; warp < Threads / warp_size; ++warp) {
      Value values[warp_size];
      for (int lane = 0; lane < warp_size; ++lane) values[lane] = own[warp * warp_size + lane];
      for (int apart = warp_size / 2; apart > 0; apart /= 2) {
        for (int lane = 0; lane < apart; ++lane) values[lane] = f(values[lane], values[lane + apart]);
      }
      partial[warp] = values[0];
    }
    Value total = partial[0];
    for (int warp = 1; warp < Threads / warp_size; ++warp) total = f(total, partial[warp]);
    return total;
  }

  int index_;
  emulation_order order_;
  void* shared_;
  mutable int phase_ = 0;
};

}  // namespace pergrad::inline v0_1::on_device
