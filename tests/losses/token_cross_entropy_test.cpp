// SPDX-License-Identifier: Apache-2.0
// tests/losses/token_cross_entropy_test.cpp - cross entropy a position against its formula in long double: ignored
// positions, lengths, and networks whose samples end early
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <pergrad/pergrad.hpp>
#include <pergrad/testing/layer_laws.hpp>
#include <pergrad/testing/length_law.hpp>

#include "losses.hpp"

BOOST_AUTO_TEST_SUITE(token_cross_entropy_loss)

namespace {

namespace pg = pergrad;
using loss_tests::close;
using loss_tests::evaluate;
using classes = std::vector<std::int32_t>;
using numbers = std::vector<double>;
using mean_loss = pg::token_cross_entropy<>;
using sum_loss = pg::token_cross_entropy<pg::sum_over_positions>;
using without_zero = pg::token_cross_entropy<pg::ignore_index<0>>;

const numbers logits{0.3, -1.25, 2.5,  //
                     1,   1,     -4,   //
                     0,   30,    -30,  //
                     2,   -7,    0.5};

/// The formula of the head of token_cross_entropy.hpp, position by position, in long double.
template <class Loss, class Scalar>
void agrees_with_the_formula(const std::vector<Scalar>& y, const classes& targets, std::size_t width,
                             long double tolerance) {
  const auto computed = evaluate<Loss>(y, targets);
  const auto counts = [](std::int32_t target) { return target != Loss::options.ignored; };
  const auto count = static_cast<long double>(std::ranges::count_if(targets, counts));
  const long double divisor = Loss::options.sum || count == 0 ? 1 : count;
  long double loss = 0;
  for (std::size_t t = 0; t < targets.size(); ++t) {
    long double sum = 0;
    for (std::size_t i = 0; i < width; ++i) sum += std::exp(static_cast<long double>(y[t * width + i]));
    for (std::size_t i = 0; i < width; ++i) {
      const long double right = static_cast<std::int32_t>(i) == targets[t] ? 1 : 0;
      const long double slope = (std::exp(static_cast<long double>(y[t * width + i])) / sum - right) / divisor;
      close(static_cast<double>(computed.gradient[t * width + i]), counts(targets[t]) ? slope : 0, tolerance);
    }
    if (!counts(targets[t])) continue;
    loss += std::log(sum) - static_cast<long double>(y[t * width + static_cast<std::size_t>(targets[t])]);
  }
  close(computed.loss, loss / divisor, tolerance);
}

/// What a batch of one sample of these targets says.
template <class Loss>
[[nodiscard]] std::string refusal(const classes& targets) {
  using network = pg::basic_network<double, pg::shape{4, 2}, pg::linear<3>>;
  const numbers inputs(8);
  try {
    const pg::batch<network, Loss> batch{inputs, targets};
    return "taken";
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(values_and_gradients) {
  for (const classes& targets : {classes{0, 1, 2, 0}, classes{2, -100, 1, 0}, classes{-100, -100, 1, -100}}) {
    agrees_with_the_formula<mean_loss>(logits, targets, 3, 8e-16L);
    agrees_with_the_formula<sum_loss>(logits, targets, 3, 8e-16L);
    agrees_with_the_formula<mean_loss>(std::vector<float>(logits.begin(), logits.end()), targets, 3, 8e-7L);
  }
  agrees_with_the_formula<without_zero>(logits, {0, 1, 0, 2}, 3, 8e-16L);
}
BOOST_AUTO_TEST_CASE(gradients_are_derivatives) {
  loss_tests::gradient_is_the_derivative<mean_loss>(logits, classes{2, -100, 1, 0});
  loss_tests::gradient_is_the_derivative<sum_loss>(logits, classes{2, -100, 1, 0});
  loss_tests::gradient_is_the_derivative<without_zero>(logits, classes{2, 0, 1, 0});
}
BOOST_AUTO_TEST_CASE(no_position_counts) {
  for (const auto& computed :
       {evaluate<mean_loss>(logits, classes(4, -100)), evaluate<sum_loss>(logits, classes(4, -100)),
        evaluate<without_zero>(logits, classes(4, 0))}) {
    BOOST_TEST(computed.loss == 0);
    BOOST_TEST(computed.gradient == numbers(12, 0), boost::test_tools::per_element());
  }
}
// A sample that ends early gives what it gives where the logits end: what lies behind is not read.
BOOST_AUTO_TEST_CASE(positions_behind_the_length_do_not_count) {
  const classes targets{1, -100, 2, 0};
  for (std::size_t length = 0; length <= 4; ++length) {
    numbers spoiled = logits;
    std::fill(spoiled.begin() + static_cast<std::ptrdiff_t>(3 * length), spoiled.end(),
              std::numeric_limits<double>::quiet_NaN());
    numbers gradient(12, 77);
    const double loss =
        mean_loss::evaluate<double>(std::span<const double>{spoiled}, targets, std::span<double>{gradient}, length);
    loss_tests::evaluation<double> wanted;
    if (length > 0) {
      const auto end = static_cast<std::ptrdiff_t>(length);
      wanted = evaluate<mean_loss>(numbers(logits.begin(), logits.begin() + 3 * end),
                                   classes(targets.begin(), targets.begin() + end));
    }
    wanted.gradient.resize(12, 0);
    BOOST_TEST(loss == wanted.loss);
    BOOST_TEST(gradient == wanted.gradient, boost::test_tools::per_element());
  }
}
BOOST_AUTO_TEST_CASE(not_a_number_shows_where_it_counts) {
  numbers y = logits;
  y[4] = std::numeric_limits<double>::quiet_NaN();
  BOOST_TEST(std::isnan(evaluate<mean_loss>(y, classes{0, 1, 2, 0}).gradient[3]));
  BOOST_TEST(evaluate<mean_loss>(y, classes{0, -100, 2, 0}).gradient[4] == 0);
}
BOOST_AUTO_TEST_CASE(extreme_logits) {
  const auto wrong = evaluate<sum_loss>(numbers{1e300, -1e300, 0, -1e30, 1e30, 0}, classes{1, 0});
  BOOST_TEST(wrong.loss == 2e300);
  BOOST_TEST(wrong.gradient == (numbers{1, -1, 0, -1, 1, 0}), boost::test_tools::per_element());
  // Further apart than a float can say, all at once and a stretch at a time.
  const std::vector<float> far{3e38F, -3e38F, 0};
  const classes last{1};
  BOOST_TEST(evaluate<sum_loss>(far, last).loss == 2 * static_cast<double>(3e38F));
  std::vector<pg::on_host::streamed_position<float>> seen(1);
  sum_loss::see(std::span{seen}, far.data(), 0, 3, std::span{last}, 1);
  BOOST_TEST(sum_loss::finish(std::span{seen}, std::span{last}, 1) == 2 * static_cast<double>(3e38F));
}
BOOST_AUTO_TEST_CASE(wrong_targets_are_refused) {
  BOOST_TEST(refusal<mean_loss>({0, -100, 2, 1}) == "taken");
  BOOST_TEST(refusal<mean_loss>({0, -100, 3, 1}) ==
             "pergrad: batch: record 0 has the target 3 at position 2 that this loss does not take: it takes 0 to "
             "2");
  BOOST_TEST(refusal<mean_loss>({0, -1, 2, 1}).find("the target -1") != std::string::npos);
  BOOST_TEST(refusal<without_zero>({0, -100, 2, 1}).find("the target -100") != std::string::npos);
  BOOST_TEST(refusal<mean_loss>({0, 1, 2}).find("pergrad: dataset: ") == 0U);
}
BOOST_AUTO_TEST_CASE(takes_positions_of_classes_only) {
  static_assert(pg::loss<mean_loss>);
  BOOST_TEST(mean_loss::accepts(pg::shape{4, 10}));
  BOOST_TEST(!mean_loss::accepts(pg::shape{10}));
  BOOST_TEST(!mean_loss::accepts(pg::shape{1, 2, 10}));
  BOOST_TEST(mean_loss::target_count(pg::shape{4, 10}) == 4U);
}

// In a network: the length that counts is the output's, and a sample weighs the same however long it is.
BOOST_AUTO_TEST_CASE(losses_of_samples_that_end_early) {
  using network = pg::basic_network<double, pg::variable(pg::shape{4, 3}), pg::linear<3, pg::no_bias>>;
  const pg::host exec{pg::threads{2}};
  network net{exec, pg::zeros{}};
  for (std::size_t i = 0; i < 3; ++i) net.parameters()[4 * i] = 1;
  numbers inputs = logits;
  inputs.insert(inputs.end(), logits.begin(), logits.end());
  const classes targets{1, -100, 2, 0, 1, -100, 2, 0};
  const std::vector<std::uint32_t> lengths{4, 3};
  network::tape tape{exec, pg::max_batch{2}};
  const pg::batch<network, mean_loss> batch{inputs, targets, lengths};
  const auto losses =
      pg::unprotected::evaluate(exec, pg::losses(pg::per_sample_gradients(net, mean_loss{}, batch, tape)));
  BOOST_TEST(losses[0] == evaluate<mean_loss>(logits, classes{1, -100, 2, 0}).loss);
  BOOST_TEST(losses[1] == evaluate<mean_loss>(logits, classes{1, -100, 2, -100}).loss);
}
BOOST_AUTO_TEST_CASE(networks_keep_the_laws) {
  using tagger = pg::basic_network<double, pg::variable(pg::token_ids(5, 7)), pg::embedding<4>, pg::tanh,
                                   pg::residual<pg::multihead_attention<2, pg::causal>>, pg::linear<7>>;
  for (const auto& report :
       {pg::testing::check_network<tagger, without_zero>(), pg::testing::check_network<tagger, sum_loss>()}) {
    BOOST_TEST(report.comparisons() > 100U);
    for (const auto& broken : report) BOOST_ERROR(broken.text());
  }
  const auto report = pg::testing::check_lengths<tagger, mean_loss>();
  BOOST_TEST(report.comparisons() > 100U);
  for (const auto& broken : report) BOOST_ERROR(broken.text());
}

BOOST_AUTO_TEST_CASE(positions_of_a_vocabulary_are_cross_entropies) {
  constexpr std::size_t classes = 1003, positions = 3;  // no multiple of a vector's lanes
  std::vector<float> y(positions * classes), dy(y.size()), of_one(classes);
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = static_cast<float>(static_cast<int>(i * 7919 % 2011) - 1005) / 9;
  y[5] = -std::numeric_limits<float>::infinity();
  const std::vector<std::int32_t> targets{7, 1002, 0};
  const double loss = pergrad::token_cross_entropy<>::evaluate<float>(y, targets, dy);
  double wanted = 0;
  for (std::size_t t = 0; t < positions; ++t) {
    wanted += pergrad::cross_entropy::evaluate(y.data() + t * classes, classes, targets.data() + t, of_one.data());
    for (std::size_t i = 0; i < classes; ++i) {
      BOOST_TEST(std::fabs(3 * dy[t * classes + i] - of_one[i]) <= 1e-6F * (1e-6F + std::fabs(of_one[i])));
    }
  }
  BOOST_TEST(std::fabs(3 * loss - wanted) < 1e-6 * wanted);
  y[classes + 1] = std::numeric_limits<float>::quiet_NaN();
  BOOST_TEST(std::isnan(pergrad::token_cross_entropy<>::evaluate<float>(y, targets, dy)));
  BOOST_TEST(std::isnan(dy[classes]));
}

BOOST_AUTO_TEST_SUITE_END()
