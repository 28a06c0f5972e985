// SPDX-License-Identifier: Apache-2.0
// tests/host/product_test.cpp - the host's matrix product against its definition: values, bits, and bytes it may not
// touch
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <tuple>
#include <type_traits>
#include <vector>

#include <pergrad/host/gemm/product.hpp>

#include "comparing.hpp"
#include "kernel_fixture.hpp"

BOOST_AUTO_TEST_SUITE(product)

namespace {

namespace on_host = pergrad::on_host;
using comparing::same_bits;
using kernel_fixture::each_row;
using kernel_fixture::each_term;
using kernel_fixture::error_of_squares;
using scalars = std::tuple<float, double>;

constexpr std::uint32_t seed = 20'240'607;

/// Elements that the operands must have, counted from their first.
struct sizes {
  std::size_t left = 0;
  std::size_t right = 0;
  std::size_t out = 0;
};

sizes sizes_of(const on_host::product_shape& shape) {
  std::ptrdiff_t row_left = 0;
  std::ptrdiff_t row_out = 0;
  std::ptrdiff_t term_left = 0;
  std::ptrdiff_t term_right = 0;
  each_row(shape, [&](std::ptrdiff_t left, std::ptrdiff_t out) {
    row_left = std::max(row_left, left);
    row_out = std::max(row_out, out);
  });
  each_term(shape, [&](std::ptrdiff_t left, std::ptrdiff_t right) {
    term_left = std::max(term_left, left);
    term_right = std::max(term_right, right);
  });
  return {static_cast<std::size_t>(row_left + term_left + 1), static_cast<std::size_t>(term_right + shape.columns),
          static_cast<std::size_t>(row_out + shape.columns)};
}

/// Exactly `size` elements with nothing behind them, so that a sanitizer sees an access one element too far.
template <class Scalar>
class exact {
 public:
  explicit exact(std::size_t size) : size_{size}, values_{std::make_unique<Scalar[]>(size)} {}
  exact(std::size_t size, std::mt19937& random) : exact(size) {
    std::uniform_real_distribution<Scalar> uniform{Scalar{-1}, Scalar{1}};
    std::generate(begin(), end(), [&] { return uniform(random); });
  }
  [[nodiscard]] Scalar* begin() const { return values_.get(); }
  [[nodiscard]] Scalar* end() const { return values_.get() + size_; }
  [[nodiscard]] Scalar& operator[](std::size_t index) const { return values_[index]; }
  [[nodiscard]] Scalar& operator[](std::ptrdiff_t index) const { return values_[static_cast<std::size_t>(index)]; }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  std::size_t size_;
  std::unique_ptr<Scalar[]> values_;
};

/// The sum by its definition in double (long double for doubles), and what rounding may move it by.
template <class Scalar>
struct reference {
  using wide = std::conditional_t<std::is_same_v<Scalar, float>, double, long double>;
  wide sum = 0;
  wide magnitude = 0;
  std::size_t terms = 0;

