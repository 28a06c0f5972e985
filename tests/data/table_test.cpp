// SPDX-License-Identifier: Apache-2.0
// tests/data/table_test.cpp - tables of the tabular example: CSV, schemas, rows as numbers, and that a row tells
// nothing of another one
#include "../../examples/common/table.hpp"

#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "../../examples/common/svg.hpp"
#include "files.hpp"

BOOST_AUTO_TEST_SUITE(table)

namespace {

using fields = std::vector<std::string>;

example::csv_table parsed(std::string_view text) { return example::parse_csv(text, "t.csv"); }

void refuses(const auto& what, std::string_view message) {
  try {
    what();
    BOOST_ERROR("accepted; expected: " << message);
  } catch (const std::runtime_error& error) {
    BOOST_TEST(std::string_view{error.what()}.find(message) != std::string_view::npos,
               "'" << error.what() << "' does not say '" << message << "'");
  }
}

example::table_schema people() {
  example::table_schema made;
  made.rows = 4;
  made.missing = {"", "NA"};
  made.columns = {{"age", {}, 0, 100}, {"colour", {"red", "blue"}, 0, 0}, {"ill", {"no", "yes"}, 0, 0}};
  made.target = "ill";
  return made;
}

}  // namespace

BOOST_AUTO_TEST_CASE(reads_what_programs_write) {
  const auto table = parsed("\xef\xbb\xbf name ,\"a \"\"b\"\", c\",x\r\n\r\nAnn, \"two\nlines\" ,\r\n\"\", b c ,3");
  BOOST_TEST(table.columns == (fields{"name", "a \"b\", c", "x"}));
  BOOST_REQUIRE(table.rows.size() == 2);
  BOOST_TEST(table.rows[0].fields == (fields{"Ann", "two\nlines", ""}));
  BOOST_TEST(table.rows[0].line == 3);
  BOOST_TEST(table.rows[1].fields == (fields{"", "b c", "3"}));
  BOOST_TEST(table.rows[1].line == 5);  // the quoted line end counts
  BOOST_TEST(parsed("a;b,c;d\n1,5;2;3\n").rows[0].fields == (fields{"1,5", "2", "3"}));
  BOOST_TEST(parsed("a\tb\n1\t\n").rows[0].fields == (fields{"1", ""}));
  BOOST_TEST(parsed("a\n").rows.empty());
  // The separator is that of the first line that is not empty, outside of quotes; within a field a quote is a letter.
  BOOST_TEST(parsed("\xef\xbb\xbf\r\n\na;b\n1;2\n").columns == (fields{"a", "b"}));
  BOOST_TEST(parsed("\"a; b; \"\"c\"\"; d\",e,f\n1,2,3\n").columns == (fields{"a; b; \"c\"; d", "e", "f"}));
  BOOST_TEST(parsed("\"a\n,,\"; \"b,\"\n1;2\n").columns == (fields{"a\n,,", "b,"}));
  BOOST_TEST(parsed("5\" disk;a,b;\"c\"\n1;2;3\n").columns == (fields{"5\" disk", "a,b", "c"}));
}

BOOST_AUTO_TEST_CASE(what_is_written_is_read_again) {
  std::mt19937 bits{7};
  constexpr std::string_view letters = "ab,;\t\"\r\n \xc3\xa4";
  for (int round = 0; round < 2000; ++round) {
    fields row;
    std::string text = "x,y,z\n";
    for (int place = 0; place < 3; ++place) {
      std::string content(bits() % 5, ' ');
      for (char& letter : content) letter = letters[bits() % letters.size()];
      text += (place == 0 ? "" : ",") + (content.empty() ? "\"\"" : example::csv_field(content));
      row.push_back(content);
    }
    const auto table = parsed(text);
    BOOST_REQUIRE(table.rows.size() == 1);
    BOOST_TEST(table.rows[0].fields == row);
  }
}

BOOST_AUTO_TEST_CASE(text_that_is_no_table_is_refused_with_its_place) {
  refuses([] { return parsed(""); }, "t.csv, line 1: is empty");
  refuses([] { return parsed("a,b\n1,2\n\n1\n"); }, "t.csv, line 4: has 1 fields, expected 2 as in the header");
  refuses([] { return parsed("a,b\n1,2,3\n"); }, "t.csv, line 2: has 3 fields");
  refuses([] { return parsed("a,b\n1,\"2\n3\n"); }, "t.csv, line 2, column 2: has a quote that is opened and never");
  refuses([] { return parsed("a,b\n\"1\n2\",\"2\"3\n"); },
          "t.csv, line 3, column 2: has text behind the closing quote, expected ',' or the line's end");
  refuses([] { return parsed("a,b,a\n1,2,3\n"); }, "t.csv, line 1, column 3: has the name 'a' of column 1");
  refuses([] { return parsed({"a,b\n1,\0\n", 8}); }, "t.csv, line 2, column 2: has a byte 0");
  refuses([] { return parsed({"a,b\n1,\"\0\"\n", 10}); }, "t.csv, line 2, column 2: has a byte 0");
  refuses([] { return parsed("\xff\xfe"); }, "UTF-16");
}

