// SPDX-License-Identifier: Apache-2.0
// tests/host/kernel_fixture.hpp - what tests of kernels share: the targets that run here, numbers that are the same
// everywhere, the places of a product, and how exact a sum of squares is
#pragma once

#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <pergrad/graph/layout.hpp>
#include <pergrad/host/gemm/epilogue.hpp>
#include <pergrad/host/gemm/product_shape.hpp>
#include <pergrad/simd/processor.hpp>

namespace kernel_fixture {

namespace on_host = pergrad::on_host;
using on_host::kernel_target;
using position = on_host::index;

inline constexpr kernel_target every_target[] = {kernel_target::baseline, kernel_target::avx2, kernel_target::avx512};

/// Lets a suite's cases run only where the program has the target and the processor can run it.
struct available {
  kernel_target target;
  boost::test_tools::assertion_result operator()(boost::unit_test::test_unit_id /*unit*/) const {
    boost::test_tools::assertion_result result{on_host::runs_here(target)};
    result.message() << "this program has no kernels " << name_of(target) << ", or the processor cannot run them";
    return result;
  }
};

/// While it lives, one target's kernels run.
class using_target {
 public:
  explicit using_target(kernel_target target) { BOOST_TEST_REQUIRE(on_host::use_kernel_target(target)); }
  using_target(const using_target&) = delete;
  using_target& operator=(const using_target&) = delete;
  ~using_target() { on_host::use_kernel_target(before_); }

 private:
  kernel_target before_ = on_host::kernel_target_in_use();
};

/// How far a sum of squares may be from the true one, relatively.
template <class Scalar>
inline constexpr double error_of_squares =
    std::is_same_v<Scalar, float> ? on_host::epilogue::error_of_squares_in_float : 1e-13;

[[nodiscard]] constexpr std::size_t number(position value) { return static_cast<std::size_t>(value); }

/// The same numbers with every standard library: in [-1, 1], or integers of at most 4, whose sums of products are
/// exact.
class numbers {
 public:
  explicit numbers(bool integers = false) : integers_{integers} {}
  template <class Scalar>
  [[nodiscard]] Scalar next() {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    const std::uint64_t bits = state_ >> 32U;
    if (integers_) return static_cast<Scalar>(static_cast<int>(bits % 9) - 4);
    return static_cast<Scalar>(static_cast<std::int32_t>(bits)) * static_cast<Scalar>(0x1p-31);
  }
  template <class Scalar>
  [[nodiscard]] std::vector<Scalar> several(std::size_t count) {
    std::vector<Scalar> values(count);
    for (Scalar& value : values) value = next<Scalar>();
    return values;
  }

 private:
  bool integers_;
  std::uint64_t state_ = 20'240'607;
};

/// Calls visit(first offset, second offset) for every place of four loops, in order.
template <class Loop, class Visit>
void each_place(const Loop& outermost, const Loop (&loops)[3], position Loop::*first, position Loop::*second,
                Visit visit) {
  for (position i = 0; i < outermost.extent; ++i) {
    for (position j = 0; j < loops[0].extent; ++j) {
      for (position k = 0; k < loops[1].extent; ++k) {
        for (position l = 0; l < loops[2].extent; ++l) {
          visit(i * outermost.*first + j * loops[0].*first + k * loops[1].*first + l * loops[2].*first,
                i * outermost.*second + j * loops[0].*second + k * loops[1].*second + l * loops[2].*second);
        }
      }
    }
  }
}
/// Calls visit(row's offset in left, row's offset in out).
template <class Visit>
void each_row(const on_host::product_shape& shape, Visit visit) {
  each_place(shape.outer_row, shape.row, &on_host::rows::left, &on_host::rows::out, visit);
}
/// Calls visit(term's offset in left, term's offset in right).
template <class Visit>
void each_term(const on_host::product_shape& shape, Visit visit) {
  each_place(shape.outer_reduce, shape.reduce, &on_host::loop::left, &on_host::loop::right, visit);
}

}  // namespace kernel_fixture
