// SPDX-License-Identifier: Apache-2.0
// tests/network/random_networks.hpp - what is asked of networks that random_networks.py draws
#pragma once

#define BOOST_TEST_MODULE random_networks
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <random>
#include <ratio>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <pergrad/certify.hpp>
#include <pergrad/pergrad.hpp>
#include <pergrad/testing/layer_laws.hpp>
#include <pergrad/testing/length_law.hpp>

#include "comparing.hpp"
#include "cuda/device_fixture.hpp"
#include "host/told.hpp"

namespace random_networks {

namespace pg = pergrad;

template <class Report>
void expect_none(const Report& report) {
  BOOST_TEST(report.comparisons() > 0U);
  for (const auto& broken : report) BOOST_ERROR(broken.text());
}
template <class Doubles, class Floats, class Loss>
void laws() {
  expect_none(pg::testing::check_network<Doubles, Loss>({.samples = 19, .differences = 200, .negligible = 1e-18}));
  expect_none(pg::testing::check_network<Floats, Loss>({.samples = 19}));
}
template <class Network, class Loss>
void lengths() {
  expect_none(pg::testing::check_lengths<Network, Loss>());
}

/// Losses, norms, rows, every kind of sum, and what steps of a trainer make of the parameters.
template <class Loss, class Network, class... Twins>
void plans() {
  const told_results::told<Network, Loss> wanted{2};
  std::size_t number = 1;  // of the twin, which has as many threads
  const auto compare = [&](const auto& found) {
    const auto agree = [&](const auto& these, const auto& those, double allowed, const char* what) {
      comparing::check_close(these, those, allowed, what + (" of twin " + std::to_string(number)));
    };
    agree(found.losses, wanted.losses, 1e-12, "losses");
    agree(found.norms, wanted.norms, 1e-11, "norms");
    agree(found.rows, wanted.rows, 1e-11, "rows");
    agree(found.sum, wanted.sum, 1e-11, "sum");
    agree(found.clipped, wanted.clipped, 1e-11, "clipped sum");
    agree(found.formed, wanted.formed, 1e-11, "sum of gradients that are formed");
    agree(found.ghost, wanted.ghost, 1e-11, "clipped sum by ghost");
    agree(found.means, wanted.means, 1e-11, "mean");
    agree(found.dots, wanted.dots, 1e-10, "projections");
    agree(found.trained[0], wanted.trained[0], 1e-6, "parameters behind steps");
    agree(found.trained[1], wanted.trained[1], 1e-6, "parameters behind steps of a capacity");
    ++number;
  };
  (compare(told_results::told<Twins, Loss>{number}), ...);
}
template <class Network, class Loss>
void devices() {
  device_fixture::compare_gradients<Network, Loss>("gradients");
  device_fixture::compare_strategies<Network, Loss>("strategies");
}

/// Records that are changed until gradients of one layer, or of all, are long. Of each number between what is given.
template <class Network, class Loss>
class climber {
  using value = typename Network::input_value;
  using target = pg::target_of<Loss, typename Network::scalar>;
  static constexpr std::size_t width = Network::input_shape.size();
  static constexpr std::size_t targets_each = Loss::target_count(Network::output_shape);
  static constexpr std::size_t together = 32;

 public:
  static constexpr auto layers = pg::detail::list_layer_stretches<typename Network::structure>();

  /// `length`: of records, at most.
  climber(const Network& network, const std::vector<pg::interval>& box, double length, std::uint64_t seed)
      : network_{&network}, box_{box}, length_{length}, random_{seed} {}

  /// Of a layer's gradients, or with layers.size() of whole ones.
  double longest(std::size_t layer, int rounds) {
    for (std::size_t b = 0; b < together; ++b) draw(b);
    double best = 0;
    for (int round = 0; round < rounds; ++round) {
      const std::vector<double> norms = evaluate(layer);
      const auto at = static_cast<std::size_t>(std::ranges::max_element(norms) - norms.begin());
      for (const double each : norms) best = std::isnan(each) ? std::numeric_limits<double>::infinity() : best;
      best = std::max(best, norms[at]);
      copy(at, 0);
      for (std::size_t b = 1; b < together; ++b) {
        if (b % 8 == 7) {
          draw(b);
        } else {
          copy(0, b);
          change(b, std::ldexp(1.0, -static_cast<int>(b % 4) * 2));
        }
      }
    }
    return best;
  }

