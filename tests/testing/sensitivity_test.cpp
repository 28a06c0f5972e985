// SPDX-License-Identifier: Apache-2.0
// tests/testing/sensitivity_test.cpp - no attempt moves a clipped sum beyond its sensitivity, and a lie about it is
// found
#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <span>

#include <pergrad/pergrad.hpp>
#include <pergrad/testing/sensitivity.hpp>

namespace {

using pergrad::clip;
using pergrad::clip_per_layer;
using pergrad::l2_clip_norm;
using pergrad::neighbouring;
using pergrad::normalise;
using pergrad::sum;
using pergrad::testing::probe_sensitivity;
using pergrad::testing::sensitivity_report;

using network = pergrad::network<pergrad::shape{2, 6, 5}, pergrad::conv2d<4, 3>, pergrad::relu, pergrad::flatten,
                                 pergrad::linear<3>>;

struct fixture {
  pergrad::host exec{pergrad::threads{1}};
  network net{exec, pergrad::kaiming_uniform{4}};
};
void expect_bounded(const sensitivity_report& report, double sensitivity, double reached) {
  BOOST_TEST_MESSAGE(report.text());
  BOOST_TEST(report.holds);
  BOOST_TEST(report.attempts > 500U);
  BOOST_TEST(report.sensitivity == sensitivity, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(report.observed >= reached * sensitivity);
  BOOST_TEST(report.observed <= sensitivity + report.allowance);
}
/// A clipped sum that claims less than the truth. No release takes it: that is of a clipped sum's own type.
template <class Sum>
struct liar : pergrad::detail::expression_tag {
  using scalar = typename Sum::scalar;
  using value_type = scalar;
  static constexpr int exchanged = Sum::exchanged;
  Sum honest;
  explicit liar(const Sum& sum) : honest{sum} {}
  [[nodiscard]] const auto& leaf() const { return honest.leaf(); }
  [[nodiscard]] double sensitivity() const { return 0.9 * honest.sensitivity(); }
  [[nodiscard]] static std::size_t value_count(const auto& leaf) { return Sum::value_count(leaf); }
  void attach(auto& request, std::span<scalar> out, bool accumulate) const { honest.attach(request, out, accumulate); }
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(sensitivity_probe, fixture)

BOOST_AUTO_TEST_CASE(flat_clipping) {
  expect_bounded(probe_sensitivity(exec, net, [](const auto& g) { return sum(clip(g, l2_clip_norm{0.5})); }), 0.5,
                 0.99);
}
BOOST_AUTO_TEST_CASE(replacing_one) {
  expect_bounded(
      probe_sensitivity(exec, net,
                        [](const auto& g) { return sum<neighbouring::replace_one>(clip(g, l2_clip_norm{0.5})); }),
      1.0, 0.6);
}
BOOST_AUTO_TEST_CASE(per_layer_clipping) {
  expect_bounded(probe_sensitivity(exec, net, [](const auto& g) { return sum(clip_per_layer(g, l2_clip_norm{0.25})); }),
                 0.25, 0.9);
}
BOOST_AUTO_TEST_CASE(automatic_clipping) {
  expect_bounded(probe_sensitivity(exec, net, [](const auto& g) { return sum(normalise(g, l2_clip_norm{0.25})); }),
                 0.25, 0.9);
}
BOOST_AUTO_TEST_CASE(ghost_strategy) {
  expect_bounded(
      probe_sensitivity(exec, net,
                        [](const auto& g) {
                          return sum(clip(pergrad::with_strategy<pergrad::strategy::ghost>(g), l2_clip_norm{0.5}));
                        }),
      0.5, 0.99);
}
BOOST_AUTO_TEST_CASE(a_lie_is_found) {
  const auto report = probe_sensitivity(exec, net, [](const auto& g) { return liar{sum(clip(g, l2_clip_norm{0.5}))}; });
  BOOST_TEST_MESSAGE(report.text());
  BOOST_TEST(!report.holds);
  BOOST_TEST(report.observed > 0.45);
}
BOOST_AUTO_TEST_CASE(no_batches_is_an_error) {
  const pergrad::testing::sensitivity_options none{.batches = 0};
  BOOST_CHECK_THROW(static_cast<void>(probe_sensitivity(
                        exec, net, [](const auto& g) { return sum(clip(g, l2_clip_norm{0.5})); }, none)),
                    std::invalid_argument);
}

BOOST_AUTO_TEST_SUITE_END()
