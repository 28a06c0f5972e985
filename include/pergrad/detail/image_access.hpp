// SPDX-License-Identifier: Apache-2.0
// pergrad/detail/image_access.hpp - a sample as an image stored channels last, copied only where it is stored otherwise
#pragma once

#include <cstddef>

#include <pergrad/host/layout.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1::detail {

/// The first axis is the channels, all others are pixels.
struct image_extents {
  on_host::index channels;
  on_host::index pixels;

  explicit constexpr image_extents(shape of) noexcept
      : channels{static_cast<on_host::index>(of.e0)}, pixels{static_cast<on_host::index>(of.size() / of.e0)} {}
  [[nodiscard]] constexpr on_host::index size() const noexcept { return channels * pixels; }
  [[nodiscard]] constexpr on_host::layout dense() const noexcept {
    return on_host::lay_out({channels, pixels, 1, true}, {});
  }
  /// Does a layout store the channels of a pixel side by side?
  [[nodiscard]] constexpr bool fits(const on_host::layout& stored) const noexcept {
    return stored.values.channels == channels && stored.values.size() == size() &&
           (stored.values.channels_first || pixels == 1);
  }
};

/// Values to read. `scratch`: room for a copy.
template <class Scalar>
struct image_source {
  on_host::layout at;
  const Scalar* values;

  image_source(image_extents image, const on_host::layout& stored, const Scalar* from, Scalar* scratch) noexcept
      : at{stored}, values{from} {
    if (image.fits(stored)) return;
    at = image.dense();
    values = scratch;
    for (on_host::index i = 0; i < image.size(); ++i) scratch[at.position(i)] = from[stored.position(i)];
  }
};

/// Values to write; null ones stay null. `finish` puts a copy where it belongs.
template <class Scalar>
struct image_target {
  on_host::layout at;
  Scalar* values;

  image_target(image_extents image, const on_host::layout& stored, Scalar* to, Scalar* scratch) noexcept
      : at{stored}, values{to} {
    if (image.fits(stored) || to == nullptr) return;
    at = image.dense();
    values = scratch;
  }
  void finish(image_extents image, const on_host::layout& stored, Scalar* to) const noexcept {
    if (values == to) return;
    for (on_host::index i = 0; i < image.size(); ++i) to[stored.position(i)] = values[at.position(i)];
  }
};

}  // namespace pergrad::inline v0_1::detail
