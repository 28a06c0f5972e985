// SPDX-License-Identifier: Apache-2.0
// pergrad/testing/length_law.hpp - the law of samples with lengths of their own: what lies behind a length does not
// exist
//
//   for (const auto& broken : check_lengths<my_network>()) puts(broken.text().c_str());
//
// With n the length of a sample x, in double and float, under every norm method and strategy:
//   padding     other values, huge ones, NaN or other ids in x_n, x_(n+1), ... change no bit of any output, loss, norm,
//               gradient or sum
// and in double, where the layers allow the same network of a shorter input:
//   truncation  a sample of length n gives what x_0 ... x_(n-1) gives in a network for n positions with the same
//               parameters, to 1e-13 of the largest number
// Padding alone would not see a layer that divides by all positions; truncation alone would not see one that reads too
// far.
#pragma once

// clang-format off
#include <pergrad/detail/beside_the_umbrella.hpp>  // before anything is defined
// clang-format on

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <pergrad/graph/gate.hpp>
#include <pergrad/initialise.hpp>
#include <pergrad/losses/cross_entropy.hpp>
#include <pergrad/network.hpp>
#include <pergrad/pergrad.hpp>
#include <pergrad/shape.hpp>
#include <pergrad/testing/laws_report.hpp>
#include <pergrad/testing/observer.hpp>
#include <pergrad/testing/samples.hpp>

namespace pergrad::inline v0_1::testing {

/// What an examination of lengths uses.
struct length_options {
  std::uint64_t seed = 1;
  std::size_t samples = 21;        ///< at least 4
  double largest_parameter = 0.5;  ///< parameters are uniform in ± this, unless a layer initialises itself
};

namespace testing_detail {

/// The same layers on `Positions` positions, all of them there; void where they, or their parameters, do not fit.
template <class Network, std::size_t Positions>
struct shortened;
template <class Scalar, class Input, class... Layers, std::size_t Positions>
struct shortened<static_network<Scalar, Input, Layers...>, Positions> {
  using longer = static_network<Scalar, Input, Layers...>;
  static constexpr shape input = [] {
    shape result = Input::value;
    result.e0 = Positions;
    result.set_varying_axis(0);
    return result;
  }();
  [[nodiscard]] static constexpr bool fits() {
    using structure = pergrad::detail::structure<pergrad::detail::shape_name<input>, Layers...>;
    if constexpr (structure::found.what != pergrad::detail::mistake::none) {
      return false;
    } else {
      constexpr shape out = structure::shapes[structure::size];
      constexpr shape whole = longer::output_shape;
      return (out == whole || (whole.varying_axis() == 1 && out == pergrad::detail::cut_to(whole, out.e0))) &&
             structure::found.trained == longer::parameter_count &&
             structure::found.frozen == longer::frozen_parameter_count;
    }
  }
  using type = std::conditional_t<fits(), static_network<Scalar, pergrad::detail::shape_name<input>, Layers...>, void>;
};

template <class Network, class Loss, std::size_t Shorter>
class length_examination {
 public:
  using scalar = typename Network::scalar;
  using input_value = typename Network::input_value;
  using samples = sample_set<Network, Loss>;
  using seen_type = observation<scalar>;
  static constexpr std::size_t width = Network::parameter_count;
  static constexpr std::size_t positions = Network::input_shape.e0;
  static constexpr std::size_t features = Network::input_shape.size() / positions;
  static_assert(Network::input_shape.varying_axis() == 1, "check_lengths examines networks of a variable(...) input");
  static_assert(Shorter >= 1 && Shorter < positions, "a shorter sample has 1 to positions - 1 of them");

  explicit length_examination(const length_options& options)
      : options_{options},
        network_{host{threads{1}}, uniform{options.seed, -options.largest_parameter, options.largest_parameter}},
        observer_{threads{1}, options.samples},
        data_{draw_samples<Network, Loss>(options.seed + 1, options.samples)} {
    // The shortest and the longest, and two for the shorter network, whatever was drawn.
    data_.lengths[0] = 1;
    data_.lengths[1] = positions;
    data_.lengths[2] = Shorter;
    data_.lengths.back() = Shorter;
  }

  [[nodiscard]] laws_report run() {
    padding();
    if constexpr (std::is_same_v<scalar, double>) truncation();
    return report_;
  }

 private:
  using shorter_network = typename shortened<Network, Shorter>::type;
  using target = typename samples::target;
  static constexpr bool reads_ids = Network::input_shape.ids != 0;
  /// The targets that count of a sample of `Shorter` positions, where that is known.
  static constexpr std::size_t targets_of_shorter = [] {
    if constexpr (std::is_void_v<shorter_network>) {
      return samples::target_count;
    } else {
      return Loss::target_count(shorter_network::output_shape);
    }
  }();
  static constexpr double bound = 0.5;
  static constexpr std::size_t fillings = 4;
  static constexpr const char* filling_names[fillings] = {
      "other values behind the length", reads_ids ? "the last id behind the length" : "huge values behind the length",
      reads_ids ? "id 0 behind the length" : "NaN behind the length",
      reads_ids ? "the neighbours' ids behind the length" : "infinity behind the length"};

