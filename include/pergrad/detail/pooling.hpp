// SPDX-License-Identifier: Apache-2.0
// pergrad/detail/pooling.hpp - what the pooling layers share: sliding windows, and the mean of a window
#pragma once

#include <algorithm>
#include <cstddef>

#include <pergrad/concepts.hpp>
#include <pergrad/detail/host_device.hpp>
#include <pergrad/detail/math.hpp>
#include <pergrad/detail/mistakes.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1::detail {

/// Windows of one size at equal steps; the stride defaults to the kernel, as in PyTorch.
template <extent Kernel, class... Options>
struct sliding_windows {
  static constexpr window_options options = gather_options<Options...>();
  static constexpr extent step = options.stride_given ? options.stride : Kernel;

  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept {
    return {in.e0, window_count(in.e1, Kernel.height, step.height, options.padding.height, 1),
            window_count(in.e2, Kernel.width, step.width, options.padding.width, 1)};
  }
  [[nodiscard]] static constexpr window_range rows(shape in, std::size_t i) noexcept {
    return inside(i * step.height, Kernel.height, options.padding.height, in.e1);
  }
  [[nodiscard]] static constexpr window_range columns(shape in, std::size_t i) noexcept {
    return inside(i * step.width, Kernel.width, options.padding.width, in.e2);
  }
  /// Values in a window, padding included (PyTorch's `count_include_pad`).
  [[nodiscard]] static constexpr std::size_t divisor(shape /*in*/, std::size_t /*i*/, std::size_t /*j*/) noexcept {
    return Kernel.height * Kernel.width;
  }
  [[nodiscard]] static constexpr mistake check(shape in) noexcept {
    if (options.unknown_given || options.dilation != extent{1} || options.groups != 1 || !options.bias) {
      return mistake::option_not_offered;
    }
    if (in.rank() != 3) return mistake::needs_an_image;
    if (Kernel.height == 0 || Kernel.width == 0 || step.height == 0 || step.width == 0) return mistake::zero_is_no_size;
    if (2 * options.padding.height > Kernel.height || 2 * options.padding.width > Kernel.width) {
      return mistake::pool_padding_too_large;
    }
    const shape out = output_shape(in);
    return out.e1 == 0 || out.e2 == 0 ? mistake::kernel_too_large : mistake::none;
  }

 private:
  [[nodiscard]] static constexpr window_range inside(std::size_t start, std::size_t kernel, std::size_t padding,
                                                     std::size_t size) noexcept {
    const std::size_t end = std::min(start + kernel, size + padding);
    return {start < padding ? 0 : start - padding, end < padding ? 0 : end - padding};
  }
};

/// y = sum / divisor; every input's share of dy is dy / divisor.
struct mean_of_window {
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value start() noexcept {
    return Value{};
  }
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value combine(Value sum, Value x) noexcept {
    return sum + x;
  }
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value finish(Value sum, math::element_t<Value> divisor) noexcept {
    return sum / divisor;
  }
  template <class Value>
  [[nodiscard]] PERGRAD_HD static Value share(Value /*x*/, Value /*y*/, Value& dy,
                                              math::element_t<Value> divisor) noexcept {
    return dy / divisor;
  }
};

}  // namespace pergrad::inline v0_1::detail
