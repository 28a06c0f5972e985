// SPDX-License-Identifier: Apache-2.0
// pergrad/testing/layer_laws.hpp - the laws that every layer must keep, checked on made-up samples
//
//   for (const auto& law : testing::check_layer<my_layer, pergrad::shape{3, 4, 4}>()) puts(law.text().c_str());
//
// The layer stands between a layer with parameters (so that its input gradient shows, as the gradient of those
// parameters) and a linear layer with cross entropy behind it. In double, with g_b the gradient of sample b:
//   finite differences  g_b = (L_b(w + h) - L_b(w - h)) / 2h, here and in front of the layer; 0 for padding rows
//   sum of rows         sum(g) = sum_b g_b
//   norms, strategies   every method: |g_b|^2 of the materialised row, and sum_b w_b g_b, to 1e-12, with w_b at most
//                       min(1, C/|g_b|) and at least 1 - 1e-9 of it: clip factors round down (privacy/clip.hpp)
//   accumulation        weighted_sum(a u + b v) = a weighted_sum(u) + b weighted_sum(v); accumulate adds
// and in float and double, bit for bit:
//   isolation           sample j (other values, huge ones, NaN, infinity) moves nothing of sample i. Differential
//                       privacy stands on it: else a gradient's norm says nothing about its sample's influence
//   permutation, repetition, thread count; samples that are not finite add exactly zero to a clipped sum
//   precision           of check_layer: gradients in float are those in double, but for what rounding does to them
//   clip bound          |clip(g_b)| <= C, from denormal to huge, in every row and in the sum of a batch of one
// All but permutation and the clip bound are examined once more as in training, where layers draw random bits or do
// anything else than in evaluation. No test framework is needed, and nothing here is random: a seed makes everything.
#pragma once
// clang-format off
#include <pergrad/detail/beside_the_umbrella.hpp>  // before anything is defined
// clang-format on
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <pergrad/batch.hpp>
#include <pergrad/gradients/plan.hpp>
#include <pergrad/initialise.hpp>
#include <pergrad/losses/cross_entropy.hpp>
#include <pergrad/pergrad.hpp>
#include <pergrad/privacy/generator.hpp>
#include <pergrad/privacy/layer_randomness.hpp>
#include <pergrad/shape.hpp>
#include <pergrad/testing/laws_report.hpp>
#include <pergrad/testing/network_around.hpp>
#include <pergrad/testing/observer.hpp>
#include <pergrad/testing/samples.hpp>
#include <pergrad/testing/subject.hpp>

namespace pergrad::inline v0_1::testing {

/// What an examination uses.
struct law_options {
  std::uint64_t seed = 1;
  std::size_t samples = 37;        ///< several tiles of 16, the last one not full; at least 2
  std::size_t differences = 300;   ///< parameters that finite differences are taken of: evenly spread if there are
                                   ///< more, but at least four of each block
  double largest_parameter = 0.5;  ///< parameters are uniform in ± this, unless a layer initialises itself
  double largest_input = 1;  ///< inputs that are numbers are uniform in ± this: what bends further out is not seen
  double negligible = 0;     ///< sums may be off by so much: what is left where all cancels (a bias of keys)
};

namespace testing_detail {

template <class Scalar, class Value, class Target>
class examination {
 public:
  using scalar = Scalar;
  using subject_type = subject<Scalar, Value, Target>;
  using samples = typename subject_type::samples;
  using seen_type = observation<scalar>;

  /// `data`: samples that the subject takes.
  examination(const law_options& options, subject_type& examined, samples data)
      : options_{options}, alone_{examined}, data_{std::move(data)} {
    // A clip norm in the middle, so that some samples are clipped and some are not.
    auto norms = alone_.look(data_, 1, {}).squared_norms;
    std::nth_element(norms.begin(), norms.begin() + static_cast<std::ptrdiff_t>(norms.size() / 2), norms.end());
    const double median = std::sqrt(norms[norms.size() / 2]);
    bound_ = std::isfinite(median) && median > 1e-6 ? median : 1.0;
    // NOLINTNEXTLINE(cppcoreguidelines-prefer-member-initializer): looked at with the bound that was just found
    seen_ = alone_.look(data_, bound_, {});
  }

