// SPDX-License-Identifier: Apache-2.0
// pergrad/detail/aligned_buffer.hpp - one zero-filled, cache-line aligned allocation that is reserved once and never
// grows
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <memory>
#include <new>
#include <span>
#include <utility>

#include <pergrad/detail/error_text.hpp>
#if defined(__linux__)
#include <sys/mman.h>

#include <unistd.h>
#endif

namespace pergrad::inline v0_1::detail {

/// Asks for memory that nobody fills: pages that are never written then cost nothing.
struct uninitialised_t {};
inline constexpr uninitialised_t uninitialised{};

inline constexpr std::size_t huge_page = std::size_t{1} << 21U;

/// Room for `count` values of `size` bytes. Throws as aligned_buffer says.
[[gnu::noinline]] inline void* reserve(std::size_t count, std::size_t size, std::align_val_t alignment,
                                       const char* what) {
  void* memory = nullptr;
  if (count <= std::numeric_limits<std::size_t>::max() / size) {
    memory = ::operator new(count* size, alignment, std::nothrow);
  }
  if (memory == nullptr) {
    throw_runtime_error({"pergrad: no memory for ", what, ": ", count, " values of ", size, " bytes"});
  }
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  // A request, not a condition: products walk through large matrices faster than small pages can be looked up.
  if (alignment == std::align_val_t{huge_page}) ::madvise(memory, count * size / huge_page * huge_page, MADV_HUGEPAGE);
#endif
  return memory;
}

/// For values that nobody reads any more: their memory goes back to the system where it can, page by page, and comes
/// again when they are written.
inline void forget([[maybe_unused]] std::span<std::byte> values) noexcept {
#if defined(__linux__) && defined(MADV_DONTNEED)
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* first = values.data();
  std::size_t bytes = values.size();
  if (std::align(page, page, first, bytes) != nullptr) ::madvise(first, bytes / page * page, MADV_DONTNEED);
#endif
}

struct give_back {
  std::align_val_t alignment{64};
  void operator()(void* memory) const noexcept { ::operator delete(memory, alignment); }
};

/// The memory of an aligned_buffer, whatever lies in it: one piece of code for all types.
class aligned_memory {
 public:
  aligned_memory() = default;
  [[gnu::noinline]] aligned_memory(std::size_t count, std::size_t size, std::size_t together, const char* what)
      : count_{count} {
    if (count == 0) return;
    const std::align_val_t alignment{is_large(count * size, together * size) ? huge_page : 64};
    data_ = {reserve(count, size, alignment, what), give_back{alignment}};
  }
  [[nodiscard]] void* data() const noexcept { return data_.get(); }
  /// What was moved from is empty.
  [[nodiscard]] std::size_t count() const noexcept { return data_ == nullptr ? 0 : count_; }

 private:
  /// Not smaller: of a buffer that is reserved and hardly touched, a huge page would make two megabytes of every touch
  /// (docs/internals/rejected.md).
  [[nodiscard]] static constexpr bool is_large(std::size_t bytes, std::size_t together) {
    return together > 0 && (bytes >= 32 * huge_page || together >= huge_page);
  }
  std::unique_ptr<void, give_back> data_;
  std::size_t count_ = 0;
};

template <class Scalar>
class aligned_buffer {
 public:
  aligned_buffer() = default;
  /// `count` zeros. Throws std::runtime_error with the size and `what` it was for, if the machine has not got them.
  [[gnu::noinline]] aligned_buffer(std::size_t count, const char* what) : aligned_buffer{count, what, uninitialised} {
    std::uninitialized_fill_n(data(), count, Scalar{});
  }
  /// The same without the zeros. `together`: values that are touched together if any of them is; 0: few ever are.
  aligned_buffer(std::size_t count, const char* what, uninitialised_t, std::size_t together = 1)
      : memory_{count, sizeof(Scalar), together, what} {}

  [[nodiscard]] Scalar* data() noexcept { return static_cast<Scalar*>(memory_.data()); }
  [[nodiscard]] const Scalar* data() const noexcept { return static_cast<const Scalar*>(memory_.data()); }
  [[nodiscard]] std::size_t size() const noexcept { return memory_.count(); }
  [[nodiscard]] std::span<Scalar> span() noexcept { return {data(), size()}; }
  [[nodiscard]] std::span<const Scalar> span() const noexcept { return {data(), size()}; }

 private:
  aligned_memory memory_;
};

}  // namespace pergrad::inline v0_1::detail
