// SPDX-License-Identifier: Apache-2.0
// pergrad/certify/boxes.hpp - the second domain beside norms: an interval for each value and for each gradient
//
// What is known of a record's elements, one by one, goes through the network as they do, and back from the loss. Norms
// see how elements go together, intervals see signs, and where a unit is not active; after each layer each tightens the
// other, so that K is nowhere above that of norms alone. Layers with a rule here: affine ones, functions of one number,
// pools, reshapes and slices, sums, products and joints of branches, dropout, `into_ball`. Of others an element's
// interval is what their norm leaves.
//
// Intervals hold what is *computed* (rules.hpp). A sum of n products, in any order, is off by at most gamma_n times the
// sum of their sizes, in the network's scalar and once more in doubles here; a convolution that may be formed by
// minimal filtering by what its rule for norms says. A function is as far off as simd/math.hpp says, here and there.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <span>
#include <type_traits>
#include <vector>

#include <pergrad/certify/certificate.hpp>
#include <pergrad/certify/domain.hpp>
#include <pergrad/certify/rules.hpp>
#include <pergrad/concepts.hpp>
#include <pergrad/gradients/factors.hpp>
#include <pergrad/interval/functions.hpp>
#include <pergrad/interval/interval.hpp>
#include <pergrad/layers/linear.hpp>
#include <pergrad/layers/parallel.hpp>
#include <pergrad/losses/binary_cross_entropy.hpp>
#include <pergrad/losses/cross_entropy.hpp>
#include <pergrad/shape.hpp>

namespace pergrad::inline v0_1::certified {

/// The elements of a value or of a gradient, in PyTorch's order.
using box = std::vector<interval>;

/// [low - error, high + error]; everything where that is not finite.
[[nodiscard]] inline interval widened(double low, double high, upper error) noexcept {
  const interval found = interval{low, high} + interval{-error.value(), error.value()};
  return found.is_finite() ? found : interval::everything();
}
[[nodiscard]] inline interval at_most(upper size) noexcept { return {-size.value(), size.value()}; }
[[nodiscard]] inline interval with_zero(const interval& x) noexcept { return hull(x, interval{0, 0}); }
/// The longest vector in it.
[[nodiscard]] inline upper length_of(const box& x) {
  std::vector<double> sizes(x.size());
  std::ranges::transform(x, sizes.begin(), [](const interval& each) { return each.magnitude(); });
  return l2_norm_of(std::span<const double>{sizes});
}
[[nodiscard]] inline bool is_finite(const box& x) noexcept {
  return std::ranges::all_of(x, [](const interval& each) { return each.is_finite(); });
}

/// A node for its boxes.
template <class Scalar>
struct node_boxes {
  node_bounds norms;  ///< of what it reads, and of its weights
  const box& x;
  const box& x2;
  std::span<const Scalar> weights;