  [[nodiscard]] laws_report run() {
    if constexpr (std::is_same_v<scalar, double>) {
      finite_differences();
      sums_and_norms();
    }
    isolation();
    permutation();
    repetition();
    non_finite();
    clip_bound();
    in_training();
    return report_;
  }

 private:
  static constexpr double exact = 1e-12;
  static constexpr double lost_by_factors = 1e-9;
  static constexpr std::size_t least_differences = 4;  // in a block

  [[nodiscard]] std::string say(const std::string& what) const {
    return std::string{std::is_same_v<scalar, double> ? "double, " : "float, "} + (trains_ ? "in training, " : "") +
           what;
  }
  void finite_differences() {
    const std::size_t count = std::min<std::size_t>(3, data_.size());
    samples few = data_;
    few.inputs.resize(count * few.values_of_a_sample);
    few.targets.resize(count * few.targets_of_a_sample);
    if (!few.lengths.empty()) few.lengths.resize(count);
    // From the last layer on: behind one that is wrong, all gradients are, and only that one is worth a message.
    std::vector<gradient_block> blocks = alone_.known.blocks;
    std::ranges::sort(blocks, [](const auto& a, const auto& b) {
      return a.layer != b.layer ? a.layer > b.layer : a.first < b.first;
    });
    std::size_t layer = blocks.empty() ? 0 : blocks.front().layer;
    for (const gradient_block& block : blocks) {
      if (block.layer != layer && report_.broke(law::finite_differences)) return;
      layer = block.layer;
      // In proportion to its size, but some in every block.
      const std::size_t share = (options_.differences * block.size() + width_ - 1) / width_;
      const std::size_t checked = std::min(block.size(), std::max(least_differences, share));
      for (std::size_t k = 0; k < checked; ++k) finite_difference(few, block, k * block.size() / checked);
    }
  }
  /// The bound is relative to the parameter's own row of its block: a small block beside a large one, or one input's
  /// small gradient (a row of the layer in front) beside another's, is as exact as they are.
  void finite_difference(const samples& few, const gradient_block& block, std::size_t place) {
    const std::size_t parameter = block.first + place;
    const auto coarse = differences(few, parameter, 1e-5);
    const auto fine = differences(few, parameter, 1e-6);
    for (std::size_t b = 0; b < few.size(); ++b) {
      const auto gradient = row(seen_.rows, b, width_);
      const double scale = largest(gradient.subspan(parameter - place % block.columns, block.columns));
      const double allowed = 1e-6 * scale + 2e-9 * std::max(1.0, std::fabs(seen_.losses[b]));
      // The longer step rounds less. But a kink inside it is not inside a tenth of it, but for bad luck.
      const bool has_kink = std::fabs(coarse[b] - fine[b]) > allowed / 2;
      report_.agree(law::finite_differences,
                    say("derivative of the loss of sample " + std::to_string(b) + " by parameter"), parameter,
                    has_kink ? fine[b] : coarse[b], gradient[parameter], allowed, alone_.known.owners);
    }
  }
  [[nodiscard]] std::vector<double> differences(const samples& data, std::size_t parameter, double step) {
    if (alone_.known.holds(parameter)) return std::vector<double>(data.size());
    scalar& value = alone_.parameters()[parameter];
    const scalar before = value;
    value = static_cast<scalar>(before + step);
    auto result = alone_.losses(data);
    const double above = value;
    value = static_cast<scalar>(before - step);
    const auto low = alone_.losses(data);
    for (std::size_t b = 0; b < result.size(); ++b) result[b] = (result[b] - low[b]) / (above - value);
    value = before;
    return result;
  }

