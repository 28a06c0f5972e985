// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/kernels/pointwise.hpp - forward and backward of nodes whose elements are independent of each other:
// activations, pools (from their table of windows), sums of branches, reshapes
//
// An element is one thread's, so no bit depends on how many warps share a sample.
#pragma once

#include <cstdint>

#include <pergrad/concepts.hpp>
#include <pergrad/cuda/device/kernel.hpp>
#include <pergrad/cuda/kernels/functions.hpp>
#include <pergrad/cuda/kernels/sample_values.hpp>
#include <pergrad/cuda/kernels/tables.hpp>
#include <pergrad/team.hpp>

namespace pergrad::inline v0_1::on_device {

/// Inputs of a pool, as they lie there, or those that a node before it makes of what lies there.
template <class Scalar>
struct stored_inputs {
  static constexpr bool are_computed = false;
  const Scalar* at;
  [[nodiscard]] PERGRAD_HD Scalar operator()(int i) const noexcept { return at[i]; }
};
template <class Scalar, class Function>
struct computed_inputs {
  static constexpr bool are_computed = true;
  const Scalar* at;
  stored_format format;
  [[nodiscard]] PERGRAD_HD Scalar operator()(int i) const { return stored_as(format, Function::value(at[i])); }
  [[nodiscard]] PERGRAD_HD Scalar derivative(int i) const { return Function::derivative(at[i], (*this)(i)); }
};

/// A block or a warp, or one of several that share a sample, at work on such nodes.
template <class Block, class Scalar>
struct pointwise_worker {
  const Block& block;
  sample_values<Scalar> values;
  const Scalar* divisors;  ///< scalars of the network's tables
  int stretch = 0;         ///< its number among those that share the sample
  int stretches = 1;       ///< how many they are

  /// `Joins`: whether a pool may compute the node before it as well.
  template <class Functions, bool Joins = false>
  PERGRAD_HD void forward(const op_row& row, const joined_node& joined = {}) const {
    const Scalar* x = values.at(row.in);
    Scalar* y = values.to(row.out);
    switch (row.kind) {
      case node_kind::reshape:
        return turn(x, static_cast<int>(row.in_shape.e0), row.out_size, y, false);
      case node_kind::branch_sum: {
        const Scalar* second = values.at(row.in2);
        return map(row.out_size, y, [&](int i) { return x[i] + second[i]; });
      }
      default:
        return Functions::visit(row.function, [&]<class Function>() {
          if constexpr (is_scalar_function<Function>) {
            map(row.out_size, y, [&](int i) { return device_code_of<Function>::value(x[i]); });
          } else if constexpr (is_window_rule<Function>) {
            with_inputs<Functions, Joins>(x, joined,
                                          [&](const auto& inputs) { pool_forward<Function>(row, inputs, y); });
          }
        });
    }
  }
  /// `format`: of the gradient between a pool and the node that it computes as well.
  template <class Functions, bool Joins = false>
  PERGRAD_HD void backward(const op_row& row, const joined_node& joined = {}, stored_format format = {}) const {
    const Scalar* dy = values.at(row.dy);
    Scalar* dx = values.to(row.dx);
    if (row.kind == node_kind::branch_sum) {
      if (row.input_gradient != 0) add(dy, row.out_size, dx, row.accumulate != 0);
      if (row.input2_gradient != 0) add(dy, row.out_size, values.to(row.dx2), row.accumulate2 != 0);
      return;
    }
    if (row.input_gradient == 0) return;
    if (row.kind == node_kind::reshape) {
      return turn(dy, static_cast<int>(row.in_shape.e1), row.out_size, dx, row.accumulate != 0);
    }
    const Scalar* x = values.at(row.in);
    const Scalar* y = values.at(row.out);
    Functions::visit(row.function, [&]<class Function>() {
      if constexpr (is_scalar_function<Function>) {
        map(row.out_size, dx, [&](int i) {
          const Scalar part = dy[i] * device_code_of<Function>::derivative(x[i], y[i]);
          return row.accumulate != 0 ? dx[i] + part : part;
        });
      } else if constexpr (is_window_rule<Function>) {
        with_inputs<Functions, Joins>(x, joined, [&]<class Inputs>(const Inputs& inputs) {
          if constexpr (Inputs::are_computed) {
            Scalar* const to = values.to(joined.dx);
            pool_backward<Function>(row, inputs, y, dy, nullptr, [&](int i, Scalar sum) {
              const Scalar part = stored_as(format, sum) * inputs.derivative(i);
              to[i] = joined.accumulate != 0 ? to[i] + part : part;
            });
          } else {
            pool_backward<Function>(row, inputs, y, dy, row.accumulate != 0 ? dx : nullptr,
                                    [&](int i, Scalar sum) { dx[i] = sum; });
          }
        });
      }
    });
  }
  /// Zeros in the place of a node's results behind the sample's length, or of their gradients; among those of `own`.
  PERGRAD_HD void trim(const op_row& row, int place) const { trim(row, place, {0, row.out_size}); }
  PERGRAD_HD void trim(const op_row& row, int place, part_range own) const {
    if (row.out_lengths < 0) return;
    const int length = values.positions(row.out_lengths, 0);
    Scalar* at = values.to(place);
    const bool outermost = (row.out_shape.lengths & 3U) == 1;  // the axis of positions
    const int all = static_cast<int>(outermost ? row.out_shape.e0 : row.out_shape.e1);
    const int inner = outermost ? row.out_size / all : 1;
    for_each(static_cast<int>(own.count), [&](int of_part) {
      const int i = static_cast<int>(own.first) + of_part;
      if (i / inner % all >= length) at[i] = 0;
    });
  }
  /// Stores what lies at a place in another format.
  PERGRAD_HD void round(stored_format format, int place, int count) const {
    Scalar* at = values.to(place);
    for_each(count, [&](int i) { at[i] = stored_as(format, at[i]); });
  }

