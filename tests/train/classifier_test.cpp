// SPDX-License-Identifier: Apache-2.0
// tests/train/classifier_test.cpp - accuracy, mean loss and predictions against counting by hand.
#include "fixture.hpp"

BOOST_AUTO_TEST_SUITE(train_classifier)

namespace {

using namespace fixture;

/// Logits by PyTorch's formulas, in double.
std::vector<double> logits_of(const classifier& net, const float* x) {
  const auto w = net.parameters();
  std::vector<double> hidden(9), logits(3);
  for (std::size_t j = 0; j < 9; ++j) {
    double sum = static_cast<double>(w[54 + j]);
    for (std::size_t i = 0; i < 6; ++i) sum += static_cast<double>(w[j * 6 + i]) * static_cast<double>(x[i]);
    hidden[j] = std::tanh(sum);
  }
  for (std::size_t k = 0; k < 3; ++k) {
    logits[k] = static_cast<double>(w[63 + 27 + k]);
    for (std::size_t j = 0; j < 9; ++j) logits[k] += static_cast<double>(w[63 + k * 9 + j]) * hidden[j];
  }
  return logits;
}

}  // namespace

BOOST_AUTO_TEST_CASE(counts_and_averages) {
  const pg::host exec{pg::threads{2}};
  const classifier net{exec, pg::kaiming_uniform{3}};
  for (const std::size_t count : {1U, 700U, 1024U, 1025U, 3000U}) {  // chunks of 1024 inside
    const clouds data{count};
    std::size_t right = 0;
    double loss = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const auto logits = logits_of(net, data.inputs.data() + i * 6);
      std::size_t largest = 0;
      double sum = 0;
      for (std::size_t k = 0; k < 3; ++k) {
        if (logits[k] > logits[largest]) largest = k;
        sum += std::exp(logits[k]);
      }
      right += largest == static_cast<std::size_t>(data.classes[i]) ? 1U : 0U;
      loss += std::log(sum) - logits[static_cast<std::size_t>(data.classes[i])];
    }
    const pg::classifier_result result = pg::evaluate_classifier(exec, net, pg::public_records{data.records()});
    BOOST_TEST(result.accuracy == static_cast<double>(right) / static_cast<double>(count));
    BOOST_TEST(std::fabs(result.mean_loss - loss / static_cast<double>(count)) < 1e-6);
  }
}

BOOST_AUTO_TEST_CASE(threads_change_nothing) {
  const clouds data{2500};
  const pg::host one{pg::threads{1}};
  const classifier net{one, pg::kaiming_uniform{3}};
  const auto wanted = pg::evaluate_classifier(one, net, pg::public_records{data.records()});
  for (std::size_t threads = 2; threads <= 4; ++threads) {
    const auto found = pg::evaluate_classifier(pg::host{pg::threads{threads}}, net, pg::public_records{data.records()});
    BOOST_TEST(found.accuracy == wanted.accuracy);
    BOOST_TEST(found.mean_loss == wanted.mean_loss);
  }
}

BOOST_AUTO_TEST_CASE(no_records_and_wrong_records) {
  const pg::host exec{pg::threads{1}};
  const classifier net{exec, pg::kaiming_uniform{3}};
  const auto nothing = pg::evaluate_classifier(exec, net, pg::public_records{clouds{0}.records()});
  BOOST_TEST(nothing.accuracy == 0.0);
  BOOST_TEST(nothing.mean_loss == 0.0);
  clouds data{50};
  BOOST_CHECK_THROW(
      static_cast<void>(pg::evaluate_classifier(exec, net,
                                                pg::public_records{pg::dataset<float, std::int32_t>{
                                                    data.inputs, std::span{data.classes}.first(25), pg::shape{12}}})),
      std::invalid_argument);
  // The same values in another order, or the same order under another name.
  BOOST_CHECK_THROW(
      static_cast<void>(pg::evaluate_classifier(
          exec, pg::network<pg::shape{3, 2}, pg::flatten, pg::linear<3>>{exec, pg::zeros{}},
          pg::public_records{pg::dataset<float, std::int32_t>{data.inputs, data.classes, pg::shape{2, 3}}})),
      std::invalid_argument);
  for (const pg::shape same : {pg::shape{2, 3}, pg::shape{1, 6}, pg::shape{1, 2, 3}}) {
    BOOST_CHECK_NO_THROW(static_cast<void>(pg::evaluate_classifier(
        exec, net, pg::public_records{pg::dataset<float, std::int32_t>{data.inputs, data.classes, same}})));
  }
  data.classes[49] = 3;
  BOOST_CHECK_THROW(static_cast<void>(pg::evaluate_classifier(exec, net, pg::public_records{data.records()})),
                    std::invalid_argument);
}

