// SPDX-License-Identifier: Apache-2.0
// pergrad/cuda/kernels/pools.hpp - forward and backward of a pool for one sample, from its table of windows
#pragma once

#include <pergrad/cuda/device/kernel.hpp>
#include <pergrad/cuda/kernels/sample_values.hpp>
#include <pergrad/cuda/kernels/tables.hpp>

namespace pergrad::inline v0_1::on_device {

/// A block at work on one sample's pool.
template <class Block, class Scalar>
struct pool_worker {
  const Block& block;
  const int* table;  ///< integers and scalars of the network's tables
  const Scalar* divisors;

  template <class Rule>
  PERGRAD_HD void forward(const op_row& row, const Scalar* x, Scalar* y) const {
    const int width = row.windows[2].out;
    const int height = row.windows[1].out;
    const int out_pixels = row.windows[0].out * height * width;
    const int in_pixels = row.windows[0].in * row.windows[1].in * row.windows[2].in;
    for_each(block, row.out_size, [&](int o) {
      const int pixel = o % out_pixels;
      const Scalar* from = x + o / out_pixels * in_pixels;
      const window_box box = box_of(row, pixel / (height * width), pixel / width % height, pixel % width);
      Scalar value = Rule::template start<Scalar>();
      for_each_input(row, box, [&](int input) {
        value = Rule::combine(value, from[input]);
        return true;
      });
      y[o] = Rule::finish(value, box.divisor);
    });
  }
  /// Every input asks the windows that see it, in order, for its share.
  template <class Rule>
  PERGRAD_HD void backward(const op_row& row, const Scalar* x, const Scalar* y, const Scalar* dy, Scalar* dx) const {
    const window_axis(&windows)[axes] = row.windows;
    const int width = windows[2].in;
    const int height = windows[1].in;
    const int in_pixels = windows[0].in * height * width;
    const int out_pixels = windows[0].out * windows[1].out * windows[2].out;
    for_each(block, row.in_size, [&](int i) {
      const int channel = i / in_pixels;
      const int pixel = i % in_pixels;
      const int pd = pixel / (height * width);
      const int ph = pixel / width % height;
      const int pw = pixel % width;
      const Scalar* from = x + channel * in_pixels;
      Scalar sum = row.accumulate != 0 ? dx[i] : Scalar{0};
      for (int d = table[windows[0].seen_first + pd]; d < table[windows[0].seen_last + pd]; ++d) {
        for (int r = table[windows[1].seen_first + ph]; r < table[windows[1].seen_last + ph]; ++r) {
          PERGRAD_ROLLED
          for (int c = table[windows[2].seen_first + pw]; c < table[windows[2].seen_last + pw]; ++c) {
            const window_box box = box_of(row, d, r, c);
            const int o = channel * out_pixels + (d * windows[1].out + r) * windows[2].out + c;
            Scalar remaining = dy[o];
            Scalar share = 0;
            for_each_input(row, box, [&](int input) {
              const Scalar part = Rule::share(from[input], y[o], remaining, box.divisor);
              if (input == pixel) share = part;
              return input != pixel;
            });
            sum += share;
          }
        }
      }
      dx[i] = sum;
    });
  }

 private:
  /// What a window of a pool covers.
  struct window_box {
    span_of_taps planes, rows, columns;
    Scalar divisor;
  };
  [[nodiscard]] PERGRAD_HD window_box box_of(const op_row& row, int d, int i, int j) const noexcept {
    const window_axis(&windows)[axes] = row.windows;
    return {{table[windows[0].first + d], table[windows[0].last + d]},
            {table[windows[1].first + i], table[windows[1].last + i]},
            {table[windows[2].first + j], table[windows[2].last + j]},
            divisors[row.divisors + (d * windows[1].out + i) * windows[2].out + j]};
  }
  /// Calls f(offset in the channel) for the inputs of a window, in order, until it says false.
  template <class Function>
  PERGRAD_HD static void for_each_input(const op_row& row, const window_box& box, Function&& f) {
    for (int d = box.planes.begin; d < box.planes.end; ++d) {
      for (int i = box.rows.begin; i < box.rows.end; ++i) {
        PERGRAD_ROLLED
        for (int j = box.columns.begin; j < box.columns.end; ++j) {
          if (!f((d * row.windows[1].in + i) * row.windows[2].in + j)) return;
        }
      }
    }
  }
};

}  // namespace pergrad::inline v0_1::on_device
