// SPDX-License-Identifier: Apache-2.0
// tests/losses/of_length_test.cpp - any loss at every position of samples that have lengths of their own: what lies
// behind a length counts in no loss, no gradient and no norm
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <ratio>
#include <span>
#include <vector>

#include <pergrad/pergrad.hpp>
#include <pergrad/testing/length_law.hpp>

BOOST_AUTO_TEST_SUITE(losses_of_length)

namespace {

namespace pg = pergrad;
using numbers = std::vector<double>;

const pg::host exec{pg::threads{2}};

template <pg::shape Input>
using line = pg::basic_network<double, Input, pg::linear<1>>;

struct seen {
  numbers losses;
  numbers norms;
};
template <class Network, class Loss>
seen look(const numbers& inputs, const numbers& targets, const std::vector<std::uint32_t>& lengths = {}) {
  const Network network{exec, pg::uniform{3, 0.5, 0.5}};
  typename Network::tape tape{exec, pg::max_batch{4}};
  const pg::batch<Network, Loss> batch{inputs, targets, lengths};
  const auto g = pg::per_sample_gradients(network, Loss{}, batch, tape);
  return {pg::unprotected::evaluate(exec, pg::losses(g)), pg::unprotected::evaluate(exec, pg::l2_norms(g))};
}

/// One target a position: how far the sum of a position's outputs is from it, squared, summed over positions.
struct of_position {
  template <class Scalar>
  using target = Scalar;
  static constexpr std::size_t target_count(pg::shape output) noexcept { return output.e0; }
  static constexpr bool accepts(pg::shape output) noexcept { return output.rank() == 2; }
  template <class Scalar>
  static constexpr bool valid(pg::shape /*output*/, std::span<const Scalar> /*targets*/) noexcept {
    return true;
  }
  template <class Scalar>
  static double evaluate(std::span<const Scalar> y, std::span<const Scalar> targets, std::span<Scalar> dy) {
    const std::size_t features = y.size() / targets.size();
    double loss = 0;
    for (std::size_t t = 0; t < targets.size(); ++t) {
      double sum = -static_cast<double>(targets[t]);
      for (std::size_t i = 0; i < features; ++i) sum += static_cast<double>(y[t * features + i]);
      for (std::size_t i = 0; i < features; ++i) dy[t * features + i] = static_cast<Scalar>(2 * sum);
      loss += sum * sum;
    }
    return loss;
  }
};

}  // namespace

// Two of four positions, by hand: outputs 2 and 4, targets 1, so (1 + 9) / 2, and a gradient 1 and 3 of them.
BOOST_AUTO_TEST_CASE(a_mean_is_of_the_positions_that_are_there) {
  const seen short_one =
      look<line<pg::variable(pg::shape{4, 2})>, pg::mean_squared_error>({1, 2, 3, 4, 9, 9, 9, 9}, {1, 1, 7, 7}, {2});
  const seen whole = look<line<pg::shape{2, 2}>, pg::mean_squared_error>({1, 2, 3, 4}, {1, 1});
  BOOST_TEST(whole.losses[0] == 5.0);
  BOOST_TEST(short_one.losses[0] == whole.losses[0]);
  BOOST_TEST(short_one.norms[0] == whole.norms[0]);
  BOOST_TEST(std::abs(short_one.norms[0] - std::sqrt(312.0)) < 1e-9);  // (1 + 9, 2 + 12, 4)
}

BOOST_AUTO_TEST_CASE(laws_hold) {
  using features = pg::basic_network<double, pg::variable(pg::shape{5, 2}), pg::linear<3>, pg::tanh, pg::linear<2>>;
  using words = pg::basic_network<double, pg::variable(pg::token_ids(5, 7)), pg::embedding<4>,
                                  pg::residual<pg::multihead_attention<2, pg::causal>>, pg::linear<2>>;
  static_assert(pg::testing::has_shorter<features, 3>);
  const auto report_of = []<class Network, class Loss>() { return pg::testing::check_lengths<Network, Loss>(); };
  for (const auto& report :
       {report_of.operator()<features, pg::mean_squared_error>(), report_of.operator()<features, pg::huber<0.3>>(),
        report_of.operator()<features, pg::binary_cross_entropy_with_logits>(),
        report_of.operator()<features, of_position>(), report_of.operator()<words, pg::binary_focal_with_logits<>>(),
        report_of.operator()<words, pg::token_cross_entropy<>>()}) {
    BOOST_TEST(report.comparisons() > 100U);
    for (const auto& broken : report) BOOST_ERROR(broken.text());
  }
}

BOOST_AUTO_TEST_CASE(classes_are_no_positions) {
  BOOST_TEST(!pg::cross_entropy::accepts(pg::variable(pg::shape{5})));
  BOOST_TEST(!(pg::detail::takes_lengths_of<pg::mean_squared_error, double>([] {
    pg::shape channels_first{3, 8};
    channels_first.set_varying_axis(2);
    return channels_first;
  }())));
}

BOOST_AUTO_TEST_SUITE_END()
