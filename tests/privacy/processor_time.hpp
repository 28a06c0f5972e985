// SPDX-License-Identifier: Apache-2.0
// tests/privacy/processor_time.hpp - the time that a call takes of a processor, beside other programs
#pragma once

#include <algorithm>
#include <ctime>

/// Seconds of the processor that `call` takes. Where that is more than `most` it is the least of three: a core's other
/// thread and its memory take some more of a call's time, now and then, but never less.
template <class Call>
[[nodiscard]] double processor_seconds(double most, Call&& call) {
  double least = 1e300;
  for (int i = 0; i == 0 || (i < 3 && least > most); ++i) {
    const std::clock_t start = std::clock();
    call();
    least = std::min(least, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }
  return least;
}

/// Whether times say anything about the library: of an optimised program without sanitizers.
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__)
inline constexpr bool times_count = true;
#else
inline constexpr bool times_count = false;
#endif
