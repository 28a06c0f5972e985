// SPDX-License-Identifier: Apache-2.0
// pergrad/host/kernels.hpp - everything on the host that is not a matrix product: element loops, windows, packing, dots
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include <pergrad/concepts.hpp>
#include <pergrad/detail/math.hpp>
#include <pergrad/gradients/factors.hpp>
#include <pergrad/host/layout.hpp>
#include <pergrad/host/tables.hpp>
#include <pergrad/host/transpose.hpp>
#include <pergrad/host/vector.hpp>
#include <pergrad/host/windows.hpp>

namespace pergrad::inline v0_1::on_host {

/// Calls f(first, lanes) over `count` elements: whole vectors first, then the rest as `first_lanes`.
template <class Scalar, class Function>
inline void for_each_vector(index count, Function&& f) {
  constexpr auto lanes = static_cast<index>(vector_lanes<Scalar>);
  struct whole {
    [[nodiscard]] vector<Scalar> load(const Scalar* from) const noexcept { return on_host::load(from); }
    void store(Scalar* to, vector<Scalar> value) const noexcept { on_host::store(to, value); }
  };
  index first = 0;
  for (; first + lanes <= count; first += lanes) f(first, whole{});
  if (first < count) f(first, first_lanes<Scalar>{static_cast<std::size_t>(count - first)});
}

template <class Scalar>
inline void add_to(Scalar* to, const Scalar* from, index count) {
  for_each_vector<Scalar>(
      count, [&](index i, const auto& lanes) { lanes.store(to + i, lanes.load(to + i) + lanes.load(from + i)); });
}
/// to += weight * from
template <class Scalar>
inline void add_scaled_to(Scalar* to, Scalar weight, const Scalar* from, index count) {
  for_each_vector<Scalar>(count, [&](index i, const auto& lanes) {
    lanes.store(to + i, lanes.load(to + i) + splat(weight) * lanes.load(from + i));
  });
}
/// to += weight * from^2
template <class Scalar>
inline void add_scaled_squares_to(Scalar* to, Scalar weight, const Scalar* from, index count) {
  for_each_vector<Scalar>(count, [&](index i, const auto& lanes) {
    const vector<Scalar> value = lanes.load(from + i);
    lanes.store(to + i, lanes.load(to + i) + splat(weight) * (value * value));
  });
}

/// sum_i a_i b_i in double. Products of floats are exact there, so only the additions round.
template <class Scalar>
[[nodiscard]] inline double dot(const Scalar* a, const Scalar* b, index count) noexcept {
  constexpr auto width = static_cast<index>(vector_lanes<double>);
  vector<double> sums[2]{};
  index i = 0;
  for (; i + 2 * width <= count; i += 2 * width) {
    for (index k = 0; k < 2; ++k) {
      narrow<Scalar> left;
      narrow<Scalar> right;
      std::memcpy(&left, a + i + k * width, sizeof left);
      std::memcpy(&right, b + i + k * width, sizeof right);
      sums[k] += widen(left) * widen(right);
    }
  }
  double total = 0;
  const vector<double> both = sums[0] + sums[1];
  for (std::size_t lane = 0; lane < vector_lanes<double>; ++lane) total += both[lane];
  for (; i < count; ++i) total += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return total;
}

template <class Scalar>
[[nodiscard]] inline double squares(const Scalar* a, index count) noexcept {
  return dot(a, a, count);
}

/// to[i * to_step] (=|+=) from[i * from_step]
template <class Scalar>
inline void copy_strided(const Scalar* from, index from_step, Scalar* to, index to_step, index count, bool accumulate) {
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
/// transposition, in blocks of a few pixels with all their channels. Calls copy(element of the image, element of the
/// others, pixels).
template <class Function>
inline void transpose_blocks(const layout& image, index plain_start, Function&& copy) {
  const index line_pixels = image.line_pixels();
  for (index number = 0; number < image.lines(); ++number) {
    const index first = image.line_start(number);
    for (index pixel = 0; pixel < line_pixels; pixel += line) {
      const index together = std::min(line, line_pixels - pixel);
      const index here = first + pixel * image.column;
      const index there = plain_start + number * line_pixels + pixel;
      copy(here, there, together);
    }
  }
}
/// Copies or adds the values of one layout into another, whatever their halos and orders.
template <class Scalar>
inline void transfer(const layout& from, const Scalar* values, const layout& to, Scalar* out, bool accumulate) {
  const auto turn = accumulate ? transpose_add<Scalar> : transpose<Scalar>;
  if (from.values.agrees_with(to.values)) {
    for_each_stretch(from, to, [&](index source, index target, index count) {
      copy_strided(values + source, 1, out + target, 1, count, accumulate);
    });
  } else if (from.values.plain() && from.dense() && !to.values.plain()) {
    transpose_blocks(to, from.start, [&](index target, index source, index count) {
      turn(values + source, to.values.pixels(), to.values.channels, count, out + target, to.column);
    });
  } else if (to.values.plain() && to.dense() && !from.values.plain()) {
    transpose_blocks(from, to.start, [&](index source, index target, index count) {
      turn(values + source, from.column, count, from.values.channels, out + target, from.values.pixels());
    });
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
inline void fill_zero(const layout& to, Scalar* out) {
  for_each_stretch(to, to, [&](index target, index, index count) { std::fill_n(out + target, count, Scalar{0}); });
}

/// An elementwise layer over the values of one sample.
template <class Layer, class Scalar>
struct elementwise_kernel {
  static constexpr bool on_vectors = requires { requires Layer::on_vectors; };

  static void forward(const layout& x_layout, const Scalar* x, const layout& y_layout, Scalar* y) {
    for_each_stretch(x_layout, y_layout, [&](index source, index target, index count) {
      if constexpr (on_vectors) {
        for_each_vector<Scalar>(count, [&](index i, const auto& lanes) {
          lanes.store(y + target + i, Layer::value(vector<Scalar>{lanes.load(x + source + i)}));
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
        for_each_vector<Scalar>(count, [&](index i, const auto& lanes) {
          const vector<Scalar> slope =
              Layer::derivative(vector<Scalar>{lanes.load(x_row + i)}, vector<Scalar>{lanes.load(y_row + i)});
          const vector<Scalar> part = lanes.load(dy_row + i) * slope;
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

/// A pooling layer over one sample: its window rule applied to whole vectors of channels.
template <class Layer, class Scalar>
struct pooling_kernel {
  static void forward(shape in, const layout& x_layout, const Scalar* x, const layout& y_layout, Scalar* y) {
    for_each_window(in, y_layout, y_layout, [&](const window_box& box, index output, index, Scalar divisor) {
      for_each_vector<Scalar>(x_layout.values.channels, [&](index c, const auto& lanes) {
        vector<Scalar> sum = Layer::template start<vector<Scalar>>();
        for_each_tap(x_layout, x_layout, box,
                     [&](index tap, index) { sum = Layer::combine(sum, lanes.load(x + tap + c)); });
        lanes.store(y + output + c, Layer::finish(sum, divisor));
      });
    });
  }

  /// Adds every input's share of dy to dx.
  static void backward(shape in, const layout& x_layout, const Scalar* x, const layout& y_layout, const Scalar* y,
                       const layout& dy_layout, const Scalar* dy, const layout& dx_layout, Scalar* dx) {
    for_each_window(in, y_layout, dy_layout, [&](const window_box& box, index output, index backprop, Scalar divisor) {
      for_each_vector<Scalar>(x_layout.values.channels, [&](index c, const auto& lanes) {
        const vector<Scalar> best = lanes.load(y + output + c);
        vector<Scalar> remaining = lanes.load(dy + backprop + c);
        for_each_tap(x_layout, dx_layout, box, [&](index tap, index target) {
          const vector<Scalar> part = Layer::share(vector<Scalar>{lanes.load(x + tap + c)}, best, remaining, divisor);
          lanes.store(dx + target + c, lanes.load(dx + target + c) + part);
        });
      });
    });
  }

 private:
  static constexpr bool has_planes = requires(shape in) { Layer::planes(in, std::size_t{0}); };

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
          std::size_t divisor = 1;
          if constexpr (has_planes) {
            divisor = Layer::divisor(in, number(d), number(i), number(j));
          } else {
            divisor = Layer::divisor(in, number(i), number(j));
          }
          f(box, y.start + d * y.plane + i * y.row + j * y.column, dy.start + d * dy.plane + i * dy.row + j * dy.column,
            static_cast<Scalar>(divisor));
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

/// Weights of outputs [first, last) from PyTorch's order into the forward panel
/// `[group][kd][kh][kw][channel][output]`.
template <class Scalar>
inline void pack_forward(const affine_map& map, const Scalar* weights, Scalar* panel, index first, index last) {
  const auto taps = static_cast<index>(map.kernel.size());
  const auto channels = static_cast<index>(map.in_channels / map.groups);
  const auto outputs = static_cast<index>(map.group_outputs());
  const index width = channels * taps;
  for (index n = first; n < last;) {
    // A cache line of outputs at a time: every line of the panel is written once and whole.
    const index together = std::min({line - n % outputs % line, outputs - n % outputs, last - n});
    const Scalar* from = weights + n * width;
    Scalar* to = panel + n / outputs * width * outputs + n % outputs;
    if (taps == 1) {
      transpose(from, width, together, width, to, outputs);
      n += together;
      continue;
    }
    for (index c = 0; c < channels; ++c) {
      for (index tap = 0; tap < taps; ++tap) {
        Scalar* out = to + (tap * channels + c) * outputs;
        const Scalar* in = from + c * taps + tap;
        if (together == line) {
          for (index j = 0; j < line; ++j) out[j] = in[j * width];
        } else {
          for (index j = 0; j < together; ++j) out[j] = in[j * width];
        }
      }
    }
    n += together;
  }
}

/// Calls f(plane phase, row phase, column phase) for all stride phases of the input gradient.
template <class Function>
inline void for_each_phase(const affine_map& map, Function&& f) {
  const auto number = [](std::size_t value) { return static_cast<index>(value); };
  for (index d = 0; d < number(map.stride.depth); ++d) {
    const phase planes = phase_of(d, number(map.in_size.depth), number(map.kernel.depth), number(map.stride.depth),
                                  number(map.padding.depth), number(map.dilation.depth));
    for (index r = 0; r < number(map.stride.height); ++r) {
      const phase rows = phase_of(r, number(map.in_size.height), number(map.kernel.height), number(map.stride.height),
                                  number(map.padding.height), number(map.dilation.height));
      for (index s = 0; s < number(map.stride.width); ++s) {
        const phase columns = phase_of(s, number(map.in_size.width), number(map.kernel.width), number(map.stride.width),
                                       number(map.padding.width), number(map.dilation.width));
        f(planes, rows, columns);
      }
    }
  }
}

/// Weights of outputs [first, last) into the backward panel: per group and phase
/// `[tap plane][tap row][tap column][output][channel]` with the taps turned round, or `[output][kd][kh][kw][channel]`
/// for a view that sees everything once.
template <class Scalar>
inline void pack_backward(const node_row& row, const Scalar* weights, Scalar* panel, index first, index last) {
  const affine_map& map = row.map;
  const auto taps = static_cast<index>(map.kernel.size());
  const auto kernel_width = static_cast<index>(map.kernel.width);
  const auto kernel_area = static_cast<index>(map.kernel.height) * kernel_width;
  const auto channels = static_cast<index>(map.in_channels / map.groups);
  const auto outputs = static_cast<index>(map.group_outputs());
  for (index n = first; n < last; ++n) {
    const Scalar* from = weights + n * channels * taps;
    if (row.whole_view) {
      for (index c = 0; c < channels; ++c) {
        for (index tap = 0; tap < taps; ++tap) panel[(n * taps + tap) * channels + c] = from[c * taps + tap];
      }
      continue;
    }
    const index group = n / outputs;
    Scalar* to = panel + group * taps * outputs * channels;
    for_each_phase(map, [&](const phase& planes, const phase& rows, const phase& columns) {
      const auto turned = [](const phase& axis, index tap) {
        return axis.first_tap + (axis.taps - 1 - tap) * axis.tap_step;
      };
      for (index i = 0; i < planes.taps; ++i) {
        for (index j = 0; j < rows.taps; ++j) {
          const index tap_row = turned(planes, i) * kernel_area + turned(rows, j) * kernel_width;
          for (index k = 0; k < columns.taps; ++k) {
            const index tap = tap_row + turned(columns, k);
            Scalar* line_out = to + (((i * rows.taps + j) * columns.taps + k) * outputs + n % outputs) * channels;
            for (index c = 0; c < channels; ++c) line_out[c] = from[c * taps + tap];
          }
        }
      }
      to += planes.taps * rows.taps * columns.taps * outputs * channels;
    });
  }
}

}  // namespace pergrad::inline v0_1::on_host
