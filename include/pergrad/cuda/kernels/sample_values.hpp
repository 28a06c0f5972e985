// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/kernels/sample_values.hpp - where things lie: a sample's values, the taps of a view, one element of a
// gradient; and a view's addresses in either direction, without a division
#pragma once

#include <cstddef>
#include <cstdint>

#include <pergrad/cuda/device/kernel.hpp>
#include <pergrad/cuda/kernels/tables.hpp>

namespace pergrad::inline v0_1::on_device {

/// The values of one sample.
template <class Scalar>
struct sample_values {
  Scalar* workspace = nullptr;
  const Scalar* input = nullptr;
  const int* integers = nullptr;  ///< of the tables
  int length = 0;                 ///< of the input, where lengths vary
  [[nodiscard]] PERGRAD_HD const Scalar* at(int place) const noexcept {
    return place >= 0 ? workspace + place : input + (-1 - place);
  }
  [[nodiscard]] PERGRAD_HD Scalar* to(int place) const noexcept { return workspace + place; }
  /// Ids lie in the place of as many values.
  [[nodiscard]] PERGRAD_HD const std::int32_t* integers_at(int place) const noexcept {
    return static_cast<const std::int32_t*>(static_cast<const void*>(at(place)));
  }
  [[nodiscard]] PERGRAD_HD std::int32_t* integers_to(int place) const noexcept {
    return static_cast<std::int32_t*>(static_cast<void*>(to(place)));
  }
  /// Positions that are there of a value with such a table of lengths, of `all`.
  [[nodiscard]] PERGRAD_HD int positions(int lengths, int all) const noexcept {
    return lengths < 0 ? all : integers[lengths + length];
  }
};

/// The samples of a physical batch: their inputs and targets lie in a data set, in the records that a list names.
template <class Scalar, class Target>
struct batch_view {
  Scalar* workspaces = nullptr;
  Scalar* kept = nullptr;  ///< gradients
  const Scalar* inputs = nullptr;
  const Target* targets = nullptr;
  const std::uint32_t* records = nullptr;  ///< nullptr: sample b is record b
  const std::uint32_t* numbers =
      nullptr;  ///< of the samples in the data set of who evaluates: randomness asks for them
  const std::uint32_t* lengths = nullptr;  ///< of the records; nullptr: all are whole
  const int* integers = nullptr;           ///< of the tables
  int workspace = 0;                       ///< elements a sample
  int kept_size = 0;
  int input_size = 0;
  int target_count = 0;

