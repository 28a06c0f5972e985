// SPDX-License-Identifier: Apache-2.0
// pergrad/host/conv/kernels.hpp - copies between layouts, elementwise layers and pools over the values of one sample
#pragma once

#include <algorithm>
#include <cstddef>

#include <pergrad/concepts.hpp>
#include <pergrad/graph/layout.hpp>
#include <pergrad/host/conv/pool.hpp>
#include <pergrad/host/gemm/transpose.hpp>
#include <pergrad/shape.hpp>
#include <pergrad/simd/elements.hpp>
#include <pergrad/simd/vector.hpp>

namespace pergrad::inline v0_1::on_host {

/// to[i * to_step] (=|+=) from[i * from_step]
template <class Scalar>
[[gnu::noinline]] void copy_strided(const Scalar* from, index from_step, Scalar* to, index to_step, index count,
                                    bool accumulate) {
  if (from_step == 1 && to_step == 1) {
    if (accumulate) {
      add_to(to, from, count);
    } else {
      std::copy_n(from, count, to);
    }
  } else if (accumulate) {
    for (index i = 0; i < count; ++i) to[i * to_step] += from[i * from_step];
  } else {
    for (index i = 0; i < count; ++i) to[i * to_step] = from[i * from_step];
  }
}
/// Between an image whose values PyTorch numbers channels first, and values in that order without gaps: a
/// transposition, in blocks of a few pixels with all their channels. `to_image`: from those values to the image.
template <class Scalar>
inline void transpose_blocks(const layout& image, index plain_start, bool to_image, const Scalar* values, Scalar* out,
                             bool accumulate) {
  const auto turn = accumulate ? transpose_add<Scalar> : transpose<Scalar>;
  const index pixels = image.values.pixels();
  const index channels = image.values.channels;
  const index line_pixels = image.line_pixels();
  for (index number = 0; number < image.lines(); ++number) {
    const index first = image.line_start(number);
    for (index pixel = 0; pixel < line_pixels; pixel += line) {
      const index together = std::min(line, line_pixels - pixel);
      const index here = first + pixel * image.column;
      const index there = plain_start + number * line_pixels + pixel;
      if (to_image) {
        turn(values + there, pixels, channels, together, out + here, image.column);
      } else {
        turn(values + here, image.column, together, channels, out + there, pixels);
      }
    }
  }
}
/// Copies or adds the values of one layout into another, whatever their halos and orders.
template <class Scalar>
inline void transfer(const layout& from, const Scalar* values, const layout& to, Scalar* out, bool accumulate) {
  if (from.values.agrees_with(to.values)) {
    for_each_stretch(from, to, [&](index source, index target, index count) {
      copy_strided(values + source, 1, out + target, 1, count, accumulate);
    });
    return;
  }
  const bool to_image = from.values.plain() && from.dense() && !to.values.plain();
  const bool from_image = to.values.plain() && to.dense() && !from.values.plain();
  if (to_image || from_image) {
    transpose_blocks(to_image ? to : from, to_image ? from.start : to.start, to_image, values, out, accumulate);
  } else {
    run_cursor source{from};
    run_cursor target{to};
    for (index left = from.values.size(); left > 0;) {
      const index count = std::min(source.left(), target.left());
      copy_strided(values + source.at(), source.step(), out + target.at(), target.step(), count, accumulate);
      left -= count;
      source.advance(count);
      target.advance(count);
    }
  }
}
template <class Scalar>
[[gnu::noinline]] void fill_zero(const layout& to, Scalar* out) {
  for_each_stretch(to, to, [&](index target, index, index count) { std::fill_n(out + target, count, Scalar{0}); });
}

/// An elementwise layer over the values of one sample.
template <class Layer, class Scalar>
struct elementwise_kernel {
  static constexpr bool on_vectors = requires { requires Layer::on_vectors; };

  static void forward(const layout& x_layout, const Scalar* x, const layout& y_layout, Scalar* y) {
    for_each_stretch(x_layout, y_layout, [&](index source, index target, index count) {
      if constexpr (on_vectors) {
        for_each_pack<Scalar>(count, [&](index i, const auto& lanes) {
          lanes.store(y + target + i, Layer::value(pack<Scalar>{lanes.load(x + source + i)}));
        });
      } else {
        for (index i = 0; i < count; ++i) y[target + i] = Layer::value(x[source + i]);
      }
    });
  }

