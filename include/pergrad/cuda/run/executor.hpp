// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/run/executor.hpp - the executor of a device: what a program names in the place of `pergrad::host`
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include <pergrad/batch.hpp>
#include <pergrad/cuda/device/device.hpp>
#include <pergrad/cuda/run/engine.hpp>
#include <pergrad/detail/executors.hpp>
#include <pergrad/detail/thread_pool.hpp>
#include <pergrad/gradients/request.hpp>
#include <pergrad/network.hpp>
#include <pergrad/privacy/release.hpp>
#include <pergrad/tape.hpp>

namespace pergrad::inline v0_1 {

namespace on_device {

template <class Network, class Loss, class Device>
class trainer;

}  // namespace on_device

/// Runs everything on a device: an emulated_device, or a GPU as `pergrad::cuda`. Give the same executor to the network,
/// the tape and every evaluation; results come back to the host. Not copyable; tapes keep the device alive.
template <on_device::device Device>
class basic_device_executor {
 public:
  static constexpr bool is_executor = true;

  /// Throws what the device throws where there is none, std::runtime_error for TF32 or BF16 on one that has none, and
  /// std::invalid_argument for both.
  explicit basic_device_executor(const device_options& options = {})
      : device_{std::make_shared<Device>()}, options_{options} {
    require_options();
  }
  /// `handle` is the device's own: a stream. Throws the same.
  template <class Handle>
  requires std::constructible_from<Device, Handle>
  explicit basic_device_executor(Handle handle, const device_options& options = {})
      : device_{std::make_shared<Device>(std::move(handle))}, options_{options} {
    require_options();
  }
  basic_device_executor(const basic_device_executor&) = delete;
  basic_device_executor& operator=(const basic_device_executor&) = delete;
  ~basic_device_executor() = default;

  /// One line that says why there is no such device here; empty if there is one.
  [[nodiscard]] static std::string missing() requires requires { Device::missing(); }
  { return Device::missing(); }

  [[nodiscard]] const device_options& options() const noexcept { return options_; }
  [[nodiscard]] Device& device() const noexcept { return *device_; }
  [[nodiscard]] const std::shared_ptr<Device>& shared_device() const noexcept { return device_; }
  /// The host thread that finishes what the device began.
  [[nodiscard]] const detail::thread_pool& pool() const noexcept { return pool_; }