  [[nodiscard]] PERGRAD_HD std::size_t record_of(int sample) const noexcept {
    return records == nullptr ? static_cast<std::size_t>(sample) : records[sample];
  }
  [[nodiscard]] PERGRAD_HD sample_values<Scalar> values(int sample) const noexcept {
    const std::size_t record = record_of(sample);
    return {workspaces + static_cast<std::size_t>(sample) * static_cast<std::size_t>(workspace),
            inputs + record * static_cast<std::size_t>(input_size), integers,
            lengths == nullptr ? 0 : static_cast<int>(lengths[record])};
  }
  [[nodiscard]] PERGRAD_HD const Target* targets_of(int sample) const noexcept {
    return targets + record_of(sample) * static_cast<std::size_t>(target_count);
  }
  [[nodiscard]] PERGRAD_HD Scalar* kept_of(int sample) const noexcept {
    return kept + static_cast<std::size_t>(sample) * static_cast<std::size_t>(kept_size);
  }
};

/// Where the i-th of a box' pixels, positions or taps lies.
struct box_index {
  int d, h, w;
};
[[nodiscard]] PERGRAD_HD constexpr box_index index_in(const int (&box)[axes], int i) noexcept {
  return {i / (box[1] * box[2]), i / box[2] % box[1], i % box[2]};
}

/// begin .. end - 1
struct span_of_taps {
  int begin = 0;
  int end = 0;
};

/// Smallest i with i * step >= distance, for step > 0.
[[nodiscard]] PERGRAD_HD constexpr int steps_to(int distance, int step) noexcept {
  return distance <= 0 ? 0 : (distance + step - 1) / step;
}
/// Taps of position o that lie inside the input, along one axis.
[[nodiscard]] PERGRAD_HD inline span_of_taps taps_of(const affine_view& view, int axis, int o) noexcept {
  const int start = o * view.stride[axis] - view.padding[axis];
  const int room = view.in[axis] - start;  // taps from here on lie behind the input
  return {steps_to(-start, view.dilation[axis]),
          smaller_of(view.kernel[axis], room <= 0 ? 0 : (room - 1) / view.dilation[axis] + 1)};
}
/// Positions whose tap k lies inside the input, along one axis.
[[nodiscard]] PERGRAD_HD inline span_of_taps positions_of(const affine_view& view, int axis, int k) noexcept {
  const int start = k * view.dilation[axis] - view.padding[axis];
  const int room = view.in[axis] - start;
  return {steps_to(-start, view.stride[axis]),
          smaller_of(view.out[axis], room <= 0 ? 0 : (room - 1) / view.stride[axis] + 1)};
}

/// Calls f(tap, offset in a channel of x) for the taps of a position that lie inside the input, in order.
template <class Function>
PERGRAD_HD void for_each_tap(const affine_view& view, int position, Function&& f) {
  const auto [od, oh, ow] = index_in(view.out, position);
  const span_of_taps planes = taps_of(view, 0, od);
  const span_of_taps rows = taps_of(view, 1, oh);
  const span_of_taps columns = taps_of(view, 2, ow);
  for (int kd = planes.begin; kd < planes.end; ++kd) {
    const int plane = (od * view.stride[0] - view.padding[0] + kd * view.dilation[0]) * view.x_step[0];
    for (int kh = rows.begin; kh < rows.end; ++kh) {
      const int row = plane + (oh * view.stride[1] - view.padding[1] + kh * view.dilation[1]) * view.x_step[1];
      const int tap = (kd * view.kernel[1] + kh) * view.kernel[2];
      PERGRAD_ROLLED
      for (int kw = columns.begin; kw < columns.end; ++kw) {
        f(tap + kw, row + (ow * view.stride[2] - view.padding[2] + kw * view.dilation[2]) * view.x_step[2]);
      }
    }
  }
}
/// Offset of a position in y.
[[nodiscard]] PERGRAD_HD inline int position_in_y(const affine_view& view, int position) noexcept {
  const box_index at = index_in(view.out, position);
  return at.d * view.y_step[0] + at.h * view.y_step[1] + at.w * view.y_step[2];
}

/// One weight of a view: its group, its output and channel within the group, its tap.
struct weight_index {
  int group, output, channel, tap;
};
/// The parts of element e of a block of weights, `[group][output][channel][tap]`.
[[nodiscard]] PERGRAD_HD inline weight_index weight_at(const affine_view& view, int e) noexcept {
  const int taps = view.taps();
  const int row = e / taps / view.channels;
  return {row / view.outputs, row % view.outputs, e / taps % view.channels, e % taps};
}

/// sum + element e of one use of a block.
template <class Scalar>
[[nodiscard]] PERGRAD_HD Scalar add_element(const outer_leaf& leaf, const sample_values<Scalar>& values, int e,
                                            Scalar sum) noexcept {
  const affine_view& view = leaf.view;
  const weight_index at = weight_at(view, e);
  const Scalar* x = values.at(leaf.x) + at.group * view.x_group + at.channel * view.x_channel;
  if (leaf.by_ids != 0) {
    const std::int32_t* ids = values.integers_at(leaf.delta);
    PERGRAD_ROLLED
    for (int t = 0; t < view.out[1]; ++t) {
      if (ids[t] == at.output) sum += x[t * view.x_step[1]];
    }
    return sum;
  }
  const Scalar* delta = values.at(leaf.delta) + at.group * view.y_group + at.output * view.y_output;
  const auto [kd, kh, kw] = index_in(view.kernel, at.tap);
  const span_of_taps planes = positions_of(view, 0, kd);
  const span_of_taps rows = positions_of(view, 1, kh);
  const span_of_taps columns = positions_of(view, 2, kw);
  const int x_step = view.stride[2] * view.x_step[2];
  const int first_column = (kw * view.dilation[2] - view.padding[2]) * view.x_step[2];
  for (int od = planes.begin; od < planes.end; ++od) {
    const int x_plane = (od * view.stride[0] - view.padding[0] + kd * view.dilation[0]) * view.x_step[0];
    for (int oh = rows.begin; oh < rows.end; ++oh) {
      const int x_row = (oh * view.stride[1] - view.padding[1] + kh * view.dilation[1]) * view.x_step[1];
      const int x_start = x_plane + x_row + first_column;
      const Scalar* delta_row = delta + od * view.y_step[0] + oh * view.y_step[1];
      for (int ow = columns.begin; ow < columns.end; ++ow) {
        sum = fma(delta_row[ow * view.y_step[2]], x[x_start + ow * x_step], sum);
      }
    }
  }
  return sum;
}
/// Element e of G = sum_t delta_t (x) view_t(x): one chain of fused multiply-adds over the positions, in order, of the
/// block's first use and all others. Norms and sums call this, so they see the same bits.
template <class Scalar>
[[nodiscard]] PERGRAD_HD Scalar gradient_element(const outer_leaf& leaf, const sample_values<Scalar>& values,
                                                 int e) noexcept {
  Scalar sum = add_element(leaf, values, e, Scalar{0});
  for (const outer_leaf* use = &leaf; use->next != 0;) {
    use += use->next;
    sum = add_element(*use, values, e, sum);
  }
  return sum;
}

/// What the one position of a view sees at an element, and the delta that meets it.
template <class Scalar>
struct product_factors {
  Scalar x, delta;
};
template <class Scalar>
[[nodiscard]] PERGRAD_HD product_factors<Scalar> factors_at(const outer_leaf& leaf, const sample_values<Scalar>& values,
                                                            int e) noexcept {
  const affine_view& view = leaf.view;
  const weight_index at = weight_at(view, e);
  const Scalar* x = values.at(leaf.x) + at.group * view.x_group + at.channel * view.x_channel;
  const Scalar delta = values.at(leaf.delta)[at.group * view.y_group + at.output * view.y_output];
  const box_index of_kernel = index_in(view.kernel, at.tap);
  const int tap[axes] = {of_kernel.d, of_kernel.h, of_kernel.w};
  int offset = 0;
  for (int axis = 0; axis < axes; ++axis) {
    const int pixel = tap[axis] * view.dilation[axis] - view.padding[axis];
    if (pixel < 0 || pixel >= view.in[axis]) return {Scalar{0}, delta};
    offset += pixel * view.x_step[axis];
  }
  return {x[offset], delta};
}

/// Offset of position t of a box; `line`: as of an elementwise leaf.
[[nodiscard]] PERGRAD_HD constexpr int offset_of(const int (&box)[axes], const int (&step)[axes], int line,
                                                 int t) noexcept {
  if (line != 0) return t * line;
  const box_index at = index_in(box, t);
  return at.d * step[0] + at.h * step[1] + at.w * step[2];
}
/// sum + element i of one use of a block.
template <class Scalar>
[[nodiscard]] PERGRAD_HD Scalar add_element(const elementwise_leaf& leaf, const sample_values<Scalar>& values, int i,
                                            int part, int parts, Scalar sum) noexcept {
  const Scalar* delta = values.at(leaf.delta) + i * leaf.delta_stride;
  const Scalar* other = leaf.ones != 0 ? delta : values.at(leaf.other) + i * leaf.other_stride;
  const int positions = leaf.out[0] * leaf.out[1] * leaf.out[2];
  int t = part;
  if (leaf.ones != 0 && leaf.delta_line != 0) {  // a bias: several loads are under way before the first is added
    constexpr int together = 8;
    const int step = parts * leaf.delta_line;
    const Scalar* from = delta + t * leaf.delta_line;
    PERGRAD_ROLLED
    for (; t < positions - (together - 1) * parts; t += together * parts, from += together * step) {
      Scalar read[together];
      PERGRAD_UNROLL
      for (int k = 0; k < together; ++k) read[k] = from[k * step];
      PERGRAD_UNROLL
      for (int k = 0; k < together; ++k) sum += read[k];
    }
  }
  if (leaf.ones == 0 && leaf.delta_line != 0 && leaf.other_line != 0) {  // a gain: likewise
    constexpr int together = 8;
    const int step = parts * leaf.delta_line, other_step = parts * leaf.other_line;
    const Scalar* from = delta + t * leaf.delta_line;
    const Scalar* with = other + t * leaf.other_line;
    PERGRAD_ROLLED
    for (; t < positions - (together - 1) * parts;
         t += together * parts, from += together * step, with += together * other_step) {
      Scalar read[together], factor[together];
      PERGRAD_UNROLL
      for (int k = 0; k < together; ++k) {
        read[k] = from[k * step];
        factor[k] = with[k * other_step];
      }
      PERGRAD_UNROLL
      for (int k = 0; k < together; ++k) sum = fma(read[k], factor[k], sum);
    }
  }
  PERGRAD_ROLLED
  for (; t < positions; t += parts) {
    const Scalar value = delta[offset_of(leaf.out, leaf.delta_step, leaf.delta_line, t)];
    sum =
        leaf.ones != 0 ? sum + value : fma(value, other[offset_of(leaf.out, leaf.other_step, leaf.other_line, t)], sum);
  }
  return sum;
}
/// Element i of g = sum_t delta_t (.) u_t over positions `part`, `part + parts`, ... of all uses of the block.
template <class Scalar>
[[nodiscard]] PERGRAD_HD Scalar gradient_element(const elementwise_leaf& leaf, const sample_values<Scalar>& values,
                                                 int i, int part, int parts) noexcept {
  Scalar sum = add_element(leaf, values, i, part, parts, Scalar{0});
  for (const elementwise_leaf* use = &leaf; use->next != 0;) {
    use += use->next;
    sum = add_element(*use, values, i, part, parts, sum);
  }
  return sum;
}

/// The elements of the gradient of a leaf with one use and one position. A loop over them reads nothing of the table.
template <class Scalar>
struct at_one_position {
  PERGRAD_HD at_one_position(const elementwise_leaf& leaf, const sample_values<Scalar>& values) noexcept
      : delta{values.at(leaf.delta)},
        other{leaf.ones != 0 ? nullptr : values.at(leaf.other)},
        delta_stride{leaf.delta_stride},
        other_stride{leaf.other_stride} {}
  [[nodiscard]] PERGRAD_HD Scalar operator()(int i) const noexcept {
    return other == nullptr ? delta[i * delta_stride] : multiply(delta[i * delta_stride], other[i * other_stride]);
  }

