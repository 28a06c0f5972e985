// SPDX-License-Identifier: Apache-2.0
// pergrad/host/gemm/epilogue.hpp - what the host's product does with its finished sums: store, add, bias, squares
#pragma once

#include <cstddef>

namespace pergrad::inline v0_1::on_host {

/// What becomes of the finished sums. An epilogue says so as a `request`, numbers and no code: the code belongs to the
/// kernels, because it has to be as fast as they are (host/gemm/finish.inl, `finish_vector`). None multiplies before it
/// adds, except for squares: whether that is rounded once may differ between whole vectors and the last of a row.
namespace epilogue {

enum class kind : unsigned char { store, add, store_bias, squares_only, squares_store };

/// Sums of squares of floats are so near to the true ones, relatively, however many there are: (1 + 2^-24)^6 - 1 of
/// four times four added up in float, and room for what else rounds in double.
inline constexpr double error_of_squares_in_float = 0x1p-21;

template <class Scalar>
struct request {
  kind what = kind::store;
  const Scalar* bias = nullptr;  // of store_bias
  double* squares = nullptr;     // what they are added to, of squares_only and squares_store
};

/// out = sum
struct store {
  template <class Scalar>
  [[nodiscard]] request<Scalar> ask() const noexcept {
    return {kind::store};
  }
};

/// out = out + sum
struct add {
  template <class Scalar>
  [[nodiscard]] request<Scalar> ask() const noexcept {
    return {kind::add};
  }
};

/// out = sum + bias[column]
template <class Value>
struct store_bias {
  const Value* bias;
  template <class Scalar>
  [[nodiscard]] request<Scalar> ask() const noexcept {
    return {kind::store_bias, bias};
  }
};
template <class Value>
store_bias(const Value*) -> store_bias<Value>;

/// Adds up the squares of the sums and leaves the output alone (it may be null).
///
/// Squares of floats are added up sixteen at a time in float and those sums in double, within
/// `error_of_squares_in_float` of the true sum; squares that no float holds, of tiny and huge numbers, are formed in
/// double. The bound of privacy/clip.hpp has room for it. The order of the additions is fixed by the shape of the
/// product and the target.
template <class Value>
class squares_only {
 public:
  template <class Scalar>
  [[nodiscard]] request<Scalar> ask() noexcept {
    return {kind::squares_only, nullptr, &sum_};
  }

  /// Sum of the squares of everything seen so far.
  [[nodiscard]] double sum() const noexcept { return sum_; }

 private:
  double sum_ = 0;
};

/// out = sum, and adds up the squares as `squares_only` does.
template <class Value>
class squares_store {
 public:
  template <class Scalar>
  [[nodiscard]] request<Scalar> ask() noexcept {
    request<Scalar> both = squares_.template ask<Scalar>();
    both.what = kind::squares_store;
    return both;
  }

  /// Sum of the squares of everything seen so far.
  [[nodiscard]] double sum() const noexcept { return squares_.sum(); }

 private:
  squares_only<Value> squares_;
};

}  // namespace epilogue

}  // namespace pergrad::inline v0_1::on_host
