// SPDX-License-Identifier: Apache-2.0
// tests/certify/search.hpp - the largest per-sample gradient that an adversary finds who chooses records and targets
#pragma once

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <type_traits>
#include <vector>

#include <pergrad/certify.hpp>
#include <pergrad/pergrad.hpp>

namespace certify_tests {

namespace pg = pergrad;

/// Does the host form this convolution of such images by minimal filtering, which rounds in its own way?
template <class Layer>
[[nodiscard]] constexpr bool is_filtered(pg::shape in) {
  pg::on_host::node_row row;
  row.map = Layer::affine(in);
  pg::on_host::choose_winograd(row);
  return row.in_pairs || row.winograd_rows > 0;
}

using filtered = pg::network<pg::shape{64, 8, 8}, pg::conv2d<64, 3, pg::padding<1>>, pg::adaptive_avg_pool2d<1>,
                             pg::flatten, pg::linear<2>>;
using filtered_in_pairs =
    pg::network<pg::shape{32, 11, 11}, pg::conv2d<32, 4>, pg::adaptive_avg_pool2d<1>, pg::flatten, pg::linear<2>>;
static_assert(is_filtered<pg::conv2d<64, 3, pg::padding<1>>>(filtered::input_shape) &&
              is_filtered<pg::conv2d<32, 4>>(filtered_in_pairs::input_shape));

/// Lengths of records, where those of a network have one: the first and every fourth are whole.
template <class Network>
[[nodiscard]] std::vector<std::uint32_t> lengths_of(std::size_t records) {
  constexpr std::size_t axis = Network::input_shape.varying_axis();
  if constexpr (axis == 0) return {};
  std::vector<std::uint32_t> all(records);
  const auto longest = static_cast<std::uint32_t>(Network::input_shape[axis == 0 ? 0 : axis - 1]);
  for (std::uint32_t b = 0; b < records; ++b) all[b] = b % 4 == 0 ? longest : 1 + b / 4 % longest;
  return all;
}

template <class Network, class Loss>
class adversary {
  using value = typename Network::input_value;
  using target = typename Loss::template target<typename Network::scalar>;
  static constexpr std::size_t width = Network::input_shape.size();
  static constexpr std::size_t targets_each = Loss::target_count(Network::output_shape);
  static constexpr std::size_t together = 64;

 public:
  adversary(Network& network, std::uint64_t seed) : network_{&network}, random_{seed} {}

