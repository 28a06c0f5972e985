// SPDX-License-Identifier: Apache-2.0
// bench/support/memory_meter.cpp - operator new that can say which of its pages were touched
#include "support/memory_meter.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <malloc.h>
#include <mutex>
#include <new>
#include <unistd.h>

namespace {

constexpr std::size_t large = std::size_t{64} << 10U;

struct mapping {
  void* memory = nullptr;
  std::size_t bytes = 0;
};

std::mutex guard;                    // for everything below
std::array<mapping, 256> mappings;   // blocks with pages of their own, alive
std::atomic<std::size_t> mapped{0};  // how many
std::atomic<bool> metering{false};
std::ptrdiff_t small_bytes = 0;
std::ptrdiff_t large_bytes = 0;
std::ptrdiff_t touched_peak = 0;
std::ptrdiff_t reserved_peak = 0;

/// Pages of a mapping that exist, in bytes.
std::ptrdiff_t touched_bytes(const mapping& block) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::array<unsigned char, 1024> present{};
  std::ptrdiff_t count = 0;
  for (std::size_t first = 0; first < block.bytes; first += page * present.size()) {
    const std::size_t length = std::min(block.bytes - first, page * present.size());
    if (::mincore(static_cast<char*>(block.memory) + first, length, present.data()) != 0) std::abort();
    for (std::size_t i = 0; i < (length + page - 1) / page; ++i) count += present[i] & 1;
  }
  return count * static_cast<std::ptrdiff_t>(page);
}

void note_touched() {
  std::ptrdiff_t now = small_bytes;
  for (const mapping& block : mappings) {
    if (block.memory != nullptr) now += touched_bytes(block);
  }
  touched_peak = std::max(touched_peak, now);
}

void* map(std::size_t size) {
  const std::lock_guard lock{guard};
  for (mapping& block : mappings) {
    if (block.memory != nullptr) continue;
    void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    static_cast<void>(::madvise(memory, size, MADV_NOHUGEPAGE));  // a huge page would count what was not touched
    block = {memory, size};
    ++mapped;
    large_bytes += static_cast<std::ptrdiff_t>(size);
    reserved_peak = std::max(reserved_peak, small_bytes + large_bytes);
    return memory;
  }
  return nullptr;
}

void* allocate(std::size_t size, std::size_t alignment) {
  if (metering && size >= large) {
    if (void* memory = map(size)) return memory;
    throw std::bad_alloc{};
  }
  void* memory =
      std::aligned_alloc(alignment, (std::max<std::size_t>(size, 1) + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc{};
  if (metering) {
    const std::lock_guard lock{guard};
    small_bytes += static_cast<std::ptrdiff_t>(::malloc_usable_size(memory));
    reserved_peak = std::max(reserved_peak, small_bytes + large_bytes);
    if (mapped == 0) touched_peak = std::max(touched_peak, small_bytes);
  }
  return memory;
}

void release(void* memory) noexcept {
  if (memory == nullptr) return;
  if (mapped > 0) {
    const std::lock_guard lock{guard};
    for (mapping& block : mappings) {
      if (block.memory != memory) continue;
      if (metering) note_touched();
      ::munmap(block.memory, block.bytes);
      large_bytes -= static_cast<std::ptrdiff_t>(block.bytes);
      block = {};
      --mapped;
      return;
    }
  }
  if (metering) {
    const std::lock_guard lock{guard};
    const auto size = static_cast<std::ptrdiff_t>(::malloc_usable_size(memory));
    if (size >= static_cast<std::ptrdiff_t>(large) / 4) note_touched();
    small_bytes -= size;
  }
  std::free(memory);  // NOLINT(cppcoreguidelines-no-malloc): this is operator delete
}

}  // namespace

void* operator new(std::size_t size) { return allocate(size, alignof(std::max_align_t)); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return allocate(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { release(memory); }
void operator delete(void* memory, std::size_t) noexcept { release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }

namespace bench {

memory_meter::memory_meter() {
  const std::lock_guard lock{guard};
  small_bytes = large_bytes = touched_peak = reserved_peak = 0;
  metering = true;
}
memory_meter::~memory_meter() { metering = false; }

std::size_t memory_meter::touched_bytes() const {
  const std::lock_guard lock{guard};
  note_touched();
  return static_cast<std::size_t>(touched_peak);
}
std::size_t memory_meter::reserved_bytes() const {
  const std::lock_guard lock{guard};
  return static_cast<std::size_t>(reserved_peak);
}

}  // namespace bench
