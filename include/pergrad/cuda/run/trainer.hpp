// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/run/trainer.hpp - a step of DP-SGD on a device: captured once, replayed for every physical batch
//
//   upload (state, record numbers) -> samples: forward, loss, backward, norms, factors -> sums -> reduction, noise,
//   update
//
// Of a fused network four kernels and one upload; and once a step, before its first batch, one that marks the next
// step's records. What differs from batch to batch lies in the state, so a batch of any size, an empty one included,
// replays the same graph; records are read where the data set lies on the device. The host does not wait. A device that
// trains together with others (cuda/ranks/device_step.hpp) has a second graph for what happens once a step: it takes up
// everybody's sum, and shares what it has updated.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <pergrad/batch.hpp>
#include <pergrad/cuda/kernels/release.hpp>
#include <pergrad/cuda/run/engine.hpp>
#include <pergrad/cuda/run/executor.hpp>
#include <pergrad/cuda/run/launches.hpp>
#include <pergrad/cuda/run/marks.hpp>
#include <pergrad/cuda/run/noise_check.hpp>
#include <pergrad/detail/executors.hpp>
#include <pergrad/expressions/clip.hpp>
#include <pergrad/network.hpp>
#include <pergrad/optim/adam.hpp>
#include <pergrad/optim/optimizer.hpp>
#include <pergrad/optim/parameter_average.hpp>
#include <pergrad/optim/rules.hpp>
#include <pergrad/optim/sgd.hpp>
#include <pergrad/privacy/release.hpp>
#include <pergrad/privacy/sampling.hpp>
#include <pergrad/train/individual_accounting.hpp>
#include <pergrad/train/step_by_verbs.hpp>
#include <pergrad/train/step_notes.hpp>

namespace pergrad::inline v0_1::on_device {

/// The network that is trained, as far as its type matters.
template <class Scalar>
struct trained_network {
  pergrad::detail::remote_parameters* remote = nullptr;
  const void* network = nullptr;
  std::span<const Scalar> (*all_parameters)(const void* network) = nullptr;  ///< brings them back first, if need be
};

template <class Network>
[[nodiscard]] trained_network<typename Network::scalar> trained_network_of(const Network& network) {
  return {&pergrad::detail::network_access::remote(network), &network,
          [](const void* self) { return static_cast<const Network*>(self)->all_parameters(); }};
}

/// Captures f again: a device may keep what it has made of the graph before.
template <class Device, class Function>
void recapture(Device& device, typename Device::graph& graph, const Function& f) {
  if constexpr (requires { device.recapture(graph, f); }) {
    device.recapture(graph, f);
  } else {
    graph = device.capture(f);
  }
}

/// Those with whom a device trains one network: who owns a part of its parameters, and has what for them. All members
/// are collective and put what they do into the device's order.
template <class Device>
class peers_of_device {
 public:
  std::size_t begin = 0;  ///< own parameters: a multiple of `release_elements`
  std::size_t end = 0;
  /// Each has the sum of all in its part then; the rest is undefined.
  virtual void add_up(Device& device, std::int64_t* sums) const = 0;
  /// Each one's part is everybody's then. `values`: a scalar a parameter.
  virtual void share(Device& device, void* values) const = 0;

 protected:
  peers_of_device() = default;
  peers_of_device(const peers_of_device&) = default;
  peers_of_device& operator=(const peers_of_device&) = default;
  ~peers_of_device() = default;
};

/// A trainer of any network. `Needed`: as of the launcher.
template <class Scalar, class Value, class Target, needed_products Needed, class Device>
class network_trainer {
 public:
  using records_type = dataset<Value, Target>;
  using launch_type = sample_launcher<Device, Scalar, Target>;
  using noise_stream = stream_upload::noise_stream;
  /// Which of the records [begin, end) a step draws, by Poisson sampling (marks.hpp).
  [[nodiscard]] std::span<const std::uint64_t> mark(const poisson_sampling& sampling, const draw_place& place,
                                                    std::uint64_t begin, std::uint64_t end) {
    return marks_.of(sampling, place, begin, end);
  }
  /// Records are copied to the device when a step sees them first, unless it reads them where they lie.
  static constexpr bool trains_on_a_copy = true;

