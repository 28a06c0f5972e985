// SPDX-License-Identifier: Apache-2.0
// pergrad/detail/processor.hpp - which families of kernels a program has and which of them runs here
#pragma once

#include <atomic>
#include <string_view>

#include <pergrad/detail/vector.hpp>

namespace pergrad::inline v0_1::on_host {

/// Kernels for one kind of processor, from the least to the best. A program has those from the one that its flags allow
/// upwards, and uses the best that the processor and the operating system can run.
///
/// * `baseline`: what the flags allow below avx2 (SSE2 on x86-64, NEON on aarch64)
/// * `avx2`: AVX2 and fused multiply-add
/// * `avx512`: AVX-512 F, VL, DQ and BW
enum class kernel_family : unsigned char { baseline, avx2, avx512 };

/// The family's name.
[[nodiscard]] constexpr std::string_view name_of(kernel_family family) noexcept {
  constexpr std::string_view names[] = {"baseline", "avx2", "avx512"};
  return names[static_cast<int>(family)];
}

/// The family of the compiler's flags.
inline constexpr kernel_family own_kernel_family{PERGRAD_OWN_FAMILY};
/// The best family that is compiled.
inline constexpr kernel_family best_kernel_family{PERGRAD_BEST_FAMILY};

/// Whether a family is compiled into this program and runs on this processor.
[[nodiscard]] inline bool runs_here(kernel_family family) noexcept {
  if (family == own_kernel_family) return true;
  if (family < own_kernel_family || family > best_kernel_family) return false;
#if PERGRAD_OWN_FAMILY < PERGRAD_BEST_FAMILY
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (family == kernel_family::avx2) return avx2;
  return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
#else
  return false;
#endif
}

namespace processor_detail {

#if PERGRAD_OWN_FAMILY < PERGRAD_BEST_FAMILY
inline std::atomic<kernel_family>& chosen_kernel_family() noexcept {
  static std::atomic<kernel_family> chosen{runs_here(kernel_family::avx512) ? kernel_family::avx512
                                           : runs_here(kernel_family::avx2) ? kernel_family::avx2
                                                                            : own_kernel_family};
  return chosen;
}
#endif

}  // namespace processor_detail

/// The family whose kernels run: asked from the processor once.
[[nodiscard]] inline kernel_family kernel_family_in_use() noexcept {
#if PERGRAD_OWN_FAMILY < PERGRAD_BEST_FAMILY
  return processor_detail::chosen_kernel_family().load(std::memory_order_relaxed);
#else
  return own_kernel_family;
#endif
}

/// From now on this family's kernels run, in all threads; for tests and measurements. False, and nothing changes, where
/// `runs_here` is false. Not while an evaluation is under way.
inline bool use_kernel_family(kernel_family family) noexcept {
  if (!runs_here(family)) return false;
#if PERGRAD_OWN_FAMILY < PERGRAD_BEST_FAMILY
  processor_detail::chosen_kernel_family().store(family, std::memory_order_relaxed);
#endif
  return true;
}

}  // namespace pergrad::inline v0_1::on_host
