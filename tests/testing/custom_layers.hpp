// SPDX-License-Identifier: Apache-2.0
// tests/testing/custom_layers.hpp - layers as users write them, and the same layers with one mistake each
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <pergrad/gradients/factors.hpp>
#include <pergrad/shape.hpp>

namespace custom {

using pergrad::source;

/// y[o][p] = sum_c W[o][c] x[c][p]^2 on {channels, height, width}: an outer sum over pixels p with strided operands,
/// one of them saved.
template <std::size_t Outputs>
struct squared_channels {
  [[nodiscard]] static constexpr pergrad::shape output_shape(pergrad::shape in) { return {Outputs, in.e1, in.e2}; }
  [[nodiscard]] static constexpr std::size_t parameter_count(pergrad::shape in) { return Outputs * in.e0; }
  [[nodiscard]] static constexpr std::size_t saved_count(pergrad::shape in) { return in.size(); }

  template <class Scalar>
  static void forward(pergrad::shape in, std::span<const Scalar> w, std::span<const Scalar> x, std::span<Scalar> y,
                      std::span<Scalar> saved) {
    const std::size_t pixels = in.e1 * in.e2;
    for (std::size_t i = 0; i < x.size(); ++i) saved[i] = x[i] * x[i];
    for (std::size_t o = 0; o < Outputs; ++o) {
      for (std::size_t p = 0; p < pixels; ++p) {
        Scalar sum = 0;
        for (std::size_t c = 0; c < in.e0; ++c) sum += w[o * in.e0 + c] * saved[c * pixels + p];
        y[o * pixels + p] = sum;
      }
    }
  }
  template <class Scalar>
  static void backward(pergrad::shape in, std::span<const Scalar> w, std::span<const Scalar> x,
                       std::span<const Scalar> backprop, std::span<Scalar> dx) {
    const std::size_t pixels = in.e1 * in.e2;
    for (std::size_t c = 0; c < in.e0; ++c) {
      for (std::size_t p = 0; p < pixels; ++p) {
        Scalar sum = 0;
        for (std::size_t o = 0; o < Outputs; ++o) sum += w[o * in.e0 + c] * backprop[o * pixels + p];
        dx[c * pixels + p] = 2 * x[c * pixels + p] * sum;
      }
    }
  }
  [[nodiscard]] static constexpr auto factors(pergrad::shape in) {
    const std::size_t pixels = in.e1 * in.e2;
    return pergrad::list_factors(
        pergrad::outer_sum(pixels, Outputs, {source::backprop, 0, 1, pixels}, in.e0, {source::saved, 0, 1, pixels}));
  }
};

/// y[t][f] = g[f] x[t][f] + b[f] on {positions, features}: two elementwise sums.
struct gain_and_shift {
  [[nodiscard]] static constexpr pergrad::shape output_shape(pergrad::shape in) { return in; }
  [[nodiscard]] static constexpr std::size_t parameter_count(pergrad::shape in) { return 2 * in.e1; }
  [[nodiscard]] static constexpr bool accepts(pergrad::shape in) { return in.rank() == 2; }

  template <class Scalar>
  static void forward(pergrad::shape in, std::span<const Scalar> w, std::span<const Scalar> x, std::span<Scalar> y) {
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = w[i % in.e1] * x[i] + w[in.e1 + i % in.e1];
  }
  template <class Scalar>
  static void backward(pergrad::shape in, std::span<const Scalar> w, std::span<const Scalar> /*x*/,
                       std::span<const Scalar> backprop, std::span<Scalar> dx) {
    for (std::size_t i = 0; i < dx.size(); ++i) dx[i] = w[i % in.e1] * backprop[i];
  }
  [[nodiscard]] static constexpr auto factors(pergrad::shape in) {
    return pergrad::list_factors(
        pergrad::elementwise_sum(in.e0, in.e1, {source::backprop, 0, in.e1}, {source::activation, 0, in.e1}),
        pergrad::elementwise_sum(in.e0, in.e1, {source::backprop, 0, in.e1}));
  }
};

/// y = g (.) x + v s(u . x), s(h) = h^2 / 2, on {features}: an elementwise block and two outer blocks of width 1, whose
/// operands its forward and its backward save.
struct gain_and_neuron {
  [[nodiscard]] static constexpr pergrad::shape output_shape(pergrad::shape in) { return in; }
  [[nodiscard]] static constexpr std::size_t parameter_count(pergrad::shape in) { return 3 * in.e0; }
  [[nodiscard]] static constexpr std::size_t saved_count(pergrad::shape /*in*/) { return 3; }  // h, s(h), dL/dh

