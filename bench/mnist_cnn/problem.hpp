// SPDX-License-Identifier: Apache-2.0
// bench/mnist_cnn/problem.hpp - the MNIST CNN of fast-dpsgd and of Opacus' examples: network, images, one training step
//
// 26,010 parameters: conv 16 8x8 stride 2 pad 3, ReLU, max-pool 2x2 stride 1, conv 32 4x4 stride 2, ReLU, max-pool 2x2
// stride 1, linear 32, ReLU, linear 10 (Subramani, Vadivelu, Kamath 2021, arXiv:2010.09063; Yousefpour et al. 2021,
// arXiv:2109.12298). Their protocol: float, softmax cross-entropy, plain SGD with rate 0.15, clip norm 1, noise
// multiplier 1.1, consecutive slices of the data.
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

namespace mnist_cnn {

namespace pg = pergrad;

using net =
    pg::network<pg::shape{1, 28, 28},                                                                          //
                pg::conv2d<16, 8, pg::stride<2>, pg::padding<3>>, pg::relu, pg::max_pool2d<2, pg::stride<1>>,  //
                pg::conv2d<32, 4, pg::stride<2>>, pg::relu, pg::max_pool2d<2, pg::stride<1>>,                  //
                pg::flatten, pg::linear<32>, pg::relu, pg::linear<10>>;
static_assert(net::parameter_count == 26'010);

/// Floating-point operations of one sample's ordinary training step, a multiply-add counted as 2: a layer with T
/// positions, view width d and p outputs costs 2 T d p forward, as much for its weights' gradient and, unless it is the
/// first with parameters, as much for its input's. Biases, element functions, pooling, norms, clipping, noise and the
/// update count nothing. The private step is credited with this same number, so that what privacy costs shows in its
/// rate.
constexpr double flops_per_sample() {
  using structure = net::structure;
  std::size_t count = 0;
  bool first = true;
  pg::detail::for_each_index<structure::size>([&](auto index) {
    using layer = structure::layer_at<index>;
    if constexpr (requires { layer::affine(pg::shape{}); }) {
      const pg::affine_map map = layer::affine(structure::shapes[structure::inputs[index]]);
      count += (first ? 2U : 3U) * 2U * map.positions() * map.weight_count();
      first = false;
    }
  });
  return static_cast<double>(count);
}
static_assert(flops_per_sample() == 2'131'840);  // 2.13 MFLOP, as published for this task

struct images {
  std::vector<float> pixels;
  std::vector<std::int32_t> labels;
};

/// Made-up handwriting: a blurred stroke on black, about a fifth of the pixels not 0, values in [0, 1], random labels.
inline images make_images(std::size_t count) {
  constexpr std::size_t side = 28;
  std::mt19937 bits{20240229};
  const auto uniform = [&bits](float low, float high) {
    return low + (high - low) * static_cast<float>(bits() >> 8U) * 0x1p-24F;
  };
  images result{std::vector<float>(count * side * side), std::vector<std::int32_t>(count)};
  for (std::size_t n = 0; n < count; ++n) {
    result.labels[n] = static_cast<std::int32_t>(bits() % 10);
    float* image = result.pixels.data() + n * side * side;
    float x = uniform(8, 20);
    float y = uniform(5, 10);
    float direction = uniform(0, 3);
    for (int dot = 0; dot < 30; ++dot) {
      for (std::size_t i = 0; i < side; ++i) {
        for (std::size_t j = 0; j < side; ++j) {
          const float down = static_cast<float>(i) - y;
          const float right = static_cast<float>(j) - x;
          const float ink = 1.4F - 0.5F * (down * down + right * right);
          float& pixel = image[i * side + j];
          pixel = std::min(1.0F, std::max(pixel, ink));
        }
      }
      direction += uniform(-0.3F, 0.5F);
      x = std::min(23.0F, std::max(4.0F, x + std::cos(direction)));
      y = std::min(23.0F, std::max(4.0F, y + std::sin(direction)));
    }
  }
  return result;
}

enum class kind { dp, non_private };

/// Everything that training takes, the data apart.
template <kind Kind>
class training {
 public:
  training(std::size_t thread_count, std::size_t batch_size)
      : exec_{pg::threads{thread_count}}, tape_{exec_, pg::max_batch{batch_size}} {}

  /// One step: forward, backward, clip, noise, update; or forward, backward, mean, update.
  void step(std::span<const float> pixels, std::span<const std::int32_t> labels) {
    const pg::batch<net, pg::cross_entropy> samples{pixels, labels};
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
  [[nodiscard]] const net& network() const noexcept { return net_; }

 private:
  using update = std::conditional_t<Kind == kind::dp, pg::private_gradient<net>, pg::unprotected::gradient<net>>;

  pg::host exec_;
  net net_{exec_, pg::kaiming_uniform{1}};
  net::tape tape_;
  pg::os_keyed_generator noise_;
  update update_{exec_};
  pg::sgd<net> optimizer_{pg::learning_rate{0.15}};
};

}  // namespace mnist_cnn