  [[gnu::cold]] network_trainer(std::shared_ptr<Device> device, const trained_network<Scalar>& network,
                                network_memory<Scalar, Device>& memory, launch_type launch, std::size_t target_count,
                                const training_choices& options, double sensitivity)
      : device_{std::move(device)},
        network_{network},
        memory_{&memory},
        launch_{launch},
        target_count_{target_count},
        options_{options},
        settings_{.scale = 1 / options.divisor->value(),
                  .momentum = static_cast<Scalar>(options.momentum),
                  .beta1 = options.adam.beta1,
                  .beta2 = options.adam.beta2,
                  .stability = options.adam.stability,
                  .floor = options.adam.noise_floor} {
    set_sensitivity(sensitivity);
    plan_noise();
    if (options_.individual) {
      most_.reserve(memory_->max_batch());
      limits_ = allocate_on(device_, memory_->max_batch() * sizeof(double));
    }
    parts_.reserve(memory_->max_batch() * net().layers());
    memory_->make_sample_room(target_count_ * sizeof(Target), false);  // as data may leave no memory for it
    if (moment_count() > 0) {
      const std::size_t bytes = moment_count() * moment_step() * sizeof(Scalar);
      moments_ = allocate_on(device_, bytes);
      device_->fill_zero(moments_.get(), bytes);
    }
    take_over();
  }
  network_trainer(const network_trainer&) = delete;
  network_trainer& operator=(const network_trainer&) = delete;
  ~network_trainer() {
    pergrad::detail::wipe(&settings_, sizeof settings_);
    give_back(network_);
    give_back(average_network_);
  }

  /// The rule that weighs samples.
  void clip_with(const pergrad::detail::flat_clip& rule) {
    rule_ = clip_rule{.kind = clip_rule::kind_type::flat, .bound = rule.bound, .unit = grid_.unit, .limits = limits()};
    is_captured_ = false;
  }
  void clip_with(const pergrad::detail::flat_normalise& rule) {
    rule_ = {.kind = rule.adaptive ? clip_rule::kind_type::adaptive : clip_rule::kind_type::normalise,
             .bound = rule.bound,
             .stability = rule.stability,
             .unit = grid_.unit};
    is_captured_ = false;
  }
  template <std::size_t Layers>
  void clip_with(const pergrad::detail::layer_clip<Layers>& rule) {
    std::vector<int> groups(Layers);
    for (std::size_t layer = 0; layer != Layers; ++layer) groups[layer] = static_cast<int>(layer);
    clip_groups(groups, rule.bounds);
  }
  template <std::size_t Groups>
  void clip_with(const pergrad::detail::group_clip<Groups>& rule) {
    clip_groups({net().groups.begin(), net().groups.end()}, rule.bounds);
  }

  /// Does the device have these, all of them? Where a step has failed before, it does not.
  template <class Records>
  [[nodiscard]] bool holds(const Records& records) const noexcept {
    return has_records_ && copied_->is_copy_of(records);
  }
  /// Throws std::invalid_argument for records that the device's options leave no room for, and that cannot be read
  /// where they lie: before a step is paid.
  void require_room(const records_type& records) const {
    const std::size_t bytes = places_of(records).end;
    if (net().input_positions > 0 && bytes > memory_->most_record_bytes()) refuse_records(bytes);
  }
  /// The numbers of the data set have changed where they lie: the next step copies them again.
  void forget_records() noexcept { has_records_ = false; }
  /// Of the next step on: every replay is told its rate.
  void set_learning_rate(learning_rate rate) noexcept { options_.learning_rate = rate; }
  /// Of the next step on, which is captured anew if it is another one.
  void set_noise(noise_multiplier noise) noexcept {
    is_planned_ = is_planned_ && noise.value() == options_.noise->value();
    options_.noise = noise;
  }
  /// The same; whoever calls this tells the rule again.
  void set_sensitivity(double sensitivity) noexcept {
    grid_ = release_grid::of(sensitivity, net().parameters);
    is_planned_ = false;
  }
  /// Each step brings an average of the parameters nearer to them, which is this network's. Frozen ones stay the
  /// host's.
  template <class Network>
  void keep_average(parameter_average<Network>& average) {
    average_network_ = trained_network_of(average.network());
    average_updates_ = pergrad::detail::average_access::updates(average);
    average_ = allocate_on(device_, net().parameters * sizeof(Scalar));
  }
  /// Of the next step: 1 for all of it.
  void set_way_of_average(double way) noexcept { way_of_average_ = way; }

