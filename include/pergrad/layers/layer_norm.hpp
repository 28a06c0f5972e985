// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/layer_norm.hpp - layer norm and root-mean-square norm of rows, over the last axes of one sample
//
//     layer_norm  y = gain (x - mean) / sqrt(variance + eps) + shift      (Ba, Kiros & Hinton 2016, arXiv:1607.06450)
//     rms_norm    y = gain x / sqrt(mean(x^2) + eps)                      (Zhang & Sennrich 2019, arXiv:1910.07467)
// The variance is the biased one. Per-sample gradients: of the gain sum_t dy_t xhat_t, of the shift sum_t dy_t, over
// the rows t that share them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <pergrad/detail/host_device.hpp>
#include <pergrad/detail/limits.hpp>
#include <pergrad/gradients/factors.hpp>
#include <pergrad/graph/mistakes.hpp>
#include <pergrad/layers/shared/normalisation.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

namespace detail {

/// What `layer_norm` (Centred) and `rms_norm` have in common. Saved: xhat, then one rate a row.
template <bool Centred, class... Options>
struct row_norm {
  static constexpr bool on_tiles = true;
  static constexpr bool on_device = true;
  static constexpr norm_options options = gather<norm_options, Options...>();
  static constexpr bool by_position = options.axes == 1;
  static constexpr bool forgets_values = true;
  static constexpr bool affine = options.affine;
  static constexpr bool shifts = Centred && options.affine && options.bias;

  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept { return in; }
  [[nodiscard]] static constexpr std::size_t parameter_count(shape in) noexcept {
    return (options.affine ? row_size(in) : 0) + (shifts ? row_size(in) : 0);
  }
  [[nodiscard]] static constexpr block_list<2> blocks(shape in) noexcept {
    block_list<2> list{{{"weight"}, {"bias"}}};
    for (std::size_t i = 0; i < options.axes; ++i) {
      const std::size_t size = in[in.rank() - options.axes + i];
      list[0].extents[i] = size;
      list[1].extents[i] = shifts ? size : 0;
    }
    return list;
  }
  [[nodiscard]] static constexpr auto settings() noexcept {
    return std::array{static_cast<double>(options.axes), options.epsilon, options.epsilon_given ? 1.0 : 0.0};
  }
  [[nodiscard]] static constexpr std::size_t saved_count(shape in) noexcept { return in.size() + row_count(in); }
  /// Rows know nothing of each other; eight are a part, a warp's each.
  [[nodiscard]] static constexpr std::size_t part_count(shape in) noexcept { return (row_count(in) + 7) / 8; }
  [[nodiscard]] static constexpr auto factors(shape in) noexcept {
    const std::size_t size = row_size(in);
    const operand delta{.from = source::backprop, .position_stride = size};
    const factor gain = elementwise_sum(row_count(in), size, delta, {.from = source::saved, .position_stride = size});
    factor_list<(options.affine ? 1U : 0U) + (shifts ? 1U : 0U)> list{};
    if constexpr (options.affine) list[0] = gain;
    if constexpr (shifts) list[1] = elementwise_sum(row_count(in), size, delta);
    return list;
  }
  [[nodiscard]] static constexpr mistake check(shape in) noexcept {
    if (options.unknown_given || options.axes == 0 || options.axes > in.rank() || (!Centred && options.bias_given)) {
      return mistake::option_not_offered;
    }
    // Rows that go along the axis of varying length would need the length.
    if (in.varying_axis() != 0 && options.axes + in.varying_axis() > in.rank()) return mistake::lengths_are_lost;
    return mistake::none;
  }
  template <class Initialiser, class Scalar>
  static void initialise(shape in, const Initialiser& initialiser, std::uint64_t first, std::span<Scalar> parameters) {
    initialise_affine(initialiser, first, row_size(in), parameters);
  }