BOOST_AUTO_TEST_CASE(rows_become_numbers_by_the_schema) {
  const auto made = example::encode(
      parsed("ill,colour,age,note\nyes,blue,25,x\nno,green,NA,\nno,red,1e999,\nyes,,-5,\n"), people(), 6, true);
  const std::vector<float> expected{-0.5F, 0, 0, 1, 0, 0,   // 25 of 0 to 100; blue
                                    0,     1, 0, 0, 1, 0,   // missing; no colour of the schema
                                    1,     0, 1, 0, 0, 0,   // clamped; red
                                    -1,    0, 0, 0, 1, 0};  // clamped; a colour that is missing is none of the schema
  BOOST_TEST(made.inputs == expected, boost::test_tools::per_element());
  BOOST_TEST(made.classes == (std::vector<std::int32_t>{1, 0, 0, 1}));
  // Without the target, as for rows that are to be predicted.
  BOOST_TEST(example::encode(parsed("age,colour\n25,blue\n"), people(), 5, false).inputs ==
             (std::vector<float>{-0.5F, 0, 0, 1, 0}));
  auto coded = people();  // a missing number may look like one
  coded.missing = {"", "-999"};
  BOOST_TEST(example::encode(parsed("age,colour\n-999,blue\n"), coded, 5, false).inputs ==
             (std::vector<float>{0, 1, 0, 1, 0}));
  auto wide = people();
  wide.columns[0].low = -std::numeric_limits<double>::max();
  wide.columns[0].high = std::numeric_limits<double>::max();
  BOOST_TEST(example::encode(parsed("age,colour\n0,red\n"), wide, 5, false).inputs[0] == 0.0F);
}

BOOST_AUTO_TEST_CASE(errors_name_line_and_column) {
  const auto encoded = [](std::string_view text) { return example::encode(parsed(text), people(), 5, true); };
  refuses([&] { return encoded("age,colour,ill\n1,red,no\nold,red,no\n"); },
          "t.csv, line 3, column age: 'old' is not a number");
  for (const char* bad : {"inf", "nan", "1.5x", "0x10", "1 2", "+-1", "--1"}) {
    refuses([&] { return encoded(std::string{"age,colour,ill\n"} + bad + ",red,no\n"); }, "line 2, column age: '");
  }
  refuses([&] { return encoded("age,colour,ill\n1,red,maybe\n"); },
          "line 2, column ill: 'maybe' is none of the classes");
  refuses([&] { return encoded("age,ill\n1,no\n"); }, "there is no column 'colour'");
}

BOOST_AUTO_TEST_CASE(schemas_that_say_nothing_sound_are_refused) {
  const test::temporary_folder folder;
  const auto schema = [&folder](std::string_view text, const std::string& target = "") {
    const std::string path = folder.path("s.json");
    std::ofstream{path} << text;
    return example::read_schema(path, target);
  };
  const auto good = schema(R"({"rows": 9, "columns": {"x": [0, 1.5], "y": ["a", "b"]}})", "y");
  BOOST_TEST(good.inputs() == 2U);
  BOOST_TEST(schema(example::schema_text(good)).inputs() == 2U);
  refuses([&] { return schema("{"); }, "is not a schema: parse error at line 1");
  refuses([&] { return schema("[]"); }, "expected an object of JSON");
  refuses([&] { return schema(R"({"columns": {"y": ["a", "b"], "x": [0, 1]}, "target": "y"})"); }, "needs rows");
  refuses([&] { return schema(R"({"rows": 0, "columns": {}})"); }, "'rows'");
  refuses([&] { return schema(R"({"rows": 4294967296, "columns": {}})"); }, "from 1 to 4294967295");
  refuses([&] { return schema(R"({"rows": 9, "rows": 8, "columns": {}})"); }, "s.json: has 'rows' twice");
  refuses([&] { return schema(R"({"rows": 9, "columns": {"x": [0, 1], "x": [0, 2]}})"); }, "s.json: has 'x' twice");
  refuses([&] { return schema(R"({"rows": 9, "columns": {"x": [0, 4e-324]}})"); }, "column 'x': the range must be");
  refuses([&] { return schema(R"({"rows": 9, "colums": {}})"); }, "'colums'");
  refuses([&] { return schema(R"({"rows": 9, "columns": {"x": [1, 1]}})"); }, "column 'x': the range must be");
  refuses([&] { return schema(R"({"rows": 9, "columns": {"x": [1]}})"); }, "column 'x': must be a range");
  refuses([&] { return schema(R"({"rows": 9, "columns": {"x": ["a", "a"]}})"); }, "the category 'a' twice");
  refuses([&] { return schema(R"({"rows": 9, "columns": {"x": [0, 1], "y": ["a", "b"]}})"); }, "no target");
  refuses([&] { return schema(R"({"rows": 9, "columns": {"x": [0, 1], "y": ["a", "b"]}})", "z"); }, "no column 'z'");
  refuses([&] { return schema(R"({"rows": 9, "columns": {"x": [0, 1], "y": ["a", "b"]}})", "x"); }, "two categories");
  refuses([&] { return schema(R"({"rows": 9, "columns": {"y": ["a", "b"]}})", "y"); }, "no column but the target");
}

