// SPDX-License-Identifier: Apache-2.0
// pergrad/certify/into_ball.hpp - y = x min(1, R / ‖x‖): whatever a record holds, ‖y‖ <= R
//
//     dx = dy where ‖x‖ <= R, else (R / ‖x‖) (dy - x (x dy) / ‖x‖²)
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>

#include <pergrad/detail/number.hpp>
#include <pergrad/graph/mistakes.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1 {

/// First layer of a network that is certified for all inputs: a record that is too long is shortened to the ball of
/// radius `Radius`, one with a number that is not finite becomes 0. `into_ball<10.0>`, on any shape of numbers. So bad
/// data cannot break a bound, and records are looked at alike in training and in evaluation. No parameters; on the
/// host.
template <detail::number Radius>
struct into_ball {
  static constexpr const char* name = "into_ball";
  static constexpr double radius = Radius.value;
  static_assert(Radius.is_size() && Radius.value > 0, "into_ball: the radius must be finite and above 0");

  [[nodiscard]] static constexpr auto settings() noexcept { return std::array{radius}; }
  [[nodiscard]] static constexpr shape output_shape(shape in) noexcept { return in; }
  [[nodiscard]] static constexpr std::size_t parameter_count(shape /*in*/) noexcept { return 0; }

  template <class Scalar>
  static void forward(shape /*in*/, std::span<const Scalar> /*w*/, std::span<const Scalar> x, std::span<Scalar> y) {
    const place at = place_of(x);
    const double onto_sphere = radius / at.length;
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (at.shrinks == 1) {
        y[i] = x[i];
      } else if (at.shrinks == 0) {
        y[i] = 0;  // not multiplied by it: infinity might be there
      } else {     // by two factors: their product may be so small that it has no bits left
        y[i] = static_cast<Scalar>(static_cast<double>(x[i]) / at.largest * onto_sphere);
      }
    }
  }
  template <class Scalar>
  static void backward(shape /*in*/, std::span<const Scalar> /*w*/, std::span<const Scalar> x,
                       std::span<const Scalar> dy, std::span<Scalar> dx) {
    const place at = place_of(x);
    double along = 0;  // of the unit vector x / ‖x‖
    if (at.shrinks > 0 && at.shrinks < 1) {
      for (std::size_t i = 0; i < x.size(); ++i) {
        along += static_cast<double>(x[i]) / at.largest / at.length * static_cast<double>(dy[i]);
      }
    }
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double unit = along == 0 ? 0 : static_cast<double>(x[i]) / at.largest / at.length;
      dx[i] =
          at.shrinks == 0 ? Scalar{0} : static_cast<Scalar>(at.shrinks * (static_cast<double>(dy[i]) - along * unit));
    }
  }

 private:
  /// ‖x‖ = largest length; 0 < length <= sqrt(count).
  struct place {
    double largest = 0;
    double length = 1;
    double shrinks = 1;  ///< min(1, R / ‖x‖); 0 of what is not finite
  };
  template <class Scalar>
  [[nodiscard]] static place place_of(std::span<const Scalar> x) noexcept {
    place at;
    for (const Scalar each : x) {
      const double size = std::fabs(static_cast<double>(each));
      if (!(size <= std::numeric_limits<double>::max())) return {0, 1, 0};
      at.largest = size > at.largest ? size : at.largest;
    }
    if (at.largest == 0) return at;
    double squares = 0;
    for (const Scalar each : x) {
      const double share = static_cast<double>(each) / at.largest;
      squares += share * share;
    }
    at.length = std::sqrt(squares);
    const double shrinks = radius / at.largest / at.length;
    at.shrinks = shrinks < 1 ? shrinks : 1;
    return at;
  }
};

}  // namespace pergrad::inline v0_1
