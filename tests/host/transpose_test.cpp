// SPDX-License-Identifier: Apache-2.0
// tests/host/transpose_test.cpp - every size around the vectors' lengths, next to an element-by-element transpose
#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <vector>

#include <pergrad/host/gemm/transpose.hpp>

BOOST_AUTO_TEST_SUITE(transpose)

namespace {

using pergrad::on_host::index;

/// Turns numbered matrices with gaps between their rows; -1 marks what must not be touched.
template <class Scalar>
void check(index rows, index columns) {
  const index from_step = columns + 3;
  const index to_step = rows + 2;
  std::vector<Scalar> from(static_cast<std::size_t>(rows * from_step), Scalar{-7});
  for (index r = 0; r < rows; ++r) {
    for (index c = 0; c < columns; ++c)
      from[static_cast<std::size_t>(r * from_step + c)] = static_cast<Scalar>(r * 100 + c);
  }
  std::vector<Scalar> expected(static_cast<std::size_t>(columns * to_step), Scalar{-1});
  std::vector<Scalar> found = expected;
  std::vector<Scalar> expected_sum(expected.size(), Scalar{1});
  std::vector<Scalar> found_sum = expected_sum;
  std::vector<Scalar> expected_more(expected.size(), Scalar{-1});
  std::vector<Scalar> found_more = expected_more;
  std::vector<Scalar> more;
  for (index r = 0; r < rows; ++r) more.push_back(static_cast<Scalar>(r * r));
  for (index r = 0; r < rows; ++r) {
    for (index c = 0; c < columns; ++c) {
      const auto to = static_cast<std::size_t>(c * to_step + r);
      expected[to] = from[static_cast<std::size_t>(r * from_step + c)];
      expected_sum[to] += expected[to];
      expected_more[to] = expected[to] + more[static_cast<std::size_t>(r)];
    }
  }
  pergrad::on_host::transpose(from.data(), from_step, rows, columns, found.data(), to_step);
  pergrad::on_host::transpose_add(from.data(), from_step, rows, columns, found_sum.data(), to_step);
  pergrad::on_host::transpose_plus(from.data(), from_step, rows, columns, found_more.data(), to_step,
                                   static_cast<const Scalar*>(more.data()));
  BOOST_TEST(found_more == expected_more, "transpose_plus of " << rows << " x " << columns);
  BOOST_TEST(found == expected, "transpose of " << rows << " x " << columns);
  BOOST_TEST(found_sum == expected_sum, "transpose_add of " << rows << " x " << columns);
}

template <class Scalar>
void check_all() {
  for (const index rows : {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 50}) {
    for (const index columns : {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 50}) check<Scalar>(rows, columns);
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(floats_of_any_size) { check_all<float>(); }
BOOST_AUTO_TEST_CASE(doubles_of_any_size) { check_all<double>(); }

BOOST_AUTO_TEST_SUITE_END()
