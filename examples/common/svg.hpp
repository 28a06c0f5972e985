// SPDX-License-Identifier: Apache-2.0
// examples/common/svg.hpp - draws accuracy and epsilon over epochs as one self-contained SVG: no script, font or link
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

#include "report.hpp"

namespace example {

namespace svg {

inline constexpr double left = 80, right = 768, top = 92, bottom = 410;
inline constexpr const char* accuracy_colour = "#0b5fa5";
inline constexpr const char* epsilon_colour = "#c2410c";

struct point {
  double x, y;
};

/// A number of at most `decimals` decimals, without trailing zeros.
[[nodiscard]] inline std::string number(double value, int decimals = 2) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  std::string result = text;
  if (result.find('.') != std::string::npos) {
    result.erase(result.find_last_not_of('0') + 1);
    if (result.back() == '.') {
      result.pop_back();
    }
  }
  return result;
}

/// The smallest of 1, 2, 2.5, 5 times a power of ten that is at least `value`.
[[nodiscard]] inline double nice_step(double value) {
  const double power = std::pow(10.0, std::floor(std::log10(value)));
  for (const double factor : {1.0, 2.0, 2.5, 5.0}) {
    if (factor * power >= value * (1 - 1e-9)) {
      return factor * power;
    }
  }
  return 10.0 * power;
}

[[nodiscard]] inline std::string line(point from, point to, const std::string& style) {
  return "<line x1=\"" + number(from.x) + "\" y1=\"" + number(from.y) + "\" x2=\"" + number(to.x) + "\" y2=\"" +
         number(to.y) + "\" " + style + "/>\n";
}

[[nodiscard]] inline std::string text(point at, const std::string& style, const std::string& content) {
  std::string escaped;
  for (const char character : content) {
    escaped += character == '&'   ? "&amp;"
               : character == '<' ? "&lt;"
               : character == '>' ? "&gt;"
                                  : std::string(1, character);
  }
  return "<text x=\"" + number(at.x) + "\" y=\"" + number(at.y) + "\" " + style + ">" + escaped + "</text>\n";
}

[[nodiscard]] inline std::string curve(const std::vector<point>& points, const std::string& colour, bool square) {
  std::string path;
  std::string marks;
  for (const point& at : points) {
    path += (path.empty() ? "" : " ") + number(at.x) + "," + number(at.y);
    marks += square ? "<rect x=\"" + number(at.x - 3) + "\" y=\"" + number(at.y - 3) + "\" width=\"6\" height=\"6\"/>"
                    : "<circle cx=\"" + number(at.x) + "\" cy=\"" + number(at.y) + "\" r=\"3.2\"/>";
  }
  const std::string dash = square ? " stroke-dasharray=\"7 4\"" : "";
  constexpr std::size_t most_marks = 60;
  return "<polyline points=\"" + path + "\" fill=\"none\" stroke=\"" + colour + "\" stroke-width=\"2.2\"" + dash +
         "/>\n" + (points.size() <= most_marks ? "<g fill=\"" + colour + "\">" + marks + "</g>\n" : "");
}

}  // namespace svg

