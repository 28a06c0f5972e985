// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/engine.hpp - carries out one evaluation on a device
//
// The samples' facts (losses, outputs, norms) come back to the host, where the expressions that asked for them are;
// weights go to the device again, which forms the sums. So every expression runs that runs on the host, in the same
// words. The trainer's step (trainer.hpp) does not come back.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <pergrad/batch.hpp>
#include <pergrad/cuda/kernels/noise_update.hpp>
#include <pergrad/cuda/kernels/sums.hpp>
#include <pergrad/cuda/launches.hpp>
#include <pergrad/cuda/memory.hpp>
#include <pergrad/host/request.hpp>

namespace pergrad::inline v0_1::on_device {

/// The tape of one network on a device: its memory there and what an evaluation needs on the host.
template <class Network, class Device>
class engine {
 public:
  using scalar = typename Network::scalar;
  using request_type = on_host::run_request<scalar>;
  static constexpr std::size_t parameter_count = Network::parameter_count;
  static constexpr std::size_t layers = pergrad::detail::layer_groups<Network>;
  static constexpr std::size_t width = Network::output_shape.size();

  engine(std::shared_ptr<Device> device, std::size_t max_batch, const device_options& options)
      : memory_{std::move(device), max_batch, options},
        inputs_(max_batch * Network::input_shape.size()),
        targets_(max_batch * most_targets<Network> * target_bytes),
        records_(max_batch),
        losses_(max_batch),
        outputs_(max_batch * width),
        norms_(max_batch * layers),
        parts_(max_batch * layers),
        projections_(max_batch),
        weights_(max_batch * std::max<std::size_t>(1, layers)),
        total_(parameter_count) {
    for (std::size_t i = 0; i < max_batch; ++i) records_[i] = static_cast<std::uint32_t>(i);
  }
  [[nodiscard]] network_memory<Network, Device>& memory() noexcept { return memory_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return memory_.bytes(); }

  /// `Backward`: whether any expression may ask for gradients; else their kernels are not compiled.
  template <bool Backward, class Loss>
  void run(const Network& network, const batch<Network, Loss>& samples, const request_type& request) {
    using target = target_of<Loss, scalar>;
    constexpr std::size_t target_count = Loss::target_count(Network::output_shape);
    static_assert(sizeof(target) <= target_bytes && target_count <= most_targets<Network>,
                  "pergrad: a loss on a device takes at most one target of up to 8 bytes an output");
    const arena_layout& places = memory_.places();
    Device& device = memory_.device();
    for (std::size_t b = 0; b < request.count; ++b) {
      const std::size_t sample = request.first + b;
      std::copy_n(samples.input(sample), Network::input_shape.size(), inputs_.data() + b * Network::input_shape.size());
      std::memcpy(targets_.data() + b * target_count * sizeof(target), samples.targets(sample).data(),
                  target_count * sizeof(target));
    }
    if (memory_.tf32()) {
      for (std::size_t i = 0; i < request.count * Network::input_shape.size(); ++i) {
        inputs_[i] = round_to_tf32(inputs_[i]);
      }
    }
    memory_.put(places.parameters, network.all_parameters().data(), network.all_parameters().size());
    memory_.put(places.inputs, inputs_.data(), request.count * Network::input_shape.size());
    memory_.put(places.targets, targets_.data(), request.count * target_count * sizeof(target));
    memory_.announce({.count = static_cast<std::uint32_t>(request.count)}, records_.data());

    const auto view = memory_.samples(memory_.template at<const scalar>(places.inputs),
                                      memory_.template at<const target>(places.targets), target_count);
    const method_choice method{request.method, request.method_layers};
    const launcher<Network, Device, target> launch{memory_, view};
    launch.template samples<Loss>({.rule = {},
                                   .method = method,
                                   .backward = request.backward,
                                   .norms = request.needs_facts(),
                                   .outputs = memory_.template at<scalar>(places.outputs),
                                   .samples = static_cast<int>(request.count)});

    const bool facts_wanted = Backward && request.backward && request.needs_facts();
    if constexpr (Backward) {
      if (request.direction != nullptr) {
        memory_.put(places.released, request.direction, parameter_count);
        device.launch(projection_kernel<scalar, target, sum_threads>{memory_.state(), memory_.tables(), view, method,
                                                                     memory_.template at<const scalar>(places.released),
                                                                     memory_.template at<double>(places.projections)},
                      static_cast<int>(request.count));
      }
    }
    if (facts_wanted || request.observer_count > 0) fetch_facts(request, facts_wanted);
    for (std::size_t b = 0; b < request.count; ++b) {
      for (std::size_t k = 0; k < request.observer_count; ++k) {
        request.observers[k].observe(request.observers[k].context, facts_of(request, b, facts_wanted));
      }
    }
    if constexpr (Backward) {
      if (!request.backward) return;
      for (std::size_t k = 0; k < request.sum_count; ++k) form_sum(request, request.sums[k], launch, method);
      if (request.rows != nullptr) write_rows(request, view, method);
    }
  }