  const Scalar* delta;
  const Scalar* other;
  int delta_stride;
  int other_stride;
};

/// Places along all axes in one number, so that a product's main loop asks in three instructions whether one that is
/// the sum of two parts lies inside. A field an axis holds c + half, c the place and half a power of two: its highest
/// bit is set where c is not negative, and that of `last_` minus the field where c is not beyond the last one. The
/// field behind them says whether there is anything at all.
class axis_fields {
 public:
  axis_fields() = default;
  /// Sums from `least` to `most`, of which those from 0 to `size` - 1 are inside.
  constexpr axis_fields(const int (&size)[axes], const int (&least)[axes], const int (&most)[axes]) noexcept {
    int bits = 0;
    const auto add = [&](int of, int from, int to) {
      int half = 1;
      int width = 1;
      for (; half < larger_of(to + 1, larger_of(of, 0) - from); half *= 2) ++width;
      const auto field = [&](int value) { return bits < 32 ? static_cast<std::uint32_t>(value) << bits : 0U; };
      half_ += field(half);
      last_ += field(2 * half + of - 1);
      bits += width;
    };
    for (int axis = 0; axis < axes; ++axis) {
      shift_[axis] = bits < 32 ? bits : 0;
      add(size[axis], least[axis], most[axis]);
    }
    beyond_ = bits < 31 ? 1U << bits : 0U;
    add(1, 0, 1);
    bits_ = bits;
  }
  /// Is there room for all fields?
  [[nodiscard]] constexpr bool fit() const noexcept { return bits_ <= 32; }
  /// The parts of a sum.
  [[nodiscard]] PERGRAD_HD constexpr std::uint32_t first(const int (&at)[axes]) const noexcept {
    return half_ + second(at);
  }
  [[nodiscard]] PERGRAD_HD constexpr std::uint32_t second(const int (&at)[axes]) const noexcept {
    std::uint32_t all = 0;
    for (int axis = 0; axis < axes; ++axis) {
      all += static_cast<std::uint32_t>(at[axis]) << static_cast<unsigned>(shift_[axis]);
    }
    return all;
  }
  /// Added to a part: there is nothing, whatever the other one is.
  [[nodiscard]] PERGRAD_HD constexpr std::uint32_t beyond() const noexcept { return beyond_; }
  [[nodiscard]] PERGRAD_HD constexpr bool inside(std::uint32_t first, std::uint32_t second) const noexcept {
    const std::uint32_t sum = first + second;
    return (~(sum & (last_ - sum)) & half_) == 0;
  }

