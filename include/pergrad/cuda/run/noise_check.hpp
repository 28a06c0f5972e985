// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/run/noise_check.hpp - a device makes the host's noise before it may release anything
//
// Wrong noise looks like any other, and protects nobody. So a trainer lets its device make two blocks of it under a key
// that is no secret and compares each released number with the host's: once as the run will have it, and once with so
// large a deviation that most roundings need more bits. A compiler, a driver or a processor that does something else is
// refused. It takes two launches when a trainer is made, which the first step then need not wait for, and one in a step
// whose noise is another one than before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include <pergrad/cuda/device/device.hpp>
#include <pergrad/cuda/kernels/release.hpp>
#include <pergrad/cuda/run/memory.hpp>

namespace pergrad::inline v0_1::on_device {

/// Of one device. Keeps its memory for noise that changes from step to step, until it is told to give it back.
template <class Scalar, device Device>
class noise_check {
 public:
  explicit noise_check(std::shared_ptr<Device> device) : device_{std::move(device)} {}

  /// Throws std::runtime_error unless the device releases what the host does, with this noise on this grid and, at the
  /// first time, with the largest.
  [[gnu::cold]] void require_the_hosts(const noise_on_grid& grid) {
    if (there_ == nullptr) {
      made_ = std::make_unique<release_at>();
      made_->state.noise_step = 0x1'0000'0002;
      for (int i = 0; i < count; ++i) made_->sums[i] = std::int64_t{i - count / 2} * 0x12345;
      there_ = allocate_on(device_, sizeof(release_at));
      device_->upload(there_.get(), made_.get(), sizeof(release_at));
      require(noise_on_grid::of(pergrad::detail::most_sigma, grid.scale));
    }
    require(grid);
  }

  void give_back() noexcept {
    there_.reset();
    made_.reset();
  }

 private:
  static constexpr int count = 2 * release_elements;
  struct release_at {
    step_state state;
    std::int64_t sums[count]{};
    Scalar released[count]{};
  };

  void require(const noise_on_grid& grid) {
    const chacha_key key{{1, 2, 3, 4, 5, 6, 7, 8}};
    const chacha_nonce nonce = make_nonce(random_purpose::gradient_noise, made_->state.noise_step);
    auto& there = *reinterpret_cast<release_at*>(there_.get());
    const release_kernel<Scalar> kernel{{.state = &there.state,
                                         .settings = {.noise = stream_upload::words(key, nonce), .grid = grid},
                                         .sums = there.sums,
                                         .end = count,
                                         .released = there.released}};
    device_->launch(kernel, kernel.blocks());
    device_->download(made_.get(), &there, sizeof(release_at));
    alignas(64) double k[pergrad::detail::gaussian_block];
    for (int i = 0; i < count; ++i) {
      const int of_block = i % release_elements;
      if (of_block == 0) {
        pergrad::detail::fill_rounded_gaussians<pergrad::detail::native_lanes, Scalar>(
            key, nonce, static_cast<std::uint64_t>(i / release_elements), grid.sigma, k);
      }
      const auto expected =
          pergrad::detail::released_value<Scalar>(static_cast<double>(made_->sums[i]) + k[of_block], grid.scale);
      if (made_->released[i] == expected) continue;
      throw std::runtime_error(
          "pergrad: dp_sgd: this device does not make the host's noise, and releases nothing: number " +
          std::to_string(i) + " of a test is " + std::to_string(made_->released[i]) + " and should be " +
          std::to_string(expected));
    }
  }

  std::shared_ptr<Device> device_;
  std::unique_ptr<release_at> made_;
  std::shared_ptr<std::byte> there_;
};

}  // namespace pergrad::inline v0_1::on_device
