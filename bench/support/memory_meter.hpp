// SPDX-License-Identifier: Apache-2.0
// bench/support/memory_meter.hpp - how much memory a piece of work really uses, measured page by page
//
// The benchmarks' program replaces operator new (memory_meter.cpp). While a meter lives, every block of 64 KiB or more
// gets fresh pages of its own, so that the kernel can be asked which of them were ever touched: what was reserved and
// never written costs nothing and is told apart. Smaller blocks count in full. Not counted: stacks, and whatever was
// allocated before, such as a data set. The numbers depend on the work alone, not on what ran before it in the same
// process.
#pragma once

#include <cstddef>

namespace bench {

/// Meters everything that is allocated with operator new during its life, on all threads. One at a time.
class memory_meter {
 public:
  memory_meter();
  ~memory_meter();
  memory_meter(const memory_meter&) = delete;
  memory_meter& operator=(const memory_meter&) = delete;

  /// Bytes in use at the worst moment so far: small blocks, and pages of large blocks that were touched.
  [[nodiscard]] std::size_t touched_bytes() const;
  /// Bytes asked for at the worst moment so far, touched or not.
  [[nodiscard]] std::size_t reserved_bytes() const;
};

}  // namespace bench
