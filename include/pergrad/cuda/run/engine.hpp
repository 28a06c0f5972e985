// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/run/engine.hpp - carries out one evaluation on a device
//
// The samples' facts (losses, outputs, norms) come back to the host, where the expressions that asked for them are;
// weights go to the device again, which forms the sums. So every expression runs that runs on the host, in the same
// words. The trainer's step (trainer.hpp) does not come back.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <pergrad/batch.hpp>
#include <pergrad/cuda/kernels/random.hpp>
#include <pergrad/cuda/kernels/release.hpp>
#include <pergrad/cuda/kernels/sums.hpp>
#include <pergrad/cuda/run/launches.hpp>
#include <pergrad/cuda/run/memory.hpp>
#include <pergrad/detail/executors.hpp>
#include <pergrad/gradients/request.hpp>

namespace pergrad::inline v0_1::on_device {

/// The tape of one network on a device: its memory there and what an evaluation needs on the host.
template <class Scalar, class Device>
class engine {
 public:
  using request_type = detail::run_request<Scalar>;

  [[gnu::cold]] engine(std::shared_ptr<Device> device, std::size_t max_batch, const device_options& options,
                       const network_facts& net, const function_tables<Scalar>& functions, bool gradients = true)
      : memory_{std::move(device), max_batch, options, net, functions, gradients},
        target_start_(whole_pages(max_batch * net.input_size * sizeof(Scalar))),
        records_(max_batch),
        numbers_(net.draws ? max_batch : 0),
        lengths_(net.input_positions > 0 ? max_batch : 0),
        losses_(max_batch),
        norms_(max_batch * net.layers()),
        projections_(max_batch),
        weights_(max_batch * std::max<std::size_t>(1, net.layers())),
        weights_of_sample_(std::max<std::size_t>(1, net.layers())) {
    for (std::size_t i = 0; i < max_batch; ++i) records_[i] = static_cast<std::uint32_t>(i);
  }
  engine(const engine&) = delete;
  engine& operator=(const engine&) = delete;
  /// Behind an evaluation that failed the device may still read.
  ~engine() {
    try {
      if (seen_samples_ != nullptr) memory_.device().synchronise();
    } catch (...) {  // it reads nothing any more
    }
  }
  [[nodiscard]] network_memory<Scalar, Device>& memory() noexcept { return memory_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return memory_.bytes(); }

