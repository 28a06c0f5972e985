// SPDX-License-Identifier: Apache-2.0
// tests/host/describe_test.cpp - the table of a network: names as users write them, blocks counted once, what a
// norm comes from, and columns that stay where they are
#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <string>
#include <vector>

#include <pergrad/host/describe.hpp>
#include <pergrad/pergrad.hpp>

BOOST_AUTO_TEST_SUITE(describe)

namespace {

namespace pg = pergrad;

using reader = pg::network<pg::variable(pg::token_ids(6, 20)), pg::frozen<pg::embedding<8>>,                // 0
                           pg::tied<0, pg::linear<8>>, pg::tanh, pg::tied<0, pg::linear<8>>,                // 1 - 3
                           pg::lstm<5, pg::bidirectional, pg::one_bias, pg::last_output>, pg::linear<3>>;   // 4 - 7
using counter = pg::network<pg::token_ids(6, 20), pg::embedding<4>, pg::rnn<4, pg::relu_cell>, pg::gru<2>,  // 0 - 2
                            pg::reshape<pg::shape{3, 2, 2}>, pg::conv2d<2, 2, pg::padding<1>>,              // 3, 4
                            pg::max_pool2d<pg::extent{2, 1}>, pg::reshape<pg::shape{2, 1, 3, 1}>,           // 5, 6
                            pg::conv3d<2, pg::extent{1, 2, 1}>, pg::flatten, pg::linear<2>>;                // 7 - 9

/// A name that is longer than its column.
struct of_a_long_name : pg::relu {
  static constexpr const char* name = "a_name_that_no_column_of_any_table_has_room_for";
};
/// The least that a layer says.
struct nameless {
  template <class Value>
  static Value value(Value x) {
    return x + x;
  }
  template <class Value>
  static Value derivative(Value /*x*/, Value /*y*/) {
    return Value{2};
  }
  static constexpr pg::shape output_shape(pg::shape in) { return in; }
};

}  // namespace

BOOST_AUTO_TEST_CASE(blocks_are_counted_once_and_frozen_ones_have_no_norm) {
  const auto rows = pg::describe_rows<reader>();
  BOOST_REQUIRE(rows.size() == 8U);
  const std::vector<std::string> norms{"frozen",      "instantiate", "-", "tied",
                                       "instantiate", "instantiate", "-", "product"};
  std::size_t parameters = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    BOOST_TEST_CONTEXT("entry " << i) { BOOST_TEST(rows[i].norm == norms[i]); }
    parameters += rows[i].parameters;
  }
  BOOST_TEST(rows[0].parameters == 160U);
  BOOST_TEST(rows[1].parameters == 72U);
  BOOST_TEST(rows[3].parameters == 0U);
  BOOST_TEST(parameters == reader::parameter_count + reader::frozen_parameter_count);
  const std::string text = pg::describe<reader>();
  BOOST_TEST(text.find("total  " + std::to_string(reader::parameter_count) + " parameters and 160 frozen, ") !=
             std::string::npos);
}

BOOST_AUTO_TEST_CASE(parts_that_nobody_writes_have_the_names_of_what_they_are_part_of) {
  using block = pg::network<pg::shape{6, 4}, pg::transformer_encoder_layer<2, 8>, pg::parallel<pg::tanh, pg::relu>,
                            pg::transpose, pg::parallel_channels<pg::tanh, pg::relu>, pg::residual<pg::tanh>>;
  const std::string text = pg::describe<block>();
  for (const char* const name : {" residual_linear ", " parallel ", " parallel_channels ", " residual "}) {
    BOOST_TEST_CONTEXT(name) { BOOST_TEST(text.find(name) != std::string::npos); }
  }
  for (const char* const internal : {"branch_sum", "concatenat", "feed_forward", "_core"}) {
    BOOST_TEST_CONTEXT(internal) { BOOST_TEST(text.find(internal) == std::string::npos); }
  }
}

BOOST_AUTO_TEST_CASE(layers_have_the_names_that_users_write) {
  const auto rows = pg::describe_rows<reader>();
  BOOST_TEST(rows[0].layer == "embedding");
  BOOST_TEST(rows[4].layer == "lstm");
  BOOST_TEST(rows[5].layer == "lstm_reversed");
  const auto others = pg::describe_rows<counter>();
  const std::vector<std::string> names{"embedding",  "rnn",     "gru",    "reshape", "conv2d",
                                       "max_pool2d", "reshape", "conv3d", "flatten", "linear"};
  BOOST_REQUIRE(others.size() == names.size());
  for (std::size_t i = 0; i < names.size(); ++i) BOOST_TEST(others[i].layer == names[i]);
  BOOST_TEST(others[0].norm == "row sum");
  BOOST_TEST(pg::describe<counter>().find(" frozen") == std::string::npos);
}

BOOST_AUTO_TEST_CASE(large_blocks_and_those_behind_them_are_summed_up_a_chunk_at_a_time) {
  using net = pg::network<pg::shape{4, 16, 16}, pg::conv2d<8, 3, pg::padding<1>>, pg::relu, pg::flatten,   // 0 - 2
                          pg::linear<128>, pg::linear<120>, pg::frozen<pg::linear<2048>>, pg::linear<2>>;  // 3 - 6
  const auto rows = pg::describe_rows<net>();
  const std::vector<std::string> sums{"tile", "-", "-", "chunk", "chunk", "-", "chunk"};
  BOOST_REQUIRE(rows.size() == sums.size());
  for (std::size_t i = 0; i < sums.size(); ++i) {
    BOOST_TEST_CONTEXT("entry " << i) { BOOST_TEST(rows[i].sum == sums[i]); }
  }
  BOOST_TEST(rows[3].norm == "product");
  BOOST_TEST(pg::describe_rows<counter>()[0].sum == "chunk");  // of a table
  BOOST_TEST(pg::describe_rows<reader>()[3].sum == "-");       // of another use of a tied block
  BOOST_TEST(pg::describe<net>().find(" product     chunk ") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(convolutions_by_minimal_filtering_are_marked) {
  using net = pg::network<pg::shape{32, 8, 8}, pg::conv2d<32, 3, pg::padding<1>>, pg::relu, pg::conv2d<4, 3>,
                          pg::flatten, pg::linear<2>>;
  const auto rows = pg::describe_rows<net>();
  BOOST_TEST(rows[0].filtered == "F(2x2, 3x3)");
  for (const std::size_t entry : {1U, 2U, 3U, 4U}) BOOST_TEST(rows[entry].filtered == "");
  const std::string text = pg::describe<net>();
  BOOST_TEST(text.find("  F(2x2, 3x3)\n") == text.rfind("F(2x2, 3x3)") - 2);
}

BOOST_AUTO_TEST_CASE(long_names_do_not_move_the_columns) {
  using net = pg::network<pg::shape{4}, pg::linear<3>, of_a_long_name, nameless, pg::linear<2>>;
  const std::string text = pg::describe<net>();
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  BOOST_REQUIRE(lines.size() == 6U);  // head, four entries, total
  for (std::size_t line = 0; line < 5; ++line) BOOST_TEST(lines[line].size() == lines[0].size());
  const std::size_t in = lines[0].find("in ");
  for (std::size_t line = 1; line < 5; ++line) BOOST_TEST(lines[line][in] == '{');
  const auto rows = pg::describe_rows<net>();
  BOOST_TEST(rows[1].layer == of_a_long_name::name);
  BOOST_TEST(rows[2].layer == "layer");
}

BOOST_AUTO_TEST_SUITE_END()
