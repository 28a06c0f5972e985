// SPDX-License-Identifier: Apache-2.0
// pergrad/host/conv/winograd.inl - the kernels of one target for the transforms of minimal filtering, a vector of
// channels at a time
//
// Included behind host/gemm/micro_kernel.inl, whose rules it shares. The formulas are those of host/conv/winograd.hpp.
// They only add: there is nothing that one target could round and another not.
#if defined(PERGRAD_KERNELS)

namespace pergrad::inline v0_1::on_host::PERGRAD_KERNELS::winograd {

/// B^T times a column (or a row) of a patch.
template <class Scalar>
inline void spread_line(const vector<Scalar>& d0, const vector<Scalar>& d1, const vector<Scalar>& d2,
                        const vector<Scalar>& d3, vector<Scalar>* to) noexcept {
  to[0] = d0 - d2;
  to[1] = d1 + d2;
  to[2] = d2 - d1;
  to[3] = d1 - d3;
}

template <class Scalar, class Lanes>
inline void spread_column(const winograd_task<Scalar>& task, const Scalar* x, vector<Scalar>* to,
                          const Lanes& lanes) noexcept {
  spread_line<Scalar>(lanes.load(x), lanes.load(x + task.row), lanes.load(x + 2 * task.row),
                      lanes.load(x + 3 * task.row), to);
}

/// V = B^T d B of one patch.
template <class Scalar, class Lanes>
inline void spread_patch(const winograd_task<Scalar>& task, const Scalar* x, Scalar* to, const Lanes& lanes) noexcept {
  vector<Scalar> columns[16];
  spread_column(task, x, columns, lanes);
  spread_column(task, x + task.column, columns + 4, lanes);
  spread_column(task, x + 2 * task.column, columns + 8, lanes);
  spread_column(task, x + 3 * task.column, columns + 12, lanes);
  const index step = task.step;  // a copy: what is stored might be the task
  const auto write_row = [&](std::size_t i) {
    vector<Scalar> row[4];
    spread_line<Scalar>(columns[i], columns[4 + i], columns[8 + i], columns[12 + i], row);
    Scalar* const out = to + static_cast<index>(4 * i) * step;
    lanes.store(out, row[0]);
    lanes.store(out + step, row[1]);
    lanes.store(out + 2 * step, row[2]);
    lanes.store(out + 3 * step, row[3]);
  };
  write_row(0);
  write_row(1);
  write_row(2);
  write_row(3);
}

template <class Scalar>
void spread(const winograd_task<Scalar>& task) noexcept {
  const Scalar* x = task.x;
  Scalar* to = task.products;
  for (index patch = 0; patch < task.patches; ++patch, x += 2 * task.column, to += task.channels) {
    for_each_vector<Scalar>(task.channels,
                            [&](index c, const auto& lanes) { spread_patch(task, x + c, to + c, lanes); });
  }
}

/// A column of A^T M: both of its elements.
template <class Scalar, class Lanes>
inline void gather_column(const winograd_task<Scalar>& task, const Scalar* from, vector<Scalar>& first,
                          vector<Scalar>& second, const Lanes& lanes) noexcept {
  const vector<Scalar> m1 = lanes.load(from + 4 * task.step);
  const vector<Scalar> m2 = lanes.load(from + 8 * task.step);
  first = (lanes.load(from) + m1) + m2;
  second = (m1 - m2) - lanes.load(from + 12 * task.step);
}

/// Y = A^T M A of one patch, of which `columns` and `task.height` exist.
template <class Scalar, class Lanes>
inline void gather_patch(const winograd_task<Scalar>& task, const Scalar* from, Scalar* y, const Scalar* bias,
                         index columns, const Lanes& lanes) noexcept {
  vector<Scalar> upper[4];
  vector<Scalar> lower[4];
  gather_column(task, from, upper[0], lower[0], lanes);
  gather_column(task, from + task.step, upper[1], lower[1], lanes);
  gather_column(task, from + 2 * task.step, upper[2], lower[2], lanes);
  gather_column(task, from + 3 * task.step, upper[3], lower[3], lanes);
  const auto write = [&](Scalar* to, vector<Scalar> value) {
    if (bias != nullptr) value = value + lanes.load(bias);
    if (task.accumulate) value = lanes.load(to) + value;
    lanes.store(to, value);
  };
  const auto write_row = [&](Scalar* to, const vector<Scalar>* row) {
    write(to, (row[0] + row[1]) + row[2]);
    if (columns > 1) write(to + task.column, (row[1] - row[2]) - row[3]);
  };
  write_row(y, upper);
  if (task.height > 1) write_row(y + task.row, lower);
}

template <class Scalar>
void gather(const winograd_task<Scalar>& task) noexcept {
  const Scalar* from = task.products;
  Scalar* y = task.y;
  for (index patch = 0; patch < task.patches; ++patch, y += 2 * task.column, from += task.channels) {
    const index columns = task.width - 2 * patch;
    for_each_vector<Scalar>(task.channels, [&](index c, const auto& lanes) {
      gather_patch(task, from + c, y + c, task.bias == nullptr ? nullptr : task.bias + c, columns, lanes);
    });
  }
}

/// A stretch of values, and what lies below and on the right of it, times 1 or -1; see host/conv/pairs.hpp.
template <class Scalar>
void combine(const pair_task<Scalar>& given) noexcept {
  const pair_task<Scalar> task = given;  // a copy: what is stored might be the task
  const vector<Scalar> sign = splat(task.sign);
  const Scalar* from = task.from;
  Scalar* to = task.to;
  for (index i = 0; i < task.count; ++i, from += task.from_step, to += task.to_step) {
    for_each_vector<Scalar>(task.values, [&](index n, const auto& lanes) {
      const auto with_right = [&](const Scalar* at) {
        const vector<Scalar> value = lanes.load(at);
        return task.column == 0 ? value : value + sign * lanes.load(at + task.column);
      };
      vector<Scalar> value = with_right(from + n);
      if (task.row != 0) value = value + sign * with_right(from + n + task.row);
      if (task.onto) value = lanes.load(to + n) + sign * value;
      if (task.bias != nullptr) value = value + lanes.load(task.bias + n);
      lanes.store(to + n, value);
    });
  }
}

template <class Scalar>
inline constexpr pair_kernels<Scalar> in_pairs{&combine<Scalar>};
template <class Scalar>
inline constexpr winograd_kernels<Scalar> kernels{&spread<Scalar>, &gather<Scalar>};

}

#endif  // PERGRAD_KERNELS