  /// dx (=|+=) dy f'(x, y). Values and gradients share their arrangement, so they are walked in step.
  static void backward(const layout& x_layout, const Scalar* x, const layout& y_layout, const Scalar* y,
                       const layout& dy_layout, const Scalar* dy, const layout& dx_layout, Scalar* dx,
                       bool accumulate) {
    const bool dense = x_layout.dense() && y_layout.dense() && dy_layout.dense() && dx_layout.dense();
    const arrangement& values = x_layout.values;
    const index rows_count = dense ? 1 : values.depth * values.height;
    const index count = dense ? values.size() : values.width * values.channels;
    index plane = 0;
    index row = 0;
    for (index r = 0; r < rows_count; ++r) {
      const Scalar* x_row = x + x_layout.start + plane * x_layout.plane + row * x_layout.row;
      const Scalar* y_row = y + y_layout.start + plane * y_layout.plane + row * y_layout.row;
      const Scalar* dy_row = dy + dy_layout.start + plane * dy_layout.plane + row * dy_layout.row;
      Scalar* dx_row = dx + dx_layout.start + plane * dx_layout.plane + row * dx_layout.row;
      if (++row == values.height) {
        row = 0;
        ++plane;
      }
      if constexpr (on_vectors) {
        for_each_pack<Scalar>(count, [&](index i, const auto& lanes) {
          const pack<Scalar> slope =
              Layer::derivative(pack<Scalar>{lanes.load(x_row + i)}, pack<Scalar>{lanes.load(y_row + i)});
          const pack<Scalar> part = lanes.load(dy_row + i) * slope;
          lanes.store(dx_row + i, accumulate ? lanes.load(dx_row + i) + part : part);
        });
      } else {
        for (index i = 0; i < count; ++i) {
          const Scalar part = dy_row[i] * Layer::derivative(x_row[i], y_row[i]);
          dx_row[i] = accumulate ? dx_row[i] + part : part;
        }
      }
    }
  }
};

/// What a window covers along each axis.
struct window_box {
  window_range planes{0, 1};
  window_range rows;
  window_range columns;
};

/// A pooling layer over one sample: its window rule applied to whole vectors of channels. Rules that the executor knows
/// have kernels; a layer's own rule is compiled for the build's flags.
template <class Layer, class Scalar>
struct pooling_kernel {
  static void forward(shape in, const layout& x_layout, const Scalar* x, const layout& y_layout, Scalar* y) {
    if constexpr (known) {
      pool_task<Scalar> task;
      start(task, x_layout, x);
      task.y_column = y_layout.column;
      const auto run = pools_of<Scalar, Layer::known_rule>(kernel_target_in_use()).forward;
      each_row(in, y_layout, task, [&](index d, index i, index j) {
        task.y = y + y_layout.start + d * y_layout.plane + i * y_layout.row + j * y_layout.column;
        run(task);
      });
    } else {
      for_each_window(in, y_layout, y_layout, [&](const window_box& box, index output, index, Scalar divisor) {
        for_each_pack<Scalar>(x_layout.values.channels, [&](index c, const auto& lanes) {
          pack<Scalar> sum = Layer::template start<pack<Scalar>>();
          for_each_tap(x_layout, x_layout, box,
                       [&](index tap, index) { sum = Layer::combine(sum, lanes.load(x + tap + c)); });
          lanes.store(y + output + c, Layer::finish(sum, divisor));
        });
      });
    }
  }

  /// Adds every input's share of dy to dx.
  static void backward(shape in, const layout& x_layout, const Scalar* x, const layout& y_layout, const Scalar* y,
                       const layout& dy_layout, const Scalar* dy, const layout& dx_layout, Scalar* dx) {
    if constexpr (known) {
      pool_task<Scalar> task;
      start(task, x_layout, x);
      task.y_column = y_layout.column;
      task.dy_column = dy_layout.column;
      task.dx = dx + dx_layout.start;
      task.dx_step = {dx_layout.plane, dx_layout.row, dx_layout.column};
      const auto run = pools_of<Scalar, Layer::known_rule>(kernel_target_in_use()).backward;
      each_row(in, y_layout, task, [&](index d, index i, index j) {
        task.best = y + y_layout.start + d * y_layout.plane + i * y_layout.row + j * y_layout.column;
        task.dy = dy + dy_layout.start + d * dy_layout.plane + i * dy_layout.row + j * dy_layout.column;
        run(task);
      });
    } else {
      for_each_window(
          in, y_layout, dy_layout, [&](const window_box& box, index output, index backprop, Scalar divisor) {
            for_each_pack<Scalar>(x_layout.values.channels, [&](index c, const auto& lanes) {
              const pack<Scalar> best = lanes.load(y + output + c);
              pack<Scalar> remaining = lanes.load(dy + backprop + c);
              for_each_tap(x_layout, dx_layout, box, [&](index tap, index target) {
                const pack<Scalar> part = Layer::share(pack<Scalar>{lanes.load(x + tap + c)}, best, remaining, divisor);
                lanes.store(dx + target + c, lanes.load(dx + target + c) + part);
              });
            });
          });
    }
  }

