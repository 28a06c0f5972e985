// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/memory.hpp - what a tape is on a device: the arena of one network, with its tables and parameters
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <pergrad/cuda/device.hpp>
#include <pergrad/cuda/kernels/sample_values.hpp>
#include <pergrad/cuda/layout.hpp>
#include <pergrad/cuda/program.hpp>
#include <pergrad/gradients/clip.hpp>

namespace pergrad::inline v0_1::on_device {

/// Memory of a device, given back when this goes. Not copyable.
template <class Device>
class allocation {
 public:
  allocation() = default;
  allocation(std::shared_ptr<Device> device, std::size_t bytes)
      : device_{std::move(device)}, memory_{device_->allocate(bytes)}, bytes_{bytes} {}
  allocation(allocation&& other) noexcept { swap(other); }
  allocation& operator=(allocation&& other) noexcept {
    swap(other);
    return *this;
  }
  allocation(const allocation&) = delete;
  allocation& operator=(const allocation&) = delete;
  ~allocation() {
    if (memory_ != nullptr) device_->release(memory_);
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  template <class Value>
  [[nodiscard]] Value* at(std::size_t offset) const noexcept {
    return reinterpret_cast<Value*>(static_cast<std::byte*>(memory_) + offset);
  }

 private:
  void swap(allocation& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(memory_, other.memory_);
    std::swap(bytes_, other.bytes_);
  }
  std::shared_ptr<Device> device_;
  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

/// One network on one device, for batches of up to `max_batch` samples. Made once; nothing else is allocated later.
template <class Network, class Device>
class network_memory {
 public:
  using scalar = typename Network::scalar;
  using program_type = program<Network>;
  static constexpr const auto& table = program_type::table;

  network_memory(std::shared_ptr<Device> device, std::size_t max_batch, const device_options& options)
      : device_{std::move(device)},
        max_batch_{max_batch},
        options_{options},
        places_{lay_out<Network>(max_batch)},
        arena_{device_, places_.bytes},
        header_(sizeof(step_state) + max_batch * sizeof(std::uint32_t)) {
    const auto windows = program_type::windows();
    std::vector<int> groups;
    for (std::size_t layer = 0; layer < pergrad::detail::layer_groups<Network>; ++layer) {
      groups.push_back(static_cast<int>(on_host::program<Network>::table.clipping_group[layer]));
    }
    put(places_.ops, table.ops.data(), table.ops.size());
    put(places_.outer, table.outer.data(), static_cast<std::size_t>(table.outer_count));
    put(places_.elementwise, table.elementwise.data(), static_cast<std::size_t>(table.elementwise_count));
    put(places_.integers, windows.integers.data(), windows.integers.size());
    put(places_.scalars, windows.scalars.data(), windows.scalars.size());
    put(places_.groups, groups.data(), groups.size());
  }

  [[nodiscard]] Device& device() const noexcept { return *device_; }
  /// Whether values and gradients are stored as TF32.
  [[nodiscard]] bool tf32() const noexcept { return options_.tf32 && std::is_same_v<scalar, float>; }
  [[nodiscard]] std::size_t max_batch() const noexcept { return max_batch_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return arena_.bytes(); }
  [[nodiscard]] const arena_layout& places() const noexcept { return places_; }
  template <class Value>
  [[nodiscard]] Value* at(std::size_t place) const noexcept {
    return arena_.template at<Value>(place);
  }
  [[nodiscard]] const step_state* state() const noexcept { return at<const step_state>(places_.state); }
  [[nodiscard]] scalar* parameters() const noexcept { return at<scalar>(places_.parameters); }

  /// Copies values to a place of the arena.
  template <class Value>
  void put(std::size_t place, const Value* from, std::size_t count) const {
    if (count > 0) device_->upload(at<Value>(place), from, count * sizeof(Value));
  }
  template <class Value>
  void get(Value* to, std::size_t place, std::size_t count) const {
    if (count > 0) device_->download(to, at<Value>(place), count * sizeof(Value));
  }
  /// Tells the device about the next physical batch, in one upload.
  void announce(const step_state& state, const std::uint32_t* records) {
    std::memcpy(header_.data(), &state, sizeof state);
    if (state.count > 0) {
      std::memcpy(header_.data() + sizeof state, records, state.count * sizeof(std::uint32_t));
    }
    device_->upload(at<std::byte>(places_.state), header_.data(), sizeof state + state.count * sizeof(std::uint32_t));
  }

  [[nodiscard]] table_view<scalar> tables() const noexcept {
    return {.ops = at<const op_row>(places_.ops),
            .outer = at<const outer_leaf>(places_.outer),
            .elementwise = at<const elementwise_leaf>(places_.elementwise),
            .integers = at<const int>(places_.integers),
            .scalars = at<const scalar>(places_.scalars),
            .op_count = program_type::size,
            .outer_count = table.outer_count,
            .elementwise_count = table.elementwise_count,
            .layers = table.layers,
            .parameter_count = static_cast<int>(Network::parameter_count)};
  }
  /// The samples that `announce` names, out of these records.
  template <class Target>
  [[nodiscard]] batch_view<scalar, Target> samples(const scalar* inputs, const Target* targets,
                                                   std::size_t target_count) const noexcept {
    return {.workspaces = at<scalar>(places_.workspaces),
            .kept = at<scalar>(places_.kept),
            .inputs = inputs,
            .targets = targets,
            .records = at<const std::uint32_t>(places_.records),
            .workspace = table.workspace,
            .kept_size = table.kept,
            .input_size = static_cast<int>(Network::input_shape.size()),
            .target_count = static_cast<int>(target_count)};
  }

 private:
  std::shared_ptr<Device> device_;
  std::size_t max_batch_;
  device_options options_;
  arena_layout places_;
  allocation<Device> arena_;
  std::vector<std::byte> header_;
};

}  // namespace pergrad::inline v0_1::on_device
