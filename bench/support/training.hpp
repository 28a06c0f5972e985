// SPDX-License-Identifier: Apache-2.0
// bench/support/training.hpp - what is timed: a training step of a network, or a layer's forward and backward
//
// Both come in two kinds, private and ordinary, and do all the work of their kind with the same records. The protocol
// of a training step is that of fast-dpsgd (Subramani, Vadivelu, Kamath 2021, arXiv:2010.09063): plain SGD with rate
// 0.15, clip norm 1, noise multiplier 1.1. That of a layer is Opacus' microbenchmark (Yousefpour et al. 2021,
// arXiv:2109.12298): no clipping, noise or update.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <type_traits>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace bench {

namespace pg = pergrad;

/// `dp_integers`: every record rounded by itself, as beyond a capacity of 0.
enum class kind { dp, non_private, dp_integers };

/// Floating-point operations of one sample's ordinary step in the products with parameters, a multiply-add counted as
/// 2: a matrix of n parameters that is used at T positions costs 2 T n forward, as much for its gradient if it is
/// trained and, where something in front of it is, as much for its input's. Biases, element functions, pooling,
/// products of activations with each other (attention's weights), tables of rows, norms, clipping, noise and the update
/// count nothing. The private step is credited with this same number, so that what privacy costs shows in its rate.
template <class Network>
[[nodiscard]] constexpr double flops_per_sample() {
  using structure = typename Network::structure;
  using plan = pg::detail::network_plan<structure>;
  std::size_t count = 0;
  pg::detail::for_each_index<structure::size>([&](auto index) {
    using layer = typename structure::template layer_at<index>;
    constexpr pg::shape in = structure::shapes[structure::inputs[index]];
    constexpr pg::shape second = structure::shapes[structure::inputs2[index]];
    constexpr bool back = plan::nodes[index].input_gradient || plan::nodes[index].input2_gradient;
    const auto add = [&](std::size_t positions, std::size_t parameters, bool to_input) {
      const std::size_t products = 1U + (to_input ? 1U : 0U) + (structure::trained_counts[index] > 0 ? 1U : 0U);
      count += products * 2U * positions * parameters;
    };
    if constexpr (structure::parameter_counts[index] == 0) {
      return;
    } else if constexpr (requires { layer::affine(in); }) {
      add(layer::affine(in).positions(), layer::affine(in).weight_count(), back);
    } else if constexpr (requires { pg::detail::factors_of<layer>(in, second); }) {
      bool first = true;  // the others read what the layer itself has made
      for (const pg::factor& block : pg::detail::factors_of<layer>(in, second)) {
        if (block.outer) add(block.positions, block.size(), back || !first);
        first = false;
      }
    }
  });
  return static_cast<double>(count);
}

/// Samples in memory.
template <class Network, class Loss>
struct records {
  using input = typename Network::input_value;
  using target = pg::target_of<Loss, typename Network::scalar>;
  static constexpr std::size_t input_count = Network::input_shape.size();
  static constexpr std::size_t target_count = Loss::target_count(Network::output_shape);

  std::vector<input> inputs;
  std::vector<target> targets;
  std::vector<std::uint32_t> lengths{};  ///< where they may vary: all of them whole

  [[nodiscard]] std::size_t size() const noexcept { return targets.size() / target_count; }
  [[nodiscard]] std::span<const input> inputs_of(std::size_t first, std::size_t count) const {
    return std::span{inputs}.subspan(first * input_count, count * input_count);
  }
  [[nodiscard]] std::span<const target> targets_of(std::size_t first, std::size_t count) const {
    return std::span{targets}.subspan(first * target_count, count * target_count);
  }
  [[nodiscard]] std::span<const std::uint32_t> lengths_of(std::size_t first, std::size_t count) const {
    return lengths.empty() ? std::span{lengths} : std::span{lengths}.subspan(first, count);
  }
};

/// Made-up records: numbers uniform in [0, 1), ids uniform over the vocabulary (the hardest case for caches and the one
/// with the most rows a sample), random classes.
template <class Network, class Loss>
[[nodiscard]] records<Network, Loss> made_up_records(std::size_t count) {
  using made = records<Network, Loss>;
  std::mt19937 bits{20240229};
  const auto fill = [&bits](auto& values, std::size_t limit) {
    using value_type = typename std::remove_cvref_t<decltype(values)>::value_type;
    for (value_type& value : values) {
      if constexpr (std::is_integral_v<value_type>) {
        value = static_cast<value_type>(bits() % limit);
      } else {
        value = static_cast<value_type>(bits() >> 8U) * value_type{0x1p-24F};
      }
    }
  };
  made result{std::vector<typename made::input>(count * made::input_count),
              std::vector<typename made::target>(count * made::target_count)};
  fill(result.inputs, std::max<std::size_t>(1, Network::input_shape.ids));
  // Of several targets each is a class of one position.
  fill(result.targets, made::target_count > 1 && std::is_integral_v<typename made::target>
                           ? Network::output_shape.e1
                           : Network::output_shape.size());
  if (Network::input_shape.varying_axis() != 0) {
    result.lengths.assign(count, static_cast<std::uint32_t>(Network::input_shape.e0));
  }
  return result;
}

