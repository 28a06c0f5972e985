// SPDX-License-Identifier: Apache-2.0
// pergrad/privacy/pld/fourier.hpp - discrete Fourier transforms in double whose rounding error is bounded.
//
// Radix 2, n a power of two. Forward: decimation in frequency, natural order in, bit-reversed order out. Backward:
// decimation in time with conjugate factors, bit-reversed order in, natural order out, not divided by n.
//
// Bound. Let u = 2^-53. Every output is a sum over all inputs; an input's way to it is log2 n butterflies, each of
// which multiplies it by a root of unity. A sum of complex numbers errs by a factor 1 + e with |e| <= u (each part is
// rounded by itself), a product by |e| <= sqrt(5) u (Brent, Percival & Zimmermann 2007; fused operations do not make it
// worse). A tabulated root errs by at most 8 u: its angle, at most pi, by 2 pi u + u, its sine and cosine by an ulp
// each. So a butterfly errs by a factor 1 + e, |e| <= 12 u, and
//     |computed - exact| <= ((1 + 12 u)^(log2 n) - 1) sum_j |x_j|        for every output.
// In the l2 norm, a stage is sqrt(2) times a unitary map; two outputs of a butterfly err by 12 u (|a| + |b|) each at
// most, together by 24 u sqrt(|a|^2 + |b|^2), which is 12 sqrt(2) u of what the stage makes of them. So
//     |computed - exact|_2 <= ((1 + 17 u)^(log2 n) - 1) sqrt(n) |x|_2.
// Products below the smallest normal number add less than n 2^-1070, which callers pay with their own least number.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

namespace pergrad::inline v0_1::detail {

inline constexpr double unit_roundoff = 0x1p-53;

struct complex_number {
  double real = 0;
  double imaginary = 0;
};

[[nodiscard]] constexpr complex_number operator*(complex_number a, complex_number b) noexcept {
  return {a.real * b.real - a.imaginary * b.imaginary, a.real * b.imaginary + a.imaginary * b.real};
}
[[nodiscard]] constexpr complex_number operator+(complex_number a, complex_number b) noexcept {
  return {a.real + b.real, a.imaginary + b.imaginary};
}
[[nodiscard]] constexpr complex_number operator-(complex_number a, complex_number b) noexcept {
  return {a.real - b.real, a.imaginary - b.imaginary};
}
[[nodiscard]] constexpr complex_number conjugate(complex_number a) noexcept { return {a.real, -a.imaginary}; }

/// a^count by squaring. In exact arithmetic but for count - 1 products: errs by a factor 1 + e,
/// |e| <= (1 + sqrt(5) u)^(count - 1) - 1. Precondition: count >= 1.
[[nodiscard]] constexpr complex_number power(complex_number a, unsigned long long count) noexcept {
  complex_number result{1, 0};
  bool started = false;
  for (;;) {
    if ((count & 1U) != 0) {
      result = started ? result * a : a;
      started = true;
    }
    count >>= 1U;
    if (count == 0) return result;
    a = a * a;
  }
}

/// Transforms of one length. A template, so that programs that never transform do not compile it.
template <class = void>
class fourier_transform {
 public:
  /// Precondition: `length` is a power of two, at least 2. Allocates 16 bytes a point.
  explicit fourier_transform(std::size_t length) : length_{length}, roots_(length) {
    constexpr double pi = 3.14159265358979323846;
    for (std::size_t j = 0; j < length / 2; ++j) {
      const double angle = 2 * pi * (static_cast<double>(j) / static_cast<double>(length));
      roots_[length / 2 + j] = {std::cos(angle), -std::sin(angle)};
    }
    for (std::size_t half = length / 4; half >= 1; half /= 2) {
      for (std::size_t j = 0; j < half; ++j) roots_[half + j] = roots_[2 * half + 2 * j];
    }
  }

  [[nodiscard]] std::size_t length() const noexcept { return length_; }

  /// Bounds |computed - exact| of any output, either way, by this times the sum of the inputs' moduli.
  [[nodiscard]] double error() const noexcept {
    double stages = 0;
    for (std::size_t n = length_; n > 1; n /= 2) ++stages;
    return 12.01 * unit_roundoff * stages;  // (1 + 12 u)^40 - 1 < 12.01 u 40
  }

  /// Bounds the l2 norm of computed - exact, either way, by this times sqrt(length) times that of the inputs.
  [[nodiscard]] double error_of_squares() const noexcept { return error() * (17.0 / 12); }

  void forward(complex_number* x) const { forward(x, length_); }
  void backward(complex_number* x) const { backward(x, length_); }

  /// Where the coefficient of -k stands, if that of k stands at `place`.
  [[nodiscard]] static std::size_t mirrored(std::size_t place) noexcept {
    std::size_t below = place;  // all bits below the highest one
    for (std::size_t shift = 1; shift < 8 * sizeof place; shift *= 2) below |= below >> shift;
    return place ^ (below >> 1U);
  }

 private:
  static void last_pair(complex_number* x) noexcept {
    const complex_number a = x[0];
    const complex_number b = x[1];
    x[0] = a + b;
    x[1] = a - b;
  }
  [[gnu::noinline]] void forward(complex_number* x, std::size_t n) const {
    if (n == 2) return last_pair(x);
    const std::size_t half = n / 2;
    const complex_number* root = roots_.data() + half;
    for (std::size_t j = 0; j < half; ++j) {
      const complex_number a = x[j];
      const complex_number b = x[j + half];
      x[j] = a + b;
      x[j + half] = (a - b) * root[j];
    }
    forward(x, half);
    forward(x + half, half);
  }
  [[gnu::noinline]] void backward(complex_number* x, std::size_t n) const {
    if (n == 2) return last_pair(x);
    const std::size_t half = n / 2;
    backward(x, half);
    backward(x + half, half);
    const complex_number* root = roots_.data() + half;
    for (std::size_t j = 0; j < half; ++j) {
      const complex_number a = x[j];
      const complex_number b = x[j + half] * conjugate(root[j]);
      x[j] = a + b;
      x[j + half] = a - b;
    }
  }

  std::size_t length_;
  std::vector<complex_number> roots_;  // exp(-pi i j / half) at half + j
};

}  // namespace pergrad::inline v0_1::detail
