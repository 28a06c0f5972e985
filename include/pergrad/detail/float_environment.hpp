// SPDX-License-Identifier: Apache-2.0
// pergrad/detail/float_environment.hpp - the rounding that proofs count on, whatever a caller's thread is set to
//
// Bounds and factors are proven for IEEE's default: to nearest, subnormal numbers kept. A program may have set its
// thread otherwise, and a processor may take longer over subnormal numbers, so both are set where they matter: in every
// task of an executor's threads, and in every verb that computes on its caller's thread.
#pragma once

#include <cstdint>

namespace pergrad::inline v0_1::detail {

enum class subnormal_numbers { kept, flushed };

/// Rounds to nearest while it lives, and keeps subnormal numbers or takes them for zeros.
class float_environment {
 public:
  explicit float_environment(subnormal_numbers wanted = subnormal_numbers::kept) noexcept : before_{current()} {
#if defined(__SSE__)
    constexpr std::uint32_t control = 0xffc0;  // the rest are flags of what has happened
    constexpr std::uint32_t to_nearest = 0x1f80;
    constexpr std::uint32_t flush = 0x8040;
    const std::uint32_t now = wanted == subnormal_numbers::kept ? to_nearest : to_nearest | flush;
    changes_ = (before_ & control) != now;
    if (changes_) __builtin_ia32_ldmxcsr(now);
#elif defined(__aarch64__)
    constexpr word control = 0x3c0'0000;
    constexpr word flush = word{1} << 24U;
    const word now = wanted == subnormal_numbers::kept ? 0 : flush;
    changes_ = (before_ & control) != now;
    if (changes_) __asm__ __volatile__("msr fpcr, %0" : : "r"(now));
#else
    static_cast<void>(wanted);
#endif
  }
  float_environment(const float_environment&) = delete;
  float_environment& operator=(const float_environment&) = delete;
  ~float_environment() {
    if (!changes_) return;
#if defined(__SSE__)
    __builtin_ia32_ldmxcsr(before_);
#elif defined(__aarch64__)
    __asm__ __volatile__("msr fpcr, %0" : : "r"(before_));
#endif
  }

 private:
#if defined(__aarch64__)
  using word = std::uint64_t;
#else
  using word = std::uint32_t;
#endif
  [[nodiscard]] static word current() noexcept {
    word now = 0;
#if defined(__SSE__)
    now = __builtin_ia32_stmxcsr();
#elif defined(__aarch64__)
    __asm__ __volatile__("mrs %0, fpcr" : "=r"(now));
#endif
    return now;
  }

  word before_;
  bool changes_ = false;
};

}  // namespace pergrad::inline v0_1::detail