  /// What n operations in the network's scalar, and in doubles, can be off by.
  [[nodiscard]] upper gamma(std::size_t n) const noexcept { return norms.rounds.gamma(n) + roundoff{0x1p-53}.gamma(n); }
};

namespace inside {

inline constexpr double lost_element = 0x1p-60;  ///< what becomes 0, of an element

/// What is computed where y is meant, `off` by so much of its size.
[[nodiscard]] inline interval computed(const interval& y, upper off) noexcept {
  return widened(y.lower, y.upper, off * y.magnitude() + upper{lost_element});
}
/// The same of a sum, whose terms may cancel.
[[nodiscard]] inline interval computed_sum(const interval& a, const interval& b, upper off) noexcept {
  const interval sum = a + b;
  return widened(sum.lower, sum.upper, off * (upper{a.magnitude()} + upper{b.magnitude()}));
}

/// Sums of products in doubles: their intervals' ends, and how large they are at most.
struct product_sums {
  std::vector<double> low;
  std::vector<double> high;
  std::vector<double> size;
  explicit product_sums(std::size_t count) : low(count), high(count), size(count) {}
  void add(std::size_t to, double weight, const interval& x) noexcept {
    const double a = weight * x.lower;
    const double b = weight * x.upper;
    low[to] += std::min(a, b);
    high[to] += std::max(a, b);
    size[to] += std::max(std::fabs(a), std::fabs(b));
  }
};

/// Calls f(weight, input, output) for each product of an affine map: element numbers of what it goes from and to.
template <class Function>
void for_each_product(const affine_map& map, bool channels_first, Function&& f) {
  const std::size_t pixels = map.in_size.size();
  const std::size_t places = map.out_size.size();
  const std::size_t channels = map.in_channels / map.groups;
  std::size_t weight = 0;
  for (std::size_t o = 0; o < map.out_channels; ++o) {
    for (std::size_t c = o / map.group_outputs() * channels, end = c + channels; c < end; ++c) {
      for (std::size_t kd = 0; kd < map.kernel.depth; ++kd) {
        for (std::size_t ki = 0; ki < map.kernel.height; ++ki) {
          for (std::size_t kj = 0; kj < map.kernel.width; ++kj, ++weight) {
            for (std::size_t t = 0; t < places; ++t) {
              const std::size_t j = t % map.out_size.width * map.stride.width + kj * map.dilation.width;
              const std::size_t i =
                  t / map.out_size.width % map.out_size.height * map.stride.height + ki * map.dilation.height;
              const std::size_t d =
                  t / map.out_size.width / map.out_size.height * map.stride.depth + kd * map.dilation.depth;
              if (j < map.padding.width || j - map.padding.width >= map.in_size.width || i < map.padding.height ||
                  i - map.padding.height >= map.in_size.height || d < map.padding.depth ||
                  d - map.padding.depth >= map.in_size.depth) {
                continue;
              }
              const std::size_t pixel =
                  ((d - map.padding.depth) * map.in_size.height + i - map.padding.height) * map.in_size.width + j -
                  map.padding.width;
              f(weight, channels_first ? c * pixels + pixel : pixel * map.in_channels + c,
                channels_first ? o * places + t : t * map.out_channels + o);
            }
          }
        }
      }
    }
  }
}

/// What an affine layer's values, gradients and sums of them are.
template <class Layer, class Scalar>
struct affine_boxes {
  const node_boxes<Scalar>& at;
  affine_map map = Layer::affine(at.norms.in);
  bool channels_first = detail::is_channels_first<Layer>(at.norms.in, at.norms.out);
  std::size_t taps = map.kernel.size();

