// SPDX-License-Identifier: Apache-2.0
// pergrad/host/pool_text.hpp - one family of kernels for maxima and means of windows, a vector of channels at a time
//
// Included behind host/tile_text.hpp, whose rules it shares. The formulas are those of detail/pooling.hpp.
#if defined(PERGRAD_KERNELS)

namespace pergrad::inline v0_1::on_host::PERGRAD_KERNELS::pools {

/// y = the window's maximum or mean.
template <window_rule Rule, class Scalar, class Lanes>
inline void forward_window(const pool_task<Scalar>& task, const Scalar* x, const window_range& columns, Scalar divisor,
                           Scalar* y, const Lanes& lanes) noexcept {
  vector<Scalar> result = splat(Rule == window_rule::maximum ? -std::numeric_limits<Scalar>::infinity() : Scalar{0});
  for (std::size_t plane = task.planes.begin; plane < task.planes.end; ++plane, x += task.x_step.plane) {
    const Scalar* in_row = x;
    for (std::size_t row = task.rows.begin; row < task.rows.end; ++row, in_row += task.x_step.row) {
      const Scalar* at = in_row;
      for (std::size_t column = columns.begin; column < columns.end; ++column, at += task.x_step.column) {
        const vector<Scalar> value = lanes.load(at);
        if constexpr (Rule == window_rule::maximum) {
          const vector<Scalar> or_nan = value != value ? value : result;
          result = value > result ? value : or_nan;
        } else {
          result = result + value;
        }
      }
    }
  }
  lanes.store(y, Rule == window_rule::maximum ? result : result / splat(divisor));
}

/// Adds to every input of the window its share of dy.
template <window_rule Rule, class Scalar, class Lanes>
inline void backward_window(const pool_task<Scalar>& task, const Scalar* x, const window_range& columns, Scalar divisor,
                            const Scalar* y, const Scalar* dy, Scalar* dx, const Lanes& lanes) noexcept {
  const vector<Scalar> best = lanes.load(y);
  vector<Scalar> remaining = lanes.load(dy);
  if constexpr (Rule == window_rule::mean) remaining = remaining / splat(divisor);
  for (std::size_t plane = task.planes.begin; plane < task.planes.end; ++plane) {
    for (std::size_t row = task.rows.begin; row < task.rows.end; ++row) {
      const auto down = static_cast<index>(row - task.rows.begin);
      const auto deep = static_cast<index>(plane - task.planes.begin);
      const Scalar* at = x + deep * task.x_step.plane + down * task.x_step.row;
      Scalar* to = dx + deep * task.dx_step.plane + down * task.dx_step.row;
      for (std::size_t column = columns.begin; column < columns.end; ++column) {
        if constexpr (Rule == window_rule::maximum) {
          const auto is_best = lanes.load(at) == best;
          const vector<Scalar> zero{};
          const vector<Scalar> part = is_best ? remaining : zero;
          remaining = is_best ? zero : remaining;
          lanes.store(to, lanes.load(to) + part);
        } else {
          lanes.store(to, lanes.load(to) + remaining);
        }
        at += task.x_step.column;
        to += task.dx_step.column;
      }
    }
  }
}

template <window_rule Rule, bool Forward, class Scalar, class Lanes>
inline void window(const pool_task<Scalar>& task, std::size_t number, index channel, const Lanes& lanes) noexcept {
  const window_range& columns = task.columns[number];
  const auto plane = static_cast<index>(task.planes.begin);
  const auto row = static_cast<index>(task.rows.begin);
  const auto column = static_cast<index>(columns.begin);
  const auto output = static_cast<index>(number);
  const Scalar* x = task.x + plane * task.x_step.plane + row * task.x_step.row + column * task.x_step.column + channel;
  const index y = output * task.y_column + channel;
  if constexpr (Forward) {
    forward_window<Rule>(task, x, columns, task.divisors[number], task.y + y, lanes);
  } else {
    backward_window<Rule>(
        task, x, columns, task.divisors[number], task.best + y, task.dy + output * task.dy_column + channel,
        task.dx + plane * task.dx_step.plane + row * task.dx_step.row + column * task.dx_step.column + channel, lanes);
  }
}

template <window_rule Rule, bool Forward, class Scalar>
void windows(const pool_task<Scalar>& task) noexcept {
  constexpr auto lanes = static_cast<index>(vector_lanes<Scalar>);
  const index whole = masks_are_free ? 0 : task.channels / lanes * lanes;
  for (std::size_t number = 0; number < task.count; ++number) {
    if constexpr (!masks_are_free) {
      for (index channel = 0; channel < whole; channel += lanes) {
        window<Rule, Forward>(task, number, channel, all_lanes<Scalar>{});
      }
    }
    for (index channel = whole; channel < task.channels; channel += lanes) {
      const index left = task.channels - channel;
      window<Rule, Forward>(task, number, channel,
                            first_lanes<Scalar>{static_cast<std::size_t>(left < lanes ? left : lanes)});
    }
  }
}

template <class Scalar, window_rule Rule>
inline constexpr pool_kernels<Scalar> kernels{&windows<Rule, true, Scalar>, &windows<Rule, false, Scalar>};

}

#endif  // PERGRAD_KERNELS
