// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/kernels/team.hpp - a block of threads as a team: one sample, an element a thread
//
// The words are those of pergrad/team.hpp. Rows that have nothing to do with each other are for the warps, each of
// which is a team of its own.
#pragma once

#include <cstddef>
#include <cstdint>

#include <pergrad/cuda/device/kernel.hpp>
#include <pergrad/cuda/kernels/random.hpp>
#include <pergrad/shape.hpp>
#include <pergrad/team.hpp>

namespace pergrad::inline v0_1::on_device {

/// One element, as a layer's functions see it.
template <class Scalar>
struct element_at {
  int i;
  [[nodiscard]] PERGRAD_HD Scalar operator()(const Scalar* from) const noexcept { return from[i]; }
  PERGRAD_HD void put(Scalar* to, Scalar value) const noexcept { to[i] = value; }
  [[nodiscard]] PERGRAD_HD static Scalar zero() noexcept { return 0; }
};
/// The same, read as a double to be summed up.
struct wide_element_at {
  int i;
  template <class Scalar>
  [[nodiscard]] PERGRAD_HD double operator()(const Scalar* from) const noexcept {
    return static_cast<double>(from[i]);
  }
};

/// What all teams do that only need threads and barriers.
template <class Block, class Scalar>
struct thread_team {
  using scalar = Scalar;
  static constexpr int threads = Block::threads;
  static constexpr int warps = threads / warp_size;

  const Block& block;
  double (&partial)[static_cast<std::size_t>(warps)];
  Scalar* spare = nullptr;  ///< shared, one a thread; nullptr: none

  template <class Function>
  PERGRAD_HD void map(std::ptrdiff_t count, const Function& f) const {
    each(count, [&](int i) { f(element_at<Scalar>{i}); });
  }
  template <class Function>
  PERGRAD_HD void map(std::ptrdiff_t rows, std::ptrdiff_t count, const Function& f) const {
    const auto width = static_cast<int>(count);
    each(rows * count, [&](int i) { f(static_cast<std::ptrdiff_t>(i / width), element_at<Scalar>{i % width}); });
  }
  template <class Function>
  PERGRAD_HD void each(std::ptrdiff_t count, const Function& f) const {
    const auto end = static_cast<int>(count);
    block.each([&](int t) {
      PERGRAD_ROLLED
      for (int i = t; i < end; i += threads) f(i);
    });
  }
  PERGRAD_HD void fill(std::ptrdiff_t count, Scalar* to, Scalar value) const {
    if (count > 0) each(count, [&](int i) { to[i] = value; });
  }
  PERGRAD_HD void copy(std::ptrdiff_t count, const Scalar* from, Scalar* to) const {
    if (count > 0) each(count, [&](int i) { to[i] = from[i]; });
  }

  template <int Sums, class Function>
  [[nodiscard]] PERGRAD_HD values_of<double, Sums> reduce(std::ptrdiff_t count, const Function& f) const {
    const auto end = static_cast<int>(count);
    typename Block::template local<values_of<double, Sums>> own;
    block.each([&](int t) {
      values_of<double, Sums> sums{};
      PERGRAD_ROLLED
      for (int i = t; i < end; i += threads) {
        const auto terms = f(wide_element_at{i});
        for (int s = 0; s < Sums; ++s) sums[s] += terms[s];
      }
      own[t] = sums;
    });
    return totals_of(own);
  }
  /// Terms are the scalar's; they are added up in double.
  template <class Function>
  [[nodiscard]] PERGRAD_HD Scalar sum(std::ptrdiff_t count, const Function& f) const {
    const auto end = static_cast<int>(count);
    typename Block::template local<double> own;
    block.each([&](int t) {
      double sum = 0;
      PERGRAD_ROLLED
      for (int i = t; i < end; i += threads) sum += static_cast<double>(f(element_at<Scalar>{i}));
      own[t] = sum;
    });
    return static_cast<Scalar>(block.sum(own, partial));
  }
  [[nodiscard]] PERGRAD_HD Scalar largest(std::ptrdiff_t count, const Scalar* from) const {
    const auto end = static_cast<int>(count);
    typename Block::template local<double> own;
    block.each([&](int t) {
      auto most = static_cast<double>(from[0]);
      PERGRAD_ROLLED
      for (int i = t; i < end; i += threads) most = larger_of(most, static_cast<double>(from[i]));
      own[t] = most;
    });
    return static_cast<Scalar>(block.largest(own, partial));
  }
  template <class Function>
  [[nodiscard]] PERGRAD_HD std::ptrdiff_t count(std::ptrdiff_t count, const Function& f) const {
    return static_cast<std::ptrdiff_t>(
        reduce<1>(count, [&](const wide_element_at& at) { return values(f(at.i) ? 1.0 : 0.0); })[0]);
  }