 private:
  template <class Function>
  PERGRAD_HD void for_each(int count, Function&& f) const {
    block.each([&](int t) {
      for (int i = stretch * Block::threads + t; i < count; i += stretches * Block::threads) f(i);
    });
  }
  /// to[i] = f(i), four at a time, so that their loads are under way together: no store may come before.
  template <class Function>
  PERGRAD_HD void map(int count, Scalar* to, Function&& f) const {
    constexpr int together = 4;
    const int apart = stretches * Block::threads;
    block.each([&](int t) {
      for (int first = stretch * Block::threads + t; first < count; first += together * apart) {
        Scalar results[together];
        PERGRAD_UNROLL
        for (int k = 0; k < together; ++k) results[k] = first + k * apart < count ? f(first + k * apart) : Scalar{0};
        PERGRAD_UNROLL
        for (int k = 0; k < together; ++k) {
          if (first + k * apart < count) to[first + k * apart] = results[k];
        }
      }
    });
  }
  /// `onto`: to what is there; else these are all.
  PERGRAD_HD void add(const Scalar* from, int count, Scalar* to, bool onto) const {
    map(count, to, [&](int i) { return onto ? to[i] + from[i] : from[i]; });
  }
  /// A matrix of `rows` rows turned into its transpose. `onto`: added to what is there.
  PERGRAD_HD void turn(const Scalar* from, int rows, int count, Scalar* to, bool onto) const {
    const int columns = count / rows;
    for_each(count, [&](int i) {
      const Scalar value = from[i % rows * columns + i / rows];
      to[i] = onto ? to[i] + value : value;
    });
  }