/// The chart: test accuracy on the left axis, the epsilon spent on the right one, gridlines for both.
[[nodiscard]] inline std::string to_svg(const run_report& report) {
  using svg::point;
  const options& chosen = report.chosen;
  double lowest = 1.0;
  double most_epochs = 1.0;
  double most_epsilon = 0.0;
  for (const epoch_record& epoch : report.epochs) {
    lowest = std::min(lowest, epoch.test_accuracy);
    most_epochs = std::max(most_epochs, epoch.epochs);
    most_epsilon = std::max(most_epsilon, std::isfinite(epoch.epsilon) ? epoch.epsilon : 0.0);
  }
  // Both axes have the same number of intervals, so that one set of gridlines serves both.
  const double accuracy_step = lowest >= 0.6 ? 0.05 : 0.1;
  const double intervals = std::max(1.0, std::ceil((1.0 - lowest) / accuracy_step - 1e-9));
  const double accuracy_low = 1.0 - intervals * accuracy_step;
  const double epsilon_step = svg::nice_step((most_epsilon > 1e-3 ? most_epsilon : 1.0) / intervals);
  const double epoch_step = std::max(1.0, svg::nice_step(most_epochs / 10));
  const auto x_of = [&](double epochs) { return svg::left + (svg::right - svg::left) * epochs / most_epochs; };
  const auto y_of = [&](double fraction) { return svg::bottom - (svg::bottom - svg::top) * fraction; };

  std::string out =
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 860 480\" width=\"860\" height=\"480\" role=\"img\" "
      "font-family=\"Helvetica, Arial, DejaVu Sans, sans-serif\" font-size=\"13\">\n"
      "<title>Fashion-MNIST with DP-SGD: " +
      summary(report) + "</title>\n" + "<rect width=\"860\" height=\"480\" fill=\"#ffffff\"/>\n";
  const std::string centred = "text-anchor=\"middle\" fill=\"#222222\"";
  const double middle = (svg::left + svg::right) / 2;
  out += svg::text({middle, 28}, centred + " font-size=\"18\" font-weight=\"bold\"",
                   "Fashion-MNIST with DP-SGD: test accuracy and epsilon");
  out += svg::text({middle, 50}, centred,
                   summary(report) + (report.interrupted ? " (interrupted)" : "") +
                       (chosen.seed ? " (seeded noise: NOT private)" : ""));
  out += svg::text({middle, 466}, centred + " font-size=\"11\" fill-opacity=\"0.75\"",
                   "sigma " + svg::number(report.sigma, 4) + ", q " + svg::number(report.q, 5) + ", clip " +
                       shortest(chosen.clip) + ", lr " + shortest(chosen.learning_rate) + ", " + chosen.optimizer +
                       ", " + chosen.activation + ", " + std::to_string(report.epochs.back().steps) + " steps");

  const int rows = static_cast<int>(intervals);
  for (int row = 0; row <= rows; ++row) {
    const double y = y_of(row / intervals);
    out += svg::line({svg::left, y}, {svg::right, y}, "stroke=\"#d9d9d9\"");
    out +=
        svg::text({svg::left - 10, y + 4.5}, std::string("text-anchor=\"end\" fill=\"") + svg::accuracy_colour + "\"",
                  svg::number(accuracy_low + row * accuracy_step));
    out += svg::text({svg::right + 10, y + 4.5}, std::string("fill=\"") + svg::epsilon_colour + "\"",
                     svg::number(row * epsilon_step, epsilon_step < 0.1 ? 5 : 2));
  }
  for (double epoch = 0; epoch <= most_epochs + 1e-9; epoch += epoch_step) {
    out += svg::line({x_of(epoch), svg::top}, {x_of(epoch), svg::bottom}, "stroke=\"#ebebeb\"");
    out += svg::text({x_of(epoch), svg::bottom + 20}, centred, svg::number(epoch));
  }
  out += "<rect x=\"" + svg::number(svg::left) + "\" y=\"" + svg::number(svg::top) + "\" width=\"" +
         svg::number(svg::right - svg::left) + "\" height=\"" + svg::number(svg::bottom - svg::top) +
         "\" fill=\"none\" stroke=\"#888888\"/>\n";
  out += svg::text({middle, svg::bottom + 40}, centred, "epoch");
  const auto axis_title = [&](double x, const char* colour, const std::string& content) {
    const std::string at = svg::number(x) + " " + svg::number((svg::top + svg::bottom) / 2);
    out += svg::text(
        {0, 0},
        "text-anchor=\"middle\" fill=\"" + std::string(colour) + "\" transform=\"translate(" + at + ") rotate(-90)\"",
        content);
  };
  axis_title(30, svg::accuracy_colour, "test accuracy");
  axis_title(846, svg::epsilon_colour, "epsilon at delta " + delta_text(chosen.delta));

  std::vector<point> accuracy;
  std::vector<point> epsilon{{x_of(0), y_of(0)}};
  for (const epoch_record& epoch : report.epochs) {
    accuracy.push_back({x_of(epoch.epochs), y_of((epoch.test_accuracy - accuracy_low) / (1.0 - accuracy_low))});
    if (std::isfinite(epoch.epsilon) && epoch.steps > 0) {
      epsilon.push_back({x_of(epoch.epochs), y_of(epoch.epsilon / (intervals * epsilon_step))});
    }
  }
  out += svg::curve(epsilon, svg::epsilon_colour, true) + svg::curve(accuracy, svg::accuracy_colour, false);

  const auto legend = [&](double x, const char* colour, bool square, const std::string& name) {
    out += svg::curve({{x, 74}, {x + 34, 74}}, colour, square);
    out += svg::text({x + 44, 78.5}, "fill=\"#222222\"", name);
  };
  legend(svg::left, svg::accuracy_colour, false, "test accuracy (left axis)");
  legend(svg::left + 240, svg::epsilon_colour, true, "epsilon spent (right axis)");
  return out + "</svg>\n";
}

/// Writes DIR/report.json and DIR/report.svg. Throws std::system_error.
inline void write_reports(const run_report& report) {
  write_file(report.chosen.out, "report.json",
             to_json(report).dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  write_file(report.chosen.out, "report.svg", to_svg(report));
}

}  // namespace example