  PERGRAD_HD void multiply(const product_sizes& sizes, const Scalar* left, const matrix_view<Scalar>& right,
                           Scalar* out) const {
    product<false, true>(sizes, left, right, [&](int place, int /*column*/, Scalar sum) { out[place] = sum; });
  }
  PERGRAD_HD void multiply_add(const product_sizes& sizes, const Scalar* left, const matrix_view<Scalar>& right,
                               Scalar* out) const {
    product<true, true>(sizes, left, right, [&](int place, int /*column*/, Scalar sum) { out[place] += sum; });
  }
  PERGRAD_HD void multiply_bias(const product_sizes& sizes, const Scalar* left, const matrix_view<Scalar>& right,
                                Scalar* out, const Scalar* bias) const {
    product<false, false>(sizes, left, right,
                          [&](int place, int column, Scalar sum) { out[place] = sum + bias[column]; });
  }
  /// A copy: each element is read many times, and threads next to each other shall find theirs next to each other.
  [[nodiscard]] PERGRAD_HD matrix_view<Scalar> turned(const matrix_view<Scalar>& from, std::ptrdiff_t rows,
                                                      std::ptrdiff_t columns, Scalar* to, std::ptrdiff_t step) const {
    const auto count = static_cast<int>(rows);
    each(rows * columns, [&](int i) {
      const int row = i % count;
      const int column = i / count;
      to[column * step + row] = from.first[row * from.row + column * from.column];
    });
    return {to, step, 1};
  }

 protected:
  template <int Sums>
  [[nodiscard]] PERGRAD_HD values_of<double, Sums> totals_of(
      const typename Block::template local<values_of<double, Sums>>& own) const {
    values_of<double, Sums> totals{};
    for (int s = 0; s < Sums; ++s) {
      typename Block::template local<double> one;
      block.each([&](int t) { one[t] = own[t][s]; });
      totals[s] = block.sum(one, partial);
    }
    return totals;
  }