 private:
  int shift_[axes] = {0, 0, 0};
  int bits_ = 0;
  std::uint32_t half_ = 0;  ///< of all fields: their highest bits
  std::uint32_t last_ = 0;
  std::uint32_t beyond_ = 0;
};

/// A part of an address: an offset, and how far along each axis. A position's and a tap's together are an element of x,
/// those of a pixel and of an output's tap an element of y, if their sums along all axes lie inside.
struct alignas(8) coordinates {
  int offset = 0;
  std::uint32_t at = 0;  ///< of axis_fields
};

/// Addresses of one group of an `affine_view`. Element k = (channel, tap) of view t; an element of y is (output, t).
struct geometry {
  affine_view view;
  divisor taps;
  divisor kernel_height, kernel_width;
  divisor out_height, out_width, positions;
  divisor in_height, in_width, pixels;
  divisor stride[axes];
  divisor width;  ///< of the view
  divisor groups;
  int apart[axes] = {0, 0, 0};  ///< remainders of a stride, which must be equal, in units that no position reaches
  axis_fields x_fields;         ///< of a position and a tap
  axis_fields y_fields;         ///< of a pixel and an output's tap
  int contiguous = 0;           ///< one position whose view is x itself, all of it, in order

  geometry() = default;
  constexpr explicit geometry(const affine_view& of)
      : view{of},
        taps{of.taps()},
        kernel_height{of.kernel[1]},
        kernel_width{of.kernel[2]},
        out_height{of.out[1]},
        out_width{of.out[2]},
        positions{of.positions()},
        in_height{of.in[1]},
        in_width{of.in[2]},
        pixels{of.pixels()},
        stride{divisor{of.stride[0]}, divisor{of.stride[1]}, divisor{of.stride[2]}},
        width{of.view_width()},
        groups{of.groups} {
    int least[2][axes]{};
    int most[2][axes]{};
    for (int axis = 0; axis < axes; ++axis) {
      const int reach = (of.kernel[axis] - 1) * of.dilation[axis];
      const int last_tap = reach / of.stride[axis];
      const int last_pixel = (of.in[axis] - 1 + of.padding[axis]) / of.stride[axis];
      apart[axis] = larger_of(of.out[axis] + last_tap, last_pixel + 1);
      least[0][axis] = -of.padding[axis];
      most[0][axis] = (of.out[axis] - 1) * of.stride[axis] - of.padding[axis] + reach;
      least[1][axis] = -last_tap - (of.stride[axis] - 1) * apart[axis];
      most[1][axis] = last_pixel + 1 + (of.stride[axis] - 1) * apart[axis];  // 1: columns beyond a class's pixels
    }
    x_fields = axis_fields{of.in, least[0], most[0]};
    y_fields = axis_fields{of.out, least[1], most[1]};
    // Of one channel, or of one tap along an axis, all steps are alike.
    bool in_order = of.positions() == 1 && of.channels * of.pixels() == of.view_width() && of.y_output == 1 &&
                    (of.channels == 1 || of.x_channel == of.taps());
    int next = 1;  // from a tap to the next one
    for (int axis = axes; axis-- > 0;) {
      const bool is_inside = of.padding[axis] == 0 && (of.kernel[axis] - 1) * of.dilation[axis] < of.in[axis];
      in_order = in_order && is_inside && (of.kernel[axis] == 1 || of.dilation[axis] * of.x_step[axis] == next);
      next *= of.kernel[axis];
    }
    contiguous = in_order ? 1 : 0;
  }

