// SPDX-License-Identifier: Apache-2.0
// pergrad/layers/shared/channel_norm.hpp - groups of channels over all their pixels, normalised on images stored
// channels last
//
// A pixel's channels lie side by side, so vectors run over channels and sums over pixels stay in registers, one lane a
// channel. Groups are made of whole lanes' sums. Channels are taken some groups at a time, few enough to stay in the
// cache from the first pass over them to the last.
//
// Vectors of the last channels may read into the next pixel: what lies there is computed with, but never used.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include <pergrad/graph/graph.hpp>
#include <pergrad/graph/layout.hpp>
#include <pergrad/layers/shared/normalisation.hpp>
#include <pergrad/simd/elements.hpp>

namespace pergrad::inline v0_1::detail::normalisation {

using on_host::layout;

/// `count` channels from `first` on, in `Width` vectors. Only whole blocks may be stored without care.
template <index Width, bool Whole>
struct channel_block {
  static constexpr index width = Width;
  index first;
  index count;

  template <class Scalar>
  void store(Scalar* to, narrow<Scalar> value) const noexcept {
    if constexpr (Whole) {
      store_narrow(to, value);
    } else {
      for (index lane = 0; lane < count; ++lane) to[lane] = value[lane];
    }
  }
  /// f(channel) in the channel's lane, for all channels of the block in order.
  template <class Scalar, class Function>
  [[nodiscard]] std::array<narrow<Scalar>, static_cast<std::size_t>(Width)> lanes(Function&& f) const noexcept {
    Scalar values[static_cast<std::size_t>(Width * wide_lanes)]{};
    for (index lane = 0; lane < count; ++lane) values[lane] = f(first + lane);
    std::array<narrow<Scalar>, static_cast<std::size_t>(Width)> result;
    for_each_index<static_cast<std::size_t>(Width)>(
        [&](auto k) { result[k] = load_narrow(values + static_cast<index>(k) * wide_lanes); });
    return result;
  }
};

template <class Function>
inline void for_each_block(index first, index last, Function&& f) noexcept {
  for (; first + 2 * wide_lanes <= last; first += 2 * wide_lanes) f(channel_block<2, true>{first, 2 * wide_lanes});
  for (; first + wide_lanes <= last; first += wide_lanes) f(channel_block<1, true>{first, wide_lanes});
  if (first < last) f(channel_block<1, false>{first, last - first});
}

/// Sums over all pixels, one a channel of the block: `f(first element in a, first element in b)` gives `Sums` vectors
/// of doubles for one vector of channels of one pixel. Calls `g(channel, sums)` for every channel in order.
template <std::size_t Sums, class Block, class Function, class Result>
inline void reduce_pixels(const Block& block, const layout& a, const layout& b, Function&& f, Result&& g) noexcept {
  constexpr auto width = static_cast<std::size_t>(Block::width);
  const index channels = a.values.channels;
  wide sums[width][Sums]{};
  on_host::for_each_stretch(a, b, [&](index in_a, index in_b, index count) {
    wide here[width][Sums];  // in registers, as `sums` would not be
    std::memcpy(here, sums, sizeof sums);
    for (index i = block.first; i < count; i += channels) {
      for_each_index<width>([&](auto k) {
        const index at = i + static_cast<index>(k) * wide_lanes;
        const std::array<wide, Sums> terms = f(in_a + at, in_b + at, k);
        for_each_index<Sums>([&](auto s) { here[k][s] += terms[s]; });
      });
    }
    std::memcpy(sums, here, sizeof sums);
  });
  for (index lane = 0; lane < block.count; ++lane) {
    std::array<double, Sums> here{};
    for (std::size_t s = 0; s < Sums; ++s) here[s] = sums[lane / wide_lanes][s][lane % wide_lanes];
    g(block.first + lane, here);
  }
}

/// Groups of channels, met in order.
class group_cursor {
 public:
  explicit group_cursor(index size) noexcept : size_{size} {}
  /// Number of the next channel's group.
  [[nodiscard]] index next() noexcept {
    const index here = group_;
    if (++inside_ == size_) {
      inside_ = 0;
      ++group_;
    }
    return here;
  }

