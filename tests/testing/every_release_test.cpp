// SPDX-License-Identifier: Apache-2.0
// tests/testing/every_release_test.cpp - no neighbour moves any release further than the noise that is drawn for it
// allows: every kind of clipping, strategy, relation, way to add up and sampler
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include <pergrad/pergrad.hpp>
#include <pergrad/testing/every_release.hpp>

BOOST_AUTO_TEST_SUITE(every_release)

namespace {

namespace pg = pergrad;
using pg::testing::release_report;

/// Layers, groups and a convolution, whose gradients have positions.
template <class Scalar>
using image = pg::basic_network<Scalar, pg::shape{2, 5, 4}, pg::parameter_group<1, pg::conv2d<3, 3>>, pg::tanh,
                                pg::flatten, pg::linear<3>>;
template <class Scalar>
using words = pg::basic_network<Scalar, pg::token_ids(4, 12), pg::embedding<5>, pg::mean_over_positions,
                                pg::linear<3, pg::no_bias>>;

template <class Network>
void check(const char* what, std::size_t releases, std::size_t batches = 4) {
  const pg::host exec{pg::threads{1}};
  const Network net{exec, pg::kaiming_uniform{3}};
  const std::vector<release_report> reports =
      pg::testing::probe_every_release(exec, net, {.batches = batches, .most_samples = 12});
  BOOST_TEST(reports.size() == releases);
  std::size_t attempts = 0;
  double nearest = 0;
  std::string of;
  for (const release_report& each : reports) {
    attempts += each.moved.attempts;
    if (each.moved.observed / each.moved.sensitivity > nearest) {
      nearest = each.moved.observed / each.moved.sensitivity;
      of = each.name;
    }
    BOOST_TEST(each.holds(), each.text());
  }
  BOOST_TEST_MESSAGE(what << ": " << reports.size() << " releases, " << attempts
                          << " pairs of neighbours, moved by up to " << nearest << " of what is claimed: " << of);
  BOOST_TEST(nearest > 0.97);
}

}  // namespace

// (5 clippings) x (9 configurations) x (4 ways) x (2 relations) by verbs, and by a trainer (9 samplers x 2 relations +
// 4 x 1) x 6 x 5.
// The short tier tries half of the neighbours.
const std::size_t batches = std::getenv("PERGRAD_LONG_TESTS") == nullptr ? 2 : 4;
BOOST_AUTO_TEST_CASE(of_an_image) { check<image<float>>("image, float", 5 * 9 * 4 * 2 + (9 * 2 + 4) * 6 * 5, batches); }
BOOST_AUTO_TEST_CASE(of_words) { check<words<double>>("words, double", 4 * 9 * 4 * 2 + (9 * 2 + 4) * 6 * 5, batches); }
#ifdef PERGRAD_LONG_TESTS  // each network with the other's type of numbers
BOOST_AUTO_TEST_CASE(of_an_image_in_double) {
  check<image<double>>("image, double", 5 * 9 * 4 * 2 + (9 * 2 + 4) * 6 * 5);
}
BOOST_AUTO_TEST_CASE(of_words_in_float) { check<words<float>>("words, float", 4 * 9 * 4 * 2 + (9 * 2 + 4) * 6 * 5); }
#endif

BOOST_AUTO_TEST_CASE(too_many_samples) {
  const pg::host exec{pg::threads{1}};
  const words<double> net{exec, pg::zeros{}};
  BOOST_CHECK_THROW(static_cast<void>(pg::testing::probe_every_release(exec, net, {.batches = 1, .most_samples = 64})),
                    std::invalid_argument);
}

BOOST_AUTO_TEST_SUITE_END()