  template <class Scalar>
  static void forward(pergrad::shape in, std::span<const Scalar> w, std::span<const Scalar> x, std::span<Scalar> y,
                      std::span<Scalar> saved) {
    const std::size_t size = in.e0;
    saved[0] = 0;
    for (std::size_t i = 0; i < size; ++i) saved[0] += w[size + i] * x[i];
    saved[1] = saved[0] * saved[0] / 2;
    for (std::size_t i = 0; i < size; ++i) y[i] = w[i] * x[i] + w[2 * size + i] * saved[1];
  }
  template <class Scalar>
  static void backward(pergrad::shape in, std::span<const Scalar> w, std::span<const Scalar> /*x*/,
                       std::span<const Scalar> backprop, std::span<Scalar> dx, std::span<Scalar> saved) {
    const std::size_t size = in.e0;
    saved[2] = 0;
    for (std::size_t i = 0; i < size; ++i) saved[2] += w[2 * size + i] * backprop[i];
    saved[2] *= saved[0];
    for (std::size_t i = 0; i < size; ++i) dx[i] = w[i] * backprop[i] + w[size + i] * saved[2];
  }
  [[nodiscard]] static constexpr auto factors(pergrad::shape in) {
    return pergrad::list_factors(pergrad::elementwise_sum(1, in.e0, {source::backprop}, {source::activation}),
                                 pergrad::outer_sum(1, 1, {source::saved, 2}, in.e0, {source::activation}),
                                 pergrad::outer_sum(1, in.e0, {source::backprop}, 1, {source::saved, 1}));
  }
};

/// y = g (.) x + 2^-15 b on {features}, one b for all of them: its gradient is thousands of times smaller than the
/// others'.
struct gain_and_small_shift {
  static constexpr double small = 1.0 / (1U << 15U);
  [[nodiscard]] static constexpr pergrad::shape output_shape(pergrad::shape in) { return in; }
  [[nodiscard]] static constexpr std::size_t parameter_count(pergrad::shape in) { return in.e0 + 1; }
  [[nodiscard]] static constexpr std::size_t saved_count(pergrad::shape /*in*/) { return 1; }

  template <class Scalar>
  static void forward(pergrad::shape in, std::span<const Scalar> w, std::span<const Scalar> x, std::span<Scalar> y,
                      std::span<Scalar> saved) {
    saved[0] = static_cast<Scalar>(small);
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = w[i] * x[i] + saved[0] * w[in.e0];
  }
  template <class Scalar>
  static void backward(pergrad::shape /*in*/, std::span<const Scalar> w, std::span<const Scalar> /*x*/,
                       std::span<const Scalar> backprop, std::span<Scalar> dx, std::span<Scalar> /*saved*/) {
    for (std::size_t i = 0; i < dx.size(); ++i) dx[i] = w[i] * backprop[i];
  }
  [[nodiscard]] static constexpr auto factors(pergrad::shape in) {
    return pergrad::list_factors(pergrad::elementwise_sum(1, in.e0, {source::backprop}, {source::activation}),
                                 pergrad::elementwise_sum(in.e0, 1, {source::backprop, 0, 1}, {source::saved}));
  }
};

struct without_parameters {
  [[nodiscard]] static constexpr pergrad::shape output_shape(pergrad::shape in) { return in; }
  [[nodiscard]] static constexpr std::size_t parameter_count(pergrad::shape /*in*/) { return 0; }
  [[nodiscard]] static constexpr auto factors(pergrad::shape /*in*/) { return pergrad::list_factors(); }
};
/// y = x, but for the first element, which is 2^-15 times its input: that one's gradient is thousands of times smaller.
struct small_first_element : without_parameters {
  static constexpr double small = 1.0 / (1U << 15U);

