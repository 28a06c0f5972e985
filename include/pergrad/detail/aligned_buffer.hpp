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

template <class Scalar>
class aligned_buffer {
 public:
  aligned_buffer() = default;
  /// `count` zeros. Throws std::runtime_error with the size and `what` it was for, if the machine has not got them.
  [[gnu::noinline]] aligned_buffer(std::size_t count, const char* what) : aligned_buffer{count, what, uninitialised} {
    std::uninitialized_fill_n(data_.get(), count, Scalar{});
  }
  /// The same without the zeros. `together`: values that are touched together if any of them is.
  [[gnu::noinline]] aligned_buffer(std::size_t count, const char* what, uninitialised_t, std::size_t together = 1)
      : size_{count} {
    if (count == 0) return;
    const std::align_val_t alignment = alignment_of(count, together);
    void* const memory = reserve(count, sizeof(Scalar), alignment, what);
    data_ = {static_cast<Scalar*>(memory), release{alignment}};
  }
  aligned_buffer(const aligned_buffer&) = delete;
  aligned_buffer& operator=(const aligned_buffer&) = delete;
  /// What was moved from is empty: its span says so.
  aligned_buffer(aligned_buffer&& other) noexcept
      : data_{std::move(other.data_)}, size_{std::exchange(other.size_, 0)} {}
  [[gnu::noinline]] aligned_buffer& operator=(aligned_buffer&& other) noexcept {
    data_ = std::move(other.data_);
    size_ = std::exchange(other.size_, 0);
    return *this;
  }
  ~aligned_buffer() = default;

  [[nodiscard]] Scalar* data() noexcept { return data_.get(); }
  [[nodiscard]] const Scalar* data() const noexcept { return data_.get(); }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::span<Scalar> span() noexcept { return {data_.get(), size_}; }
  [[nodiscard]] std::span<const Scalar> span() const noexcept { return {data_.get(), size_}; }

 private:
  /// Not smaller: of a buffer that is reserved and hardly touched, a huge page would make two megabytes of every touch
  /// (docs/internals/rejected.md).
  [[nodiscard]] static constexpr bool is_large(std::size_t count, std::size_t together) {
    return count * sizeof(Scalar) >= 32 * huge_page || together * sizeof(Scalar) >= huge_page;
  }
  [[nodiscard]] static constexpr std::align_val_t alignment_of(std::size_t count, std::size_t together) {
    return std::align_val_t{is_large(count, together) ? huge_page : 64};
  }
  struct release {
    std::align_val_t alignment{64};
    void operator()(Scalar* memory) const noexcept { ::operator delete(static_cast<void*>(memory), alignment); }
  };
  std::unique_ptr<Scalar, release> data_;
  std::size_t size_ = 0;
};

}  // namespace pergrad::inline v0_1::detail