BOOST_AUTO_TEST_CASE(predictions_are_the_outputs) {
  const pg::host exec{pg::threads{2}};
  const classifier net{exec, pg::kaiming_uniform{3}};
  for (const std::size_t count : {0U, 1U, 1025U}) {
    const clouds data{count};
    const std::vector<float> found = pg::predict(exec, net, pg::public_records{data.inputs});
    BOOST_TEST_REQUIRE(found.size() == 3 * count);
    for (std::size_t i = 0; i < count; ++i) {
      const auto wanted = logits_of(net, data.inputs.data() + i * 6);
      for (std::size_t k = 0; k < 3; ++k) {
        BOOST_REQUIRE(std::fabs(static_cast<double>(found[i * 3 + k]) - wanted[k]) < 1e-5);
      }
    }
  }
  BOOST_CHECK_THROW(static_cast<void>(pg::predict(exec, net, pg::public_records{std::vector<float>(7)})),
                    std::invalid_argument);

  using reader = pg::network<pg::variable(pg::token_ids(3, 5)), pg::embedding<2>, pg::mean_over_positions>;
  const reader words{exec, pg::layer_default{1}};
  const auto table = words.parameters();
  const std::vector<std::int32_t> ids{1, 4, 0, 2, 3, 4};
  const std::vector<std::uint32_t> lengths{1, 2};
  const std::vector<float> means = pg::predict(exec, words, pg::public_records{ids}, lengths);
  BOOST_TEST_REQUIRE(means.size() == 4U);
  BOOST_TEST(means[0] == table[2]);
  BOOST_TEST(means[3] == (table[5] + table[7]) / 2);
  BOOST_CHECK_THROW(static_cast<void>(pg::predict(exec, words, pg::public_records{ids})), std::invalid_argument);
}

// One record at a time: the same bits as `predict`, and the parameters of the moment.
BOOST_AUTO_TEST_CASE(a_predictor_says_what_predict_says) {
  const clouds data{20};
  const pg::host exec{pg::threads{2}};
  classifier net{exec, pg::kaiming_uniform{3}};
  pg::predictor predict_one{exec, net};
  for (int time = 0; time < 2; ++time) {
    const auto all = pg::predict(exec, net, pg::public_records{data.inputs});
    for (std::size_t i = 0; i < 20; ++i) {
      const auto one = predict_one(pg::public_records{std::span{data.inputs}.subspan(6 * i, 6)});
      BOOST_TEST(one == std::span{all}.subspan(3 * i, 3), boost::test_tools::per_element());
    }
    for (float& weight : net.parameters()) weight *= 2;
  }
  const std::vector<float> two(12);
  BOOST_CHECK_THROW(static_cast<void>(predict_one(pg::public_records{two})), std::invalid_argument);
}
BOOST_AUTO_TEST_CASE(a_predictor_takes_lengths) {
  using reader = pg::network<pg::variable(pg::token_ids(5, 9)), pg::embedding<4>, pg::lstm<3, pg::last_output>>;
  const pg::host exec{pg::threads{1}};
  const reader net{exec, pg::layer_default{3}};
  pg::predictor predict_one{exec, net};
  const std::vector<std::int32_t> ids{1, 2, 3, 4, 5, 8, 7, 6, 0, 0};
  const std::vector<std::uint32_t> lengths{5, 3};
  const auto all = pg::predict(exec, net, pg::public_records{ids}, lengths);
  for (std::size_t i = 0; i < 2; ++i) {
    const auto one = predict_one(pg::public_records{std::span{ids}.subspan(5 * i, 5)}, lengths[i]);
    BOOST_TEST(one == std::span{all}.subspan(3 * i, 3), boost::test_tools::per_element());
  }
  const auto by_a_plain_number = predict_one(pg::public_records{std::span{ids}.first(5)}, 5);
  BOOST_TEST(by_a_plain_number == std::span{all}.first(3), boost::test_tools::per_element());
  BOOST_CHECK_THROW(static_cast<void>(predict_one(pg::public_records{std::span{ids}.first(5)}, 6U)),
                    std::invalid_argument);
}

BOOST_AUTO_TEST_SUITE_END()