  /// Are records read where they lie? Then they must be looked at before each step, and the step waits for the device.
  [[nodiscard]] bool reads_in_place() const noexcept { return seen_inputs_ != nullptr; }

  /// Brings what a step reads to the device: parameters that the host may have changed, records that are not there
  /// yet. A data set is copied when it is first seen, if another lies at another place or has another size, and after
  /// `forget_records`; or it is read where it lies, if the device can. `noise`, `randomness`: of the step, and inside
  /// layers; all steps of a trainer have the same keys.
  [[gnu::cold]] void prepare(const records_type& records, const noise_stream& noise,
                             const layer_randomness& randomness) {
    settings_.noise = stream_upload::words(noise);
    is_random_ = net().draws && randomness.is_random();
    if (is_random_) {
      layers_.stream = stream_upload::words(stream_upload::stream(randomness));
      layer_step_ = stream_upload::step(stream_upload::stream(randomness));
    }
    position_ = 0;  // chunks of a step that failed halfway do not count
    is_released_ = false;
    if (network_.remote->context != this) take_over();
    if (network_.remote->changed) {
      const std::span<const Scalar> parameters = host_parameters();
      memory_->put(memory_->places().parameters, parameters.data(), parameters.size());
      network_.remote->changed = false;
    }
    bring_average();
    if (!holds(records)) bring(records);
    if (!is_planned_) plan_noise();
    if (!is_captured_) capture();
  }

  /// One physical batch. The last one has the step's noise: it is added, and the parameters are updated.
  void run(std::span<const std::uint32_t> records, const noise_stream* noise) {
    const bool last = noise != nullptr;
    step_state state{.position = position_,
                     .count = static_cast<std::uint32_t>(records.size()),
                     .first = position_ == 0 ? 1U : 0U,
                     .last = last ? 1U : 0U,
                     .first_record = first_record_,
                     .noise_step = last ? stream_upload::step(*noise) : 0,
                     .layer_step = layer_step_,
                     .rate = options_.learning_rate->value(),
                     .way = way_of_average_};
    const bool is_adam = options_.optimizer == optimizer_kind::adam;
    state.keep = 1 - state.rate * (is_adam ? options_.adam.weight_decay : options_.weight_decay);
    if (last && is_adam) {
      const rules::adam_bias bias =
          rules::adam_bias_at(updates_ + 1, options_.learning_rate->value(), options_.adam.beta1, options_.adam.beta2);
      state.rate = bias.rate;
      state.correction = bias.correction;
      state.square = bias.correction * bias.correction;
      next_noise_share_ =
          rules::noise_share_behind(noise_share_, options_.adam.beta2,
                                    std::ldexp(settings_.grid.sigma, grid_.unit - grid_.steps) * settings_.scale);
      state.noise = next_noise_share_ * state.square;
    }
    memory_->announce(state, records.data());
    device_->replay(graph_);
    position_ = last ? 0 : position_ + records.size();
    if (last && peers_ == nullptr) released();
  }

