// SPDX-License-Identifier: Apache-2.0
// pergrad/host/gemm/micro_kernel.inl - the micro-kernels of one target: a few rows times a few vectors of sums in
// registers
//
// Included once for every target that a program has (simd/multi_target.inl), each time into another namespace,
// with the macros of simd/vector.inl defined, behind the vectors of its width and under the target's pragma;
// without them it is empty. A function has the target of the place where it is defined. So whatever has vectors in its
// code or among its arguments is defined here or in simd/vector.inl, in the target's namespace: what is defined
// elsewhere is compiled for the baseline, where vectors of this width are taken apart and passed in another way.
//
// A register block of rows x vectors of sums stays in registers for the whole reduction (the "outer product"
// micro-kernel of Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", ACM TOMS 34(3), 2008):
// each step of the reduction reads `vectors` vectors on the right, broadcasts `rows` numbers from the left and does
// rows*vectors multiply-adds. The rows of a register block are addressed by a table of offsets, so a register block may
// span any number of short row loops.
#if defined(PERGRAD_KERNELS)

namespace pergrad::inline v0_1::on_host::PERGRAD_KERNELS::gemm {

/// Most rows of any register block: their offsets, two pointers, two steps and a count stay in general registers. A
/// baseline that only old processors run gets by with fewer, which compile sooner; 4 x 2 sums still hide the latency of
/// an addition.
inline constexpr std::size_t row_limit = is_fallback ? 4 : vector_registers == 32 && vector_bytes == 16 ? 10 : 9;

/// Vector registers of a register block that hold neither sums nor a row of `right`: one for the broadcast; g++ 12 for
/// aarch64 moves loads so far up that it wants more.
inline constexpr std::size_t spare_registers = vector_registers == 32 && vector_bytes == 16 ? 5 : 1;

/// Most rows of a register block that is `vectors` wide, so that nothing it uses leaves the registers.
constexpr std::size_t max_rows(std::size_t vectors) noexcept {
  const std::size_t fitting = (vector_registers - spare_registers) / vectors - 1;
  return fitting < 1 ? 1 : fitting < row_limit ? fitting : row_limit;
}

/// Has this number of rows a register block of its own? Others are formed by the next larger one, and a walk takes the
/// rows that a register block has where it can choose (blocks.hpp). What is left out costs little
/// (docs/internals/tricks.md): a step of fewer than 8 chains waits for their additions, so that 2 or 3 rows in narrow
/// register blocks take as long as 4, and 5 to 8 rows of one vector hardly less than 9. One row is what single samples
/// ask for.
constexpr bool has_register_block(std::size_t rows, std::size_t vectors) noexcept {
  if (rows == max_rows(vectors)) return true;
  if (is_fallback) return false;
  return rows == 1 || rows == 4 || (vectors == 2 ? rows % 2 == 0 && rows > 4 : vectors > 2 && rows == 2);
}
/// Rows of the smallest register block that forms so many.
constexpr std::size_t formed_for(std::size_t rows, std::size_t vectors) noexcept {
  while (!has_register_block(rows, vectors)) ++rows;
  return rows;
}

/// `value`, which stays in its register: in wide register blocks g++ would read it again from memory for every row of
/// the register block.
template <class Scalar>
[[nodiscard, gnu::always_inline]] inline vector<Scalar> held(vector<Scalar> value) noexcept {
#if PERGRAD_VECTOR_BYTES == 64
  __asm__("" : "+v"(value));
#endif
  return value;
}

/// Vector `Vector` of a row on the right. Only the last one of a row that is not whole is read under a mask: that costs
/// a slot of the units that multiply.
template <std::size_t Rows, std::size_t Vectors, std::size_t Vector, bool Whole, class Scalar>
[[nodiscard, gnu::always_inline]] inline vector<Scalar> across_of(const Scalar* right,
                                                                  const first_lanes<Scalar>& last) noexcept {
  if constexpr (Vector + 1 == Vectors && !Whole) {
    return last.load(right + Vector * vector_lanes<Scalar>);
  } else if constexpr (Rows > 1 && Vectors > 2) {
    return held<Scalar>(load(right + Vector * vector_lanes<Scalar>));
  } else {
    return load(right + Vector * vector_lanes<Scalar>);
  }
}

/// Has a register block a loop for rows whose last vector is not whole? Only narrow ones get such rows
/// (micro_kernels::choose).
constexpr bool has_partial_loop(std::size_t vectors) noexcept { return vectors <= 2; }

/// Has a register block a loop for rows of whole vectors? A mask takes a slot of the units that multiply.
constexpr bool has_whole_loop(std::size_t vectors) noexcept { return vector_bytes >= 32 || !has_partial_loop(vectors); }

/// The innermost reduction loop of `count` terms. Slot = row * Vectors + vector; every fold is over constants, so each
/// sum is a register of its own. Not a lambda: nvcc would make it code for the device as well.
template <std::size_t Rows, std::size_t Vectors, bool Whole, class Scalar, std::size_t... Vector, std::size_t... Slot>
[[gnu::always_inline]] inline void innermost(std::ptrdiff_t count,
                                             const product_detail::micro_kernel_task<Scalar>& task,
                                             const std::ptrdiff_t (&offset)[Rows], const first_lanes<Scalar>& last,
                                             const Scalar*& left_first, const Scalar*& right_first,
                                             vector<Scalar> (&sums)[Rows * Vectors], std::index_sequence<Vector...>,
                                             std::index_sequence<Slot...>) noexcept {
  const std::ptrdiff_t left_step = task.reduce[2].left;
  const std::ptrdiff_t right_step = task.reduce[2].right;
  const std::ptrdiff_t left_ahead = task.left_ahead;
  const std::ptrdiff_t right_ahead = task.right_ahead;
  const Scalar* left = left_first;
  const Scalar* right = right_first;
  for (; count > 0; --count) {
    const vector<Scalar> across[Vectors] = {across_of<Rows, Vectors, Vector, Whole>(right, last)...};
    if constexpr (Rows < row_limit) __builtin_prefetch(left + left_ahead);  // of most rows: a register is left
    if constexpr (Vectors > 2) __builtin_prefetch(right + right_ahead, 0, 2);
    vector<Scalar> down = {};
    ((down = Slot % Vectors == 0 ? splat(left[offset[Slot / Vectors]]) : down,
      sums[Slot] = multiply_add(down, across[Slot % Vectors], sums[Slot])),
     ...);
    left += left_step;
    right += right_step;
  }
  left_first = left;
  right_first = right;
}

/// The micro-kernel.
template <class Scalar, std::size_t Rows, std::size_t Vectors, class Row = std::make_index_sequence<Rows>,
          class Slot = std::make_index_sequence<Rows * Vectors>>
struct micro_kernel;

template <class Scalar, std::size_t Rows, std::size_t Vectors, std::size_t... Row, std::size_t... Slot>
struct micro_kernel<Scalar, Rows, Vectors, std::index_sequence<Row...>, std::index_sequence<Slot...>> {
  static void form(const product_detail::micro_kernel_task<Scalar>& task) noexcept {
    constexpr std::size_t lanes = vector_lanes<Scalar>;
    constexpr std::make_index_sequence<Vectors> across;
    constexpr std::index_sequence<Slot...> slots;
    const std::ptrdiff_t* const row_offset = task.row_offset;
    const std::ptrdiff_t offset[Rows] = {row_offset[Row]...};
    const first_lanes<Scalar> last{has_partial_loop(Vectors) ? task.last : lanes};
    vector<Scalar> sums[Rows * Vectors] = {};
    Scalar* const to = task.sums;
    const std::ptrdiff_t* const to_offset = task.sum_offset;
    Scalar* at = nullptr;
    if (task.resumes) {
      ((at = Slot % Vectors == 0 ? to + to_offset[Slot / Vectors] : at + lanes, sums[Slot] = load(at)), ...);
    }
    const Scalar* left = task.left;
    const Scalar* right = task.right;
    // Volatile: what only the outer loops need stays in memory and leaves the registers to the innermost loop.
    const volatile loop* const volatile reduce = task.reduce;
    const Scalar* volatile outer_left = left;
    const Scalar* volatile outer_right = right;
    const Scalar* volatile middle_left = left;
    const Scalar* volatile middle_right = right;
    volatile std::ptrdiff_t outermost = 0;
    volatile std::ptrdiff_t outer_count = reduce[0].extent;
    volatile std::ptrdiff_t middle_count = reduce[1].extent;
    for (;;) {
      const std::ptrdiff_t count = reduce[2].extent;
      if constexpr (!has_partial_loop(Vectors)) {
        innermost<Rows, Vectors, true>(count, task, offset, last, left, right, sums, across, slots);
      } else if (has_whole_loop(Vectors) && task.last == lanes) {
        innermost<Rows, Vectors, has_whole_loop(Vectors)>(count, task, offset, last, left, right, sums, across, slots);
      } else {
        innermost<Rows, Vectors, false>(count, task, offset, last, left, right, sums, across, slots);
      }
      middle_count = middle_count - 1;
      if (middle_count > 0) {
        left = middle_left + reduce[1].left;
        right = middle_right + reduce[1].right;
      } else {
        outer_count = outer_count - 1;
        if (outer_count > 0) {
          left = outer_left + reduce[0].left;
          right = outer_right + reduce[0].right;
        } else {
          outermost = outermost + 1;
          if (outermost >= reduce[3].extent) {
            break;
          }
          left = task.left + outermost * reduce[3].left;
          right = task.right + outermost * reduce[3].right;
          outer_count = reduce[0].extent;
        }
        outer_left = left;
        outer_right = right;
        middle_count = reduce[1].extent;
      }
      middle_left = left;
      middle_right = right;
    }
    ((at = Slot % Vectors == 0 ? to + to_offset[Slot / Vectors] : at + lanes, store(at, sums[Slot])), ...);
  }
};

/// The register blocks of one width, by their rows.
template <class Scalar, std::size_t Vectors, class Rows = std::make_index_sequence<max_rows(Vectors)>>
struct width;

template <class Scalar, std::size_t Vectors, std::size_t... Row>
struct width<Scalar, Vectors, std::index_sequence<Row...>> {
  static constexpr product_detail::micro_kernel_function<Scalar> by_rows[] = {
      &micro_kernel<Scalar, formed_for(Row + 1, Vectors), Vectors>::form...};
  static constexpr std::size_t formed[] = {formed_for(Row + 1, Vectors)...};
  static constexpr std::ptrdiff_t packed[] = {static_cast<std::ptrdiff_t>(Row * Vectors * vector_lanes<Scalar>)...};
  static constexpr product_detail::micro_kernel_width<Scalar> value{Vectors, sizeof...(Row), by_rows, formed, packed};
};

template <class Scalar>
inline constexpr product_detail::micro_kernels<Scalar> kernels{
    vector_lanes<Scalar>,
    {width<Scalar, 1>::value, width<Scalar, 2>::value, width<Scalar, is_fallback ? 2 : 4>::value,
     width<Scalar, is_fallback ? 2 : 8>::value},
    &finish<Scalar>};

}

#endif  // PERGRAD_KERNELS
