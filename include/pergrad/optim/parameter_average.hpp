// SPDX-License-Identifier: Apache-2.0
// pergrad/optim/parameter_average.hpp - the exponential moving average of a network's parameters
//
//   a <- a + (w - a) (1 - decay) / (1 - decay^t),  t = 1, 2, ...
//
// That is the average with weights decay^(t - i) of the parameters behind steps i = 1 ... t, without the share of the
// first ones that a start from them leaves (Polyak & Juditsky 1992; in private training De et al. 2022,
// arXiv:2204.13650). It reads parameters that were released, so it costs no privacy.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <pergrad/detail/error_text.hpp>
#include <pergrad/detail/executors.hpp>
#include <pergrad/detail/float_environment.hpp>
#include <pergrad/optim/rules.hpp>
#include <pergrad/simd/elements.hpp>
#include <pergrad/simd/lanes.hpp>

namespace pergrad::inline v0_1 {

namespace detail {
struct run_state_access;
struct average_access;

inline void require_average_decay(double decay) {
  if (decay > 0 && decay < 1) return;
  throw_invalid_argument({"pergrad: parameter_average: the decay must be in (0, 1), got ", decay});
}
}  // namespace detail

/// An average of the parameters behind each step, as a network of its own: to predict with, to save.
///
///   pg::parameter_average average{net, 0.999};
///   ...                                              // behind each step:
///   average.update(exec, net);
///   pg::predict(exec, average.network(), inputs);
template <class Network>
class parameter_average {
 public:
  using scalar = typename Network::scalar;
  /// Throws std::invalid_argument unless 0 < decay < 1. Until the first update its network is what `network` is now.
  parameter_average(const Network& network, double decay) : parameter_average{network.clone(), decay, 0} {}
  /// Goes on with an average that was saved behind `updates` updates.
  parameter_average(Network&& saved, double decay, std::uint64_t updates)
      : average_{std::move(saved)}, decay_{decay}, updates_{updates} {
    detail::require_average_decay(decay);
  }

  /// Takes the parameters behind one more step in. Allocates nothing.
  template <executor Executor>
  void update(const Executor& executor, const Network& network) {
    const detail::float_environment proven;
    if (updates_ == 0) take_frozen(network);
    const double way_there = way_of(++updates_);
    if (way_there == 1) {  // w itself: w - a might be rounded
      const auto first_ones = network.parameters();
      std::copy(first_ones.begin(), first_ones.end(), average_.parameters().begin());
      return;
    }
    const auto way = static_cast<scalar>(way_there);
    scalar* const a = average_.parameters().data();
    const scalar* const w = network.parameters().data();
    constexpr std::size_t stretch = std::size_t{1} << 12U;
    constexpr std::size_t count = Network::parameter_count;
    executor.pool().parallel((count + stretch - 1) / stretch, [=](std::size_t task, std::size_t) {
      const std::size_t first = task * stretch;
      const auto mix = [=](on_host::index i, const auto& lanes) {
        using pack = on_host::pack<scalar>;
        const pack old = lanes.load(a + first + i);
        lanes.store(a + first + i, rules::averaged(old, pack{lanes.load(w + first + i)}, way));
      };
      on_host::for_each_pack<scalar>(static_cast<on_host::index>(std::min(count - first, stretch)), mix);
    });
  }

  /// Those that are not trained become the network's.
  void take_frozen(const Network& network) {
    const auto theirs = network.frozen_parameters();
    std::copy(theirs.begin(), theirs.end(), average_.frozen_parameters().begin());
  }
  /// With the averaged parameters; frozen ones as they were at the first update, or at `take_frozen`.
  [[nodiscard]] const Network& network() const noexcept { return average_; }
  [[nodiscard]] std::uint64_t updates() const noexcept { return updates_; }
  [[nodiscard]] double decay() const noexcept { return decay_; }

 private:
  friend struct detail::run_state_access;
  friend struct detail::average_access;
  [[nodiscard]] double way_of(std::uint64_t update) const {
    return update == 1 ? 1 : (1 - decay_) / (1 - std::pow(decay_, static_cast<double>(update)));
  }
  Network average_;
  double decay_ = 0;
  std::uint64_t updates_ = 0;
};

namespace detail {
/// Of an executor that averages itself.
struct average_access {
  /// The way of the next update; of the first one frozen parameters are taken over.
  template <class Network>
  [[nodiscard]] static double begin(parameter_average<Network>& average, const Network& network) {
    if (average.updates_ == 0) average.take_frozen(network);
    return average.way_of(average.updates_ + 1);
  }
  /// Before the first update, of a network that has other parameters now.
  template <class Network>
  static void set_out_from(parameter_average<Network>& average, const Network& network) {
    std::ranges::copy(network.all_parameters(), average.average_.all_parameters().begin());
  }
  /// How many there were, which that executor counts.
  template <class Network>
  [[nodiscard]] static std::uint64_t* updates(parameter_average<Network>& average) noexcept {
    return &average.updates_;
  }
};
}  // namespace detail

}  // namespace pergrad::inline v0_1