 private:
  double uniform(double low, double high) { return std::uniform_real_distribution<double>{low, high}(random_); }
  std::size_t below(std::size_t count) { return random_() % count; }
  void copy(std::size_t from, std::size_t to) {
    if (from == to) return;
    std::copy_n(std::next(inputs_.begin(), static_cast<std::ptrdiff_t>(from * width)), width,
                std::next(inputs_.begin(), static_cast<std::ptrdiff_t>(to * width)));
    std::copy_n(std::next(targets_.begin(), static_cast<std::ptrdiff_t>(from * targets_each)), targets_each,
                std::next(targets_.begin(), static_cast<std::ptrdiff_t>(to * targets_each)));
    if (!lengths_.empty()) lengths_[to] = lengths_[from];
  }
  void draw_target(std::size_t b) {
    for (target& to : std::span{targets_}.subspan(b * targets_each, targets_each)) {
      to = static_cast<target>(
          below(std::is_integral_v<target> ? Network::output_shape[Network::output_shape.rank() - 1] : std::size_t{2}));
    }
  }
  void draw(std::size_t b) {
    draw_target(b);
    if (!lengths_.empty()) lengths_[b] = static_cast<std::uint32_t>(1 + below(Network::input_shape.e0));
    const std::size_t way = below(4);  // all at one end, some at either, one alone, anywhere
    const std::size_t alone = below(width);
    for (std::size_t i = 0; i < width; ++i) {
      value& to = inputs_[b * width + i];
      if constexpr (std::is_integral_v<value>) {
        to = static_cast<value>(below(Network::input_shape.ids));
      } else {
        const pg::interval& of = box_[i];
        to = static_cast<value>(way == 0   ? of.upper
                                : way == 1 ? (below(2) == 0 ? of.lower : of.upper)
                                : way == 2 ? (i == alone ? of.upper : std::clamp(0.0, of.lower, of.upper))
                                           : uniform(of.lower, of.upper));
      }
    }
    keep_inside(b);
  }
  void change(std::size_t b, double size) {
    if (below(3) == 0) draw_target(b);
    for (std::size_t i = 0; i < width; ++i) {
      value& to = inputs_[b * width + i];
      if constexpr (std::is_integral_v<value>) {
        if (below(width) == 0) to = static_cast<value>(below(Network::input_shape.ids));
      } else {
        to = static_cast<value>(static_cast<double>(to) + size * uniform(-0.5, 0.5) * (box_[i].upper - box_[i].lower));
      }
    }
    keep_inside(b);
  }
  void keep_inside(std::size_t b) {
    if constexpr (!std::is_integral_v<value>) {
      double squares = 0;
      for (std::size_t i = 0; i < width; ++i) {
        value& to = inputs_[b * width + i];
        to = std::clamp(to, static_cast<value>(box_[i].lower), static_cast<value>(box_[i].upper));
        squares += static_cast<double>(to) * static_cast<double>(to);
      }
      if (squares <= length_ * length_) return;
      for (std::size_t i = 0; i < width; ++i) {
        value& to = inputs_[b * width + i];
        to = static_cast<value>(static_cast<double>(to) * length_ / std::sqrt(squares) * (1 - 0x1p-20));
      }
    }
  }
  std::vector<double> evaluate(std::size_t layer) {
    const pg::batch<Network, Loss> batch{inputs_, targets_, lengths_};
    const auto rows =
        pg::unprotected::evaluate(executor_, materialise(per_sample_gradients(*network_, Loss{}, batch, tape_)));
    constexpr std::size_t all = Network::parameter_count;
    const std::size_t first = layer == layers.size() ? 0 : layers[layer].first;
    const std::size_t count = layer == layers.size() ? all : layers[layer].count;
    std::vector<double> norms(together);
    for (std::size_t b = 0; b < together; ++b) {
      double squares = 0;
      for (std::size_t k = first; k < first + count; ++k) {
        const auto each = static_cast<double>(rows[b * all + k]);
        squares += each * each;
      }
      norms[b] = std::sqrt(squares);
    }
    return norms;
  }

