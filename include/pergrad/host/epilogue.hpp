// SPDX-License-Identifier: Apache-2.0
// pergrad/host/epilogue.hpp - what the host's product does with its finished sums: store, add, bias, squares
#pragma once

#include <cstddef>
#include <cstring>
#include <type_traits>

#include <pergrad/detail/vector.hpp>

namespace pergrad::inline v0_1::on_host {

/// What becomes of the finished sums. An epilogue is called once for every vector of sums,
/// `epilogue(sums, out, position, column, lanes)`: the vector belongs at `out + position`, its first column is
/// `column`, and `lanes` (all_lanes or first_lanes) says which lanes count and is how memory is read and written. Rooms
/// may add their own.
namespace epilogue {

/// out = sum
struct store {
  template <class Scalar, class Lanes>
  void operator()(vector<Scalar> sums, Scalar* out, std::ptrdiff_t position, std::ptrdiff_t /*column*/,
                  const Lanes& lanes) const noexcept {
    lanes.store(out + position, sums);
  }
};

/// out = out + sum
struct add {
  template <class Scalar, class Lanes>
  void operator()(vector<Scalar> sums, Scalar* out, std::ptrdiff_t position, std::ptrdiff_t /*column*/,
                  const Lanes& lanes) const noexcept {
    lanes.store(out + position, lanes.load(out + position) + sums);
  }
};

/// out = out + factor * sum
template <class Scalar>
struct add_scaled {
  Scalar factor;
  template <class Lanes>
  void operator()(vector<Scalar> sums, Scalar* out, std::ptrdiff_t position, std::ptrdiff_t /*column*/,
                  const Lanes& lanes) const noexcept {
    lanes.store(out + position, lanes.load(out + position) + splat(factor) * sums);
  }
};
template <class Scalar>
add_scaled(Scalar) -> add_scaled<Scalar>;

/// out = sum + bias[column]
template <class Scalar>
struct store_bias {
  const Scalar* bias;
  template <class Lanes>
  void operator()(vector<Scalar> sums, Scalar* out, std::ptrdiff_t position, std::ptrdiff_t column,
                  const Lanes& lanes) const noexcept {
    lanes.store(out + position, sums + lanes.load(bias + column));
  }
};
template <class Scalar>
store_bias(const Scalar*) -> store_bias<Scalar>;

/// Adds up the squares of the sums in double and leaves the output alone (it may be null).
///
/// The order of the additions is fixed by the shape of the product. Squares of floats cannot overflow or vanish in
/// double.
template <class Scalar>
class squares_only {
 public:
  squares_only() noexcept {
  }  // NOLINT(modernize-use-equals-default): never constexpr, which nvcc would take for the device

  template <class Lanes>
  void operator()(vector<Scalar> sums, const Scalar* /*out*/, std::ptrdiff_t /*position*/, std::ptrdiff_t /*column*/,
                  const Lanes& lanes) noexcept {
    const vector<Scalar> kept = lanes.keep(sums);
    if constexpr (std::is_same_v<Scalar, double>) {
      low_ += kept * kept;
    } else {
      using half = typename product_detail::vector_of<Scalar>::half_type;
      half halves[2];
      std::memcpy(halves, &kept, sizeof kept);
      const vector<double> low = __builtin_convertvector(halves[0], vector<double>);
      const vector<double> high = __builtin_convertvector(halves[1], vector<double>);
      low_ += low * low;
      high_ += high * high;
    }
  }

  /// Sum of the squares of everything seen so far.
  [[nodiscard]] double sum() const noexcept {
    const vector<double> both = low_ + high_;
    double total = 0.0;
    for (std::size_t lane = 0; lane < vector_lanes<double>; ++lane) {
      total += both[lane];
    }
    return total;
  }

 private:
  vector<double> low_{};
  vector<double> high_{};
};

/// out = sum, and adds up the squares as `squares_only` does.
template <class Scalar>
class squares_store {
 public:
  template <class Lanes>
  void operator()(vector<Scalar> sums, Scalar* out, std::ptrdiff_t position, std::ptrdiff_t column,
                  const Lanes& lanes) noexcept {
    lanes.store(out + position, sums);
    squares_(sums, out, position, column, lanes);
  }

  /// Sum of the squares of everything seen so far.
  [[nodiscard]] double sum() const noexcept { return squares_.sum(); }

 private:
  squares_only<Scalar> squares_;
};

}  // namespace epilogue

}  // namespace pergrad::inline v0_1::on_host
