// SPDX-License-Identifier: Apache-2.0
// bench/support/peak_memory.hpp - the most memory that a process has held
#pragma once

#include <fstream>
#include <stdexcept>
#include <string>

/// Since it began, or since 5 was written to /proc/self/clear_refs. Not ru_maxrss of getrusage: that begins with what
/// the process held that started this one.
inline double peak_megabytes() {
  std::ifstream file{"/proc/self/status"};
  for (std::string word; file >> word;) {
    if (word != "VmHWM:") continue;
    double kibibytes = 0;
    file >> kibibytes;
    return kibibytes * 1024e-6;
  }
  throw std::runtime_error("/proc/self/status does not say VmHWM");
}