  /// How far off the computed sums of some products are, where they may be filtered.
  [[nodiscard]] upper filtered(std::size_t products, upper length) const {
    if (taps == 1) return lost_element;
    return at.norms.rounds.gamma(products + 64) * 96.0 * root_of(taps) * at.norms.weights.frobenius * length +
           upper{lost_element};
  }
  /// Of W x, or with `back` of W^T dy; an adjoint layer has them exchanged.
  [[nodiscard]] box product(const box& x, bool back, upper length, std::size_t count) const {
    const bool to_inputs = back != map.adjoint;
    product_sums sums{count};
    for_each_product(map, channels_first, [&](std::size_t weight, std::size_t input, std::size_t output) {
      const auto w = static_cast<double>(at.weights[weight]);
      to_inputs ? sums.add(input, w, x[output]) : sums.add(output, w, x[input]);
    });
    const std::size_t products = to_inputs ? map.group_outputs() * taps : map.view_width();
    const upper off = at.gamma(products + 64);
    const upper more = filtered(products, length);
    box y(count);
    for (std::size_t k = 0; k < count; ++k) {
      y[k] = widened(sums.low[k], sums.high[k], off * sums.size[k] * at.norms.rounds.growth(products + 64) + more);
    }
    return y;
  }
  [[nodiscard]] std::size_t bias_of(std::size_t element, std::size_t count) const {
    const std::size_t biases = map.bias_count();
    return channels_first ? element / (count / biases) : element % biases;
  }
  [[nodiscard]] box forward() const {
    box y = product(at.x, false, at.norms.x.l2, at.norms.out.size());
    for (std::size_t k = 0; map.bias && k < y.size(); ++k) {
      const auto bias = static_cast<double>(at.weights[map.weight_count() + bias_of(k, y.size())]);
      y[k] = y[k] + interval{bias, bias};
      // Minimal filtering in pairs adds up four parts behind it.
      y[k] = widened(y[k].lower, y[k].upper, at.gamma(8) * (upper{y[k].magnitude()} + upper{std::fabs(bias)}));
    }
    return y;
  }
  [[nodiscard]] box backward(const box& dy, upper length) const {
    return product(dy, true, length, at.norms.in.size());
  }
  /// Of the gradient of weights and biases.
  [[nodiscard]] upper block(const box& dy, upper length) const {
    std::vector<double> sizes(map.parameter_count());
    for_each_product(map, channels_first, [&](std::size_t weight, std::size_t input, std::size_t output) {
      sizes[weight] += map.adjoint ? at.x[output].magnitude() * dy[input].magnitude()
                                   : at.x[input].magnitude() * dy[output].magnitude();
    });
    for (std::size_t k = 0; map.bias && k < dy.size(); ++k) {
      sizes[map.weight_count() + bias_of(k, dy.size())] += dy[k].magnitude();
    }
    const std::size_t terms = map.positions() + (map.adjoint ? map.in_size.size() : 0);
    upper found =
        l2_norm_of(std::span<const double>{sizes}) * (upper{1} + at.gamma(terms + 64)) + upper{0x1p-50} * length;
    if (taps > 1) {
      found += at.norms.rounds.gamma(map.positions() + 64) * 96.0 * root_of(taps) * at.norms.x.l2 * length;
    }
    return found;
  }
};

template <class Layer>
[[nodiscard]] interval value_in(const interval& x, upper off) noexcept {
  constexpr element_bounds f = bounds_of_function<Layer>;
  const upper size = x.magnitude();
  interval y = at_most(std::min(size * f.slope + upper{f.at_zero}, upper{f.largest}));
  if constexpr (f.is_monotone) {
    const double a = Layer::value(x.lower);
    const double b = Layer::value(x.upper);
    y = interval{std::min(a, b), std::max(a, b)};
  }
  return computed(y, off);
}
template <class Layer>
[[nodiscard]] interval slope_in(const interval& x, upper off) noexcept {
  constexpr element_bounds f = bounds_of_function<Layer>;
  interval slope{-f.slope, f.slope};
  if constexpr (f.steepest != steepest_at::unknown) {
    const auto at = [](double place) { return Layer::derivative(place, Layer::value(place)); };
    const double a = at(x.lower);
    const double b = at(x.upper);
    double most = std::max(a, b);
    if (f.steepest == steepest_at::zero && x.contains(0)) most = f.slope;
    slope = interval{std::min(a, b), most};
  }
  // Of an output near its limit, 1 - y² is off by as much as 1 is.
  return widened(slope.lower, slope.upper, off * f.slope + upper{lost_element});
}

/// Calls f(output, window) for each window: the numbers of the elements that it sees.
template <class Layer, class Function>
void for_each_window(shape in, shape out, Function&& f) {
  const extent size = detail::image_size(in);
  const extent windows = detail::image_size(out);
  std::vector<std::size_t> seen;
  std::size_t output = 0;
  for (std::size_t c = 0; c < in.e0; ++c) {
    for (std::size_t d = 0; d < windows.depth; ++d) {
      for (std::size_t i = 0; i < windows.height; ++i) {
        for (std::size_t j = 0; j < windows.width; ++j, ++output) {
          window_range planes{0, 1};
          if constexpr (requires { Layer::planes(in, d); }) planes = Layer::planes(in, d);
          const window_range rows = Layer::rows(in, i);
          const window_range columns = Layer::columns(in, j);
          seen.clear();
          for (std::size_t p = planes.begin; p < planes.end; ++p) {
            for (std::size_t r = rows.begin; r < rows.end; ++r) {
              for (std::size_t k = columns.begin; k < columns.end; ++k) {
                seen.push_back(((c * size.depth + p) * size.height + r) * size.width + k);
              }
            }
          }
          double divisor = 1;
          if constexpr (Layer::known_rule == window_rule::mean) {
            if constexpr (requires { Layer::divisor(in, d, i, j); }) {
              divisor = static_cast<double>(Layer::divisor(in, d, i, j));
            } else {
              divisor = static_cast<double>(Layer::divisor(in, i, j));
            }
          }
          f(output, std::span<const std::size_t>{seen}, divisor);
        }
      }
    }
  }
}
template <class Layer>
inline constexpr bool is_maximum = false;
template <class Layer>
requires has_known_windows<Layer>
inline constexpr bool is_maximum<Layer> = Layer::known_rule == window_rule::maximum;

template <class Layer>
inline constexpr std::size_t slice_begins = ~std::size_t{0};
template <std::size_t First, std::size_t Count>
inline constexpr std::size_t slice_begins<slice<First, Count>> = First;
template <class Layer>
inline constexpr double share_of_dropout = 0;
template <probability Probability, class... Options>
inline constexpr double share_of_dropout<dropout<Probability, Options...>> =
    static_cast<double>(dropout<Probability, Options...>::share);

template <class Layer>
inline constexpr bool is_transpose = requires {
  requires Layer::is_transpose;
};
/// Where element k of {rows, columns} goes.
[[nodiscard]] constexpr std::size_t transposed(std::size_t k, shape in) noexcept {
  return k % in.e1 * in.e0 + k / in.e1;
}
template <class Layer>
inline constexpr bool joins_rows = std::is_same_v<Layer, detail::concatenate>;
template <class Layer>
inline constexpr bool is_joint = joins_rows<Layer> || std::is_same_v<Layer, detail::concatenate_channels>;
/// Calls f(output, is it of the second input, its element) for each element of two values side by side.
template <class Layer, class Function>
void for_each_joined(shape in, shape in2, Function&& f) {
  const std::size_t rows = joins_rows<Layer> && in.rank() == 2 ? in.e0 : 1;
  const std::size_t first = in.size() / rows;
  const std::size_t second = in2.size() / rows;
  for (std::size_t k = 0; k < in.size(); ++k) f(k / first * (first + second) + k % first, false, k);
  for (std::size_t k = 0; k < in2.size(); ++k) f(k / second * (first + second) + first + k % second, true, k);
}
template <class Layer>
inline constexpr double radius_of = 0;
template <detail::number Radius>
inline constexpr double radius_of<into_ball<Radius>> = Radius.value;

/// The mean of a window, or what a gradient of it gives back.
[[nodiscard]] inline interval divided(const interval& sum, double divisor, upper off) noexcept {
  return computed(sum / interval{divisor, divisor}, off);
}

}  // namespace inside

/// Which layers have a rule for boxes.
template <class Layer>
inline constexpr bool has_box_rule =
    detail::has_affine<Layer> || (detail::has_value<Layer> && bounds_of_function<Layer>.slope >= 0) ||
    has_known_windows<Layer> || detail::is_reshape<Layer> || detail::is_branch_sum<Layer> ||
    std::is_same_v<Layer, elementwise_product> || inside::slice_begins<Layer> != ~std::size_t{0} ||
    inside::share_of_dropout<Layer> != 0 || inside::is_joint<Layer> || inside::radius_of<Layer> != 0;

/// What the layer makes of its inputs. Precondition: has_box_rule; boxes and norms are finite.
template <class Layer, class Scalar>
[[nodiscard]] box values_of(std::type_identity<Layer> /*layer*/, const node_boxes<Scalar>& at) {
  const upper off = at.gamma(32);
  box y(at.norms.out.size());
  if constexpr (detail::has_affine<Layer>) {
    y = inside::affine_boxes<Layer, Scalar>{at}.forward();
  } else if constexpr (has_known_windows<Layer>) {
    inside::for_each_window<Layer>(
        at.norms.in, at.norms.out, [&](std::size_t output, std::span<const std::size_t> window, double divisor) {
          interval seen = inside::is_maximum<Layer>
                              ? interval{-intervals::inside::unbounded, -intervals::inside::unbounded}
                              : interval{0, 0};
          double size = 0;
          for (const std::size_t each : window) {
            seen = inside::is_maximum<Layer> ? max(seen, at.x[each]) : seen + at.x[each];
            size += at.x[each].magnitude();
          }
          y[output] = seen;
          if constexpr (!inside::is_maximum<Layer>) {
            seen =
                widened(seen.lower, seen.upper, at.gamma(window.size() + 4) * upper{size} * at.norms.rounds.growth(8));
            y[output] = inside::divided(seen, divisor, off);
          }
        });
  } else if constexpr (detail::has_value<Layer>) {
    std::ranges::transform(at.x, y.begin(), [&](const interval& x) { return inside::value_in<Layer>(x, off); });
  } else if constexpr (inside::is_transpose<Layer>) {
    for (std::size_t k = 0; k < y.size(); ++k) y[inside::transposed(k, at.norms.in)] = at.x[k];
  } else if constexpr (detail::is_reshape<Layer>) {
    y = at.x;
  } else if constexpr (inside::is_joint<Layer>) {
    inside::for_each_joined<Layer>(at.norms.in, at.norms.in2, [&](std::size_t output, bool second, std::size_t input) {
      y[output] = second ? at.x2[input] : at.x[input];
    });
  } else if constexpr (inside::radius_of<Layer> != 0) {
    // All elements are shortened alike, by no more than the longest record is.
    const double least = 1 - 1e-9 < inside::radius_of<Layer> / at.norms.x.l2.value()
                             ? 1.0
                             : (1 - 1e-9) * inside::radius_of<Layer> / at.norms.x.l2.value();
    std::ranges::transform(at.x, y.begin(), [&](const interval& x) {
      return inside::computed(x * interval{least * (1 - 1e-9), 1}, off);
    });
  } else if constexpr (detail::is_branch_sum<Layer> || std::is_same_v<Layer, elementwise_product>) {
    for (std::size_t k = 0; k < y.size(); ++k) {
      y[k] = inside::computed(detail::is_branch_sum<Layer> ? at.x[k] + at.x2[k] : at.x[k] * at.x2[k], off);
    }
  } else if constexpr (inside::share_of_dropout<Layer> != 0) {
    constexpr double share = inside::share_of_dropout<Layer>;
    std::ranges::transform(at.x, y.begin(), [&](const interval& x) {
      return with_zero(inside::computed(x * interval{share, share}, off));
    });
  } else {
    std::copy_n(at.x.begin() + static_cast<std::ptrdiff_t>(inside::slice_begins<Layer>), y.size(), y.begin());
  }
  return y;
}

/// What a gradient of its output makes of those of its inputs, the second one where there are two; dy has this length.
template <class Layer, class Scalar>
void gradients_of(std::type_identity<Layer> /*layer*/, const node_boxes<Scalar>& at, const box& dy, upper length,
                  box& dx, box& dx2) {
  const upper off = at.gamma(32);
  const auto times = [&](const interval& a, const interval& b) { return inside::computed(a * b, off); };
  if constexpr (detail::has_affine<Layer>) {
    dx = inside::affine_boxes<Layer, Scalar>{at}.backward(dy, length);
  } else if constexpr (has_known_windows<Layer>) {
    std::fill(dx.begin(), dx.end(), interval{0, 0});
    inside::for_each_window<Layer>(
        at.norms.in, at.norms.out, [&](std::size_t output, std::span<const std::size_t> window, double divisor) {
          double chosen = -intervals::inside::unbounded;  // what is chosen is no smaller
          for (const std::size_t each : window) chosen = std::max(chosen, at.x[each].lower);
          for (const std::size_t each : window) {
            if (inside::is_maximum<Layer> && at.x[each].upper < chosen) continue;
            const interval share =
                inside::is_maximum<Layer> ? with_zero(dy[output]) : inside::divided(dy[output], divisor, off);
            dx[each] = inside::computed_sum(dx[each], share, off);
          }
        });
  } else if constexpr (detail::has_value<Layer>) {
    for (std::size_t k = 0; k < dx.size(); ++k) dx[k] = times(inside::slope_in<Layer>(at.x[k], off), dy[k]);
  } else if constexpr (inside::is_transpose<Layer>) {
    for (std::size_t k = 0; k < dx.size(); ++k) dx[k] = dy[inside::transposed(k, at.norms.in)];
  } else if constexpr (detail::is_reshape<Layer>) {
    dx = dy;
  } else if constexpr (inside::is_joint<Layer>) {
    inside::for_each_joined<Layer>(at.norms.in, at.norms.in2, [&](std::size_t output, bool second, std::size_t input) {
      (second ? dx2 : dx)[input] = dy[output];
    });
  } else if constexpr (inside::radius_of<Layer> != 0) {
    // What it does along the record is not followed: dx keeps what the norm leaves.
  } else if constexpr (detail::is_branch_sum<Layer>) {
    dx = dx2 = dy;
  } else if constexpr (std::is_same_v<Layer, elementwise_product>) {
    for (std::size_t k = 0; k < dx.size(); ++k) {
      dx[k] = times(at.x2[k], dy[k]);
      dx2[k] = times(at.x[k], dy[k]);
    }
  } else if constexpr (inside::share_of_dropout<Layer> != 0) {
    constexpr double share = inside::share_of_dropout<Layer>;
    std::ranges::transform(dy, dx.begin(), [&](const interval& each) {
      return with_zero(times(each, interval{share, share}));
    });
  } else {
    std::fill(dx.begin(), dx.end(), interval{0, 0});
    std::ranges::copy(dy, dx.begin() + static_cast<std::ptrdiff_t>(inside::slice_begins<Layer>));
  }
}

// Losses: whatever the target is.
template <class Loss>
inline constexpr bool is_of_classes = std::is_same_v<Loss, cross_entropy>;
template <detail::number Smoothing>
inline constexpr bool is_of_classes<cross_entropy_with_label_smoothing<Smoothing>> = true;

/// dL/dy of one element each, and their length, at most; `length` is what the loss says whatever its inputs are. A mean
/// is of at least `fewest` outputs.
template <class Loss>
[[nodiscard]] upper gradient_of_loss(const box& y, std::size_t fewest, const roundoff& rounds, upper length, box& dy) {
  std::fill(dy.begin(), dy.end(), at_most(length));
  if (!is_finite(y)) return length;
  constexpr std::size_t most_classes = 2048;  // their square is how many exponentials there are
  const upper off = rounds.gamma(y.size() + 32);
  if constexpr (std::is_same_v<Loss, binary_cross_entropy_with_logits>) {
    for (std::size_t k = 0; k < y.size(); ++k) {
      const interval p = intervals::sigmoid(y[k]);
      dy[k] = inside::divided({p.lower - 1, p.upper}, static_cast<double>(fewest), off + upper{0x1p-50});
    }
    length = std::min(length, length_of(dy));
  } else if constexpr (is_of_classes<Loss>) {
    if (y.size() > most_classes) return length;
    // softmax(y)_k = 1 / sum_j e^(y_j - y_k)
    const auto share = [&](std::size_t k, bool largest) {
      interval sum{1, 1};
      for (std::size_t j = 0; j < y.size(); ++j) {
        const double apart = largest ? (interval{y[j].lower, y[j].lower} - interval{y[k].upper, y[k].upper}).lower
                                     : (interval{y[j].upper, y[j].upper} - interval{y[k].lower, y[k].lower}).upper;
        if (j != k) sum = sum + intervals::exp(interval{apart, apart});
      }
      const interval p = interval{1, 1} / sum;
      return largest ? std::min(1.0, p.upper) : std::max(0.0, p.lower);
    };
    box p(y.size());
    upper all;
    for (std::size_t k = 0; k < y.size(); ++k) {
      p[k] = interval{share(k, false), share(k, true)};
      dy[k] = widened(p[k].lower - 1, p[k].upper, off * 2);
      all += upper{p[k].upper} * p[k].upper;
    }
    // From a class k: (1 - p_k)² of itself, and of the others the sum of squares, which is no more than that of their
    // sum 1 - p_k. Of targets between classes less, as lengths are convex.
    upper longest;
    for (const interval& each : p) {
      const upper rest = (interval{1, 1} - interval{each.lower, each.lower}).upper;
      longest = std::max(longest, sqrt(rest * rest + std::min(all, rest * rest)));
    }
    length = std::min(length, longest * (upper{1} + off) + off * root_of(y.size()));
  }
  for (interval& each : dy) each = intersection(each, at_most(length));
  return length;
}

/// Norms alone: what goes through a network where nothing is known of single elements.
struct no_boxes {
  template <class Layer>
  static void forward(std::type_identity<Layer> /*layer*/, std::size_t /*node*/, const node_bounds& /*at*/,
                      value_bound& /*y*/) {}
  static upper loss(upper length) { return length; }
  static upper gradient(std::size_t /*slot*/, upper length) { return length; }
  static upper block(std::size_t /*node*/, upper /*gradient*/, upper bound) { return bound; }
  static void backward(std::size_t /*node*/, upper /*gradient*/, const effect& /*factors*/) {}
};

/// Boxes of one network's values and gradients, beside its norms.
template <class Network, class Loss>
class network_boxes {
  using structure = typename Network::structure;
  using scalar = typename Network::scalar;
  static constexpr std::size_t size = structure::size;
  static constexpr const auto& two_inputs = has_two_inputs<structure>;