 private:
  void fetch_facts(const request_type& request, bool facts_wanted) {
    const arena_layout& places = memory_.places();
    memory_.get(losses_.data(), places.losses, request.count);
    memory_.get(outputs_.data(), places.outputs, request.count * width);
    if (!facts_wanted) return;
    memory_.get(norms_.data(), places.norms, request.count * layers);
    if (request.direction != nullptr) memory_.get(projections_.data(), places.projections, request.count);
    for (std::size_t i = 0; i < request.count * layers; ++i) {
      parts_[i] = {norms_[i].squared, norms_[i].error, norms_[i].slack, norms_[i].spread};
    }
  }
  [[nodiscard]] on_host::sample_facts<scalar> facts_of(const request_type& request, std::size_t b,
                                                       bool facts_wanted) const {
    on_host::sample_facts<scalar> facts;
    facts.sample = b;
    facts.loss = losses_[b];
    facts.output = std::span{outputs_}.subspan(b * width, width);
    if (facts_wanted) {
      facts.layers = std::span{parts_}.subspan(b * layers, layers);
      for (const on_host::norm_part& each : facts.layers) facts.norm += each;
      if (request.direction != nullptr) facts.projection = projections_[b];
    }
    return facts;
  }
  /// Asks the host's expression for the weights and sends them to the device, [layer][sample].
  void send_weights(const request_type& request, const on_host::sum_request<scalar>& sum) {
    std::array<scalar, std::max<std::size_t>(1, layers)> of_sample{};
    const std::size_t count = sum.per_layer ? layers : 1;
    for (std::size_t b = 0; b < request.count; ++b) {
      sum.weigh(sum.weigher, facts_of(request, b, true), of_sample.data());
      for (std::size_t layer = 0; layer < count; ++layer) weights_[layer * memory_.max_batch() + b] = of_sample[layer];
    }
    memory_.put(memory_.places().weights, weights_.data(), count * memory_.max_batch());
  }
  template <class Launcher>
  void form_sum(const request_type& request, const on_host::sum_request<scalar>& sum, const Launcher& launch,
                const method_choice& method) {
    const arena_layout& places = memory_.places();
    if (!sum.unit) send_weights(request, sum);
    launch.sum({.method = method,
                .weights = sum.unit ? nullptr : memory_.template at<const scalar>(places.weights),
                .per_layer = sum.per_layer,
                .squares = sum.squares,
                .samples = static_cast<int>(request.count)});
    update_kernel<scalar> reduce{};
    reduce.state = memory_.state();
    reduce.settings.divisor = 1;
    reduce.lanes = memory_.template at<const scalar>(places.sums);
    reduce.lane_count = lane_count<Network>;
    reduce.lane_stride = reduce.count = static_cast<std::int64_t>(parameter_count);
    reduce.released = memory_.template at<scalar>(places.released);
    reduce.rule = update::release_only;
    memory_.device().launch(reduce, reduce.blocks());
    memory_.get(total_.data(), places.released, parameter_count);
    const auto scale = static_cast<scalar>(sum.scale);
    for (std::size_t i = 0; i < parameter_count; ++i) {
      const scalar value = scale == 1 ? total_[i] : scale * total_[i];
      sum.out[i] = sum.accumulate ? sum.out[i] + value : value;
    }
  }
  template <class Target>
  void write_rows(const request_type& request, const batch_view<scalar, Target>& view, const method_choice& method) {
    const arena_layout& places = memory_.places();
    const bool weighted = request.row_weights != nullptr;
    const bool per_layer = weighted && request.row_weights->per_layer;
    if (weighted) send_weights(request, *request.row_weights);
    row_kernel<scalar, Target, sum_threads> kernel{
        .tables = memory_.tables(),
        .samples = view,
        .method = method,
        .weights = weighted ? memory_.template at<const scalar>(places.weights) : nullptr,
        .layer_stride = per_layer ? static_cast<int>(memory_.max_batch()) : 0,
        .first_sample = 0,
        .leaf_blocks = leaf_blocks<Network>,
        .rows = memory_.template at<scalar>(places.rows)};
    const std::size_t together = rows_at_a_time<Network>(memory_.max_batch());
    for (std::size_t first = 0; first < request.count; first += together) {
      const std::size_t count = std::min(together, request.count - first);
      kernel.first_sample = static_cast<int>(first);
      memory_.device().launch(kernel, static_cast<int>(count) * leaf_blocks<Network>);
      memory_.get(request.rows + first * parameter_count, places.rows, count * parameter_count);
    }
  }

  network_memory<Network, Device> memory_;
  std::vector<scalar> inputs_;
  std::vector<std::byte> targets_;
  std::vector<std::uint32_t> records_;
  std::vector<double> losses_;
  std::vector<scalar> outputs_;
  std::vector<norm_bound> norms_;
  std::vector<on_host::norm_part> parts_;
  std::vector<double> projections_;
  std::vector<scalar> weights_;
  std::vector<scalar> total_;
};

}  // namespace pergrad::inline v0_1::on_device