  template <class Scalar>
  static void forward(pergrad::shape /*in*/, std::span<const Scalar> /*w*/, std::span<const Scalar> x,
                      std::span<Scalar> y) {
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = i == 0 ? static_cast<Scalar>(small) * x[i] : x[i];
  }
  template <class Scalar>
  static void backward(pergrad::shape /*in*/, std::span<const Scalar> /*w*/, std::span<const Scalar> /*x*/,
                       std::span<const Scalar> backprop, std::span<Scalar> dx) {
    for (std::size_t i = 0; i < dx.size(); ++i) dx[i] = i == 0 ? static_cast<Scalar>(small) * backprop[i] : backprop[i];
  }
};

/// Wrong: the input gradient is one part in a thousand too large.
struct backward_too_large : gain_and_shift {
  template <class Scalar>
  static void backward(pergrad::shape in, std::span<const Scalar> w, std::span<const Scalar> x,
                       std::span<const Scalar> backprop, std::span<Scalar> dx) {
    gain_and_shift::backward(in, w, x, backprop, dx);
    for (Scalar& value : dx) value *= static_cast<Scalar>(1.001);
  }
};
/// Wrong: the small gradient of the shift, and nothing else, is one part in a hundred too large.
struct small_shift_too_large : gain_and_small_shift {
  template <class Scalar>
  static void forward(pergrad::shape in, std::span<const Scalar> w, std::span<const Scalar> x, std::span<Scalar> y,
                      std::span<Scalar> saved) {
    gain_and_small_shift::forward(in, w, x, y, saved);
    saved[0] *= static_cast<Scalar>(1.01);
  }
};
/// Wrong: the small gradient of the first input, and nothing else, is one part in a hundred too large.
struct small_input_gradient_too_large : small_first_element {
  template <class Scalar>
  static void backward(pergrad::shape in, std::span<const Scalar> w, std::span<const Scalar> x,
                       std::span<const Scalar> backprop, std::span<Scalar> dx) {
    small_first_element::backward(in, w, x, backprop, dx);
    dx[0] *= static_cast<Scalar>(1.01);
  }
};
/// Wrong: the gain's factor reads the output instead of the input.
struct factor_reads_the_output : gain_and_shift {
  [[nodiscard]] static constexpr auto factors(pergrad::shape in) {
    auto blocks = gain_and_shift::factors(in);
    blocks[0].other.from = source::output;
    return blocks;
  }
};
/// Wrong: the last position is forgotten.
struct factor_forgets_a_position : gain_and_shift {
  [[nodiscard]] static constexpr auto factors(pergrad::shape in) {
    auto blocks = gain_and_shift::factors(in);
    blocks[1].positions -= 1;
    return blocks;
  }
};
/// Wrong: remembers the sample before, so that samples are not isolated.
struct mixes_neighbours : gain_and_shift {
  template <class Scalar>
  static void forward(pergrad::shape in, std::span<const Scalar> w, std::span<const Scalar> x, std::span<Scalar> y) {
    thread_local Scalar before = 0;
    gain_and_shift::forward(in, w, x, y);
    y[0] += before / 1024;
    before = x[0];
  }
};
/// In training an element is 0 or twice as large, by one random bit.
struct halves {
  static constexpr bool on_tiles = true;
  [[nodiscard]] static constexpr pergrad::shape output_shape(pergrad::shape in) { return in; }
  [[nodiscard]] static constexpr std::size_t saved_count(pergrad::shape in) { return in.size(); }

  template <class Team>
  static void forward(const Team& team) {
    for (std::ptrdiff_t b = 0; b < team.samples; ++b) {
      draw(team, b, 0, team.saved(b));
      multiply(team, team.x(b), team.saved(b), team.y(b));
    }
  }
  template <class Team>
  static void backward(const Team& team) {
    for (std::ptrdiff_t b = 0; team.wants_dx && b < team.samples; ++b) {
      multiply(team, team.dy(b), team.saved(b), team.dx(b));
    }
  }

