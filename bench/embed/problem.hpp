// SPDX-License-Identifier: Apache-2.0
// bench/embed/problem.hpp - the IMDb embedding classifier of fast-dpsgd: network, reviews, one training step
//
// 160,098 parameters: a table of 10,004 rows of 16, the mean over 256 positions, linear 2 (Subramani, Vadivelu, Kamath
// 2021, arXiv:2010.09063). Their protocol: float, softmax cross-entropy, plain SGD, clip norm 1, noise multiplier 1.1,
// consecutive slices of the data.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <type_traits>
#include <vector>

#include <pergrad/pergrad.hpp>

namespace embed {

namespace pg = pergrad;

using bag = pg::network<pg::token_ids(256, 10'004), pg::embedding_bag<16>, pg::linear<2>>;
/// The same function as a list of rows and their mean.
using rows = pg::network<pg::token_ids(256, 10'004), pg::embedding<16>, pg::mean_over_positions, pg::linear<2>>;
static_assert(bag::parameter_count == 160'098);
static_assert(rows::parameter_count == 160'098);

struct reviews {
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> labels;
};

/// Made-up reviews: uniform ids, the hardest case for caches and the one with the most rows a sample; random labels.
inline reviews make_reviews(std::size_t count) {
  std::mt19937 bits{20240229};
  reviews result{std::vector<std::int32_t>(count * bag::input_shape.size()), std::vector<std::int32_t>(count)};
  for (std::int32_t& id : result.ids) id = static_cast<std::int32_t>(bits() % bag::input_shape.ids);
  for (std::int32_t& label : result.labels) label = static_cast<std::int32_t>(bits() % 2);
  return result;
}

enum class kind { dp, non_private };

/// Everything that training takes, the data apart.
template <class Network, kind Kind>
class training {
 public:
  training(std::size_t thread_count, std::size_t batch_size)
      : exec_{pg::threads{thread_count}}, tape_{exec_, pg::max_batch{batch_size}} {}

  /// One step: forward, backward, clip, noise, update; or forward, backward, mean, update.
  void step(std::span<const std::int32_t> ids, std::span<const std::int32_t> labels) {
    const pg::batch<Network, pg::cross_entropy> samples{ids, labels};
    const auto gradients = pg::per_sample_gradients(net_, pg::cross_entropy{}, samples, tape_);
    if constexpr (Kind == kind::dp) {
      const auto clipped = pg::sum(pg::clip(gradients, pg::l2_clip_norm{1.0}));
      pg::evaluate_into(exec_, update_, clipped + pg::gaussian_noise(pg::noise_multiplier{1.1}, noise_));
      optimizer_.step(exec_, net_, update_, pg::expected_batch_size{static_cast<double>(labels.size())});
    } else {
      pg::unprotected::evaluate_into(exec_, update_, pg::mean(gradients));
      pg::unprotected::step(optimizer_, exec_, net_, update_);
    }
  }
  [[nodiscard]] const Network& network() const noexcept { return net_; }

 private:
  using update = std::conditional_t<Kind == kind::dp, pg::private_gradient<Network>, pg::unprotected::gradient<Network>>;

  pg::host exec_;
  Network net_{exec_, pg::layer_default{1}};
  typename Network::tape tape_;
  pg::os_keyed_generator noise_;
  update update_{exec_};
  pg::sgd<Network> optimizer_{pg::learning_rate{0.15}};
};

}  // namespace embed