 private:
  index size_;
  index inside_ = 0;
  index group_ = 0;
};

inline constexpr index channels_together = 64;
/// Calls f(first channel, one past the last) for some groups at a time: at most `channels_together` of them.
template <class Function>
inline void for_some_groups(index channels, index group_size, Function&& f) noexcept {
  const index step = std::max<index>(1, channels_together / group_size) * group_size;
  for (index first = 0; first < channels; first += step) f(first, std::min(first + step, channels));
}

/// xhat, dense, and y of one sample, and one rate a group. `gain` and `shift` may be null.
template <class Scalar>
inline void forward_image(const layout& x_layout, const Scalar* x, const layout& y_layout, Scalar* y, index group_size,
                          double epsilon, const Scalar* gain, const Scalar* shift, Scalar* xhat,
                          Scalar* rates) noexcept {
  const index channels = x_layout.values.channels;
  const index pixels = x_layout.values.size() / channels;
  const wide share = on_host::splat(1 / static_cast<double>(group_size * pixels));
  for_some_groups(channels, group_size, [&](index first, index last) {
    double mean[channels_together]{};
    double deviation[channels_together]{};
    double square[channels_together]{};
    normaliser<Scalar> by[channels_together];
    group_cursor group{group_size};
    for_each_block(first, last, [&](const auto& block) {
      reduce_pixels<1>(
          block, x_layout, x_layout,
          [&](index i, index, auto) { return std::array{widen(load_narrow(x + i)) * share}; },
          [&](index, const auto& sums) { mean[group.next()] += sums[0]; });
    });
    group = group_cursor{group_size};
    group_cursor group_of_sums{group_size};
    for_each_block(first, last, [&](const auto& block) {
      const auto centre = block.template lanes<double>([&](index) { return mean[group.next()]; });
      reduce_pixels<2>(
          block, x_layout, x_layout,
          [&](index i, index, auto k) {
            const wide here = widen(load_narrow(x + i)) - centre[k];
            return std::array{here * share, here * share * here};
          },
          [&](index, const auto& sums) {
            const index number = group_of_sums.next();
            deviation[number] += sums[0];
            square[number] += sums[1];
          });
    });
    for (index g = 0; g < (last - first) / group_size; ++g) {
      by[g] = {mean[g], deviation[g], square[g], epsilon};
      rates[first / group_size + g] = by[g].rate;
    }
    group = group_cursor{group_size};
    for_each_block(first, last, [&](const auto& block) {
      constexpr auto width = static_cast<std::size_t>(std::remove_cvref_t<decltype(block)>::width);
      group_cursor again = group;
      group_cursor once_more = group;
      const auto means = block.template lanes<Scalar>([&](index) { return by[group.next()].mean; });
      const auto rate = block.template lanes<Scalar>([&](index) { return by[again.next()].rate; });
      const auto rest = block.template lanes<Scalar>([&](index) { return by[once_more.next()].rest; });
      const auto gains = block.template lanes<Scalar>([&](index c) { return gain == nullptr ? Scalar{1} : gain[c]; });
      const auto shifts =
          block.template lanes<Scalar>([&](index c) { return shift == nullptr ? Scalar{0} : shift[c]; });
      Scalar* dense = xhat;
      on_host::for_each_stretch(x_layout, y_layout, [&](index from, index to, index count) {
        for (index i = block.first; i < count; i += channels) {
          for_each_index<width>([&](auto k) {
            const index here = i + static_cast<index>(k) * wide_lanes;
            const narrow<Scalar> value = (load_narrow(x + from + here) - means[k]) * rate[k] + rest[k];
            block.store(dense + here, value);
            block.store(y + to + here, narrow<Scalar>{value * gains[k] + shifts[k]});
          });
        }
        dense += count;
      });
    });
  });
}

/// dx of one sample, unless it is null, and what the gains and shifts receive, unless `gain` is null.
template <class Scalar>
inline void backward_image(const layout& dy_layout, const Scalar* dy, const layout& dx_layout, Scalar* dx,
                           index group_size, const Scalar* gain, const Scalar* xhat, const Scalar* rates,
                           Scalar* gain_sums, Scalar* shift_sums) noexcept {
  const index channels = dy_layout.values.channels;
  const index pixels = dy_layout.values.size() / channels;
  const layout dense_layout = on_host::lay_out(dy_layout.values, {});
  const double share = 1 / static_cast<double>(group_size * pixels);
  for_some_groups(channels, group_size, [&](index first, index last) {
    double mean[channels_together]{};
    double projection[channels_together]{};
    group_cursor group{group_size};
    for_each_block(first, last, [&](const auto& block) {
      reduce_pixels<2>(
          block, dy_layout, dense_layout,
          [&](index i, index j, auto) {
            const wide slope = widen(load_narrow(dy + i));
            return std::array{slope, slope * widen(load_narrow(xhat + j))};
          },
          [&](index c, const auto& sums) {
            const index number = group.next();
            const double weight = share * (gain == nullptr ? 1 : static_cast<double>(gain[c]));
            mean[number] += weight * sums[0];
            projection[number] += weight * sums[1];
            if (gain == nullptr) return;
            gain_sums[c] = static_cast<Scalar>(sums[1]);
            shift_sums[c] = static_cast<Scalar>(sums[0]);
          });
    });
    if (dx == nullptr) return;
    group = group_cursor{group_size};
    for_each_block(first, last, [&](const auto& block) {
      constexpr auto width = static_cast<std::size_t>(std::remove_cvref_t<decltype(block)>::width);
      group_cursor again = group;
      group_cursor once_more = group;
      const Scalar* rate = rates + first / group_size;
      const auto slope = block.template lanes<Scalar>(
          [&](index c) { return rate[group.next()] * (gain == nullptr ? Scalar{1} : gain[c]); });
      const auto offset = block.template lanes<Scalar>([&](index) {
        const index number = again.next();
        return rate[number] * static_cast<Scalar>(mean[number]);
      });
      const auto along = block.template lanes<Scalar>([&](index) {
        const index number = once_more.next();
        return rate[number] * static_cast<Scalar>(projection[number]);
      });
      const Scalar* dense = xhat;
      on_host::for_each_stretch(dy_layout, dx_layout, [&](index from, index to, index count) {
        for (index i = block.first; i < count; i += channels) {
          for_each_index<width>([&](auto k) {
            const index here = i + static_cast<index>(k) * wide_lanes;
            block.store(dx + to + here, narrow<Scalar>{load_narrow(dy + from + here) * slope[k] - offset[k] -
                                                       load_narrow(dense + here) * along[k]});
          });
        }
        dense += count;
      });
    });
  });
}

/// The same of a sample with one pixel: its groups are rows.
template <class Scalar>
inline void forward_pixel(const Scalar* x, Scalar* y, index channels, index group_size, double epsilon,
                          const Scalar* gain, const Scalar* shift, Scalar* xhat, Scalar* rates) noexcept {
  for (index first = 0; first < channels; first += group_size) {
    const auto by = normaliser_of_row<true>(x + first, group_size, epsilon);
    *rates++ = by.rate;
    forward_row<true>(x + first, group_size, by, gain == nullptr ? nullptr : gain + first,
                      shift == nullptr ? nullptr : shift + first, xhat + first, y + first);
  }
}
template <class Scalar>
inline void backward_pixel(const Scalar* dy, Scalar* dx, index channels, index group_size, const Scalar* gain,
                           const Scalar* xhat, const Scalar* rates, Scalar* gain_sums, Scalar* shift_sums) noexcept {
  for (index first = 0; dx != nullptr && first < channels; first += group_size) {
    backward_row<true>(xhat + first, *rates++, gain == nullptr ? nullptr : gain + first, dy + first, group_size,
                       dx + first);
  }
  if (gain == nullptr) return;
  on_host::for_each_vector<Scalar>(channels, [&](index i, const auto& lanes) {
    lanes.store(shift_sums + i, lanes.load(dy + i));
    lanes.store(gain_sums + i, lanes.load(dy + i) * lanes.load(xhat + i));
  });
}

/// y = gain_c x + shift_c; `shift` may be null.
template <class Scalar>
inline void scale_image(const layout& x_layout, const Scalar* x, const layout& y_layout, Scalar* y, const Scalar* gain,
                        const Scalar* shift) noexcept {
  const index channels = x_layout.values.channels;
  for_each_block(0, channels, [&](const auto& block) {
    constexpr auto width = static_cast<std::size_t>(std::remove_cvref_t<decltype(block)>::width);
    const auto gains = block.template lanes<Scalar>([&](index c) { return gain[c]; });
    const auto shifts = block.template lanes<Scalar>([&](index c) { return shift == nullptr ? Scalar{0} : shift[c]; });
    on_host::for_each_stretch(x_layout, y_layout, [&](index from, index to, index count) {
      for (index i = block.first; i < count; i += channels) {
        for_each_index<width>([&](auto k) {
          const index here = i + static_cast<index>(k) * wide_lanes;
          block.store(y + to + here, narrow<Scalar>{load_narrow(x + from + here) * gains[k] + shifts[k]});
        });
      }
    });
  });
}
/// Over all pixels, a channel's sum of dy x and its sum of dy.
template <class Scalar>
inline void sum_image(const layout& dy_layout, const Scalar* dy, const layout& x_layout, const Scalar* x,
                      Scalar* products, Scalar* sums) noexcept {
  for_each_block(0, dy_layout.values.channels, [&](const auto& block) {
    reduce_pixels<2>(
        block, dy_layout, x_layout,
        [&](index i, index j, auto) {
          const wide slope = widen(load_narrow(dy + i));
          return std::array{slope, slope * widen(load_narrow(x + j))};
        },
        [&](index c, const auto& total) {
          sums[c] = static_cast<Scalar>(total[0]);
          products[c] = static_cast<Scalar>(total[1]);
        });
  });
}

}  // namespace pergrad::inline v0_1::detail::normalisation