  reference(const on_host::product_shape& shape, const Scalar* left, const Scalar* right) {
    each_term(shape, [&](std::ptrdiff_t left_offset, std::ptrdiff_t right_offset) {
      const wide term = static_cast<wide>(left[left_offset]) * static_cast<wide>(right[right_offset]);
      sum += term;
      magnitude += term < 0 ? -term : term;
      ++terms;
    });
  }
  /// Higham, "Accuracy and Stability of Numerical Algorithms", section 3.1: gamma_n times the sum of magnitudes.
  [[nodiscard]] wide bound() const {
    return static_cast<wide>(terms + 2) * static_cast<wide>(std::numeric_limits<Scalar>::epsilon()) * magnitude;
  }
};

template <class Wide, class Scalar>
bool close(Scalar got, Wide expected, Wide bound) {
  const Wide error = static_cast<Wide>(got) - expected;
  return (error < 0 ? -error : error) <= bound;
}

/// One of 1 .. most, small values more often.
std::ptrdiff_t extent_up_to(std::ptrdiff_t most, std::mt19937& random) {
  const auto high = std::uniform_int_distribution<std::ptrdiff_t>{1, most}(random);
  return std::uniform_int_distribution<std::ptrdiff_t>{1, high}(random);
}

on_host::product_shape random_shape(std::mt19937& random) {
  const auto stride = [&](std::ptrdiff_t most) {
    return std::uniform_int_distribution<std::ptrdiff_t>{0, most}(random);
  };
  on_host::product_shape shape;
  shape.columns = std::uniform_int_distribution<std::ptrdiff_t>{1, 70}(random);
  if (std::uniform_int_distribution<int>{0, 9}(random) == 0) {
    shape.columns += 100;
  }
  auto levels = std::uniform_int_distribution<int>{1, 4};
  const int row_levels = levels(random);
  std::ptrdiff_t out = shape.columns + stride(3);
  for (int level = 2; level > 2 - row_levels; --level) {
    on_host::rows& row = level < 0 ? shape.outer_row : shape.row[level];
    row.extent = extent_up_to(level == 2 ? 40 : level < 0 ? 3 : 5, random);
    row.left = stride(30);
    row.out = out;
    out = out * row.extent + stride(5);
  }
  const int reduce_levels = levels(random);
  for (int level = 2; level > 2 - reduce_levels; --level) {
    (level < 0 ? shape.outer_reduce : shape.reduce[level]) = {extent_up_to(level == 2  ? 30
                                                                           : level < 0 ? 3
                                                                                       : 5,
                                                                           random),
                                                              stride(40), stride(80)};
  }
  return shape;
}

/// Rows side by side on the left, as of weight gradients; the output with and without gaps.
on_host::product_shape rows_side_by_side(std::mt19937& random) {
  const auto up_to = [&](std::ptrdiff_t most) {
    return std::uniform_int_distribution<std::ptrdiff_t>{0, most}(random);
  };
  on_host::product_shape shape = random_shape(random);
  shape.columns = 8 * (1 + up_to(7)) + (up_to(3) == 0 ? up_to(7) : 0);
  shape.row[2].extent = up_to(2) == 0 ? 64 : 1 + up_to(140);
  shape.row[2].left = 1;
  std::ptrdiff_t out = shape.columns + (up_to(1) == 0 ? 0 : up_to(3));
  for (on_host::rows* row : {&shape.row[2], &shape.row[1], &shape.row[0], &shape.outer_row}) {
    row->out = out;
    out = out * row->extent + (up_to(1) == 0 ? 0 : up_to(5));
  }
  return shape;
}

/// Elements of `out` that the product owns; the rest is poison that must survive.
template <class Scalar>
std::vector<bool> owned(const on_host::product_shape& shape, const exact<Scalar>& out) {
  std::vector<bool> mine(out.size(), false);
  each_row(shape, [&](std::ptrdiff_t /*left*/, std::ptrdiff_t offset) {
    for (std::ptrdiff_t column = 0; column < shape.columns; ++column) {
      mine[static_cast<std::size_t>(offset + column)] = true;
    }
  });
  return mine;
}

}  // namespace