 private:
  /// Rows and columns of the result that a thread takes where there are many: for each term of its sums it reads half a
  /// number, not two. Threads next to each other take columns next to each other.
  static constexpr int patch = 4;
  template <class Finish>
  [[gnu::always_inline]] PERGRAD_HD void product_in_patches(const product_sizes& sizes, const Scalar* left,
                                                            const matrix_view<Scalar>& right,
                                                            const Finish& finish) const {
    const auto columns = static_cast<int>(sizes.columns);
    const auto rows = static_cast<int>(sizes.rows.count);
    const auto depth = static_cast<int>(sizes.depth);
    const int across = blocks_for(columns, patch);
    const int down = blocks_for(rows, patch);
    each(sizes.outer.count * down * across, [&](int e) {
      const int column = e % across;
      const int row = e / across % down * patch;
      const int outer = e / across / down;
      const Scalar* from[patch];  // beyond the last row or column: the last one once more
      const Scalar* with[patch];
      Scalar totals[patch][patch];
      PERGRAD_UNROLL
      for (int i = 0; i < patch; ++i) {
        from[i] = left + outer * sizes.outer.left + smaller_of(row + i, rows - 1) * sizes.rows.left;
      }
      PERGRAD_UNROLL
      for (int j = 0; j < patch; ++j) {
        with[j] = right.first + smaller_of(column + j * across, columns - 1) * right.column;
        PERGRAD_UNROLL
        for (int i = 0; i < patch; ++i) totals[i][j] = 0;
      }
      PERGRAD_ROLLED
      for (int d = 0; d < depth; ++d) {
        Scalar terms[patch];
        PERGRAD_UNROLL
        for (int j = 0; j < patch; ++j) terms[j] = with[j][d * right.row];
        PERGRAD_UNROLL
        for (int i = 0; i < patch; ++i) {
          const Scalar factor = from[i][d * sizes.left];
          PERGRAD_UNROLL
          for (int j = 0; j < patch; ++j) totals[i][j] = fma(factor, terms[j], totals[i][j]);
        }
      }
      PERGRAD_UNROLL
      for (int i = 0; i < patch; ++i) {
        PERGRAD_UNROLL
        for (int j = 0; j < patch; ++j) {
          const int at = column + j * across;
          if (row + i < rows && at < columns) {
            finish(static_cast<int>(outer * sizes.outer.out + (row + i) * sizes.rows.out) + at, at, totals[i][j]);
          }
        }
      }
    });
  }
  /// One row of few columns, as at a position of a recurrent layer: threads share the depth of a column.
  template <class Finish>
  PERGRAD_HD void product_in_shares(const product_sizes& sizes, const Scalar* left, const matrix_view<Scalar>& right,
                                    const Finish& finish) const {
    const auto columns = static_cast<int>(sizes.columns);
    const auto depth = static_cast<int>(sizes.depth);
    const int shares = threads / columns;
    each(shares * columns, [&](int e) {
      const int column = e % columns;
      const int share = e / columns;
      const Scalar* with = right.first + column * right.column;
      Scalar total = 0;
      for (int d = share * depth / shares; d < (share + 1) * depth / shares; ++d) {
        total = fma(left[d * sizes.left], with[d * right.row], total);
      }
      spare[e] = total;
    });
    each(columns, [&](int column) {
      Scalar total = spare[column];
      PERGRAD_ROLLED
      for (int share = 1; share < shares; ++share) total += spare[share * columns + column];
      finish(column, column, total);
    });
  }
  /// `InLine`: reads terms that lie in line several at a time; where products are many, that would be too much code. So
  /// would `InPatches` everywhere: with a bias are projections, which products of the batch take where samples are
  /// large.
  template <bool InLine, bool InPatches, class Finish>
  PERGRAD_HD void product(const product_sizes& sizes, const Scalar* left, const matrix_view<Scalar>& right,
                          const Finish& finish) const {
    const auto columns = static_cast<int>(sizes.columns);
    const auto rows = static_cast<int>(sizes.rows.count);
    const auto depth = static_cast<int>(sizes.depth);
    if constexpr (InPatches && threads <= 128) {  // larger blocks have too few registers
      if (rows >= patch && columns >= patch && rows * columns >= patch * threads) {
        return product_in_patches(sizes, left, right, finish);
      }
    }
    if constexpr (InPatches) {
      constexpr int deep = 64;
      if (spare != nullptr && depth >= deep && sizes.outer.count * rows == 1 && 2 * columns <= threads) {
        return product_in_shares(sizes, left, right, finish);
      }
    }
    constexpr int together = 4;  // elements that are read at once where they lie in line
    const auto is_in_line = [](const Scalar* at) {
      return reinterpret_cast<std::uintptr_t>(at) % (together * sizeof(Scalar)) == 0;
    };
    const auto read = [](const Scalar* at) {
      element_group<Scalar, together> group;
      __builtin_memcpy(&group, __builtin_assume_aligned(at, sizeof group), sizeof group);
      return group;
    };
    each(sizes.outer.count * sizes.rows.count * sizes.columns, [&](int e) {
      const int column = e % columns;
      const int row = e / columns % rows;
      const int outer = e / columns / rows;
      const Scalar* from = left + outer * sizes.outer.left + row * sizes.rows.left;
      const Scalar* with = right.first + column * right.column;
      Scalar total = 0;
      int d = 0;
      if (InLine && right.row == 1 && is_in_line(with)) {
        const auto add = [&](const auto& factors, const auto& terms) {
          PERGRAD_UNROLL
          for (int i = 0; i < together; ++i) total = fma(factors.v[i], terms.v[i], total);
        };
        if (sizes.left == 1 && is_in_line(from)) {
          for (; d + together <= depth; d += together) add(read(from + d), read(with + d));
        } else {
          for (; d + together <= depth; d += together) {
            element_group<Scalar, together> factors;
            PERGRAD_UNROLL
            for (int i = 0; i < together; ++i) factors.v[i] = from[(d + i) * sizes.left];
            add(factors, read(with + d));
          }
        }
      }
      const auto add_one = [&](int at) { total = fma(from[at * sizes.left], with[at * right.row], total); };
      // NOLINTNEXTLINE(bugprone-branch-clone): on a device they differ
      if constexpr (threads <= 128) {
        for (; d < depth; ++d) add_one(d);
      } else {  // too few registers
        PERGRAD_ROLLED_LATE
        for (; d < depth; ++d) add_one(d);
      }
      finish(static_cast<int>(outer * sizes.outer.out + row * sizes.rows.out) + column, column, total);
    });
  }
};

/// Of a channel and one of its pixels, in PyTorch's order: dense and stored images are the same.
template <class Value>
struct channel_at {
  std::ptrdiff_t channel;
  template <class Function>
  [[nodiscard]] PERGRAD_HD Value per_channel(const Function& f) const noexcept {
    return static_cast<Value>(f(channel));
  }
};
template <class Value>
struct channel_pixel_at {
  int i;
  template <class Scalar>
  [[nodiscard]] PERGRAD_HD Value first(const Scalar* image) const noexcept {
    return static_cast<Value>(image[i]);
  }
  template <class Scalar>
  [[nodiscard]] PERGRAD_HD Value second(const Scalar* image) const noexcept {
    return static_cast<Value>(image[i]);
  }
  template <class Scalar>
  [[nodiscard]] PERGRAD_HD Value dense(const Scalar* image) const noexcept {
    return static_cast<Value>(image[i]);
  }
  template <class Scalar>
  PERGRAD_HD void put_second(Scalar* image, Value value) const noexcept {
    image[i] = value;
  }
  template <class Scalar>
  PERGRAD_HD void put_dense(Scalar* image, Value value) const noexcept {
    image[i] = value;
  }
};
/// One value of the group at hand.
template <class Value>
struct of_group {
  Value of;
  [[nodiscard]] PERGRAD_HD const Value& operator()(std::ptrdiff_t /*channel*/) const noexcept { return of; }
};
/// Images have one layout here.
struct any_layout {
  static constexpr std::ptrdiff_t start = 0;
};

/// One group of channels of a sample, by a team of threads.
template <class Team>
struct channel_group {
  using scalar = typename Team::scalar;
  const Team& team;
  int group;
  int group_size;  ///< channels
  int pixels;

