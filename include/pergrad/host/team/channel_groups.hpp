// SPDX-License-Identifier: Apache-2.0
// pergrad/host/team/channel_groups.hpp - sums over groups of channels and all their pixels, and what is made of each
// pixel, on images stored channels last
//
// A pixel's channels lie side by side, so vectors run over channels and sums over pixels stay in registers, one lane a
// channel. Groups are made of whole lanes' sums. Channels are taken some groups at a time, few enough to stay in the
// cache from the first pass over them to the last.
//
// Vectors of the last channels may read into the next pixel: what lies there is computed with, but never used.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <type_traits>
#include <utility>

#include <pergrad/detail/host_device.hpp>
#include <pergrad/detail/index.hpp>
#include <pergrad/graph/graph.hpp>
#include <pergrad/graph/layout.hpp>
#include <pergrad/simd/elements.hpp>
#include <pergrad/team.hpp>

namespace pergrad::inline v0_1::on_host {

/// As many channels as a vector of doubles has lanes, or the last `count` of an image: what a layer reads of them once,
/// before it meets their pixels.
template <class Value>
struct some_channels {
  index first;
  index count;
  /// f(channel) in the channel's lane.
  template <class Function>
  [[nodiscard]] PERGRAD_HD auto per_channel(const Function& f) const noexcept {
    using element = std::remove_cvref_t<decltype(lane_of(Value{}, 0))>;
    element lanes[static_cast<std::size_t>(wide_pack_lanes)]{};
    for (index lane = 0; lane < count; ++lane) lanes[lane] = static_cast<element>(f(first + lane));
    Value value;
    __builtin_memcpy(&value, lanes, sizeof value);
    return value;
  }
};

/// Those channels of one pixel of up to three images: two that lie as they are stored, and a dense one.
template <class Value, bool Whole>
struct pixel_at {
  index in_first;
  index in_second;
  index in_dense;
  index count;
  template <class Scalar>
  [[nodiscard]] PERGRAD_HD Value first(const Scalar* image) const noexcept {
    return read(image + in_first);
  }
  template <class Scalar>
  [[nodiscard]] PERGRAD_HD Value second(const Scalar* image) const noexcept {
    return read(image + in_second);
  }
  template <class Scalar>
  [[nodiscard]] PERGRAD_HD Value dense(const Scalar* image) const noexcept {
    return read(image + in_dense);
  }
  template <class Scalar>
  PERGRAD_HD void put_second(Scalar* image, Value value) const noexcept {
    write(image + in_second, value);
  }
  template <class Scalar>
  PERGRAD_HD void put_dense(Scalar* image, Value value) const noexcept {
    write(image + in_dense, value);
  }

 private:
  template <class Scalar>
  [[nodiscard]] PERGRAD_HD static Value read(const Scalar* from) noexcept {
    narrow_pack<Scalar> value;
    __builtin_memcpy(&value, from, sizeof value);
    if constexpr (std::is_same_v<Value, narrow_pack<Scalar>>) {
      return value;
    } else {
      return widen(value);
    }
  }
  template <class Scalar>
  PERGRAD_HD void write(Scalar* to, Value value) const noexcept {
    if constexpr (Whole) {
      __builtin_memcpy(to, &value, sizeof value);
    } else {
      for (index lane = 0; lane < count; ++lane) to[lane] = lane_of(value, lane);
    }
  }
};

inline constexpr index channels_together = 64;

/// One value a group, as far as they are here.
template <class Value>
struct of_groups {
  Value of[static_cast<std::size_t>(channels_together)]{};
  const unsigned char* numbers = nullptr;  ///< of the groups of channels, from `first` on
  index first = 0;
  /// That of a channel's group.
  [[nodiscard]] PERGRAD_HD const Value& operator()(index channel) const noexcept {
    return of[numbers == nullptr ? 0 : numbers[channel - first]];
  }
};

/// Some groups of channels of one sample.
template <class Scalar>
class channel_groups {
 public:
  channel_groups(index first, index last, index group_size, index channels) noexcept
      : first_{first}, last_{last}, group_size_{group_size}, channels_{channels} {
    index inside = 0;
    index group = 0;
    for (index c = 0; group_size <= channels_together && c < last - first; ++c) {
      numbers_[c] = static_cast<unsigned char>(group);
      if (++inside != group_size) continue;
      inside = 0;
      ++group;
    }
  }

