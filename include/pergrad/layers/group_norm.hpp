// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/group_norm.hpp - channels in groups, each normalised over its channels and all pixels of one sample
//
// Wu & He 2018, arXiv:1803.08494: y = gain_c (x - mean) / sqrt(variance + eps) + shift_c with the group's own moments.
// Per-sample gradients: of gain_c the sum of dy xhat over the pixels of channel c, of shift_c the sum of dy. It takes
// the place of batch norm, which mixes samples. An instance norm (Ulyanov, Vedaldi & Lempitsky 2016, arXiv:1607.08022)
// has one channel a group. It has no running statistics: they would mix the samples of a data set.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <pergrad/gradients/factors.hpp>
#include <pergrad/graph/mistakes.hpp>
#include <pergrad/layers/shared/channel_norm.hpp>
#include <pergrad/layers/shared/normalisation.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

namespace detail {

/// What `group_norm` and the instance norms have in common; with no `Groups` every channel is one. Saved: xhat as a
/// dense image, one rate a group, and what the gains and shifts receive, which backward sums up on its way.
template <std::size_t Groups, class... Options>
struct grouped_norm {
  static constexpr bool on_tiles = true;
  static constexpr bool stored_order = true;
  static constexpr bool channels_first = true;
  static constexpr norm_options options = gather<norm_options, Options...>();

  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept { return in; }
  [[nodiscard]] static constexpr std::size_t parameter_count(shape in) noexcept {
    return options.affine ? 2 * in.e0 : 0;
  }
  [[nodiscard]] static constexpr block_list<2> blocks(shape in) noexcept {
    return {{{"weight", {in.e0}}, {"bias", {in.e0}}}};
  }
  [[nodiscard]] static constexpr auto settings() noexcept {
    return std::array{static_cast<double>(Groups), options.epsilon};
  }
  [[nodiscard]] static constexpr std::size_t saved_count(shape in) noexcept {
    return in.size() + group_count(in) + parameter_count(in);
  }
  [[nodiscard]] static constexpr auto factors(shape in) noexcept {
    const std::size_t sums = in.size() + group_count(in);
    factor_list<options.affine ? 2 : 0> list;
    if constexpr (options.affine) {
      list[0] = elementwise_sum(1, in.e0, {.from = source::saved, .offset = sums});
      list[1] = elementwise_sum(1, in.e0, {.from = source::saved, .offset = sums + in.e0});
    }
    return list;
  }
  [[nodiscard]] static constexpr mistake check(shape in) noexcept {
    if (options.unknown_given || options.axes_given || options.bias_given) return mistake::option_not_offered;
    if (in.e0 % group_count(in) != 0) return mistake::groups_do_not_divide;
    return in.varying_axis() != 0 ? mistake::lengths_are_lost : mistake::none;
  }
  template <class Initialiser, class Scalar>
  static void initialise(shape in, const Initialiser& initialiser, std::uint64_t first, std::span<Scalar> parameters) {
    initialise_affine(initialiser, first, in.e0, parameters);
  }