 protected:
  template <class Team, class Scalar>
  static void draw(const Team& team, std::ptrdiff_t b, std::ptrdiff_t first, Scalar* mask) {
    const auto size = static_cast<std::ptrdiff_t>(team.in.size());
    if (!team.is_random()) return team.fill(size, mask, 1);
    team.draw(b, first, size,
              [&](std::ptrdiff_t i, std::uint32_t bits) { mask[i] = bits >> 31U == 0 ? Scalar{0} : Scalar{2}; });
  }
  template <class Team, class From, class Mask, class Scalar>
  static void multiply(const Team& team, const From* x, const Mask* mask, Scalar* y) {
    team.map(static_cast<std::ptrdiff_t>(team.in.size()), [&](const auto& at) { at.put(y, at(x) * at(mask)); });
  }
};
/// Wrong: backward draws bits of its own.
struct draws_again : halves {
  template <class Team>
  static void backward(const Team& team) {
    for (std::ptrdiff_t b = 0; b < team.samples; ++b) draw(team, b, 16, team.saved(b));
    halves::backward(team);
  }
};
/// Wrong: in training, and only there, samples of a tile have a share in each other.
struct mixes_in_training : halves {
  template <class Team>
  static void forward(const Team& team) {
    halves::forward(team);
    for (std::ptrdiff_t b = 0; team.is_random() && b < team.samples; ++b) {
      team.y(b)[0] += team.x((b + 1) % team.samples)[0] / 1024;
    }
  }
};
/// y = x².
struct square : without_parameters {
  template <class Scalar>
  static void forward(pergrad::shape /*in*/, std::span<const Scalar> /*w*/, std::span<const Scalar> x,
                      std::span<Scalar> y) {
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = x[i] * x[i];
  }
  template <class Scalar>
  static void backward(pergrad::shape /*in*/, std::span<const Scalar> /*w*/, std::span<const Scalar> x,
                       std::span<const Scalar> backprop, std::span<Scalar> dx) {
    for (std::size_t i = 0; i < dx.size(); ++i) dx[i] = 2 * x[i] * backprop[i];
  }
};
/// Wrong: below -3 the slope is 0.
struct wrong_far_out : square {
  template <class Scalar>
  static void backward(pergrad::shape /*in*/, std::span<const Scalar> /*w*/, std::span<const Scalar> x,
                       std::span<const Scalar> backprop, std::span<Scalar> dx) {
    for (std::size_t i = 0; i < dx.size(); ++i) dx[i] = x[i] < -3 ? 0 : 2 * x[i] * backprop[i];
  }
};
/// Wrong: in float the slope is a hundredth too large.
struct wrong_in_float : square {
  template <class Scalar>
  static void backward(pergrad::shape in, std::span<const Scalar> w, std::span<const Scalar> x,
                       std::span<const Scalar> backprop, std::span<Scalar> dx) {
    square::backward(in, w, x, backprop, dx);
    for (Scalar& each : dx) each *= std::is_same_v<Scalar, float> ? static_cast<Scalar>(1.01) : 1;
  }
};
/// Wrong: counts its calls, so that no evaluation is like another.
struct counts_its_calls : gain_and_shift {
  template <class Scalar>
  static void forward(pergrad::shape in, std::span<const Scalar> w, std::span<const Scalar> x, std::span<Scalar> y) {
    thread_local Scalar calls = 0;
    gain_and_shift::forward(in, w, x, y);
    y[0] += ++calls / 1024;
  }
};
/// Wrong: leaves the first element of dx as it finds it.
struct forgets_an_element : gain_and_shift {
  template <class Scalar>
  static void backward(pergrad::shape in, std::span<const Scalar> w, std::span<const Scalar> /*x*/,
                       std::span<const Scalar> backprop, std::span<Scalar> dx) {
    for (std::size_t i = 1; i < dx.size(); ++i) dx[i] = w[i % in.e1] * backprop[i];
  }
};

}  // namespace custom
