// SPDX-License-Identifier: Apache-2.0
// pergrad/certify/certificate.hpp - what was proven of a network's gradients, as numbers and as text
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <pergrad/certify/upper.hpp>
#include <pergrad/detail/error_text.hpp>
#include <pergrad/interval/interval.hpp>

namespace pergrad::inline v0_1 {

/// What is known of every record of a data set. `any_input`: nothing, not even that its numbers are finite.
struct input_bound {
  double l2 = std::numeric_limits<double>::infinity();       ///< ‖x‖₂
  double largest = std::numeric_limits<double>::infinity();  ///< max |x_i|
};
inline constexpr input_bound any_input{};
/// ‖x‖₂ <= radius.
[[nodiscard]] constexpr input_bound l2_ball(double radius) noexcept { return {.l2 = radius}; }
/// Each |x_i| <= most.
[[nodiscard]] constexpr input_bound linf_ball(double most) noexcept { return {.largest = most}; }

/// The same element by element: x_i lies in an interval of its own.
class element_box {
 public:
  /// Of so many elements, in PyTorch's order. Throws std::invalid_argument for bounds that are reversed or no numbers.
  explicit element_box(std::vector<interval> elements) : elements_{std::move(elements)} {
    for (std::size_t i = 0; i < elements_.size(); ++i) {
      const interval& each = elements_[i];
      if (!each.is_finite() || each.is_empty()) {
        detail::throw_invalid_argument({"pergrad: certify: element ", i, " of the box is not between two numbers: [",
                                        each.lower, ", ", each.upper, "]"});
      }
    }
  }
  /// `count` elements of one interval.
  [[nodiscard]] static element_box of(std::size_t count, const interval& each) {
    return element_box{std::vector<interval>(count, each)};
  }
  [[nodiscard]] const std::vector<interval>& elements() const noexcept { return elements_; }

 private:
  std::vector<interval> elements_;
};

/// One layer of a `certificate`.
struct certified_layer {
  const char* name = "";
  std::size_t node = 0;        ///< entry of the unfolded list, as `describe` counts
  double input = 0;            ///< ‖x‖₂ of a record, at most
  double weights = 0;          ///< ‖W‖₂, the largest gain, or a table's longest row; 0: it has none
  double backprop = 0;         ///< ‖dL/dy‖₂, at most
  double bound = 0;            ///< norm of its parameters' gradient, at most; 0 if it has none that are trained
  double growth_forward = 1;   ///< ‖y‖₂ by ‖x‖₂
  double growth_backward = 1;  ///< ‖dL/dx‖₂ by ‖dL/dy‖₂
};

/// No record's gradient, as the network computes it, is longer than `bound`, in L2; infinite: nothing is proven.
struct certificate {
  double bound = std::numeric_limits<double>::infinity();
  std::vector<certified_layer> layers;

  [[nodiscard]] bool is_finite() const noexcept { return bound < std::numeric_limits<double>::infinity(); }
  /// The layer whose gradient is the largest part of the bound. Precondition: there are layers.
  [[nodiscard]] const certified_layer& largest() const noexcept {
    return *std::max_element(layers.begin(), layers.end(),
                             [](const auto& a, const auto& b) { return a.bound < b.bound; });
  }
};

/// The certificate as a table, a line a layer, and what limits it.
[[nodiscard]] inline std::string describe(const certificate& of) {
  std::string text = "node layer                ||x|| <=     ||W|| <=  ||dL/dy|| <= ||gradient|| <=   share\n";
  char line[160];
  for (const certified_layer& each : of.layers) {
    const double share = each.bound == 0  ? 0
                         : of.is_finite() ? 100 * (each.bound / of.bound) * (each.bound / of.bound)
                                          : 100;
    std::snprintf(line, sizeof line, "%4zu %-18s %11.4g  %11.4g  %12.4g    %12.4g  %5.1f%%\n", each.node, each.name,
                  each.input, each.weights, each.backprop, each.bound, share);
    text += line;
  }
  if (!of.is_finite()) {
    text += "no bound: a network for any input begins with into_ball<R>; see docs/sensitivity.md\n";
  } else if (!of.layers.empty()) {
    const auto steepest = std::max_element(of.layers.begin(), of.layers.end(), [](const auto& a, const auto& b) {
      return a.growth_backward < b.growth_backward;
    });
    std::snprintf(line, sizeof line, "K = %.6g, most of it from node %zu, %s; gradients grow most in node %zu, %s\n",
                  of.bound, of.largest().node, of.largest().name, steepest->node, steepest->name);
    text += line;
  }
  return text;
}

/// The same as a picture: for each layer a bar of its gradient's bound and one of ‖dL/dy‖₂, on a logarithmic scale.
[[nodiscard]] inline std::string svg(const certificate& of) {
  double least = 1e300;
  double most = 0;
  for (const certified_layer& each : of.layers) {
    for (const double value : {each.bound, each.backprop}) {
      if (!(value > 0) || !(value < 1e300)) continue;
      least = std::min(least, value);
      most = std::max(most, value);
    }
  }
  if (!(most > 0)) least = most = 1;
  least /= 2;
  const auto width = [&](double value) {
    if (!(value > 0)) return 0.0;
    return 360 * std::min(1.0, std::log(value / least) / std::log(most / least));
  };
  char line[400];
  std::snprintf(line, sizeof line,
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"680\" height=\"%zu\" font-family=\"sans-serif\" "
                "font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n<text x=\"8\" y=\"18\">"
                "bound of the gradient's norm: %.4g; dark: of a layer's parameters, light: dL/dy; logarithmic</text>\n",
                40 + 30 * of.layers.size(), of.bound);
  std::string text = line;
  std::size_t y = 32;
  for (const certified_layer& each : of.layers) {
    std::snprintf(line, sizeof line,
                  "<text x=\"8\" y=\"%zu\">%zu %s</text>\n<rect x=\"180\" y=\"%zu\" width=\"%.1f\" height=\"10\" "
                  "fill=\"#9ecae1\"/>\n<rect x=\"180\" y=\"%zu\" width=\"%.1f\" height=\"10\" fill=\"#08519c\"/>\n"
                  "<text x=\"550\" y=\"%zu\">%.3g / %.3g</text>\n",
                  y + 12, each.node, each.name, y + 11, width(each.backprop), y, width(each.bound), y + 14, each.bound,
                  each.backprop);
    text += line;
    y += 30;
  }
  return text + "</svg>\n";
}

}  // namespace pergrad::inline v0_1