  /// Is there room for its coordinates?
  [[nodiscard]] static constexpr bool fits(const affine_view& of) noexcept {
    const geometry map{of};
    return map.x_fields.fit() && map.y_fields.fit();
  }

  /// A position of x's views, and element k of a view.
  [[nodiscard]] PERGRAD_HD constexpr coordinates position(int group, int t) const noexcept {
    int at[axes] = {0, 0, 0};
    int offset = group * view.x_group;
    split(t, out_height, out_width, at);
    for (int axis = 0; axis < axes; ++axis) {
      at[axis] = at[axis] * view.stride[axis] - view.padding[axis];
      offset += at[axis] * view.x_step[axis];
    }
    return {offset, x_fields.first(at)};
  }
  [[nodiscard]] PERGRAD_HD constexpr coordinates tap(int k) const noexcept {
    const int number = taps.divide(k);
    int at[axes] = {0, 0, 0};
    int offset = k * view.x_channel;
    split(number, kernel_height, kernel_width, at);
    for (int axis = 0; axis < axes; ++axis) {
      at[axis] *= view.dilation[axis];
      offset += at[axis] * view.x_step[axis];
    }
    return {offset, x_fields.second(at)};
  }
  /// A pixel of x that y's positions see, and an output whose position sees it at a tap.
  [[nodiscard]] PERGRAD_HD constexpr coordinates pixel(int group, int i) const noexcept {
    int at[axes] = {0, 0, 0};
    int offset = group * view.y_group;
    split(i, in_height, in_width, at);
    for (int axis = 0; axis < axes; ++axis) {
      int whole = at[axis] + view.padding[axis];
      const int rest = stride[axis].divide(whole);
      offset += whole * view.y_step[axis];
      at[axis] = whole + rest * apart[axis];
    }
    return {offset, y_fields.first(at)};
  }
  [[nodiscard]] PERGRAD_HD constexpr coordinates seen_by(int output, int tap) const noexcept {
    int at[axes] = {0, 0, 0};
    int offset = output * view.y_output;
    split(tap, kernel_height, kernel_width, at);
    for (int axis = 0; axis < axes; ++axis) {
      int whole = at[axis] * view.dilation[axis];
      const int rest = stride[axis].divide(whole);
      offset -= whole * view.y_step[axis];
      at[axis] = -whole - rest * apart[axis];
    }
    return {offset, y_fields.second(at)};
  }
  /// Is what they are together an element of x, or of y?
  [[nodiscard]] PERGRAD_HD constexpr bool inside_x(const coordinates& a, const coordinates& b) const noexcept {
    return x_fields.inside(a.at, b.at);
  }
  [[nodiscard]] PERGRAD_HD constexpr bool inside_y(const coordinates& a, const coordinates& b) const noexcept {
    return y_fields.inside(a.at, b.at);
  }