  /// Samples, keeps in each round the best of many changes of it, then climbs along the gradient. `length`: of records.
  double largest(double length, int rounds) {
    double best = search(length, rounds);
    for (int round = 0; round < rounds / 2; ++round) best = std::max(best, ascend(length));
    return best;
  }
  /// Samples and changes alone. Record 0 is the best one.
  double search(double length, int rounds) {
    for (std::size_t b = 0; b < together; ++b) {
      draw(b, length);
      draw_target(b);
    }
    double best = 0;
    for (int round = 0; round < rounds; ++round) {
      const std::vector<double> norms = evaluate();
      const auto at = static_cast<std::size_t>(std::max_element(norms.begin(), norms.end()) - norms.begin());
      best = std::max(best, norms[at]);
      copy(at, 0);
      for (std::size_t b = 1; b < together; ++b) {
        copy(0, b);
        change(b, length, std::ldexp(1.0, -static_cast<int>(b % 8)));
      }
    }
    return best;
  }
  /// A step of projected gradient ascent of ‖dL/dw‖ in the input, from record 0: its gradient by differences, its
  /// length the best of many, with targets exchanged in every second one. Of ids, the best exchange of one.
  double ascend(double length) {
    const std::vector<value> origin(inputs_.begin(), inputs_.begin() + static_cast<std::ptrdiff_t>(width));
    for (std::size_t b = 1; b < together; ++b) copy(0, b);
    std::vector<double> gradient(width);
    double size = 0;
    if constexpr (Network::input_shape.ids == 0) {
      // Along each axis, or along so many directions of random signs.
      constexpr std::size_t most = 128;
      constexpr std::size_t directions = std::min(width, most);
      const double step = 2e-3 * length / (width <= most ? 1 : std::sqrt(static_cast<double>(width)));
      for (std::size_t first = 0; first < directions; first += together / 2) {
        const std::size_t count = std::min(together / 2, directions - first);
        std::vector<std::vector<double>> all(count, std::vector<double>(width));
        for (std::size_t k = 0; k < count; ++k) {
          for (std::size_t i = 0; i < width; ++i) {
            all[k][i] = width > most ? (below(2) == 0 ? step : -step) : i == first + k ? step : 0;
            const auto from = static_cast<double>(origin[i]);
            inputs_[2 * k * width + i] = static_cast<value>(from + all[k][i]);
            inputs_[(2 * k + 1) * width + i] = static_cast<value>(from - all[k][i]);
          }
        }
        const std::vector<double> norms = evaluate();
        for (std::size_t k = 0; k < count; ++k) {
          for (std::size_t i = 0; i < width; ++i) gradient[i] += (norms[2 * k] - norms[2 * k + 1]) * all[k][i];
        }
      }
      for (std::size_t b = 0; b < together; ++b) {
        std::copy(origin.begin(), origin.end(), inputs_.begin() + static_cast<std::ptrdiff_t>(b * width));
      }
      for (const double each : gradient) size += each * each;
    }
    for (std::size_t b = 1; b < together; ++b) {
      if (b % 2 == 0) draw_target(b);
      if constexpr (Network::input_shape.ids != 0) {
        inputs_[b * width + below(width)] = static_cast<value>(below(Network::input_shape.ids));
      } else if (size > 0) {
        const double far = 2 * length * std::ldexp(1.0, -static_cast<int>(b / 4)) / std::sqrt(size);
        for (std::size_t i = 0; i < width; ++i) inputs_[b * width + i] += static_cast<value>(far * gradient[i]);
        shorten(b, length);
      }
    }
    const std::vector<double> norms = evaluate();
    const auto best = static_cast<std::size_t>(std::max_element(norms.begin(), norms.end()) - norms.begin());
    copy(best, 0);
    return norms[best];
  }

 private:
  double normal() { return std::normal_distribution<double>{}(random_); }
  std::size_t below(std::size_t count) { return random_() % count; }
  void copy(std::size_t from, std::size_t to) {
    if (from == to) return;
    std::copy_n(inputs_.begin() + static_cast<std::ptrdiff_t>(from * width), width,
                inputs_.begin() + static_cast<std::ptrdiff_t>(to * width));
    std::copy_n(targets_.begin() + static_cast<std::ptrdiff_t>(from * targets_each), targets_each,
                targets_.begin() + static_cast<std::ptrdiff_t>(to * targets_each));
  }
  void draw(std::size_t b, double length) {
    for (std::size_t i = 0; i < width; ++i) {
      if constexpr (Network::input_shape.ids != 0) {
        inputs_[b * width + i] =
            static_cast<value>(b % 2 == 0 ? b % Network::input_shape.ids : below(Network::input_shape.ids));
      } else {
        inputs_[b * width + i] = static_cast<value>(b % 4 == 0 ? 1 + 0.1 * normal() : normal());
      }
    }
    rescale(b, length);
  }
  double length_of(std::size_t b) const {
    double squares = 0;
    for (std::size_t i = 0; i < width; ++i) squares += std::pow(static_cast<double>(inputs_[b * width + i]), 2);
    return std::sqrt(squares);
  }
  void rescale(std::size_t b, double length) {
    if constexpr (Network::input_shape.ids == 0) {
      const double by = length / length_of(b);
      for (std::size_t i = 0; i < width; ++i) {
        inputs_[b * width + i] = static_cast<value>(static_cast<double>(inputs_[b * width + i]) * by);
      }
    }
  }
  void shorten(std::size_t b, double length) {
    if (length_of(b) > length) rescale(b, length);
  }
  void draw_target(std::size_t b) {
    for (std::size_t i = 0; i < targets_each; ++i) {
      target& to = targets_[b * targets_each + i];
      if constexpr (std::is_integral_v<target>) {
        to = static_cast<target>(below(Network::output_shape[Network::output_shape.rank() - 1]));
      } else {
        to = static_cast<target>(below(2));
      }
    }
  }
  void change(std::size_t b, double length, double size) {
    if (below(4) == 0) draw_target(b);
    for (std::size_t i = 0; i < width; ++i) {
      if constexpr (Network::input_shape.ids != 0) {
        if (below(width) == 0) inputs_[b * width + i] = static_cast<value>(below(Network::input_shape.ids));
      } else {
        inputs_[b * width + i] += static_cast<value>(size * length * normal() / std::sqrt(static_cast<double>(width)));
      }
    }
    rescale(b, length * (below(4) == 0 ? 0.5 : 1));
  }
  std::vector<double> evaluate() {
    const pg::dataset<value, target> records{inputs_, targets_, Network::input_shape, targets_each, lengths_};
    const pg::batch<Network, Loss> all{records, std::span<const std::uint32_t>{numbers_}};
    return pg::unprotected::evaluate(executor_, l2_norms(per_sample_gradients(*network_, Loss{}, all, tape_)));
  }

