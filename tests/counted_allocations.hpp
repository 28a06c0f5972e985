// SPDX-License-Identifier: Apache-2.0
// tests/counted_allocations.hpp - replaces the heap by one that counts, and fails when told: for exactly one source of
// a test program
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::size_t> allocations{0};
std::atomic<std::size_t> allocated_bytes{0};          // given back or not
std::atomic<std::size_t> most_allocations{SIZE_MAX};  // there is no memory for more

}  // namespace

// All forms that are used, as a sanitizer brings its own of those that are missing. Not inlined, so that the compiler
// does not see malloc behind new and free behind delete, and warn that they mismatch.
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  if (allocations >= most_allocations) return nullptr;
  ++allocations;
  allocated_bytes += bytes;
  return std::malloc(bytes != 0 ? bytes : 1);
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  if (allocations >= most_allocations) return nullptr;
  ++allocations;
  allocated_bytes += bytes;
  const auto unit = static_cast<std::size_t>(alignment);
  return std::aligned_alloc(unit, (bytes / unit + 1) * unit);
}
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  if (void* memory = operator new(bytes, std::nothrow)) return memory;
  throw std::bad_alloc{};
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
  if (void* memory = operator new(bytes, alignment, std::nothrow)) return memory;
  throw std::bad_alloc{};
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
