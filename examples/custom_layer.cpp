// SPDX-License-Identifier: Apache-2.0
// examples/custom_layer.cpp - layers of one's own: one struct with both kinds of factor, two in the words of a team,
// one made of others
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
// Further ones work on sequences, on all samples of a tile at once, and on every executor. Last comes a loss.
#include <algorithm>
#include <array>
#include <cmath>
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

// y_t = x_t + V x_(t-1), so dL/dV = sum over t > 0 of dL/dy_t outer x_(t-1).
// [snippet: tiled]
struct look_back {
  static constexpr bool on_tiles = true;
  static constexpr bool on_device = true;
  static constexpr bool accepts(pg::shape in) { return in.rank() == 2 && in.e0 > 1; }
  static constexpr pg::shape output_shape(pg::shape in) { return in; }
  static constexpr std::size_t parameter_count(pg::shape in) { return in.e1 * in.e1; }
  static constexpr std::array<pg::matrix, 1> matrices(pg::shape in) { return {pg::matrix{0, in.e1, in.e1}}; }
  static constexpr auto factors(pg::shape in) {
    using pg::source;
    return pg::list_factors(pg::outer_sum(in.e0 - 1, in.e1, {source::backprop, in.e1, in.e1},  // from position 1 on
                                          in.e1, {source::activation, 0, in.e1}));             // from position 0 on
  }

  template <class Team>
  PERGRAD_HD static void forward(const Team& team) {
    const auto n = static_cast<std::ptrdiff_t>(team.in.e1), size = static_cast<std::ptrdiff_t>(team.in.size());
    for (std::ptrdiff_t b = 0; b < team.samples; ++b) team.copy(size, team.x(b), team.y(b));
    team.multiply_add(sizes(team, team.x.step, team.y.step), team.x.first, team.transposed(0, 0, n, n),
                      team.y.first + n);
  }
  template <class Team>
  PERGRAD_HD static void backward(const Team& team) {
    if (!team.wants_dx) return;
    const auto n = static_cast<std::ptrdiff_t>(team.in.e1), size = static_cast<std::ptrdiff_t>(team.in.size());
    for (std::ptrdiff_t b = 0; b < team.samples; ++b) team.copy(size, team.dy(b), team.dx(b));
    team.multiply_add(sizes(team, team.dy.step, team.dx.step), team.dy.first + n, team.matrix(0, n, n), team.dx.first);
  }

 private:
  /// Of a product over all positions but one of all samples.
  template <class Team>
  PERGRAD_HD static pg::product_sizes sizes(const Team& team, std::ptrdiff_t from, std::ptrdiff_t to) {
    const auto positions = static_cast<std::ptrdiff_t>(team.in.e0), n = static_cast<std::ptrdiff_t>(team.in.e1);
    return {.outer = {team.samples, from, to}, .rows = {positions - 1, n, n}, .depth = n, .columns = n};
  }
};
// [snippet end]

// [snippet: composition]
// Two inputs of one shape, multiplied element by element.
struct times {
  static constexpr bool on_tiles = true;
  static constexpr bool on_device = true;
  static constexpr pg::shape output_shape(pg::shape in, pg::shape in2) { return in == in2 ? in : pg::shape{}; }

  template <class Team>
  PERGRAD_HD static void forward(const Team& team) {
    for (std::ptrdiff_t b = 0; b < team.samples; ++b) {
      multiply(team, team.x(b), team.x2(b), team.y(b));
    }
  }
  template <class Team>
  PERGRAD_HD static void backward(const Team& team) {
    for (std::ptrdiff_t b = 0; b < team.samples; ++b) {
      if (team.wants_dx) multiply(team, team.dy(b), team.x2(b), team.dx(b));
      if (team.wants_dx2) multiply(team, team.dy(b), team.x(b), team.dx2(b));
    }
  }

 private:
  template <class Team, class Scalar>
  PERGRAD_HD static void multiply(const Team& team, const Scalar* left, const Scalar* right, Scalar* out) {
    team.map(static_cast<std::ptrdiff_t>(team.in.size()),
             [&](const auto& at) { at.put(out, at(left) * at(right)); });  // `at`: some elements at once
  }
};

