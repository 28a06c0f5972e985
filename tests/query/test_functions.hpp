// SPDX-License-Identifier: Apache-2.0
// tests/query/test_functions.hpp - functions of the literature on global optimisation, with their known least values
//
// Jamil & Yang 2013 (arXiv:1308.4008); Surjanovic & Bingham's library of simulation experiments.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include <pergrad/query/functions.hpp>
#include <pergrad/query/supremum.hpp>

namespace query_functions {

namespace pg = pergrad;
using pg::query::expression;

struct test_function {
  std::string name;
  expression formula;
  pg::box box;
  double least;         ///< as published
  double precision;     ///< of what is published
  bool is_easy = true;  ///< closed to 1e-6 within the boxes of the test
};

inline expression square(const expression& x) { return pow(x, 2); }

inline std::vector<test_function> all() {
  constexpr pg::field<"x"> x;
  constexpr pg::field<"y"> y;
  constexpr double pi = 3.14159265358979323846;
  const auto both = [&](double low, double high) { return pg::box{x.in(low, high), y.in(low, high)}; };
  std::vector<test_function> found;
  const auto add = [&](const char* name, const expression& formula, const pg::box& box, double least,
                       double precision = 1e-9, bool is_easy = true) {
    found.push_back({name, formula, box, least, precision, is_easy});
  };
  add("Rosenbrock", 100 * square(y - square(x)) + square(1 - x), both(-5, 10), 0);
  add("Rastrigin", 20 + square(x) + square(y) - 10 * (cos(2 * pi * x) + cos(2 * pi * y)), both(-5.12, 6), 0);
  add("Ackley",
      -20 * exp(-0.2 * sqrt((square(x) + square(y)) / 2)) - exp((cos(2 * pi * x) + cos(2 * pi * y)) / 2) + 20 +
          exp(expression{1}),
      both(-32, 40), 0);
  add("Branin", square(y - 5.1 / (4 * pi * pi) * square(x) + 5 / pi * x - 6) + 10 * (1 - 1 / (8 * pi)) * cos(x) + 10,
      pg::box{x.in(-5, 10), y.in(0, 15)}, 0.39788735772973816);
  add("Goldstein-Price",
      (1 + square(x + y + 1) * (19 - 14 * x + 3 * square(x) - 14 * y + 6 * x * y + 3 * square(y))) *
          (30 + square(2 * x - 3 * y) * (18 - 32 * x + 12 * square(x) + 48 * y - 36 * x * y + 27 * square(y))),
      both(-2, 2), 3);
  add("Himmelblau", square(square(x) + y - 11) + square(x + square(y) - 7), both(-6, 6), 0);
  add("six-hump camel", (4 - 2.1 * square(x) + pow(x, 4) / 3) * square(x) + x * y + (-4 + 4 * square(y)) * square(y),
      pg::box{x.in(-3, 3), y.in(-2, 2)}, -1.031628453489877);
  add("three-hump camel", 2 * square(x) - 1.05 * pow(x, 4) + pow(x, 6) / 6 + x * y + square(y), both(-5, 6), 0);
  add("Booth", square(x + 2 * y - 7) + square(2 * x + y - 5), both(-10, 10), 0);
  add("Matyas", 0.26 * (square(x) + square(y)) - 0.48 * x * y, both(-10, 11), 0);
  add("Beale", square(1.5 - x + x * y) + square(2.25 - x + x * square(y)) + square(2.625 - x + x * pow(y, 3)),
      both(-4.5, 4.5), 0);
  add("Levy 13",
      square(sin(3 * pi * x)) + square(x - 1) * (1 + square(sin(3 * pi * y))) +
          square(y - 1) * (1 + square(sin(2 * pi * y))),
      both(-10, 10), 0);
  add("McCormick", sin(x + y) + square(x - y) - 1.5 * x + 2.5 * y + 1, pg::box{x.in(-1.5, 4), y.in(-3, 4)},
      -1.9132229549810367);
  add("Easom", -cos(x) * cos(y) * exp(-square(x - pi) - square(y - pi)), both(-100, 100), -1);
  add("Eggholder", -(y + 47) * sin(sqrt(abs(x / 2 + y + 47))) - x * sin(sqrt(abs(x - (y + 47)))), both(-512, 512),
      -959.6406627208507);
  add("Styblinski-Tang", (pow(x, 4) - 16 * square(x) + 5 * x + pow(y, 4) - 16 * square(y) + 5 * y) / 2, both(-5, 5),
      2 * -39.16616570377142);
  add("Schaffer 2", 0.5 + (square(sin(square(x) - square(y))) - 0.5) / square(1 + 0.001 * (square(x) + square(y))),
      both(-10, 11), 0);
  add("Schaffer 4",
      0.5 + (square(cos(sin(abs(square(x) - square(y))))) - 0.5) / square(1 + 0.001 * (square(x) + square(y))),
      both(-10, 11), 0.29257863203598045);
  add("cross-in-tray", -0.0001 * pow(abs(sin(x) * sin(y) * exp(abs(100 - sqrt(square(x) + square(y)) / pi))) + 1, 0.1),
      both(-10, 11), -2.062611870822739);
  add("Hoelder table", -abs(sin(x) * cos(y) * exp(abs(1 - sqrt(square(x) + square(y)) / pi))), both(-10, 10),
      -19.20850256788675);
  add("Bukin 6", 100 * sqrt(abs(y - 0.01 * square(x))) + 0.01 * abs(x + 10), pg::box{x.in(-15, -5), y.in(-3, 3)}, 0,
      1e-9, false);
  add("Schwefel", -x * sin(sqrt(abs(x))) - y * sin(sqrt(abs(y))), both(-500, 500), 2 * -418.9828872724338);
  add("drop wave", -(1 + cos(12 * sqrt(square(x) + square(y)))) / (0.5 * (square(x) + square(y)) + 2), both(-5.12, 6),
      -1);
  add("Griewank", (square(x) + square(y)) / 4000 - cos(x) * cos(y / std::sqrt(2.0)) + 1, both(-50, 60), 0);
  constexpr pg::fields<"z", 6> z;
  const auto hartmann = [&](int size, const std::vector<double>& a, const std::vector<double>& p) {
    const double weight[] = {1, 1.2, 3, 3.2};
    expression total{0};
    for (int i = 0; i < 4; ++i) {
      expression inner{0};
      for (int j = 0; j < size; ++j) {
        const auto at = static_cast<std::size_t>(i * size + j);
        inner = inner + a[at] * square(z[j] - p[at]);
      }
      total = total - weight[i] * exp(-inner);
    }
    return total;
  };
  add("Hartmann 3",
      hartmann(3, {3, 10, 30, 0.1, 10, 35, 3, 10, 30, 0.1, 10, 35},
               {0.3689, 0.1170, 0.2673, 0.4699, 0.4387, 0.7470, 0.1091, 0.8732, 0.5547, 0.0381, 0.5743, 0.8828}),
      pg::box{z[0].in(0, 1), z[1].in(0, 1), z[2].in(0, 1)}, -3.8627797873, 1e-6);
  add("Hartmann 6",
      hartmann(6, {10, 3, 17, 3.5, 1.7, 8, 0.05, 10, 17, 0.1, 8, 14, 3, 3.5, 1.7, 10, 17, 8, 17, 8, 0.05, 10, 0.1, 14},
               {0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886, 0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991,
                0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650, 0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381}),
      pg::box{z[0].in(0, 1), z[1].in(0, 1), z[2].in(0, 1), z[3].in(0, 1), z[4].in(0, 1), z[5].in(0, 1)},
      -3.32236801141551, 1e-6, false);
  {
    const double beta[] = {0.1, 0.2, 0.2, 0.4, 0.4};
    const double centre[][4] = {{4, 4, 4, 4}, {1, 1, 1, 1}, {8, 8, 8, 8}, {6, 6, 6, 6}, {3, 7, 3, 7}};
    expression total{0};
    for (int i = 0; i < 5; ++i) {
      expression inner{beta[i]};
      for (int j = 0; j < 4; ++j) inner = inner + square(z[j] - centre[i][j]);
      total = total - 1 / inner;
    }
    add("Shekel 5", total, pg::box{z[0].in(0, 10), z[1].in(0, 10), z[2].in(0, 10), z[3].in(0, 10)}, -10.1531996790582,
        1e-6);
  }
  return found;
}

}  // namespace query_functions
