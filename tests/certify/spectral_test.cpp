// SPDX-License-Identifier: Apache-2.0
// tests/certify/spectral_test.cpp - norms of matrices and of convolutions against their singular values
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include <pergrad/certify/rules.hpp>
#include <pergrad/layers/conv.hpp>
#include <pergrad/layers/conv_transpose2d.hpp>
#include <pergrad/layers/linear.hpp>

BOOST_AUTO_TEST_SUITE(certify_spectral)

namespace {

namespace pg = pergrad;
using pg::certified::dense_matrix;
using pg::certified::spectral_norm;
using pg::certified::upper;

/// The largest singular value by one-sided Jacobi rotations of the columns, in long double (Hestenes 1958).
long double largest_singular_value(const dense_matrix& a) {
  std::vector<std::vector<long double>> columns(a.columns, std::vector<long double>(a.rows));
  for (std::size_t i = 0; i < a.rows; ++i) {
    for (std::size_t j = 0; j < a.columns; ++j) columns[j][i] = static_cast<long double>(a.row(i)[j]);
  }
  const auto dot = [](const auto& x, const auto& y) {
    long double sum = 0;
    for (std::size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
    return sum;
  };
  for (int sweep = 0; sweep < 30; ++sweep) {
    long double off = 0;
    for (std::size_t p = 0; p < a.columns; ++p) {
      for (std::size_t q = p + 1; q < a.columns; ++q) {
        const long double pp = dot(columns[p], columns[p]);
        const long double qq = dot(columns[q], columns[q]);
        const long double pq = dot(columns[p], columns[q]);
        if (pq == 0 || std::fabs(pq) < 1e-18L * std::sqrt(pp * qq)) continue;
        off = std::max(off, std::fabs(pq) / std::sqrt(pp * qq));
        const long double zeta = (qq - pp) / (2 * pq);
        const long double t = (zeta >= 0 ? 1 : -1) / (std::fabs(zeta) + std::sqrt(1 + zeta * zeta));
        const long double c = 1 / std::sqrt(1 + t * t);
        for (std::size_t i = 0; i < a.rows; ++i) {
          const long double x = columns[p][i];
          columns[p][i] = c * (x - t * columns[q][i]);
          columns[q][i] = c * (columns[q][i] + t * x);
        }
      }
    }
    if (off < 1e-17L) break;
  }
  long double most = 0;
  for (const auto& column : columns) most = std::max(most, dot(column, column));
  return std::sqrt(most);
}

dense_matrix random_matrix(std::size_t rows, std::size_t columns, std::mt19937& random, double scale) {
  dense_matrix a{rows, columns};
  for (double& each : a.values) each = scale * std::normal_distribution<double>{}(random);
  return a;
}

/// The matrix of a layer without its bias, column by column of the identity.
template <class Layer>
dense_matrix unrolled(pg::shape in, std::span<const float> weights) {
  const pg::affine_map map = Layer::affine(in);
  const std::size_t inputs = map.in_channels * map.in_size.size();
  const std::size_t outputs = map.out_channels * map.out_size.size();
  dense_matrix matrix{outputs, inputs};
  const std::size_t width = map.view_width();
  const std::size_t taps = map.kernel.size();
  for (std::size_t o = 0; o < map.out_channels; ++o) {
    const std::size_t group = o / map.group_outputs();
    for (std::size_t i = 0; i < map.out_size.height; ++i) {
      for (std::size_t j = 0; j < map.out_size.width; ++j) {
        for (std::size_t c = 0; c < map.in_channels / map.groups; ++c) {
          for (std::size_t k = 0; k < taps; ++k) {
            const std::size_t row = i * map.stride.height + k / map.kernel.width * map.dilation.height;
            const std::size_t column = j * map.stride.width + k % map.kernel.width * map.dilation.width;
            if (row < map.padding.height || row >= map.padding.height + map.in_size.height) continue;
            if (column < map.padding.width || column >= map.padding.width + map.in_size.width) continue;
            const std::size_t pixel = (row - map.padding.height) * map.in_size.width + column - map.padding.width;
            const std::size_t channel = group * (map.in_channels / map.groups) + c;
            matrix.row((o * map.out_size.height + i) * map.out_size.width + j)[channel * map.in_size.size() + pixel] +=
                static_cast<double>(weights[o * width + c * taps + k]);
          }
        }
      }
    }
  }
  return matrix;
}
template <class Layer>
void check_map(pg::shape in, double most_ratio) {
  std::mt19937 random{7};
  double worst = 0;
  for (int trial = 0; trial < 4; ++trial) {
    std::vector<float> weights(Layer::affine(in).parameter_count());
    // Also of one sign, where neighbouring pixels add up.
    for (float& each : weights) {
      each = static_cast<float>(std::normal_distribution<double>{}(random));
      if (trial % 2 == 0) each = std::fabs(each);
    }
    const auto bound = pg::certified::measure_affine(Layer::affine(in), std::span<const float>{weights});
    const auto exact = static_cast<double>(largest_singular_value(unrolled<Layer>(in, weights)));
    BOOST_TEST(bound.norm.value() >= exact);
    worst = std::max(worst, bound.norm.value() / exact);
  }
  BOOST_TEST_MESSAGE("a map's norm is at most " << worst << " times its largest singular value");
  BOOST_TEST(worst <= most_ratio);
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_matrix_has_no_larger_singular_value) {
  std::mt19937 random{1};
  double worst = 1;
  for (const auto& [rows, columns] :
       {std::pair<std::size_t, std::size_t>{1, 7}, {5, 1}, {3, 4}, {12, 9}, {30, 40}, {64, 20}}) {
    for (const double scale : {1.0, 1e-140, 1e120, 1e-300}) {
      const dense_matrix a = random_matrix(rows, columns, random, scale);
      const auto exact = static_cast<double>(largest_singular_value(a));
      const double bound = spectral_norm(a).value();
      BOOST_TEST(bound >= exact * (1 - 1e-15));
      worst = std::max(worst, bound / exact);
    }
  }
  BOOST_TEST(worst <= 1.02);
}

BOOST_AUTO_TEST_CASE(of_special_matrices_too) {
  dense_matrix identity{16, 16};
  for (std::size_t i = 0; i < 16; ++i) identity.row(i)[i] = 1;
  BOOST_TEST(spectral_norm(identity).value() >= 1.0);
  BOOST_TEST(spectral_norm(identity).value() <= 1 + 1e-12);
  BOOST_TEST(spectral_norm(dense_matrix{3, 3}).value() == 0.0);
  dense_matrix ones{20, 30};
  std::fill(ones.values.begin(), ones.values.end(), 1.0);
  BOOST_TEST(spectral_norm(ones).value() >= std::sqrt(600.0));
  BOOST_TEST(spectral_norm(ones).value() <= std::sqrt(600.0) * (1 + 1e-12));
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    dense_matrix broken = identity;
    broken.row(3)[4] = bad;
    BOOST_TEST(!spectral_norm(broken).is_finite());
  }
  // Too large for a Gram matrix: the simple bounds hold.
  dense_matrix large{1800, 1800};
  for (std::size_t i = 0; i < 1800; ++i) large.row(i)[i] = 2;
  BOOST_TEST(spectral_norm(large).value() >= 2.0);
  BOOST_TEST(spectral_norm(large).value() <= 2 + 1e-12);
}

BOOST_AUTO_TEST_CASE(a_map_has_no_larger_singular_value) {
  check_map<pg::linear<6>>({9}, 1.02);
  check_map<pg::conv2d<3, 3, pg::padding<1>>>({2, 6, 6}, 3);
  check_map<pg::conv2d<4, 3, pg::stride<2>>>({2, 7, 8}, 2);
  check_map<pg::conv2d<4, 3, pg::groups<2>, pg::dilation<2>, pg::padding<2>>>({4, 6, 6}, 3);
  check_map<pg::conv2d<3, 2, pg::stride<2>, pg::dilation<3>>>({2, 9, 9}, 2);
  check_map<pg::conv2d<3, pg::extent{1, 4}, pg::stride<1, 3>>>({2, 3, 11}, 2);
  check_map<pg::conv1d<3, 5, pg::stride<2>, pg::padding<2>>>({2, 12}, 3);
  check_map<pg::conv_transpose2d<3, 3, pg::stride<2>>>({2, 4, 4}, 2);
}

BOOST_AUTO_TEST_CASE(operations_round_up) {
  std::mt19937_64 random{3};
  for (int i = 0; i < 10000; ++i) {
    const double a =
        std::ldexp(std::uniform_real_distribution<double>{}(random), static_cast<int>(random() % 200) - 100);
    const double b =
        std::ldexp(std::uniform_real_distribution<double>{}(random), static_cast<int>(random() % 200) - 100);
    const auto exact = [](double x) { return static_cast<long double>(x); };
    BOOST_REQUIRE((exact((upper{a} + upper{b}).value()) >= exact(a) + exact(b)));
    BOOST_REQUIRE((exact((upper{a} * upper{b}).value()) >= exact(a) * exact(b)));
    BOOST_REQUIRE((exact((upper{a} / b).value()) >= exact(a) / exact(b)));
    const auto root = exact(sqrt(upper{a}).value());
    BOOST_REQUIRE((root * root >= exact(a)));
  }
  BOOST_TEST(!(upper{0.0} * upper{std::numeric_limits<double>::infinity()}).is_finite());
  BOOST_TEST(!upper{std::numeric_limits<double>::quiet_NaN()}.is_finite());
}

BOOST_AUTO_TEST_SUITE_END()
