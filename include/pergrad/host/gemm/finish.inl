// SPDX-License-Identifier: Apache-2.0
// pergrad/host/gemm/finish.inl - one target's code for the finished sums of a register block: store, add, bias, squares
//
// A source like host/gemm/micro_kernel.inl, whose head says what that means.
#if defined(PERGRAD_KERNELS)

namespace pergrad::inline v0_1::on_host::PERGRAD_KERNELS::gemm {

/// What `How` does with one vector of sums: see host/gemm/epilogue.hpp.
template <epilogue::kind How, class Scalar, class Lanes>
inline void finish_vector(const Scalar* sums, Scalar* out, const Scalar* bias, const Lanes& lanes) noexcept {
  using epilogue::kind;
  if constexpr (How == kind::add) {
    lanes.store(out, lanes.load(out) + load(sums));
  } else if constexpr (How == kind::store_bias) {
    lanes.store(out, load(sums) + lanes.load(bias));
  } else {
    lanes.store(out, load(sums));
  }
}

/// value^2, rounded: no compiler fuses this product with an addition behind it instead of the addition's own.
template <class Scalar>
[[nodiscard, gnu::always_inline]] inline vector<Scalar> square_of(vector<Scalar> value) noexcept {
  vector<Scalar> square = value * value;
#if defined(__x86_64__)
  __asm__("" : "+v"(square));
#elif defined(__aarch64__)
  __asm__("" : "+w"(square));
#endif
  return square;
}

/// sum + value^2
template <class Scalar>
[[nodiscard, gnu::always_inline]] inline vector<Scalar> with_square(vector<Scalar> sum, vector<Scalar> value) noexcept {
  return multiply_add(value, value, sum);
}

/// The squares of four vectors in a row added up.
template <class Scalar>
[[nodiscard, gnu::always_inline]] inline vector<Scalar> four_squares(const Scalar* from) noexcept {
  constexpr std::size_t lanes = vector_lanes<Scalar>;
  vector<Scalar> four = square_of<Scalar>(load(from));
  four = with_square<Scalar>(four, load(from + lanes));
  four = with_square<Scalar>(four, load(from + 2 * lanes));
  return with_square<Scalar>(four, load(from + 3 * lanes));
}

/// Adds `value` to vectors of double, by halves where lanes are narrower. They go through memory: of taking a register
/// apart g++ 12 makes several instructions.
template <class Scalar>
[[gnu::always_inline]] inline void add_widened(vector<double> (&sums)[2], vector<Scalar> value) noexcept {
  if constexpr (sizeof(Scalar) == sizeof(double)) {
    sums[0] += value;
  } else {
    alignas(vector_bytes) Scalar lanes[vector_lanes<Scalar>];
    store(lanes, value);
    sums[0] += widen(load_narrow(lanes));
    sums[1] += widen(load_narrow(lanes + vector_lanes<double>));
  }
}

/// The squares of the sums added up: sixteen vectors as four times four in Scalar, those sums in double
/// (host/gemm/epilogue.hpp says what that keeps, docs/internals/tricks.md what it gains). A vector at a row's end that
/// is not whole counts with the others' lanes as 0, whatever they hold.
template <class Scalar>
[[nodiscard, gnu::noinline]] double squares(const product_detail::finish_task<Scalar>& task) noexcept {
  constexpr std::size_t lanes = vector_lanes<Scalar>;
  const bool whole = task.last == lanes;
  const bool joined = task.stored && whole && task.step == static_cast<std::ptrdiff_t>(task.vectors * lanes);
  const std::size_t rows = joined ? 1 : task.rows;
  const std::size_t in_row = (whole ? task.vectors : task.vectors - 1) * (joined ? task.rows : 1);
  const first_lanes<Scalar> last{task.last};
  vector<double> sums[2]{};
  for (std::size_t row = 0; row < rows; ++row) {
    const Scalar* here =
        task.stored ? task.out + static_cast<std::ptrdiff_t>(row) * task.step : task.sums + task.sum_offset[row];
    std::size_t left = in_row;
    for (; left >= 16; left -= 16, here += 16 * lanes) {
      add_widened<Scalar>(sums, (four_squares(here) + four_squares(here + 4 * lanes)) +
                                    (four_squares(here + 8 * lanes) + four_squares(here + 12 * lanes)));
    }
    for (; left >= 4; left -= 4, here += 4 * lanes) add_widened<Scalar>(sums, four_squares(here));
    if (left == 0 && whole) continue;
    vector<Scalar> rest = {};
    for (; left > 0; --left, here += lanes) rest = with_square<Scalar>(rest, load(here));
    if (!whole) rest = with_square<Scalar>(rest, last.load(here));
    add_widened<Scalar>(sums, rest);
  }
  const vector<double> both = sums[0] + sums[1];
  double total = 0;
  for (std::size_t lane = 0; lane < vector_lanes<double>; ++lane) total += both[lane];
  if constexpr (sizeof(Scalar) < sizeof(double)) {
    if (!(total >= least_squares_in_float && total <= limits::largest<double>)) {
      return product_detail::squares_one_by_one(task, (task.vectors - 1) * lanes + task.last);
    }
  }
  return total;
}

/// Hands the sums of a register block, row by row, to `finish_vector`.
template <epilogue::kind How, class Scalar>
inline void finish_rows(const product_detail::finish_task<Scalar>& task) noexcept {
  constexpr std::size_t lanes = vector_lanes<Scalar>;
  const std::size_t whole = task.last == lanes ? task.vectors : task.vectors - 1;
  const first_lanes<Scalar> last{task.last};
  const Scalar* sums = task.sums;
  for (std::size_t row = 0; row < task.rows; ++row) {
    Scalar* out = task.out + task.row_offset[row];
    const Scalar* bias = task.bias;
    for (std::size_t left = whole; left > 0; --left) {
      finish_vector<How>(sums, out, bias, all_lanes<Scalar>{});
      sums += lanes;
      out += lanes;
      if constexpr (How == epilogue::kind::store_bias) bias += lanes;
    }
    if (whole < task.vectors) {
      finish_vector<How>(sums, out, bias, last);
      sums += lanes;
    }
  }
}

template <class Scalar>
void finish(const product_detail::finish_task<Scalar>& task) noexcept {
  using epilogue::kind;
  const kind what = task.how.what;
  if (what == kind::squares_only || what == kind::squares_store) {
    *task.how.squares += squares(task);
    if (what == kind::squares_only || task.stored) return;
  }
  if (what == kind::add) {
    finish_rows<kind::add>(task);
  } else if (what == kind::store_bias) {
    finish_rows<kind::store_bias>(task);
  } else {
    finish_rows<kind::store>(task);
  }
}

}

#endif  // PERGRAD_KERNELS