  template <class Function>
  [[nodiscard]] PERGRAD_HD auto each(const Function& f) const {
    return of_group<decltype(f(std::ptrdiff_t{}))>{f(static_cast<std::ptrdiff_t>(group))};
  }
  template <class Function>
  PERGRAD_HD void keep(scalar* to, const Function& f) const {
    team.fill(1, to + group, f(static_cast<std::ptrdiff_t>(group) * group_size));
  }
  template <int Sums, class Function, class Result>
  [[nodiscard]] PERGRAD_HD auto reduce(any_layout /*a*/, any_layout /*b*/, const values_of<scalar*, Sums>& to,
                                       const Function& f, const Result& g) const {
    of_group<decltype(g(std::ptrdiff_t{}, values_of<double, Sums>{}))> total{};
    for (int c = group * group_size; c < (group + 1) * group_size; ++c) {
      const auto sums = team.template reduce<Sums>(pixels, [&](const wide_element_at& at) {
        return f(channel_at<double>{c})(channel_pixel_at<double>{c * pixels + at.i});
      });
      for (int s = 0; s < Sums; ++s) {
        if (to[s] != nullptr) team.fill(1, to[s] + c, static_cast<scalar>(sums[s]));
      }
      const auto share = g(static_cast<std::ptrdiff_t>(c), sums);
      for (int s = 0; s < static_cast<int>(sizeof share / sizeof(double)); ++s) total.of[s] += share[s];
    }
    return total;
  }
  template <class Function>
  PERGRAD_HD void map(any_layout /*a*/, any_layout /*b*/, const Function& f) const {
    const int first = group * group_size * pixels;
    team.each(group_size * pixels,
              [&](int i) { f(channel_at<scalar>{(first + i) / pixels})(channel_pixel_at<scalar>{first + i}); });
  }
};

/// The team of one sample and one layer.
template <class Block, class Scalar>
struct block_team : thread_team<Block, Scalar> {
  using base = thread_team<Block, Scalar>;
  using base::block;

  static constexpr std::ptrdiff_t samples = 1;
  shape in{};
  shape in2{};
  shape out{};
  sample_arrays<const Scalar> x{};
  sample_arrays<const Scalar> x2{};
  sample_arrays<Scalar> y{};
  sample_arrays<const Scalar> dy{};
  sample_arrays<Scalar> dx{};
  sample_arrays<Scalar> dx2{};
  sample_arrays<Scalar> saved{};
  sample_arrays<Scalar> scratch{};
  bool wants_factors = true;
  bool wants_dx = false;
  bool wants_dx2 = false;
  any_layout x_layout{};
  any_layout y_layout{};
  any_layout dx_layout{};
  any_layout dy_layout{};