  template <class Functions, bool Joins, class Function>
  PERGRAD_HD void with_inputs(const Scalar* x, [[maybe_unused]] const joined_node& joined, const Function& f) const {
    if constexpr (Joins) {
      if (joined.function >= 0) {
        const Scalar* const before = values.at(joined.x);
        return Functions::visit(joined.function, [&]<class Joined>() {
          if constexpr (is_scalar_function<Joined>) {
            f(computed_inputs<Scalar, device_code_of<Joined>>{before, joined.format});
          }
        });
      }
    }
    f(stored_inputs<Scalar>{x});
  }
  template <class Rule, class Inputs>
  PERGRAD_HD void pool_forward(const op_row& row, const Inputs& inputs, Scalar* y) const {
    const window_axis(&windows)[axes] = row.windows;
    const int in_pixels = windows[0].in * windows[1].in * windows[2].in;
    for_each(row.out_size, [&](int o) {
      int channel = o;
      const int c = windows[2].of_out.divide(channel);
      const int r = windows[1].of_out.divide(channel);
      const int d = windows[0].of_out.divide(channel);
      const int from = channel * in_pixels;
      const window_box box = box_of(row, d, r, c);
      Scalar value = Rule::template start<Scalar>();
      int chosen = first_input(row, box);
      for_each_input(row, box, [&](int input) {
        const Scalar next = Rule::combine(value, inputs(from + input));
        if (remembers_inputs<Rule> && value == value && !(next == value)) chosen = input;  // of NaN the first
        value = next;
        return true;
      });
      y[o] = Rule::finish(value, box.divisor);
      if (!remembers_inputs<Rule> || row.saved_size == 0) return;
      values.integers_to(row.saved)[o] = chosen;
    });
  }
  /// Every input asks the windows that see it, in order, for its share: put(input, sum of them), onto what is at
  /// `there` if that is not null.
  template <class Rule, class Inputs, class Put>
  PERGRAD_HD void pool_backward(const op_row& row, const Inputs& inputs, const Scalar* y, const Scalar* dy,
                                const Scalar* there, const Put& put) const {
    const int* table = values.integers;
    const window_axis(&windows)[axes] = row.windows;
    const int in_pixels = windows[0].in * windows[1].in * windows[2].in;
    const int out_pixels = windows[0].out * windows[1].out * windows[2].out;
    for_each(row.in_size, [&](int i) {
      int channel = i;
      const int pw = windows[2].of_in.divide(channel);
      const int ph = windows[1].of_in.divide(channel);
      const int pd = windows[0].of_in.divide(channel);
      const int pixel = i - channel * in_pixels;
      const int from = channel * in_pixels;
      Scalar sum = there != nullptr ? there[i] : Scalar{0};
      for (int d = table[windows[0].seen_first + pd]; d < table[windows[0].seen_last + pd]; ++d) {
        for (int r = table[windows[1].seen_first + ph]; r < table[windows[1].seen_last + ph]; ++r) {
          PERGRAD_ROLLED
          for (int c = table[windows[2].seen_first + pw]; c < table[windows[2].seen_last + pw]; ++c) {
            const int o = channel * out_pixels + (d * windows[1].out + r) * windows[2].out + c;
            if constexpr (remembers_inputs<Rule>) {
              if (values.integers_at(row.saved)[o] == pixel) sum += dy[o];
              continue;
            }
            Scalar remaining = dy[o];
            if constexpr (std::is_same_v<Rule, detail::mean_of_window>) {  // to all alike
              sum += Rule::share(inputs(from + pixel), y[o], remaining, divisor_of(row, d, r, c));
              continue;
            }
            const window_box box = box_of(row, d, r, c);
            Scalar share = 0;
            for_each_input(row, box, [&](int input) {
              const Scalar part = Rule::share(inputs(from + input), y[o], remaining, box.divisor);
              if (input == pixel) share = part;
              return input != pixel;
            });
            sum += share;
          }
        }
      }
      put(i, sum);
    });
  }
  /// What a window of a pool covers.
  struct window_box {
    span_of_taps planes, rows, columns;
    Scalar divisor;
  };
  [[nodiscard]] PERGRAD_HD window_box box_of(const op_row& row, int d, int i, int j) const noexcept {
    const window_axis(&windows)[axes] = row.windows;
    const int* table = values.integers;
    return {{table[windows[0].first + d], table[windows[0].last + d]},
            {table[windows[1].first + i], table[windows[1].last + i]},
            {table[windows[2].first + j], table[windows[2].last + j]},
            divisor_of(row, d, i, j)};
  }
  [[nodiscard]] PERGRAD_HD Scalar divisor_of(const op_row& row, int d, int i, int j) const noexcept {
    return divisors[row.divisors + (d * row.windows[1].out + i) * row.windows[2].out + j];
  }
  /// Offsets in the channel.
  [[nodiscard]] PERGRAD_HD static int input_at(const op_row& row, int d, int i, int j) noexcept {
    return (d * row.windows[1].in + i) * row.windows[2].in + j;
  }
  [[nodiscard]] PERGRAD_HD static int first_input(const op_row& row, const window_box& box) noexcept {
    return input_at(row, box.planes.begin, box.rows.begin, box.columns.begin);
  }
  /// Calls f(offset in the channel) for the inputs of a window, in order, until it says false.
  template <class Function>
  PERGRAD_HD static void for_each_input(const op_row& row, const window_box& box, Function&& f) {
    for (int d = box.planes.begin; d < box.planes.end; ++d) {
      for (int i = box.rows.begin; i < box.rows.end; ++i) {
        PERGRAD_ROLLED
        for (int j = box.columns.begin; j < box.columns.end; ++j) {
          if (!f(input_at(row, d, i, j))) return;
        }
      }
    }
  }
};

/// What a launch of node_kernel is told.
template <class Scalar, class Target>
struct node_work {
  const step_state* state = nullptr;
  batch_view<Scalar, Target> samples;
  const Scalar* divisors = nullptr;  ///< scalars of the network's tables
  op_row row;                        ///< by value: what a kernel's arguments say no store can change
  joined_node joined{};              ///< of a pool: the node before it
  int backward = 0;
  stored_format format{};  ///< as of sample_work
  int stretches = 1;
  int most_samples = 0;
};

/// One node for all samples, of which each has `stretches` warps; blocks() of them.
template <class Scalar, class Target, class Functions>
struct node_kernel : node_work<Scalar, Target> {
  static constexpr int threads = 256;
  struct shared_type {};
  using work_type = node_work<Scalar, Target>;
  using work_type::row, work_type::joined, work_type::format, work_type::stretches;

