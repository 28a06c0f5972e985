// SPDX-License-Identifier: Apache-2.0
// pergrad/host/conv/pool.inl - the kernels of one target for maxima and means of windows, a vector of channels at a
// time
//
// Included behind host/gemm/micro_kernel.inl, whose rules it shares. The formulas are those of
// layers/pools.hpp.
#if defined(PERGRAD_KERNELS)

namespace pergrad::inline v0_1::on_host::PERGRAD_KERNELS::pools {

/// The larger one, or a NaN if there is one: of the two instructions for a maximum each returns its second operand
/// where one is a NaN. Of two zeros it is the negative one, which equals the other.
template <class Scalar>
[[nodiscard, gnu::always_inline]] inline vector<Scalar> larger(vector<Scalar> a, vector<Scalar> b) noexcept {
  using bits = typename vector_detail::vector_of<Scalar>::lanes_type;
  const vector<Scalar> or_b = a > b ? a : b;
  const vector<Scalar> or_a = b > a ? b : a;
  return reinterpret_cast<vector<Scalar>>(reinterpret_cast<bits>(or_a) | reinterpret_cast<bits>(or_b));
}

/// Adds to one input what remains of dy, in the lanes where it is the window's maximum; the others' rest remains.
template <class Scalar, class Lanes>
[[gnu::always_inline]] inline void add_where_best(const Scalar* x, vector<Scalar> best, vector<Scalar>& remaining,
                                                  Scalar* dx, const Lanes& lanes) noexcept {
  using bits = typename vector_detail::vector_of<Scalar>::lanes_type;
  const vector<Scalar> value = lanes.load(x);
  const vector<Scalar> part = ((value == best) | (value != value)) ? remaining : vector<Scalar>{};
  remaining = reinterpret_cast<vector<Scalar>>(reinterpret_cast<bits>(remaining) ^ reinterpret_cast<bits>(part));
  lanes.store(dx, lanes.load(dx) + part);
}

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
        result = Rule == window_rule::maximum ? larger<Scalar>(value, result) : result + value;
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
          add_where_best<Scalar>(at, best, remaining, to, lanes);
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
  const Scalar divisor = Rule == window_rule::mean ? task.divisors[number] : Scalar{1};
  if constexpr (Forward) {
    forward_window<Rule>(task, x, columns, divisor, task.y + y, lanes);
  } else {
    backward_window<Rule>(
        task, x, columns, divisor, task.best + y, task.dy + output * task.dy_column + channel,
        task.dx + plane * task.dx_step.plane + row * task.dx_step.row + column * task.dx_step.column + channel, lanes);
  }
}

/// Where the first window begins.
template <class Scalar>
[[nodiscard]] inline index place_of_first(const pool_task<Scalar>& task, const pool_steps& step) noexcept {
  return static_cast<index>(task.planes.begin) * step.plane + static_cast<index>(task.rows.begin) * step.row +
         static_cast<index>(task.columns[0].begin) * step.column;
}

/// Going back every second window of a row comes first: neighbours that overlap would wait for each other's sums. So it
/// is for all windows and targets: the order of a sum decides its bits.
template <bool Forward>
inline constexpr std::size_t turns = Forward ? 1 : 2;

/// Maxima of windows of 2 x 2 that lie side by side, of one vector of channels.
template <bool Forward, class Scalar>
inline void windows_of_two(const pool_task<Scalar>& task, index channel) noexcept {
  constexpr auto step = static_cast<index>(turns<Forward>);
  constexpr all_lanes<Scalar> all;
  const index right = task.x_step.column;
  const index below = task.x_step.row;
  const index dx_right = task.dx_step.column;
  const index dx_below = task.dx_step.row;
  const auto count = static_cast<index>(task.count);
  for (index turn = 0; turn < step; ++turn) {
    const Scalar* x = task.x + place_of_first(task, task.x_step) + turn * task.alike * right + channel;
    const index y_at = turn * task.y_column + channel;
    if constexpr (Forward) {
      Scalar* y = task.y + y_at;
      for (index j = count; j > 0; --j, x += task.alike * right, y += task.y_column) {
        const vector<Scalar> upper = larger<Scalar>(load(x), load(x + right));
        const vector<Scalar> lower = larger<Scalar>(load(x + below), load(x + below + right));
        store(y, larger<Scalar>(upper, lower));
      }
    } else {
      const Scalar* y = task.best + y_at;
      const Scalar* dy = task.dy + turn * task.dy_column + channel;
      Scalar* dx = task.dx + place_of_first(task, task.dx_step) + turn * task.alike * dx_right + channel;
      for (index j = turn; j < count; j += step) {
        const vector<Scalar> best = load(y);
        vector<Scalar> remaining = load(dy);
        add_where_best<Scalar>(x, best, remaining, dx, all);
        add_where_best<Scalar>(x + right, best, remaining, dx + dx_right, all);
        add_where_best<Scalar>(x + below, best, remaining, dx + dx_below, all);
        add_where_best<Scalar>(x + below + right, best, remaining, dx + dx_below + dx_right, all);
        x += step * task.alike * right;
        y += step * task.y_column;
        dy += step * task.dy_column;
        dx += step * task.alike * dx_right;
      }
    }
  }
}

template <window_rule Rule, bool Forward, class Scalar>
void windows(const pool_task<Scalar>& task) noexcept {
  constexpr auto lanes = static_cast<index>(vector_lanes<Scalar>);
  const index whole = task.channels / lanes * lanes;
  index done = 0;
  if constexpr (Rule == window_rule::maximum && !is_fallback) {
    // Of many channels those of one window lie side by side: then it comes as fast window by window. The gain where
    // there are few: docs/internals/tricks.md.
    if (whole <= 2 * lanes && task.alike > 0 && task.rows.end - task.rows.begin == 2 &&
        task.columns[0].end - task.columns[0].begin == 2 && task.planes.end - task.planes.begin == 1) {
      for (; done < whole; done += lanes) windows_of_two<Forward>(task, done);
    }
  }
  for (std::size_t turn = 0; turn < turns<Forward>; ++turn) {
    for (std::size_t number = turn; number < task.count; number += turns<Forward>) {
      index channel = done;
      if constexpr (!masks_are_free) {
        for (; channel < whole; channel += lanes) window<Rule, Forward>(task, number, channel, all_lanes<Scalar>{});
      }
      for (; channel < task.channels; channel += lanes) {
        const index left = task.channels - channel;
        window<Rule, Forward>(task, number, channel,
                              first_lanes<Scalar>{static_cast<std::size_t>(left < lanes ? left : lanes)});
      }
    }
  }
}

template <class Scalar, window_rule Rule>
inline constexpr pool_kernels<Scalar> kernels{&windows<Rule, true, Scalar>, &windows<Rule, false, Scalar>};

}

#endif  // PERGRAD_KERNELS
