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

#include <pergrad/detail/host_device.hpp>
#include <pergrad/gradients/factors.hpp>
#include <pergrad/graph/mistakes.hpp>
#include <pergrad/layers/shared/normalisation.hpp>
#include <pergrad/shape.hpp>
#include <pergrad/team.hpp>

namespace pergrad::inline v0_1 {

namespace detail {

/// What `group_norm` and the instance norms have in common; with no `Groups` every channel is one. Saved: xhat as a
/// dense image, one rate a group, and what the gains and shifts receive, which backward sums up on its way.
template <std::size_t Groups, class... Options>
struct grouped_norm {
  static constexpr bool on_tiles = true;
  static constexpr bool on_device = true;
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
    factor_list<options.affine ? 2 : 0> list{};
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
  /// Groups know nothing of each other.
  [[nodiscard]] static constexpr std::size_t part_count(shape in) noexcept {
    return count_parts(group_count(in), in.size());
  }
  template <class Initialiser, class Scalar>
  static void initialise(shape in, const Initialiser& initialiser, std::uint64_t first, std::span<Scalar> parameters) {
    initialise_affine(initialiser, first, in.e0, parameters);
  }

  template <class Team>
  PERGRAD_HD static void forward(const Team& team) {
    using scalar = typename Team::scalar;
    const auto channels = static_cast<std::ptrdiff_t>(team.in.e0);
    const auto size = static_cast<std::ptrdiff_t>(team.in.size());
    const auto group_size = channels / static_cast<std::ptrdiff_t>(group_count(team.in));
    const std::ptrdiff_t pixels = size / channels;
    const double share = 1 / static_cast<double>(group_size * pixels);
    const scalar* gain = affine ? team.parameters : nullptr;
    const scalar* shift = affine ? team.parameters + channels : nullptr;
    for (std::ptrdiff_t b = 0; b < team.samples; ++b) {
      const scalar* x = team.x(b);
      scalar* y = team.y(b);
      scalar* xhat = team.saved(b);
      scalar* rates = xhat + size;
      if (pixels == 1) {  // one pixel: groups are rows
        x += team.x_layout.start;
        y += team.y_layout.start;
        const part_range own = range_of_part(team, channels / group_size);
        team.for_each_row(own.count, [&](std::ptrdiff_t i, const auto& row) {
          const std::ptrdiff_t r = own.first + i;
          const std::ptrdiff_t first = r * group_size;
          const auto by = normalisation::normaliser_of_row<true>(row, group_size, x + first, epsilon());
          row.fill(1, rates + r, by.rate);
          normalisation::forward_row<true>(row, group_size, x + first, by, affine ? gain + first : nullptr,
                                           affine ? shift + first : nullptr, xhat + first, y + first);
        });
        continue;
      }
      const auto add_up = [](std::ptrdiff_t /*channel*/, const auto& sums) { return sums; };
      team.for_each_group(channels, group_size, [&](const auto& groups) {
        const auto mean = groups.template reduce<1>(
            team.x_layout, team.x_layout, {},
            [&](const auto& /*channels*/) { return [=](const auto& at) { return values(at.first(x) * share); }; },
            add_up);
        const auto sums = groups.template reduce<2>(
            team.x_layout, team.x_layout, {},
            [&](const auto& here) {
              const auto centre = here.per_channel([&](std::ptrdiff_t c) { return mean(c)[0]; });
              return [=](const auto& at) {
                const auto deviation = at.first(x) - centre;
                return values(deviation * share, deviation * share * deviation);
              };
            },
            add_up);
        const auto by = groups.each([&](std::ptrdiff_t group) {
          const std::ptrdiff_t c = group * group_size;
          return normalisation::normaliser<scalar>{mean(c)[0], sums(c)[0], sums(c)[1], epsilon()};
        });
        groups.keep(rates, [&](std::ptrdiff_t c) { return by(c).rate; });
        groups.map(team.x_layout, team.y_layout, [&](const auto& here) {
          const auto centre = here.per_channel([&](std::ptrdiff_t c) { return by(c).mean; });
          const auto rate = here.per_channel([&](std::ptrdiff_t c) { return by(c).rate; });
          const auto rest = here.per_channel([&](std::ptrdiff_t c) { return by(c).rest; });
          const auto gains = here.per_channel([&](std::ptrdiff_t c) { return affine ? gain[c] : scalar{1}; });
          const auto shifts = here.per_channel([&](std::ptrdiff_t c) { return affine ? shift[c] : scalar{0}; });
          return [=](const auto& at) {
            const auto value = normalisation::formula<true>::forward(at.first(x), centre, rate, rest);
            at.put_dense(xhat, value);
            at.put_second(y, value * gains + shifts);
          };
        });
      });
    }
  }
  template <class Team>
  PERGRAD_HD static void backward(const Team& team) {
    using scalar = typename Team::scalar;
    const auto channels = static_cast<std::ptrdiff_t>(team.in.e0);
    const auto size = static_cast<std::ptrdiff_t>(team.in.size());
    const auto group_size = channels / static_cast<std::ptrdiff_t>(group_count(team.in));
    const std::ptrdiff_t pixels = size / channels;
    const double share = 1 / static_cast<double>(group_size * pixels);
    const scalar* gain = affine ? team.parameters : nullptr;
    for (std::ptrdiff_t b = 0; b < team.samples; ++b) {
      const scalar* dy = team.dy(b);
      scalar* dx = team.wants_dx ? team.dx(b) : nullptr;
      const scalar* xhat = team.saved(b);
      const scalar* rates = xhat + size;
      scalar* gain_sums = affine ? team.saved(b) + size + channels / group_size : nullptr;
      scalar* shift_sums = affine ? gain_sums + channels : nullptr;
      if (pixels == 1) {
        dy += team.dy_layout.start;
        const part_range own = range_of_part(team, channels / group_size);
        if (dx != nullptr) {
          dx += team.dx_layout.start;
          team.for_each_row(own.count, [&](std::ptrdiff_t i, const auto& row) {
            const std::ptrdiff_t r = own.first + i;
            const std::ptrdiff_t first = r * group_size;
            normalisation::backward_row<true>(row, group_size, xhat + first, rates[r], affine ? gain + first : nullptr,
                                              dy + first, dx + first);
          });
        }
        if constexpr (affine) {
          const std::ptrdiff_t first = own.first * group_size;
          team.map(own.count * group_size, [&](const auto& at) {
            at.put(shift_sums + first, at(dy + first));
            at.put(gain_sums + first, at(dy + first) * at(xhat + first));
          });
        }
        continue;
      }
      team.for_each_group(channels, group_size, [&](const auto& groups) {
        const auto sums = groups.template reduce<2>(
            team.dy_layout, team.dy_layout, {{shift_sums, gain_sums}},
            [&](const auto& /*channels*/) {
              return [=](const auto& at) {
                const auto slope = at.first(dy);
                return values(slope, slope * at.dense(xhat));
              };
            },
            [&](std::ptrdiff_t c, const auto& of_channel) {
              const double weight = affine ? share * static_cast<double>(gain[c]) : share;
              return values(weight * of_channel[0], weight * of_channel[1]);
            });
        if (dx == nullptr) return;
        groups.map(team.dy_layout, team.dx_layout, [&](const auto& here) {
          const auto rate = here.per_channel([&](std::ptrdiff_t c) { return rates[c / group_size]; });
          const auto slope = here.per_channel([&](std::ptrdiff_t c) { return affine ? gain[c] : scalar{1}; });
          const auto mean = here.per_channel([&](std::ptrdiff_t c) { return static_cast<scalar>(sums(c)[0]); });
          const auto projection = here.per_channel([&](std::ptrdiff_t c) { return static_cast<scalar>(sums(c)[1]); });
          return [=](const auto& at) {
            at.put_second(dx, normalisation::formula<true>::backward(at.first(dy) * slope, at.dense(xhat), mean,
                                                                     projection, rate));
          };
        });
      });
    }
  }

 private:
  static constexpr bool affine = options.affine;
  [[nodiscard]] PERGRAD_HD static constexpr double epsilon() noexcept {
    constexpr double chosen = options.epsilon;
    return chosen;
  }
  [[nodiscard]] PERGRAD_HD static constexpr std::size_t group_count(shape in) noexcept {
    return Groups == 0 ? in.e0 : Groups;
  }
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