 public:
  network_boxes(const Network& network, const element_box& inputs) : network_{&network} {
    values_[0] = inputs.elements();
    if constexpr (Network::input_shape.ids != 0) values_[0].assign(values_[0].size(), interval::everything());
    if constexpr (Network::input_shape.varying_axis() != 0) {
      std::ranges::transform(values_[0], values_[0].begin(), with_zero);
    }
    for (std::size_t slot = 0; slot <= size; ++slot) gradients_[slot].assign(structure::shapes[slot].size(), {0, 0});
  }

  /// Makes the box of a node's output, within its norms, and its norms no larger than the box.
  template <class Layer>
  void forward(std::type_identity<Layer> layer, std::size_t i, const node_bounds& at, value_bound& y) {
    rounds_ = at.rounds;
    norms_[i] = at;
    box& out = values_[i + 1];
    out.assign(at.out.size(), at_most(y.largest));
    const node_boxes<scalar> boxes = node(i);
    if constexpr (has_box_rule<Layer>) {
      if (y.l2.is_finite() && is_finite(boxes.x) && (!two_inputs[i] || is_finite(boxes.x2))) {
        const box found = values_of(layer, boxes);
        for (std::size_t k = 0; k < out.size(); ++k) out[k] = intersection(out[k], found[k]);
        backward_[i] = [](network_boxes& self, std::size_t node, const box& dy, upper length, box& dx, box& dx2) {
          gradients_of(std::type_identity<Layer>{}, self.node(node), dy, length, dx, dx2);
        };
        if constexpr (detail::has_affine<Layer>) {
          block_[i] = [](network_boxes& self, std::size_t node, const box& dy, upper length) {
            const node_boxes<scalar> of = self.node(node);
            return inside::affine_boxes<Layer, scalar>{of}.block(dy, length);
          };
        }
      }
    }
    if constexpr (Network::input_shape.varying_axis() != 0) {  // zeros lie behind a sample's last position
      std::ranges::transform(out, out.begin(), with_zero);
    }
    double largest = 0;
    for (const interval& each : out) largest = std::max(largest, each.magnitude());
    y.l2 = std::min(y.l2, length_of(out));
    y.largest = std::min(y.largest, upper{largest});
  }
  [[nodiscard]] upper loss(upper length) {
    constexpr shape out = Network::output_shape;
    constexpr std::size_t fewest = out.varying_axis() == 0 ? out.size() : out.size() / out.e0;
    return gradient_of_loss<Loss>(values_[size], fewest, rounds_, length, gradients_[size]);
  }
  /// The norm of a gradient of this slot, of which all readers have given their part.
  [[nodiscard]] upper gradient(std::size_t slot, upper length) {
    box& dy = gradients_[slot];
    if constexpr (Network::input_shape.varying_axis() != 0) std::ranges::transform(dy, dy.begin(), with_zero);
    for (interval& each : dy) each = intersection(each, at_most(length));
    return std::min(length, length_of(dy));
  }
  [[nodiscard]] upper block(std::size_t i, upper length, upper bound) {
    return block_[i] == nullptr ? bound : std::min(bound, block_[i](*this, i, gradients_[i + 1], length));
  }
  /// Gives the inputs of a node their part of its gradient.
  void backward(std::size_t i, upper length, const effect& factors) {
    const std::size_t first = structure::inputs[i];
    const std::size_t second = structure::inputs2[i];
    box dx(gradients_[first].size(), at_most(length * factors.dx));
    box dx2(gradients_[second].size(), at_most(length * factors.dx2));
    if (backward_[i] != nullptr) backward_[i](*this, i, gradients_[i + 1], length, dx, dx2);
    const auto add = [&](box& to, const box& part) {
      for (std::size_t k = 0; k < to.size(); ++k) to[k] = inside::computed_sum(to[k], part[k], rounds_.gamma(2));
    };
    add(gradients_[first], dx);
    if (two_inputs[i]) add(gradients_[second], dx2);
  }

 private:
  [[nodiscard]] node_boxes<scalar> node(std::size_t i) const {
    return {norms_[i], values_[structure::inputs[i]], values_[structure::inputs2[i]],
            network_->layer_parameters(structure::owners[i])};
  }
  const Network* network_;
  roundoff rounds_{};
  std::array<node_bounds, size> norms_{};
  std::array<box, size + 1> values_;
  std::array<box, size + 1> gradients_;
  std::array<void (*)(network_boxes&, std::size_t, const box&, upper, box&, box&), size> backward_{};
  std::array<upper (*)(network_boxes&, std::size_t, const box&, upper), size> block_{};
};

}  // namespace pergrad::inline v0_1::certified