  std::ptrdiff_t part = 0;  ///< of the layer's `parts`
  std::ptrdiff_t parts = 1;
  bool projected = false;
  const Scalar* parameters = nullptr;
  const Scalar* held = nullptr;  ///< in shared memory: the matrix at `held_at` among the layer's parameters
  std::ptrdiff_t held_at = 0;
  std::ptrdiff_t held_step = 0;
  [[nodiscard]] PERGRAD_HD matrix_view<Scalar> matrix(std::ptrdiff_t offset, std::ptrdiff_t /*rows*/,
                                                      std::ptrdiff_t columns) const noexcept {
    if (held != nullptr && offset == held_at) return {held, held_step, 1};
    return {parameters + offset, columns, 1};
  }
  [[nodiscard]] PERGRAD_HD matrix_view<Scalar> transposed(std::size_t /*k*/, std::ptrdiff_t offset, std::ptrdiff_t rows,
                                                          std::ptrdiff_t columns) const noexcept {
    const matrix_view<Scalar> from = matrix(offset, rows, columns);
    return {from.first, from.column, from.row};
  }

  std::uint32_t own_lengths[2] = {};  ///< positions of the inputs that are there
  bool varies = false;
  bool varies2 = false;
  [[nodiscard]] PERGRAD_HD std::ptrdiff_t length(std::ptrdiff_t /*sample*/) const noexcept { return own_lengths[0]; }
  [[nodiscard]] PERGRAD_HD std::ptrdiff_t length2(std::ptrdiff_t /*sample*/) const noexcept { return own_lengths[1]; }
  [[nodiscard]] PERGRAD_HD bool lengths_vary() const noexcept { return varies; }
  [[nodiscard]] PERGRAD_HD bool lengths2_vary() const noexcept { return varies2; }
  [[nodiscard]] PERGRAD_HD const std::int32_t* ids(std::ptrdiff_t /*sample*/) const noexcept {
    return static_cast<const std::int32_t*>(static_cast<const void*>(x.first));
  }

  layer_bits bits{};
  std::uint32_t layer_number = 0;
  [[nodiscard]] PERGRAD_HD bool is_random() const noexcept { return bits.is_random(); }
  template <class Function>
  [[gnu::always_inline]] PERGRAD_HD void draw(std::ptrdiff_t /*sample*/, std::ptrdiff_t first, std::ptrdiff_t count,
                                              const Function& f) const {
    const random_stream stream = bits.of_layer(layer_number);
    const auto end = static_cast<int>(count);
    const auto first_block = static_cast<std::uint32_t>(first / 16);
    base::each((count + 15) / 16, [&](int group) {
      std::uint32_t words[16];
      make_random_block(stream, first_block + static_cast<std::uint32_t>(group), words);
      PERGRAD_UNROLL  // words are registers then
          for (int i = 0; i < 16; ++i) {
        if (group * 16 + i < end) f(group * 16 + i, words[i]);
      }
    });
  }

  template <class Function>
  PERGRAD_HD void for_each_row(std::ptrdiff_t rows, const Function& f) const {
    const auto end = static_cast<int>(rows);
    block.warps([&](const auto& warp) {
      using warp_type = std::remove_cvref_t<decltype(warp)>;
      double none[1];
      const thread_team<warp_type, Scalar> team{warp, none};
      for (int r = warp.index(); r < end; r += base::warps) f(static_cast<std::ptrdiff_t>(r), team);
    });
  }
  template <class Function>
  PERGRAD_HD void for_each_group(std::ptrdiff_t channels, std::ptrdiff_t group_size, const Function& f) const {
    const auto size = static_cast<int>(group_size);
    const auto pixels = static_cast<int>(static_cast<std::ptrdiff_t>(in.size()) / channels);
    const part_range own = range_of_part(*this, channels / group_size);
    for (int i = 0; i < static_cast<int>(own.count); ++i) {
      f(channel_group<base>{*this, static_cast<int>(own.first) + i, size, pixels});
    }
  }
};

}  // namespace pergrad::inline v0_1::on_device
