// SPDX-License-Identifier: Apache-2.0
// examples/common/svg.hpp - accuracy and epsilon over epochs, below them what an attacker can do and which classes were
// taken for which, as one self-contained SVG: no script, font or link
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bounds.hpp"
#include "report.hpp"
#include "utf8.hpp"

namespace example {

namespace svg {

inline constexpr double width = 860, chart_height = 480;
inline constexpr double left = 80, right = 768, top = 92, bottom = 410, middle = (left + right) / 2;
inline constexpr double attack_side = 220, attack_height = 330;  ///< of the attacker's curve, and of all about it
inline constexpr double cell_height = 38, matrix_head = 108, matrix_foot = 40;  ///< of the confusion matrix
inline const std::string centred = "text-anchor=\"middle\" fill=\"#222222\"";
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

/// How many bytes the character of XML has with which a text begins; 0 if it begins with none.
[[nodiscard]] inline std::size_t character_size(std::string_view content) {
  const std::optional<code_point> first = first_code_point(content);
  // XML has no control characters, not even as numbers.
  if (!first || first->code < 0x20 || first->code == 0xfffe || first->code == 0xffff) return 0;
  return first->size;
}

/// What is no character of XML becomes a blank: a class may have any name, and a text that a network made any bytes.
[[nodiscard]] inline std::string escaped(std::string_view content) {
  std::string made;
  while (!content.empty()) {
    const std::size_t size = character_size(content);
    const char first = content.front();
    made += size == 0      ? " "
            : first == '&' ? "&amp;"
            : first == '<' ? "&lt;"
            : first == '>' ? "&gt;"
                           : std::string{content.substr(0, size)};
    content.remove_prefix(std::max<std::size_t>(1, size));
  }
  return made;
}

[[nodiscard]] inline std::string text(point at, const std::string& style, const std::string& content) {
  return "<text x=\"" + number(at.x) + "\" y=\"" + number(at.y) + "\" " + style + ">" + escaped(content) + "</text>\n";
}

[[nodiscard]] inline std::string box(point at, point size, const std::string& style) {
  return "<rect x=\"" + number(at.x) + "\" y=\"" + number(at.y) + "\" width=\"" + number(size.x) + "\" height=\"" +
         number(size.y) + "\" " + style + "/>\n";
}

[[nodiscard]] inline std::string curve(const std::vector<point>& points, const std::string& colour, bool square) {
  std::string path;
  std::string marks;
  for (const point& at : points) {
    if (!path.empty()) path += ' ';
    path += number(at.x) + "," + number(at.y);
    marks += square ? "<rect x=\"" + number(at.x - 3) + "\" y=\"" + number(at.y - 3) + "\" width=\"6\" height=\"6\"/>"
                    : "<circle cx=\"" + number(at.x) + "\" cy=\"" + number(at.y) + "\" r=\"3.2\"/>";
  }
  const std::string dash = square ? " stroke-dasharray=\"7 4\"" : "";
  constexpr std::size_t most_marks = 60;
  return "<polyline points=\"" + path + "\" fill=\"none\" stroke=\"" + colour + "\" stroke-width=\"2.2\"" + dash +
         "/>\n" + (points.size() <= most_marks ? "<g fill=\"" + colour + "\">" + marks + "</g>\n" : "");
}

/// "7.0" for 0.07.
[[nodiscard]] inline std::string percent(double share) {
  char text[64];
  std::snprintf(text, sizeof text, "%.1f", 100 * share);
  return text;
}

/// The attacker's curve from height `y` down: true positives over false ones, at most; the diagonal is guessing.
[[nodiscard]] inline std::string draw(const attacker& attacks, double y, const std::string& record) {
  const double first_x = left + 60;
  const double first_y = y + 70;
  const double last_y = first_y + attack_side;
  const auto at = [&](double false_positives, double true_positives) {
    return point{first_x + attack_side * false_positives, last_y - attack_side * true_positives};
  };
  std::string out = text({middle, y + 40}, centred + " font-size=\"16\" font-weight=\"bold\"",
                         "What the guarantee leaves to an attacker");
  for (const double share : {0.0, 0.5, 1.0}) {
    out +=
        line(at(0, share), at(1, share), "stroke=\"#d9d9d9\"") + line(at(share, 0), at(share, 1), "stroke=\"#ebebeb\"");
    out += text({first_x - 8, at(0, share).y + 4.5}, "text-anchor=\"end\" fill=\"#222222\"", number(share));
    out += text({at(share, 0).x, last_y + 18}, centred, number(share));
  }
  out += line(at(0, 0), at(1, 1), "stroke=\"#888888\" stroke-dasharray=\"3 3\"");
  std::vector<point> curve_points{at(0, 0)};
  for (const attacker::place& each : attacks.curve)
    curve_points.push_back(at(each.false_positives, each.true_positives));
  std::string path;
  for (const point& each : curve_points) path += (path.empty() ? "" : " ") + number(each.x) + "," + number(each.y);
  out += "<polyline points=\"" + path + "\" fill=\"none\" stroke=\"" + accuracy_colour + "\" stroke-width=\"2.2\"/>\n";
  out += text({first_x + attack_side / 2, last_y + 36}, centred + " font-size=\"12\"", "false positives");
  const std::string turned = number(first_x - 42) + " " + number((first_y + last_y) / 2);
  out += text({0, 0}, centred + " font-size=\"12\" transform=\"translate(" + turned + ") rotate(-90)\"",
              "true positives, at most");
  const double words = first_x + attack_side + 40;
  double base = first_y + 40;
  out += text({words, base}, "fill=\"#222222\"", "Who has all that was released and tests");
  out += text({words, base += 20}, "fill=\"#222222\"", "whether one " + record + " was trained on, in any way,");
  out += text({words, base += 20}, "fill=\"#222222\"", "is above the dashed line of guessing by at most");
  out += text({words, base += 26}, "fill=\"#222222\" font-weight=\"bold\"",
              rounded_up(attacks.advantage, 4) + " (the attacker's advantage)");
  out += text({words, base += 26}, "fill=\"#222222\"",
              "and with " + number(100 * attacks.rare.false_positives, 3) + " % false positives has at most");
  return out + text({words, base += 26}, "fill=\"#222222\" font-weight=\"bold\"",
                    rounded_up(100 * attacks.rare.true_positives, 2) + " % true positives");
}

/// The height that the matrix takes below the chart.
[[nodiscard]] inline double height_of(const pergrad::confusion_matrix& confusion) {
  return matrix_head + cell_height * static_cast<double>(confusion.classes()) + matrix_foot;
}

/// The confusion matrix from height `y` down: blue where the network is right, orange where it is not, the stronger the
/// larger the share of the row. Counts are shown by who points at a cell.
[[nodiscard]] inline std::string draw(const pergrad::confusion_matrix& confusion,
                                      const std::vector<std::string>& labels, double y, const std::string& record) {
  const auto classes = static_cast<double>(confusion.classes());
  const double cell_width = std::min(88.0, 620 / classes);
  const double first_x = middle - classes * cell_width / 2;
  const double first_y = y + matrix_head;
  std::string out = text({middle, y + 40}, centred + " font-size=\"16\" font-weight=\"bold\"",
                         "What the network takes the test " + record + "s for");
  out += text({middle, y + 61}, centred + " font-size=\"12\" fill-opacity=\"0.75\"",
              "each row: the " + record + "s of one class, in percent by the class that the network tells");
  for (std::size_t is = 0; is < confusion.classes(); ++is) {
    const double row_y = first_y + cell_height * static_cast<double>(is);
    const double base = row_y + cell_height / 2 + 4.5;
    out += text({first_x + cell_width * (static_cast<double>(is) + 0.5), first_y - 10},
                centred + (confusion.classes() > 7 ? " font-size=\"11.5\"" : ""), labels[is]);
    out += text({first_x - 10, base}, "text-anchor=\"end\" fill=\"#222222\"", labels[is]);
    out += text({first_x + cell_width * classes + 10, base}, "font-size=\"11\" fill=\"#222222\" fill-opacity=\"0.75\"",
                "of " + std::to_string(confusion.total(is)));
    for (std::size_t told = 0; told < confusion.classes(); ++told) {
      const double share = confusion.share(is, told);
      const double x = first_x + cell_width * static_cast<double>(told);
      const double depth = is == told ? share : std::sqrt(share);  // mistakes are rarer, and are to be seen
      const std::string colour = is == told ? accuracy_colour : epsilon_colour;
      const std::string ink = depth > 0.6 ? "#ffffff" : "#222222";
      out += "<g><title>" +
             escaped(labels[is] + " taken for " + labels[told] + ": " + std::to_string(confusion.count(is, told)) +
                     " of " + std::to_string(confusion.total(is)) + " " + record + "s") +
             "</title>" +
             box({x, row_y}, {cell_width, cell_height},
                 "fill=\"" + colour + "\" fill-opacity=\"" + number(depth, 3) + "\" stroke=\"#d9d9d9\"") +
             text({x + cell_width / 2, base}, "text-anchor=\"middle\" fill=\"" + ink + "\"", percent(share)) + "</g>\n";
    }
  }
  return out +
         box({first_x, first_y}, {cell_width * classes, cell_height * classes}, "fill=\"none\" stroke=\"#888888\"");
}

}  // namespace svg

/// The chart: test accuracy on the left axis, the epsilon spent on the right one, gridlines for both. Below it the
/// attacker's curve and the confusion matrix.
[[nodiscard]] inline std::string to_svg(const run_report& report) {
  using svg::point;
  const options& chosen = report.chosen;
  const bool measured = report.test_size > 0;
  double lowest = measured ? 1.0 : 0.5;
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

  const double matrix_y = svg::chart_height + svg::attack_height;
  const double height = matrix_y + (measured ? svg::height_of(report.confusion) : 0);
  const std::string size = "width=\"" + svg::number(svg::width) + "\" height=\"" + svg::number(height) + "\"";
  std::string out =
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + svg::number(svg::width) + " " + svg::number(height) +
      "\" " + size +
      " role=\"img\" font-family=\"Helvetica, Arial, DejaVu Sans, sans-serif\" font-size=\"13\">\n<title>" +
      svg::escaped(report.what.title + ": " + summary(report)) + "</title>\n<rect " + size + " fill=\"#ffffff\"/>\n";
  const std::string& centred = svg::centred;
  out += svg::text({svg::middle, 28}, centred + " font-size=\"18\" font-weight=\"bold\"",
                   report.what.title + (measured ? ": test accuracy and epsilon" : ": epsilon"));
  out += svg::text({svg::middle, 50}, centred,
                   summary(report) + (report.interrupted ? " (interrupted)" : "") +
                       (chosen.seed ? " (seeded noise: NOT private)" : ""));
  out += svg::text({svg::middle, 466}, centred + " font-size=\"11\" fill-opacity=\"0.75\"",
                   "sigma " + svg::number(report.sigma, 4) + ", q " + svg::number(report.q, 5) + ", clip " +
                       shortest(chosen.clip) + ", lr " + shortest(chosen.learning_rate) + ", " + chosen.optimizer +
                       ", " + report.network + ", " + std::to_string(report.epochs.back().steps) + " steps");

  const int rows = static_cast<int>(intervals);
  for (int row = 0; row <= rows; ++row) {
    const double y = y_of(row / intervals);
    out += svg::line({svg::left, y}, {svg::right, y}, "stroke=\"#d9d9d9\"");
    if (measured) {
      out +=
          svg::text({svg::left - 10, y + 4.5}, std::string("text-anchor=\"end\" fill=\"") + svg::accuracy_colour + "\"",
                    svg::number(accuracy_low + row * accuracy_step));
    }
    out += svg::text({svg::right + 10, y + 4.5}, std::string("fill=\"") + svg::epsilon_colour + "\"",
                     svg::number(row * epsilon_step, epsilon_step < 0.1 ? 5 : 2));
  }
  for (double epoch = 0; epoch <= most_epochs + 1e-9; epoch += epoch_step) {
    out += svg::line({x_of(epoch), svg::top}, {x_of(epoch), svg::bottom}, "stroke=\"#ebebeb\"");
    out += svg::text({x_of(epoch), svg::bottom + 20}, centred, svg::number(epoch));
  }
  out += svg::box({svg::left, svg::top}, {svg::right - svg::left, svg::bottom - svg::top},
                  "fill=\"none\" stroke=\"#888888\"");
  out += svg::text({svg::middle, svg::bottom + 40}, centred, "epoch");
  const auto axis_title = [&](double x, const char* colour, const std::string& content) {
    const std::string at = svg::number(x) + " " + svg::number((svg::top + svg::bottom) / 2);
    out += svg::text(
        {0, 0},
        "text-anchor=\"middle\" fill=\"" + std::string(colour) + "\" transform=\"translate(" + at + ") rotate(-90)\"",
        content);
  };
  if (measured) axis_title(30, svg::accuracy_colour, "test accuracy");
  axis_title(846, svg::epsilon_colour, "epsilon at delta " + delta_text(chosen.delta));

  std::vector<point> accuracy;
  std::vector<point> epsilon{{x_of(0), y_of(0)}};
  for (const epoch_record& epoch : report.epochs) {
    accuracy.push_back({x_of(epoch.epochs), y_of((epoch.test_accuracy - accuracy_low) / (1.0 - accuracy_low))});
    if (std::isfinite(epoch.epsilon) && epoch.steps > 0) {
      epsilon.push_back({x_of(epoch.epochs), y_of(epoch.epsilon / (intervals * epsilon_step))});
    }
  }
  out += svg::curve(epsilon, svg::epsilon_colour, true);
  if (measured) out += svg::curve(accuracy, svg::accuracy_colour, false);

  const auto legend = [&](double x, const char* colour, bool square, const std::string& name) {
    out += svg::curve({{x, 74}, {x + 34, 74}}, colour, square);
    out += svg::text({x + 44, 78.5}, "fill=\"#222222\"", name);
  };
  if (measured) legend(svg::left, svg::accuracy_colour, false, "test accuracy (left axis)");
  legend(svg::left + 240, svg::epsilon_colour, true, "epsilon spent (right axis)");
  out += svg::draw(report.attacks, svg::chart_height, report.what.record);
  if (measured) out += svg::draw(report.confusion, report.labels, matrix_y, report.what.record);
  return out + "</svg>\n";
}

}  // namespace example
