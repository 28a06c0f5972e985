// SPDX-License-Identifier: Apache-2.0
// tests/interval/mpfr_oracle.hpp - values of functions between two doubles, by MPFR's directed rounding
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <mpfr.h>
#include <random>

#include <pergrad/interval/functions.hpp>

namespace mpfr_oracle {

namespace pg = pergrad;

/// One number of 120 bits; what is computed from it rounds there, far below a double's ulp.
class number {
 public:
  explicit number(double x = 0) { mpfr_init2(value_, 120), mpfr_set_d(value_, x, MPFR_RNDN); }
  number(const number& other) : number{} { mpfr_set(value_, other.value_, MPFR_RNDN); }
  number& operator=(const number& other) {
    mpfr_set(value_, other.value_, MPFR_RNDN);
    return *this;
  }
  ~number() { mpfr_clear(value_); }
  mpfr_ptr get() noexcept { return value_; }
  mpfr_srcptr get() const noexcept { return value_; }
  [[nodiscard]] bool is_number() const { return mpfr_number_p(value_) != 0; }
  /// The doubles below and above.
  [[nodiscard]] pg::interval bounds() const { return {mpfr_get_d(value_, MPFR_RNDD), mpfr_get_d(value_, MPFR_RNDU)}; }

 private:
  mpfr_t value_;
};
using of_one = int (*)(mpfr_ptr, mpfr_srcptr, mpfr_rnd_t);
using of_two = int (*)(mpfr_ptr, mpfr_srcptr, mpfr_srcptr, mpfr_rnd_t);
inline number apply(of_one function, const number& x) {
  number result;
  function(result.get(), x.get(), MPFR_RNDN);
  return result;
}
inline number apply(of_two function, const number& x, const number& y) {
  number result;
  function(result.get(), x.get(), y.get(), MPFR_RNDN);
  return result;
}
/// 1 / (1 + e^-x) and log(1 + e^x), which MPFR does not have.
inline int sigmoid(mpfr_ptr to, mpfr_srcptr x, mpfr_rnd_t way) {
  mpfr_neg(to, x, way), mpfr_exp(to, to, way), mpfr_add_ui(to, to, 1, way);
  return mpfr_ui_div(to, 1, to, way);
}
inline int softplus(mpfr_ptr to, mpfr_srcptr x, mpfr_rnd_t way) {
  mpfr_exp(to, x, way);
  return mpfr_log1p(to, to, way);
}

/// Whether the interval encloses the number.
inline bool encloses(const pg::interval& found, const number& value) { return found.contains(value.bounds()); }
/// Doubles from end to end of an interval, counted.
inline double ulps(const pg::interval& found) {
  const auto place = [](double x) {
    const auto bits = std::bit_cast<std::uint64_t>(x);
    return x < 0 ? std::uint64_t{0} - (bits << 1U >> 1U) : bits << 1U >> 1U;
  };
  return static_cast<double>(place(found.upper) - place(found.lower));
}

/// Numbers of all sizes up to `largest`: half of them of few binary digits, as people write them.
class random_numbers {
 public:
  random_numbers(std::uint64_t seed, double largest) : words_{seed}, largest_{largest} {}
  double operator()() {
    const double share = std::uniform_real_distribution<>{-1, 1}(words_);
    switch (words_() % 4) {
      case 0:
        return std::ldexp(share, -static_cast<int>(words_() % 60)) * largest_;
      case 1:
        return std::trunc(share * 64) / 64 * std::fmin(largest_, 64);
      default:
        return share * largest_;
    }
  }
  /// An interval, often a narrow one or one number.
  pg::interval interval() {
    const double from = (*this)();
    const double to = words_() % 4 == 0 ? from : words_() % 2 == 0 ? (*this)() : from * (1 + 0x1p-20);
    return {std::fmin(from, to), std::fmax(from, to)};
  }
  double inside(const pg::interval& x) {
    switch (words_() % 4) {
      case 0:
        return x.lower;
      case 1:
        return x.upper;
      default:
        return std::fmin(std::fmax(x.lower + (x.upper - x.lower) * std::uniform_real_distribution<>{}(words_), x.lower),
                         x.upper);
    }
  }
  std::uint64_t word() { return words_(); }

 private:
  std::mt19937_64 words_;
  double largest_;
};
inline int points() { return std::getenv("PERGRAD_LONG_TESTS") == nullptr ? 100'000 : 10'000'000; }

}  // namespace mpfr_oracle