  /// Where group `group`'s view t of x has element k; negative: in the padding.
  [[nodiscard]] PERGRAD_HD constexpr int x_offset(int group, int t, int k) const noexcept {
    const coordinates of_position = position(group, t);
    const coordinates of_tap = tap(k);
    return inside_x(of_position, of_tap) ? of_position.offset + of_tap.offset : -1;
  }
  /// Where a position of y lies behind the first one.
  [[nodiscard]] PERGRAD_HD constexpr int y_step(int t) const noexcept {
    int at[axes] = {0, 0, 0};
    split(t, out_height, out_width, at);
    return at[0] * view.y_step[0] + at[1] * view.y_step[1] + at[2] * view.y_step[2];
  }
  /// Where y has group `group`'s output at position t.
  [[nodiscard]] PERGRAD_HD constexpr int y_offset(int group, int output, int t) const noexcept {
    return group * view.y_group + output * view.y_output + y_step(t);
  }
  /// Where x has group `group`'s channel at pixel i.
  [[nodiscard]] PERGRAD_HD constexpr int pixel_offset(int group, int channel, int i) const noexcept {
    int at[axes] = {0, 0, 0};
    split(i, in_height, in_width, at);
    return group * view.x_group + channel * view.x_channel + at[0] * view.x_step[0] + at[1] * view.x_step[1] +
           at[2] * view.x_step[2];
  }

 private:
  PERGRAD_HD static constexpr void split(int i, const divisor& height, const divisor& width, int (&at)[axes]) noexcept {
    at[2] = width.divide(i);
    at[1] = height.divide(i);
    at[0] = i;
  }
};

/// Samples' values: in their workspaces, or, at a negative place, their inputs in the data set.
template <class Scalar>
struct batch_values {
  Scalar* workspace = nullptr;
  std::int64_t stretch = 0;  ///< from one sample's workspace to the next
  const Scalar* inputs = nullptr;
  const std::uint32_t* ids = nullptr;  ///< records of the samples; nullptr: sample b is record b
  std::int64_t input_size = 0;

  /// Sample b's values at a place that is not in its input.
  [[nodiscard]] PERGRAD_HD Scalar* at(int b, int place) const noexcept { return workspace + b * stretch + place; }
  /// Sample b's values at any place.
  [[nodiscard]] PERGRAD_HD const Scalar* read(int b, int place) const noexcept {
    if (place >= 0) return at(b, place);
    const std::int64_t record = ids == nullptr ? b : static_cast<std::int64_t>(ids[b]);
    return inputs + record * input_size + (-1 - place);
  }
};

}  // namespace pergrad::inline v0_1::on_device