  /// Evaluations begin with bring_parameters(), unless these are held.
  void hold_parameters() noexcept { holds_parameters_ = true; }
  [[nodiscard]] bool holds_parameters() const noexcept { return holds_parameters_; }
  /// Sends the network's parameters, unless a trainer has them on this device.
  void bring_parameters(const pergrad::detail::remote_parameters& remote, const void* network,
                        std::span<const Scalar> (*all_parameters)(const void* network)) {
    void* there = nullptr;
    if (remote.place != nullptr && !remote.changed) there = remote.place(remote.context, &memory_.device());
    memory_.borrow_parameters(static_cast<Scalar*>(there));
    if (there != nullptr) return;
    const std::span<const Scalar> parameters = all_parameters(network);
    memory_.put(memory_.places().parameters, parameters.data(), parameters.size());
  }
  /// Behind this evaluations may begin whose samples' targets take so many bytes.
  void make_sample_room(std::size_t target_bytes) {
    if (samples_begin_ != nullptr && target_bytes <= target_bytes_) return;
    if (seen_samples_ != nullptr) memory_.device().synchronise();
    seen_samples_.reset();
    is_viewed_ = false;
    samples_begin_ = nullptr;
    memory_.make_sample_room(target_bytes, true);
    outputs_.resize(memory_.max_batch() * net().output_size);
    samples_.resize(most_page + target_start_ + whole_pages(memory_.max_batch() * target_bytes));
    void* begin = samples_.data();
    std::size_t room = samples_.size();
    samples_begin_ = static_cast<std::byte*>(std::align(most_page, 1, begin, room));
    target_bytes_ = target_bytes;
  }
  /// Takes over sample `b` of the next evaluation, which has this number in its data set.
  template <class Value, class Target>
  void take(std::size_t b, std::size_t number, const Value* input, std::uint32_t length,
            std::span<const Target> targets) {
    memory_.pack(input, length, reinterpret_cast<Scalar*>(samples_begin_) + b * net().input_size);
    if (!numbers_.empty()) numbers_[b] = static_cast<std::uint32_t>(number);
    if (!lengths_.empty()) lengths_[b] = length;
    std::memcpy(samples_begin_ + target_start_ + b * targets.size_bytes(), targets.data(), targets.size_bytes());
  }
  /// Evaluates them; `launch_samples`: the kernel that they go through. `Backward`: whether any expression may ask for
  /// gradients; else their kernels are not compiled. `Needed`: as of the launcher.
  template <bool Backward, needed_products Needed, class Target>
  void run(std::size_t target_count, sample_launcher<Device, Scalar, Target> launch_samples,
           const request_type& request) {
    if (request.has_proven_sums()) {
      throw std::invalid_argument("pergrad: unclipped: proofs are of what the host computes, and this is a device");
    }
    const arena_layout& places = memory_.places();
    if (!is_viewed_ && lengths_.empty() && !memory_.copies_records()) {
      seen_samples_ = memory_.device().view(samples_begin_, samples_.size() - most_page, false);
    }
    is_viewed_ = true;
    if (seen_samples_ == nullptr) {
      memory_.put(memory_.inputs(), reinterpret_cast<const Scalar*>(samples_begin_), request.count * net().input_size);
      memory_.put(memory_.template targets<Target>(), reinterpret_cast<const Target*>(samples_begin_ + target_start_),
                  request.count * target_count);
    }
    if (!numbers_.empty()) memory_.put(places.numbers, numbers_.data(), request.count);
    if (!lengths_.empty()) memory_.put(places.lengths, lengths_.data(), request.count);
    evaluation<Needed, Target> it{request, way_of(request), launch_samples, make_view<Target>(target_count)};
    if (net().draws && request.randomness.is_random()) {
      const auto& stream = stream_upload::stream(request.randomness);
      it.layers.stream = stream_upload::words(stream);
      it.layer_step = stream_upload::step(stream);
      it.is_random = true;
    }
    const bool facts_wanted = Backward && request.backward && request.needs_facts();
    if constexpr (Backward) {
      if (request.direction != nullptr) memory_.put(places.released, request.direction, net().parameters);
    }
    it.for_each_part([&](std::size_t first, std::size_t count) {
      evaluate(it, first, count, request.needs_facts());
      if constexpr (Backward) {
        if (request.direction != nullptr) {
          memory_.device().launch(
              projection_kernel<Scalar, Target, sum_threads>{memory_.state(), memory_.tables(), it.view, it.way.method,
                                                             memory_.template at<const Scalar>(places.released),
                                                             memory_.template at<double>(places.projections)},
              static_cast<int>(count));
        }
      }
      if (facts_wanted || request.observer_count > 0) fetch_facts(request, first, count, facts_wanted);
    });
    for (std::size_t b = 0; b < request.count; ++b) {
      for (std::size_t k = 0; k < request.observer_count; ++k) {
        request.observers[k].observe(request.observers[k].context, facts_of(request, b, facts_wanted));
      }
    }
    if constexpr (Backward) {
      if (!request.backward) return;
      for (std::size_t k = 0; k < request.sum_count; ++k) form_sum(it, request.sums[k]);
      if (request.rows != nullptr) write_rows(it);
    }
  }

 private:
  [[nodiscard]] const network_facts& net() const noexcept { return memory_.net(); }
  /// Of hosts' pages the largest. Whole pages are pinned for a device, and nobody else's numbers may lie there.
  static constexpr std::size_t most_page = std::size_t{1} << 16U;
  [[nodiscard]] static std::size_t whole_pages(std::size_t bytes) noexcept {
    return (bytes + most_page - 1) / most_page * most_page;
  }

  /// How a strategy arranges the work. Every one gives the same numbers to rounding.
  struct way_of_work {
    method_choice method;
    std::size_t together = 1;  ///< samples that are evaluated at a time
    bool again = false;        ///< they are evaluated again for each sum
    bool gradients = false;    ///< sums are formed of every sample's gradient, not of factors; so are rows
  };
  [[nodiscard]] static way_of_work way_of(const request_type& request) {
    using detail::strategy_kind;
    way_of_work way{{request.method, request.method_layers}, std::max<std::size_t>(1, request.count)};
    way.again = request.strategy == strategy_kind::naive || request.strategy == strategy_kind::ghost;
    way.gradients = request.strategy != strategy_kind::book_keeping && request.strategy != strategy_kind::ghost;
    if (request.strategy == strategy_kind::naive) way.together = 1;
    if (way.gradients && request.method == norm_method::automatic) way.method.method = norm_method::instantiate;
    if (request.row_weights != nullptr) way.gradients = true;  // a row's weight is of the numbers that are in it
    return way;
  }
  /// What one call of `run` is about.
  template <needed_products Needed, class Target>
  struct evaluation {
    const request_type& request;
    way_of_work way;
    sample_launcher<Device, Scalar, Target> launch_samples;
    batch_view<Scalar, Target> view;
    held_stream layers{};
    std::uint64_t layer_step = 0;
    bool is_random = false;