  /// Private values of the last physical batch. Waits for the device.
  void fetch_facts(std::span<double> losses, std::span<double> norms) {
    memory_->get(losses.data(), memory_->places().losses, losses.size());
    const std::size_t layers = net().layers();
    parts_.resize(norms.size() * layers);
    memory_->get(parts_.data(), memory_->places().norms, parts_.size());
    for (std::size_t b = 0; b < norms.size(); ++b) {
      double squared = 0;
      for (std::size_t layer = 0; layer < layers; ++layer) squared += parts_[b * layers + layer].squared;
      norms[b] = std::sqrt(squared);
    }
  }
  /// Of the next physical batch, with individual accounting: the most that each of its records may add, or is left out.
  void limit(std::span<const std::uint32_t> drawn, pergrad::detail::individual_charges& charges) {
    most_.resize(drawn.size());
    charges.find_limits(drawn, most_);
    memory_->put(limits(), most_.data(), most_.size());
  }
  /// Behind it: they pay for what they have added, or for the most where nobody knows. Waits for the device.
  void charge(std::span<const std::uint32_t> drawn, pergrad::detail::individual_charges& charges) {
    try {
      memory_->get(most_.data(), limits(), most_.size());
    } catch (...) {
      charge_the_most(drawn, charges);
      throw;
    }
    charges.take(most_);
    charges.charge(drawn);
  }
  void charge_the_most(std::span<const std::uint32_t> drawn, pergrad::detail::individual_charges& charges) noexcept {
    charges.find_limits(drawn, most_);
    charges.take(most_);
    charges.charge(drawn);
    charges.end_of_step();
  }
  /// The noised sum of the last step; zeros if there was none, or if it failed halfway. Waits for the device.
  void fetch_update(std::span<Scalar> to) const {
    if (is_released_) {
      memory_->get(to.data(), memory_->places().released, to.size());
    } else {
      std::ranges::fill(to, Scalar{0});
    }
  }
  /// f(an optimizer of the host with the state of this one), for files. Whatever f changes is taken over. Waits for the
  /// device.
  template <class Optimizer, class Function>
  auto with_twin(Optimizer twin, Function&& f) {
    const auto for_each_array = [&](const auto& use) {
      std::size_t number = 0;
      for (const auto array : optimizer_access::state(twin)) use(array, moment(number++));
    };
    std::uint64_t* const steps = optimizer_access::count(twin);
    if (steps != nullptr) *steps = updates_;
    double* const noise = optimizer_access::noise_share(twin);
    if (noise != nullptr) *noise = noise_share_;
    for_each_array([&](auto array, Scalar* there) { memory_->get(array.data(), there, array.size()); });
    auto result = f(twin);
    for_each_array([&](auto array, Scalar* there) { memory_->put(there, array.data(), array.size()); });
    if (steps != nullptr) updates_ = *steps;
    if (noise != nullptr) noise_share_ = next_noise_share_ = *noise;
    return result;
  }
  /// Behind the last batch, where there are peers: everybody's sum, noise, update.
  void release_together() {
    device_->replay(release_graph_);
    released();
  }
  /// From now on it trains with these, who outlive it. `first_record`: number of record 0 in the data set of all.
  void train_with(const peers_of_device<Device>& peers) noexcept { peers_ = &peers; }
  void set_first_record(std::uint32_t first_record) noexcept { first_record_ = first_record; }
  /// What peers have of the optimizer, here as well: for files.
  void gather_moments() const {
    for (std::size_t number = 0; number < moment_count(); ++number) peers_->share(*device_, moment(number));
  }
  [[nodiscard]] Device& device() const noexcept { return *device_; }
  [[nodiscard]] const training_choices& options() const noexcept { return options_; }
  [[nodiscard]] std::size_t max_batch() const noexcept { return memory_->max_batch(); }
  /// Kernels and copies of one physical batch.
  [[nodiscard]] std::size_t node_count() const { return Device::node_count(graph_); }

 private:
  [[nodiscard]] const network_facts& net() const noexcept { return memory_->net(); }
  [[nodiscard]] std::span<const Scalar> host_parameters() const { return network_.all_parameters(network_.network); }