// The adversary knows all rows but one, and looks for it in the numbers of the others. A schema that is read from the
// rows, as most tools do, gives it away; a schema that is given does not.
BOOST_AUTO_TEST_CASE(the_numbers_of_a_row_depend_on_no_other_row) {
  const std::string known = "age,colour,ill\n30,red,no\n40,blue,yes\n50,red,no\n";
  const std::string outliers[]{"97,red,no\n", "-3,blue,yes\n", "35,green,no\n", "45,,yes\n"};
  const auto without = parsed(known);
  std::size_t found_by_draft = 0;
  for (const std::string& outlier : outliers) {
    const auto with = parsed(known + outlier);
    const auto of_the_known = [&](const example::csv_table& rows, const example::table_schema& schema) {
      auto inputs = example::encode(rows, schema, 16, true).inputs;
      inputs.resize(3 * 16);
      return inputs;
    };
    BOOST_TEST(of_the_known(with, people()) == of_the_known(without, people()));
    const auto draft = [](const example::csv_table& rows) { return example::draft_schema(rows, "ill"); };
    found_by_draft += of_the_known(with, draft(with)) != of_the_known(without, draft(without)) ? 1U : 0U;
    // Nor does it move another row from training to testing.
    auto kept = without, kept_with = with;
    const auto held = example::hold_out(kept, 50), held_with = example::hold_out(kept_with, 50);
    for (std::size_t row = 0; row < kept.rows.size(); ++row) {
      BOOST_TEST(kept.rows[row].fields == kept_with.rows[row].fields);
    }
    BOOST_TEST(held.rows.size() + kept.rows.size() == 3U);
    BOOST_TEST(held_with.rows.size() >= held.rows.size());
  }
  BOOST_TEST(found_by_draft == 3U);  // the planted weakness; a missing colour changes no draft
}

BOOST_AUTO_TEST_CASE(about_the_share_asked_for_is_held_out) {
  std::string text = "x,y\n";
  for (int row = 0; row < 10'000; ++row) text += std::to_string(row) + ",a\n";
  auto rows = parsed(text);
  const auto held = example::hold_out(rows, 20);
  BOOST_TEST(held.rows.size() + rows.rows.size() == 10'000U);
  BOOST_TEST(held.rows.size() > 1840U);  // binomial: 2000 and four deviations of 40
  BOOST_TEST(held.rows.size() < 2160U);
}

BOOST_AUTO_TEST_CASE(a_draft_lists_what_it_can) {
  std::string text = "number,class,same,text,empty\n";
  for (int row = 0; row < 100; ++row) {
    text += std::to_string(row) + "," + (row % 2 == 0 ? "1" : "0") + ",7,t" + std::to_string(row) + ",\n";
  }
  const auto draft = example::draft_schema(parsed(text), "class");
  BOOST_REQUIRE(draft.columns.size() == 2);  // no range of one number, no text of which there are too many
  BOOST_TEST(draft.rows == 100U);
  BOOST_TEST(draft.columns[0].high == 99.0);
  BOOST_TEST(draft.columns[1].categories == (fields{"0", "1"}));
  refuses([&] { return example::draft_schema(parsed(text), "clas"); }, "there is no column 'clas'");
}

BOOST_AUTO_TEST_CASE(categories_in_a_picture_are_text_of_xml) {
  BOOST_TEST(example::svg::escaped("a\x01<\n&\xc3\xa9") == "a &lt; &amp;\xc3\xa9");
}

BOOST_AUTO_TEST_SUITE_END()
