// SPDX-License-Identifier: Apache-2.0
// bench/query/search.cpp - functions of the literature, searched: one line of JSON each, for beside_shgo.py
#include <cstdio>
#include <ctime>

#include <pergrad/query/text.hpp>

#include "query/test_functions.hpp"

int main() {
  for (const auto& each : query_functions::all()) {
    const std::clock_t start = std::clock();
    const auto found =
        pergrad::infimum(each.formula, each.box, {.tolerance = 1e-6, .absolute_tolerance = 1e-6, .boxes = 200'000});
    const double took = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    std::printf(
        "{\"name\": \"%s\", \"formula\": \"%s\", \"lower\": %.17g, \"upper\": %.17g, \"boxes\": %zu, "
        "\"seconds\": %.6f, \"fields\": {",
        each.name.c_str(), text(each.formula).c_str(), found.lower, found.upper, found.boxes, took);
    const char* separator = "";
    for (const auto& field : found.point) {
      if (field.name.text == nullptr) break;
      const auto in = each.box.find(field.name);
      std::printf("%s\"%s", separator, field.name.text);
      if (field.name.number >= 0) std::printf("[%d]", field.name.number);
      std::printf("\": [%.17g, %.17g]", in.lower, in.upper);
      separator = ", ";
    }
    std::printf("}}\n");
  }
}
