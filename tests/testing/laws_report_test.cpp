// SPDX-License-Identifier: Apache-2.0
// tests/testing/laws_report_test.cpp - a report keeps the worst case of each broken law and reads well
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <pergrad/testing/laws_report.hpp>

BOOST_AUTO_TEST_SUITE(laws_reports)

namespace {

using pergrad::testing::law;
using pergrad::testing::laws_report;
using numbers = std::vector<double>;

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

std::span<const double> view(const numbers& values) { return values; }

}  // namespace

BOOST_AUTO_TEST_CASE(nothing_found) {
  laws_report report{5};
  const numbers values{1, not_a_number, -0.0};
  report.same_bits(law::isolation, "x", view(values), view(values));
  report.agree(law::norms, "x", 0, 1, 1 + 1e-13, 1e-12);
  report.at_most(law::clip_bound, "x", 0, 1, 1.0L);
  BOOST_TEST(report.empty());
  BOOST_TEST(report.comparisons() == 3U);
  BOOST_TEST(report.text() == "all laws hold: 3 comparisons (seed 5)\n");
}
BOOST_AUTO_TEST_CASE(bits_differ) {
  laws_report report{5};
  report.same_bits(law::repetition, "here", view({0.0, 1}), view({-0.0, 1}));
  BOOST_REQUIRE(report.size() == 1U);
  BOOST_TEST(report.broke(law::repetition));
  BOOST_TEST(!report.broke(law::isolation));
  BOOST_TEST(report.begin()->text() == "law \"repetition\" broken: here: value 0 is -0, expected 0 (seed 5)");
}
BOOST_AUTO_TEST_CASE(sizes_differ) {
  laws_report report{5};
  report.close(law::norms, "here", view({1, 2}), view({1}), 10);
  report.same_bits(law::isolation, "here", view({1, 2}), view({1}));
  BOOST_TEST(report.size() == 2U);
}
BOOST_AUTO_TEST_CASE(nan_is_never_near) {
  laws_report report{5};
  report.agree(law::norms, "x", 0, 1, not_a_number, 1e300);
  report.at_most(law::clip_bound, "x", 0, 1, std::numeric_limits<long double>::quiet_NaN());
  BOOST_TEST(report.broke(law::norms));
  BOOST_TEST(report.broke(law::clip_bound));
}
BOOST_AUTO_TEST_CASE(the_worst_case_stays) {
  laws_report report{5};
  report.agree(law::norms, "small", 1, 1, 2, 0.5);
  report.agree(law::norms, "large", 2, 1, 9, 0.5);
  report.agree(law::norms, "middle", 3, 1, 4, 0.5);
  laws_report other{5};
  other.agree(law::norms, "larger", 4, 1, 20, 0.5);
  report.merge(other);
  BOOST_REQUIRE(report.size() == 1U);
  BOOST_TEST(report.begin()->where == "larger");
  BOOST_TEST(report.begin()->index == 4U);
  BOOST_TEST(report.comparisons() == 4U);
}
BOOST_AUTO_TEST_CASE(bounds_are_exact) {
  laws_report report{5};
  report.at_most(law::clip_bound, "x", 7, 1.0, 1.0L + std::numeric_limits<long double>::epsilon());
  BOOST_REQUIRE(report.size() == 1U);
  BOOST_TEST(report.begin()->text().find("expected at most 1 ") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