  template <class Team>
  PERGRAD_HD static void forward(const Team& team) {
    using scalar = typename Team::scalar;
    const auto size = static_cast<std::ptrdiff_t>(row_size(team.in));
    const auto count = static_cast<std::ptrdiff_t>(row_count(team.in));
    const part_range rows = range_of_part(team, count);
    const scalar* gain = affine ? team.parameters : nullptr;
    const scalar* shift = shifts ? team.parameters + size : nullptr;
    for (std::ptrdiff_t b = 0; b < team.samples; ++b) {
      const scalar* x = team.x(b);
      scalar* y = team.y(b);
      scalar* xhat = team.saved(b);
      scalar* rates = xhat + size * count;
      team.for_each_row(rows.count, [&](std::ptrdiff_t i, const auto& row) {
        const std::ptrdiff_t r = rows.first + i;
        const auto by = normalisation::normaliser_of_row<Centred>(row, size, x + r * size, epsilon<scalar>());
        row.fill(1, rates + r, by.rate);
        normalisation::forward_row<Centred>(row, size, x + r * size, by, gain, shift, xhat + r * size, y + r * size);
      });
    }
  }
  template <class Team>
  PERGRAD_HD static void backward(const Team& team) {
    using scalar = typename Team::scalar;
    const auto size = static_cast<std::ptrdiff_t>(row_size(team.in));
    const auto count = static_cast<std::ptrdiff_t>(row_count(team.in));
    const part_range rows = range_of_part(team, count);
    const scalar* gain = affine ? team.parameters : nullptr;
    for (std::ptrdiff_t b = 0; team.wants_dx && b < team.samples; ++b) {
      const scalar* xhat = team.saved(b);
      const scalar* rates = xhat + size * count;
      const scalar* dy = team.dy(b);
      scalar* dx = team.dx(b);
      team.for_each_row(rows.count, [&](std::ptrdiff_t i, const auto& row) {
        const std::ptrdiff_t r = rows.first + i;
        normalisation::backward_row<Centred>(row, size, xhat + r * size, rates[r], gain, dy + r * size, dx + r * size);
      });
    }
  }

 private:
  /// PyTorch: 1e-5 for a layer norm; for the root mean square what 1 is away from the next larger number.
  template <class Scalar>
  [[nodiscard]] PERGRAD_HD static constexpr double epsilon() noexcept {
    constexpr double chosen =
        Centred || options.epsilon_given ? options.epsilon : static_cast<double>(limits::epsilon<Scalar>);
    return chosen;
  }
  [[nodiscard]] PERGRAD_HD static constexpr std::size_t row_size(shape in) noexcept {
    constexpr std::size_t axes = options.axes;
    std::size_t size = 1;
    for (std::size_t axis = in.rank() - axes; axis < in.rank(); ++axis) size *= in[axis];
    return size;
  }
  [[nodiscard]] PERGRAD_HD static constexpr std::size_t row_count(shape in) noexcept {
    return in.size() / row_size(in);
  }
};

}  // namespace detail

/// `layer_norm<>` normalises along the last axis of an input of any rank, `layer_norm<axes<K>>` along the last K axes
/// together. Options in any order: `axes<K>`, `no_affine`, `no_bias`, `eps<Numerator, Denominator>` (default
/// 1/100000). PyTorch: `nn.LayerNorm(shape[-K:])`; parameters: weight, then bias, each of the normalised axes' size; at
/// first 1 and 0. Positions of samples with lengths of their own are normalised one by one.
template <class... Options>
struct layer_norm : detail::row_norm<true, Options...> {
  static constexpr const char* name = "layer_norm";
};

/// `rms_norm<>` normalises along the last axis of an input of any rank, `rms_norm<axes<K>>` along the last K axes
/// together. Options in any order: `axes<K>`, `no_affine`, `eps<Numerator, Denominator>`; without the last, as in
/// PyTorch, the machine epsilon of the network's type. PyTorch: `nn.RMSNorm(shape[-K:])`; parameter: weight, at
/// first 1.
template <class... Options>
struct rms_norm : detail::row_norm<false, Options...> {
  static constexpr const char* name = "rms_norm";
};

}  // namespace pergrad::inline v0_1
