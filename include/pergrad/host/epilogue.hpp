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

/// Leaves everything alone.
struct nothing {
  template <class Scalar, class Lanes>
  void operator()(vector<Scalar> /*sums*/, const Scalar* /*out*/, std::ptrdiff_t /*position*/,
                  std::ptrdiff_t /*column*/, const Lanes& /*lanes*/) const noexcept {}
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
/// double. It takes the sums of a tile together, from the buffer in which they lie: that halves what conversions cost.
template <class Scalar>
class squares_only {
 public:
  using rest = nothing;  ///< what is left to do with each vector of a tile that `add_tile` has taken

  /// `count` sums side by side, a multiple of the lanes of a vector.
  void add_tile(const Scalar* sums, std::size_t count) noexcept {
    constexpr std::size_t width = vector_lanes<double>;
    std::size_t at = 0;
    for (; at + chains * width <= count; at += chains * width) {
      for (std::size_t chain = 0; chain < chains; ++chain) add(sums + at + chain * width, chain);
    }
    for (std::size_t chain = 0; at < count; at += width) add(sums + at, chain++);
  }
  template <class Lanes>
  void operator()(vector<Scalar> sums, const Scalar* /*out*/, std::ptrdiff_t /*position*/, std::ptrdiff_t /*column*/,
                  const Lanes& lanes) noexcept {
    alignas(vector_bytes) Scalar kept[vector_lanes<Scalar>];
    on_host::store(kept, lanes.keep(sums));
    add_tile(kept, vector_lanes<Scalar>);
  }

  /// Sum of the squares of everything seen so far.
  [[nodiscard]] double sum() const noexcept {
    const vector<double> all = (sums_[0] + sums_[1]) + (sums_[2] + sums_[3]);
    double total = 0.0;
    for (std::size_t lane = 0; lane < vector_lanes<double>; ++lane) {
      total += all[lane];
    }
    return total;
  }

 private:
  /// Independent sums, as many as hide the latency of an addition.
  static constexpr std::size_t chains = 4;

  void add(const Scalar* from, std::size_t chain) noexcept {
    narrow<Scalar> part;
    std::memcpy(&part, from, sizeof part);
    const vector<double> value = widen(part);
    sums_[chain] += value * value;
  }

  vector<double> sums_[chains]{};
};

/// out = sum, and adds up the squares as `squares_only` does.
template <class Scalar>
class squares_store {
 public:
  using rest = epilogue::store;

  void add_tile(const Scalar* sums, std::size_t count) noexcept { squares_.add_tile(sums, count); }
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