 private:
  static constexpr bool has_planes = requires(shape in) { Layer::planes(in, std::size_t{0}); };
  static constexpr bool known = detail::has_known_rule<Layer>;

  static void start(pool_task<Scalar>& task, const layout& x_layout, const Scalar* x) {
    task.channels = x_layout.values.channels;
    task.x = x + x_layout.start;
    task.x_step = {x_layout.plane, x_layout.row, x_layout.column};
  }
  /// Calls run(plane, row, first column) for rows of windows, a stretch at a time, whose ranges are then in `task`.
  template <class Function>
  static void each_row(shape in, const layout& y, pool_task<Scalar>& task, Function&& run) {
    constexpr index together = pool_task<Scalar>::most;
    const auto number = [](index value) { return static_cast<std::size_t>(value); };
    for (index first = 0; first < y.values.width; first += together) {
      const index count = std::min(together, y.values.width - first);
      task.count = number(count);
      for (index j = 0; j < count; ++j) task.columns[j] = Layer::columns(in, number(first + j));
      task.alike = step_of(task);
      for (index d = 0; d < (has_planes ? y.values.depth : 1); ++d) {
        task.planes = {0, 1};
        if constexpr (has_planes) task.planes = Layer::planes(in, number(d));
        for (index i = 0; i < y.values.height; ++i) {
          task.rows = Layer::rows(in, number(i));
          if constexpr (Layer::known_rule == window_rule::mean) {
            for (index j = 0; j < count; ++j)
              task.divisors[j] = divisor_of(in, number(d), number(i), number(first + j));
          }
          run(d, i, first);
        }
      }
    }
  }
  static index step_of(const pool_task<Scalar>& task) {
    const window_range& one = task.columns[0];
    const std::size_t step = task.count > 1 ? task.columns[1].begin - one.begin : 1;
    for (std::size_t j = 1; j < task.count; ++j) {
      const window_range& other = task.columns[j];
      if (other.begin != one.begin + j * step || other.end != one.end + j * step) return 0;
    }
    return static_cast<index>(step);
  }
  static Scalar divisor_of(shape in, std::size_t d, std::size_t i, std::size_t j) {
    if constexpr (has_planes) {
      return static_cast<Scalar>(Layer::divisor(in, d, i, j));
    } else {
      return static_cast<Scalar>(Layer::divisor(in, i, j));
    }
  }

  template <class Function>
  static void for_each_window(shape in, const layout& y, const layout& dy, Function&& f) {
    const auto number = [](index value) { return static_cast<std::size_t>(value); };
    for (index d = 0; d < (has_planes ? y.values.depth : 1); ++d) {
      window_box box;
      if constexpr (has_planes) box.planes = Layer::planes(in, number(d));
      for (index i = 0; i < y.values.height; ++i) {
        box.rows = Layer::rows(in, number(i));
        for (index j = 0; j < y.values.width; ++j) {
          box.columns = Layer::columns(in, number(j));
          f(box, y.start + d * y.plane + i * y.row + j * y.column, dy.start + d * dy.plane + i * dy.row + j * dy.column,
            divisor_of(in, number(d), number(i), number(j)));
        }
      }
    }
  }
  template <class Function>
  static void for_each_tap(const layout& x, const layout& dx, const window_box& box, Function&& f) {
    const auto in_plane = [&](index start, index dx_start) {
      for (auto r = static_cast<index>(box.rows.begin); r < static_cast<index>(box.rows.end); ++r) {
        for (auto s = static_cast<index>(box.columns.begin); s < static_cast<index>(box.columns.end); ++s) {
          f(start + r * x.row + s * x.column, dx_start + r * dx.row + s * dx.column);
        }
      }
    };
    if constexpr (has_planes) {
      for (auto d = static_cast<index>(box.planes.begin); d < static_cast<index>(box.planes.end); ++d) {
        in_plane(x.start + d * x.plane, dx.start + d * dx.plane);
      }
    } else {
      in_plane(x.start, dx.start);
    }
  }
};

}  // namespace pergrad::inline v0_1::on_host