  void sums_and_norms() {
    std::vector<double> total(width_);
    std::vector<double> squared(data_.size());
    std::vector<double> allowed(width_, options_.negligible);  // and what is relative to the element's row
    for (std::size_t b = 0; b < data_.size(); ++b) {
      const auto gradient = row(seen_.rows, b, width_);
      const auto size = static_cast<double>(norm(gradient));
      squared[b] = size * size;
      add_scales(gradient, exact, allowed);
      for (std::size_t i = 0; i < width_; ++i) total[i] += gradient[i];
    }
    const std::span<const double> expected_total{total};
    const std::span<const parameter_owner> owners = alone_.known.owners;
    report_.close(law::sum_of_rows, say("sum(g)"), expected_total, std::span<const double>{seen_.plain}, allowed,
                  owners);
    for (const configuration& how : ways_) {
      const seen_type seen = alone_.look(data_, bound_, how);
      for (std::size_t b = 0; b < squared.size(); ++b) {
        report_.agree(law::norms, say("squared norm by " + std::string{how.name}), b, squared[b], seen.squared_norms[b],
                      exact * squared[b]);
      }
      clipped_sum(seen, squared, how, allowed);
      report_.close(law::strategies, say("sum(g) by " + std::string{how.name}), expected_total,
                    std::span<const double>{seen.plain}, allowed, owners);
      accumulation(seen, how, allowed);
    }
  }
  /// Factors of clipping, and the sum of the rows with them.
  void clipped_sum(const seen_type& seen, std::span<const double> squared, const configuration& how,
                   std::span<const double> allowed) {
    const std::string name{how.name};
    std::vector<double> expected(width_);
    for (std::size_t b = 0; b < squared.size(); ++b) {
      const double most = std::min(1.0, bound_ / std::sqrt(squared[b]));
      report_.agree(law::strategies, say("clip factor by " + name), b, most, seen.factors[b], lost_by_factors * most);
      report_.at_most(law::strategies, say("clip factor by " + name), b, most * (1 + exact), seen.factors[b]);
      const auto gradient = row(seen_.rows, b, width_);
      for (std::size_t i = 0; i < width_; ++i) expected[i] += seen.factors[b] * gradient[i];
    }
    report_.close(law::strategies, say("sum(clip(g)) by " + name), std::span<const double>{expected},
                  std::span<const double>{seen.clipped}, allowed, alone_.known.owners);
  }
  /// Adds to each element's scale `factor` times the largest element of its row in a gradient.
  void add_scales(std::span<const double> gradient, double factor, std::vector<double>& scales) const {
    for (const gradient_block& block : alone_.known.blocks) {
      for (std::size_t first = block.first; first != block.first + block.size(); first += block.columns) {
        const double scale = factor * largest(gradient.subspan(first, block.columns));
        for (std::size_t i = 0; i < block.columns; ++i) scales[first + i] += scale;
      }
    }
  }

  void accumulation(const seen_type& seen, const configuration& how, std::vector<double> allowed) {
    for (double& each : allowed) each *= 10;
    std::vector<scalar> left(data_.size());
    std::vector<scalar> right(data_.size());
    std::vector<scalar> both(data_.size());
    for (std::size_t b = 0; b < data_.size(); ++b) {
      left[b] = static_cast<scalar>(pergrad::detail::public_uniform(options_.seed + 2, b));
      right[b] = static_cast<scalar>(1 - 2 * pergrad::detail::public_uniform(options_.seed + 3, b));
      both[b] = 3 * left[b] - 2 * right[b];
    }
    auto expected = alone_.weighted(data_, left, how);
    const auto other = alone_.weighted(data_, right, how);
    for (std::size_t i = 0; i < width_; ++i) expected[i] = 3 * expected[i] - 2 * other[i];
    report_.close(law::accumulation, say("weighted_sum by " + std::string{how.name}), std::span<const scalar>{expected},
                  std::span<const scalar>{alone_.weighted(data_, both, how)}, allowed, alone_.known.owners);

    std::vector<scalar> onto(width_);
    for (std::size_t i = 0; i < width_; ++i)
      onto[i] = static_cast<scalar>(pergrad::detail::public_uniform(options_.seed + 4, i));
    for (std::size_t i = 0; i < width_; ++i) {
      expected[i] = onto[i] + seen.clipped[i];
      allowed[i] += 16 * static_cast<double>(std::numeric_limits<scalar>::epsilon());  // of numbers below 1
    }
    alone_.add_clipped_sum(data_, bound_, how, onto);
    // Chunk after chunk is added to what is there, and of a batch of several the first of them is.
    report_.close(law::accumulation, say("accumulate by " + std::string{how.name}), std::span<const scalar>{expected},
                  std::span<const scalar>{onto}, allowed, alone_.known.owners);
  }

