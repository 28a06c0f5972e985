// SPDX-License-Identifier: Apache-2.0
// pergrad/team.hpp - the words in which a tiled layer is written, once for every executor
//
// A *team* is whoever computes a layer on some samples: a thread of the host with its tile, a block of a device with
// its sample. A layer's forward and backward are templates over it. All its verbs are collective: outside of the
// functions that a layer hands to them, code must be the same for everybody, and may write to no array. Behind a verb,
// all that it has written may be read.
//
//   samples, in, in2, out      samples 0 .. samples - 1, and shapes
//   x(b), x2(b), y(b)          arrays of sample b, in PyTorch's order; x.step etc. is the distance to the next sample's
//   dy(b), dx(b), dx2(b)       backward: dx and dx2 are to be written whole, if wants_dx, wants_dx2
//   saved(b), scratch(b)       saved lives from forward to the factors, scratch for one call
//   length(b), length2(b)      positions of an input that are there; lengths_vary()
//   ids(b)                     of an input of integer ids
//   is_random()                are there random bits? In training only.
//   part, parts                of a layer with `part_count(in)` parts that know nothing of each other, such as heads of
//                              attention: this team does part `part` of `parts`; all where it has no `part` or `parts`
//                              is 1 (`range_of_part` below says which things that are). Parts share `scratch`, which
//                              has room for those behind the first one at its end, `part_scratch_count(in)` each
//   projected                  the executor forms the layer's `projections` for the whole batch (gradients/factors.hpp)
//   parameters                 all of the layer, in PyTorch's order
//   matrix(offset, rows, columns), transposed(k, offset, rows, columns)
//                              one of the layer's matrices and its transpose, where k counts the layer's `matrices`
//
//   map(n, f)                  f(at) for elements 0 .. n - 1, some of them at once: at(p) is what array p has
//                              there, at.put(q, v) writes it; v is made of such values, constants, functions of math::
//   map(rows, n, f)            f(r, at) the same, for every row
//   each(n, f)                 f(i) for elements one by one: gathers and permutations
//   fill(n, q, value), copy(n, p, q)
//   reduce<K>(n, f)            K sums over elements, in double and in a fixed order; f(at) returns `values{a, b, ...}`
//   sum(n, f)                  one sum, as precise as the scalar; f(at) may write, too
//   largest(n, p)              the largest of n >= 1 elements
//   count(n, f)                of how many elements f(i) is true
//   for_each_row(rows, f)      f(r, row): rows that have nothing to do with each other; `row` is a team for these verbs
//   for_each_group(channels, group_size, f)
//                              f(groups) for groups of an image's channels, of a layer in parts for those of this team,
//                              for layers with `stored_order`, whose images lie as the executor likes: x_layout etc.
//                              say how. For pixels of two of them, and of a dense one that only the layer reads:
//     groups.each(f), keep(to, f)  one f(group) a group; to[group] = f(first channel)
//     groups.reduce<K>(a, b, to, f, g)
//                                  sums over a group's channels and pixels. f(channels) gives a function of a pixel
//                                  `at` that gives `values`, channels.per_channel(f) is a value of each channel,
//                                  at.first(p), at.second(q), at.dense(r) those of the pixel. g(channel, sums) is what
//                                  a channel's sums over pixels add to its group's; to[k] is null, or where sum k of
//                                  each channel is kept
//     groups.map(a, b, f)          the same without sums; at.put_second(q, v), at.put_dense(r, v)
//                              what `each` and `reduce` return is a function of the channel
//   multiply(p, left, right, out), multiply_add(..), multiply_bias(.., bias)
//                              a product of matrices, `p` says of which sizes: stored, added, or stored with a bias
//   turned(from, rows, columns, to, step)
//                              the transpose of a matrix; an executor may put it to `to`, `step` a row
//   draw(b, first, n, f)       f(i, bits): 32 random bits for each of n elements of sample b's, `first` (a multiple of
//                              16) being the number of the first one
//
// A layer that says `forgets_values` reads neither x, x2 nor y in its backward, so that they need not be kept for it;
// an executor may have something else there by then.
//
// Text is generated position after position (host/decode). A layer that says `by_position` makes position t of its
// output of position t of its inputs alone, whichever t is: then `forward` may be called for any positions as if there
// were no others. One that looks at positions in front has `forward_behind(team)`, and `kept_count(in)`,
// `scratch_count_behind(in)` if it needs memory. Such a team has one sample and, besides `forward`'s,
//   whole                      the input's shape with all positions; `in` has `in.e0` new ones
//   first                      how many stand in front of them
//   kept                       `kept_count(whole)` numbers, whatever the calls for those in front have left there
#pragma once