BOOST_AUTO_TEST_CASE_TEMPLATE(every_epilogue_follows_the_definition, Scalar, scalars) {
  using wide = typename reference<Scalar>::wide;
  BOOST_TEST_MESSAGE("seed " << seed);
  std::mt19937 random{seed};
  for (int round = 0; round < 500; ++round) {
    const on_host::product_shape shape = round < 400 ? random_shape(random) : rows_side_by_side(random);
    const sizes size = sizes_of(shape);
    const exact<Scalar> left(size.left, random);
    const exact<Scalar> right(size.right, random);
    const exact<Scalar> bias(static_cast<std::size_t>(shape.columns), random);
    const exact<Scalar> before(size.out, random);
    const exact<Scalar> stored(size.out);
    const exact<Scalar> added(size.out);
    const exact<Scalar> biased(size.out);
    const exact<Scalar> squared(size.out);
    for (const exact<Scalar>* out : {&stored, &added, &biased, &squared}) {
      std::copy(before.begin(), before.end(), out->begin());
    }
    on_host::epilogue::squares_store<Scalar> squares_stored;
    on_host::epilogue::squares_only<Scalar> squares_only;
    on_host::product(shape, left.begin(), right.begin(), stored.begin());
    on_host::product(shape, left.begin(), right.begin(), added.begin(), on_host::epilogue::add{});
    on_host::product(shape, left.begin(), right.begin(), biased.begin(),
                     on_host::epilogue::store_bias<Scalar>{bias.begin()});
    on_host::product(shape, left.begin(), right.begin(), squared.begin(), squares_stored);
    on_host::product(shape, left.begin(), right.begin(), static_cast<Scalar*>(nullptr), squares_only);

    std::size_t wrong = 0;
    wide squares = 0;
    const auto ulp = static_cast<wide>(std::numeric_limits<Scalar>::epsilon());
    each_row(shape, [&](std::ptrdiff_t row_left, std::ptrdiff_t row_out) {
      for (std::ptrdiff_t column = 0; column < shape.columns; ++column) {
        const reference<Scalar> expected(shape, left.begin() + row_left, right.begin() + column);
        const std::ptrdiff_t at = row_out + column;
        const wide old = static_cast<wide>(before[at]);
        const wide bound = expected.bound();
        wrong += close(stored[at], expected.sum, bound) ? 0U : 1U;
        wrong += close(added[at], old + expected.sum, bound + 2 * ulp) ? 0U : 1U;
        wrong += close(biased[at], expected.sum + static_cast<wide>(bias[column]), bound + 2 * ulp) ? 0U : 1U;
        squares += static_cast<wide>(stored[at]) * static_cast<wide>(stored[at]);
      }
    });
    BOOST_TEST(wrong == 0U);
    BOOST_TEST(same_bits(stored, squared));
    BOOST_TEST(close(squares_stored.sum(), squares, squares * static_cast<wide>(error_of_squares<Scalar>)));
    BOOST_TEST(close(squares_only.sum(), squares, squares * static_cast<wide>(error_of_squares<Scalar>)));

    const std::vector<bool> mine = owned(shape, before);
    std::size_t trampled = 0;
    for (std::size_t index = 0; index < mine.size(); ++index) {
      for (const exact<Scalar>* out : {&stored, &added, &biased, &squared}) {
        trampled += !mine[index] && (*out)[index] != before[index] ? 1U : 0U;
      }
    }
    BOOST_TEST(trampled == 0U);
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(every_tile_size_is_right, Scalar, scalars) {
  std::mt19937 random{seed + 1};
  for (std::ptrdiff_t row_count = 1; row_count <= 40; ++row_count) {
    for (std::ptrdiff_t columns = 1; columns <= 70; ++columns) {
      on_host::product_shape shape{{{}, {}, {row_count, 1, columns}}, {{}, {}, {3, 2, columns}}, columns};
      const sizes size = sizes_of(shape);
      const exact<Scalar> left(size.left, random);
      const exact<Scalar> right(size.right, random);
      const exact<Scalar> out(size.out);
      on_host::product(shape, left.begin(), right.begin(), out.begin());
      std::size_t wrong = 0;
      for (std::ptrdiff_t row = 0; row < row_count; ++row) {
        for (std::ptrdiff_t column = 0; column < columns; ++column) {
          const reference<Scalar> expected(shape, left.begin() + row, right.begin() + column);
          wrong += close(out[row * columns + column], expected.sum, expected.bound()) ? 0U : 1U;
        }
      }
      BOOST_TEST(wrong == 0U);
    }
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(bits_do_not_depend_on_blocks_of_terms, Scalar, scalars) {
  // Products whose right operand spans more than a megabyte are formed in blocks; single rows of them never are.
  using on_host::product_detail::fewest_rows_to_block;
  using on_host::product_detail::least_bytes_to_block;
  const on_host::product_shape shapes[] = {
      {{{}, {}, {300, 3, 75}}, {{}, {}, {700, 1, 400}}, 75},                           // cuts the innermost loop
      {{{}, {7, 50, 3000}, {41, 1, 64}}, {{}, {23, 90, 31 * 400}, {31, 2, 400}}, 64},  // the middle one
      {{{2, 9, 9000}, {5, 4, 1500}, {33, 1, 40}},                                      // the outer one
       {{11, 5, 6 * 13 * 320}, {6, 30, 13 * 320}, {13, 1, 320}},
       40},
      {{{3, 100, 12000}, {5, 20, 2000}, {13, 1, 141}},  // the outermost one, in the widest tiles
       {{2, 70, 9 * 200}, {3, 7, 3 * 200}, {3, 1, 200}},
       141,
       {2, 11, 40000},
       {80, 3, 18 * 200}},
  };
  std::mt19937 random{seed + 9};
  for (const on_host::product_shape& shape : shapes) {
    const sizes size = sizes_of(shape);
    const exact<Scalar> left(size.left, random);
    const exact<Scalar> right(size.right, random);
    BOOST_TEST(size.right * sizeof(Scalar) > static_cast<std::size_t>(least_bytes_to_block));
    BOOST_TEST(static_cast<std::size_t>(shape.row[2].extent * shape.row[1].extent) >= fewest_rows_to_block);
    const exact<Scalar> whole(size.out);
    const exact<Scalar> by_row(size.out);
    const exact<Scalar> added(size.out);
    on_host::epilogue::squares_store<Scalar> squares;
    on_host::product(shape, left.begin(), right.begin(), whole.begin(), squares);
    on_host::product(shape, left.begin(), right.begin(), added.begin(), on_host::epilogue::add{});

    on_host::product_shape one_row = shape;
    std::fill(one_row.row, one_row.row + 3, on_host::rows{});
    one_row.outer_row = on_host::rows{};
    double expected = 0;
    each_row(shape, [&](std::ptrdiff_t row_left, std::ptrdiff_t row_out) {
      on_host::product(one_row, left.begin() + row_left, right.begin(), by_row.begin() + row_out);
      for (std::ptrdiff_t column = 0; column < shape.columns; ++column) {
        expected += static_cast<double>(by_row[row_out + column]) * static_cast<double>(by_row[row_out + column]);
      }
    });
    BOOST_TEST(same_bits(whole, by_row));
    BOOST_TEST(same_bits(added, by_row));  // to zeros
    BOOST_TEST(close(squares.sum(), expected, expected * error_of_squares<Scalar>));
    const reference<Scalar> first(shape, left.begin(), right.begin());
    BOOST_TEST(close(whole[std::ptrdiff_t{0}], first.sum, first.bound()));
  }
}

/// Rows and columns around those of register blocks and vectors, terms around those of a block, loops of positions.
BOOST_AUTO_TEST_CASE_TEMPLATE(a_transposed_operand_gives_the_same_bits, Scalar, scalars) {
  std::mt19937 random{seed};
  for (const std::ptrdiff_t terms : {1, 7, 64, 129, 700}) {
    for (const std::ptrdiff_t columns : {1, 15, 64, 67, 130}) {
      for (const std::ptrdiff_t row_count : {1, 5, 33, 260}) {
        const std::ptrdiff_t row_of_right = terms + 3;
        on_host::product_shape shape{
            {{2, row_count * (terms + 1), row_count * columns}, {}, {row_count, terms + 1, columns}},
            {{}, {}, {terms, 1, columns}},
            columns};
        const exact<Scalar> left(static_cast<std::size_t>(2 * row_count * (terms + 1)), random);
        const exact<Scalar> turned(static_cast<std::size_t>((columns - 1) * row_of_right + terms), random);
        const exact<Scalar> bias(static_cast<std::size_t>(columns), random);
        exact<Scalar> right(static_cast<std::size_t>(terms * columns));
        for (std::ptrdiff_t k = 0; k < terms; ++k) {
          for (std::ptrdiff_t n = 0; n < columns; ++n) right[k * columns + n] = turned[n * row_of_right + k];
        }
        const auto size = static_cast<std::size_t>(2 * row_count * columns);
        exact<Scalar> wanted(size, random);
        exact<Scalar> found(size);
        std::copy(wanted.begin(), wanted.end(), found.begin());
        on_host::product_shape of_turned = shape;
        of_turned.reduce[2].right = 1;
        of_turned.right_column = row_of_right;
        for (const int epilogue : {0, 1, 2}) {
          const Scalar* const added = epilogue == 1 ? bias.begin() : nullptr;
          on_host::write_product<Scalar>(shape, left.begin(), right.begin(), wanted.begin(), added, epilogue == 2);
          on_host::write_product<Scalar>(of_turned, left.begin(), turned.begin(), found.begin(), added, epilogue == 2);
          BOOST_TEST(std::equal(found.begin(), found.end(), wanted.begin()),
                     terms << " terms, " << columns << " columns, " << row_count << " rows, epilogue " << epilogue);
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(bits_do_not_depend_on_the_tile, Scalar, scalars) {
  std::mt19937 random{seed + 2};
  for (int round = 0; round < 190; ++round) {
    const on_host::product_shape shape = round < 150 ? random_shape(random) : rows_side_by_side(random);
    const sizes size = sizes_of(shape);
    const exact<Scalar> left(size.left, random);
    const exact<Scalar> right(size.right, random);
    const exact<Scalar> whole(size.out);
    const exact<Scalar> by_row(size.out);
    const exact<Scalar> by_column(size.out);
    const exact<Scalar> by_block(size.out);
    const exact<Scalar> coalesced(size.out);
    on_host::product(shape, left.begin(), right.begin(), whole.begin());
    on_host::product(on_host::coalesce(shape), left.begin(), right.begin(), coalesced.begin());

    on_host::product_shape one_row = shape;
    std::fill(one_row.row, one_row.row + 3, on_host::rows{});
    one_row.outer_row = on_host::rows{};
    each_row(shape, [&](std::ptrdiff_t row_left, std::ptrdiff_t row_out) {
      on_host::product(one_row, left.begin() + row_left, right.begin(), by_row.begin() + row_out);
    });

    on_host::product_shape one_column = shape;
    one_column.columns = 1;
    for (std::ptrdiff_t column = 0; column < shape.columns; ++column) {
      on_host::product(one_column, left.begin(), right.begin() + column, by_column.begin() + column);
    }

    const auto cut_column = std::uniform_int_distribution<std::ptrdiff_t>{0, shape.columns}(random);
    const auto cut_row = std::uniform_int_distribution<std::ptrdiff_t>{0, shape.row[2].extent}(random);
    for (const bool low_rows : {true, false}) {
      for (const bool low_columns : {true, false}) {
        on_host::product_shape block = shape;
        block.row[2].extent = low_rows ? cut_row : shape.row[2].extent - cut_row;
        block.columns = low_columns ? cut_column : shape.columns - cut_column;
        const std::ptrdiff_t row = low_rows ? 0 : cut_row;
        const std::ptrdiff_t column = low_columns ? 0 : cut_column;
        on_host::product(block, left.begin() + row * shape.row[2].left, right.begin() + column,
                         by_block.begin() + row * shape.row[2].out + column);
      }
    }
    BOOST_TEST(same_bits(whole, coalesced));
    BOOST_TEST(same_bits(whole, by_row));
    BOOST_TEST(same_bits(whole, by_column));
    BOOST_TEST(same_bits(whole, by_block));
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(each_sum_is_one_chain_in_order, Scalar, scalars) {
  std::mt19937 random{seed + 3};
  const on_host::product_shape shape{{{}, {3, 7, 5 * 23}, {5, 1, 23}}, {{2, 3, 200}, {3, 5, 70}, {7, 1, 23}}, 23};
  const sizes size = sizes_of(shape);
  const exact<Scalar> left(size.left, random);
  const exact<Scalar> right(size.right, random);
  const exact<Scalar> out(size.out);
  on_host::product(shape, left.begin(), right.begin(), out.begin());
  std::size_t fused = 0;
  std::size_t unfused = 0;
  std::size_t count = 0;
  each_row(shape, [&](std::ptrdiff_t row_left, std::ptrdiff_t row_out) {
    for (std::ptrdiff_t column = 0; column < shape.columns; ++column) {
      Scalar with_fma = 0;
      Scalar without = 0;
      each_term(shape, [&](std::ptrdiff_t term_left, std::ptrdiff_t term_right) {
        const Scalar one = left[row_left + term_left];
        const Scalar other = right[term_right + column];
        with_fma = std::fma(one, other, with_fma);
        volatile Scalar rounded = one * other;
        without = without + rounded;
      });
      fused += out[row_out + column] == with_fma ? 1U : 0U;
      unfused += out[row_out + column] == without ? 1U : 0U;
      ++count;
    }
  });
  BOOST_TEST((fused == count || unfused == count));  // which of the two is the compiler's choice, but one for all
}

BOOST_AUTO_TEST_CASE_TEMPLATE(lanes_beyond_the_columns_never_count, Scalar, scalars) {
  // 0 * x is not 0 when x is infinite, so a dead lane may hold anything: it must reach neither memory nor the squares.
  const auto infinity = std::numeric_limits<Scalar>::infinity();
  for (std::ptrdiff_t columns = 1; columns <= 40; ++columns) {
    const on_host::product_shape shape{{{}, {}, {2, 1, columns}}, {{}, {}, {1, 1, columns}}, columns};
    const exact<Scalar> left(2);
    left[std::size_t{0}] = 1;
    left[std::size_t{1}] = infinity;
    const exact<Scalar> right(static_cast<std::size_t>(columns));
    std::fill(right.begin(), right.end(), Scalar{1});
    on_host::epilogue::squares_only<Scalar> squares;
    on_host::product(shape, left.begin(), right.begin(), static_cast<Scalar*>(nullptr), squares);
    BOOST_TEST(squares.sum() == std::numeric_limits<double>::infinity());
  }
}

BOOST_AUTO_TEST_CASE(squares_of_floats_neither_overflow_nor_vanish) {
  for (const float value : {1e-30F, 1e30F, 3e38F, 1e-38F}) {
    for (std::ptrdiff_t columns : {1, 10, 16, 33, 100}) {
      const on_host::product_shape shape{{{}, {}, {13, 0, columns}}, {{}, {}, {1, 0, 0}}, columns};
      const exact<float> left(1);
      left[std::size_t{0}] = value;
      const exact<float> right(static_cast<std::size_t>(columns));
      std::fill(right.begin(), right.end(), 1.0F);
      on_host::epilogue::squares_only<float> squares;
      on_host::product(shape, left.begin(), right.begin(), static_cast<float*>(nullptr), squares);
      const double expected =
          static_cast<double>(value) * static_cast<double>(value) * 13.0 * static_cast<double>(columns);
      BOOST_TEST(squares.sum() > 0.0);
      BOOST_TEST(std::abs(squares.sum() - expected) <= 1e-12 * expected);
    }
  }
}

/// The sum of squares of 13 x 160 numbers, `first` and as often as there is room for `others`, by a product with ones.
double squares_of(float first, float others) {
  const on_host::product_shape shape{{{}, {}, {13, 1, 160}}, {{}, {}, {1, 0, 0}}, 160};
  const exact<float> left(13);
  std::fill(left.begin(), left.end(), 1.0F);
  const exact<float> right(160);
  std::fill(right.begin(), right.end(), others);
  right[std::size_t{0}] = first;
  const exact<float> out(std::size_t{13} * 160);
  on_host::epilogue::squares_store<float> squares;
  on_host::product(shape, left.begin(), right.begin(), out.begin(), squares);
  return squares.sum();
}

BOOST_AUTO_TEST_CASE(sums_of_squares_of_floats_do_not_drift) {
  // Added up in float throughout, 2067 times 1 would not change 13 times 1e10.
  const double bound = on_host::epilogue::error_of_squares_in_float;
  for (const float scale : {1.0F, 1e-10F, 1e-12F, 1e-15F, 1e-20F, 1e12F, 1e17F, 1e25F}) {
    for (const float first : {1.0F, 30.0F, 1e5F, 1e10F}) {
      const double large = static_cast<double>(first * scale) * static_cast<double>(first * scale);
      const double small = static_cast<double>(scale) * static_cast<double>(scale);
      const double expected = 13 * large + 13.0 * 159 * small;
      BOOST_TEST(std::abs(squares_of(first * scale, scale) - expected) <= bound * expected);
    }
  }
  const double spread = squares_of(1e5F, 1.0F) - 13e10;
  BOOST_TEST(spread > 0.9 * 13 * 159);
}

#if defined(__SSE__)
BOOST_AUTO_TEST_CASE(squares_do_not_vanish_where_subnormal_results_are_flushed_to_zero) {
  constexpr unsigned flush_to_zero = 0x8000;
  const unsigned before = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(before | flush_to_zero);
  const double tiny = squares_of(0x1p-70F, 0x1p-64F);
  const double mixed = squares_of(0x1p-40F, 0x1p-64F);
  __builtin_ia32_ldmxcsr(before);
  BOOST_TEST(tiny == 13 * 0x1p-140 + 13 * 159 * 0x1p-128);
  BOOST_TEST(std::abs(mixed - 13 * 0x1p-80) <= 1e-9 * 13 * 0x1p-80);
}
#endif

/// The same of one stretch, `first` among many others.
double squares_in_a_row(float first, float others, std::size_t count) {
  const exact<float> row(count);
  std::fill(row.begin(), row.end(), others);
  row[count / 2] = first;
  return on_host::squares(static_cast<const float*>(row.begin()), static_cast<std::ptrdiff_t>(count));
}

BOOST_AUTO_TEST_CASE(squares_of_a_row_are_half_as_far_off) {
  const double bound = on_host::epilogue::error_of_squares_in_float / 2;  // a norm by factors is a product of two
  for (const std::size_t count : {1U, 5U, 31U, 64U, 100U, 784U, 20011U}) {
    for (const float scale : {1.0F, 1e-10F, 1e-12F, 1e-15F, 1e-20F, 1e12F, 1e17F, 1e25F}) {
      for (const float first : {1.0F, 3.0F, 30.0F, 1e5F, 1e10F}) {
        const double large = static_cast<double>(first * scale) * static_cast<double>(first * scale);
        const double small = static_cast<double>(scale) * static_cast<double>(scale);
        const double expected = large + static_cast<double>(count - 1) * small;
        BOOST_TEST(std::abs(squares_in_a_row(first * scale, scale, count) - expected) <= bound * expected);
      }
    }
  }
  BOOST_TEST(std::isnan(squares_in_a_row(std::numeric_limits<float>::quiet_NaN(), 1, 100)));
  BOOST_TEST(std::isinf(squares_in_a_row(std::numeric_limits<float>::infinity(), 1, 100)));
}

#if defined(__SSE__)
BOOST_AUTO_TEST_CASE(squares_of_a_row_do_not_vanish_where_subnormal_results_are_flushed_to_zero) {
  constexpr unsigned flush_to_zero = 0x8000;
  const unsigned before = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(before | flush_to_zero);
  const double tiny = squares_in_a_row(0x1p-70F, 0x1p-64F, 20011);
  const double mixed = squares_in_a_row(0x1p-40F, 0x1p-64F, 20011);
  __builtin_ia32_ldmxcsr(before);
  BOOST_TEST(tiny == 0x1p-140 + 20010 * 0x1p-128);
  BOOST_TEST(std::abs(mixed - 0x1p-80) <= 1e-9 * 0x1p-80);
}
#endif

BOOST_AUTO_TEST_CASE(squares_add_up_over_several_products) {
  const on_host::product_shape shape{{{}, {}, {1, 0, 0}}, {{}, {}, {1, 0, 0}}, 3};
  const float left = 2.0F;
  const float right[3] = {1.0F, 2.0F, 3.0F};
  float out[3] = {};
  on_host::epilogue::squares_store<float> squares;
  on_host::product(shape, &left, right, out, squares);
  on_host::product(shape, &left, right, out, squares);
  BOOST_TEST(squares.sum() == 2.0 * 4.0 * 14.0);
  BOOST_TEST(out[2] == 6.0F);
}

BOOST_AUTO_TEST_CASE(empty_products) {
  const float left[4] = {1.0F, 2.0F, 3.0F, 4.0F};
  const float right[4] = {1.0F, 2.0F, 3.0F, 4.0F};
  float out[4] = {9.0F, 9.0F, 9.0F, 9.0F};
  on_host::product({{{}, {}, {0, 1, 1}}, {{}, {}, {2, 1, 1}}, 2}, left, right, out);
  on_host::product({{{}, {}, {2, 1, 1}}, {{}, {}, {2, 1, 1}}, 0}, left, right, out);
  BOOST_TEST(out[0] == 9.0F);
  for (int level = 0; level < 4; ++level) {
    on_host::product_shape nothing{{{}, {}, {1, 1, 2}}, {{2, 1, 1}, {2, 1, 1}, {2, 1, 1}}, 2, {}, {2, 1, 1}};
    (level == 3 ? nothing.outer_reduce : nothing.reduce[level]).extent = 0;
    out[0] = out[1] = 9.0F;
    on_host::product(nothing, left, right, out);
    BOOST_TEST(out[0] == 0.0F);
    BOOST_TEST(out[1] == 0.0F);
    BOOST_TEST(out[2] == 9.0F);
  }
}

BOOST_AUTO_TEST_CASE(coalesce_joins_what_is_one_loop) {
  // A 1x1 convolution on an unpadded 6x6 image with 4 channels is one loop each way.
  constexpr on_host::product_shape pointwise{{{}, {6, 24, 48}, {6, 4, 8}}, {{}, {}, {4, 1, 8}}, 8};
  static_assert(on_host::coalesce(pointwise) == on_host::product_shape{{{}, {}, {36, 4, 8}}, {{}, {}, {4, 1, 8}}, 8});
  // A padded one is not, and its loops keep their order.
  constexpr on_host::product_shape padded{{{}, {6, 32, 48}, {6, 4, 8}}, {{3, 32, 96}, {3, 4, 32}, {4, 1, 8}}, 8};
  static_assert(on_host::coalesce(padded) ==
                on_host::product_shape{{{}, {6, 32, 48}, {6, 4, 8}}, {{}, {3, 32, 96}, {12, 1, 8}}, 8});
  // Loops of extent 1 vanish wherever they are.
  constexpr on_host::product_shape outer_only{{{5, 3, 7}, {}, {}}, {{5, 3, 7}, {}, {}}, 8};
  static_assert(on_host::coalesce(outer_only) == on_host::product_shape{{{}, {}, {5, 3, 7}}, {{}, {}, {5, 3, 7}}, 8});
  constexpr on_host::product_shape all_three{{{2, 12, 12}, {3, 4, 4}, {4, 1, 1}}, {{}, {}, {}}, 1};
  static_assert(on_host::coalesce(all_three) == on_host::product_shape{{{}, {}, {24, 1, 1}}, {{}, {}, {}}, 1});
  // A volume's fourth loops: they stay where three are not enough, and vanish where they are.
  constexpr on_host::product_shape volume{
      {{3, 90, 70}, {4, 20, 16}, {5, 3, 2}}, {{2, 90, 40}, {3, 20, 12}, {2, 3, 4}}, 2, {6, 500, 300}, {2, 600, 200}};
  static_assert(on_host::coalesce(volume) == volume);
  constexpr on_host::product_shape no_planes{
      {{}, {4, 20, 16}, {5, 3, 2}}, {{}, {3, 20, 12}, {2, 3, 4}}, 2, {6, 500, 300}, {2, 600, 200}};
  static_assert(on_host::coalesce(no_planes) == on_host::product_shape{{{6, 500, 300}, {4, 20, 16}, {5, 3, 2}},
                                                                       {{2, 600, 200}, {3, 20, 12}, {2, 3, 4}},
                                                                       2});
  constexpr on_host::product_shape all_four{
      {{2, 12, 12}, {3, 4, 4}, {4, 1, 1}}, {{}, {}, {}}, 1, {3, 24, 24}, {5, 1, 1}};
  static_assert(on_host::coalesce(all_four) == on_host::product_shape{{{}, {}, {72, 1, 1}}, {{}, {}, {5, 1, 1}}, 1});
}

BOOST_AUTO_TEST_SUITE_END()
