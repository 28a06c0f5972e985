// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/run/memory.hpp - what a tape is on a device: the arena of one network, with its tables and parameters
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <pergrad/cuda/device/device.hpp>
#include <pergrad/cuda/kernels/sample_values.hpp>
#include <pergrad/cuda/kernels/samples.hpp>
#include <pergrad/cuda/plan/layout.hpp>
#include <pergrad/cuda/plan/program.hpp>

namespace pergrad::inline v0_1::on_device {

/// Memory of a device, given back with the last who holds it.
template <class Device>
[[nodiscard]] std::shared_ptr<std::byte> allocate_on(std::shared_ptr<Device> device, std::size_t bytes) {
  auto* const memory = static_cast<std::byte*>(device->allocate(bytes));
  return {memory, [device = std::move(device)](std::byte* gone) { device->release(gone); }};
}

/// One network on one device, for batches of up to `max_batch` samples. Made once; but samples that come from the host
/// have room as soon as it is known what their targets are, and whether anybody asks for outputs.
template <class Scalar, class Device>
class network_memory {
 public:
  /// `gradients`: as of the layout.
  [[gnu::cold]] network_memory(std::shared_ptr<Device> device, std::size_t max_batch, const device_options& options,
                               const network_facts& net, const function_tables<Scalar>& functions, bool gradients)
      : device_{std::move(device)},
        max_batch_{max_batch},
        options_{options},
        net_{&net},
        places_{lay_out(net, sizeof(Scalar), max_batch, gradients)},
        arena_{allocate_on(device_, places_.bytes)},
        header_(sizeof(step_state) + max_batch * sizeof(std::uint32_t)) {
    const std::vector<int> groups(net.groups.begin(), net.groups.end());
    put(places_.ops, net.ops.data(), net.ops.size());
    put(places_.outer, net.outer.data(), net.outer.size());
    put(places_.elementwise, net.elementwise.data(), net.elementwise.size());
    put(places_.row_leaves, net.rows.data(), net.rows.size());
    put(places_.integers, functions.integers.data(), functions.integers.size());
    put(places_.scalars, functions.scalars.data(), functions.scalars.size());
    put(places_.products, functions.products.data(), functions.products.size());
    put(places_.groups, groups.data(), groups.size());
  }

  /// The network's numbers.
  [[nodiscard]] const network_facts& net() const noexcept { return *net_; }
  [[nodiscard]] Device& device() const noexcept { return *device_; }
  [[nodiscard]] const std::shared_ptr<Device>& shared_device() const noexcept { return device_; }
  /// How values and gradients are stored.
  [[nodiscard]] stored_format format() const noexcept {
    if (!std::is_same_v<Scalar, float>) return stored_format::exact;
    if (takes_bf16<Device>) return stored_format::bf16;
    return options_.tf32 ? stored_format::tf32 : stored_format::exact;
  }
  [[nodiscard]] bool rounds() const noexcept { return format() != stored_format::exact; }
  /// Whether data sets are copied even where the device could read them where they lie.
  [[nodiscard]] bool copies_records() const noexcept { return options_.copy_records; }
  /// Bytes of a data set that are copied at most.
  [[nodiscard]] std::size_t most_record_bytes() const noexcept { return options_.most_record_bytes; }
  [[nodiscard]] std::size_t max_batch() const noexcept { return max_batch_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return places_.bytes; }
  [[nodiscard]] const arena_layout& places() const noexcept { return places_; }
  template <class Value>
  [[nodiscard]] Value* at(std::size_t place) const noexcept {
    return reinterpret_cast<Value*>(arena_.get() + place);
  }
  [[nodiscard]] const step_state* state() const noexcept { return at<const step_state>(places_.state); }
  [[nodiscard]] Scalar* parameters() const noexcept {
    return borrowed_ != nullptr ? borrowed_ : at<Scalar>(places_.parameters);
  }
  /// From now on kernels read these, which are on the device; null: the arena's own.
  void borrow_parameters(Scalar* parameters) noexcept { borrowed_ = parameters; }

  /// Makes room for a batch's samples, whose targets take so many bytes each, and for outputs.
  void make_sample_room(std::size_t target_bytes, bool outputs) {
    const sample_places wanted = place_samples(*net_, sizeof(Scalar), max_batch_, target_bytes, outputs);
    if (samples_ != nullptr && wanted.bytes <= sample_places_.bytes && wanted.outputs <= sample_places_.outputs) return;
    samples_.reset();  // before there is another one
    sample_places_ = {};
    samples_ = allocate_on(device_, wanted.bytes);
    sample_places_ = wanted;
  }
  // They are there behind that.
  [[nodiscard]] Scalar* inputs() const noexcept { return sample_at<Scalar>(sample_places_.inputs); }
  template <class Target>
  [[nodiscard]] Target* targets() const noexcept {
    return sample_at<Target>(sample_places_.targets);
  }
  [[nodiscard]] Scalar* outputs() const noexcept { return sample_at<Scalar>(sample_places_.outputs); }

