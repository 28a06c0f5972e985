// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/ranks/device_step.hpp - the step of a rank whose records and parameters are on a device
//
// The same as on the host (trainer.hpp), where what is large stays on the devices: a rank's kernels add up its own
// records in integers, the communicator adds up the ranks' sums, the owner of a part releases and updates it, and the
// communicator shares the new parameters. All of that lies in the device's order, behind each other: in a graph that is
// replayed once a step. Ranks meet on the host before it, so that one that has failed ends all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <pergrad/cuda/run/executor.hpp>
#include <pergrad/cuda/run/trainer.hpp>
#include <pergrad/ranks/communicator.hpp>
#include <pergrad/ranks/trainer.hpp>

namespace pergrad::inline v0_1 {

/// A communicator that also exchanges what lies on a device. These put what they do into the device's order and do not
/// wait, also while a graph is captured; sums and values are device memory:
///
///   reduce_scatter(device, sum, places), all_gather(device, bytes, places)   as of a communicator
///   wait(device)   until the device is done; throws rank_failed if a rank is gone, or does not come in time
template <class Type, class Device>
concept device_communicator = communicator<Type> &&
    requires(const Type& ranks, Device& device, std::span<std::byte> bytes, std::span<std::int64_t> sum,
             std::span<const std::size_t> places) {
  ranks.reduce_scatter(device, sum, places);
  ranks.all_gather(device, bytes, places);
  ranks.wait(device);
};

namespace detail {

/// The other ranks, as a device's trainer sees them.
template <class Network, class Device, class Ranks>
class peers_of_rank final : public on_device::peers_of_device<Device> {
 public:
  explicit peers_of_rank(const Ranks& ranks) : ranks_{&ranks}, owned_{ranks.size()} {
    this->begin = owned_.places[ranks.rank()];
    this->end = owned_.places[ranks.rank() + 1];
  }
  void add_up(Device& device, std::int64_t* sums) const override {
    ranks_->reduce_scatter(device, std::span{sums, Network::parameter_count}, owned_.places);
  }
  void share(Device& device, void* values) const override {
    ranks_->all_gather(device, {static_cast<std::byte*>(values), owned_.bytes.back()}, owned_.bytes);
  }
  [[nodiscard]] const Ranks& ranks() const noexcept { return *ranks_; }

 private:
  static_assert(release_gate<typename Network::scalar>::stretch % on_device::release_elements == 0);
  const Ranks* ranks_;
  owned_parts<Network> owned_;
};

template <class Network, class Loss, class Device, class Ranks>
class device_step_on_ranks : public on_device::trainer<Network, Loss, Device> {
  using base = on_device::trainer<Network, Loss, Device>;
  using scalar = typename Network::scalar;

 public:
  device_step_on_ranks(const on_ranks<basic_device_executor<Device>, Ranks>& executor, Network& network, Loss loss,
                       tape<Network>& tape, const training_choices& options, double sensitivity)
      : base{executor.mine(), network, loss, tape, options, sensitivity}, peers_{executor.ranks()} {
    this->train_with(peers_);
  }

  template <class Noise, class NextNoise>
  void step(const step_records<Network, Loss>& records, const Noise& /*noise*/, const NextNoise& next_noise,
            std::span<scalar> /*update*/) {
    do_together(peers_.ranks(), [&] {
      this->set_first_record(static_cast<std::uint32_t>(records.first_record));
      this->run_batches(records, next_noise());
    });
    this->release_together();
    peers_.ranks().wait(this->device());
  }
  void gather_state() const {
    this->gather_moments();
    peers_.ranks().wait(this->device());
  }
  /// A device keeps the whole arrays.
  void forget_others() const noexcept {}

 private:
  peers_of_rank<Network, Device, Ranks> peers_;
};

template <class Network, class Loss, class Device, communicator Ranks>
struct rank_step<Network, Loss, basic_device_executor<Device>, Ranks> {
  static_assert(device_communicator<Ranks, Device>,
                "pergrad: these ranks exchange what is on the host: on a GPU train with the nccl_ranks of "
                "<pergrad/nccl.cuh>");
  using type = device_step_on_ranks<Network, Loss, Device, Ranks>;
};

}  // namespace detail
}  // namespace pergrad::inline v0_1
