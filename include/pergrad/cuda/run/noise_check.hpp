// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/run/noise_check.hpp - a device makes the host's noise before it may release anything
//
// Wrong noise looks like any other, and protects nobody. So a trainer lets its device make two blocks of it under a key
// that is no secret and compares each released number with the host's: once as the run will have it, and once with so
// large a deviation that most roundings need more bits. A compiler, a driver or a processor that does something else is
// refused. It takes two launches when a trainer is made, which the first step then need not wait for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

#include <pergrad/cuda/device/device.hpp>
#include <pergrad/cuda/kernels/release.hpp>
#include <pergrad/cuda/run/memory.hpp>

namespace pergrad::inline v0_1::on_device {

/// Of a device whose kernels run: one that only writes them down makes no noise.
template <class Device>
inline constexpr bool runs_kernels = !requires {
  Device::is_only_listed;
};

/// Throws std::runtime_error unless the device releases what the host does, with this noise on this grid and with the
/// largest.
template <class Scalar, device Device>
[[gnu::cold]] void require_the_hosts_noise(const std::shared_ptr<Device>& device, const noise_on_grid& grid) {
  constexpr int count = 2 * release_elements;
  struct release_at {
    step_state state;
    std::int64_t sums[count]{};
    Scalar released[count]{};
  };
  const chacha_key key{{1, 2, 3, 4, 5, 6, 7, 8}};
  const auto made = std::make_unique<release_at>();
  made->state.noise_step = 0x1'0000'0002;
  const chacha_nonce nonce = make_nonce(random_purpose::gradient_noise, made->state.noise_step);
  for (int i = 0; i < count; ++i) made->sums[i] = std::int64_t{i - count / 2} * 0x12345;
  const std::shared_ptr<std::byte> memory = allocate_on(device, sizeof(release_at));
  auto& there = *reinterpret_cast<release_at*>(memory.get());
  device->upload(&there, made.get(), sizeof(release_at));

  for (const noise_on_grid& each : {grid, noise_on_grid::of(pergrad::detail::most_sigma, grid.scale)}) {
    const release_kernel<Scalar> kernel{{.state = &there.state,
                                         .settings = {.noise = stream_upload::words(key, nonce), .grid = each},
                                         .sums = there.sums,
                                         .end = count,
                                         .released = there.released}};
    device->launch(kernel, kernel.blocks());
    device->download(made.get(), &there, sizeof(release_at));
    alignas(64) double k[pergrad::detail::gaussian_block];
    for (int i = 0; i < count; ++i) {
      const int of_block = i % release_elements;
      if (of_block == 0) {
        pergrad::detail::fill_rounded_gaussians<pergrad::detail::native_lanes, Scalar>(
            key, nonce, static_cast<std::uint64_t>(i / release_elements), each.sigma, k);
      }
      const auto expected =
          pergrad::detail::released_value<Scalar>(static_cast<double>(made->sums[i]) + k[of_block], each.scale);
      if (made->released[i] == expected) continue;
      throw std::runtime_error(
          "pergrad: dp_sgd: this device does not make the host's noise, and releases nothing: number " +
          std::to_string(i) + " of a test is " + std::to_string(made->released[i]) + " and should be " +
          std::to_string(expected));
    }
  }
}

}  // namespace pergrad::inline v0_1::on_device
