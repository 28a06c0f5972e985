// SPDX-License-Identifier: Apache-2.0
// tests/cuda/fake_runtime/kernel_name.hpp - the short name of a kernel, for lists of what a graph does
#pragma once

#include <cstddef>
#include <string>

namespace fake_cuda {

/// "scale_kernel" of the mangled name of run_kernel<...>.
[[nodiscard]] inline std::string short_name(const std::string& mangled) {
  // Identifiers are written with their lengths in front; the kernel's is the last one that ends in "kernel".
  std::string best = mangled;
  for (std::size_t at = 0; at < mangled.size();) {
    std::size_t length = 0;
    std::size_t digits = at;
    while (digits < mangled.size() && mangled[digits] >= '0' && mangled[digits] <= '9') {
      length = 10 * length + static_cast<std::size_t>(mangled[digits] - '0');
      ++digits;
    }
    if (digits == at || digits + length > mangled.size() || length == 0) {
      ++at;
      continue;
    }
    const std::string word = mangled.substr(digits, length);
    if (word != "run_kernel" && word.find("kernel") != std::string::npos) best = word;
    at = digits + length;
  }
  return best;
}

}  // namespace fake_cuda