  void clip_groups(const std::vector<int>& groups, std::span<const double> bounds) {
    const arena_layout& places = memory_->places();
    memory_->put(places.groups, groups.data(), groups.size());
    memory_->put(places.bounds, bounds.data(), bounds.size());
    rule_ = clip_rule{.kind = clip_rule::kind_type::grouped,
                      .bounds = memory_->template at<const double>(places.bounds),
                      .group_of = memory_->template at<const int>(places.groups),
                      .groups = static_cast<int>(bounds.size()),
                      .unit = grid_.unit};
    is_captured_ = false;
  }
  /// Has the device read the records where they lie, if it can, also if it `streams` them over a bus: not those whose
  /// lengths differ, which lie there in another way.
  [[nodiscard]] bool view_records(const records_type& records, bool streams) {
    if (net().input_positions > 0 || records.size() == 0) return false;
    auto inputs = device_->view(records.input(0), records.size() * net().input_size * sizeof(Value), streams);
    if (inputs == nullptr) return false;
    seen_targets_ = device_->view(records.targets().data(), records.targets().size_bytes(), streams);
    if (seen_targets_ == nullptr) return false;
    seen_inputs_ = std::move(inputs);
    records_.reset();
    room_ = 0;
    return true;
  }
  /// Where parts of a data set lie in memory of the device.
  struct record_places {
    std::size_t targets;
    std::size_t lengths;
    std::size_t end;
  };
  [[nodiscard]] record_places places_of(const records_type& records) const noexcept {
    const auto behind = [](std::size_t bytes) { return (bytes + 255) / 256 * 256; };
    const std::size_t targets = behind(records.size() * net().input_size * sizeof(Scalar));
    const std::size_t lengths = behind(targets + records.targets().size_bytes());
    return {targets, lengths, lengths + (net().input_positions > 0 ? records.size() * sizeof(std::uint32_t) : 0)};
  }
  [[noreturn]] static void refuse_records(std::size_t bytes) {
    pergrad::detail::refuse_training(
        "the data set has " + std::to_string(bytes) +
        " bytes, more than most_record_bytes of the device's options, and cannot be read where it lies");
  }
  /// Brings records to the device, or the device to them. A step is captured anew then.
  [[gnu::cold]] void bring(const records_type& records) {
    has_records_ = false;
    is_captured_ = false;
    graph_ = {};  // another one, whose kernels may not be loaded yet
    copied_ = records;
    seen_inputs_.reset();  // before there are others
    seen_targets_.reset();
    if (!memory_->copies_records() && view_records(records, false)) return gather_in_steps();
    const record_places places = places_of(records);
    if (room_ < places.end) {
      room_ = 0;
      records_.reset();  // before there is another one
      if (places.end <= memory_->most_record_bytes()) {
        try {
          records_ = allocate_on(device_, places.end);
          room_ = places.end;
        } catch (const std::bad_alloc&) {
          if (!view_records(records, true)) throw;
        }
      } else if (!view_records(records, true)) {
        refuse_records(places.end);
      }
      if (reads_in_place()) return gather_in_steps();
    }
    if (records.size() > 0) {
      upload_inputs(records);
      if (net().input_positions > 0) upload_lengths(records, places.lengths);
      device_->upload(records_.get() + places.targets, records.targets().data(), records.targets().size_bytes());
    }
    view_ = memory_->samples(reinterpret_cast<const Scalar*>(records_.get()),
                             reinterpret_cast<const Target*>(records_.get() + places.targets), target_count_,
                             reinterpret_cast<const std::uint32_t*>(records_.get() + places.lengths),
                             memory_->template at<const std::uint32_t>(memory_->places().records));
    has_records_ = true;
  }
  /// Each step brings what it draws to where samples lie.
  void gather_in_steps() {
    view_ = memory_->samples(memory_->inputs(), memory_->template targets<Target>(), target_count_, nullptr,
                             memory_->template at<const std::uint32_t>(memory_->places().records));
    view_.records = nullptr;
    has_records_ = true;
  }
  /// Kernels read the device's copy as it is: what `pack` does to records is done here.
  void upload_inputs(const records_type& records) {
    const std::size_t width = net().input_size;
    if (std::is_same_v<Value, Scalar> && !memory_->rounds() && net().input_positions == 0) {
      return device_->upload(records_.get(), records.input(0), records.size() * width * sizeof(Scalar));
    }
    const std::size_t together = std::max<std::size_t>(1, (std::size_t{1} << 16U) / width);
    std::vector<Scalar> part(std::min(together, records.size()) * width);
    for (std::size_t first = 0; first < records.size(); first += together) {
      const std::size_t count = std::min(together, records.size() - first);
      for (std::size_t i = 0; i < count; ++i) {
        memory_->pack(records.input(first + i), records.length(first + i), part.data() + i * width);
      }
      device_->upload(records_.get() + first * width * sizeof(Scalar), part.data(), count * width * sizeof(Scalar));
    }
  }
  void upload_lengths(const records_type& records, std::size_t start) {
    std::vector<std::uint32_t> lengths(records.size());
    for (std::size_t i = 0; i < lengths.size(); ++i) lengths[i] = records.length(i);
    device_->upload(records_.get() + start, lengths.data(), lengths.size() * sizeof(std::uint32_t));
  }
  /// Their newest parameters are the host's behind it.
  void give_back(const trained_network<Scalar>& network) const noexcept {
    if (network.remote == nullptr || network.remote->context != this) return;
    try {
      static_cast<void>(network.all_parameters(network.network));
    } catch (...) {  // the device is gone: the host's copy is the newest there is
    }
    *network.remote = {};
  }
  /// What the host may have changed of the average: a file's, say.
  void bring_average() {
    if (average_ == nullptr) return;
    pergrad::detail::remote_parameters& remote = *average_network_.remote;
    if (remote.context != this) {
      remote = {this,
                [](void* self, void* parameters) {
                  const auto& mine = *static_cast<const network_trainer*>(self);
                  mine.memory_->get(static_cast<Scalar*>(parameters), mine.average(), mine.net().parameters);
                },
                [](void* /*self*/, const void* /*device*/) -> void* { return nullptr; }};
    }
    if (!remote.changed) return;
    const std::span<const Scalar> values = average_network_.all_parameters(average_network_.network);
    memory_->put(average(), values.data(), net().parameters);
    remote.changed = false;
  }
  /// From now on the newest parameters are here. They may have been with another trainer of the same network.
  void take_over() {
    static_cast<void>(host_parameters());
    *network_.remote = {
        this, [](void* self, void* parameters) { static_cast<network_trainer*>(self)->fetch_parameters(parameters); },
        [](void* self, const void* device) -> void* {
          const auto& mine = *static_cast<network_trainer*>(self);
          return mine.device_.get() == device ? mine.memory_->parameters() : nullptr;
        }};
  }
  void fetch_parameters(void* to) const {
    memory_->get(static_cast<Scalar*>(to), memory_->places().parameters, net().parameters + net().frozen);
  }

