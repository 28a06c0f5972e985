// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/kernels/geometry.hpp - addresses of an affine map's view, in either direction, without a division
#pragma once

#include <cstddef>
#include <cstdint>

#include <pergrad/cuda/device/kernel.hpp>
#include <pergrad/cuda/kernels/tables.hpp>

namespace pergrad::inline v0_1::on_device {

/// Division of 0 <= n < 2^31 by a fixed number, as a product and a shift (Granlund and Montgomery 1994, fig. 4.1).
class divisor {
 public:
  divisor() = default;
  /// Precondition: by >= 1.
  constexpr explicit divisor(int by) noexcept : by_{static_cast<std::uint32_t>(by)} {
    while ((std::uint64_t{1} << shift_) < by_) ++shift_;
    const std::uint64_t power = std::uint64_t{1} << 32U;
    factor_ = static_cast<std::uint32_t>(power * ((std::uint64_t{1} << shift_) - by_) / by_ + 1);
  }

  [[nodiscard]] PERGRAD_HD constexpr int quotient(int n) const noexcept {
    const auto number = static_cast<std::uint32_t>(n);
    const auto high = static_cast<std::uint32_t>((std::uint64_t{number} * factor_) >> 32U);
    return static_cast<int>((high + number) >> shift_);
  }
  /// Replaces n by its quotient and returns the remainder.
  [[nodiscard]] PERGRAD_HD constexpr int divide(int& n) const noexcept {
    const int whole = quotient(n);
    const int rest = n - whole * static_cast<int>(by_);
    n = whole;
    return rest;
  }
  [[nodiscard]] PERGRAD_HD constexpr int value() const noexcept { return static_cast<int>(by_); }

 private:
  std::uint32_t by_ = 1;
  std::uint32_t factor_ = 1;
  std::uint32_t shift_ = 0;
};

/// Addresses of one group of an `affine_view`. Element k = (channel, tap) of view t; an element of y is (output, t).
struct geometry {
  affine_view view;
  divisor taps;
  divisor kernel_height, kernel_width;
  divisor out_height, out_width, positions;
  divisor in_height, in_width, pixels;
  divisor stride[axes];
  divisor width;       ///< of the view
  int contiguous = 0;  ///< one position whose view is x itself, in order

  geometry() = default;
  constexpr explicit geometry(const affine_view& of)
      : view{of},
        taps{of.taps()},
        kernel_height{of.kernel[1]},
        kernel_width{of.kernel[2]},
        out_height{of.out[1]},
        out_width{of.out[2]},
        positions{of.positions()},
        in_height{of.in[1]},
        in_width{of.in[2]},
        pixels{of.pixels()},
        stride{divisor{of.stride[0]}, divisor{of.stride[1]}, divisor{of.stride[2]}},
        width{of.view_width()} {
    bool in_order = of.positions() == 1 && of.y_output == 1;
    for (int k = 0; in_order && k < of.view_width(); ++k) in_order = x_offset(0, 0, k) == k;
    contiguous = in_order ? 1 : 0;
  }

  /// Where group `group`'s view t of x has element k; negative: in the padding.
  [[nodiscard]] PERGRAD_HD constexpr int x_offset(int group, int t, int k) const noexcept {
    if (contiguous != 0) return group * view.x_group + k;
    const int tap = taps.divide(k);
    int offset = group * view.x_group + k * view.x_channel;
    int at[axes] = {0, 0, 0};
    int of_kernel[axes] = {0, 0, 0};
    split(t, out_height, out_width, at);
    split(tap, kernel_height, kernel_width, of_kernel);
    bool inside = true;
    for (int axis = 0; axis < axes; ++axis) {
      const int pixel = at[axis] * view.stride[axis] - view.padding[axis] + of_kernel[axis] * view.dilation[axis];
      inside = inside && pixel >= 0 && pixel < view.in[axis];
      offset += pixel * view.x_step[axis];
    }
    return inside ? offset : -1;
  }
  /// Where y has group `group`'s output at position t.
  [[nodiscard]] PERGRAD_HD constexpr int y_offset(int group, int output, int t) const noexcept {
    const int offset = group * view.y_group + output * view.y_output;
    if (contiguous != 0) return offset;
    int at[axes] = {0, 0, 0};
    split(t, out_height, out_width, at);
    return offset + at[0] * view.y_step[0] + at[1] * view.y_step[1] + at[2] * view.y_step[2];
  }
  /// Where x has group `group`'s channel at pixel i.
  [[nodiscard]] PERGRAD_HD constexpr int pixel_offset(int group, int channel, int i) const noexcept {
    int at[axes] = {0, 0, 0};
    split(i, in_height, in_width, at);
    return group * view.x_group + channel * view.x_channel + at[0] * view.x_step[0] + at[1] * view.x_step[1] +
           at[2] * view.x_step[2];
  }
  /// Where y has the output whose view sees pixel i at `tap`; negative: there is none.
  [[nodiscard]] PERGRAD_HD constexpr int seen_from(int group, int output, int i, int tap) const noexcept {
    int offset = group * view.y_group + output * view.y_output;
    int pixel[axes] = {0, 0, 0};
    int of_kernel[axes] = {0, 0, 0};
    split(i, in_height, in_width, pixel);
    split(tap, kernel_height, kernel_width, of_kernel);
    bool seen = true;
    for (int axis = 0; axis < axes; ++axis) {
      int position = pixel[axis] + view.padding[axis] - of_kernel[axis] * view.dilation[axis];
      seen = seen && position >= 0;
      if (!seen) position = 0;
      seen = stride[axis].divide(position) == 0 && seen && position < view.out[axis];
      offset += position * view.y_step[axis];
    }
    return seen ? offset : -1;
  }

 private:
  PERGRAD_HD static constexpr void split(int i, const divisor& height, const divisor& width, int (&at)[axes]) noexcept {
    at[2] = width.divide(i);
    at[1] = height.divide(i);
    at[0] = i;
  }
};

/// Samples' values: in their workspaces, or, at a negative place, their inputs in the data set.
template <class Scalar>
struct batch_values {
  Scalar* workspace = nullptr;
  std::int64_t stretch = 0;  ///< from one sample's workspace to the next
  const Scalar* inputs = nullptr;
  const std::uint32_t* ids = nullptr;  ///< records of the samples; nullptr: sample b is record b
  std::int64_t input_size = 0;

  /// Sample b's values at a place that is not in its input.
  [[nodiscard]] PERGRAD_HD Scalar* at(int b, int place) const noexcept { return workspace + b * stretch + place; }
  /// Sample b's values at any place.
  [[nodiscard]] PERGRAD_HD const Scalar* read(int b, int place) const noexcept {
    if (place >= 0) return at(b, place);
    const std::int64_t record = ids == nullptr ? b : static_cast<std::int64_t>(ids[b]);
    return inputs + record * input_size + (-1 - place);
  }
};

}  // namespace pergrad::inline v0_1::on_device
