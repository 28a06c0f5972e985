// SPDX-License-Identifier: Apache-2.0
// tests/host/targets_test.cpp - every target of kernels that the program has: the bits of products, of pools and of
// noise
//
// Compiled twice: for this machine, where one target is left, and for any processor (one_binary_test), where all are.
// What this machine cannot run is skipped.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <pergrad/host/conv/kernels.hpp>
#include <pergrad/host/gemm/product.hpp>
#include <pergrad/layers/pools.hpp>
#include <pergrad/privacy/noise/rounded_gaussian.hpp>

#include "comparing.hpp"
#include "kernel_fixture.hpp"
#include "privacy/rounded_gaussian_golden.hpp"

BOOST_AUTO_TEST_SUITE(targets)

namespace {

using namespace kernel_fixture;
using comparing::same_bits;

/// Whether a target's kernels round a multiply-add once: where there is such an instruction that is the compiler's
/// choice (g++ takes it from -O2 on), but one for all.
template <class Scalar>
bool fuses(kernel_target target) {
  const using_target in_use{target};
  const Scalar left[] = {1, 1 + std::numeric_limits<Scalar>::epsilon()};
  const Scalar right[] = {-1, 1 - std::numeric_limits<Scalar>::epsilon()};
  Scalar out = 0;  // -1 + (1 - epsilon^2)
  on_host::product({{{}, {}, {1, 0, 0}}, {{}, {}, {2, 1, 1}}, 1}, left, right, &out);
#if !defined(__FMA__) && !defined(__aarch64__)
  BOOST_TEST((target != kernel_target::baseline || out == 0));
#endif
  return out != 0;
}

/// One of 1 .. most.
position up_to(position most, numbers& random) {
  return 1 + static_cast<position>((random.next<double>() + 1) / 2 * static_cast<double>(most));
}

template <class Scalar>
Scalar multiply_add(bool fused, Scalar a, Scalar b, Scalar c) {
  if (fused) return std::fma(a, b, c);
  const volatile Scalar product = a * b;
  return product + c;
}

/// Rows and terms in two loops each, so that tiles meet the end of a row loop.
on_host::product_shape shape_of(numbers& random, position row_count, position columns) {
  const position inner = up_to(row_count, random);
  const position outer = row_count / inner;
  on_host::product_shape shape;
  shape.columns = columns;
  shape.row[1] = {outer, up_to(9, random), inner * (columns + 1) + 2};
  shape.row[2] = {inner, up_to(5, random), columns + 1};
  shape.reduce[1] = {up_to(4, random), up_to(20, random), up_to(200, random)};
  shape.reduce[2] = {up_to(12, random), up_to(3, random), up_to(90, random)};
  return shape;
}

/// All sums by the definition, one chain of multiply-adds each, at their places in `out`.
template <class Scalar>
std::vector<Scalar> chains(const on_host::product_shape& shape, bool fused, const std::vector<Scalar>& left,
                           const std::vector<Scalar>& right, std::vector<Scalar> out) {
  each_row(shape, [&](position in_left, position in_out) {
    for (position column = 0; column < shape.columns; ++column) {
      Scalar sum = 0;
      each_term(shape, [&](position a, position b) {
        sum = multiply_add(fused, left[number(in_left + a)], right[number(b + column)], sum);
      });
      out[number(in_out + column)] = sum;
    }
  });
  return out;
}

/// Every bit of every epilogue's result, and nothing else written.
template <class Scalar>
void check_products(kernel_target target) {
  const using_target in_use{target};
  const bool fused = fuses<Scalar>(target);
  numbers random;
  for (position row_count = 1; row_count <= 40; ++row_count) {
    for (const position columns :
         {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 100, 128, 129, 200}) {
      const on_host::product_shape shape = shape_of(random, row_count, columns);
      const auto end = [](const auto&... loop) {
        return static_cast<std::size_t>((1 + ... + ((loop.extent - 1) * loop.left)));
      };
      const auto left = random.several<Scalar>(end(shape.row[1], shape.row[2], shape.reduce[1], shape.reduce[2]));
      const auto right = random.several<Scalar>(
          static_cast<std::size_t>((shape.reduce[1].extent - 1) * shape.reduce[1].right +
                                   (shape.reduce[2].extent - 1) * shape.reduce[2].right + columns));
      const auto before = random.several<Scalar>(static_cast<std::size_t>(
          (shape.row[1].extent - 1) * shape.row[1].out + (shape.row[2].extent - 1) * shape.row[2].out + columns));
      const auto bias = random.several<Scalar>(static_cast<std::size_t>(columns));
      const std::vector<Scalar> sums = chains(shape, fused, left, right, before);
      const auto multiplied = [&](std::vector<Scalar> out, auto&& epilogue) {
        on_host::product(shape, left.data(), right.data(), out.data(), epilogue);
        return out;
      };
      std::vector<Scalar> added = before;
      std::vector<Scalar> biased = before;
      double squares = 0;
      each_row(shape, [&](position /*left*/, position out) {
        for (position column = 0; column < columns; ++column) {
          const auto at = static_cast<std::size_t>(out + column);
          added[at] = before[at] + sums[at];
          biased[at] = sums[at] + bias[static_cast<std::size_t>(column)];
          squares += static_cast<double>(sums[at]) * static_cast<double>(sums[at]);
        }
      });
      on_host::epilogue::squares_only<Scalar> only;
      on_host::epilogue::squares_store<Scalar> stored;
      on_host::product(shape, left.data(), right.data(), static_cast<Scalar*>(nullptr), only);
      const std::string what = std::to_string(row_count) + " x " + std::to_string(columns);
      BOOST_TEST(same_bits(multiplied(before, on_host::epilogue::store{}), sums), what);
      BOOST_TEST(same_bits(multiplied(before, on_host::epilogue::add{}), added), what);
      BOOST_TEST(same_bits(multiplied(before, on_host::epilogue::store_bias{bias.data()}), biased), what);
      BOOST_TEST(same_bits(multiplied(before, stored), sums), what);
      BOOST_TEST(std::abs(stored.sum() - squares) <= error_of_squares<Scalar> * squares, what);
      BOOST_TEST(std::abs(only.sum() - squares) <= error_of_squares<Scalar> * squares, what);
    }
  }
}

/// The sum of squares of one product: its bits depend on the target's tiles and on nothing else.
template <class Scalar>
double squares_of_one(kernel_target target) {
  const using_target in_use{target};
  numbers random;
  const on_host::product_shape shape{{{}, {}, {37, 11, 0}}, {{}, {}, {11, 1, 150}}, 150};
  const auto left = random.several<Scalar>(37 * 11);
  const auto right = random.several<Scalar>(11 * 150);
  on_host::epilogue::squares_only<Scalar> squares;
  on_host::product(shape, left.data(), right.data(), static_cast<Scalar*>(nullptr), squares);
  return squares.sum();
}

template <class Scalar>
void check_squares(kernel_target target, double fused, double not_fused) {
  BOOST_TEST(squares_of_one<Scalar>(target) == (fuses<Scalar>(target) ? fused : not_fused));
}

/// What a pool gives forward, and backward where the input's gradient was not 0.
template <class Layer, class Scalar>
std::vector<Scalar> pooled(kernel_target target, pergrad::shape in) {
  const using_target in_use{target};
  const pergrad::shape out = Layer::output_shape(in);
  const auto stored = [](pergrad::shape image, on_host::halo around) {
    return on_host::lay_out(
        {static_cast<position>(image.e0), static_cast<position>(image.e1), static_cast<position>(image.e2)}, around);
  };
  const on_host::layout x_layout = stored(in, {1, 1, 2, 1});
  const on_host::layout y_layout = stored(out, {0, 2, 1, 1});
  numbers random;
  std::vector<Scalar> x = random.several<Scalar>(static_cast<std::size_t>(x_layout.size));
  for (std::size_t i = 0; i < x.size(); i += 5) x[i] = static_cast<Scalar>(0.5);  // ties
  std::vector<Scalar> dx = random.several<Scalar>(x.size());
  std::vector<Scalar> y(static_cast<std::size_t>(y_layout.size), Scalar{-7});
  const std::vector<Scalar> dy = random.several<Scalar>(y.size());
  using kernel = on_host::pooling_kernel<Layer, Scalar>;
  kernel::forward(in, x_layout, x.data(), y_layout, y.data());
  kernel::backward(in, x_layout, x.data(), y_layout, y.data(), y_layout, dy.data(), x_layout, dx.data());
  y.insert(y.end(), dx.begin(), dx.end());
  return y;
}

template <class Layer, class Scalar>
void check_pool(kernel_target target) {
  for (const std::size_t channels : {1U, 3U, 4U, 8U, 15U, 16U, 17U, 40U}) {
    const pergrad::shape in{channels, 9, 75};  // more windows in a row than one task has
    BOOST_TEST(same_bits(pooled<Layer, Scalar>(target, in), pooled<Layer, Scalar>(on_host::own_kernel_target, in)),
               channels << " channels");
  }
}

template <class Scalar>
void check_pools(kernel_target target) {
  check_pool<pergrad::max_pool2d<3, pergrad::stride<1>, pergrad::padding<1>>, Scalar>(target);
  check_pool<pergrad::max_pool2d<2>, Scalar>(target);
  check_pool<pergrad::max_pool2d<2, pergrad::stride<1>>, Scalar>(target);
  check_pool<pergrad::adaptive_avg_pool2d<4, 70>, Scalar>(target);
}

void check_noise(kernel_target target) {
  const using_target in_use{target};
  BOOST_TEST(noise_golden::noise_hash<pergrad::detail::native_lanes>() == noise_golden::expected);
  numbers random;
  const pergrad::detail::release_scale scale{0x1p20, 0.3 * 0x1p-20, 3e38};
  for (const std::size_t count : {1U, 7U, 16U, 33U, 512U}) {
    std::vector<double> k = random.several<double>(count);
    for (double& value : k) value = std::nearbyint(value * 0x1p22);
    const auto check = [&]<class Scalar>(Scalar /*type*/, auto release) {
      const auto sums = random.several<Scalar>(count);
      std::vector<Scalar> found(count);
      std::vector<Scalar> expected(count);
      for (std::size_t i = 0; i < count; ++i) {
        const double place = std::nearbyint(static_cast<double>(sums[i]) * scale.to_grid) + k[i];
        expected[i] = static_cast<Scalar>(place * scale.grid);
      }
      release(k.data(), sums.data(), scale, found.data(), static_cast<int>(count));
      BOOST_TEST(same_bits(found, expected), count << " values");
    };
    check(float{}, pergrad::detail::release_kernels_in_use<float>().release);
    check(double{}, pergrad::detail::release_kernels_in_use<double>().release);
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_best_one_is_in_use) {
  for (const auto target : every_target) {
    if (on_host::runs_here(target)) BOOST_TEST((on_host::kernel_target_in_use() >= target));
    if (!on_host::runs_here(target)) BOOST_TEST(!on_host::use_kernel_target(target));
  }
  BOOST_TEST(on_host::runs_here(on_host::kernel_target_in_use()));
}

BOOST_AUTO_TEST_SUITE(baseline, *boost::unit_test::precondition(available{kernel_target::baseline}))
BOOST_AUTO_TEST_CASE(products_of_floats) { check_products<float>(kernel_target::baseline); }
BOOST_AUTO_TEST_CASE(products_of_doubles) { check_products<double>(kernel_target::baseline); }
BOOST_AUTO_TEST_CASE(pools) {
  check_pools<float>(kernel_target::baseline), check_pools<double>(kernel_target::baseline);
}
BOOST_AUTO_TEST_CASE(noise) { check_noise(kernel_target::baseline); }
BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(avx2, *boost::unit_test::precondition(available{kernel_target::avx2}))
BOOST_AUTO_TEST_CASE(products_of_floats) { check_products<float>(kernel_target::avx2); }
BOOST_AUTO_TEST_CASE(products_of_doubles) { check_products<double>(kernel_target::avx2); }
BOOST_AUTO_TEST_CASE(pools) { check_pools<float>(kernel_target::avx2), check_pools<double>(kernel_target::avx2); }
BOOST_AUTO_TEST_CASE(noise) { check_noise(kernel_target::avx2); }
BOOST_AUTO_TEST_CASE(squares_have_the_same_bits_in_every_build) {
  check_squares<float>(kernel_target::avx2, 7255.5004395186652, 7255.5004268031653);
  check_squares<double>(kernel_target::avx2, 7255.5004541083408, 7255.5004541083417);
}
BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(avx512, *boost::unit_test::precondition(available{kernel_target::avx512}))
BOOST_AUTO_TEST_CASE(products_of_floats) { check_products<float>(kernel_target::avx512); }
BOOST_AUTO_TEST_CASE(products_of_doubles) { check_products<double>(kernel_target::avx512); }
BOOST_AUTO_TEST_CASE(pools) { check_pools<float>(kernel_target::avx512), check_pools<double>(kernel_target::avx512); }
BOOST_AUTO_TEST_CASE(noise) { check_noise(kernel_target::avx512); }
BOOST_AUTO_TEST_CASE(squares_have_the_same_bits_in_every_build) {
  check_squares<float>(kernel_target::avx512, 7255.500450610396, 7255.5004092457575);
  check_squares<double>(kernel_target::avx512, 7255.5004541083417, 7255.5004541083408);
}
BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE_END()