  [[nodiscard]] static std::string say(const std::string& what) {
    return (std::is_same_v<scalar, double> ? "double, " : "float, ") + what;
  }
  [[nodiscard]] static input_value filled(std::size_t filling, input_value before, input_value neighbour) {
    if constexpr (reads_ids) {
      constexpr auto last = static_cast<std::int32_t>(Network::input_shape.ids - 1);
      const std::int32_t ids[fillings] = {last - before, last, 0, neighbour};
      return ids[filling];
    } else {
      const scalar values[fillings] = {
          static_cast<scalar>(0.25) - 3 * before, std::numeric_limits<scalar>::max() / 2,
          std::numeric_limits<scalar>::quiet_NaN(),
          neighbour < 0 ? -std::numeric_limits<scalar>::infinity() : std::numeric_limits<scalar>::infinity()};
      return values[filling];
    }
  }
  /// All samples with something else behind their lengths; targets of positions too, where a loss has them.
  [[nodiscard]] samples padded_with(std::size_t filling) const {
    samples result = data_;
    for (std::size_t b = 0; b < result.size(); ++b) {
      const std::span<input_value> input = result.input(b);
      for (std::size_t i = data_.lengths[b] * features; i < input.size(); ++i) {
        input[i] = filled(filling, input[i], data_.inputs[((b + 1) % data_.size()) * input.size() + i]);
      }
      if (data_.lengths[b] != Shorter) continue;
      for (std::size_t i = targets_of_shorter; i < samples::target_count; ++i) {
        result.targets[b * samples::target_count + i] =
            filling % 2 == 0 ? target{} : data_.targets[((b + 1) % data_.size()) * samples::target_count + i];
      }
    }
    return result;
  }

  void padding() {
    for (const configuration& how : configurations) {
      const seen_type before = observer_.look(network_, data_, bound, how);
      for (std::size_t filling = 0; filling < fillings; ++filling) {
        const seen_type after = observer_.look(network_, padded_with(filling), bound, how);
        const std::string where = say(std::string{how.name} + ", " + filling_names[filling]);
        for_each_part(before, after, [&](const char* part, auto expected, auto actual) {
          report_.same_bits(law::lengths, where + part, expected, actual);
        });
      }
    }
  }
  /// Calls f(name, expected, actual) for all that was seen.
  template <class Function>
  static void for_each_part(const seen_type& expected, const seen_type& actual, const Function& f) {
    const auto part = [&](const char* name, const auto& one, const auto& other) {
      f(name, std::span{one}, std::span{other});
    };
    part(", outputs", expected.outputs, actual.outputs);
    part(", losses", expected.losses, actual.losses);
    part(", squared norms", expected.squared_norms, actual.squared_norms);
    part(", gradients", expected.rows, actual.rows);
    part(", sum", expected.plain, actual.plain);
    part(", clipped sum", expected.clipped, actual.clipped);
  }

  void truncation() {
    if constexpr (!std::is_void_v<shorter_network>) {
      std::vector<std::size_t> chosen;
      for (std::size_t b = 0; b < data_.size(); ++b) {
        if (data_.lengths[b] == Shorter) chosen.push_back(b);
      }
      const samples padded = data_.pick(chosen);
      sample_set<shorter_network, Loss> cut;
      for (std::size_t b = 0; b < padded.size(); ++b) {
        const auto targets = padded.targets.begin() + static_cast<std::ptrdiff_t>(b * samples::target_count);
        cut.targets.insert(cut.targets.end(), targets, targets + static_cast<std::ptrdiff_t>(targets_of_shorter));
        const auto first = padded.inputs.begin() + static_cast<std::ptrdiff_t>(b * positions * features);
        cut.inputs.insert(cut.inputs.end(), first, first + static_cast<std::ptrdiff_t>(Shorter * features));
      }
      shorter_network network{host{threads{1}}, zeros{}};
      std::copy(network_.all_parameters().begin(), network_.all_parameters().end(), network.all_parameters().begin());
      observer<shorter_network, Loss> shorter_observer{threads{1}, cut.size()};
      for (const configuration& how : configurations) {
        seen_type expected = shorter_observer.look(network, cut, bound, how);
        for (std::size_t b = 1; b <= cut.size(); ++b) {  // zeros behind its last position
          expected.outputs.insert(
              expected.outputs.begin() + static_cast<std::ptrdiff_t>((b - 1) * Network::output_shape.size() +
                                                                     shorter_network::output_shape.size()),
              Network::output_shape.size() - shorter_network::output_shape.size(), 0);
        }
        const seen_type actual = observer_.look(network_, padded, bound, how);
        const std::string where = say(std::string{how.name} + ", cut to " + std::to_string(Shorter) + " positions");
        for_each_part(expected, actual, [&](const char* part, auto whole, auto cut_off) {
          report_.close(law::lengths, where + part, whole, cut_off, 1e-13 * std::max(1.0, largest(whole)));
        });
      }
    }
  }

  length_options options_;
  laws_report report_{options_.seed};
  Network network_;
  observer<Network, Loss> observer_;
  samples data_;
};

}  // namespace testing_detail

/// Can `check_lengths` compare this network with the same one on `Positions` positions?
template <class Network, std::size_t Positions>
inline constexpr bool has_shorter = !std::is_void_v<typename testing_detail::shortened<Network, Positions>::type>;

/// Examines a network of a `variable(...)` input with more than one position by the law of lengths. `Shorter` is the
/// length at which samples are compared with truncated ones.
template <class Network, class Loss = cross_entropy, std::size_t Shorter = (Network::input_shape.e0 + 1) / 2>
[[nodiscard]] laws_report check_lengths(const length_options& options = {}) {
  return testing_detail::length_examination<Network, Loss, Shorter>{options}.run();
}

}  // namespace pergrad::inline v0_1::testing
