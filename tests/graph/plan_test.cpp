// SPDX-License-Identifier: Apache-2.0
// tests/graph/plan_test.cpp - what every executor is told of a network: gradient flow, factors, uses of tied blocks,
// lifetimes
#include <boost/test/unit_test.hpp>

#include <array>
#include <cstddef>
#include <vector>

#include <pergrad/graph/plan.hpp>
#include <pergrad/pergrad.hpp>

BOOST_AUTO_TEST_SUITE(graph_plan)

namespace {

namespace pg = pergrad;
using pg::detail::node_kind;
template <class Network>
using plan_of = pg::detail::network_plan<typename Network::structure>;

template <class Network>
std::vector<std::size_t> nodes_where(bool pg::detail::plan_node::*mark) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < plan_of<Network>::size; ++i) {
    if (plan_of<Network>::nodes[i].*mark) found.push_back(i);
  }
  return found;
}
using list = std::vector<std::size_t>;

}  // namespace

BOOST_AUTO_TEST_CASE(gradients_flow_from_the_first_trained_parameter_on) {
  // 0 linear (frozen), 1 tanh, 2 linear, 3 relu, 4 the sum of 1 and 3, 5 flatten, 6 linear
  using net = pg::network<pg::shape{4}, pg::frozen<pg::linear<4>>, pg::tanh, pg::residual<pg::linear<4>, pg::relu>,
                          pg::flatten, pg::linear<2>>;
  using plan = plan_of<net>;
  BOOST_TEST(nodes_where<net>(&pg::detail::plan_node::backward) == (list{2, 3, 4, 5, 6}));
  BOOST_TEST(nodes_where<net>(&pg::detail::plan_node::input_gradient) == (list{3, 4, 5, 6}));
  BOOST_TEST(nodes_where<net>(&pg::detail::plan_node::input2_gradient).empty());
  BOOST_TEST(nodes_where<net>(&pg::detail::plan_node::two_inputs) == list{4});
  constexpr std::array kinds{node_kind::affine,     node_kind::elementwise, node_kind::affine, node_kind::elementwise,
                             node_kind::branch_sum, node_kind::reshape,     node_kind::affine};
  for (std::size_t i = 0; i < plan::size; ++i) BOOST_TEST((plan::nodes[i].kind == kinds[i]));
  // Weights and biases of the two layers that are trained.
  BOOST_TEST_REQUIRE(plan::factors.size() == 4U);
  BOOST_TEST(plan::factors[1].node == 2U);
  BOOST_TEST(plan::factors[1].parameters == 16U);
  BOOST_TEST(!plan::factors[1].what.outer);
  BOOST_TEST(plan::factors[2].node == 6U);
  BOOST_TEST(plan::factors[2].parameters == 20U);
  BOOST_TEST(plan::factors[2].what.rows == 2U);
  BOOST_TEST(plan::factors[2].what.columns == 4U);
  BOOST_TEST(plan::most_outer == 2U);
  BOOST_TEST(plan::most_elementwise == 2U);
  BOOST_TEST(plan::most_sparse == 1U);  // none
}

BOOST_AUTO_TEST_CASE(uses_of_a_tied_block_are_one_layer) {
  using shared = pg::tied<1, pg::linear<4>>;
  using net = pg::network<pg::shape{4}, pg::linear<4>, shared, pg::tanh, shared, shared, pg::linear<2>>;
  using plan = plan_of<net>;
  const auto use = [](std::size_t node) { return plan::nodes[node].use; };
  BOOST_TEST((use(1).first && !use(1).last && use(1).shared()));
  BOOST_TEST((!use(3).first && !use(3).last));
  BOOST_TEST((!use(4).first && use(4).last));
  BOOST_TEST(!use(5).shared());
  for (const std::size_t node : {1U, 3U, 4U}) BOOST_TEST(plan::nodes[node].layer == 1U);
  BOOST_TEST(plan::nodes[5].layer == 2U);
  // Weights, then biases, of nodes 0, 1, 3, 4, 5: the second of each kind is the first use.
  constexpr std::array<std::size_t, 5> first_uses{0, 1, 1, 1, 4};
  BOOST_TEST_REQUIRE(plan::factors.size() == 10U);
  for (std::size_t k = 0; k < 10; ++k) BOOST_TEST(plan::factors[k].first_use == first_uses[k / 2]);
  BOOST_TEST(plan::factors[4].parameters == plan::factors[2].parameters);
}

BOOST_AUTO_TEST_CASE(the_last_reader_writes_a_gradient_and_the_others_add) {
  constexpr std::array<std::size_t, 4> storage{0, 1, 1, 3};  // slot 2 is slot 1 under another shape
  pg::detail::gradient_writers<4> writers{storage, 3};
  BOOST_TEST(writers.adds(3));  // the loss has written it
  BOOST_TEST(!writers.adds(2));
  BOOST_TEST(writers.adds(1));
  BOOST_TEST(!writers.adds(0));
}

BOOST_AUTO_TEST_CASE(values_live_as_long_as_somebody_reads_them) {
  // Node i at time i, its backward at 10 - i, norms and sums at 11.
  using net = pg::network<pg::shape{6}, pg::linear<4>, pg::softplus, pg::flatten, pg::relu, pg::linear<3>>;
  const pg::detail::value_lifetimes<typename net::structure> live;
  BOOST_TEST(live.end == 11);
  BOOST_TEST((live.root == std::array<std::size_t, 6>{0, 1, 2, 2, 4, 5}));
  BOOST_TEST(live.value_death[0] == 11);  // the factor of node 0
  BOOST_TEST(live.value_death[1] == 9);   // the derivative of softplus
  BOOST_TEST(live.value_death[2] == 9);   // its output; relu reads its own, not this
  BOOST_TEST(live.value_death[4] == 11);
  BOOST_TEST(live.gradient_birth[0] == 11);  // nobody writes it
  BOOST_TEST(live.gradient_birth[1] == 9);
  BOOST_TEST(live.gradient_death[1] == 11);  // delta of node 0
  BOOST_TEST(live.gradient_birth[2] == 7);
  BOOST_TEST(live.gradient_death[2] == 9);
  BOOST_TEST(live.gradient_birth[4] == 6);
  BOOST_TEST(live.gradient_death[4] == 7);
  BOOST_TEST(live.gradient_birth[5] == 5);
  BOOST_TEST(live.gradient_death[5] == 11);
}

BOOST_AUTO_TEST_SUITE_END()