  const Network* network_;
  std::vector<pg::interval> box_;
  double length_;
  std::mt19937_64 random_;
  pg::host executor_{pg::threads{1}};
  pg::tape<Network> tape_{executor_, pg::max_batch{together}};
  std::vector<value> inputs_ = std::vector<value>(together * width);
  std::vector<target> targets_ = std::vector<target>(together * targets_each);
  std::vector<std::uint32_t> lengths_ =
      std::vector<std::uint32_t>(Network::input_shape.varying_axis() == 0 ? 0 : together);
};

/// No record's gradient, and no layer's part of one, is longer than its certificate says: of balls and of boxes, with
/// usual weights, and with some of one sign, whose products add up.
template <class Network, class Loss>
void certificates() {
  if constexpr (!std::is_same_v<pg::certified::missing_bound<Network, Loss>, char>) {
    BOOST_TEST_MESSAGE("nothing is known of a layer or of the loss");
  } else {
    using climbs = climber<Network, Loss>;
    constexpr std::size_t width = Network::input_shape.size();
    const pg::host exec{pg::threads{1}};
    double nearest = std::numeric_limits<double>::infinity();
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      std::mt19937_64 random{seed};
      const auto uniform = [&](double low, double high) {
        return std::uniform_real_distribution<double>{low, high}(random);
      };
      Network net{exec, pg::layer_default{seed}};
      const double share_of_one_sign = seed % 3 == 0 ? 0 : uniform(0.3, 1);
      const double size = std::exp2(uniform(-2, 1));
      for (const auto& stretch : climbs::layers) {
        const bool has_one_sign = uniform(0, 1) < share_of_one_sign;
        for (auto& each : net.parameters().subspan(stretch.first, stretch.count)) {
          using scalar = typename Network::scalar;
          each = static_cast<scalar>(has_one_sign ? size * uniform(0.9, 1) * 0.5 : size * static_cast<double>(each));
        }
      }
      const auto compare = [&](const pg::certificate& proven, climbs by, const char* of) {
        if (!proven.is_finite()) return;
        for (std::size_t layer = 0; layer <= climbs::layers.size(); ++layer) {
          double bound = proven.bound;
          if (layer < climbs::layers.size()) {
            bound = 0;
            for (std::size_t node = 0; node < Network::structure::size; ++node) {
              const std::size_t owner = Network::structure::owners[node];
              const bool is_its = Network::structure::trained_counts[owner] > 0 &&
                                  Network::structure::parameter_offsets[owner] == climbs::layers[layer].first;
              if (is_its) bound += proven.layers[node].bound;
            }
            bound *= 1 + 1e-12;
          }
          const double found = by.longest(layer, 12);
          BOOST_TEST(found <= bound, of << ", seed " << seed << ", layer " << layer << ": " << found << " is above "
                                        << bound << " by " << found / bound - 1);
          if (found > 0) nearest = std::min(nearest, bound / found);
        }
      };
      const double length = static_cast<float>(std::exp2(uniform(-2, 3)));
      std::vector<pg::interval> box(width);
      for (pg::interval& each : box) each = pg::interval{-length, length};
      compare(pg::certify(net, Loss{}, pg::l2_ball(length)), climbs{net, box, length, seed}, "a ball");
      if constexpr (Network::input_shape.ids == 0) {
        compare(pg::certify(net, Loss{}, pg::linf_ball(length)),
                climbs{net, box, std::numeric_limits<double>::infinity(), seed}, "a cube");
        for (pg::interval& each : box) {
          const double center = uniform(-length, length), radius = length * std::exp2(uniform(-8, 0));
          each = pg::interval{static_cast<double>(static_cast<float>(center - radius)),
                              static_cast<double>(static_cast<float>(center + radius))};
        }
        compare(pg::certify(net, Loss{}, pg::element_box{box}),
                climbs{net, box, std::numeric_limits<double>::infinity(), seed}, "a box");
      }
    }
    BOOST_TEST_MESSAGE("bounds are at least " << nearest << " of what is found");
  }
}

}  // namespace random_networks

/// Twin 1 has places that values share, 2 is large, 3 large from its 12th parameter on, 4 layered on a device.
#define PERGRAD_RANDOM_PLANS(net)                                                                           \
  namespace pergrad::inline v0_1 {                                                                          \
  template <>                                                                                               \
  inline constexpr on_host::index on_host::places_by_times_from<net<double, 1>> = 0;                        \
  template <>                                                                                               \
  inline constexpr std::size_t on_host::large_from<net<double, 2>> = 0;                                     \
  template <>                                                                                               \
  inline constexpr std::size_t on_host::large_from<net<double, 3>> = 12 * sizeof(double);                   \
  template <>                                                                                               \
  inline constexpr on_device::plan_kind on_device::plan_of<net<double, 4>> = on_device::plan_kind::layered; \
  }
