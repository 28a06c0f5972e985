// SPDX-License-Identifier: Apache-2.0
// pergrad/host/plan/windows.hpp - an affine layer's windows: halos, and the stride phases of the input gradient
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include <pergrad/gradients/factors.hpp>
#include <pergrad/graph/layout.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1::on_host {

/// Does the layer take its whole input as one pixel? Then it can read it wherever it lies.
[[nodiscard]] constexpr bool takes_one_pixel(const affine_map& map) {
  return map.in_size == extent{1} && map.kernel == extent{1} && map.out_size == extent{1} && map.padding == extent{0} &&
         map.groups == 1 && !map.adjoint;
}
/// Is every output a function of one pixel, that at its own place?
[[nodiscard]] constexpr bool sees_pixels(const affine_map& map) {
  return map.kernel == extent{1} && map.stride == extent{1} && map.padding == extent{0} &&
         map.in_size == map.out_size && map.groups == 1 && !map.adjoint;
}
/// A linear layer on a flattened image is the convolution whose one window is the image: nothing needs to move.
/// Precondition: PyTorch numbers the image channels first, or it is one pixel.
[[nodiscard]] constexpr affine_map on_stored_image(affine_map map, arrangement in) {
  map.in_channels = static_cast<std::size_t>(in.channels);
  map.in_size = {static_cast<std::size_t>(in.depth), static_cast<std::size_t>(in.height),
                 static_cast<std::size_t>(in.width)};
  map.kernel = map.in_size;
  return map;
}

/// Zeros that the windows of one axis read beyond its end.
[[nodiscard]] constexpr index beyond(std::size_t out, std::size_t stride, std::size_t dilation, std::size_t kernel,
                                     std::size_t padding, std::size_t size) {
  const auto last = static_cast<index>((out - 1) * stride + dilation * (kernel - 1) + 1);
  return std::max<index>(0, last - static_cast<index>(padding + size));
}
[[nodiscard]] constexpr halo forward_halo(const affine_map& map) {
  return {static_cast<index>(map.padding.height),
          static_cast<index>(map.padding.width),
          beyond(map.out_size.height, map.stride.height, map.dilation.height, map.kernel.height, map.padding.height,
                 map.in_size.height),
          beyond(map.out_size.width, map.stride.width, map.dilation.width, map.kernel.width, map.padding.width,
                 map.in_size.width),
          static_cast<index>(map.padding.depth),
          beyond(map.out_size.depth, map.stride.depth, map.dilation.depth, map.kernel.depth, map.padding.depth,
                 map.in_size.depth)};
}
[[nodiscard]] constexpr bool sees_everything_once(const affine_map& map) {
  return map.out_size == extent{1} && map.padding == extent{0} && map.kernel == map.in_size &&
         map.dilation == extent{1} && map.groups == 1 && !map.adjoint;
}

/// Along one axis: inputs i with (i + padding) mod stride == phase are reached by the taps first_tap + n·tap_step, and
/// tap n of input first_input + q·stride reads delta at first_delta + q - n·delta_step.
struct phase {
  index first_input = 0;
  index inputs = 0;
  index first_tap = 0;
  index tap_step = 1;
  index taps = 0;
  index first_delta = 0;
  index delta_step = 1;
};
[[nodiscard, gnu::noinline]] constexpr phase phase_of(index number, index size, index kernel, index stride,
                                                      index padding, index dilation) {
  phase result;
  result.first_input = ((number - padding) % stride + stride) % stride;
  result.inputs = result.first_input < size ? (size - result.first_input + stride - 1) / stride : 0;
  while (result.first_tap < kernel && (result.first_tap * dilation) % stride != number % stride) ++result.first_tap;
  if (result.first_tap == kernel) return result;
  while ((result.tap_step * dilation) % stride != 0) ++result.tap_step;
  result.taps = (kernel - 1 - result.first_tap) / result.tap_step + 1;
  result.delta_step = result.tap_step * dilation / stride;
  result.first_delta = (result.first_input + padding - result.first_tap * dilation) / stride;
  return result;
}

/// Calls f(plane phase, row phase, column phase) for all stride phases of the input gradient.
template <class Function>
inline void for_each_phase(const affine_map& map, Function&& f) {
  const auto number = [](std::size_t value) { return static_cast<index>(value); };
  for (index d = 0; d < number(map.stride.depth); ++d) {
    const phase planes = phase_of(d, number(map.in_size.depth), number(map.kernel.depth), number(map.stride.depth),
                                  number(map.padding.depth), number(map.dilation.depth));
    for (index r = 0; r < number(map.stride.height); ++r) {
      const phase rows = phase_of(r, number(map.in_size.height), number(map.kernel.height), number(map.stride.height),
                                  number(map.padding.height), number(map.dilation.height));
      for (index s = 0; s < number(map.stride.width); ++s) {
        const phase columns = phase_of(s, number(map.in_size.width), number(map.kernel.width), number(map.stride.width),
                                       number(map.padding.width), number(map.dilation.width));
        f(planes, rows, columns);
      }
    }
  }
}

/// Zeros that the input gradient's windows read before and after delta, along one axis.
[[nodiscard]] constexpr std::array<index, 2> backward_reach(std::size_t size, std::size_t out, std::size_t kernel,
                                                            std::size_t stride, std::size_t padding,
                                                            std::size_t dilation) {
  std::array<index, 2> reach{};
  for (std::size_t number = 0; number < stride; ++number) {
    const phase p = phase_of(static_cast<index>(number), static_cast<index>(size), static_cast<index>(kernel),
                             static_cast<index>(stride), static_cast<index>(padding), static_cast<index>(dilation));
    if (p.taps == 0 || p.inputs == 0) continue;
    reach[0] = std::max(reach[0], (p.taps - 1) * p.delta_step - p.first_delta);
    reach[1] = std::max(reach[1], p.first_delta + p.inputs - static_cast<index>(out));
  }
  return reach;
}
[[nodiscard]] constexpr halo backward_halo(const affine_map& map) {
  const auto rows = backward_reach(map.in_size.height, map.out_size.height, map.kernel.height, map.stride.height,
                                   map.padding.height, map.dilation.height);
  const auto planes = backward_reach(map.in_size.depth, map.out_size.depth, map.kernel.depth, map.stride.depth,
                                     map.padding.depth, map.dilation.depth);
  const auto columns = backward_reach(map.in_size.width, map.out_size.width, map.kernel.width, map.stride.width,
                                      map.padding.width, map.dilation.width);
  return {rows[0], columns[0], rows[1], columns[1], planes[0], planes[1]};
}

}  // namespace pergrad::inline v0_1::on_host
