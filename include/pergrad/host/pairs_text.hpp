// SPDX-License-Identifier: Apache-2.0
// pergrad/host/pairs_text.hpp - one family of kernels for the transforms of filtering in pairs, a vector at a time
//
// Included behind host/tile_text.hpp, whose rules it shares. The formulas are those of host/pairs.hpp. They only add:
// there is nothing that one family could round and another not.
#if defined(PERGRAD_KERNELS)

namespace pergrad::inline v0_1::on_host::PERGRAD_KERNELS::pairs {

/// Calls f(from, to, lanes) for the vectors of all values of a task.
template <class Scalar, class Function>
inline void for_each_value(const pair_task<Scalar>& task, const Function& f) noexcept {
  const Scalar* from = task.from;
  Scalar* to = task.to;
  for (index i = 0; i < task.count; ++i, from += task.from_step, to += task.to_step) {
    for_each_vector<Scalar>(task.values, [&](index n, const auto& lanes) { f(from + n, to + n, lanes); });
  }
}

template <class Scalar>
void spread(const pair_task<Scalar>& task) noexcept {
  const index row = task.row;  // copies: what is stored might be the task
  const index column = task.column;
  if (row != 0 && column != 0 && task.adds) {
    for_each_value(task, [=](const Scalar* from, Scalar* to, const auto& lanes) {
      lanes.store(to, (lanes.load(from) + lanes.load(from + column)) +
                          (lanes.load(from + row) + lanes.load(from + row + column)));
    });
  } else if (row != 0 && column != 0) {
    for_each_value(task, [=](const Scalar* from, Scalar* to, const auto& lanes) {
      lanes.store(to, (lanes.load(from) - lanes.load(from + column)) -
                          (lanes.load(from + row) - lanes.load(from + row + column)));
    });
  } else if (row == 0 && column == 0) {
    for_each_value(task, [=](const Scalar* from, Scalar* to, const auto& lanes) { lanes.store(to, lanes.load(from)); });
  } else if (task.adds) {
    const index other = row + column;
    for_each_value(task, [=](const Scalar* from, Scalar* to, const auto& lanes) {
      lanes.store(to, lanes.load(from) + lanes.load(from + other));
    });
  } else {
    const index other = row + column;
    for_each_value(task, [=](const Scalar* from, Scalar* to, const auto& lanes) {
      lanes.store(to, lanes.load(from) - lanes.load(from + other));
    });
  }
}

template <class Scalar>
void gather(const pair_task<Scalar>& task) noexcept {
  if (task.onto && task.adds) {
    for_each_value(task, [](const Scalar* from, Scalar* to, const auto& lanes) {
      lanes.store(to, lanes.load(to) + lanes.load(from));
    });
  } else if (task.onto) {
    for_each_value(task, [](const Scalar* from, Scalar* to, const auto& lanes) {
      lanes.store(to, lanes.load(to) - lanes.load(from));
    });
  } else if (task.bias != nullptr) {
    const Scalar* from = task.from;
    Scalar* to = task.to;
    for (index i = 0; i < task.count; ++i, from += task.from_step, to += task.to_step) {
      for_each_vector<Scalar>(task.values, [&](index n, const auto& lanes) {
        lanes.store(to + n, lanes.load(from + n) + lanes.load(task.bias + n));
      });
    }
  } else {
    for_each_value(task, [](const Scalar* from, Scalar* to, const auto& lanes) { lanes.store(to, lanes.load(from)); });
  }
}

template <class Scalar>
inline constexpr pair_kernels<Scalar> kernels{&spread<Scalar>, &gather<Scalar>};

}

#endif  // PERGRAD_KERNELS