  /// Of the noise and the sensitivity as they are now.
  [[gnu::cold]] void plan_noise() {
    const double noise = options_.noise->value();
    settings_.grid =
        noise_on_grid::of(noise * sensitivity_in_steps(grid_, summation::of<Scalar>(options_.capacity->count), 1),
                          {std::ldexp(1.0, grid_.steps), std::ldexp(1.0, grid_.unit - grid_.steps),
                           static_cast<double>(std::numeric_limits<Scalar>::max())});
    pergrad::detail::require_sigma(noise, settings_.grid.sigma, noise == 0);
    if (runs_kernels<Device> && settings_.grid.sigma > 0) check_.require_the_hosts(settings_.grid);
    if (!options_.adaptive_clip && !options_.schedules.any()) check_.give_back();
    is_planned_ = true;
    is_captured_ = false;
  }
  void capture() {
    const launcher<Device, Scalar, Target, Needed> step{*memory_, view_, launch_};
    const auto most = static_cast<int>(memory_->max_batch());
    recapture(*device_, graph_, [&] {
      if (reads_in_place()) {
        launch(*device_, memory_->template gather<Value, Target>(seen_inputs_.get(), seen_targets_.get(), target_count_,
                                                                 memory_->format(), memory_->max_batch()));
      }
      step.samples({.rule = rule_, .layers = is_random_ ? &layers_.stream : nullptr, .clears = true, .samples = most});
      step.sum_of_integers({.weights = memory_->template at<const Scalar>(memory_->places().weights),
                            .per_layer = rule_.per_layer(),
                            .grid_steps = grid_.steps,
                            .samples = most});
      if (peers_ == nullptr) {
        launch_release(0, net().parameters);
        launch_average();
      }
    });
    if (peers_ != nullptr) {
      recapture(*device_, release_graph_, [&] { launch_release_together(); });
    }
    is_captured_ = true;
  }
  [[nodiscard]] int rule() const noexcept {
    if (options_.optimizer == optimizer_kind::adam) {
      return options_.adam.noise_floor > 0 ? update::corrected_adam : update::adam;
    }
    return options_.momentum > 0 ? update::momentum : update::sgd;
  }
  /// Arrays of the optimizer's state, of which number `number` lies here; nullptr: it has fewer.
  [[nodiscard]] std::size_t moment_count() const {
    return options_.optimizer == optimizer_kind::adam ? 2 : rule() == update::momentum ? 1 : 0;
  }
  [[nodiscard]] std::size_t moment_step() const {
    return (net().parameters + arena_line - 1) / arena_line * arena_line;
  }
  [[nodiscard]] Scalar* moment(std::size_t number) const {
    return number < moment_count() ? reinterpret_cast<Scalar*>(moments_.get()) + number * moment_step() : nullptr;
  }
  [[nodiscard]] Scalar* average() const noexcept { return reinterpret_cast<Scalar*>(average_.get()); }
  [[nodiscard]] double* limits() const noexcept { return reinterpret_cast<double*>(limits_.get()); }
  void launch_release_together() {
    auto* const sums = memory_->template at<std::int64_t>(memory_->places().sums);
    peers_->add_up(*device_, sums);
    launch_release(peers_->begin, peers_->end);
    peers_->share(*device_, memory_->parameters());
    launch_average();
  }
  void launch_average() {
    if (average_ == nullptr) return;
    launch(*device_, average_kernel<Scalar>{memory_->state(), memory_->parameters(), average(),
                                            static_cast<std::int64_t>(net().parameters)});
  }
  void released() noexcept {
    ++updates_;
    noise_share_ = next_noise_share_;
    if (average_network_.remote != nullptr) {
      average_network_.remote->newer = true;
      ++*average_updates_;
    }
    is_released_ = true;
    network_.remote->newer = true;
  }
  void launch_release(std::size_t begin, std::size_t end) {
    const arena_layout& places = memory_->places();
    const release_work<Scalar> work{.state = memory_->state(),
                                    .settings = settings_,
                                    .sums = memory_->template at<const std::int64_t>(places.sums),
                                    .begin = static_cast<std::int64_t>(begin),
                                    .end = static_cast<std::int64_t>(end),
                                    .parameters = memory_->parameters(),
                                    .first = moment(0),
                                    .second = moment(1),
                                    .released = memory_->template at<Scalar>(places.released),
                                    .rule = rule(),
                                    .tables = memory_->tables().rows,
                                    .table_count = memory_->tables().row_count};
    launch(*device_, release_kernel<Scalar>{work});
  }

