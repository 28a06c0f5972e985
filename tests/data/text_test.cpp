// SPDX-License-Identifier: Apache-2.0
// tests/data/text_test.cpp - padding, vocabularies and the folder aclImdb
#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <pergrad/batch.hpp>
#include <pergrad/data/acl_imdb.hpp>
#include <pergrad/data/sequences.hpp>
#include <pergrad/data/vocabulary.hpp>
#include <pergrad/shape.hpp>

#include "files.hpp"

namespace {

using ids = std::vector<std::int32_t>;
using lengths = std::vector<std::uint32_t>;
using pergrad::sequence_end;
using test::misses;

pergrad::labelled_sequences three() { return {{{1, 2, 3, 4, 5, 6, 7}, {2, 2, 7}}, {0, 1, 1}}; }  // {1 2} {} {3 ... 7}

std::vector<std::string> words_in(std::string_view text) {
  std::vector<std::string> words;
  pergrad::for_each_word(text, [&](std::string_view word) { words.emplace_back(word); });
  return words;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(sequences)

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

BOOST_AUTO_TEST_SUITE(vocabularies)

BOOST_AUTO_TEST_CASE(words_are_lower_case_and_lie_between_white_space) {
  const std::vector<std::string> expected{"great", "film,", "isn't", "it?<br", "/>\xc3\x89t\xc3\x89"};  // ASCII only
  BOOST_TEST(words_in("  Great FILM,\tisn't it?<br\n/>\xc3\x89T\xc3\x89 ") == expected,
             boost::test_tools::per_element());
  BOOST_TEST(words_in("").empty());
  BOOST_TEST(words_in(" \n ").empty());
}

BOOST_AUTO_TEST_CASE(ids_follow_the_list_and_others_are_unknown) {
  const pergrad::vocabulary words({"the", "film"});
  BOOST_TEST(words.size() == 4U);
  BOOST_TEST(words.id("the") == 2);
  BOOST_TEST(words.id("film") == 3);
  BOOST_TEST(words.id("The") == pergrad::vocabulary::unknown);
  BOOST_TEST(words.id("") == 1);
  BOOST_TEST(misses<std::invalid_argument>(
                 [] {
                   return pergrad::vocabulary({"the", "film", "the"});
                 },
                 {"the word the is there twice"}) == "");
}

BOOST_AUTO_TEST_CASE(the_most_frequent_words_come_first_and_ties_go_by_bytes) {
  pergrad::word_counter counter;
  counter.add("b a c A d");
  counter.add("C b a e");
  const std::vector<std::string> all{"a", "b", "c", "d", "e"};
  BOOST_TEST(counter.most_frequent(100).words() == all, boost::test_tools::per_element());
  const std::vector<std::string> two{"a", "b"};
  BOOST_TEST(counter.most_frequent(4).words() == two, boost::test_tools::per_element());
  BOOST_TEST(counter.most_frequent(4).size() == 4U);
  BOOST_TEST(misses<std::invalid_argument>([&] { return counter.most_frequent(2); }, {"2 ids has no words"}) == "");
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(acl_imdb)

BOOST_AUTO_TEST_CASE(the_folder_is_read_in_the_order_of_its_names_and_its_vocabulary_from_the_training_half) {
  const test::temporary_folder folder;
  folder.write("train/neg/1_1.txt", "Bad bad film");
  folder.write("train/neg/0_2.txt", "a BAD plot");
  folder.write("train/pos/0_9.txt", "a good film a");
  folder.write("train/pos/notes.md", "not a review");
  folder.write("train/unsup/0_0.txt", "neither");
  folder.write("test/neg/0_1.txt", "worst film");
  folder.write("test/pos/0_7.txt", "");
  const auto words = pergrad::acl_imdb_vocabulary(folder.path(), 6);
  const std::vector<std::string> expected{"a", "bad", "film", "good"};
  BOOST_TEST(words.words() == expected, boost::test_tools::per_element());

  const auto train = pergrad::read_acl_imdb(folder.path(), pergrad::data_part::train, words);
  BOOST_TEST(train.sequences.ids == (ids{2, 3, 1, 3, 3, 4, 2, 5, 4, 2}), boost::test_tools::per_element());
  BOOST_TEST(train.sequences.ends == (std::vector<std::size_t>{3, 6, 10}), boost::test_tools::per_element());
  BOOST_TEST(train.labels == (ids{0, 0, 1}), boost::test_tools::per_element());

  const auto part = pergrad::read_acl_imdb(folder.path(), pergrad::data_part::test, words);
  BOOST_TEST(part.sequences.ids == (ids{1, 4}), boost::test_tools::per_element());
  BOOST_TEST(part.sequences.ends == (std::vector<std::size_t>{2, 2}), boost::test_tools::per_element());
  BOOST_TEST(part.labels == (ids{0, 1}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(what_is_missing_says_where_it_comes_from_and_where_to_put_it) {
  const test::temporary_folder folder;
  const pergrad::vocabulary words({"the"});
  const auto read = [&] { return pergrad::read_acl_imdb(folder.path(), pergrad::data_part::train, words); };
  const std::string origin = "https://ai.stanford.edu/~amaas/data/sentiment/";
  BOOST_TEST(misses(read, {"cannot find the folder " + folder.path("train/neg"), origin, folder.path()}) == "");
  BOOST_TEST(misses([&] { return pergrad::acl_imdb_vocabulary(folder.path(), 10); }, {origin}) == "");
  folder.write("train/neg/0_1.txt", "bad");
  BOOST_TEST(misses(read, {"cannot find the folder " + folder.path("train/pos"), origin}) == "");
  std::filesystem::create_directories(folder.path("train/pos"));
  BOOST_TEST(misses(read, {"no *.txt file in " + folder.path("train/pos")}) == "");
  std::filesystem::create_directories(folder.path("train/pos/0_8.txt"));
  BOOST_TEST(misses(read, {folder.path("train/pos/0_8.txt") + " is not a file"}) == "");
}

BOOST_AUTO_TEST_SUITE_END()