    /// Calls f(first sample, how many), once for an empty batch.
    template <class Function>
    void for_each_part(Function&& f) const {
      std::size_t first = 0;
      do {
        f(first, std::min(way.together, request.count - first));
        first += way.together;
      } while (first < request.count);
    }
  };

  template <class Target>
  [[nodiscard]] batch_view<Scalar, Target> make_view(std::size_t target_count) const {
    const arena_layout& places = memory_.places();
    auto view = memory_.samples(memory_.inputs(), memory_.template targets<Target>(), target_count,
                                memory_.template at<const std::uint32_t>(places.lengths), nullptr);
    if (seen_samples_ != nullptr) view.records = nullptr;  // those of a part come to the front
    return view;
  }
  template <needed_products Needed, class Target>
  [[nodiscard]] launcher<Device, Scalar, Target, Needed> launches_of(const evaluation<Needed, Target>& it) {
    return {memory_, it.view, it.launch_samples};
  }
  /// Takes samples through the network, back if that is asked for, and to their norms.
  template <needed_products Needed, class Target>
  void evaluate(evaluation<Needed, Target>& it, std::size_t first, std::size_t count, bool norms) {
    memory_.announce({.position = first,
                      .count = static_cast<std::uint32_t>(count),
                      .first = first == 0 ? 1U : 0U,
                      .layer_step = it.layer_step},
                     records_.data() + first);
    if (seen_samples_ != nullptr) {  // packed, and so rounded
      launch(memory_.device(), memory_.template gather<Scalar, Target>(
                                   seen_samples_.get(), seen_samples_.get() + target_start_,
                                   static_cast<std::size_t>(it.view.target_count), stored_format::exact, count));
    }
    it.view.numbers = memory_.template at<const std::uint32_t>(memory_.places().numbers) + first;
    launches_of(it).samples({.rule = {},
                             .method = it.way.method,
                             .layers = it.is_random ? &it.layers.stream : nullptr,
                             .backward = it.request.backward,
                             .norms = norms,
                             .gradients = it.way.gradients,
                             .outputs = memory_.outputs(),
                             .samples = static_cast<int>(count)});
  }
  void fetch_facts(const request_type& request, std::size_t first, std::size_t count, bool facts_wanted) {
    const arena_layout& places = memory_.places();
    memory_.get(losses_.data() + first, places.losses, count);
    memory_.get(outputs_.data() + first * net().output_size, memory_.outputs(), count * net().output_size);
    if (!facts_wanted) return;
    memory_.get(norms_.data() + first * net().layers(), places.norms, count * net().layers());
    if (request.direction != nullptr) memory_.get(projections_.data() + first, places.projections, count);
  }
  [[nodiscard]] detail::sample_facts<Scalar> facts_of(const request_type& request, std::size_t b,
                                                      bool facts_wanted) const {
    detail::sample_facts<Scalar> facts;
    facts.sample = b;
    facts.loss = losses_[b];
    facts.output = std::span{outputs_}.subspan(b * net().output_size, net().output_size);
    if (facts_wanted) {
      facts.layers = std::span{norms_}.subspan(b * net().layers(), net().layers());
      for (const norm_bound& each : facts.layers) facts.norm += each;
      if (request.direction != nullptr) facts.projection = projections_[b];
    }
    return facts;
  }
  /// Asks the host's expression for the weights and sends them to the device, [layer][sample].
  void send_weights(const request_type& request, const detail::sum_request<Scalar>& sum) {
    const std::size_t count = sum.per_layer ? net().layers() : 1;
    for (std::size_t b = 0; b < request.count; ++b) {
      sum.weigh(sum.weigher, facts_of(request, b, true), sum.unit, weights_of_sample_.data());
      for (std::size_t layer = 0; layer < count; ++layer) {
        weights_[layer * memory_.max_batch() + b] = weights_of_sample_[layer];
      }
    }
    memory_.put(memory_.places().weights, weights_.data(), count * memory_.max_batch());
  }
  /// Weights of the samples from `first` on.
  [[nodiscard]] const Scalar* weights_at(std::size_t first) const {
    return memory_.template at<const Scalar>(memory_.places().weights) + first;
  }
  template <needed_products Needed, class Target>
  void form_sum(evaluation<Needed, Target>& it, const detail::sum_request<Scalar>& sum) {
    if (!sum.is_plain) send_weights(it.request, sum);
    it.for_each_part([&](std::size_t first, std::size_t count) {
      if (it.way.again) evaluate(it, first, count, false);
      launches_of(it).sum({.method = it.way.method,
                           .weights = sum.is_plain ? nullptr : weights_at(first),
                           .per_layer = sum.per_layer,
                           .squares = sum.squares,
                           .gradients = it.way.gradients,
                           .has_norms = it.request.needs_facts() && !it.way.again,
                           .grid_steps = sum.integers == nullptr ? -1 : sum.grid_steps,
                           .samples = static_cast<int>(count)});
    });
    if (sum.integers != nullptr) {
      integers_.resize(net().parameters);
      memory_.get(integers_.data(), memory_.places().sums, net().parameters);
      for (std::size_t i = 0; i < net().parameters; ++i) {
        sum.integers[i] = sum.accumulate ? sum.integers[i] + integers_[i] : integers_[i];
      }
      return;
    }
    fold();
    const auto scale = static_cast<Scalar>(sum.scale);
    for (std::size_t i = 0; i < net().parameters; ++i) {
      const Scalar value = scale == 1 ? total_[i] : scale * total_[i];
      sum.out[i] = sum.accumulate ? sum.out[i] + value : value;
    }
  }
  /// Adds up the accumulators of a sum in floating point and brings it to the host.
  void fold() {
    total_.resize(net().parameters);
    Scalar* const accumulators = memory_.template at<Scalar>(memory_.places().sums);
    launch(memory_.device(), fold_kernel<Scalar>{accumulators, accumulator_count(net()),
                                                 static_cast<std::int64_t>(net().parameters), accumulators});
    memory_.get(total_.data(), memory_.places().sums, net().parameters);
  }
  template <needed_products Needed, class Target>
  void write_rows(evaluation<Needed, Target>& it) {
    const request_type& request = it.request;
    const bool weighted = request.row_weights != nullptr;
    const bool per_layer = weighted && request.row_weights->per_layer;
    if (weighted) send_weights(request, *request.row_weights);
    const std::size_t together = rows_at_a_time(net(), memory_.max_batch());
    if (rows_ == nullptr) {
      rows_ = allocate_on(memory_.shared_device(), together * net().parameters * sizeof(Scalar));
    }
    row_kernel<Scalar, Target, sum_threads> kernel{
        .tables = memory_.tables(),
        .samples = it.view,
        .method = it.way.method,
        .weights = nullptr,
        .layer_stride = per_layer ? static_cast<int>(memory_.max_batch()) : 0,
        .first_sample = 0,
        .leaf_blocks = leaf_blocks(net()),
        .rows = reinterpret_cast<Scalar*>(rows_.get())};
    it.for_each_part([&](std::size_t part, std::size_t size) {
      if (it.way.again) evaluate(it, part, size, false);
      if (weighted) kernel.weights = weights_at(part);
      for (std::size_t first = 0; first < size; first += together) {
        const std::size_t count = std::min(together, size - first);
        kernel.first_sample = static_cast<int>(first);
        memory_.device().launch(kernel, static_cast<int>(count) * leaf_blocks(net()));
        memory_.get(request.rows + (part + first) * net().parameters, kernel.rows, count * net().parameters);
      }
    });
  }

  network_memory<Scalar, Device> memory_;
  bool holds_parameters_ = false;
  std::size_t target_start_;
  std::size_t target_bytes_ = 0;    ///< a sample's, for which there is room
  std::vector<std::byte> samples_;  ///< inputs, and targets from `target_start_` on
  std::byte* samples_begin_ = nullptr;
  std::vector<std::uint32_t> records_;
  std::vector<std::uint32_t> numbers_;
  std::vector<std::uint32_t> lengths_;
  std::vector<double> losses_;
  std::vector<Scalar> outputs_;
  std::vector<norm_bound> norms_;
  std::vector<double> projections_;
  std::vector<Scalar> weights_;
  std::vector<Scalar> weights_of_sample_;
  std::vector<Scalar> total_;
  std::vector<std::int64_t> integers_;
  std::shared_ptr<std::byte> rows_;  ///< on the device, from the first gradients on that are materialised
  bool is_viewed_ = false;
  std::shared_ptr<const std::byte> seen_samples_;  ///< where a device reads them that has no memory of its own
};

}  // namespace pergrad::inline v0_1::on_device