  std::shared_ptr<Device> device_;
  trained_network<Scalar> network_;
  network_memory<Scalar, Device>* memory_;
  launch_type launch_;
  std::size_t target_count_;
  training_choices options_;
  release_grid grid_;
  release_settings<Scalar> settings_{};
  noise_check<Scalar, Device> check_{device_};
  clip_rule rule_;
  std::shared_ptr<std::byte> moments_;            ///< on the device
  std::shared_ptr<std::byte> records_;            ///< there, too
  std::size_t room_ = 0;                          ///< there, in bytes
  std::shared_ptr<const std::byte> seen_inputs_;  ///< where the device reads them in the host's memory
  std::shared_ptr<const std::byte> seen_targets_;
  std::optional<records_type> copied_;  ///< those that are there, or seen
  held_stream layers_{};                ///< of the bits inside layers, if there may be any
  std::uint64_t layer_step_ = 0;
  bool is_random_ = false;
  bool has_records_ = false;
  bool is_planned_ = false;   ///< noise, of what is known of the next step
  bool is_captured_ = false;  ///< as all of that is
  batch_view<Scalar, Target> view_{};
  typename Device::graph graph_;
  typename Device::graph release_graph_;  ///< where there are peers
  const peers_of_device<Device>* peers_ = nullptr;
  std::uint32_t first_record_ = 0;
  std::uint64_t position_ = 0;
  bool is_released_ = false;
  std::uint64_t updates_ = 0;
  double noise_share_ = 0;  ///< of DP-AdamBC (optim/adam.hpp)
  double next_noise_share_ = 0;
  trained_network<Scalar> average_network_;
  std::shared_ptr<std::byte> average_;  ///< on the device
  std::uint64_t* average_updates_ = nullptr;
  double way_of_average_ = 1;
  std::shared_ptr<std::byte> limits_;  ///< there, of individual accounting
  std::vector<double> most_;
  std::vector<norm_bound> parts_;
  device_marks<Device> marks_{device_};
};

/// What `dp_sgd` keeps on a device. Refers to the network and the tape.
template <class Network, class Loss, class Device>
class trainer : public network_trainer<typename Network::scalar, typename Network::input_value,
                                       target_of<Loss, typename Network::scalar>, products_of<Network>, Device> {
  using scalar = typename Network::scalar;

 public:
  trainer(const basic_device_executor<Device>& executor, Network& network, Loss /*loss*/, tape<Network>& tape,
          const training_choices& options, double sensitivity)
      : trainer::network_trainer{executor.shared_device(),
                                 trained_network_of(network),
                                 executor.engine_of(tape).memory(),
                                 sample_launcher_of<Device, Network, Loss>,
                                 Loss::target_count(Network::output_shape),
                                 options,
                                 sensitivity} {}

  /// f(the optimizer), of a kind that options choose: for files.
  template <class Function>
  auto with_optimizer(Function&& f) {
    const training_choices& options = this->options();
    if (options.optimizer == optimizer_kind::adam) {
      if (options.adam.noise_floor > 0) {  // the noise is told anew in each step
        return this->with_twin(
            adam<Network>{*options.learning_rate, options.adam, noise_multiplier{0}, l2_clip_norm{1}}, f);
      }
      return this->with_twin(adam<Network>{*options.learning_rate, options.adam}, f);
    }
    return this->with_twin(sgd<Network>{*options.learning_rate, options.momentum}, f);
  }

  /// All of a step. The last physical batch brings the noise along, and an empty one is a batch as well.
  template <class Noise, class NextNoise>
  void step(const pergrad::detail::step_records<Network, Loss>& records, const Noise& /*noise*/,
            const NextNoise& next_noise, std::span<scalar> /*update*/) {
    run_batches(records, next_noise());
  }

 protected:
  void run_batches(const pergrad::detail::step_records<Network, Loss>& records,
                   const typename trainer::noise_stream& noise) {
    this->prepare(*records.records, noise, records.randomness);
    // Behind it the caller may change the records, also where it fails.
    try {
      std::span<const std::uint32_t> drawn = records.next();
      while (drawn.size() == this->max_batch()) {
        chunk(records, drawn, nullptr);
        drawn = records.next();
      }
      chunk(records, drawn, &noise);
    } catch (...) {
      try {
        if (this->reads_in_place()) this->device().synchronise();
      } catch (...) {  // what came first is what is wrong
      }
      throw;
    }
    if (this->reads_in_place()) this->device().synchronise();
  }

 private:
  void chunk(const pergrad::detail::step_records<Network, Loss>& records, std::span<const std::uint32_t> drawn,
             const typename trainer::noise_stream* noise) {
    pergrad::detail::individual_charges* const charges = records.charges;
    if (charges != nullptr) this->limit(drawn, *charges);
    try {
      this->run(drawn, noise);
    } catch (...) {  // it may have been released all the same
      if (charges != nullptr && noise != nullptr) this->charge_the_most(drawn, *charges);
      throw;
    }
    if (charges != nullptr) {
      this->charge(drawn, *charges);
      if (noise != nullptr) charges->end_of_step();  // whatever fails behind a release
    }
    pergrad::detail::step_notes<scalar>& notes = *records.notes;
    if (!notes.wanted()) return;
    this->fetch_facts(notes.losses(drawn.size()), notes.norms(drawn.size()));
    notes.note(drawn.size());
  }
};

}  // namespace pergrad::inline v0_1::on_device