  template <class Tile>
  static void forward(const Tile& tile) {
    using scalar = typename Tile::scalar;
    const auto channels = static_cast<std::ptrdiff_t>(tile.in.e0);
    const auto size = static_cast<std::ptrdiff_t>(tile.in.size());
    const auto group_size = channels / static_cast<std::ptrdiff_t>(group_count(tile.in));
    const scalar* gain = options.affine ? tile.parameters : nullptr;
    const scalar* shift = options.affine ? tile.parameters + channels : nullptr;
    for (std::ptrdiff_t b = 0; b < tile.samples; ++b) {
      scalar* xhat = tile.saved(b);
      if (size > channels) {
        normalisation::forward_image(tile.x_layout, tile.x(b), tile.y_layout, tile.y(b), group_size, options.epsilon,
                                     gain, shift, xhat, xhat + size);
      } else {
        normalisation::forward_pixel(tile.x(b) + tile.x_layout.start, tile.y(b) + tile.y_layout.start, channels,
                                     group_size, options.epsilon, gain, shift, xhat, xhat + size);
      }
    }
  }
  template <class Tile>
  static void backward(const Tile& tile) {
    using scalar = typename Tile::scalar;
    const auto channels = static_cast<std::ptrdiff_t>(tile.in.e0);
    const auto size = static_cast<std::ptrdiff_t>(tile.in.size());
    const auto group_size = channels / static_cast<std::ptrdiff_t>(group_count(tile.in));
    const scalar* gain = options.affine ? tile.parameters : nullptr;
    for (std::ptrdiff_t b = 0; b < tile.samples; ++b) {
      const scalar* xhat = tile.saved(b);
      scalar* gain_sums = tile.saved(b) + size + channels / group_size;
      scalar* shift_sums = gain_sums + channels;
      scalar* dx = tile.wants_dx ? tile.dx(b) : nullptr;
      if (size > channels) {
        normalisation::backward_image(tile.dy_layout, tile.dy(b), tile.dx_layout, dx, group_size, gain, xhat,
                                      xhat + size, gain_sums, shift_sums);
      } else {
        normalisation::backward_pixel(tile.dy(b) + tile.dy_layout.start,
                                      dx == nullptr ? nullptr : dx + tile.dx_layout.start, channels, group_size, gain,
                                      xhat, xhat + size, gain_sums, shift_sums);
      }
    }
  }

 private:
  [[nodiscard]] static constexpr std::size_t group_count(shape in) noexcept { return Groups == 0 ? in.e0 : Groups; }
};

template <std::size_t Rank, class... Options>
struct instance_norm : grouped_norm<0, Options...> {
  [[nodiscard]] static constexpr mistake check(shape in) noexcept {
    if (in.rank() != Rank) return wrong_rank(Rank - 1);
    // As in PyTorch, one value a channel is refused: normalised it would always be 0.
    return in.size() > in.e0 ? grouped_norm<0, Options...>::check(in) : mistake::rejects_input;
  }
};

}  // namespace detail

/// `group_norm<Groups>` on `{channels}`, `{channels, positions}`, `{channels, height, width}` or `{channels, depth,
/// height, width}`; Groups must divide the channels. Options: `no_affine`, `eps<Numerator, Denominator>` (default
/// 1/100000). PyTorch: `nn.GroupNorm(Groups, channels)`; parameters: weight, then bias, one a channel, at first 1 and
/// 0.
template <std::size_t Groups, class... Options>
struct group_norm : detail::grouped_norm<Groups, Options...> {
  static constexpr const char* name = "group_norm";
  [[nodiscard]] static constexpr detail::mistake check(shape in) noexcept {
    return Groups == 0 ? detail::mistake::zero_is_no_size : detail::grouped_norm<Groups, Options...>::check(in);
  }
};

/// `instance_norm1d<>` on `{channels, positions}`. Options: `no_affine`, `eps<Numerator, Denominator>` (default
/// 1/100000). PyTorch: `nn.InstanceNorm1d(channels, affine=True)`; with `no_affine` PyTorch's own default,
/// `affine=False`. Parameters: weight, then bias, one a channel, at first 1 and 0.
template <class... Options>
struct instance_norm1d : detail::instance_norm<2, Options...> {
  static constexpr const char* name = "instance_norm1d";
};
/// The same on `{channels, height, width}`. PyTorch: `nn.InstanceNorm2d(channels, affine=True)`.
template <class... Options>
struct instance_norm2d : detail::instance_norm<3, Options...> {
  static constexpr const char* name = "instance_norm2d";
};
/// The same on `{channels, depth, height, width}`. PyTorch: `nn.InstanceNorm3d(channels, affine=True)`.
template <class... Options>
struct instance_norm3d : detail::instance_norm<4, Options...> {
  static constexpr const char* name = "instance_norm3d";
};

}  // namespace pergrad::inline v0_1
