// SPDX-License-Identifier: Apache-2.0
// bench/query/boost_search.cpp - the same functions by a plain branch and bound over boost::numeric::interval (Debian
// libboost-dev): natural enclosures of the same expressions, the box with the least bound first, its widest side
// halved, values in the middle from above. One line of JSON each, for beside_shgo.py
#include <boost/numeric/interval.hpp>

#include <array>
#include <cstddef>
#include <cstdio>
#include <ctime>
#include <limits>
#include <queue>
#include <stdexcept>
#include <vector>

#include <pergrad/query/text.hpp>

#include "query/test_functions.hpp"

namespace {

namespace pg = pergrad;
namespace inside = pg::query::inside;
namespace lib = boost::numeric::interval_lib;
using enclosure = boost::numeric::interval<
    double, lib::policies<lib::save_state<lib::rounded_transc_std<double>>, lib::checking_base<double>>>;
using fields = std::array<enclosure, inside::most_fields>;

enclosure power(const enclosure& x, double exponent) {
  const int whole = static_cast<int>(exponent);
  if (whole == exponent) return whole < 0 ? 1.0 / pow(x, -whole) : pow(x, whole);
  if (exponent == 0.5) return sqrt(x);
  return exp(exponent * log(x));
}

enclosure value_of(const inside::node_list& list, const fields& in) {
  static std::vector<enclosure> values(inside::most_nodes);
  for (std::size_t i = 0; i < static_cast<std::size_t>(list.node_count); ++i) {
    const inside::node& each = list.nodes[i];
    const auto at = [&](int operand) -> const enclosure& { return values[static_cast<std::size_t>(operand)]; };
    using kind = inside::node_kind;
    switch (each.kind) {
      case kind::constant:
        values[i] = enclosure{each.number, each.number_above};
        break;
      case kind::field:
        values[i] = in[static_cast<std::size_t>(each.first)];
        break;
      case kind::add:
        values[i] = at(each.first) + at(each.second);
        break;
      case kind::multiply:
        values[i] = at(each.first) * at(each.second);
        break;
      case kind::power:
        values[i] = power(at(each.first), each.number);
        break;
      case kind::exp:
        values[i] = exp(at(each.first));
        break;
      case kind::log:
        values[i] = log(at(each.first));
        break;
      case kind::sin:
        values[i] = sin(at(each.first));
        break;
      case kind::cos:
        values[i] = cos(at(each.first));
        break;
      case kind::abs:
        values[i] = abs(at(each.first));
        break;
      case kind::as_written:
        values[i] = at(each.first);
        break;
      default:
        throw std::logic_error("boost_search: a function that Boost's intervals do not have");
    }
  }
  return values[static_cast<std::size_t>(list.outputs[0])];
}

struct part {
  double bound;
  fields sides;
  friend bool operator<(const part& a, const part& b) { return a.bound > b.bound; }  // the least on top
};

}  // namespace

int main() {
  constexpr std::size_t most_boxes = 200'000;
  for (const auto& each : query_functions::all()) {
    const inside::node_list& list = inside::query_access::nodes(each.formula);
    const auto count = static_cast<std::size_t>(list.field_count);
    fields whole;
    for (std::size_t k = 0; k < count; ++k) {
      const auto in = each.box.find(list.fields[k]);
      whole[k] = enclosure{in.lower, in.upper};
    }
    const std::clock_t start = std::clock();
    const auto seconds = [&] { return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC; };
    std::priority_queue<part> open;
    double least = std::numeric_limits<double>::infinity();
    const auto look_at = [&](const fields& sides) {
      fields middle;
      for (std::size_t k = 0; k < count; ++k) middle[k] = median(sides[k]);
      least = std::min(least, value_of(list, middle).upper());
      const double bound = value_of(list, sides).lower();
      if (!(bound > least)) open.push({bound, sides});
    };
    look_at(whole);
    std::size_t boxes = 1;
    double lower = open.top().bound;
    while (!open.empty() && boxes < most_boxes && seconds() < 20) {
      const part top = open.top();
      lower = top.bound;
      // As search.cpp asks of ours.
      if (least - lower <= std::max(1e-6, 1e-6 * std::abs(lower))) break;
      open.pop();
      std::size_t widest = 0;
      for (std::size_t k = 1; k < count; ++k) {
        if (width(top.sides[k]) > width(top.sides[widest])) widest = k;
      }
      const auto halves = bisect(top.sides[widest]);
      for (const enclosure& half : {halves.first, halves.second}) {
        fields sides = top.sides;
        sides[widest] = half;
        look_at(sides);
        ++boxes;
      }
    }
    if (open.empty()) lower = least;
    std::printf("{\"name\": \"%s\", \"lower\": %.17g, \"upper\": %.17g, \"boxes\": %zu, \"seconds\": %.6f}\n",
                each.name.c_str(), lower, least, boxes, seconds());
    std::fflush(stdout);
  }
}
