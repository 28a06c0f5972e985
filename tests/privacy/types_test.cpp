// SPDX-License-Identifier: Apache-2.0
// tests/privacy/types_test.cpp - strong types hold what they should and refuse the rest by name.
#include <boost/test/unit_test.hpp>

#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>

#include <pergrad/privacy/types.hpp>

BOOST_AUTO_TEST_SUITE(privacy_types)

namespace {

constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();
constexpr double inf_value = std::numeric_limits<double>::infinity();
constexpr double largest = std::numeric_limits<double>::max();

template <class Number>
void refuses(double value) {
  BOOST_CHECK_EXCEPTION(Number{value}, std::invalid_argument, [](const std::invalid_argument& error) {
    const std::string text = error.what();
    return text.starts_with("pergrad: ") && text.find(Number::name) != std::string::npos &&
           text.find("got ") != std::string::npos;
  });
}

template <class Number>
void holds(double value) {
  BOOST_TEST(Number{value}.value() == value);
}

static_assert(pergrad::l2_clip_norm{1.0}.value() == 1.0);
static_assert(pergrad::noise_multiplier{0.0} == pergrad::noise_multiplier{0.0});
static_assert(!std::is_convertible_v<double, pergrad::epsilon>);
static_assert(!std::is_constructible_v<pergrad::epsilon, pergrad::delta>);
static_assert(!std::is_convertible_v<pergrad::noise_multiplier, pergrad::l2_clip_norm>);
static_assert(!std::is_constructible_v<pergrad::noise_multiplier, pergrad::l2_clip_norm>);

}  // namespace

BOOST_AUTO_TEST_CASE(nan_fits_nowhere) {
  refuses<pergrad::l2_clip_norm>(nan_value);
  refuses<pergrad::noise_multiplier>(nan_value);
  refuses<pergrad::sampling_probability>(nan_value);
  refuses<pergrad::expected_batch_size>(nan_value);
  refuses<pergrad::epsilon>(nan_value);
  refuses<pergrad::delta>(nan_value);
  refuses<pergrad::learning_rate>(nan_value);
}

BOOST_AUTO_TEST_CASE(ranges_end_where_they_should) {
  for (const double bad : {0.0, -1.0, 9.9e-31, inf_value, -inf_value}) refuses<pergrad::l2_clip_norm>(bad);
  for (const double good : {1e-30, 1.0, largest}) holds<pergrad::l2_clip_norm>(good);
  for (const double bad : {-1e-300, inf_value}) refuses<pergrad::noise_multiplier>(bad);
  for (const double good : {0.0, 1.1, largest}) holds<pergrad::noise_multiplier>(good);
  for (const double bad : {-1e-300, 1.0000000000000002, inf_value}) refuses<pergrad::sampling_probability>(bad);
  for (const double good : {0.0, 5e-324, 1.0}) holds<pergrad::sampling_probability>(good);
  for (const double bad : {0.0, -1.0, inf_value}) refuses<pergrad::expected_batch_size>(bad);
  for (const double good : {0.5, 2048.0}) holds<pergrad::expected_batch_size>(good);
  for (const double bad : {-1e-300, -inf_value}) refuses<pergrad::epsilon>(bad);
  for (const double good : {0.0, 3.0, inf_value}) holds<pergrad::epsilon>(good);
  for (const double bad : {0.0, 1.0, -1e-5, inf_value}) refuses<pergrad::delta>(bad);
  for (const double good : {1e-300, 1e-5, 0.5}) holds<pergrad::delta>(good);
  for (const double bad : {0.0, -0.1, inf_value}) refuses<pergrad::learning_rate>(bad);
  for (const double good : {1e-4, 4.0}) holds<pergrad::learning_rate>(good);
}

BOOST_AUTO_TEST_CASE(message_says_what_was_got) {
  BOOST_CHECK_EXCEPTION(pergrad::delta{2.5}, std::invalid_argument, [](const std::invalid_argument& error) {
    return std::string{error.what()} == "pergrad: delta must be strictly between 0 and 1, got 2.5";
  });
}

BOOST_AUTO_TEST_SUITE_END()