  Network* network_;
  std::mt19937_64 random_;
  pg::host executor_{pg::threads{1}};
  pg::tape<Network> tape_{executor_, pg::max_batch{together}};
  std::vector<value> inputs_ = std::vector<value>(together * width);
  std::vector<target> targets_ = std::vector<target>(together * targets_each);
  std::vector<std::uint32_t> lengths_ = lengths_of<Network>(together);
  std::vector<std::uint32_t> numbers_ = [] {
    std::vector<std::uint32_t> all(together);
    for (std::uint32_t i = 0; i < together; ++i) all[i] = i;
    return all;
  }();
};

/// Random parameters: PyTorch's, times a size, and gains and biases away from 1 and 0.
template <class Network>
Network random_network(const pg::host& executor, std::uint64_t seed) {
  Network network{executor, pg::kaiming_uniform{seed}};
  std::mt19937_64 random{seed};
  const auto size = static_cast<typename Network::scalar>(std::exp2(static_cast<double>(seed % 5) - 2));
  for (auto& each : network.all_parameters()) {
    each = each * size + static_cast<typename Network::scalar>(0.02 * std::normal_distribution<double>{}(random));
  }
  return network;
}

#ifdef PERGRAD_LONG_TESTS
inline constexpr std::uint64_t networks_of_a_type = 30;
inline constexpr int rounds = 60;
#else
inline constexpr std::uint64_t networks_of_a_type = 6;
inline constexpr int rounds = 8;
#endif

/// Networks of one type with random weights: none of their gradients is above K. Says how near one came.
template <class Network, class Loss>
double nearest(const char* kind, double length = 3) {
  const pg::host executor{pg::threads{1}};
  double ratio = std::numeric_limits<double>::infinity();
  for (std::uint64_t seed = 0; seed < networks_of_a_type; ++seed) {
    Network network = random_network<Network>(executor, seed);
    const pg::certificate proven = pg::certify(network, Loss{}, pg::l2_ball(length));
    const double found = adversary<Network, Loss>{network, seed}.largest(length, rounds);
    BOOST_TEST_CONTEXT(kind << ", seed " << seed) {
      BOOST_TEST(proven.is_finite());
      BOOST_TEST(found > 0.0);
      BOOST_TEST(found <= proven.bound);
    }
    ratio = std::min(ratio, proven.bound / found);
  }
  BOOST_TEST_MESSAGE(kind << ": K / largest found, at least " << ratio);
  return ratio;
}

}  // namespace certify_tests