  /// The library's own: what is wrong with a network or a loss on a device, as a class that says so; else `char`.
  template <class Network>
  using explanation = typename on_device::explanation_of<Network>::type;
  template <class Loss>
  using loss_explanation = on_device::loss_explanation<Loss>;
  /// The library's own: what a trainer keeps on the device.
  template <class Network, class Loss>
  using trainer = on_device::trainer<Network, Loss, Device>;
  /// The library's own: sums take turns in one place, so there is room for any number.
  template <class Network>
  static constexpr std::size_t usual_sums = detail::most_sums;
  /// The library's own: the memory of a tape. Throws std::invalid_argument for batches that no device could count.
  template <class Network>
  [[nodiscard]] detail::executor_memory make_tape(std::size_t max_batch, std::size_t /*max_sums*/,
                                                  bool gradients = true) const {
    using engine = on_device::engine<typename Network::scalar, Device>;
    if (max_batch > on_device::most_batch<Network>) {
      throw std::invalid_argument("pergrad: tape: max_batch is " + std::to_string(max_batch) +
                                  ", but on a device a batch of this network has at most " +
                                  std::to_string(on_device::most_batch<Network>) + " samples");
    }
    // Clipped sums are sums of integers here: no way in floating point is short enough.
    return {std::make_unique<engine>(device_, max_batch, options_, on_device::facts_of<Network>,
                                     on_device::program<Network>::of_functions(), gradients),
            {summation::no_way, 0}};
  }
  /// The library's own: the same for outputs and losses alone, and of how many samples at most.
  template <class Network>
  [[nodiscard]] detail::executor_memory make_evaluation_tape(std::size_t max_batch) const {
    return make_tape<Network>(max_batch, 1, false);
  }
  template <class Network>
  [[nodiscard]] static std::size_t evaluated_together(std::size_t most) {
    return on_device::evaluated_together(on_device::facts_of<Network>, sizeof(typename Network::scalar),
                                         std::min(most, on_device::most_batch<Network>));
  }
  /// The library's own: parameters are brought once, as they do not change while the tape is used.
  template <class Network>
  void hold_parameters(const Network& network, tape<Network>& tape) const {
    bring_parameters(network, engine_of(tape));
    engine_of(tape).hold_parameters();
  }
  /// The library's own: an evaluation. Throws std::invalid_argument for a tape of another executor's.
  template <detail::evaluation_needs Needs, class Network, class Loss>
  void run(const Network& network, const Loss& /*loss*/, const batch<Network, Loss>& samples, tape<Network>& tape,
           const detail::run_request<typename Network::scalar>& request) const {
    using scalar = typename Network::scalar;
    using target = target_of<Loss, scalar>;
    constexpr std::size_t target_count = Loss::target_count(Network::output_shape);
    auto& engine = engine_of(tape);
    engine.make_sample_room(target_count * sizeof(target));
    if (!engine.holds_parameters()) bring_parameters(network, engine);
    for (std::size_t b = 0; b < request.count; ++b) {
      const std::size_t sample = request.first + b;
      engine.take(b, samples.record(sample), samples.input(sample), samples.length(sample), samples.targets(sample));
    }
    // A user may ask for another norm than the plan's.
    constexpr on_device::needed_products needed = [] {
      on_device::needed_products all = on_device::products_of<Network>;
      if (Needs.backward) {
        all.squares = all.any_squares;
        all.norms_by_blocks = all.any;
      }
      return all;
    }();
    engine.template run<Needs.backward, needed>(target_count, on_device::sample_launcher_of<Device, Network, Loss>,
                                                request);
  }
  /// The library's own: what a tape is on this device.
  template <class Network>
  [[nodiscard]] on_device::engine<typename Network::scalar, Device>& engine_of(tape<Network>& tape) const {
    using engine = on_device::engine<typename Network::scalar, Device>;
    engine* const found = tape.template memory<engine>();
    if (found == nullptr || &found->memory().device() != device_.get()) {
      throw std::invalid_argument("pergrad: the tape was made for another executor than the one it is evaluated by");
    }
    return *found;
  }

 private:
  void require_options() const {
    constexpr bool bf16 = on_device::takes_bf16<Device>;
    if (bf16 && options_.tf32)
      throw std::invalid_argument("pergrad: device: tf32 is no option where products take BF16");
    if constexpr (requires { Device::has_tensor_cores(); }) {
      if ((bf16 || options_.tf32) && !Device::has_tensor_cores()) {
        throw std::runtime_error(
            std::string{"pergrad: cuda: "} + (bf16 ? "bf16" : "tf32") +
            " needs a GPU of compute capability 8.0 or above, and a program compiled for one: nvcc -arch=native, say");
      }
    }
  }
  template <class Network>
  static void bring_parameters(const Network& network, on_device::engine<typename Network::scalar, Device>& engine) {
    engine.bring_parameters(detail::network_access::remote(network), &network, [](const void* self) {
      return std::span<const typename Network::scalar>{static_cast<const Network*>(self)->all_parameters()};
    });
  }

  std::shared_ptr<Device> device_;
  device_options options_;
  detail::thread_pool pool_{threads{1}};
};

/// A device that the host emulates, as an executor: for tests, and for programs on machines without a GPU.
using emulated = basic_device_executor<on_device::emulated_device>;

namespace on_device {

struct emulated_device_bf16 : emulated_device {
  using emulated_device::emulated_device;
  using tensor_format = bf16_format;
};

}  // namespace on_device

/// The same with BF16, as `pergrad::cuda_bf16`.
using emulated_bf16 = basic_device_executor<on_device::emulated_device_bf16>;

}  // namespace pergrad::inline v0_1
