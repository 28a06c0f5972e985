// SPDX-License-Identifier: Apache-2.0
// pergrad/simd/processor.hpp - for which targets a program has kernels and which of them runs here
#pragma once

#include <atomic>
#include <string_view>

// The target of the flags: 0 baseline, 1 avx2, 2 avx512.
#if defined(__AVX512F__) && defined(__AVX512CD__) && defined(__AVX512VL__) && defined(__AVX512DQ__) && \
    defined(__AVX512BW__)
#define PERGRAD_OWN_TARGET 2
#define PERGRAD_OWN_KERNELS avx512
#define PERGRAD_OWN_VECTOR_BYTES 64
#define PERGRAD_OWN_VECTOR_REGISTERS 32
#elif defined(__AVX2__) && defined(__FMA__)
#define PERGRAD_OWN_TARGET 1
#define PERGRAD_OWN_KERNELS avx2
#define PERGRAD_OWN_VECTOR_BYTES 32
#define PERGRAD_OWN_VECTOR_REGISTERS 16
#else
#define PERGRAD_OWN_TARGET 0
#define PERGRAD_OWN_KERNELS baseline
#if defined(__AVX__)
#define PERGRAD_OWN_VECTOR_BYTES 32
#else
#define PERGRAD_OWN_VECTOR_BYTES 16
#endif
#if defined(__aarch64__)
#define PERGRAD_OWN_VECTOR_REGISTERS 32
#else
#define PERGRAD_OWN_VECTOR_REGISTERS 16
#endif
#endif

// The best target that is compiled. A program that runs on one kind of processor only may define
// PERGRAD_NO_KERNEL_DISPATCH; device compilers do not know the built-ins of other targets.
#if defined(__x86_64__) && !defined(PERGRAD_NO_KERNEL_DISPATCH) && !defined(__CUDACC__)
#define PERGRAD_BEST_TARGET 2
#else
#define PERGRAD_BEST_TARGET PERGRAD_OWN_TARGET
#endif

namespace pergrad::inline v0_1::on_host {

/// Kernels for one kind of processor, from the least to the best. A program has those from the one that its flags allow
/// upwards, and uses the best that the processor and the operating system can run.
///
/// * `baseline`: what the flags allow below avx2 (SSE2 on x86-64, NEON on aarch64)
/// * `avx2`: AVX2 and fused multiply-add
/// * `avx512`: AVX-512 F, CD, VL, DQ and BW
enum class kernel_target : unsigned char { baseline, avx2, avx512 };

/// The target's name.
[[nodiscard]] constexpr std::string_view name_of(kernel_target target) noexcept {
  constexpr std::string_view names[] = {"baseline", "avx2", "avx512"};
  return names[static_cast<int>(target)];
}

/// The target of the compiler's flags.
inline constexpr kernel_target own_kernel_target{PERGRAD_OWN_TARGET};
/// The best target that is compiled.
inline constexpr kernel_target best_kernel_target{PERGRAD_BEST_TARGET};

/// A name out of the namespace of one target's kernels, which must be compiled into the program.
#if PERGRAD_OWN_TARGET == PERGRAD_BEST_TARGET
#define PERGRAD_OF_TARGET(target, ...) (static_cast<void>(target), PERGRAD_OWN_KERNELS::__VA_ARGS__)
#elif PERGRAD_OWN_TARGET == 1
#define PERGRAD_OF_TARGET(target, ...) \
  ((target) == ::pergrad::on_host::kernel_target::avx512 ? avx512::__VA_ARGS__ : avx2::__VA_ARGS__)
#else
#define PERGRAD_OF_TARGET(target, ...)                                         \
  ((target) == ::pergrad::on_host::kernel_target::avx512 ? avx512::__VA_ARGS__ \
   : (target) == ::pergrad::on_host::kernel_target::avx2 ? avx2::__VA_ARGS__   \
                                                         : PERGRAD_OWN_KERNELS::__VA_ARGS__)
#endif

/// Whether a target is compiled into this program and runs on this processor.
[[nodiscard]] inline bool runs_here(kernel_target target) noexcept {
  if (target == own_kernel_target) return true;
  if (target < own_kernel_target || target > best_kernel_target) return false;
#if PERGRAD_OWN_TARGET < PERGRAD_BEST_TARGET
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (target == kernel_target::avx2) return avx2;
  return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512cd") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
#else
  return false;
#endif
}

namespace processor_detail {

#if PERGRAD_OWN_TARGET < PERGRAD_BEST_TARGET
inline std::atomic<kernel_target>& chosen_kernel_target() noexcept {
  static std::atomic<kernel_target> chosen{runs_here(kernel_target::avx512) ? kernel_target::avx512
                                           : runs_here(kernel_target::avx2) ? kernel_target::avx2
                                                                            : own_kernel_target};
  return chosen;
}
#endif

}  // namespace processor_detail

/// The target whose kernels run: asked from the processor once.
[[nodiscard]] inline kernel_target kernel_target_in_use() noexcept {
#if PERGRAD_OWN_TARGET < PERGRAD_BEST_TARGET
  return processor_detail::chosen_kernel_target().load(std::memory_order_relaxed);
#else
  return own_kernel_target;
#endif
}

/// From now on this target's kernels run, in all threads; for tests and measurements. False, and nothing changes, where
/// `runs_here` is false. Not while an evaluation is under way.
inline bool use_kernel_target(kernel_target target) noexcept {
  if (!runs_here(target)) return false;
#if PERGRAD_OWN_TARGET < PERGRAD_BEST_TARGET
  processor_detail::chosen_kernel_target().store(target, std::memory_order_relaxed);
#endif
  return true;
}

}  // namespace pergrad::inline v0_1::on_host
