// SPDX-License-Identifier: Apache-2.0
// tests/testing/length_law_test.cpp - the law of lengths holds for what keeps it, and finds what changes bits and
// layers that count too many positions
#include <boost/test/unit_test.hpp>

#include <cstddef>

#include <pergrad/pergrad.hpp>
#include <pergrad/testing/length_law.hpp>

BOOST_AUTO_TEST_SUITE(length_law)

namespace {

namespace pg = pergrad;
using pg::testing::check_lengths;
using pg::testing::law;

/// A layer sees zeros behind a length, whatever stood there. What it might see otherwise is played by a number that
/// changes from one evaluation to the next: wrong.
struct sees_a_change {
  static constexpr bool on_tiles = true;
  [[nodiscard]] static constexpr pg::shape output_shape(pg::shape in) noexcept { return in; }
  template <class Tile>
  static void forward(const Tile& tile) {
    static int calls = 0;
    ++calls;
    for (std::ptrdiff_t b = 0; b < tile.samples; ++b) {
      for (std::size_t i = 0; i < tile.in.size(); ++i) {
        tile.y(b)[i] = tile.x(b)[i] + static_cast<typename Tile::scalar>(calls);
      }
    }
  }
  template <class Tile>
  static void backward(const Tile& tile) {
    for (std::ptrdiff_t b = 0; tile.wants_dx && b < tile.samples; ++b) {
      for (std::size_t i = 0; i < tile.in.size(); ++i) tile.dx(b)[i] = tile.dy(b)[i];
    }
  }
};
/// y = (1/T) sum over t of x_t, with T the network's positions and not the sample's: wrong.
struct counts_too_many : pg::mean_over_positions {
  template <class Tile>
  static void forward(const Tile& tile) {
    pg::mean_over_positions::forward(tile);
    for (std::ptrdiff_t b = 0; b < tile.samples; ++b) {
      const auto part = static_cast<double>(tile.length(b)) / static_cast<double>(tile.in.e0);
      for (std::size_t i = 0; i < tile.in.e1; ++i) tile.y(b)[i] *= static_cast<typename Tile::scalar>(part);
    }
  }
};

}  // namespace

BOOST_AUTO_TEST_CASE(holds) {
  using network = pg::basic_network<double, pg::variable(pg::shape{5, 2}), pg::linear<3>, pg::tanh,
                                    pg::mean_over_positions, pg::linear<2>>;
  static_assert(pg::testing::has_shorter<network, 3>);
  const auto report = check_lengths<network>({.seed = 5, .samples = 9});
  BOOST_TEST(report.empty(), report.text());
  BOOST_TEST(report.seed() == 5U);
  // More positions have more parameters: there is no shorter network to compare with.
  using positions = pg::basic_network<double, pg::variable(pg::shape{5, 2}), pg::learned_positions,
                                      pg::mean_over_positions, pg::linear<2>>;
  static_assert(!pg::testing::has_shorter<positions, 3>);
  const auto without = check_lengths<positions>();
  BOOST_TEST(without.empty(), without.text());
  BOOST_TEST(without.comparisons() < report.comparisons());
}
BOOST_AUTO_TEST_CASE(finds_what_depends_on_more_than_the_sample) {
  const auto report = check_lengths<
      pg::network<pg::variable(pg::shape{5, 2}), sees_a_change, pg::mean_over_positions, pg::linear<3>>>();
  BOOST_TEST(report.broke(law::lengths));
  BOOST_TEST(report.text().find("behind the length") != std::string::npos);
}
BOOST_AUTO_TEST_CASE(finds_a_layer_that_counts_all_positions) {
  const auto report = check_lengths<
      pg::basic_network<double, pg::variable(pg::shape{5, 2}), pg::linear<3>, counts_too_many, pg::linear<2>>>();
  BOOST_TEST(report.broke(law::lengths));
  BOOST_TEST(report.text().find("cut to 3 positions") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