  /// Sample i of `expected` and sample j of `actual` must look alike.
  void same_sample(law which, const std::string& where, const seen_type& expected, std::size_t i,
                   const seen_type& actual, std::size_t j) {
    report_.same_bits(which, where + ", output", row(expected.outputs, i, outputs_), row(actual.outputs, j, outputs_));
    report_.same_bits(which, where + ", loss", row(expected.losses, i, 1), row(actual.losses, j, 1));
    report_.same_bits(which, where + ", squared norm", row(expected.squared_norms, i, 1),
                      row(actual.squared_norms, j, 1));
    report_.same_bits(which, where + ", gradient", row(expected.rows, i, width_), row(actual.rows, j, width_),
                      alone_.known.owners);
  }
  void same_everything(law which, const std::string& where, const seen_type& expected, const seen_type& actual) {
    for (std::size_t b = 0; b < data_.size(); ++b) {
      same_sample(which, where + ", sample " + std::to_string(b), expected, b, actual, b);
    }
    report_.same_bits(which, where + ", sum", std::span<const scalar>{expected.plain},
                      std::span<const scalar>{actual.plain}, alone_.known.owners);
    report_.same_bits(which, where + ", clipped sum", std::span<const scalar>{expected.clipped},
                      std::span<const scalar>{actual.clipped}, alone_.known.owners);
  }

  static constexpr bool reads_ids = std::is_integral_v<Value>;
  [[nodiscard]] samples spoiled(std::size_t sample, spoil how) const {
    return with_a_spoiled_sample(data_, alone_.known.vocabulary, sample, how);
  }
  [[nodiscard]] std::array<std::size_t, 3> victims() const { return {0, data_.size() / 2, data_.size() - 1}; }

  void isolation() {
    for (const configuration& how : {configurations[0], configurations[2], configurations[3]}) {
      const seen_type before = alone_.look(data_, bound_, how);
      for (const std::size_t victim : victims()) {
        for (const spoil kind : all_spoils) {
          const seen_type after = alone_.look(spoiled(victim, kind), bound_, how);
          const std::string where = say(std::string{how.name} + ", sample " + std::to_string(victim) + " set to " +
                                        spoil_names[static_cast<std::size_t>(kind)] + ", sample ");
          for (std::size_t b = 0; b < data_.size(); ++b) {
            if (b != victim) same_sample(law::isolation, where + std::to_string(b), before, b, after, b);
          }
        }
      }
    }
  }

