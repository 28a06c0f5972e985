// SPDX-License-Identifier: Apache-2.0
// tests/data/sequences_test.cpp - sequences of different lengths: from text, padded and cut
#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <pergrad/batch.hpp>
#include <pergrad/data/sequences.hpp>
#include <pergrad/shape.hpp>

#include "files.hpp"

BOOST_AUTO_TEST_SUITE(sequences)

namespace {

using ids = std::vector<std::int32_t>;
using lengths = std::vector<std::uint32_t>;
using pergrad::sequence_end;
using test::misses;

pergrad::labelled_sequences three() { return {{{1, 2, 3, 4, 5, 6, 7}, {2, 2, 7}}, {0, 1, 1}}; }  // {1 2} {} {3 ... 7}

pergrad::labelled_sequences parse(std::string_view text) {
  return pergrad::parse_sequences(test::bytes(text.begin(), text.end()), "some-file");
}

}  // namespace

BOOST_AUTO_TEST_CASE(text_is_a_line_a_sequence) {
  // What examples/imdb_sequences.py makes of six reviews.
  const std::string text = "1 1 12 2 3 8 9 10 11\n0 1 4 5 6\n0 1\n1 1 258 259 2 2 2\n1 1 7\n0 1 9999 2 2147483647\n";
  const auto set = parse(text);
  BOOST_TEST(set.labels == (ids{1, 0, 0, 1, 1, 0}), boost::test_tools::per_element());
  BOOST_TEST(set.sequences.ids ==
                 (ids{1, 12, 2, 3, 8, 9, 10, 11, 1, 4, 5, 6, 1, 1, 258, 259, 2, 2, 2, 1, 7, 1, 9999, 2, 2147483647}),
             boost::test_tools::per_element());
  BOOST_TEST(set.sequences.ends == (std::vector<std::size_t>{8, 12, 13, 19, 21, 25}), boost::test_tools::per_element());
  BOOST_TEST(parse("").size() == 0U);
  BOOST_TEST(parse("7\n").sequences[0].empty());

  const test::temporary_folder folder;
  folder.write("train.txt", std::string_view{text});
  BOOST_TEST(pergrad::read_sequences(folder.path("train.txt")).sequences.ids == set.sequences.ids);
  BOOST_TEST(misses([&] { return pergrad::read_sequences(folder.path("none")); }, {"cannot open"}) == "");
}

BOOST_AUTO_TEST_CASE(text_of_another_form_is_refused) {
  const auto refuses = [](std::string_view text, const std::string& place) {
    return misses([&] { return parse(text); }, {"some-file, byte " + place + ": expected"});
  };
  BOOST_TEST(refuses("1 2", "3") == "");
  BOOST_TEST(refuses("1 2 ", "4") == "");
  BOOST_TEST(refuses("1 2\n\n", "4") == "");
  BOOST_TEST(refuses("1  2\n", "2") == "");
  BOOST_TEST(refuses("1 2 \n", "4") == "");
  BOOST_TEST(refuses("1 2\r\n", "3") == "");
  BOOST_TEST(refuses("1 -2\n", "2") == "");
  BOOST_TEST(refuses("1 word\n", "2") == "");
  BOOST_TEST(refuses("1 2147483648\n", "2") == "");
  BOOST_TEST(refuses("1 99999999999999999999999\n", "2") == "");
}

BOOST_AUTO_TEST_CASE(a_sequence_is_what_lies_between_two_ends) {
  const auto set = three();
  BOOST_TEST(set.size() == 3U);
  BOOST_TEST(set.sequences[0].size() == 2U);
  BOOST_TEST(set.sequences[1].empty());
  BOOST_TEST(set.sequences[2][0] == 3);
  BOOST_TEST(set.sequences[2].size() == 5U);
}

BOOST_AUTO_TEST_CASE(padding_and_cutting_at_either_end) {
  const auto front = pergrad::pad_sequences(three(), 4);
  BOOST_TEST(front.ids == (ids{0, 0, 1, 2, 0, 0, 0, 0, 4, 5, 6, 7}), boost::test_tools::per_element());
  BOOST_TEST(front.lengths == (lengths{2, 0, 4}), boost::test_tools::per_element());
  BOOST_TEST(front.labels == (ids{0, 1, 1}), boost::test_tools::per_element());
  BOOST_TEST(front.positions == 4U);
  BOOST_TEST(front.size() == 3U);

  const auto back = pergrad::pad_sequences(three(), 4, sequence_end::back, sequence_end::back, 9);
  BOOST_TEST(back.ids == (ids{1, 2, 9, 9, 9, 9, 9, 9, 3, 4, 5, 6}), boost::test_tools::per_element());
  BOOST_TEST(back.lengths == (lengths{2, 0, 4}), boost::test_tools::per_element());

  const auto mixed = pergrad::pad_sequences(three(), 4, sequence_end::back, sequence_end::front);
  BOOST_TEST(mixed.ids == (ids{1, 2, 0, 0, 0, 0, 0, 0, 4, 5, 6, 7}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(what_is_padded_is_a_data_set) {
  const auto front = pergrad::pad_sequences(three(), 4);
  const pergrad::dataset<std::int32_t, std::int32_t> fixed{front.ids, front.labels, pergrad::token_ids(4, 8)};
  BOOST_TEST(fixed.size() == 3U);
  BOOST_TEST(fixed.input(2)[3] == 7);

  pergrad::labelled_sequences set = three();
  set.sequences = {{1, 2, 3, 4, 5, 6, 7}, {1, 2, 7}};  // none is empty
  const auto back = pergrad::pad_sequences(set, 4, sequence_end::back);
  const pergrad::dataset<std::int32_t, std::int32_t> varying{
      back.ids, back.labels, pergrad::variable(pergrad::token_ids(4, 8)), 1, back.lengths};
  BOOST_TEST(varying.size() == 3U);
}

BOOST_AUTO_TEST_CASE(lengths_that_cannot_be_are_refused) {
  BOOST_TEST(misses<std::invalid_argument>([] { return pergrad::pad_sequences(three(), 0); }, {"0 positions"}) == "");
  BOOST_TEST(misses<std::invalid_argument>([] { return pergrad::pad_sequences(three(), std::size_t{1} << 32U); },
                                           {"4294967296 positions"}) == "");
  auto unequal = three();
  unequal.labels.pop_back();
  BOOST_TEST(misses<std::invalid_argument>([&] { return pergrad::pad_sequences(unequal, 4); },
                                           {"3 sequences and 2 labels"}) == "");
}

BOOST_AUTO_TEST_SUITE_END()