#include <cstddef>

#include <pergrad/detail/host_device.hpp>

namespace pergrad::inline v0_1 {

/// A few values of one type.
template <class Value, int Count>
struct values_of {
  Value of[static_cast<std::size_t>(Count)];
  [[nodiscard]] PERGRAD_HD constexpr Value& operator[](int i) noexcept { return of[i]; }
  [[nodiscard]] PERGRAD_HD constexpr const Value& operator[](int i) const noexcept { return of[i]; }
};
/// `values(a, b, ...)`: what a function hands to a team's `reduce`.
template <class Value, class... More>
[[nodiscard]] PERGRAD_HD constexpr values_of<Value, 1 + sizeof...(More)> values(Value first, More... more) noexcept {
  return {{first, more...}};
}

/// One array a sample, `step` elements from one sample to the next.
template <class Value>
struct sample_arrays {
  Value* first = nullptr;
  std::ptrdiff_t step = 0;
  [[nodiscard]] PERGRAD_HD constexpr Value* operator()(std::ptrdiff_t sample) const noexcept {
    return first + sample * step;
  }
};

/// A matrix in memory: element (r, c) lies `r * row + c * column` behind the first one.
template <class Scalar>
struct matrix_view {
  const Scalar* first = nullptr;
  std::ptrdiff_t row = 0;
  std::ptrdiff_t column = 1;
  /// The part of it from row `r` and column `c` on.
  [[nodiscard]] PERGRAD_HD constexpr matrix_view from(std::ptrdiff_t r, std::ptrdiff_t c) const noexcept {
    return {first + r * row + c * column, row, column};
  }
};

/// Rows of a product: how many, and how far they lie apart in its left operand and in its result.
struct row_loop {
  std::ptrdiff_t count = 1;
  std::ptrdiff_t left = 0;
  std::ptrdiff_t out = 0;
};
/// `out[r][c] = sum over d of left[r][d] right[d][c]`, for all rows of `rows` in each round of `outer`. Columns of the
/// result lie side by side.
struct product_sizes {
  row_loop outer{};
  row_loop rows{};
  std::ptrdiff_t depth = 0;
  std::ptrdiff_t left = 1;  ///< from one term of the left operand to the next
  std::ptrdiff_t columns = 0;
};

/// Some of the things that a layer does one by one.
struct part_range {
  std::ptrdiff_t first;
  std::ptrdiff_t count;
};
/// Parts of a layer whose `count` things know nothing of each other: a few thousand of all `elements` are one.
[[nodiscard]] PERGRAD_HD constexpr std::size_t count_parts(std::size_t count, std::size_t elements) noexcept {
  const std::size_t parts = (elements + 4095) / 4096;
  return parts < count ? parts : count;
}
/// The same of elements.
[[nodiscard]] PERGRAD_HD constexpr std::size_t count_parts(std::size_t elements) noexcept {
  return count_parts(elements, elements);
}
/// Those of `count` that belong to a team's part of the layer.
template <class Team>
[[nodiscard]] PERGRAD_HD constexpr part_range range_of_part(const Team& team, std::ptrdiff_t count) noexcept {
  if constexpr (requires { team.part; }) {
    const std::ptrdiff_t first = count * team.part / team.parts;
    return {first, count * (team.part + 1) / team.parts - first};
  } else {
    return {0, count};
  }
}

}  // namespace pergrad::inline v0_1
