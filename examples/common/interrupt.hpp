// SPDX-License-Identifier: Apache-2.0
// examples/common/interrupt.hpp - Ctrl-C asks the program to end; only the third one ends it
//
// One signal may arrive twice (timeout(1) sends it to the process and to its group), so the second is not yet
// impatience. A closed terminal or pipe never is: it may send a signal for every line that is printed.
#pragma once

#include <csignal>
#include <cstdlib>
#include <initializer_list>

namespace example {

namespace interrupt {

inline volatile std::sig_atomic_t signals = 0;

extern "C" inline void on_signal(int number) {
  const bool is_closed = number == SIGHUP || number == SIGPIPE;
  if (!is_closed || signals == 0) signals = signals + 1;
  if (signals >= 3) std::_Exit(130);
}

}  // namespace interrupt

/// From now on these signals only make interrupted() true. SIGUSR1 is the one that mpirun passes on to all ranks
/// without ending them itself.
inline void catch_interrupts() noexcept {
  for (const int number : {SIGINT, SIGTERM, SIGUSR1, SIGPIPE}) {
    static_cast<void>(std::signal(number, interrupt::on_signal));
  }
  const auto before = std::signal(SIGHUP, interrupt::on_signal);
  if (before == SIG_IGN) static_cast<void>(std::signal(SIGHUP, before));  // nohup
}

[[nodiscard]] inline bool interrupted() noexcept { return interrupt::signals > 0; }

}  // namespace example