// A gated linear unit (Dauphin et al. 2016, arXiv:1612.08083): (W x + b) (.) sigmoid(V x + c).
template <std::size_t Features>
struct gated {
  using unfolds_to =
      pg::merge<times, pg::sequential<pg::linear<Features>>, pg::sequential<pg::linear<Features>, pg::sigmoid>>;
};
// [snippet end]

// [snippet: loss]
// Huber's loss with threshold 1, summed over the outputs (nn.HuberLoss(reduction="sum") of one sample).
struct huber {
  template <class Scalar>
  using target = Scalar;  // the type of one target number; std::int32_t where targets are classes

  static constexpr std::size_t target_count(pg::shape output) { return output.size(); }  // a sample
  static constexpr bool accepts(pg::shape output) { return output.rank() == 1; }         // at compile time
  template <class Scalar>
  static bool valid(pg::shape, std::span<const Scalar> targets) {  // records for which it is false are refused
    return std::ranges::all_of(targets, [](Scalar t) { return std::isfinite(t); });
  }
  template <class Scalar>
  static double evaluate(std::span<const Scalar> y, std::span<const Scalar> targets, std::span<Scalar> dy) {
    double loss = 0;
    for (std::size_t i = 0; i < y.size(); ++i) {
      const double off = static_cast<double>(y[i]) - static_cast<double>(targets[i]);
      loss += std::fabs(off) <= 1 ? off * off / 2 : std::fabs(off) - 0.5;
      dy[i] = static_cast<Scalar>(std::clamp(off, -1.0, 1.0));
    }
    return loss;
  }
};
// [snippet end]

/// Largest difference between the gradients of one sample and finite differences of its loss.
double slope_error_of_huber(const pg::host& exec) {
  using regression = pg::basic_network<double, pg::shape{3}, pg::linear<4>, pg::tanh, pg::linear<2>>;
  regression net{exec, pg::layer_default{1}};
  regression::tape tape{exec, pg::max_batch{1}};
  const std::vector<double> input{0.3, -1.2, 2}, targets{0.1, 5};  // one inside the threshold, one beyond
  const pg::batch<regression, huber> sample{input, targets};
  // [snippet: finite_differences]
  const auto g = pg::per_sample_gradients(net, huber{}, sample, tape);
  const std::vector<double> gradient = pg::unprotected::evaluate(exec, g[0]);
  double worst = 0;
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    const double kept = net.parameters()[i];
    const auto loss_at = [&](double value) {
      net.parameters()[i] = value;
      return pg::unprotected::evaluate(exec, pg::losses(g))[0];
    };
    worst = std::max(worst, std::fabs((loss_at(kept + 1e-6) - loss_at(kept - 1e-6)) / 2e-6 - gradient[i]));
    net.parameters()[i] = kept;
  }
  // [snippet end]
  return worst;
}

int main() {
  // [snippet: laws]
  const auto report = pg::testing::check_layer<gain_and_mix<2>, pg::shape{12}>();
  std::printf("%s", report.text().c_str());
  if (!report.empty()) return 1;
  // [snippet end]

  // [snippet: laws_of_networks]
  using on_sequences = pg::basic_network<double, pg::variable(pg::shape{5, 3}), gated<4>, look_back,
                                         pg::mean_over_positions, pg::linear<3>>;
  const auto on_lengths = pg::testing::check_network<on_sequences>();
  std::printf("%s", on_lengths.text().c_str());
  if (!on_lengths.empty()) return 1;
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

  const double slope_error = slope_error_of_huber(exec);
  std::printf("Huber's loss: finite differences differ by at most %.1e\n", slope_error);
  for (std::size_t b = 0; b < norms.size(); ++b) std::printf("sample %zu: gradient norm %.6f\n", b, norms[b]);
  double squared = 0;
  for (const float value : total) squared += static_cast<double>(value) * static_cast<double>(value);
  std::printf("%zu parameters, clipped sum of squared norm %.6f, one sample moves it by at most %.1f\n",
              network::parameter_count, squared, clipped.sensitivity());
  return squared > 0 && slope_error < 1e-7 ? 0 : 1;
}
