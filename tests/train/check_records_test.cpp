// SPDX-License-Identifier: Apache-2.0
// tests/train/check_records_test.cpp - what the owner of records is told of them, and what an error says of a record
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <pergrad/pergrad.hpp>

BOOST_AUTO_TEST_SUITE(check_records)

namespace {

namespace pg = pergrad;
constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();

template <class Function>
std::string told(Function&& f) {
  try {
    f();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing";
}

}  // namespace

BOOST_AUTO_TEST_CASE(each_thing_is_found_and_counted_once) {
  // Column 1 is constant; record 3 is record 0 again; record 4 has record 1's inputs and another label.
  const std::vector<float> inputs{1, 5, 2, 2, 5, -3, 4, 5, 8, 1, 5, 2, 2, 5, -3};
  const std::vector<std::int32_t> labels{0, 1, 1, 0, 2};
  const auto report = pg::unprotected::check(pg::dataset{inputs, labels, pg::shape{3}});
  BOOST_TEST(report.records == 5U);
  BOOST_TEST(report.duplicates == 1U);
  BOOST_TEST(report.same_inputs_other_targets == 1U);
  BOOST_TEST(report.constant_columns == std::vector<std::size_t>{1});
  BOOST_TEST((report.labels == std::vector<double>{0, 1, 2}));
  BOOST_TEST((report.label_counts == std::vector<std::size_t>{2, 2, 1}));
  BOOST_TEST(report.smallest == -3.0);
  BOOST_TEST(report.largest == 8.0);
  BOOST_TEST(report.with_nan + report.with_infinity == 0U);
  BOOST_TEST(!report.clean());
  const std::string text = report.text();
  for (const char* part : {"5 records\n", "1 are duplicates", "1 input columns are constant: 1\n", "target 2: 1\n"}) {
    BOOST_TEST(text.find(part) != std::string::npos, part << " is missing in\n" << text);
  }
}
BOOST_AUTO_TEST_CASE(a_shape_may_stand_in_braces) {
  const std::vector<float> inputs{1, 5, 2, 2, 5, -3};
  const std::vector<std::int32_t> labels{0, 1};
  const std::vector<std::uint32_t> lengths{1, 3};
  const pg::dataset rows{inputs, labels, {3}};
  static_assert(std::is_same_v<decltype(rows), const pg::dataset<float, std::int32_t>>);
  BOOST_TEST((rows.size() == 2U && rows.input_shape() == pg::shape{3}));
  const pg::dataset images{inputs, std::span{labels}.first(1), {1, 2, 3}};
  BOOST_TEST((images.size() == 1U && images.input_shape() == pg::shape{1, 2, 3}));
  BOOST_CHECK_THROW((pg::dataset{inputs, labels, {3}, std::size_t{1}, lengths}), std::invalid_argument);
}
BOOST_AUTO_TEST_CASE(what_is_not_finite) {
  const std::vector<float> inputs{1, 2, 3, nan, nan, 5, -infinity, 7, nan, infinity, 9, 8};
  const std::vector<float> targets{0, nan, 1, 2, infinity, 3};
  const auto report = pg::unprotected::check(pg::dataset{inputs, targets, pg::shape{2}});
  BOOST_TEST(report.with_nan == 3U);
  BOOST_TEST(report.with_infinity == 2U);
  BOOST_TEST(report.first_not_finite == 1U);
  BOOST_TEST(report.targets_not_finite == 2U);
  BOOST_TEST(report.largest == 9.0);
}
BOOST_AUTO_TEST_CASE(what_lies_beyond_a_length_is_not_looked_at) {
  const std::vector<float> inputs{1, nan, nan, 1, 2, nan, 1, 2, 3, 1, 2, 7};
  const std::vector<std::int32_t> labels{0, 1, 0, 1};
  const std::vector<std::uint32_t> lengths{1, 2, 3, 2};
  const auto report =
      pg::unprotected::check(pg::dataset{inputs, labels, pg::variable(pg::shape{3, 1}), std::size_t{1}, lengths});
  BOOST_TEST(report.with_nan == 0U);
  BOOST_TEST(report.duplicates == 1U);  // record 3 is record 1
  BOOST_TEST(report.constant_columns == std::vector<std::size_t>{0});
  BOOST_TEST(report.shortest == 1U);
  BOOST_TEST(report.longest == 3U);
  BOOST_TEST(report.mean_length == 2.0);
}
BOOST_AUTO_TEST_CASE(ids_none_and_clean_ones) {
  const std::vector<std::int32_t> ids{1, 2, 3, 4};
  const std::vector<std::int32_t> labels{0, 1};
  BOOST_TEST(pg::unprotected::check(pg::dataset{ids, labels, pg::token_ids(2, 9)}).clean());
  const pg::dataset<float, std::int32_t> nobody{std::span<const float>{}, std::span<const std::int32_t>{},
                                                pg::shape{3}};
  const auto empty = pg::unprotected::check(nobody);
  BOOST_TEST(empty.records == 0U);
  BOOST_TEST(!empty.clean());
  BOOST_TEST(empty.text() == "0 records\n");
}

BOOST_AUTO_TEST_CASE(errors_name_record_value_and_range) {
  using net_type = pg::network<pg::shape{1, 2, 2}, pg::flatten, pg::linear<3>>;
  const std::vector<float> inputs(12);
  const std::vector<std::int32_t> labels{0, 1, 7};
  const pg::dataset records{inputs, labels, net_type::input_shape};
  const std::vector<std::uint32_t> ids{2, 0};
  BOOST_TEST(told([&] {
               const pg::batch<net_type, pg::cross_entropy> made{records, ids};
             }) == "pergrad: batch: record 2 has the target 7 that this loss does not take: it takes 0 to 2");
  const std::vector<float> probabilities{0, 1, 0.5F, 0, 1, 1.5F, 0, 0, 0};
  BOOST_TEST(
      told([&] {
        const pg::batch<net_type, pg::binary_cross_entropy_with_logits> made{inputs, probabilities};
      }) ==
      "pergrad: batch: record 1 has the target 1.500000 at position 2 that this loss does not take: it takes 0 to "
      "1");
  const pg::host exec;
  net_type net{exec, pg::zeros{}};
  pg::dp_sgd_options options;
  options.clip = pg::l2_clip_norm{1.0};
  options.noise = pg::noise_multiplier{1.0};
  options.sampling = pg::poisson_sampling{pg::sampling_probability{0.5}};
  options.divisor = pg::expected_batch_size{2};
  options.learning_rate = pg::learning_rate{0.1};
  pg::dp_sgd trainer{exec, net, pg::cross_entropy{}, options};
  BOOST_TEST(told([&] { trainer.step(records); }) ==
             "pergrad: private training: record 2 has the target 7 that this loss does not take: it takes 0 to 2");
  BOOST_TEST(told([&] {
               trainer.step(pg::dataset{inputs, labels, pg::shape{4}});
             }).find("record 2") != std::string::npos);
  const std::vector<std::int32_t> fewer{0, 1};
  BOOST_TEST(told([&] {
               trainer.step(pg::dataset{inputs, fewer, pg::shape{2, 3}});
             }) ==
             "pergrad: private training: records have shape (2, 3), 6 values, the network takes (1, 2, 2), 4 values");
  BOOST_TEST(told([&] {
               const pg::dataset made{inputs, labels, pg::shape{1, 5}};
             }) ==
             "pergrad: dataset: 12 input values in records of shape (1, 5), 5 values, do not match 3 targets, 1 a "
             "record");
}

// A clone has the parameters and shares nothing.
BOOST_AUTO_TEST_CASE(a_clone_is_another_network) {
  using net_type = pg::network<pg::shape{4}, pg::frozen<pg::linear<3>>, pg::linear<2>>;
  static_assert(!std::is_copy_constructible_v<net_type> && !std::is_default_constructible_v<net_type>);
  const pg::host exec;
  net_type net{exec, pg::kaiming_uniform{1}};
  net_type other = std::as_const(net).clone();
  BOOST_TEST(std::equal(net.all_parameters().begin(), net.all_parameters().end(), other.all_parameters().begin(),
                        other.all_parameters().end()));
  BOOST_TEST(other.frozen_parameters().size() == 15U);
  const float before = net.parameters()[0];
  other.parameters()[0] += 1;
  BOOST_TEST(net.parameters()[0] == before);
}

BOOST_AUTO_TEST_SUITE_END()