  void permutation() {
    std::vector<std::size_t> order(data_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    for (std::size_t i = order.size(); i > 1; --i) {
      std::swap(order[i - 1], order[pergrad::detail::public_bits(options_.seed + 5, i) % i]);
    }
    const seen_type permuted = alone_.look(data_.pick(order), bound_, {});
    for (std::size_t b = 0; b < order.size(); ++b) {
      const std::string where = say("sample " + std::to_string(order[b]) + " at place " + std::to_string(b));
      same_sample(law::permutation, where, seen_, order[b], permuted, b);
    }
  }

  void repetition() {
    std::vector<seen_type> once;
    for (const configuration& how : ways_) {
      once.push_back(alone_.look(data_, bound_, how));
      same_everything(law::repetition, say(how.name), once.back(), alone_.look(data_, bound_, how));
    }
    for (std::size_t other = 0; other < alone_.known.others; ++other) {
      for (std::size_t k = 0; k < once.size(); ++k) {
        same_everything(law::thread_count, say(alone_.name_of_other(other) + ", " + configurations[k].name), once[k],
                        alone_.look_elsewhere(other, data_, bound_, configurations[k]));
      }
    }
  }

  void non_finite() {
    if constexpr (reads_ids) {
      for (const std::size_t victim : victims()) poisoned_rows(victim);
    } else {
      non_finite_inputs();
    }
  }
  /// Ids are always finite: what can be broken is the rows that one sample alone reads. No parameter with a gradient in
  /// one sample only is read by another.
  void poisoned_rows(std::size_t victim) {
    const std::vector<scalar> parameters(alone_.parameters().begin(), alone_.parameters().end());
    for (const scalar poison : {std::numeric_limits<scalar>::quiet_NaN(), std::numeric_limits<scalar>::infinity()}) {
      for (std::size_t i = 0; i < width_; ++i) {
        bool alone = row(seen_.rows, victim, width_)[i] != 0;
        for (std::size_t b = 0; alone && b < data_.size(); ++b) {
          alone = b == victim || row(seen_.rows, b, width_)[i] == 0;
        }
        if (alone) alone_.parameters()[i] = poison;
      }
      for (const configuration& how : ways_) {
        const seen_type seen = alone_.look(data_, bound_, how);
        if (std::isfinite(seen.squared_norms[victim])) continue;  // no row is its own
        const auto expected = alone_.clipped_sum_without(data_, bound_, how, victim);
        const std::string where = say(std::string{how.name} + ", clipped sum with sample " + std::to_string(victim) +
                                      " reading rows that are not finite");
        report_.same_bits(law::non_finite, where, std::span<const scalar>{expected},
                          std::span<const scalar>{seen.clipped}, alone_.known.owners);
        for (const scalar value : seen.clipped) {
          report_.at_most(law::non_finite, where, 0, std::numeric_limits<double>::max(),
                          static_cast<long double>(std::fabs(value)));
        }
      }
      std::copy(parameters.begin(), parameters.end(), alone_.parameters().begin());
    }
  }
  void non_finite_inputs() {
    for (const configuration& how : ways_) {
      for (const std::size_t victim : victims()) {
        const auto expected = alone_.clipped_sum_without(data_, bound_, how, victim);
        for (const spoil kind : {spoil::nan, spoil::infinity, spoil::one_nan, spoil::last_infinity}) {
          const samples worse = spoiled(victim, kind);
          const seen_type seen = alone_.look(worse, bound_, how);
          if (std::isfinite(seen.squared_norms[victim])) continue;  // the layers in between swallowed it
          report_.same_bits(law::non_finite,
                            say(std::string{how.name} + ", clipped sum with sample " + std::to_string(victim) +
                                " set to " + spoil_names[static_cast<std::size_t>(kind)]),
                            std::span<const scalar>{expected}, std::span<const scalar>{seen.clipped},
                            alone_.known.owners);
        }
      }
    }
  }

  /// Inputs of many magnitudes, sample by sample and within one sample; then the parameters' magnitude changes, too.
  void clip_bound() {
    constexpr double exponents[] = {0, -1, -10, -20, 10, 30, -60, 60};
    const double reach = std::is_same_v<scalar, double> ? 12 : 2;  // from 1e-240 to 1e180, or from 1e-40 to 1e30
    samples mixed = data_;
    for (std::size_t b = 0; b < (reads_ids ? 0 : mixed.size()); ++b) {
      const auto input = mixed.input(b);
      for (std::size_t i = 0; i < input.size(); ++i) {
        const double exponent =
            exponents[b % 2 == 0 ? b / 2 % 8 : pergrad::detail::public_bits(options_.seed + b, i) % 8];
        input[i] = static_cast<Value>(static_cast<double>(input[i]) *
                                      std::pow(10.0, exponent * reach / (exponent > 0 ? 4 : 3)));
      }
    }
    const std::vector<scalar> parameters(alone_.parameters().begin(), alone_.parameters().end());
    for (const double factor : {1.0, 1e-18, 1e6}) {
      for (std::size_t i = 0; i < width_; ++i) {
        alone_.parameters()[i] = static_cast<scalar>(static_cast<double>(parameters[i]) * factor);
      }
      const std::string circumstances =
          ", parameters shifted by " + std::to_string(std::ilogb(factor)) + " binary digits";
      for (const double bound : {bound_, 1e-3, 1e4, 1e-30}) bounded_by(mixed, bound, circumstances);
      bounded_by_themselves(mixed, circumstances);
    }
    std::copy(parameters.begin(), parameters.end(), alone_.parameters().begin());
  }
  void bounded_by(const samples& mixed, double bound, const std::string& circumstances) {
    for (const configuration& how : ways_) {
      const std::string where = say(how.name + circumstances);
      const auto rows = alone_.clipped_rows(mixed, bound, how);
      for (std::size_t b = 0; b < mixed.size(); ++b) {
        report_.at_most(law::clip_bound, where + ", norm of clip(g)", b, bound, norm(row(rows, b, width_)));
        single_bounded_by(mixed, b, bound, how, where);
      }
    }
  }
  /// Clip norms just below each sample's own norm: its smallest and its largest parts matter at once.
  void bounded_by_themselves(const samples& mixed, const std::string& circumstances) {
    const auto norms = alone_.look(mixed, 1, {}).squared_norms;
    constexpr double parts[] = {0.999, 0.8, 0.3};
    for (std::size_t b = 0; b < mixed.size(); ++b) {
      const double bound = parts[b % 3] * std::sqrt(norms[b]);
      if (!(bound >= 1e-30 && bound <= 1e300)) continue;
      for (const configuration& how : ways_) {
        single_bounded_by(mixed, b, bound, how, say(how.name + circumstances + ", clip norm a part of its own"));
      }
    }
  }
  void single_bounded_by(const samples& mixed, std::size_t b, double bound, const configuration& how,
                         const std::string& where) {
    const auto single = alone_.clipped_sum(mixed.pick(std::span<const std::size_t>{&b, 1}), bound, how);
    report_.at_most(law::clip_bound, where + ", norm of sum(clip(g)) of one sample", b, bound,
                    norm(std::span<const scalar>{single}));
  }

  /// What layers do in training, if it is anything else. The bits are those of a record's number, so there is no law of
  /// permutation.
  void in_training() {
    seeded_generator generator{options_.seed};
    alone_.draw(layer_randomness::of_next_step(generator));
    seen_type training = alone_.look(data_, bound_, {});
    const auto has_bits_of = [](const auto& a, const auto& b) {
      return std::memcmp(a.data(), b.data(), a.size() * sizeof a[0]) == 0;
    };
    trains_ = !has_bits_of(training.outputs, seen_.outputs) || !has_bits_of(training.rows, seen_.rows);
    if (trains_) {
      seen_ = std::move(training);
      if constexpr (std::is_same_v<scalar, double>) {
        finite_differences();
        sums_and_norms();
      }
      isolation();
      repetition();
      non_finite();
    }
    alone_.draw({});
  }

  law_options options_;
  laws_report report_{options_.seed};
  subject_type& alone_;
  const std::size_t width_ = alone_.known.width;
  const std::size_t outputs_ = alone_.known.outputs;
  const std::span<const configuration> ways_{configurations, alone_.known.configurations};
  samples data_;
  double bound_ = 1;
  bool trains_ = false;
  seen_type seen_;
};

/// A network and its samples as the options have them.
template <class Network, class Loss, class Executor>
[[nodiscard]] network_subject<Network, Loss, Executor> subject_of(const law_options& options) {
  return {uniform{options.seed, -options.largest_parameter, options.largest_parameter}, options.samples + 1};
}
template <class Network, class Loss>
[[nodiscard]] sample_set<Network, Loss> drawn_samples(const law_options& options) {
  auto data = draw_samples<Network, Loss>(options.seed + 1, options.samples);
  if constexpr (Network::input_shape.ids == 0) {
    for (auto& each : data.inputs) each *= static_cast<typename Network::scalar>(options.largest_input);
  }
  return data;
}

/// Gradients in float beside those in double, of the same parameters and samples. They may be apart by what a change of
/// both by 2^-18 of themselves, many roundings, makes of those in double, and by a thousandth of the largest element in
/// the row: who divides or cancels may lose much, and bends may be on the other side.
template <class Value, class Double, class Target>
[[nodiscard]] laws_report compare_scalars(const law_options& options, subject<float, Value, Target>& floats,
                                          const sample_values<Value, Target>& data,
                                          subject<double, Double, Target>& doubles) {
  laws_report report{options.seed};
  const std::vector<float> parameters(floats.parameters().begin(), floats.parameters().end());
  const auto rows_of = [&](double change, std::uint64_t seed) {
    const auto changed = [&](auto value, std::uint64_t at) {
      return static_cast<double>(value) * (1 + change * (2 * pergrad::detail::public_uniform(seed, at) - 1));
    };
    sample_values<Double, Target> exact{
        {}, data.targets, data.lengths, data.values_of_a_sample, data.targets_of_a_sample};
    for (std::size_t i = 0; i < data.inputs.size(); ++i) {
      if constexpr (std::is_integral_v<Value>) {
        exact.inputs.push_back(data.inputs[i]);
      } else {
        exact.inputs.push_back(changed(data.inputs[i], i));
      }
    }
    for (std::size_t i = 0; i < parameters.size(); ++i) doubles.parameters()[i] = changed(parameters[i], ~i);
    return doubles.look(exact, 1, {}).rows;
  };
  const std::vector<float> found = floats.look(data, 1, {}).rows;
  const std::vector<double> wanted = rows_of(0, 0);
  std::vector<std::vector<double>> others;
  for (const std::uint64_t seed : {11U, 12U, 13U}) others.push_back(rows_of(0x1p-18, options.seed + seed));
  const std::size_t width = doubles.known.width;
  for (std::size_t b = 0; b < data.size(); ++b) {
    const double whole = largest(row(wanted, b, width));
    for (const gradient_block& block : doubles.known.blocks) {
      for (std::size_t first = block.first; first != block.first + block.size(); first += block.columns) {
        double allowed = 1e-3 * largest(row(wanted, b, width).subspan(first, block.columns)) + 1e-5 * whole;
        for (const std::vector<double>& other : others) {
          for (std::size_t i = first; i < first + block.columns; ++i) {
            allowed = std::max(allowed, 8 * std::fabs(other[b * width + i] - wanted[b * width + i]));
          }
        }
        for (std::size_t i = first; i < first + block.columns; ++i) {
          const double exact = wanted[b * width + i];
          if (!std::isfinite(exact)) continue;
          report.agree(law::precision, "float, gradient of sample " + std::to_string(b) + " by parameter", i, exact,
                       static_cast<double>(found[b * width + i]), allowed, doubles.known.owners);
        }
      }
    }
  }
  return report;
}

}  // namespace testing_detail

/// Examines a whole network by all laws that fit its scalar type: double knows all of them, float those about bits and
/// bounds.
template <class Network, class Loss = cross_entropy, class Executor = host>
[[nodiscard]] laws_report check_network(const law_options& options = {}) {
  auto examined = testing_detail::subject_of<Network, Loss, Executor>(options);
  using laws = testing_detail::examination<typename Network::scalar, typename Network::input_value,
                                           target_of<Loss, typename Network::scalar>>;
  return laws{options, examined, testing_detail::drawn_samples<Network, Loss>(options)}.run();
}

/// Examines a layer (or `sequential<...>`, `residual<...>`) on inputs of shape `Input`, in double and in float.
/// Throws std::invalid_argument for options that make no sense.
template <class Layer, shape Input>
[[nodiscard]] laws_report check_layer(const law_options& options = {}) {
  using in_double = network_around<double, Layer, Input>;
  using in_float = network_around<float, Layer, Input>;
  laws_report report = check_network<in_double>(options);
  report.merge(check_network<in_float>(options));
  auto floats = testing_detail::subject_of<in_float, cross_entropy, host>(options);
  auto doubles = testing_detail::subject_of<in_double, cross_entropy, host>(options);
  report.merge(testing_detail::compare_scalars(
      options, floats, testing_detail::drawn_samples<in_float, cross_entropy>(options), doubles));
  return report;
}

}  // namespace pergrad::inline v0_1::testing
