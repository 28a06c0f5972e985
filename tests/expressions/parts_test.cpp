// SPDX-License-Identifier: Apache-2.0
// tests/expressions/parts_test.cpp - gradients over so many positions that they are formed in parts.
//
// The mean squared error of an affine layer is quadratic in the weights, so a central difference along any direction is
// the derivative, however long the step.
#include <numeric>

#include "fixture.hpp"

BOOST_AUTO_TEST_SUITE(expressions_parts)

namespace {

using namespace fixture;

template <class Network>
void check(const char* name) {
  using loss = pg::mean_squared_error;
  constexpr std::size_t count = 3;
  constexpr std::size_t width = Network::parameter_count;
  constexpr const auto& leaf = pg::on_host::program<Network>::table.outer[0];
  static_assert(pg::on_host::leaf_kernel<double>{leaf, nullptr}.in_parts(), "the network is too small for this test");
  static_assert(leaf.step_plane.extent > 1 || leaf.step[0].extent == 1 ||
                    pg::on_host::parts::lines<double>(leaf) < leaf.step[0].extent,
                "one part takes all positions");
  problem<Network, loss> p{count};
  const auto g = p.gradients();
  std::vector<double> direction(width);
  std::mt19937 random{11};
  for (double& value : direction) value = std::uniform_real_distribution<double>{-1, 1}(random);
  const auto dots = pg::unprotected::evaluate(p.exec, pg::dot(g, direction));
  const auto rows = p.rows();
  const auto norms = pg::unprotected::evaluate(p.exec, pg::l2_norms(pg::with_method<pg::norm_method::direct>(g)));

  const std::vector<double> weights{p.net.parameters().begin(), p.net.parameters().end()};
  const auto losses_along = [&](double step) {
    for (std::size_t i = 0; i < width; ++i) p.net.parameters()[i] = weights[i] + step * direction[i];
    return pg::unprotected::evaluate(p.exec, pg::losses(g));
  };
  const auto above = losses_along(0.5);
  const auto below = losses_along(-0.5);
  std::copy(weights.begin(), weights.end(), p.net.parameters().begin());
  std::vector<double> wanted, of_rows, norms_of_rows;
  for (std::size_t b = 0; b < count; ++b) {
    wanted.push_back(above[b] - below[b]);
    const auto row = row_of(rows, width, b);
    of_rows.push_back(std::inner_product(row.begin(), row.end(), direction.begin(), 0.0));
    norms_of_rows.push_back(static_cast<double>(norm_of(row)));
  }
  const std::string what{name};
  check_close(dots, wanted, 1e-10, what + ": dot");
  check_close(of_rows, wanted, 1e-10, what + ": rows");
  check_close(norms_of_rows, norms, 1e-12, what + ": norms");
  const std::vector<double> list{0.5, 0, -2};
  check_close(pg::unprotected::evaluate(p.exec, pg::sum(g)), weighted(rows, width, [](std::size_t) { return 1.0; }),
              1e-12, what + ": sum");
  const auto by_list = weighted(rows, width, [&](std::size_t b) { return list[b]; });
  using enum pg::norm_method;
  check_close(pg::unprotected::evaluate(p.exec, pg::weighted_sum(pg::with_method<direct>(g), list)), by_list, 1e-12,
              what + ": weighted sum");
  check_close(pg::unprotected::evaluate(p.exec, pg::weighted_sum(pg::with_method<instantiate>(g), list)), by_list,
              1e-12, what + ": weighted sum of kept gradients");
}

template <pg::shape Input, class Layer>
using one = pg::basic_network<double, Input, Layer>;

}  // namespace

BOOST_AUTO_TEST_CASE(an_image) { check<one<pg::shape{2, 61, 67}, pg::conv2d<9, 3, pg::padding<1>>>>("image"); }
BOOST_AUTO_TEST_CASE(more_outputs_than_a_block) { check<one<pg::shape{2, 34, 43}, pg::conv2d<70, 3>>>("outputs"); }
BOOST_AUTO_TEST_CASE(groups_and_strides) {
  check<one<pg::shape{4, 130, 141}, pg::conv2d<16, 3, pg::stride<2>, pg::groups<2>>>>("groups");
}
BOOST_AUTO_TEST_CASE(a_dilated_window_without_bias) {
  check<one<pg::shape{3, 50, 60}, pg::conv2d<11, 3, pg::dilation<2>, pg::no_bias>>>("dilation");
}
BOOST_AUTO_TEST_CASE(a_volume) { check<one<pg::shape{2, 7, 31, 30}, pg::conv3d<6, 3, pg::padding<1>>>>("volume"); }
BOOST_AUTO_TEST_CASE(a_long_sequence) { check<one<pg::shape{2, 6000}, pg::conv1d<6, 5>>>("sequence"); }
BOOST_AUTO_TEST_CASE(a_transposed_convolution) {
  check<one<pg::shape{5, 71, 72}, pg::conv_transpose2d<3, 3>>>("transposed");
}

BOOST_AUTO_TEST_SUITE_END()
