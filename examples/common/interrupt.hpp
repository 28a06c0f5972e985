// SPDX-License-Identifier: Apache-2.0
// examples/common/interrupt.hpp - Ctrl-C asks the program to end; only the third one ends it
//
// One signal may arrive twice (timeout(1) sends it to the process and to its group), so the second is not yet
// impatience.
#pragma once

#include <csignal>
#include <cstdlib>

namespace example {

namespace interrupt {

inline volatile std::sig_atomic_t signals = 0;

extern "C" inline void on_signal(int) {
  signals = signals + 1;
  if (signals >= 3) {
    std::_Exit(130);
  }
}

}  // namespace interrupt

/// From now on SIGINT and SIGTERM only make interrupted() true.
inline void catch_interrupts() noexcept {
  static_cast<void>(std::signal(SIGINT, interrupt::on_signal));
  static_cast<void>(std::signal(SIGTERM, interrupt::on_signal));
}

[[nodiscard]] inline bool interrupted() noexcept { return interrupt::signals > 0; }

}  // namespace example