  [[nodiscard]] int blocks() const noexcept {
    return blocks_for(std::int64_t{this->most_samples} * stretches, threads / warp_size);
  }

  template <class Block>
  PERGRAD_HD void operator()(const Block& block) const {
    block.warps([&](const auto& warp) { run(warp, block.index() * (threads / warp_size) + warp.index()); });
  }

 private:
  template <class Warp>
  PERGRAD_HD void run(const Warp& warp, int number) const {
    const int sample = number / stretches;
    if (static_cast<std::uint32_t>(sample) >= this->state->count) return;
    const pointwise_worker<Warp, Scalar> worker{warp, this->samples.values(sample), this->divisors, number % stretches,
                                                stretches};
    if (this->backward == 0) {
      worker.template forward<Functions, true>(row, joined);
      worker.trim(row, row.out);
      if (format != stored_format::exact && row.handed_on != 0) worker.round(format, row.out, row.out_size);
      return;
    }
    worker.trim(row, row.dy);  // elements of this thread's, as in what follows
    worker.template backward<Functions, true>(row, joined, format);
    if (format == stored_format::exact) return;
    if (row.input_gradient != 0) worker.round(format, joined.function < 0 ? row.dx : joined.dx, row.in_size);
    if (row.input2_gradient != 0) worker.round(format, row.dx2, row.in2_size);
  }
};

}  // namespace pergrad::inline v0_1::on_device
