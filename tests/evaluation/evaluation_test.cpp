// SPDX-License-Identifier: Apache-2.0
// tests/evaluation/evaluation_test.cpp - records and networks of which nothing can be said: outputs that are no
// numbers, labels of no class, networks that were moved from, shapes with gaps
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <pergrad/pergrad.hpp>

BOOST_AUTO_TEST_SUITE(evaluation)

namespace {

namespace pg = pergrad;
using network = pg::network<pg::shape{2}, pg::linear<3>>;

/// What an error of this type says; empty without one.
template <class Error, class Function>
std::string said(const Function& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

}  // namespace

// Wherever the NaN stands, also at the record's own class, and where another class has the largest logit.
BOOST_AUTO_TEST_CASE(a_record_with_outputs_that_are_no_numbers_is_wrong) {
  const pg::host exec{pg::threads{1}};
  const std::vector<float> x{1, 1, 0, 1};  // 0 * NaN is a NaN as well
  const std::vector<std::int32_t> labels{0, 1};
  const pg::dataset records{x, labels, pg::shape{2}};
  for (const std::size_t class_of_nan : {0U, 1U, 2U}) {
    network net{exec, pg::zeros{}};
    net.parameters()[6 + 1] = 5;  // class 1
    BOOST_TEST(pg::evaluate_classifier(exec, net, pg::public_records{records}).accuracy == 0.5);
    net.parameters()[2 * class_of_nan] = std::nanf("");
    BOOST_TEST(pg::evaluate_classifier(exec, net, pg::public_records{records}).accuracy == 0);
    BOOST_TEST(said<std::runtime_error>([&] {
                 static_cast<void>(pg::confuse(exec, net, pg::public_records{records}));
               }) == "pergrad: confuse: the outputs for record 0 are not all numbers");
  }
}

BOOST_AUTO_TEST_CASE(a_label_of_no_class_is_named) {
  const pg::host exec{pg::threads{1}};
  const network net{exec, pg::zeros{}};
  const std::vector<float> x(4);
  const std::vector<std::int32_t> labels{0, 2};
  const pg::dataset records{x, labels, pg::shape{2}};
  BOOST_TEST(said<std::out_of_range>([&] {
               static_cast<void>(pg::confuse(exec, net, pg::public_records{records}, 2));
             }) == "pergrad: confuse: record 1 has the label 2, of 2 classes");
  BOOST_TEST(pg::confuse(exec, net, pg::public_records{records}, 3).total(2) == 1U);
}

BOOST_AUTO_TEST_CASE(a_network_that_was_moved_from_says_so) {
  const pg::host exec{pg::threads{1}};
  network net{exec, pg::layer_default{1}};
  const std::vector<float> x(4), one(2);
  const std::vector<std::int32_t> labels(2);
  const pg::dataset records{x, labels, pg::shape{2}};
  pg::predictor predict_one{exec, net};
  const network other = std::move(net);
  // NOLINTBEGIN(bugprone-use-after-move): that is what is tested
  BOOST_CHECK_THROW(static_cast<void>(pg::predict(exec, net, pg::public_records{x})), std::logic_error);
  BOOST_CHECK_THROW(static_cast<void>(predict_one(pg::public_records{one})), std::logic_error);
  BOOST_CHECK_THROW(static_cast<void>(pg::evaluate_classifier(exec, net, pg::public_records{records})),
                    std::logic_error);
  BOOST_CHECK_THROW(static_cast<void>(pg::confuse(exec, net, pg::public_records{records})), std::logic_error);
  // NOLINTEND(bugprone-use-after-move)
  BOOST_TEST(pg::predict(exec, other, pg::public_records{x}).size() == 6U);
}

BOOST_AUTO_TEST_CASE(a_matrix_of_too_many_classes_is_refused) {
  constexpr std::size_t half = std::size_t{1} << (std::numeric_limits<std::size_t>::digits / 2);  // half * half is 0
  for (const std::size_t classes : {half, half + 1, std::numeric_limits<std::size_t>::max()}) {
    BOOST_CHECK_THROW(pg::confusion_matrix{classes}, std::invalid_argument);
  }
}

BOOST_AUTO_TEST_CASE(a_data_set_of_a_shape_with_a_gap_is_refused) {
  const std::vector<float> x(30);
  const std::vector<std::int32_t> labels(2);
  for (const pg::shape& gap : {pg::shape{3, 0, 5}, pg::shape{15, 0, 0, 1}, pg::shape{3, 5, 0, 1}}) {
    const std::string text = said<std::invalid_argument>([&] { const pg::dataset records{x, labels, gap}; });
    BOOST_TEST(text.find("has an extent of 0 in front of another") != std::string::npos, text);
  }
}

BOOST_AUTO_TEST_SUITE_END()
