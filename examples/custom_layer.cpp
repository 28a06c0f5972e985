// SPDX-License-Identifier: Apache-2.0
// examples/custom_layer.cpp - a layer of one's own in one struct, with both kinds of factor
//
// The layer scales every feature and mixes all of them through a bottleneck of width r:
//
//     y = g (.) x + V U x + c          g, c: n numbers    U: r x n    V: n x r
//
// Its author writes the function, its adjoint, and where the factors of the gradient lie. With d = dL/dy, a sample has
//
//     dL/dg = d (.) x        dL/dU = (V^T d) outer x        dL/dV = d outer (U x)        dL/dc = d
//
// Per-sample norms, clipping, clipped sums and the memory for them follow from that. Nothing is registered anywhere.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <vector>

#include <pergrad/pergrad.hpp>
#include <pergrad/testing/layer_laws.hpp>

namespace pg = pergrad;

// [snippet: layer]
template <std::size_t Rank>
struct gain_and_mix {
  static constexpr pg::shape output_shape(pg::shape in) { return in; }
  static constexpr bool accepts(pg::shape in) { return in.rank() == 1; }
  static constexpr std::size_t parameter_count(pg::shape in) { return 2 * in.e0 + 2 * Rank * in.e0; }  // g, U, V, c
  static constexpr std::size_t saved_count(pg::shape) { return 2 * Rank; }  // U x, then V^T d

  template <class Scalar>
  static void forward(pg::shape in, std::span<const Scalar> w, std::span<const Scalar> x, std::span<Scalar> y,
                      std::span<Scalar> saved) {
    const std::size_t n = in.e0;
    const auto g = w.first(n), u = w.subspan(n, Rank * n), v = w.subspan(n + Rank * n, n * Rank), c = w.last(n);
    for (std::size_t r = 0; r < Rank; ++r) {
      saved[r] = 0;
      for (std::size_t i = 0; i < n; ++i) saved[r] += u[r * n + i] * x[i];
    }
    for (std::size_t i = 0; i < n; ++i) {
      y[i] = g[i] * x[i] + c[i];
      for (std::size_t r = 0; r < Rank; ++r) y[i] += v[i * Rank + r] * saved[r];
    }
  }

  template <class Scalar>
  static void backward(pg::shape in, std::span<const Scalar> w, std::span<const Scalar>,
                       std::span<const Scalar> backprop, std::span<Scalar> dx, std::span<Scalar> saved) {
    const std::size_t n = in.e0;
    const auto g = w.first(n), u = w.subspan(n, Rank * n), v = w.subspan(n + Rank * n, n * Rank);
    for (std::size_t r = 0; r < Rank; ++r) {
      saved[Rank + r] = 0;
      for (std::size_t i = 0; i < n; ++i) saved[Rank + r] += v[i * Rank + r] * backprop[i];
    }
    for (std::size_t i = 0; i < n; ++i) {
      dx[i] = g[i] * backprop[i];
      for (std::size_t r = 0; r < Rank; ++r) dx[i] += u[r * n + i] * saved[Rank + r];
    }
  }
  // [snippet: factors]
  static constexpr auto factors(pg::shape in) {  // in the order of the parameters
    using pg::source;
    return pg::list_factors(pg::elementwise_sum(1, in.e0, {source::backprop}, {source::activation}),     // g
                            pg::outer_sum(1, Rank, {source::saved, Rank}, in.e0, {source::activation}),  // U
                            pg::outer_sum(1, in.e0, {source::backprop}, Rank, {source::saved, 0}),       // V
                            pg::elementwise_sum(1, in.e0, {source::backprop}));                          // c
  }
  // [snippet end]
};
// [snippet end]

int main() {
  // [snippet: laws]
  const auto report = pg::testing::check_layer<gain_and_mix<2>, pg::shape{12}>();
  std::printf("%s", report.text().c_str());
  if (!report.empty()) return 1;
  // [snippet end]

  // [snippet: use]
  using network = pg::network<pg::shape{1, 8, 8}, pg::conv2d<4, 3>, pg::relu, pg::max_pool2d<2>, pg::flatten,
                              gain_and_mix<2>, pg::tanh, pg::linear<3>>;
  pg::host exec;
  const network net{exec, pg::kaiming_uniform{1}};
  network::tape tape{exec, pg::max_batch{4}};

  std::vector<float> images(4 * 64);
  for (std::size_t i = 0; i < images.size(); ++i) images[i] = static_cast<float>(i * i % 17) / 16.0F - 0.5F;
  const std::vector<std::int32_t> labels{0, 1, 2, 0};
  const pg::batch<network, pg::cross_entropy> batch{std::span<const float>{images},
                                                    std::span<const std::int32_t>{labels}};

  const auto g = pg::per_sample_gradients(net, pg::cross_entropy{}, batch, tape);
  const auto clipped = pg::sum(pg::clip(g, pg::l2_clip_norm{0.5}));
  std::vector<double> norms(4);
  std::vector<float> total(network::parameter_count);
  pg::unprotected::evaluate_into(exec, pg::assign(norms, pg::l2_norms(g)), pg::assign(total, clipped));  // one pass
  // [snippet end]

  for (std::size_t b = 0; b < norms.size(); ++b) std::printf("sample %zu: gradient norm %.6f\n", b, norms[b]);
  double squared = 0;
  for (const float value : total) squared += static_cast<double>(value) * static_cast<double>(value);
  std::printf("%zu parameters, clipped sum of squared norm %.6f, one sample moves it by at most %.1f\n",
              network::parameter_count, squared, clipped.sensitivity());
  return squared > 0 ? 0 : 1;
}