  /// f(group) of every group here; groups are numbered through the image.
  template <class Function>
  [[nodiscard]] auto each(const Function& f) const {
    auto made = none<std::remove_cvref_t<decltype(f(index{}))>>();
    const index before = first_ / group_size_;
    for (index g = 0; g < (last_ - first_) / group_size_; ++g) made.of[g] = f(before + g);
    return made;
  }
  /// to[group] = f(first channel of the group)
  template <class Function>
  void keep(Scalar* to, const Function& f) const {
    for (index c = first_; c < last_; c += group_size_) to[c / group_size_] = f(c);
  }
  /// Sums over all pixels, and over the channels of each group of what `g` makes of them. `f(channels)` gives the
  /// function of a pixel that gives the summands, g(channel, sums) what a channel adds to its group's sums; a channel's
  /// own are stored where `to` is not null.
  template <int Sums, class Function, class Result>
  [[nodiscard]] auto reduce(const layout& a, const layout& b, const values_of<Scalar*, Sums>& to, const Function& f,
                            const Result& g) const {
    auto totals = none<std::remove_cvref_t<decltype(g(index{}, values_of<double, Sums>{}))>>();
    for_each_block([&]<index Width, bool Whole>(std::integral_constant<index, Width> /*width*/,
                                                std::bool_constant<Whole> /*whole*/, index first, index count) {
      constexpr auto width = static_cast<std::size_t>(Width);
      wide_pack sums[width][static_cast<std::size_t>(Sums)]{};
      const auto summand = in_parts<width, wide_pack>(first, count, f);
      on_host::for_each_stretch(a, b, [&, dense = index{0}](index in_a, index in_b, index values) mutable {
        wide_pack here[width][static_cast<std::size_t>(Sums)];  // in registers, as `sums` would not be
        std::memcpy(here, sums, sizeof sums);
        for (index i = first; i < values; i += channels_) {
          pergrad::detail::for_each_index<width>([&](auto k) {
            const index at = i + static_cast<index>(k) * wide_pack_lanes;
            const auto terms = summand[k](pixel_at<wide_pack, Whole>{in_a + at, in_b + at, dense + at, count});
            for (int s = 0; s < Sums; ++s) here[k][s] += terms[s];
          });
        }
        std::memcpy(sums, here, sizeof sums);
        dense += values;
      });
      for (index lane = 0; lane < count; ++lane) {
        values_of<double, Sums> of_channel{};
        for (int s = 0; s < Sums; ++s) {
          of_channel[s] = lane_of(sums[lane / wide_pack_lanes][s], lane % wide_pack_lanes);
          if (to[s] != nullptr) to[s][first + lane] = static_cast<Scalar>(of_channel[s]);
        }
        const auto share = g(first + lane, of_channel);
        auto& total = totals.of[group_of(first + lane)];
        for (int s = 0; s < static_cast<int>(sizeof share / sizeof(double)); ++s) total[s] += share[s];
      }
    });
    return totals;
  }
  /// Every pixel; as in `reduce`, f(channels) gives the function that meets it.
  template <class Function>
  void map(const layout& a, const layout& b, const Function& f) const {
    for_each_block([&]<index Width, bool Whole>(std::integral_constant<index, Width> /*width*/,
                                                std::bool_constant<Whole> /*whole*/, index first, index count) {
      constexpr auto width = static_cast<std::size_t>(Width);
      const auto change = in_parts<width, narrow_pack<Scalar>>(first, count, f);
      on_host::for_each_stretch(a, b, [&, dense = index{0}](index in_a, index in_b, index values) mutable {
        for (index i = first; i < values; i += channels_) {
          pergrad::detail::for_each_index<width>([&](auto k) {
            const index at = i + static_cast<index>(k) * wide_pack_lanes;
            change[k](pixel_at<narrow_pack<Scalar>, Whole>{in_a + at, in_b + at, dense + at, count});
          });
        }
        dense += values;
      });
    });
  }

 private:
  template <class Value>
  [[nodiscard]] of_groups<Value> none() const {
    return {.numbers = group_size_ <= channels_together ? numbers_ : nullptr, .first = first_};
  }
  [[nodiscard]] index group_of(index channel) const noexcept {
    return group_size_ <= channels_together ? numbers_[channel - first_] : 0;
  }
  /// f(channels) for each of `Width` vectors of channels.
  template <std::size_t Width, class Value, class Function>
  [[nodiscard]] static auto in_parts(index first, index count, const Function& f) {
    return [&]<std::size_t... Part>(std::index_sequence<Part...> /*parts*/) {
      return std::array{f(some_channels<Value>{first + static_cast<index>(Part) * wide_pack_lanes,
                                               Width == 1 ? count : wide_pack_lanes})...};
    }
    (std::make_index_sequence<Width>{});
  }
  template <class Function>
  void for_each_block(const Function& f) const {
    constexpr index lanes = wide_pack_lanes;
    index first = first_;
    for (; first + 2 * lanes <= last_; first += 2 * lanes) {
      f(std::integral_constant<index, 2>{}, std::true_type{}, first, 2 * lanes);
    }
    for (; first + lanes <= last_; first += lanes)
      f(std::integral_constant<index, 1>{}, std::true_type{}, first, lanes);
    if (first < last_) f(std::integral_constant<index, 1>{}, std::false_type{}, first, last_ - first);
  }

  index first_;
  index last_;
  index group_size_;
  index channels_;
  unsigned char numbers_[static_cast<std::size_t>(channels_together)]{};
};

/// f(groups) for some groups at a time: at most `channels_together` channels of them.
template <class Scalar, class Function>
void for_some_groups(index channels, index group_size, const Function& f) {
  const index together = channels_together / group_size;
  const index step = (together < 1 ? 1 : together) * group_size;
  for (index first = 0; first < channels; first += step) {
    f(channel_groups<Scalar>{first, first + step < channels ? first + step : channels, group_size, channels});
  }
}

}  // namespace pergrad::inline v0_1::on_host