  /// Copies values to a place of the arena.
  template <class Value>
  void put(std::size_t place, const Value* from, std::size_t count) const {
    put(at<Value>(place), from, count);
  }
  template <class Value>
  void get(Value* to, std::size_t place, std::size_t count) const {
    get(to, at<Value>(place), count);
  }
  /// And to elsewhere on the device.
  template <class Value>
  void put(Value* there, const Value* from, std::size_t count) const {
    if (count > 0) device_->upload(there, from, count * sizeof(Value));
  }
  template <class Value>
  void get(Value* to, const Value* there, std::size_t count) const {
    if (count > 0) device_->download(to, there, count * sizeof(Value));
  }
  /// Tells the device about the next physical batch, in one upload.
  void announce(const step_state& state, const std::uint32_t* records) {
    std::memcpy(header_.data(), &state, sizeof state);
    if (state.count > 0) {
      std::memcpy(header_.data() + sizeof state, records, state.count * sizeof(std::uint32_t));
    }
    device_->upload(at<std::byte>(places_.state), header_.data(), sizeof state + state.count * sizeof(std::uint32_t));
  }

  [[nodiscard]] table_view<Scalar> tables() const noexcept {
    return {.ops = at<const op_row>(places_.ops),
            .outer = at<const outer_leaf>(places_.outer),
            .elementwise = at<const elementwise_leaf>(places_.elementwise),
            .rows = at<const row_leaf>(places_.row_leaves),
            .integers = at<const int>(places_.integers),
            .scalars = at<const Scalar>(places_.scalars),
            .outer_count = static_cast<int>(net_->outer.size()),
            .elementwise_count = static_cast<int>(net_->elementwise.size()),
            .row_count = static_cast<int>(net_->rows.size()),
            .layers = static_cast<int>(net_->layers()),
            .parameter_count = static_cast<int>(net_->parameters)};
  }
  /// A record as it lies on the device: zeros behind its length, ids in the place of as many values, rounded if asked
  /// for.
  template <class Value>
  void pack(const Value* input, std::uint32_t length, Scalar* to) const {
    const std::size_t all = net_->input_size;
    const std::size_t there = net_->input_positions == 0 ? all : length * (all / net_->input_positions);
    std::fill_n(to, all, Scalar{0});
    if constexpr (std::is_same_v<Value, Scalar>) {
      for (std::size_t i = 0; i < there; ++i) to[i] = stored_as(format(), input[i]);
    } else {
      static_assert(sizeof(Value) <= sizeof(Scalar));
      std::memcpy(static_cast<void*>(to), input, there * sizeof(Value));
    }
  }

  /// The samples that `announce` names, out of these records. `lengths`: of the records, if they vary; `numbers`: of
  /// the samples in their data set.
  template <class Target>
  [[nodiscard]] batch_view<Scalar, Target> samples(const Scalar* inputs, const Target* targets,
                                                   std::size_t target_count, const std::uint32_t* lengths,
                                                   const std::uint32_t* numbers) const noexcept {
    return {.workspaces = at<Scalar>(places_.workspaces),
            .kept = at<Scalar>(places_.kept),
            .inputs = inputs,
            .targets = targets,
            .records = at<const std::uint32_t>(places_.records),
            .numbers = numbers,
            .lengths = net_->input_positions > 0 ? lengths : nullptr,
            .integers = at<const int>(places_.integers),
            .workspace = net_->workspace,
            .kept_size = net_->kept,
            .input_size = static_cast<int>(net_->input_size),
            .target_count = static_cast<int>(target_count)};
  }

  /// Brings announced samples out of the host's memory into the room for samples, where they lie one behind the other.
  template <class Value, class Target>
  [[nodiscard]] gather_kernel<Value, Target, sum_threads> gather(const std::byte* inputs, const std::byte* targets,
                                                                 std::size_t target_count, stored_format format,
                                                                 std::size_t most_samples) const noexcept {
    return {.state = state(),
            .records = at<const std::uint32_t>(places_.records),
            .inputs = reinterpret_cast<const Value*>(inputs),
            .targets = reinterpret_cast<const Target*>(targets),
            .to_inputs = sample_at<Value>(sample_places_.inputs),
            .to_targets = this->targets<Target>(),
            .input_size = static_cast<int>(net_->input_size),
            .input_step = static_cast<int>(net_->input_size * sizeof(Scalar) / sizeof(Value)),
            .target_count = static_cast<int>(target_count),
            .format = format,
            .most_samples = static_cast<int>(most_samples)};
  }

 private:
  template <class Value>
  [[nodiscard]] Value* sample_at(std::size_t place) const noexcept {
    return reinterpret_cast<Value*>(samples_.get() + place);
  }

  std::shared_ptr<Device> device_;
  std::size_t max_batch_;
  device_options options_;
  const network_facts* net_;
  arena_layout places_;
  std::shared_ptr<std::byte> arena_;
  Scalar* borrowed_ = nullptr;
  std::vector<std::byte> header_;
  sample_places sample_places_;
  std::shared_ptr<std::byte> samples_;
};

}  // namespace pergrad::inline v0_1::on_device