/// Everything that a training step takes, the data apart.
template <class Network, class Loss, kind Kind>
class training {
 public:
  using network_type = Network;
  using loss_type = Loss;

  training(std::size_t threads, std::size_t batch_size)
      : exec_{pg::threads{threads}}, tape_{exec_, pg::max_batch{batch_size}}, sum_{make_sum(exec_, batch_size)} {}

  /// One step: forward, backward, clip, noise, update; or forward, backward, mean, update.
  void step(const records<Network, Loss>& data, std::size_t first, std::size_t count) {
    const pg::batch<Network, Loss> samples{data.inputs_of(first, count), data.targets_of(first, count),
                                           data.lengths_of(first, count)};
    const auto gradients = pg::per_sample_gradients(net_, Loss{}, samples, tape_);
    if constexpr (Kind != kind::non_private) {
      sum_.clear();
      pg::evaluate_into(exec_, pg::accumulate(sum_, pg::sum(pg::clip(gradients, pg::l2_clip_norm{1.0}))));
      optimizer_.step(exec_, net_, sum_ + pg::unaccounted::gaussian_noise(pg::noise_multiplier{1.1}, noise_),
                      pg::expected_batch_size{static_cast<double>(count)});
    } else {
      pg::unprotected::evaluate_into(exec_, sum_, pg::mean(gradients));
      pg::unprotected::step(optimizer_, exec_, net_, sum_);
    }
  }
  [[nodiscard]] bool is_finite() const {
    return std::ranges::all_of(net_.parameters(), [](auto value) { return std::isfinite(value); });
  }

 private:
  using sum =
      std::conditional_t<Kind != kind::non_private, pg::bounded_total<Network>, pg::unprotected::gradient<Network>>;
  /// As many records as a batch has; of none are there any that floating point may add up.
  [[nodiscard]] static sum make_sum(const pg::host& executor, std::size_t batch_size) {
    if constexpr (Kind == kind::non_private) {
      return sum{executor};
    } else {
      return sum{executor, pg::record_capacity{Kind == kind::dp_integers ? 0 : batch_size}};
    }
  }

  pg::host exec_;
  Network net_{exec_, pg::layer_default{1}};
  typename Network::tape tape_;
  pg::os_keyed_generator noise_;
  sum sum_;
  pg::sgd<Network> optimizer_{pg::learning_rate{0.15}};
};

/// Everything that forward and backward take: the mean of the gradients and, if private, every sample's norm.
template <class Network, class Loss, kind Kind>
class differentiation {
 public:
  using network_type = Network;
  using loss_type = Loss;

  differentiation(std::size_t threads, std::size_t batch_size)
      : exec_{pg::threads{threads}},
        tape_{exec_, pg::max_batch{batch_size}},
        norms_(Kind == kind::dp ? batch_size : 0) {}

  void step(const records<Network, Loss>& data, std::size_t first, std::size_t count) {
    const pg::batch<Network, Loss> samples{data.inputs_of(first, count), data.targets_of(first, count),
                                           data.lengths_of(first, count)};
    const auto gradients = pg::per_sample_gradients(net_, Loss{}, samples, tape_);
    if constexpr (Kind == kind::dp) {
      pg::unprotected::evaluate_into(exec_, pg::assign(mean_, pg::mean(gradients)),
                                     pg::assign(norms_, pg::l2_norms(gradients)));
    } else {
      pg::unprotected::evaluate_into(exec_, mean_, pg::mean(gradients));
    }
  }
  [[nodiscard]] bool is_finite() const {
    return std::ranges::all_of(mean_.values(), [](auto value) { return std::isfinite(value); });
  }

 private:
  pg::host exec_;
  Network net_{exec_, pg::layer_default{1}};
  typename Network::tape tape_;
  pg::unprotected::gradient<Network> mean_{exec_};
  std::vector<double> norms_;
};

}  // namespace bench
